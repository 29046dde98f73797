"""Clusters for the install artefacts: a guest that charts go into, and a Harvester that issues tokens."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from devenv.apiserver import ControlPlane

HERE = Path(__file__).parent
DEVENV = HERE.parents[1] / "devenv"


@pytest.fixture(scope="package")
def guest(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ControlPlane]:
    """A cluster that records who was refused what, with the kinds of the Prometheus operator."""
    with ControlPlane.start("guest", tmp_path_factory.mktemp("guest"), audit=True) as plane:
        plane.apply(HERE / "monitoring_crds.yaml")
        yield plane


@pytest.fixture(scope="package")
def harvester(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ControlPlane]:
    """A cluster with Harvester's kinds and role, and a controller manager that fills token Secrets."""
    directory = tmp_path_factory.mktemp("harvester")
    with ControlPlane.start("harvester", directory, controller_manager=True) as plane:
        plane.apply(*sorted((DEVENV / "crds").glob("*.yaml")), DEVENV / "rbac" / "harvester-cloud-provider.yaml")
        for name in ("tenant-a", "tenant-b", "harvester-system"):
            plane.apply({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}})
        yield plane
