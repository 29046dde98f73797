"""Builders of Services and load balancers with defaults for what a test does not specify."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import msgspec
from msgspec.structs import replace

from harvester_ccm.commands.clusters import ClusterStore
from harvester_ccm.kube.documents import Page
from harvester_ccm.kube.errors import KubeError
from harvester_ccm.kube.objects import decoder
from harvester_ccm.model.core import ENDPOINT_SLICES, SERVICE_LABEL, SERVICES, EndpointSlice, Service
from harvester_ccm.model.harvester import LOAD_BALANCERS, WHOLE_LOAD_BALANCERS, ClusterIdentity, LoadBalancer
from harvester_ccm.names import (
    ANNOUNCED_AS,
    DHCP_ADDRESS,
    KUBE_VIP_ADDRESSES,
    KUBE_VIP_IGNORE,
    LB_CLUSTER,
    LB_CONTROLLER_FINALIZER,
    LB_OWNER,
    LB_REQUESTED_NETWORK,
    LB_SELECT_CLUSTER,
    LB_SERVICE_NAME,
    LB_SERVICE_NAMESPACE,
    LB_SERVICE_UID,
    LOAD_BALANCER_READY,
    SERVICE_FINALIZER,
)
from harvester_ccm.plan.service.announcing.record import Record, Step, written_record
from harvester_ccm.plan.service.announcing.seen import Seen, read_seen
from harvester_ccm.plan.service.store import Backends

decode_service = decoder(Service)
"""Keeps the labels and annotations that only a test reads."""
UID = "6f1c2a34-9b7d-4e58-8a10-3c5d7e9f0b12"
DELETED_AT = "2026-11-21T08:00:00Z"
CLUSTER = ClusterIdentity(name="demo", namespace="vms", uid="cluster-uid")
CLASS_ONLY = replace(CLUSTER, class_only=True)
LB_NAME = "demo-shop-web-df804e86"
"""Name of the load balancer of ``service()`` in ``CLUSTER``."""
ADDRESS = "192.168.100.20"
SUPPRESSED = {KUBE_VIP_ADDRESSES: "", KUBE_VIP_IGNORE: "true"}
"""Annotations of a Service that kube-vip has to ignore."""
VM_SPEC: dict[str, Any] = {
    "workloadType": "vm",
    "listeners": [{"name": "tcp-80", "port": 80, "protocol": "TCP", "backendPort": 30080}],
    "backendServerSelector": {"harvesterhci.io/vmName": ["vm-1", "vm-2"]},
}
"""Spec of the VM load balancer of ``service()``."""


def service(
    name: str = "web",
    *,
    namespace: str = "shop",
    uid: str = UID,
    kind: str = "LoadBalancer",
    ports: Sequence[Mapping[str, Any]] = ({"port": 80, "protocol": "TCP", "nodePort": 30080},),
    annotations: Mapping[str, str] | None = None,
    labels: Mapping[str, str] | None = None,
    finalizers: Sequence[str] = (),
    ours: bool = False,
    deleting: bool = False,
    address: str | None = None,
    spec: Mapping[str, Any] | None = None,
    status: Mapping[str, Any] | None = None,
    created: str | None = None,
    condition: bool = True,
    recorded: bool = True,
) -> Service:
    """Return a Service; ``ours`` adds the finalizer, ``address`` a status as kube-vip writes it.

    With both, it has this controller's condition, and with ``ours`` and kube-vip's annotation the record of what that
    shows: neither if ``condition`` is False, as with the Go provider; no record if ``recorded`` is False. ``status`` is
    another ``status.loadBalancer``.
    """
    document: dict[str, Any] = {
        "metadata": {
            "name": name,
            "namespace": namespace,
            "uid": uid,
            "resourceVersion": "7",
            "annotations": dict(annotations or {}),
            "labels": dict(labels or {}),
            "finalizers": [*finalizers, *([SERVICE_FINALIZER] if ours else [])],
        },
        "spec": {"type": kind, "ports": list(ports), **(spec or {})},
    }
    if deleting:
        document["metadata"]["deletionTimestamp"] = DELETED_AT
    if created is not None:
        document["metadata"]["creationTimestamp"] = created
    if status is not None:
        document["status"] = {"loadBalancer": dict(status)}
    if address is not None:
        statuses = [{"port": p["port"], "protocol": p.get("protocol", "TCP")} for p in ports]
        document["status"] = {"loadBalancer": {"ingress": [{"ip": address, "ipMode": "VIP", "ports": statuses}]}}
    if ours and address is not None and condition:
        document["status"]["conditions"] = [_ready(address)]
    built = decode_service(msgspec.json.encode(document))
    record = _record_of(read_seen(built)) if ours and condition and recorded else None
    if record is None or ANNOUNCED_AS in document["metadata"]["annotations"]:
        return built
    document["metadata"]["annotations"][ANNOUNCED_AS] = written_record(record)
    return decode_service(msgspec.json.encode(document))


def _record_of(seen: Seen) -> Record | None:
    """Return the record of a Service that is as this controller left it; None without kube-vip's annotation.

    An address in the status was announced before; the annotation may have been changed by another client since.
    """
    shown = seen.status[0] if seen.status else ""
    if seen.address_annotation is None:
        return None
    if seen.is_held:
        step = Step.DELEGATED if shown else Step.HELD
        return Record(seen.uid, step, shown, seen.compared, again=bool(shown))
    if seen.is_withdrawn:
        return Record(seen.uid, Step.WITHDRAWN, shown, seen.compared, node=seen.node)
    address = shown or seen.address_annotation
    if seen.address_annotation == DHCP_ADDRESS:
        address = DHCP_ADDRESS
    step = Step.SHOWN if shown else Step.PUBLISHED
    return Record(seen.uid, step, address, seen.compared, again=False)


def load_balancer(
    name: str = LB_NAME,
    *,
    namespace: str = "vms",
    uid: str = "lb-uid",
    labels: Mapping[str, str] | None = None,
    annotations: Mapping[str, str] | None = None,
    spec: Mapping[str, Any] | None = None,
    ip: str = "",
    pool: str = "",
    address: str = "",
    message: str | None = None,
    closed: str = "",
    backends: Iterable[str] = ("10.1.0.1",),
    finalizer: bool = True,
    deleting: bool = False,
) -> LoadBalancer:
    """Return a LoadBalancer; ``message`` makes it not Ready, ``ip`` Ready with that allocation.

    ``closed`` is a pool that is blocked; ``backends`` are those of one for VMs.
    """
    document: dict[str, Any] = {
        "metadata": {
            "name": name,
            "namespace": namespace,
            "uid": uid,
            "resourceVersion": "11",
            "labels": dict(labels or {}),
            "annotations": dict(annotations or {}),
            "finalizers": [LB_CONTROLLER_FINALIZER] if finalizer else [],
        },
        "spec": {"workloadType": "cluster", "ipam": "pool", **(spec or {})},
        "status": {"allocatedAddress": {}},
    }
    status = document["status"]
    if closed:
        status["allocatedAddress"] = {"ipPool": closed}
    if ip:
        status["allocatedAddress"] = {"ip": ip, **({"ipPool": pool} if pool else {})}
        status["conditions"] = [{"type": "Ready", "status": "True"}]
    if message is not None:
        status["conditions"] = [{"type": "Ready", "status": "False", "message": message}]
    if address:
        status["address"] = address
    if address and document["spec"]["workloadType"] != "cluster":
        status["backendServers"] = list(backends)
    if deleting:
        document["metadata"]["deletionTimestamp"] = DELETED_AT
    return WHOLE_LOAD_BALANCERS.decode(msgspec.json.encode(document))


def endpoint_slice(name: str, *endpoints: Mapping[str, Any], of: str = "web", namespace: str = "shop") -> EndpointSlice:
    document = {
        "metadata": {"name": name, "namespace": namespace, "labels": {SERVICE_LABEL: of}},
        "endpoints": list(endpoints),
    }
    return ENDPOINT_SLICES.decode(msgspec.json.encode(document))


def _ready(address: str) -> dict[str, str]:
    return {
        "type": LOAD_BALANCER_READY,
        "status": "True",
        "reason": "EnsuredLoadBalancer",
        "message": f"The load balancer has address {address}",
        "lastTransitionTime": "2026-01-01T00:00:00Z",
    }


def served(name: str = "web", *, annotations: Mapping[str, str] | None = None, **more: Any) -> Service:
    return service(
        name,
        annotations={KUBE_VIP_ADDRESSES: ADDRESS, **(annotations or {})},
        **{"ours": True, "address": ADDRESS, **more},
    )


def marked(
    of: Service | None = None,
    name: str = LB_NAME,
    *,
    annotations: Mapping[str, str] | None = None,
    labels: Mapping[str, str] | None = None,
    **more: Any,
) -> LoadBalancer:
    """Return a load balancer that this controller created for a Service, without an address."""
    owner = of if of is not None else service()
    own_labels = {
        LB_CLUSTER: CLUSTER.name,
        LB_SERVICE_NAMESPACE: owner.metadata.namespace,
        LB_SERVICE_NAME: owner.metadata.name,
    }
    marks = {
        LB_OWNER: CLUSTER.uid,
        LB_SERVICE_UID: owner.metadata.uid,
        LB_SELECT_CLUSTER: CLUSTER.name,
        LB_REQUESTED_NETWORK: "",
    }
    return load_balancer(
        name, labels={**own_labels, **(labels or {})}, annotations={**marks, **(annotations or {})}, **more
    )


def allocated(of: Service | None = None, name: str = LB_NAME, **more: Any) -> LoadBalancer:
    return marked(of, name, **{"ip": ADDRESS, "pool": "vlan100", "address": ADDRESS, **more})


def listed_store(
    services: Iterable[Service], load_balancers: Iterable[LoadBalancer], backends: Backends
) -> ClusterStore:
    """Return a store in which all of this is listed, without a ConfigMap."""
    lists: dict[str, Page[Any] | KubeError] = {
        SERVICES.plural: Page(tuple(services), ""),
        LOAD_BALANCERS.plural: Page(tuple(load_balancers), ""),
    }
    store = ClusterStore(CLUSTER, lists)
    store.__dict__["backends"] = backends
    return store
