"""The control planes of the development environment: that they are real, enforce rights and types, and end."""

from __future__ import annotations

import contextlib
import http.client
import json
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from devenv.apiserver import ControlPlane, DevenvError, RefusedError, start_clusters
from devenv.restclient import Json, RestClient, wait_until
from devenv.stage import until
from harvester_ccm.errors import NotFound
from harvester_ccm.kube.client import ApiClient
from harvester_ccm.kube.credentials import load_kubeconfig
from harvester_ccm.model.core import SERVICES

pytestmark = pytest.mark.apiserver

ROOT = Path(__file__).parents[2]
BALANCERS = "/apis/loadbalancer.harvesterhci.io/v1beta1/namespaces/{}/loadbalancers"
POOLS = "/apis/loadbalancer.harvesterhci.io/v1beta1/ippools"

PLANE_OF_A_SHORT_THREAD = """
import json, pathlib, signal, sys, threading
from devenv.apiserver import ControlPlane

# Who was started in the background by a shell ignores it.
signal.signal(signal.SIGINT, signal.default_int_handler)
planes = []
starter = threading.Thread(target=lambda: planes.append(ControlPlane.start("child", pathlib.Path(sys.argv[1]))))
starter.start()
starter.join()
# One that comes before it is waited for waits as well.
signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
print(json.dumps(planes[0].processes), flush=True)
signal.default_int_handler(signal.sigwait({signal.SIGINT}), None)
"""


class Clusters:
    """Both control planes and a client with the rights that the product has on Harvester."""

    def __init__(self, directory: Path) -> None:
        started = time.monotonic()
        self.guest, self.harvester = start_clusters(directory, audit=True, vm_namespace="vms")
        sys.stdout.write(f"both control planes were ready after {time.monotonic() - started:.1f} s\n")
        self.product = RestClient.from_kubeconfig(
            self.harvester.kubeconfig_for_service_account("vms", "harvester-cloud-provider", context_namespace="vms")
        )


@pytest.fixture(scope="module")
def clusters(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Clusters]:
    both = Clusters(tmp_path_factory.mktemp("clusters"))
    yield both
    # No test of its own: it would end what the others use, whatever their order.
    started = [*both.guest.processes.values(), *both.harvester.processes.values()]
    both.guest.stop()
    both.harvester.stop()
    assert started
    assert not [pid for pid in started if is_running(pid)], "stopping leaves processes"


def balancer(name: str, **spec: object) -> Json:
    return {
        "apiVersion": "loadbalancer.harvesterhci.io/v1beta1",
        "kind": "LoadBalancer",
        "metadata": {"name": name},
        "spec": {"ipam": "pool", "workloadType": "cluster"} | spec,
    }


def refused_status(client: RestClient, method: str, path: str, body: Json | None = None) -> int:
    with pytest.raises(RefusedError) as caught:
        client.request(method, path, body=body)
    return caught.value.status


def is_running(pid: int) -> bool:
    """Whether a process runs; a dead one that nobody has waited for does not."""
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except FileNotFoundError:
        return False
    return state not in {"Z", "X"}


def test_servers_are_of_the_release_that_is_pinned(clusters: Clusters) -> None:
    version = clusters.guest.admin.request("GET", "/version")

    assert version["gitVersion"].startswith("v1.")
    assert version["major"] == "1"


def test_clusters_are_separate(clusters: Clusters) -> None:
    uids = [
        plane.admin.request("GET", "/api/v1/namespaces/kube-system")["metadata"]["uid"]
        for plane in (clusters.guest, clusters.harvester)
    ]

    assert uids[0] != uids[1]
    assert clusters.guest.url != clusters.harvester.url


def test_product_may_handle_load_balancers_of_its_namespace(clusters: Clusters) -> None:
    collection = BALANCERS.format("vms")

    created = clusters.product.request("POST", collection, body=balancer("mine"))
    created["status"] = {"address": "192.0.2.1"}
    written = clusters.product.request("PUT", f"{collection}/mine", body=created)

    assert written["status"] == {"address": "192.0.2.1"}
    assert "mine" in {one["metadata"]["name"] for one in clusters.product.request("GET", collection)["items"]}
    clusters.product.request("DELETE", f"{collection}/mine")
    assert clusters.product.get_or_none(f"{collection}/mine") is None


@pytest.mark.parametrize(
    ("method", "path"),
    [
        ("PATCH", f"{BALANCERS.format('vms')}/mine"),
        ("GET", BALANCERS.format("default")),
        ("GET", "/apis/loadbalancer.harvesterhci.io/v1beta1/loadbalancers"),
        ("GET", POOLS),
        ("GET", "/apis/k8s.cni.cncf.io/v1/namespaces/vms/network-attachment-definitions"),
        ("GET", "/api/v1/namespaces/vms/services"),
        ("GET", "/api/v1/namespaces/vms"),
    ],
)
def test_product_may_do_nothing_else_on_harvester(clusters: Clusters, method: str, path: str) -> None:
    body: Json | None = {"metadata": {"labels": {"a": "b"}}} if method == "PATCH" else None

    assert refused_status(clusters.product, method, path, body) == http.client.FORBIDDEN


def test_requests_without_identity_are_refused(clusters: Clusters, tmp_path: Path) -> None:
    path = clusters.guest.kubeconfig_for_service_account(
        "default", "somebody", context_namespace="default", path=tmp_path / "kubeconfig"
    )
    path.write_text(path.read_text().replace("token: ", "ignored: "))

    assert refused_status(RestClient.from_kubeconfig(path), "GET", "/api/v1/nodes") == http.client.UNAUTHORIZED


def test_additions_on_the_guest_are_granted_only_when_asked_for(clusters: Clusters) -> None:
    node = "/api/v1/nodes/worker"
    clusters.guest.apply({"apiVersion": "v1", "kind": "Node", "metadata": {"name": "worker"}})
    product = RestClient.from_kubeconfig(
        clusters.guest.kubeconfig_for_service_account(
            "kube-system", "harvester-cloud-provider", context_namespace="kube-system"
        )
    )

    assert product.request("GET", node)["metadata"]["name"] == "worker"
    assert refused_status(product, "DELETE", node) == http.client.FORBIDDEN
    clusters.guest.apply(ROOT / "devenv" / "rbac" / "guest-additions.yaml")

    def deleted() -> bool:
        # The authorizer hears of a new binding a moment later.
        with contextlib.suppress(RefusedError):
            product.request("DELETE", node)
            return True
        return False

    wait_until(deleted, seconds=60, what="the right to delete a Node")


@pytest.mark.parametrize(
    ("field", "value"), [("ipam", "static"), ("ipam", ""), ("workloadType", ""), ("listeners", [{"port": 80}])]
)
def test_bad_load_balancer_is_refused(clusters: Clusters, field: str, value: object) -> None:
    manifest = balancer("bad", **{field: value})

    status = refused_status(clusters.product, "POST", BALANCERS.format("vms"), manifest)

    assert status == http.client.UNPROCESSABLE_ENTITY


def test_load_balancer_without_spec_is_refused(clusters: Clusters) -> None:
    manifest = balancer("bad")
    del manifest["spec"]

    status = refused_status(clusters.product, "POST", BALANCERS.format("vms"), manifest)

    assert status == http.client.UNPROCESSABLE_ENTITY


def test_unknown_fields_of_a_load_balancer_are_pruned(clusters: Clusters) -> None:
    clusters.product.request("POST", BALANCERS.format("vms"), body=balancer("pruned", colour="blue"))

    read = clusters.product.request("GET", f"{BALANCERS.format('vms')}/pruned")

    assert read["spec"] == {"ipam": "pool", "workloadType": "cluster"}


def test_load_balancer_has_no_status_subresource(clusters: Clusters) -> None:
    path = f"{BALANCERS.format('vms')}/any/status"

    assert refused_status(clusters.harvester.admin, "GET", path) == http.client.NOT_FOUND


def test_old_version_of_load_balancers_is_served_as_deprecated(clusters: Clusters) -> None:
    clusters.harvester.apply(
        {
            "apiVersion": "loadbalancer.harvesterhci.io/v1alpha1",
            "kind": "LoadBalancer",
            "metadata": {"name": "old", "namespace": "vms"},
            "spec": {"ipam": "dhcp", "listeners": [{"name": "a", "port": 80, "protocol": "TCP"}]},
        }
    )

    path = "/apis/loadbalancer.harvesterhci.io/v1alpha1/namespaces/vms/loadbalancers/old"
    assert clusters.product.request("GET", path)["spec"]["ipam"] == "dhcp"


def test_virtual_machines_keep_fields_that_are_not_described(clusters: Clusters) -> None:
    machine: Json = {
        "apiVersion": "kubevirt.io/v1",
        "kind": "VirtualMachine",
        "metadata": {"name": "node-1", "namespace": "vms"},
        "spec": {"runStrategy": "Always", "dataVolumeTemplates": [{"a": 1}]},
        "status": {"printableStatus": "Running", "observedGeneration": 3},
    }

    clusters.harvester.apply(machine)
    clusters.harvester.apply(machine)

    read = clusters.product.request("GET", "/apis/kubevirt.io/v1/namespaces/vms/virtualmachines/node-1")
    assert (read["spec"], read["status"]) == (machine["spec"], machine["status"])


def test_unknown_kind_is_named(clusters: Clusters) -> None:
    with pytest.raises(DevenvError, match="no kind Unicorn"):
        clusters.guest.apply({"apiVersion": "example.org/v1", "kind": "Unicorn", "metadata": {"name": "a"}})


def test_audit_log_tells_who_did_what(clusters: Clusters) -> None:
    clusters.product.get_or_none(f"{BALANCERS.format('vms')}/audited")

    events = [json.loads(line) for line in clusters.harvester.audit_log.read_text().splitlines()]

    users = {e["user"]["username"] for e in events if e.get("objectRef", {}).get("name") == "audited"}
    assert users == {"system:serviceaccount:vms:harvester-cloud-provider"}


async def test_failed_request_of_the_program_is_found_in_the_audit_log(clusters: Clusters) -> None:
    plane = clusters.guest
    async with ApiClient(load_kubeconfig(plane.admin_kubeconfig), cluster="guest") as client:
        ids = []
        for name in ("one", "two"):
            with pytest.raises(NotFound) as caught:
                await client.get(SERVICES, name, namespace="default")
            ids.append(caught.value.request_id)

    async def audited() -> dict[str, str]:
        lines = [json.loads(line) for line in plane.audit_log.read_text().splitlines() if line.endswith("}")]
        found = {line["auditID"]: line["objectRef"]["name"] for line in lines if line["auditID"] in ids}
        return found if len(found) == len(ids) else {}

    found = await until(audited, within=60, what="both requests in the audit log")
    assert [found[one] for one in ids] == ["one", "two"]
    assert all(re.fullmatch(r"[0-9a-f]{10}-[0-9a-f]{8}", one) for one in ids)


@pytest.mark.parametrize("etcd", [False, True], ids=["alone", "with etcd"])
def test_stopped_apiserver_refuses_connections_and_comes_back_with_its_data(clusters: Clusters, etcd: bool) -> None:
    guest = clusters.guest
    marker = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "marker"}}
    guest.apply(marker)

    guest.stop_apiserver()
    with pytest.raises(ConnectionRefusedError):
        guest.admin.request("GET", "/version")
    if etcd:
        os.kill(guest.processes["etcd"], signal.SIGKILL)
        wait_until(lambda: "etcd" not in guest.processes, seconds=60, what="end of etcd")
    guest.revive()

    assert guest.admin.get_or_none("/api/v1/namespaces/default/configmaps/marker") is not None


def test_server_that_does_not_start_is_explained_and_leaves_nothing(tmp_path: Path) -> None:
    plane = ControlPlane("broken", tmp_path, extra_args=["--no-such-flag"])

    with pytest.raises(DevenvError, match="no-such-flag"):
        plane.launch()

    assert plane.processes == {}


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGINT], ids=["killed", "interrupted"])
def test_end_of_the_parent_leaves_no_process(tmp_path: Path, number: signal.Signals) -> None:
    """Also when the thread that started the servers ended long before."""
    command = [sys.executable, "-c", PLANE_OF_A_SHORT_THREAD, str(tmp_path)]
    with subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True) as parent:
        assert parent.stdout is not None
        pids: dict[str, int] = json.loads(parent.stdout.readline())
        assert all(is_running(pid) for pid in pids.values())

        os.kill(parent.pid, number)

        wait_until(lambda: not any(is_running(pid) for pid in pids.values()), seconds=3, what="end of the servers")
