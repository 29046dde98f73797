"""What is played against the real kube-vip and against the emulator: scenarios as data.

``devenv.recordkubevip`` records the real one. A test compares the emulator with the recordings.

After each step, the player waits until nothing changes any more, so the order in which kube-vip handles two steps is
certain. Steps with ``at_once`` are taken together with the next one.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from devenv.announcement import (
    ADDRESS_ANNOTATION,
    DDNS_ANNOTATION,
    DHCP_ADDRESS,
    HOST_ANNOTATION,
    IGNORE_ANNOTATION,
    LEASE_NAME_ANNOTATION,
    REQUESTED_ANNOTATION,
    SERVICE_NAME_LABEL,
    WITHOUT_ENDPOINTS_ANNOTATION,
    Settings,
    Version,
)
from devenv.player import Step, at_once, wait
from devenv.watch import Document

NODE: Final = "node-1"
A, B, C = "10.9.100.1", "10.9.100.2", "10.9.100.3"
"""Addresses of Services."""
NOWHERE: Final = "255.255.255.255"
"""An address that no node can have."""
LEASES: Final = tuple(f"10.9.200.{number}" for number in range(10, 100))
"""Addresses of the DHCP server."""
OUR_CLASS: Final = "cloudprovider.harvesterhci.io/harvester"
ANY_VERSION: Final = (0, 0, 0)
SINCE_1_2: Final = (1, 2, 0)
PORTS: Final = ({"name": "main", "port": 80, "protocol": "TCP"}, {"name": "dns", "port": 53, "protocol": "UDP"})


@dataclass(frozen=True)
class Scenario:
    """A sequence of steps with a kube-vip that has just started."""

    name: str
    steps: tuple[Step, ...]
    settings: Settings = field(default_factory=lambda: Settings(node=NODE))
    since: Version = ANY_VERSION
    """The first version for which it is played."""
    is_raced: bool = False
    """Whether kube-vip before 1.2 adds and removes an address at once (``Announce.is_raced``), with either result."""


def scenario(name: str, *steps: Step, **facts: Any) -> Scenario:
    """Return a scenario of these steps; ``facts`` are its other fields."""
    return Scenario(name, steps, **facts)


# Steps.


def create(name: str, annotations: Mapping[str, str] | None = None, **more: Any) -> Step:
    """Create a Service of type LoadBalancer; ``more`` are fields of its specification."""
    finalizers = more.pop("finalizers", [])
    metadata = {"name": name, "annotations": dict(annotations or {}), "finalizers": finalizers}
    spec = {"type": "LoadBalancer", "ports": list(PORTS), **more}
    return Step("create", name=name, body={"metadata": metadata, "spec": spec})


def with_address(name: str, address: str = A, **more: Any) -> Step:
    """Create a Service with kube-vip's annotation."""
    return create(name, {ADDRESS_ANNOTATION: address}, **more)


def annotate(name: str, **values: str | None) -> Step:
    """Change annotations of a Service; None removes one."""
    keys = {
        "address": ADDRESS_ANNOTATION,
        "ignore": IGNORE_ANNOTATION,
        "ddns": DDNS_ANNOTATION,
        "lease_name": LEASE_NAME_ANNOTATION,
        "node": HOST_ANNOTATION,
        "other": "example.com/other",
    }
    changed = {keys[key]: value for key, value in values.items()}
    return Step("patch", name=name, body={"metadata": {"annotations": changed}})


def withdraw(name: str) -> tuple[Step, ...]:
    """Empty the annotation, and let kube-vip ignore the Service with the next patch."""
    return at_once(annotate(name, address=""), annotate(name, ignore="true"))


def publish(name: str, address: str) -> tuple[Step, ...]:
    """Write an address, remove the node that kube-vip has noted, and then write the status; a lease clears the status.

    Without a wait between both, kube-vip 1.2 has read the EndpointSlices before the second event, or not.
    """
    status = report(name) if address == DHCP_ADDRESS else report(name, address)
    return annotate(name, address=address, ignore=None, node=None), status


def respecify(name: str, **fields: Any) -> Step:
    """Change the specification of a Service."""
    return Step("patch", name=name, body={"spec": fields})


def report(name: str, *addresses: str) -> Step:
    """Write addresses to the status of a Service, with its ports as kube-vip would."""
    ports = [{"port": port["port"], "protocol": port["protocol"]} for port in PORTS]
    ingress = [{"ip": address, "ipMode": "VIP", "ports": ports} for address in addresses]
    return Step("patch_status", name=name, body={"status": {"loadBalancer": {"ingress": ingress}}})


def release(name: str) -> Step:
    """Remove the finalizers of a Service."""
    return Step("patch", name=name, body={"metadata": {"finalizers": None}})


def delete(name: str) -> Step:
    """Delete a Service."""
    return Step("delete", name=name)


def endpoint(number: int = 1, *, node: str = NODE, serving: bool = True) -> Document:
    """Return an endpoint of an EndpointSlice."""
    conditions = {"ready": serving, "serving": serving, "terminating": not serving}
    return {"addresses": [f"10.42.0.{number}"], "conditions": conditions, "nodeName": node}


def create_slice(of: str, *endpoints: Document, number: int = 1) -> Step:
    """Create an EndpointSlice."""
    name = f"{of}-{number}"
    body = {
        "metadata": {"name": name, "labels": {SERVICE_NAME_LABEL: of}},
        "addressType": "IPv4",
        "endpoints": list(endpoints),
        "ports": [],
    }
    return Step("create", "EndpointSlice", name, body)


def fill_slice(of: str, *endpoints: Document, number: int = 1) -> Step:
    """Replace the endpoints of an EndpointSlice."""
    return Step("patch", "EndpointSlice", f"{of}-{number}", {"endpoints": list(endpoints)})


def touch_slice(of: str, value: str = "1", *, number: int = 1) -> Step:
    """Change nothing but an annotation of an EndpointSlice."""
    return Step(
        "patch", "EndpointSlice", f"{of}-{number}", {"metadata": {"annotations": {"example.com/touched": value}}}
    )


def delete_slice(of: str, *, number: int = 1) -> Step:
    """Delete an EndpointSlice."""
    return Step("delete", "EndpointSlice", f"{of}-{number}")


NO_DHCP: Final = Step("stay_silent", "DHCP server")
DHCP: Final = Step("answer", "DHCP server")
READY: Final = endpoint()
HELD: Final = ["example.com/hold"]
ANNOUNCED: Final = (create_slice("web", READY), with_address("web"))
"""A Service with an endpoint: kube-vip announces its address."""


def _settings(**fields: Any) -> Settings:
    return Settings(node=NODE, **fields)


# Scenarios.

_ENDPOINTS: Final = (
    scenario("endpoint before the Service", *ANNOUNCED, delete("web")),
    scenario(
        "endpoints come and go",
        with_address("web"),
        create_slice("web"),
        fill_slice("web", READY),
        fill_slice("web"),
        fill_slice("web", READY),
        annotate("web", other="1"),
        touch_slice("web"),
    ),
    scenario(
        "Pod that is not ready counts for externalTrafficPolicy Cluster",
        with_address("web"),
        create_slice("web", endpoint(serving=False, node="node-2")),
    ),
    scenario(
        "only serving Pods on the node count for externalTrafficPolicy Local",
        with_address("web", externalTrafficPolicy="Local"),
        create_slice("web", endpoint(node="node-2")),
        fill_slice("web", endpoint(serving=False)),
        fill_slice("web", endpoint(node="node-2"), endpoint(2)),
        fill_slice("web", endpoint(node="node-2")),
    ),
    scenario(
        "Service that needs no endpoint",
        create("web", {ADDRESS_ANNOTATION: A, WITHOUT_ENDPOINTS_ANNOTATION: "true"}),
        create_slice("web"),
        fill_slice("web", READY),
        fill_slice("web"),
    ),
    scenario(
        "two EndpointSlices, one of them empty",
        *ANNOUNCED,
        create_slice("web", number=2),
        touch_slice("web"),
        delete_slice("web", number=2),
        annotate("web", other="1"),
        touch_slice("web", "2"),
    ),
    scenario(
        "endpoint of the node is in the first of two EndpointSlices",
        create_slice("web", READY),
        with_address("web", externalTrafficPolicy="Local"),
        create_slice("web", endpoint(2, node="node-2"), number=2),
        touch_slice("web"),
        touch_slice("web", number=2),
        annotate("web", other="1"),
        touch_slice("web", "2"),
    ),
    scenario(
        "two EndpointSlices have an endpoint",
        *ANNOUNCED,
        create_slice("web", endpoint(2, node="node-2"), number=2),
        touch_slice("web"),
        touch_slice("web", number=2),
        delete_slice("web"),
        touch_slice("web", "2", number=2),
        annotate("web", other="1"),
    ),
    scenario(
        "only EndpointSlice is deleted and created again",
        *ANNOUNCED,
        delete_slice("web"),
        create_slice("web", READY),
        annotate("web", other="1"),
        annotate("web", other="2"),
        touch_slice("web"),
    ),
)
_CLASSES: Final = (
    scenario(
        "classes with the default settings",
        create_slice("other", READY),
        create_slice("own", READY),
        with_address("other", A, loadBalancerClass=OUR_CLASS),
        with_address("own", B, loadBalancerClass="kube-vip.io/kube-vip-class"),
    ),
    scenario(
        "classes with another name",
        create_slice("ours", READY),
        create_slice("none", READY),
        create_slice("default", READY),
        with_address("ours", A, loadBalancerClass=OUR_CLASS),
        with_address("none", B),
        with_address("default", C, loadBalancerClass="kube-vip.io/kube-vip-class"),
        settings=_settings(load_balancer_class=OUR_CLASS),
    ),
    scenario(
        "only Services with the class",
        create_slice("none", READY),
        with_address("none"),
        settings=_settings(class_only=True),
    ),
    scenario(
        "no legacy handling of classes",
        create_slice("none", READY),
        with_address("none"),
        settings=_settings(legacy_class_handling=False),
    ),
)
_ADDRESSES: Final = (
    scenario(
        "address in the annotation is changed",
        create_slice("web", READY),
        with_address("web", A),
        annotate("web", address=B),
        touch_slice("web"),
        annotate("web", other="1"),
        touch_slice("web", "2"),
    ),
    scenario(
        "annotation is emptied and restored",
        create_slice("web", READY),
        with_address("web", A),
        annotate("web", address=""),
        report("web"),
        annotate("web", address=A),
        annotate("web", other="1"),
        touch_slice("web"),
    ),
    scenario(
        "annotation is emptied, the Service changes, and the annotation is restored",
        create_slice("web", READY),
        with_address("web", A),
        annotate("web", address=""),
        annotate("web", other="1"),
        annotate("web", address=A),
        annotate("web", other="2"),
        touch_slice("web"),
    ),
    scenario(
        "one address follows another",
        create_slice("web", READY),
        with_address("web", A),
        *publish("web", B),
        touch_slice("web"),
        *publish("web", C),
        touch_slice("web", "2"),
    ),
    scenario(
        "address is withdrawn in two patches and announced again",
        create_slice("web", READY),
        with_address("web", A),
        *withdraw("web"),
        report("web"),
        annotate("web", other="1"),
        *publish("web", A),
        touch_slice("web"),
        annotate("web", ddns="False"),
        annotate("web", other="2"),
        touch_slice("web", "2"),
    ),
    scenario(
        "address is withdrawn in two patches and another one is announced",
        create_slice("web", READY),
        with_address("web", A),
        *withdraw("web"),
        report("web"),
        *publish("web", B),
        touch_slice("web"),
        annotate("web", ddns="False"),
        annotate("web", other="1"),
        touch_slice("web", "2"),
    ),
    scenario(
        "one patch empties the annotation and lets kube-vip ignore the Service",
        create_slice("web", READY),
        with_address("web", A),
        annotate("web", address="", ignore="true"),
        report("web"),
        *publish("web", B),
        touch_slice("web"),
    ),
    scenario(
        "annotation is emptied, and false is spelled differently in a later patch than the address",
        create_slice("web", READY),
        with_address("web", A),
        annotate("web", address=""),
        report("web"),
        *publish("web", A),
        touch_slice("web"),
        annotate("web", ddns="False"),
        annotate("web", other="1"),
        touch_slice("web", "2"),
    ),
    scenario(
        "annotation is emptied, and false is spelled differently in the patch of the address",
        create_slice("web", READY),
        with_address("web", A),
        annotate("web", address=""),
        report("web"),
        annotate("web", address=A, ddns="False", node=None),
        annotate("web", other="1"),
        touch_slice("web"),
    ),
    scenario(
        "another client writes an address",
        create_slice("web", READY),
        with_address("web", A),
        annotate("web", address=C),
        *publish("web", A),
        touch_slice("web"),
        report("web", A),
        annotate("web", other="1"),
        touch_slice("web", "2"),
    ),
    scenario(
        "ignored Service gets another address",
        create_slice("web", READY),
        with_address("web", A),
        annotate("web", ignore="true"),
        annotate("web", address=B),
        annotate("web", ignore=None, node=None),
        annotate("web", other="1"),
        touch_slice("web"),
    ),
    scenario(
        "annotation follows the specification",
        create_slice("web", READY),
        create("web", loadBalancerIP=A),
        *publish("web", B),
        touch_slice("web"),
    ),
    scenario(
        "annotation is removed, and the status has the address",
        create_slice("web", READY),
        with_address("web", A),
        annotate("web", address=None),
        touch_slice("web"),
    ),
    scenario(
        "annotation is added with the address of the status",
        create_slice("web", READY),
        create("web"),
        report("web", A),
        annotate("web", address=A),
        touch_slice("web"),
        since=SINCE_1_2,
    ),
    scenario(
        "address in the status only",
        create_slice("web", READY),
        *at_once(create("web"), report("web", A)),
        report("web", B),
        touch_slice("web"),
    ),
    scenario(
        "address in the specification only",
        create_slice("web", READY),
        create("web", loadBalancerIP=A),
        respecify("web", loadBalancerIP=B),
    ),
    scenario(
        "specification and status differ",
        create_slice("web", READY),
        *at_once(create("web", {ADDRESS_ANNOTATION: "", IGNORE_ANNOTATION: "true"}, loadBalancerIP=B)),
        report("web", A),
        annotate("web", address=None, ignore=None),
    ),
    scenario(
        "status has the right form already",
        create_slice("web", READY),
        create("web", {ADDRESS_ANNOTATION: "", IGNORE_ANNOTATION: "true"}),
        report("web", A),
        annotate("web", address=A, ignore=None),
    ),
    scenario(
        "status is overwritten and cleared",
        create_slice("web", READY),
        with_address("web", A),
        report("web", B),
        report("web"),
        touch_slice("web"),
    ),
    scenario(
        "text that is no address",
        create_slice("web", READY),
        with_address("web", "no-such-host.invalid"),
        annotate("web", address=A),
        touch_slice("web"),
    ),
    scenario("two addresses", create_slice("web", READY), with_address("web", f"{A}, {B}"), delete("web")),
    scenario(
        "ports are changed",
        *ANNOUNCED,
        respecify("web", ports=[{"name": "main", "port": 81, "protocol": "TCP"}]),
        touch_slice("web"),
    ),
    scenario(
        "ports are changed before there is an endpoint",
        with_address("web"),
        respecify("web", ports=[{"name": "main", "port": 81, "protocol": "TCP"}]),
        create_slice("web", READY),
        annotate("web", other="1"),
    ),
    scenario(
        "externalTrafficPolicy is changed",
        *ANNOUNCED,
        respecify("web", externalTrafficPolicy="Local"),
        touch_slice("web"),
        annotate("web", other="1"),
        touch_slice("web", "2"),
        is_raced=True,
    ),
    scenario(
        "ipFamilyPolicy is changed",
        *ANNOUNCED,
        respecify("web", ipFamilyPolicy="PreferDualStack"),
        annotate("web", other="1"),
        touch_slice("web"),
        is_raced=True,
    ),
    scenario(
        "spelling of false is changed, and the node is removed",
        *ANNOUNCED,
        annotate("web", ddns="False"),
        annotate("web", other="1", node=None),
        touch_slice("web"),
        is_raced=True,
    ),
    scenario(
        "lease name is changed",
        *ANNOUNCED,
        annotate("web", lease_name="other"),
        annotate("web", other="1"),
        touch_slice("web"),
        annotate("web", lease_name=None),
        annotate("web", other="2"),
        touch_slice("web", "2"),
    ),
    scenario(
        "lease name is refused with externalTrafficPolicy Local",
        create_slice("web", READY),
        create("web", {ADDRESS_ANNOTATION: A, LEASE_NAME_ANNOTATION: "other"}, externalTrafficPolicy="Local"),
        touch_slice("web"),
        annotate("web", other="1"),
    ),
    scenario(
        "shared address",
        create_slice("web", READY),
        create_slice("more", READY),
        with_address("web"),
        with_address("more", ports=[{"name": "main", "port": 81, "protocol": "TCP"}]),
        delete("more"),
        delete("web"),
    ),
)
_WAITING: Final = (
    scenario(
        "Service without an address delays another one",
        create_slice("slow", READY),
        create_slice("web", READY),
        create("slow"),
        with_address("web", A),
        annotate("slow", address=""),
        annotate("slow", address=B),
        touch_slice("slow"),
    ),
    scenario(
        "empty annotation and ignored until there is an address",
        create_slice("web", READY),
        *at_once(create("web"), annotate("web", address="", ignore="true")),
        *at_once(annotate("web", address=A, ignore=None), report("web", A)),
        annotate("web", other="1"),
    ),
    scenario(
        "empty annotation until there is an address",
        create_slice("web", READY),
        create("web", {ADDRESS_ANNOTATION: ""}),
        annotate("web", address=A),
        annotate("web", other="1"),
        touch_slice("web"),
    ),
    scenario(
        "address comes while kube-vip waits for it",
        create_slice("web", READY),
        *at_once(create("web"), annotate("web", address=A)),
        annotate("web", other="1"),
        since=SINCE_1_2,
    ),
    scenario(
        "Service is ignored while kube-vip waits for its address",
        create_slice("web", READY),
        *at_once(create("web"), annotate("web", ignore="true"), report("web", A)),
        delete("web"),
        delete_slice("web"),
        since=SINCE_1_2,
    ),
)
_LEAVING: Final = (
    scenario(
        "other type and back",
        *ANNOUNCED,
        respecify("web", type="ClusterIP"),
        annotate("web", address=""),
        fill_slice("web"),
        fill_slice("web", READY),
        respecify("web", type="LoadBalancer"),
        delete("web"),
        delete_slice("web"),
    ),
    scenario(
        "other type and deleted",
        *ANNOUNCED,
        respecify("web", type="ClusterIP"),
        delete("web"),
        delete_slice("web"),
    ),
    scenario(
        "deletion waits for a finalizer",
        create_slice("web", READY),
        with_address("web", finalizers=HELD),
        delete("web"),
        annotate("web", address=""),
        release("web"),
    ),
    scenario(
        "ignored after it was announced",
        *ANNOUNCED,
        annotate("web", ignore="true"),
        fill_slice("web"),
        fill_slice("web", READY),
        annotate("web", address=""),
        delete("web"),
        delete_slice("web"),
    ),
    scenario(
        "deleted and created again",
        *ANNOUNCED,
        *at_once(delete("web"), with_address("web", B)),
        touch_slice("web"),
    ),
    scenario(
        "EndpointSlice of the Service of the same name before is deleted",
        *ANNOUNCED,
        delete("web"),
        with_address("web", B),
        create_slice("web", READY, number=2),
        delete_slice("web"),
        touch_slice("web", number=2),
        annotate("web", other="1"),
    ),
    scenario(
        "node is removed from the Service",
        *ANNOUNCED,
        Step("patch", name="web", body={"metadata": {"annotations": {"kube-vip.io/vipHost": None}}}),
        touch_slice("web"),
    ),
    scenario("updates of Services are switched off", *ANNOUNCED, settings=_settings(updates_services=False)),
)
_DHCP: Final = (
    scenario(
        "lease with an endpoint",
        create_slice("web", READY),
        with_address("web", DHCP_ADDRESS),
        report("web"),
        delete("web"),
    ),
    scenario(
        "lease without an endpoint",
        with_address("web", DHCP_ADDRESS),
        create_slice("web"),
        fill_slice("web", READY),
    ),
    scenario(
        "lease that the user requests",
        create_slice("web", READY),
        create("web", {ADDRESS_ANNOTATION: DHCP_ADDRESS, REQUESTED_ANNOTATION: LEASES[40]}),
    ),
    scenario(
        "lease is withdrawn and requested again",
        create_slice("web", READY),
        with_address("web", DHCP_ADDRESS),
        annotate("web", address=""),
        report("web"),
        annotate("web", address=DHCP_ADDRESS),
        touch_slice("web"),
        annotate("web", other="1"),
        touch_slice("web", "2"),
    ),
    scenario(
        "lease is withdrawn and requested again after another address",
        create_slice("web", READY),
        with_address("web", DHCP_ADDRESS),
        annotate("web", address=""),
        report("web"),
        annotate("web", address=NOWHERE),
        annotate("web", address=DHCP_ADDRESS),
        annotate("web", other="1"),
        touch_slice("web"),
    ),
    scenario(
        "lease is withdrawn and requested again with other spellings of false",
        create_slice("web", READY),
        with_address("web", DHCP_ADDRESS),
        annotate("web", address=""),
        report("web"),
        annotate("web", address=DHCP_ADDRESS, ddns="False"),
        touch_slice("web"),
        annotate("web", ddns="FALSE"),
        touch_slice("web", "2"),
        annotate("web", other="1"),
        touch_slice("web", "3"),
        annotate("web", other="2"),
    ),
    scenario(
        "first lease is announced and the spelling of false is changed",
        create_slice("web", READY),
        with_address("web", DHCP_ADDRESS),
        annotate("web", ddns="False"),
        annotate("web", other="1"),
        touch_slice("web"),
        is_raced=True,
    ),
    scenario(
        "lease is withdrawn in two patches and requested again",
        create_slice("web", READY),
        with_address("web", DHCP_ADDRESS),
        *withdraw("web"),
        report("web"),
        annotate("web", address=DHCP_ADDRESS, ignore=None, node=None),
        touch_slice("web"),
        annotate("web", ddns="False"),
        annotate("web", other="1"),
        touch_slice("web", "2"),
    ),
    scenario(
        "lease follows another address, and another address follows the lease",
        create_slice("web", READY),
        with_address("web", A),
        *publish("web", DHCP_ADDRESS),
        touch_slice("web"),
        annotate("web", other="1"),
        touch_slice("web", "2"),
        *publish("web", B),
        touch_slice("web", "3"),
    ),
    scenario(
        "EndpointSlice changes before there is a lease",
        create_slice("web", READY),
        with_address("web", DHCP_ADDRESS),
        annotate("web", address=""),
        NO_DHCP,
        annotate("web", address=DHCP_ADDRESS),
        touch_slice("web"),
        wait(DHCP, 70),
        touch_slice("web", "2"),
        since=SINCE_1_2,
    ),
    scenario(
        "DHCP server that does not respond delays another Service",
        NO_DHCP,
        create_slice("slow", READY),
        create_slice("web", READY),
        with_address("slow", DHCP_ADDRESS),
        with_address("web", A),
        wait(NO_DHCP, 160),
        DHCP,
        annotate("slow", other="1"),
        since=SINCE_1_2,
    ),
)
SCENARIOS: Final[Sequence[Scenario]] = (*_ENDPOINTS, *_CLASSES, *_ADDRESSES, *_WAITING, *_LEAVING, *_DHCP)


def is_played(scenario: Scenario, version: Version) -> bool:
    """Return whether a scenario is played against a version."""
    if scenario.is_raced and (1, 0, 1) <= version < SINCE_1_2:
        return False
    return version >= scenario.since
