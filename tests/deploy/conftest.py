"""Clusters for the install artefacts: a guest that charts go into, and a Harvester that issues tokens."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from devenv.apiserver import ControlPlane

HERE = Path(__file__).parent
DEVENV = HERE.parents[1] / "devenv"


LEFT_BY_NO_MODULE = {
    "guest": ("/api/v1/services",),
    "harvester": tuple(f"/apis/loadbalancer.harvesterhci.io/v1beta1/{kind}" for kind in ("loadbalancers", "ippools")),
}
"""What every module removes from a cluster, because the controller and Harvester serve all of it."""
KUBERNETES = "kubernetes"
"""The Service that the API server makes."""


@pytest.fixture(scope="package")
def started() -> dict[str, ControlPlane]:
    """The clusters of these tests that run."""
    return {}


@pytest.fixture(scope="module", autouse=True)
def leaves_nothing(started: dict[str, ControlPlane]) -> Iterator[None]:
    """The clusters are shared by modules, in an order that differs from run to run."""
    yield
    for name, plane in started.items():
        for path in LEFT_BY_NO_MODULE[name]:
            left = {one["metadata"]["name"] for one in plane.admin.request("GET", path)["items"]}
            assert left <= {KUBERNETES}, f"{path} in cluster {name}"


@pytest.fixture(scope="package")
def guest(started: dict[str, ControlPlane], tmp_path_factory: pytest.TempPathFactory) -> Iterator[ControlPlane]:
    """A cluster that records who was refused what, with the kinds of the Prometheus operator."""
    with ControlPlane.start("guest", tmp_path_factory.mktemp("guest"), audit=True) as plane:
        plane.apply(HERE / "monitoring_crds.yaml")
        started["guest"] = plane
        yield plane


@pytest.fixture(scope="package")
def harvester(started: dict[str, ControlPlane], tmp_path_factory: pytest.TempPathFactory) -> Iterator[ControlPlane]:
    """A cluster with Harvester's kinds and role, and a controller manager that fills token Secrets."""
    directory = tmp_path_factory.mktemp("harvester")
    with ControlPlane.start("harvester", directory, controller_manager=True) as plane:
        plane.apply(*sorted((DEVENV / "crds").glob("*.yaml")), DEVENV / "rbac" / "harvester-cloud-provider.yaml")
        for name in ("tenant-a", "tenant-b", "harvester-system"):
            plane.apply({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}})
        started["harvester"] = plane
        yield plane
