"""The program with exactly what the artefacts give it: the chart's rights here, the script's credential there."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from devenv.apiserver import ControlPlane
from devenv.binaries import require
from devenv.helm import CHART, NAMESPACE, RELEASE, run_helm
from devenv.process import ChildProcess
from devenv.restclient import Json, wait_until
from harvester_ccm.names import LB_CONTROLLER_FINALIZER

pytestmark = pytest.mark.apiserver

SCRIPT = Path(__file__).parents[2] / "scripts" / "generate_addon.sh"
ACCOUNT = "system:serviceaccount:kube-system:harvester-cloud-provider"
LEASE = "/apis/coordination.k8s.io/v1/namespaces/kube-system/leases/cloud-controller-manager"
BALANCERS = "/apis/loadbalancer.harvesterhci.io/v1beta1/namespaces/tenant-a/loadbalancers"
ADDRESS = "192.0.2.10"
SERVICE = "/api/v1/namespaces/default/services/web"


@pytest.fixture
def release(guest: ControlPlane) -> Iterator[ControlPlane]:
    run_helm("install", RELEASE, CHART, "--namespace", NAMESPACE, kubeconfig=guest.admin_kubeconfig)
    yield guest
    run_helm("uninstall", RELEASE, "--namespace", NAMESPACE, kubeconfig=guest.admin_kubeconfig)


@pytest.fixture
def cloud_config(harvester: ControlPlane, tmp_path: Path) -> Path:
    tools = {"PATH": f"{require('kubectl')['kubectl'].parent}:{os.environ['PATH']}", "HOME": str(tmp_path)}
    subprocess.run(
        ["bash", SCRIPT, "-o", tmp_path, "prod", "tenant-a"],
        check=True,
        env=tools | {"KUBECONFIG": str(harvester.admin_kubeconfig)},
        capture_output=True,
    )
    return tmp_path / "cloud-config"


@pytest.fixture
def program(release: ControlPlane, cloud_config: Path, tmp_path: Path) -> Iterator[ChildProcess]:
    rights = release.kubeconfig_for_service_account(NAMESPACE, "harvester-cloud-provider", context_namespace=NAMESPACE)
    command: list[str | Path] = [Path(sys.executable), "-m", "harvester_ccm", f"--cloud-config={cloud_config}"]
    command += ["--cluster-name=prod", f"--kubeconfig={rights}", "--secure-port=0"]
    child = ChildProcess.start("harvester-ccm", command, log_file=tmp_path / "log")
    yield child
    child.stop()


def refused_requests(plane: ControlPlane) -> list[str]:
    events: list[Json] = [json.loads(line) for line in plane.audit_log.read_text().splitlines()]
    return [
        f"{event['verb']} {event['requestURI']}"
        for event in events
        if event["user"]["username"] == ACCOUNT and event.get("responseStatus", {}).get("code") == 403
    ]


def balancers(harvester: ControlPlane) -> list[Json]:
    items: list[Json] = harvester.admin.request("GET", BALANCERS)["items"]
    return items


def act_as_harvester(harvester: ControlPlane) -> None:
    """Do what Harvester's controller does: finalizer and address for a new object, the end of a deleted one."""
    for item in balancers(harvester):
        metadata = item["metadata"]
        if metadata.get("deletionTimestamp"):
            change: Json = {"metadata": {"finalizers": []}}
        elif LB_CONTROLLER_FINALIZER not in metadata.get("finalizers", []):
            allocated = {"ipPool": "pool", "ip": ADDRESS, "mask": "255.255.255.0", "gateway": "192.0.2.1"}
            ready = [{"type": "Ready", "status": "True"}]
            status = {"address": ADDRESS, "allocatedAddress": allocated, "conditions": ready}
            change = {"metadata": {"finalizers": [LB_CONTROLLER_FINALIZER]}, "status": status}
        else:
            continue
        harvester.admin.request("PATCH", f"{BALANCERS}/{metadata['name']}", body=change)


def test_program_serves_a_load_balancer(program: ChildProcess, release: ControlPlane, harvester: ControlPlane) -> None:
    def leads() -> bool:
        assert program.exit_code() is None, program.log_tail()
        lease = release.admin.get_or_none(LEASE)
        return lease is not None and bool(lease["spec"].get("holderIdentity"))

    def has_address() -> bool:
        act_as_harvester(harvester)
        status = release.admin.request("GET", SERVICE)["status"]["loadBalancer"]
        return [entry["ip"] for entry in status.get("ingress", ())] == [ADDRESS]

    def is_gone() -> bool:
        act_as_harvester(harvester)
        return release.admin.get_or_none(SERVICE) is None

    def is_released() -> bool:
        act_as_harvester(harvester)
        return balancers(harvester) == []

    wait_until(leads, seconds=20, what="the Lease")
    spec = {"type": "LoadBalancer", "ports": [{"name": "http", "port": 80}], "selector": {"app": "web"}}
    metadata = {"name": "web", "namespace": "default"}
    release.apply({"apiVersion": "v1", "kind": "Service", "metadata": metadata, "spec": spec})
    wait_until(has_address, seconds=20, what="the address")
    assert balancers(harvester)[0]["metadata"]["name"].startswith("prod-default-web-")
    release.admin.request("DELETE", SERVICE)
    wait_until(is_gone, seconds=20, what="the end of the Service")
    # The Service is let go once the load balancer is being deleted; its end is Harvester's own pace.
    wait_until(is_released, seconds=20, what="the end of the load balancer")
    assert refused_requests(release) == []
