"""Metrics and health of this process, and the HTTPS server for both."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from harvester_ccm.config import ServerSettings
from harvester_ccm.kube.client import ApiClient
from harvester_ccm.telemetry.health import HealthRegistry
from harvester_ccm.telemetry.metrics import Telemetry


@asynccontextmanager
async def served(
    settings: ServerSettings, guest: ApiClient, *, telemetry: Telemetry, health: HealthRegistry
) -> AsyncIterator[None]:
    """Serve metrics and health over HTTPS for the time of a block. Raises ConfigurationError."""
    if settings.port == 0:
        yield
        return
    # Loaded here only: without a server its libraries would take memory for nothing.
    from harvester_ccm.telemetry.auth import AccessReviewer  # noqa: PLC0415
    from harvester_ccm.telemetry.server import https_server  # noqa: PLC0415

    async with https_server(settings, health, telemetry=telemetry, reviewer=AccessReviewer(guest)):
        yield
