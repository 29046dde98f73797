"""The control planes of the development environment: that they are real, enforce rights and types, and end."""

from __future__ import annotations

import http.client
import os
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from devenv.apiserver import ControlPlane, DevenvError, RefusedError
from devenv.restclient import Json, RestClient, wait_until
from tests.conftest import ACCOUNT, Clusters, bind, fresh_vm_namespace, is_running

pytestmark = pytest.mark.apiserver

ROOT = Path(__file__).parents[2]
BALANCERS = "/apis/loadbalancer.harvesterhci.io/v1beta1/namespaces/{}/loadbalancers"
POOLS = "/apis/loadbalancer.harvesterhci.io/v1beta1/ippools"


@pytest.fixture(scope="module")
def vms(harvester: ControlPlane) -> Iterator[str]:
    """A namespace in Harvester, for all tests here."""
    with fresh_vm_namespace(harvester) as name:
        yield name


@pytest.fixture(scope="module")
def balancers(vms: str) -> str:
    """Where the load balancers of that namespace are."""
    return BALANCERS.format(vms)


@pytest.fixture(scope="module")
def product(harvester: ControlPlane, vms: str, balancers: str) -> RestClient:
    """A client with the rights that the product has on Harvester."""
    account = harvester.kubeconfig_for_service_account(vms, ACCOUNT, context_namespace=vms)
    client = RestClient.from_kubeconfig(account)
    wait_until(lambda: allows(client, "GET", balancers), seconds=60, what="the rights of the product")
    return client


def balancer(name: str, **spec: object) -> Json:
    return {
        "apiVersion": "loadbalancer.harvesterhci.io/v1beta1",
        "kind": "LoadBalancer",
        "metadata": {"name": name},
        "spec": {"ipam": "pool", "workloadType": "cluster"} | spec,
    }


def allows(client: RestClient, method: str, path: str) -> bool:
    """Whether a request is granted. The authorizer hears of a new binding a moment later."""
    try:
        client.request(method, path)
    except RefusedError as refusal:
        if refusal.status == http.client.FORBIDDEN:
            return False
        raise
    return True


def refused_status(client: RestClient, method: str, path: str, body: Json | None = None) -> int:
    with pytest.raises(RefusedError) as caught:
        client.request(method, path, body=body)
    return caught.value.status


def test_servers_are_of_the_release_that_is_pinned(guest: ControlPlane) -> None:
    version = guest.admin.request("GET", "/version")

    assert version["gitVersion"].startswith("v1.")
    assert version["major"] == "1"


def test_clusters_are_separate(clusters: Clusters) -> None:
    uids = [
        plane.admin.request("GET", "/api/v1/namespaces/kube-system")["metadata"]["uid"]
        for plane in (clusters.guest, clusters.harvester)
    ]

    assert uids[0] != uids[1]
    assert clusters.guest.url != clusters.harvester.url


def test_product_may_handle_load_balancers_of_its_namespace(product: RestClient, balancers: str) -> None:
    created = product.request("POST", balancers, body=balancer("mine"))
    created["status"] = {"address": "192.0.2.1"}
    written = product.request("PUT", f"{balancers}/mine", body=created)

    assert written["status"] == {"address": "192.0.2.1"}
    assert "mine" in {one["metadata"]["name"] for one in product.request("GET", balancers)["items"]}
    product.request("DELETE", f"{balancers}/mine")
    assert product.get_or_none(f"{balancers}/mine") is None


@pytest.mark.parametrize(
    ("method", "path"),
    [
        ("PATCH", f"{BALANCERS}/mine"),
        ("GET", BALANCERS.format("default")),
        ("GET", "/apis/loadbalancer.harvesterhci.io/v1beta1/loadbalancers"),
        ("GET", POOLS),
        ("GET", "/apis/k8s.cni.cncf.io/v1/namespaces/{}/network-attachment-definitions"),
        ("GET", "/api/v1/namespaces/{}/services"),
        ("GET", "/api/v1/namespaces/{}"),
    ],
)
def test_product_may_do_nothing_else_on_harvester(product: RestClient, vms: str, method: str, path: str) -> None:
    body: Json | None = {"metadata": {"labels": {"a": "b"}}} if method == "PATCH" else None

    assert refused_status(product, method, path.format(vms), body) == http.client.FORBIDDEN


def test_requests_without_identity_are_refused(guest: ControlPlane, tmp_path: Path) -> None:
    path = guest.kubeconfig_for_service_account(
        "default", "somebody", context_namespace="default", path=tmp_path / "kubeconfig"
    )
    path.write_text(path.read_text().replace("token: ", "ignored: "))

    assert refused_status(RestClient.from_kubeconfig(path), "GET", "/api/v1/nodes") == http.client.UNAUTHORIZED


@pytest.fixture
def worker(guest: ControlPlane) -> Iterator[str]:
    """The path of a Node in the guest."""
    guest.apply({"apiVersion": "v1", "kind": "Node", "metadata": {"name": "worker"}})
    yield "/api/v1/nodes/worker"
    if guest.admin.get_or_none("/api/v1/nodes/worker") is not None:
        guest.admin.request("DELETE", "/api/v1/nodes/worker")


def test_additions_on_the_guest_are_what_the_published_role_lacks(guest: ControlPlane, worker: str) -> None:
    node, account = worker, ("default", "published")
    path = guest.kubeconfig_for_service_account(*account, context_namespace="default")
    client = RestClient.from_kubeconfig(path)

    bind(guest, "harvester-cloud-provider", account=account)
    wait_until(lambda: allows(client, "GET", node), seconds=60, what="the published rights")
    assert refused_status(client, "DELETE", node) == http.client.FORBIDDEN
    bind(guest, "harvester-cloud-provider-additions", account=account)
    wait_until(lambda: allows(client, "DELETE", node), seconds=60, what="the right to delete a Node")
    for name in ("harvester-cloud-provider-published", "harvester-cloud-provider-additions-published"):
        guest.admin.request("DELETE", f"/apis/rbac.authorization.k8s.io/v1/clusterrolebindings/{name}")


@pytest.mark.parametrize(
    ("field", "value"), [("ipam", "static"), ("ipam", ""), ("workloadType", ""), ("listeners", [{"port": 80}])]
)
def test_bad_load_balancer_is_refused(product: RestClient, balancers: str, field: str, value: object) -> None:
    manifest = balancer("bad", **{field: value})

    status = refused_status(product, "POST", balancers, manifest)

    assert status == http.client.UNPROCESSABLE_ENTITY


def test_load_balancer_without_spec_is_refused(product: RestClient, balancers: str) -> None:
    manifest = balancer("bad")
    del manifest["spec"]

    status = refused_status(product, "POST", balancers, manifest)

    assert status == http.client.UNPROCESSABLE_ENTITY


def test_unknown_fields_of_a_load_balancer_are_pruned(product: RestClient, balancers: str) -> None:
    product.request("POST", balancers, body=balancer("pruned", colour="blue"))

    read = product.request("GET", f"{balancers}/pruned")

    assert read["spec"] == {"ipam": "pool", "workloadType": "cluster"}


def test_load_balancer_has_no_status_subresource(harvester: ControlPlane, balancers: str) -> None:
    path = f"{balancers}/any/status"

    assert refused_status(harvester.admin, "GET", path) == http.client.NOT_FOUND


def test_old_version_of_load_balancers_is_served_as_deprecated(
    harvester: ControlPlane, product: RestClient, vms: str, balancers: str
) -> None:
    harvester.apply(
        {
            "apiVersion": "loadbalancer.harvesterhci.io/v1alpha1",
            "kind": "LoadBalancer",
            "metadata": {"name": "old", "namespace": vms},
            "spec": {"ipam": "dhcp", "listeners": [{"name": "a", "port": 80, "protocol": "TCP"}]},
        }
    )

    path = f"{balancers.replace('v1beta1', 'v1alpha1')}/old"
    assert product.request("GET", path)["spec"]["ipam"] == "dhcp"


def test_virtual_machines_keep_fields_that_are_not_described(
    harvester: ControlPlane, product: RestClient, vms: str
) -> None:
    machine: Json = {
        "apiVersion": "kubevirt.io/v1",
        "kind": "VirtualMachine",
        "metadata": {"name": "node-1", "namespace": vms},
        "spec": {"runStrategy": "Always", "dataVolumeTemplates": [{"a": 1}]},
        "status": {"printableStatus": "Running", "observedGeneration": 3},
    }

    harvester.apply(machine)
    harvester.apply(machine)

    read = product.request("GET", f"/apis/kubevirt.io/v1/namespaces/{vms}/virtualmachines/node-1")
    assert (read["spec"], read["status"]) == (machine["spec"], machine["status"])


def test_unknown_kind_is_named(guest: ControlPlane) -> None:
    with pytest.raises(DevenvError, match="no kind Unicorn"):
        guest.apply({"apiVersion": "example.org/v1", "kind": "Unicorn", "metadata": {"name": "a"}})


def test_stopped_servers_refuse_connections_and_come_back_with_their_data(guest: ControlPlane) -> None:
    marker = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "marker"}}
    guest.apply(marker)

    guest.stop_apiserver()
    with pytest.raises(ConnectionRefusedError):
        guest.admin.request("GET", "/version")
    os.kill(guest.processes["etcd"], signal.SIGKILL)
    wait_until(lambda: "etcd" not in guest.processes, seconds=60, what="end of etcd")
    guest.revive()

    assert guest.admin.get_or_none("/api/v1/namespaces/default/configmaps/marker") is not None
    guest.admin.request("DELETE", "/api/v1/namespaces/default/configmaps/marker")


def test_server_that_does_not_start_is_explained_and_leaves_nothing(tmp_path: Path) -> None:
    plane = ControlPlane("broken", tmp_path, extra_args=["--no-such-flag"])

    with pytest.raises(DevenvError, match="no-such-flag"):
        plane.launch()

    assert plane.processes == {}
    assert not is_running(plane._children["etcd"].pid), "stopping leaves processes"
