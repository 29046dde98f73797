"""A fresh stage for every test on the session's clusters; what a test leaves behind is removed."""

from collections.abc import AsyncIterator, Iterator
from http import HTTPStatus
from pathlib import Path

import pytest

from devenv.ccm import CcmProcess
from devenv.harvester.queue import STOCK, Pace
from devenv.kubevip import KubeVipOptions
from devenv.logfile import logs_to
from devenv.restclient import Json, RefusedError, RestClient
from devenv.stage import Scene, Stage
from harvester_ccm.kube.builtin import EVENTS, LEASES
from harvester_ccm.model.core import CONFIG_MAPS, ENDPOINT_SLICES, SERVICES
from harvester_ccm.model.harvester import LOAD_BALANCERS
from harvester_ccm.names import NAD_MAPPING_NAME
from tests.conftest import Clusters

DHCP_RANGE = ("127.78.0.10", "127.78.0.99")
POOLS = "/apis/loadbalancer.harvesterhci.io/v1beta1/ippools"
LEASE = LEASES.path("kube-system", "cloud-controller-manager")
NAD_MAPPING = CONFIG_MAPS.path("kube-system", NAD_MAPPING_NAME)


@pytest.fixture(scope="session")
def scene(clusters: Clusters) -> Scene:
    """The session's clusters with the controller's credentials. VMs and load balancers are in ``default``."""
    return Scene.on(*clusters, forks=True)


@pytest.fixture
def pace() -> Pace:
    """How fast Harvester's controllers are: as they are installed. Tests say by parameter what else holds."""
    return STOCK


@pytest.fixture
async def stage(scene: Scene, tmp_path: Path, pace: Pace) -> AsyncIterator[Stage]:
    """Emulators and proxies on clean clusters; no run may have logged a traceback."""
    with logs_to(tmp_path / "emulators.log"):
        try:
            options = KubeVipOptions(dhcp_range=DHCP_RANGE)
            async with Stage(scene, tmp_path, pace=pace, kube_vip=options) as opened:
                yield opened
        finally:
            clear(scene)
    for run in opened.runs:
        assert "Traceback" not in run.log, run.log


@pytest.fixture
async def lan(stage: Stage) -> None:
    """An IP pool for every Service."""
    await stage.harvester.create_pool("lan", "127.77.0.0/24")


@pytest.fixture
async def ccm(stage: Stage, lan: None) -> CcmProcess:
    """The leader, with all its requests through the proxies, and a pool."""
    run = stage.run(proxied=True)
    # Until then, a Service counts as one that can have a load balancer already.
    await stage.logged(run, "service controller started")
    return run


def clear(scene: Scene) -> None:
    """Remove what a test left in the clusters."""
    guest, harvester = scene.guest.admin, scene.harvester.admin
    _remove(guest, SERVICES.path("default"), keep=("kubernetes",))
    _remove(guest, ENDPOINT_SLICES.path("default"), keep=("kubernetes",))
    _remove(harvester, LOAD_BALANCERS.path("default"))
    _remove(harvester, POOLS)
    for namespace in ("default", "kube-system"):
        # Those about the Lease are in kube-system, and `status` names them for an hour.
        guest.request("DELETE", EVENTS.path(namespace))
    for single in (LEASE, NAD_MAPPING):
        _ask(guest, "DELETE", single)


def _remove(client: RestClient, collection: str, *, keep: tuple[str, ...] = ()) -> None:
    for name, finalizers in list(_listed(client, collection)):
        if name in keep:
            continue
        _ask(client, "DELETE", f"{collection}/{name}")
        if finalizers:
            _ask(client, "PATCH", f"{collection}/{name}", body={"metadata": {"finalizers": None}})


def _ask(client: RestClient, method: str, path: str, *, body: Json | None = None) -> None:
    """Send a request about an object that may be gone."""
    try:
        client.request(method, path, body=body)
    except RefusedError as refusal:
        if refusal.status != HTTPStatus.NOT_FOUND:
            raise


def _listed(client: RestClient, collection: str) -> Iterator[tuple[str, list[str]]]:
    for item in client.request("GET", collection)["items"]:
        yield item["metadata"]["name"], item["metadata"].get("finalizers") or []
