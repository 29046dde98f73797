"""Objects as API servers return them."""

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

from harvester_ccm.model.core import SERVICE_LABEL
from harvester_ccm.model.harvester import LOAD_BALANCERS
from harvester_ccm.names import (
    ANNOUNCED_AS,
    LB_CLUSTER,
    LB_SERVICE_NAME,
    LB_SERVICE_NAMESPACE,
    LEASE_FLAGS,
    LEASE_HOLDER,
    LOAD_BALANCER_READY,
)
from harvester_ccm.plan.service.announcing.record import Record, Step, written_record
from harvester_ccm.plan.service.ownership.owner import load_balancer_name
from tests.support import builders
from tests.support.memory_server import document_of

Json = dict[str, Any]

UID = builders.UID
OLD_UID = "11111111-9b7d-4e58-8a10-3c5d7e9f0b12"
CLUSTER_UID = "aaaaaaaa-0000-4000-8000-000000000001"
VMS = "vms"
CREATED = "2026-11-21T08:00:00Z"


def record(step: Step, address: str = "", uid: str = UID, **more: Any) -> dict[str, str]:
    """Return the annotation with the record of a Service."""
    return {ANNOUNCED_AS: written_record(Record(uid, step, address, "Cluster IPv4 SingleStack", **more))}


def service(
    name: str = "web",
    *,
    namespace: str = "shop",
    uid: str = UID,
    annotations: Mapping[str, str] | None = None,
    address: str | None = None,
    finalizers: Sequence[str] = (),
    deleted: str | None = None,
    **spec: Any,
) -> Json:
    """Return a Service of type LoadBalancer."""
    fields: Json = {"annotations": annotations, "address": address, "finalizers": finalizers, "spec": spec}
    document = document_of(builders.service(name, namespace=namespace, uid=uid, created=CREATED, **fields))
    if deleted:
        document["metadata"]["deletionTimestamp"] = deleted
    return {"apiVersion": "v1", "kind": "Service", **document}


def conditioned(one: Json, reason: str, message: str = "", *, status: str = "False", since: str = CREATED) -> Json:
    """Return the Service with this controller's condition, which has its status since a time."""
    condition = {"type": LOAD_BALANCER_READY, "status": status, "reason": reason, "message": message}
    return {**one, "status": {**one["status"], "conditions": [{**condition, "lastTransitionTime": since}]}}


def balancer(
    cluster: str = "demo",
    *,
    of: str = "shop/web",
    uid: str = UID,
    name: str | None = None,
    annotations: Mapping[str, str] | None = None,
    address: str = "",
    message: str | None = None,
    finalizer: bool = True,
    **spec: Any,
) -> Json:
    """Return the load balancer of a Service: ``uid`` is the Service's when it was made, ``address`` is allocated."""
    namespace, _, service_name = of.partition("/")
    title = name or load_balancer_name(cluster, namespace, service_name, uid)
    one = builders.load_balancer(
        title,
        uid=f"uid-of-{title}",
        labels={LB_CLUSTER: cluster, LB_SERVICE_NAMESPACE: namespace, LB_SERVICE_NAME: service_name},
        annotations=annotations,
        spec=spec,
        ip=address,
        pool="lan",
        message=message,
        finalizer=finalizer,
    )
    return {"apiVersion": LOAD_BALANCERS.api_version, "kind": LOAD_BALANCERS.kind, **document_of(one)}


def home() -> Json:
    return {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "kube-system", "uid": CLUSTER_UID}}


def pool(**status: Json) -> Json:
    """Return an IP pool of one range, with this status."""
    return {
        "apiVersion": "loadbalancer.harvesterhci.io/v1beta1",
        "kind": "IPPool",
        "metadata": {"name": "lan", "resourceVersion": "5"},
        "spec": {"ranges": [{"subnet": "10.0.0.0/24"}]},
        "status": status,
    }


def lease(
    name: str = "cloud-controller-manager",
    *,
    holder: str = "w1_x",
    mark: str = "harvester-ccm/1 w1_x",
    flags: str | None = None,
    seconds: float = 0,
) -> Json:
    """Return the Lease of a leader with these flags, renewed this long ago."""
    renewed = datetime.now(UTC) - timedelta(seconds=seconds)
    marks = {LEASE_HOLDER: mark} if flags is None else {LEASE_HOLDER: mark, LEASE_FLAGS: flags}
    return {
        "apiVersion": "coordination.k8s.io/v1",
        "kind": "Lease",
        "metadata": {"name": name, "namespace": "kube-system", "resourceVersion": "7", "annotations": marks},
        # On a busy machine, a command can take longer than a Lease usually lasts.
        "spec": {"holderIdentity": holder, "renewTime": renewed.isoformat(), "leaseDurationSeconds": 3600},
    }


def node(name: str = "w1", *, annotations: Mapping[str, str] | None = None, **spec: Any) -> Json:
    """Return a Node that waits for its initialisation, unless ``taints`` are given."""
    taint = {"key": "node.cloudprovider.kubernetes.io/uninitialized", "value": "true", "effect": "NoSchedule"}
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {
            "name": name,
            "uid": f"uid-of-node-{name}",
            "resourceVersion": "5",
            "annotations": dict(annotations or {}),
        },
        "spec": {"taints": [taint], **spec},
        "status": {"conditions": [{"type": "Ready", "status": "True"}]},
    }


def machine(name: str = "w1") -> Json:
    return {
        "apiVersion": "kubevirt.io/v1",
        "kind": "VirtualMachine",
        "metadata": {"name": name, "namespace": VMS, "uid": f"uid-of-vm-{name}"},
        "spec": {},
        "status": {"ready": True, "created": True, "printableStatus": "Running"},
    }


def instance(name: str = "w1", *nics: tuple[str, str, Sequence[str]], labels: Mapping[str, str] | None = None) -> Json:
    """Return a running instance; a NIC is its device in the guest, its network and its addresses."""
    networks = [
        {"name": f"nic-{number}", "multus": {"networkName": network}} for number, (_, network, _) in enumerate(nics)
    ]
    interfaces = [
        {"name": f"nic-{number}", "interfaceName": device, "ipAddresses": list(addresses)}
        for number, (device, _, addresses) in enumerate(nics)
    ]
    return {
        "apiVersion": "kubevirt.io/v1",
        "kind": "VirtualMachineInstance",
        "metadata": {"name": name, "namespace": VMS, "uid": f"uid-of-vmi-{name}", "labels": dict(labels or {})},
        "spec": {"networks": networks},
        "status": {
            "phase": "Running",
            "interfaces": interfaces,
            "conditions": [{"type": "AgentConnected", "status": "True"}],
        },
    }


def on_host(host: str) -> Json:
    """Return the VMI of Node w1 on a host of Harvester."""
    one = instance("w1", ("eth0", "default/lan", ["10.0.0.5"]))
    one["status"]["nodeName"] = host
    return one


def working_node(name: str = "w1") -> list[Json]:
    """Return an initialized Node, its VM and its instance."""
    one = node(name, taints=[], providerID=f"harvester://uid-of-vm-{name}")
    one["status"]["addresses"] = [{"type": "InternalIP", "address": "10.0.0.5"}]
    return [one, machine(name), instance(name, ("eth0", "default/lan", ["10.0.0.5"]))]


def endpoint_slice(of: str = "web") -> Json:
    return {
        "apiVersion": "discovery.k8s.io/v1",
        "kind": "EndpointSlice",
        "metadata": {"name": f"{of}-a", "namespace": "shop", "labels": {SERVICE_LABEL: of}},
        "endpoints": [{"addresses": ["10.42.0.7"], "nodeName": "w1", "conditions": {"ready": True}}],
    }
