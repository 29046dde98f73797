"""Clients for the tests of ``harvester_ccm.kube`` against a real API server behind a fault-injecting proxy."""

from collections.abc import AsyncIterator, Callable
from pathlib import Path

import pytest

from devenv.apiserver import ControlPlane
from devenv.proxy import FaultProxy
from devenv.restclient import Json
from harvester_ccm.kube.client import REQUEST_TIMEOUT, ApiClient
from harvester_ccm.kube.credentials import load_credentials
from tests.apiserver.follower import Follower


@pytest.fixture
def request_timeout() -> float:
    """Seconds that ``client`` waits for an answer."""
    return REQUEST_TIMEOUT


@pytest.fixture
async def client(
    guest_proxy: FaultProxy, admin_kubeconfig: Path, tmp_path: Path, request_timeout: float
) -> AsyncIterator[ApiClient]:
    """All rights on the guest, through the proxy."""
    path = guest_proxy.kubeconfig(admin_kubeconfig, tmp_path / "kubeconfig")
    async with ApiClient(load_credentials(path), cluster="guest", timeout=request_timeout) as one:
        yield one


@pytest.fixture
def account(guest: ControlPlane, namespace: str, tmp_path: Path) -> Callable[..., Path]:
    """A function that makes a service account with only the given rules in ``namespace`` and returns its kubeconfig."""

    def make(name: str, *rules: Json) -> Path:
        api_group, meta = "rbac.authorization.k8s.io", {"name": name, "namespace": namespace}
        path = guest.kubeconfig_for_service_account(
            namespace, name, context_namespace=namespace, path=tmp_path / f"{name}.kubeconfig"
        )
        guest.apply(
            {"apiVersion": f"{api_group}/v1", "kind": "Role", "metadata": meta, "rules": list(rules)},
            {
                "apiVersion": f"{api_group}/v1",
                "kind": "RoleBinding",
                "metadata": meta,
                "roleRef": {"apiGroup": api_group, "kind": "Role", "name": name},
                "subjects": [{"kind": "ServiceAccount", "name": name, "namespace": namespace}],
            },
        )
        return path

    return make


@pytest.fixture
def put_config_map(guest: ControlPlane, namespace: str) -> Callable[..., None]:
    """A function that creates or replaces a ConfigMap in ``namespace``, past the proxy."""

    def put(name: str, **data: str) -> None:
        guest.apply(
            {
                "apiVersion": "v1",
                "kind": "ConfigMap",
                "metadata": {"name": name, "namespace": namespace},
                "data": data,
            }
        )

    return put


@pytest.fixture
def delete_config_map(guest: ControlPlane, namespace: str) -> Callable[[str], None]:
    """A function that deletes a ConfigMap in ``namespace``, past the proxy."""

    def delete(name: str) -> None:
        guest.admin.request("DELETE", f"/api/v1/namespaces/{namespace}/configmaps/{name}")

    return delete


@pytest.fixture
def follower(client: ApiClient, namespace: str) -> Follower:
    """An informer of the ConfigMaps in ``namespace``, through the proxy."""
    return Follower(client, namespace)
