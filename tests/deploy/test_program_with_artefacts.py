"""The controller with the permissions of the chart and the credential of the script."""

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

from devenv.apiserver import ControlPlane
from devenv.binaries import require
from devenv.harvester.machines import Machine, instance_document, machine_document
from devenv.helm import CHART, NAMESPACE, RELEASE, run_helm
from devenv.manifests import IMAGE
from devenv.process import ChildProcess
from devenv.restclient import Json, wait_until
from harvester_ccm import __version__
from harvester_ccm.names import LB_CONTROLLER_FINALIZER
from tests.deploy.published import GENERATIONS, write_published_chart

pytestmark = pytest.mark.apiserver

SCRIPT = Path(__file__).parents[2] / "scripts" / "generate_addon.sh"
ACCOUNT = "system:serviceaccount:kube-system:harvester-cloud-provider"
LEASE = "/apis/coordination.k8s.io/v1/namespaces/kube-system/leases/cloud-controller-manager"
BALANCERS = "/apis/loadbalancer.harvesterhci.io/v1beta1/namespaces/tenant-a/loadbalancers"
ADDRESS = "192.0.2.10"
SERVICE = "/api/v1/namespaces/default/services/web"
NODES = "/api/v1/nodes"
DEPLOYMENT = f"/apis/apps/v1/namespaces/{NAMESPACE}/deployments/harvester-cloud-provider"
UNINITIALIZED = "node.cloudprovider.kubernetes.io/uninitialized"
MOUNTED = "/etc/kubernetes/cloud-config"


OURS = "ours"
CHARTS = {OURS: None} | {one.chart: one for one in GENERATIONS if one.chart in ("0.2.100", "0.2.1500", "0.2.1600")}
"""Every set of rights that was ever published; ``ours`` is the chart of this repository."""


@pytest.fixture(params=CHARTS)
def chart(request: pytest.FixtureRequest) -> str:
    """The name of the chart that is installed, one of ``CHARTS``."""
    name: str = request.param
    return name


@pytest.fixture
def release(guest: ControlPlane, chart: str, tmp_path: Path) -> Iterator[ControlPlane]:
    generation = CHARTS[chart]
    path = write_published_chart(tmp_path, generation) if generation else CHART
    values = ["--set", "global.cattle.clusterName=prod", "--set", f"image.repository={IMAGE}"]
    if generation:  # The only change of an operator.
        values += ["--set", f"image.tag=v{__version__}-ccm"]
    values.append("--disable-openapi-validation")  # saves half of the time
    run_helm("install", RELEASE, path, "--namespace", NAMESPACE, *values, kubeconfig=guest.admin_kubeconfig)
    yield guest
    run_helm("uninstall", RELEASE, "--namespace", NAMESPACE, kubeconfig=guest.admin_kubeconfig)


@pytest.fixture
def machine(guest: ControlPlane, harvester: ControlPlane) -> Iterator[str]:
    """A VM with its Node as the kubelet leaves it."""
    vm = Machine("node-1", namespace="tenant-a", cluster="prod")
    harvester.apply(machine_document(vm), instance_document(vm, "192.0.2.101"))
    taint = {"key": UNINITIALIZED, "value": "true", "effect": "NoSchedule"}
    spec = {"taints": [taint]}
    guest.apply({"apiVersion": "v1", "kind": "Node", "metadata": {"name": vm.name}, "spec": spec})
    yield vm.name
    guest.admin.request("DELETE", f"{NODES}/{vm.name}")
    for kind in ("virtualmachineinstances", "virtualmachines"):
        harvester.admin.request("DELETE", f"/apis/kubevirt.io/v1/namespaces/tenant-a/{kind}/{vm.name}")


@pytest.fixture(scope="module")
def cloud_config(harvester: ControlPlane, tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("credential")
    tools = {"PATH": f"{require('kubectl')['kubectl'].parent}:{os.environ['PATH']}", "HOME": str(directory)}
    subprocess.run(
        ["bash", SCRIPT, "-o", directory, "prod", "tenant-a"],
        check=True,
        env=tools | {"KUBECONFIG": str(harvester.admin_kubeconfig)},
        capture_output=True,
    )
    return directory / "cloud-config"


@pytest.fixture
def refused_before(guest: ControlPlane) -> int:
    """How many requests of the account were refused until now: those of other charts."""
    return len(refused_requests(guest))


@pytest.fixture
def program(release: ControlPlane, cloud_config: Path, refused_before: int, tmp_path: Path) -> Iterator[ChildProcess]:
    """The program with the rights and the arguments that the installed chart gives it."""
    rights = release.kubeconfig_for_service_account(NAMESPACE, "harvester-cloud-provider", context_namespace=NAMESPACE)
    container = release.admin.request("GET", DEPLOYMENT)["spec"]["template"]["spec"]["containers"][0]
    assert container["command"] == ["harvester-cloud-provider"]
    assert container["args"][:2] == [f"--cloud-config={MOUNTED}", "--cluster-name=prod"]
    arguments = [argument.replace(MOUNTED, str(cloud_config)) for argument in container["args"]]
    command: list[str | Path] = [Path(sys.executable), "-m", "harvester_ccm", *arguments]
    child = ChildProcess.start(
        "harvester-ccm", [*command, f"--kubeconfig={rights}", "--secure-port=0"], log_file=tmp_path / "log"
    )
    yield child
    child.stop()


def refused_requests(plane: ControlPlane) -> list[str]:
    # A request that could not be authenticated has no user.
    events: list[Json] = [json.loads(line) for line in plane.audit_log.read_text().splitlines()]
    return [
        f"{event['verb']} {event['requestURI']}"
        for event in events
        if event["user"].get("username") == ACCOUNT and event.get("responseStatus", {}).get("code") == 403
    ]


def balancers(harvester: ControlPlane) -> list[Json]:
    items: list[Json] = harvester.admin.request("GET", BALANCERS)["items"]
    return items


def act_as_harvester(harvester: ControlPlane) -> None:
    """Do what Harvester's controller does: an address for a new object, which has its finalizer, and the end of one."""
    for item in balancers(harvester):
        metadata = item["metadata"]
        if metadata.get("deletionTimestamp"):
            change: Json = {"metadata": {"finalizers": []}}
        elif not item.get("status", {}).get("address"):
            allocated = {"ipPool": "pool", "ip": ADDRESS, "mask": "255.255.255.0", "gateway": "192.0.2.1"}
            ready = [{"type": "Ready", "status": "True"}]
            status = {"address": ADDRESS, "allocatedAddress": allocated, "conditions": ready}
            change = {"metadata": {"finalizers": [LB_CONTROLLER_FINALIZER]}, "status": status}
        else:
            continue
        harvester.admin.request("PATCH", f"{BALANCERS}/{metadata['name']}", body=change)


def test_service_gets_an_address_and_node_is_initialized(
    machine: str,
    refused_before: int,
    program: ChildProcess,
    chart: str,
    release: ControlPlane,
    harvester: ControlPlane,
) -> None:
    """Only the image of a published chart is changed. With our chart, no request is denied."""

    def is_node() -> bool:
        node = release.admin.request("GET", f"{NODES}/{machine}")
        addresses = {one["address"] for one in node.get("status", {}).get("addresses", ())}
        taints = {one["key"] for one in node["spec"].get("taints", ())}
        return UNINITIALIZED not in taints and "192.0.2.101" in addresses

    def leads() -> bool:
        assert program.exit_code() is None, program.log_tail(100000)
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

    wait_until(leads, seconds=60, what="the Lease")
    wait_until(is_node, seconds=60, what="the Node")
    assert release.admin.request("GET", f"{NODES}/{machine}")["spec"]["providerID"].startswith("harvester://")
    spec = {"type": "LoadBalancer", "ports": [{"name": "http", "port": 80}], "selector": {"app": "web"}}
    metadata = {"name": "web", "namespace": "default"}
    release.apply({"apiVersion": "v1", "kind": "Service", "metadata": metadata, "spec": spec})
    wait_until(has_address, seconds=60, what="the address")
    assert balancers(harvester)[0]["metadata"]["name"].startswith("prod-default-web-")
    release.admin.request("DELETE", SERVICE)
    wait_until(is_gone, seconds=60, what="the end of the Service")
    # The finalizer is removed while Harvester deletes the load balancer.
    wait_until(is_released, seconds=60, what="the end of the load balancer")
    assert "Traceback" not in program.log_tail(100000)
    if chart == OURS:
        assert refused_requests(release)[refused_before:] == []


@pytest.mark.parametrize("chart", [OURS], indirect=True)
def test_helm_test_succeeds(machine: str, release: ControlPlane, cloud_config: Path, chart: str) -> None:
    """The command of the Pod of ``helm test``, with the permissions of its account."""
    hooks = run_helm("get", "hooks", RELEASE, "--namespace", NAMESPACE, kubeconfig=release.admin_kubeconfig)
    spec = yaml.safe_load(hooks)["spec"]
    (container,) = spec["containers"]
    rights = release.kubeconfig_for_service_account(NAMESPACE, spec["serviceAccountName"], context_namespace=NAMESPACE)
    program, *words = map(str, (*container["command"], *container["args"]))
    assert program == "harvester-ccm"
    arguments = [word.replace(MOUNTED, str(cloud_config)) for word in words]
    done = subprocess.run(
        [sys.executable, "-m", "harvester_ccm", *arguments, f"--kubeconfig={rights}"],
        check=False,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stdout + done.stderr
