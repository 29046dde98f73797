"""The controller replaces the Go provider, and the Go provider replaces it again."""

import asyncio
import json
import zlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from http import HTTPStatus
from pathlib import Path
from typing import Final

import pytest

from devenv.harvester import FAST
from devenv.helm import CHART, NAMESPACE, RELEASE, run_helm
from devenv.kubevip import Transition
from devenv.manifests import IMAGE
from devenv.stage import VM_NAMESPACE, Scene, Stage, until
from devenv.watch import Document, annotations_of, documents
from harvester_ccm.kube.builtin import LEASES
from harvester_ccm.model.core import SERVICES
from harvester_ccm.names import ANNOUNCED_AS, IPAM
from tests.deploy.published import write_published_chart
from tests.e2e.observing import caught_up, writes

pytestmark = [
    pytest.mark.apiserver,
    pytest.mark.usefixtures("lan"),
    pytest.mark.parametrize("pace", [FAST], ids=["fast"]),
]

OURS: Final = "cloudprovider.harvesterhci.io"
THEIRS: Final = "loadbalancer.harvesterhci.io"
FINALIZER: Final = "service.kubernetes.io/load-balancer-cleanup"
ADDRESS: Final = "kube-vip.io/loadbalancerIPs"
BALANCERS: Final = documents("loadbalancer.harvesterhci.io", "v1beta1", "loadbalancers", kind="LoadBalancer")
SERVICE_DOCUMENTS: Final = documents("", "v1", "services", kind="Service")
LEASE_DOCUMENTS: Final = documents("coordination.k8s.io", "v1", "leases", kind="Lease")
GO_LEASE_SECONDS: Final = 2
"""The Go provider writes 15 and does not release the Lease: shortened for this test."""
HTTP: Final = {"name": "http", "port": 80, "protocol": "TCP"}
TWO_PORTS: Final = ({"name": "https", "port": 8443, "protocol": "TCP"}, {"name": "dns", "port": 53, "protocol": "UDP"})
ACCOUNT: Final = "system:serviceaccount:kube-system:harvester-cloud-provider"
MARKS: Final = {f"{OURS}/cluster-uid", f"{OURS}/service-uid"}


@dataclass(frozen=True)
class Left:
    """A Service as the Go provider left it."""

    name: str
    ipam: str | None = None
    ports: Sequence[Mapping[str, object]] = (HTTP,)
    labels: Mapping[str, str] = field(default_factory=dict)
    noted_network: bool = True
    """Whether its load balancer has the annotation that versions up to 0.2.6 did not write."""


PRIMARIES: Final = (
    *(Left(f"pool-{number:02}", labels={"app": "web"} if number % 2 else {}) for number in range(4)),
    Left("named-pool", ipam="pool", ports=TWO_PORTS),
    Left("no-labels", ports=TWO_PORTS),
    Left("old-provider", noted_network=False),
    *(Left(f"dhcp-{number}", ipam="dhcp") for number in range(3)),
)
SECONDARY: Final = "shared"
NAMES: Final = [*(one.name for one in PRIMARIES), SECONDARY]


def balancer_name(name: str, uid: str) -> str:
    base = f"demo-default-{name}-"
    return f"{base}{zlib.crc32(f'{base}{uid}'.encode()):08x}"


def posted(left: Left, uid: str) -> Document:
    """Return the load balancer that the Go provider creates."""
    annotations = {f"{THEIRS}/{key}": "" for key in ("network", "project", "namespace")}
    annotations[f"{THEIRS}/cluster"] = "demo"
    if left.noted_network:
        annotations[f"{OURS}/lb-network"] = ""
    return {
        "apiVersion": "loadbalancer.harvesterhci.io/v1beta1",
        "kind": "LoadBalancer",
        "metadata": {
            "name": balancer_name(left.name, uid),
            "namespace": VM_NAMESPACE,
            "labels": {
                f"{OURS}/cluster": "demo",
                f"{OURS}/serviceNamespace": "default",
                f"{OURS}/serviceName": left.name,
            },
            "annotations": annotations,
        },
        "spec": {"workloadType": "cluster", "ipam": left.ipam or "pool"},
        "status": {"allocatedAddress": {}},
    }


async def put_service(stage: Stage, left: Left, annotations: Mapping[str, str] | None = None) -> str:
    """Create the Service with the finalizer of the Go framework and return its UID."""
    wish = {IPAM: left.ipam} if left.ipam else {}
    body = {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": {
            "name": left.name,
            "labels": dict(left.labels),
            "annotations": {**wish, **(annotations or {})},
            "finalizers": [FINALIZER],
        },
        "spec": {"type": "LoadBalancer", "ports": list(left.ports), "selector": {"app": left.name}},
    }
    return (await stage.guest.create(SERVICES, body, namespace="default")).metadata.uid


async def leave(stage: Stage, left: Left) -> None:
    """Do what the Go provider does for one primary Service, in its order."""
    uid = await put_service(stage, left)
    name = balancer_name(left.name, uid)
    await stage.host.create(BALANCERS, posted(left, uid), namespace=VM_NAMESPACE)

    async def allocated() -> str:
        one = await stage.host.get(BALANCERS, name, namespace=VM_NAMESPACE)
        return str((one["status"].get("allocatedAddress") or {}).get("ip") or "")

    address = await until(allocated, within=60, what=f"address of {name}")
    # The Go provider sends the whole Service back.
    service = await stage.guest.get(SERVICE_DOCUMENTS, left.name, namespace="default")
    service["metadata"].setdefault("annotations", {})[ADDRESS] = address
    await stage.guest.replace(SERVICE_DOCUMENTS, left.name, service, namespace="default")
    served = (await stage.served(left.name, within=60))[0]
    balancer = await stage.host.get(BALANCERS, name, namespace=VM_NAMESPACE)
    balancer["status"]["address"] = served.addresses[0]
    await stage.host.replace(BALANCERS, name, balancer, namespace=VM_NAMESPACE)


async def leave_all(stage: Stage) -> None:
    """Leave all primary Services and one that shares the address of the first, and the Lease of a process that died."""
    await asyncio.gather(*(leave(stage, left) for left in PRIMARIES))
    primary = PRIMARIES[0].name
    address = (await stage.served(primary))[0].addresses[0]
    sharer = Left(SECONDARY, ports=({**HTTP, "port": 8080},), labels={f"{OURS}/primary-service": f"default.{primary}"})
    await put_service(stage, sharer, {f"{OURS}/primary-service": f"default/{primary}", ADDRESS: address})
    await stage.served(SECONDARY)
    await stage.guest.create(
        LEASES,
        {
            "apiVersion": "coordination.k8s.io/v1",
            "kind": "Lease",
            "metadata": {"name": "cloud-controller-manager", "namespace": "kube-system"},
            "spec": held("old-node_1d0c2b3a", transitions=4),
        },
        namespace="kube-system",
    )


def held(identity: str, *, transitions: int) -> Document:
    """Return the spec of a Lease as the Go framework writes it."""
    now = "2026-01-01T00:00:00.000000Z"
    return {
        "holderIdentity": identity,
        "leaseDurationSeconds": GO_LEASE_SECONDS,
        "acquireTime": now,
        "renewTime": now,
        "leaseTransitions": transitions,
    }


async def balancers(stage: Stage) -> dict[str, Document]:
    """Return the load balancers by UID."""
    found = await stage.host_objects(BALANCERS.path(VM_NAMESPACE))
    return {one["metadata"]["uid"]: one for one in found}


async def services(stage: Stage) -> dict[str, Document]:
    found = await stage.guest_objects(SERVICE_DOCUMENTS.path("default"))
    return {one["metadata"]["name"]: one for one in found if one["metadata"]["name"] in NAMES}


def without_record(document: Document) -> Document:
    """Return a Service without its version, and without the record of what this controller did last with it."""
    metadata = {k: v for k, v in document["metadata"].items() if k not in ("resourceVersion", "managedFields")}
    annotations = {key: value for key, value in annotations_of(document).items() if key != ANNOUNCED_AS}
    return {**document, "metadata": {**metadata, "annotations": annotations}}


def counted(stage: Stage) -> tuple[list[str], list[str]]:
    """Return the writes to Services in ``NAMES`` and to Harvester, as text."""
    guest = [one for one in writes(stage.guest_proxy) if "/mark-" not in one.path]
    harvester = writes(stage.harvester_proxy)
    return [f"{one.method} {one.path}" for one in guest], [f"{one.method} {one.path}" for one in harvester]


@pytest.fixture(scope="module")
def scene(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Scene]:
    """Clusters of their own, in whose guest the Go provider's chart is installed; its rights are all there are."""
    directory = tmp_path_factory.mktemp("swap")
    scene = Scene.start(directory, guest_additions=False, audit=True)
    try:
        # The service account is there already, because the scene has its credential.
        helm(scene, "install", RELEASE, write_published_chart(directory), "--take-ownership")
        yield scene
    finally:
        scene.stop()


def helm(scene: Scene, *arguments: str | Path) -> None:
    run_helm(*arguments, "--namespace", NAMESPACE, kubeconfig=scene.guest.admin_kubeconfig)


def refused(scene: Scene) -> list[str]:
    """Return the requests of the controller that the guest cluster denied."""
    events = [json.loads(line) for line in scene.guest.audit_log.read_text().splitlines()]
    return [
        f"{event['verb']} {event['requestURI']}"
        for event in events
        if event["user"].get("username") == ACCOUNT
        and event.get("responseStatus", {}).get("code") == HTTPStatus.FORBIDDEN
    ]


async def test_swap_from_the_go_provider_and_back_changes_no_address(stage: Stage) -> None:
    await leave_all(stage)
    before, services_before = await balancers(stage), await services(stage)
    shared = (await stage.served(SECONDARY))[0].addresses[0]
    transitions = transitions_of_others(stage, shared)
    assert (len(before), len(services_before)) == (len(PRIMARIES), len(NAMES)) == (10, 11)

    values = f"global.cattle.clusterName=demo,image.repository={IMAGE}"
    await asyncio.to_thread(helm, stage.scene, "upgrade", RELEASE, CHART, "--set", values)
    run = stage.run(proxied=True)
    await stage.logged(run, "became leader", within=60)
    await caught_up(stage)

    async def all_marked() -> bool:
        return all(set(annotations_of(one)) >= MARKS for one in (await balancers(stage)).values())

    await until(all_marked, within=60, what="our mark on every load balancer")
    guest, harvester = counted(stage)
    print(f"writes in the guest: {len(guest)}; in Harvester: {len(harvester)}")  # noqa: T201 - shown by pytest -s
    # Each load balancer is marked as ours, by one write. Each Service gets the record, by one patch.
    names = sorted(one["metadata"]["name"] for one in before.values())
    assert sorted(line.rpartition("/")[2] for line in harvester) == names
    assert {line.partition(" ")[0] for line in harvester} == {"PUT"}
    assert sorted(line.split("/")[-2] for line in guest) == sorted(NAMES)
    assert {line.partition(" ")[0] for line in guest} == {"PATCH"}

    after = await balancers(stage)
    assert after.keys() == before.keys()
    for uid, one in after.items():
        assert only_marks_added(before[uid], one)
    found = await services(stage)
    assert {name: without_record(one) for name, one in found.items()} == {
        name: without_record(one) for name, one in services_before.items()
    }
    assert transitions_of_others(stage, shared) == transitions, "an address went up or down"

    # The chart grants all that was needed for this.
    assert refused(stage.scene) == []

    await goes_back(stage, run.pid)
    await asyncio.to_thread(helm, stage.scene, "rollback", RELEASE, "1")
    assert transitions_of_others(stage, shared) == transitions, "an address went up or down"
    assert (await balancers(stage)).keys() == before.keys()


def transitions_of_others(stage: Stage, shared: str) -> list[Transition]:
    """Return what went up and down, without the shared address: kube-vip announces it again at every patch."""
    return [transition for transition in stage.kube_vip.transitions if transition.address != shared]


def only_marks_added(before: Document, after: Document) -> bool:
    """Whether nothing but our marks, whose it is, and the note that old versions did not write, was added."""
    added = {key: value for key, value in annotations_of(after).items() if key not in annotations_of(before)}
    kept = {key: value for key, value in annotations_of(after).items() if key not in added}
    assert set(added) - {f"{OURS}/lb-network"} == MARKS
    assert kept == annotations_of(before)
    assert after["spec"] == before["spec"]
    assert after["status"] == before["status"]
    assert after["metadata"]["labels"] == before["metadata"]["labels"]
    return True


async def goes_back(stage: Stage, pid: int) -> None:
    """Stop the controller; check that the Go provider gets the Lease at once, and that the controller then waits."""
    run = next(one for one in stage.runs if one.pid == pid)
    run.terminate(0)
    assert await stage.ended(run) == 0
    lease = await stage.guest.get(LEASE_DOCUMENTS, "cloud-controller-manager", namespace="kube-system")
    assert (lease["spec"]["holderIdentity"], lease["spec"]["leaseTransitions"]) == ("", 5)
    lease["spec"] = {**held("go-node_77aa88bb", transitions=6), "leaseDurationSeconds": 15}
    await stage.guest.replace(LEASE_DOCUMENTS, "cloud-controller-manager", lease, namespace="kube-system")

    stage.guest_proxy.forget()
    stage.harvester_proxy.forget()
    again = stage.run(proxied=True)
    await stage.logged(again, "waiting for leadership holder=go-node_77aa88bb", within=60)
    assert stage.guest_proxy.count(method="PUT", path="/leases/") == 0
    assert counted(stage) == ([], [])
