"""Emulators on the session's control planes."""

from collections.abc import AsyncIterator

import pytest

from devenv.apiserver import ControlPlane
from devenv.harvester import HarvesterEmulator
from devenv.harvester.queue import FAST
from devenv.harvester.versions import NEWEST
from harvester_ccm.kube.client import ApiClient
from harvester_ccm.kube.credentials import load_credentials


@pytest.fixture
async def harvester_admin(harvester: ControlPlane) -> AsyncIterator[ApiClient]:
    """A client with all rights in Harvester."""
    async with ApiClient(load_credentials(harvester.admin_kubeconfig), cluster="harvester") as client:
        yield client


def fast_emulator(admin: ApiClient, number: str = NEWEST) -> HarvesterEmulator:
    """Return a Harvester of this version without rate limits, whose generated objects are collected after 0.3 s."""
    dhcp_range = ("127.78.0.10", "127.78.0.20")
    return HarvesterEmulator(admin, pace=FAST, dhcp_range=dhcp_range, collection_seconds=0.3, version=number)
