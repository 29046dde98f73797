"""Real control planes for all tests: one guest cluster and one Harvester per session, started on first use."""

import itertools
import os
from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

import hypothesis
import pytest
import structlog

from devenv.apiserver import ControlPlane, start_clusters
from devenv.proxy import FaultProxy
from devenv.restclient import Json, RestClient
from tests.simulation.seeds import first_unseen
from tests.support.loopback import own_loopback_is_granted, take_own_loopback

hypothesis.settings.register_profile("quick", deadline=None, max_examples=25, derandomize=True, database=None)
hypothesis.settings.register_profile("thorough", deadline=None)

MAX_WORKERS = 4
"""Of ``-n auto``. Each has two control planes of its own, about 1 GB."""


def pytest_xdist_auto_num_workers(config: pytest.Config) -> int:
    """Return the number of workers of ``-n auto``: one if two would use the same loopback addresses."""
    return min(2 * (os.cpu_count() or 1), MAX_WORKERS) if own_loopback_is_granted() else 1


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leave out the tests that are only for ``--thorough`` unless it is given."""
    if not config.option.thorough:
        left_out = [item for item in items if item.get_closest_marker("thorough")]
        if left_out:
            config.hook.pytest_deselected(items=left_out)
            items[:] = [item for item in items if not item.get_closest_marker("thorough")]


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--thorough", action="store_true", help="try many and random examples instead of a fixed few")


def pytest_configure(config: pytest.Config) -> None:
    """Choose the number of examples, and give each worker loopback addresses of its own."""
    hypothesis.settings.load_profile("thorough" if config.option.thorough else "quick")
    if hasattr(config, "workerinput"):
        take_own_loopback()


def is_running(pid: int) -> bool:
    """Return whether a process runs (Linux); a zombie does not."""
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except (FileNotFoundError, ProcessLookupError):
        return False
    return state not in {"Z", "X"}


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Print the first seed of the schedules, which every commit has its own of."""
    reports = terminalreporter.stats.get("passed", []) + terminalreporter.stats.get("failed", [])
    if any("test_schedule_ends_in_the_desired_state" in report.nodeid for report in reports):
        terminalreporter.write_line(f"schedules from seed {first_unseen()}")


@pytest.fixture(scope="session")
def thorough(request: pytest.FixtureRequest) -> bool:
    """Whether ``--thorough`` is given."""
    return bool(request.config.option.thorough)


@pytest.fixture(autouse=True)
def fresh_logging() -> Iterator[None]:
    """Reset the log configuration, whose output is closed after a test."""
    yield
    structlog.reset_defaults()


ACCOUNT = "harvester-cloud-provider"
"""Service account of the product, in both clusters."""
_RBAC = "rbac.authorization.k8s.io"
_LOAD_BALANCERS = "/apis/loadbalancer.harvesterhci.io/v1beta1/namespaces/{}/loadbalancers"
_OF_LOAD_BALANCERS = (
    "/api/v1/namespaces/{}/services",
    "/apis/discovery.k8s.io/v1/namespaces/{}/endpointslices",
    "/apis/kubevirt.io/v1/namespaces/{}/virtualmachines",
    "/apis/kubevirt.io/v1/namespaces/{}/virtualmachineinstances",
)

_numbers = itertools.count(1)


class Clusters(NamedTuple):
    """Both control planes of the session."""

    guest: ControlPlane
    harvester: ControlPlane


@pytest.fixture(scope="session")
def clusters(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Clusters]:
    """Both control planes, with the types and permissions of real clusters."""
    both = Clusters(*start_clusters(tmp_path_factory.mktemp("clusters"), guest_additions=True))
    yield both
    started = [pid for plane in both for pid in plane.processes.values()]
    for plane in both:
        plane.stop()
    assert not [pid for pid in started if is_running(pid)], "stopping leaves processes"


@pytest.fixture(scope="session")
def guest(clusters: Clusters) -> ControlPlane:
    """The guest cluster. Objects of other tests may be in it: keep to ``namespace``."""
    return clusters.guest


@pytest.fixture(scope="session")
def harvester(clusters: Clusters) -> ControlPlane:
    """The Harvester cluster. Objects of other tests may be in it: keep to ``vm_namespace``."""
    return clusters.harvester


@pytest.fixture
def namespace(guest: ControlPlane) -> Iterator[str]:
    """A fresh namespace in the guest. Its Services are removed afterwards, with their finalizers."""
    name = f"test-{next(_numbers)}"
    guest.apply({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}})
    yield name
    _clear(guest.admin, f"/api/v1/namespaces/{name}/services")


@pytest.fixture
def vm_namespace(harvester: ControlPlane) -> Iterator[str]:
    """A fresh namespace in Harvester, with the permissions of the controller. See ``fresh_vm_namespace``."""
    with fresh_vm_namespace(harvester) as name:
        yield name


@contextmanager
def fresh_vm_namespace(harvester: ControlPlane) -> Iterator[str]:
    """Create a namespace with the permissions of the controller; remove its objects afterwards.

    An emulator reconciles all namespaces, so that objects that stay would affect later tests.
    """
    name = f"vms-{next(_numbers)}"
    harvester.apply({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}})
    bind(harvester, "harvesterhci.io:cloudprovider", account=(name, ACCOUNT), namespace=name)
    yield name
    _clear(harvester.admin, _LOAD_BALANCERS.format(name))
    for collection in _OF_LOAD_BALANCERS:
        harvester.admin.request("DELETE", collection.format(name))


@pytest.fixture(scope="session")
def guest_kubeconfig(guest: ControlPlane) -> Path:
    """The product's kubeconfig for the guest, with exactly the permissions of the chart."""
    return guest.kubeconfig_for_service_account("kube-system", ACCOUNT, context_namespace="kube-system")


@pytest.fixture
def harvester_kubeconfig(harvester: ControlPlane, vm_namespace: str) -> Path:
    """The product's cloud-config for ``vm_namespace``, with exactly the permissions that Harvester grants."""
    return harvester.kubeconfig_for_service_account(vm_namespace, ACCOUNT, context_namespace=vm_namespace)


@pytest.fixture(scope="session")
def admin_kubeconfig(guest: ControlPlane) -> Path:
    """A kubeconfig for the guest with all permissions and a token, which also works through a proxy."""
    path = guest.kubeconfig_for_service_account("kube-system", "test-admin", context_namespace="default")
    bind(guest, "cluster-admin", account=("kube-system", "test-admin"))
    return path


@pytest.fixture
async def guest_proxy(guest: ControlPlane) -> AsyncIterator[FaultProxy]:
    """A fault-injecting proxy in front of the guest."""
    async with FaultProxy(guest) as proxy:
        yield proxy


@pytest.fixture
async def harvester_proxy(harvester: ControlPlane) -> AsyncIterator[FaultProxy]:
    """A fault-injecting proxy in front of Harvester."""
    async with FaultProxy(harvester) as proxy:
        yield proxy


def bind(plane: ControlPlane, role: str, *, account: tuple[str, str], namespace: str | None = None) -> None:
    """Grant a ClusterRole to a service account (namespace, name), everywhere or in one namespace."""
    subject: Json = {"kind": "ServiceAccount", "namespace": account[0], "name": account[1]}
    plane.apply(
        {
            "apiVersion": f"{_RBAC}/v1",
            "kind": "RoleBinding" if namespace else "ClusterRoleBinding",
            "metadata": {
                "name": f"{role}-{account[1]}".replace(":", "-"),
                **({"namespace": namespace} if namespace else {}),
            },
            "roleRef": {"apiGroup": _RBAC, "kind": "ClusterRole", "name": role},
            "subjects": [subject],
        }
    )


def _clear(admin: RestClient, collection: str) -> None:
    for item in admin.request("GET", collection)["items"]:
        path = f"{collection}/{item['metadata']['name']}"
        if item["metadata"].get("finalizers"):
            admin.request("PATCH", path, body={"metadata": {"finalizers": None}})
        if admin.get_or_none(path) is not None:
            admin.request("DELETE", path)
