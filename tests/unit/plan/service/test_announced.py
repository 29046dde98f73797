"""Plans of a Service with an allocated address that kube-vip in this cluster announces."""

from typing import Any, Final

import pytest
from msgspec.structs import replace

from harvester_ccm.names import (
    ANNOUNCED_AS,
    DHCP_ADDRESS,
    IP_POOL,
    IPAM,
    KUBE_VIP_ADDRESSES,
    KUBE_VIP_HOST,
    KUBE_VIP_IGNORE,
    KUBE_VIP_INTERFACE,
    KUBE_VIP_LEASE,
    LB_OWNER,
    LB_RECONCILE,
    LB_REQUESTED_NETWORK,
    LB_SELECT_NETWORK,
    LB_SERVICE_NAME,
    NETWORK,
    PRIMARY_SERVICE_LABEL,
    REQUESTED_ADDRESS,
    SERVICE_FINALIZER,
    Reason,
)
from harvester_ccm.plan.service.announcing.record import Step
from harvester_ccm.plan.service.desired import PatchService
from harvester_ccm.plan.service.phase import Phase
from tests.support.builders import ADDRESS, CLUSTER, LB_NAME, SUPPRESSED, allocated, marked, served, service
from tests.unit.plan.service.snapshots import (
    READY,
    SHARED,
    SHOWN,
    WAITING,
    WITHDRAWN,
    Plan,
    World,
    messages,
    outline,
    plan,
    record_of,
)

VLAN: Final = {NETWORK: "infra/vlan9"}
IN_VLAN: Final = {LB_REQUESTED_NETWORK: "infra/vlan9"}
DEVICES: Final = {"network_devices": {"infra/vlan9": "eth1"}}
IN_OTHER: Final = marked(ip=ADDRESS, pool="lan", annotations={**IN_VLAN, LB_SELECT_NETWORK: "infra/vlan7"})
"""A load balancer whose pool Harvester chose for another network than the requested one."""
ONE_ADDRESS: Final = marked(ip=ADDRESS, pool="lan")
OTHER_ADDRESS: Final = allocated(ip="10.0.0.9", address="10.0.0.9")
DHCP: Final = {IPAM: "dhcp"}
LEASING: Final = service(ours=True, annotations={**DHCP, KUBE_VIP_ADDRESSES: DHCP_ADDRESS})
BY_DHCP: Final = marked(ip=DHCP_ADDRESS, spec={"ipam": "dhcp"})
NOTED: Final = {
    **DHCP,
    KUBE_VIP_ADDRESSES: DHCP_ADDRESS,
    KUBE_VIP_HOST: "n1",
    KUBE_VIP_LEASE: ADDRESS,
}
LEASED: Final = service(ours=True, address=ADDRESS, annotations=NOTED)
RECORDED: Final = marked(ip=DHCP_ADDRESS, address=ADDRESS, spec={"ipam": "dhcp"})
FROM_POOL: Final = served(annotations={**DHCP, KUBE_VIP_HOST: "n1"})
"""A Service with the address of an IP pool that is to get its address from DHCP."""
TWO: Final[dict[str, Any]] = {"ingress": [{"ip": ADDRESS, "ipMode": "VIP"}, {"ip": "fd00::1", "ipMode": "VIP"}]}

POOL: dict[str, tuple[World, Plan]] = {
    "allocated": (
        World(WAITING, (ONE_ADDRESS,)),
        Plan(
            Phase.ANNOUNCED_BY_KUBE_VIP,
            READY,
            condition="True EnsuredLoadBalancer",
            write={
                "annotations": {KUBE_VIP_ADDRESSES: ADDRESS, KUBE_VIP_IGNORE: None, ANNOUNCED_AS: f"shown, {ADDRESS}"},
                "ingress": [SHOWN],
            },
            then={"change": LB_NAME, "status": {"address": ADDRESS}},
            events=("Normal EnsuredLoadBalancer",),
            delay=60.0,
        ),
    ),
    "allocated, while the finalizer was removed": (
        World(service(annotations={**SUPPRESSED, **record_of(Step.HELD, "")}), (ONE_ADDRESS,)),
        Plan(
            Phase.ANNOUNCED_BY_KUBE_VIP,
            READY,
            condition="True EnsuredLoadBalancer",
            write={
                "annotations": {KUBE_VIP_ADDRESSES: ADDRESS, KUBE_VIP_IGNORE: None, ANNOUNCED_AS: f"shown, {ADDRESS}"},
                "finalizers": [SERVICE_FINALIZER],
                "ingress": [SHOWN],
            },
            then={"change": LB_NAME, "status": {"address": ADDRESS}},
            events=("Normal EnsuredLoadBalancer",),
            delay=60.0,
        ),
    ),
    "allocated, the address of the specification": (
        World(service(ours=True, spec={"loadBalancerIP": ADDRESS}), (ONE_ADDRESS,)),
        Plan(
            Phase.ANNOUNCED_BY_KUBE_VIP,
            "NotReady Announcing",
            condition="False Announcing",
            write={"annotations": {KUBE_VIP_ADDRESSES: "", ANNOUNCED_AS: "withdrawn, again", KUBE_VIP_IGNORE: None}},
            then={"change": LB_NAME, "status": {"address": ADDRESS}},
            events=("Normal EnsuredLoadBalancer",),
        ),
    ),
    "allocated, another one than the specification has": (
        World(service(ours=True, spec={"loadBalancerIP": "10.0.0.7"}), (ONE_ADDRESS,)),
        Plan(
            Phase.ANNOUNCED_BY_KUBE_VIP,
            "NotReady Announcing",
            condition="False Announcing",
            write={"annotations": {KUBE_VIP_ADDRESSES: "", ANNOUNCED_AS: "withdrawn, again", KUBE_VIP_IGNORE: None}},
            then={"change": LB_NAME, "status": {"address": ADDRESS}},
            events=("Warning AddressNotAsRequested", "Normal EnsuredLoadBalancer"),
        ),
    ),
    "the load balancer gets the address": (
        World(served(), (ONE_ADDRESS,)),
        Plan(
            Phase.ANNOUNCED_BY_KUBE_VIP,
            READY,
            condition="True EnsuredLoadBalancer",
            write={"change": LB_NAME, "status": {"address": ADDRESS}},
            delay=60.0,
        ),
    ),
    "ready": (
        World(served(), (allocated(),)),
        Plan(Phase.ANNOUNCED_BY_KUBE_VIP, READY, condition="True EnsuredLoadBalancer", delay=60.0),
    ),
    "ready, another port since": (
        World(replace(served(), spec=served(ports=[{"port": 81}]).spec), (allocated(),)),
        Plan(
            Phase.ANNOUNCED_BY_KUBE_VIP,
            READY,
            condition="True EnsuredLoadBalancer",
            write={"ingress": [f"{ADDRESS} VIP 81/TCP"]},
            delay=60.0,
        ),
    ),
    "ready, served by the Go provider: no patch for the condition alone": (
        World(served(condition=False), (allocated(),)),
        Plan(
            Phase.ANNOUNCED_BY_KUBE_VIP,
            READY,
            condition="True EnsuredLoadBalancer",
            write={"annotations": {ANNOUNCED_AS: f"adopted, {ADDRESS}, again"}},
            delay=60.0,
        ),
    ),
    "ready, a user has kube-vip ignore the Service": (
        World(served(annotations={KUBE_VIP_IGNORE: "true"}), (allocated(),)),
        Plan(
            Phase.ANNOUNCED_BY_KUBE_VIP,
            "NotReady AddressNotAnnounced",
            condition="False AddressNotAnnounced",
            write="condition",
            events=("Warning AddressNotAnnounced",),
        ),
    ),
    "ready, another client changed the annotation": (
        World(served(annotations={KUBE_VIP_ADDRESSES: "10.0.0.66"}), (allocated(),)),
        Plan(
            Phase.ANNOUNCED_BY_KUBE_VIP,
            "NotReady Announcing",
            condition="True EnsuredLoadBalancer",
            write={"annotations": {KUBE_VIP_ADDRESSES: ADDRESS, ANNOUNCED_AS: f"published, {ADDRESS}, again"}},
            events=("Warning AnnotationRestored",),
        ),
    ),
    "the Go provider announced it: the label of a former primary": (
        World(served(condition=False, labels=SHARED), (allocated(),)),
        Plan(
            Phase.ANNOUNCED_BY_KUBE_VIP,
            READY,
            condition="True EnsuredLoadBalancer",
            write={
                "annotations": {ANNOUNCED_AS: f"adopted, {ADDRESS}, again"},
                "labels": {PRIMARY_SERVICE_LABEL: None},
            },
            delay=60.0,
        ),
    ),
    "ready, a duplicate": (
        World(served(), (allocated(), allocated(name="demo-shop-web-old", uid="old"))),
        Plan(
            Phase.ANNOUNCED_BY_KUBE_VIP,
            READY,
            condition="True EnsuredLoadBalancer",
            write={"delete": "demo-shop-web-old"},
            delay=60.0,
        ),
    ),
    "ready, a duplicate that is being deleted": (
        World(served(), (allocated(), allocated(name="demo-shop-web-old", uid="old", deleting=True))),
        Plan(Phase.ANNOUNCED_BY_KUBE_VIP, READY, condition="True EnsuredLoadBalancer", delay=60.0),
    ),
    "ready, a load balancer of another cluster": (
        World(served(), (allocated(), marked(name="demo-shop-web-old", uid="old", annotations={LB_OWNER: "other"}))),
        Plan(
            Phase.ANNOUNCED_BY_KUBE_VIP,
            READY,
            condition="True EnsuredLoadBalancer",
            events=("Warning LoadBalancerOwnershipConflict",),
            delay=60.0,
        ),
    ),
    "ready, another address is requested": (
        World(served(annotations={REQUESTED_ADDRESS: "10.0.0.7"}), (allocated(),)),
        Plan(
            Phase.ANNOUNCED_BY_KUBE_VIP,
            READY,
            condition="True EnsuredLoadBalancer",
            events=("Warning AddressNotAsRequested",),
            delay=60.0,
        ),
    ),
    "ready, the search before is not needed any more": (
        World(served(), (allocated(annotations={LB_RECONCILE: "true"}),)),
        Plan(
            Phase.ANNOUNCED_BY_KUBE_VIP,
            READY,
            condition="True EnsuredLoadBalancer",
            write={"change": LB_NAME, "annotations": {LB_RECONCILE: None}},
            delay=60.0,
        ),
    ),
    "ready, the labels of the load balancer were changed": (
        World(served(), (allocated(labels={"cloudprovider.harvesterhci.io/serviceName": "api"}),)),
        Plan(
            Phase.ANNOUNCED_BY_KUBE_VIP,
            READY,
            condition="True EnsuredLoadBalancer",
            write={"change": LB_NAME, "labels": {LB_SERVICE_NAME: "web"}},
            delay=60.0,
        ),
    ),
    "another address": (
        World(served(), (OTHER_ADDRESS,)),
        Plan(
            Phase.ANNOUNCED_BY_KUBE_VIP,
            "NotReady Announcing",
            condition="True EnsuredLoadBalancer",
            write={"annotations": {KUBE_VIP_ADDRESSES: "10.0.0.9", ANNOUNCED_AS: "published, 10.0.0.9, again"}},
            events=("Warning AddressChanged",),
        ),
    ),
    "withdrawn, the load balancer gets its address before the touch": (
        World(served(annotations=record_of(Step.PUBLISHED, again=True)), (ONE_ADDRESS,), {"since": 1.0}),
        Plan(
            Phase.ANNOUNCED_BY_KUBE_VIP,
            "NotReady Announcing",
            condition="False Announcing",
            write={"change": LB_NAME, "status": {"address": ADDRESS}},
            delay=59.0,
        ),
    ),
}
LEASES: dict[str, tuple[World, Plan]] = {
    "kube-vip is to get one": (
        World(service(ours=True, annotations={**SUPPRESSED, **DHCP}), (BY_DHCP,)),
        Plan(
            Phase.ANNOUNCED_BY_KUBE_VIP,
            "NotReady DHCPLeasePending",
            condition="False DHCPLeasePending",
            write={
                "annotations": {
                    KUBE_VIP_ADDRESSES: DHCP_ADDRESS,
                    KUBE_VIP_IGNORE: None,
                    ANNOUNCED_AS: "published, 0.0.0.0",
                }
            },
            delay=30.0,
        ),
    ),
    "none yet": (
        World(LEASING, (BY_DHCP,)),
        Plan(
            Phase.ANNOUNCED_BY_KUBE_VIP,
            "NotReady DHCPLeasePending",
            condition="False DHCPLeasePending",
            write="condition",
            delay=30.0,
        ),
    ),
    "none for 30 s": (
        World(LEASING, (BY_DHCP,), {"since": 30.0}),
        Plan(Phase.ANNOUNCED_BY_KUBE_VIP, "NotReady DHCPLeasePending", condition="False DHCPLeasePending"),
    ),
    "in the status": (
        World(LEASED, (BY_DHCP,)),
        Plan(
            Phase.ANNOUNCED_BY_KUBE_VIP,
            READY,
            condition="True EnsuredLoadBalancer",
            write={"change": LB_NAME, "status": {"address": ADDRESS}},
            events=("Normal EnsuredLoadBalancer",),
        ),
    ),
    "ready": (
        World(LEASED, (RECORDED,)),
        Plan(Phase.ANNOUNCED_BY_KUBE_VIP, READY, condition="True EnsuredLoadBalancer"),
    ),
    "two addresses, which are kube-vip's": (
        World(service(ours=True, status=TWO, annotations={**NOTED, KUBE_VIP_LEASE: f"{ADDRESS},fd00::1"}), (RECORDED,)),
        Plan(
            Phase.ANNOUNCED_BY_KUBE_VIP,
            f"Ready {ADDRESS} fd00::1",
            condition="True EnsuredLoadBalancer",
            write="condition",
        ),
    ),
    "of the Go provider: the record is written": (
        World(service(ours=True, address=ADDRESS, condition=False, annotations=NOTED), (RECORDED,)),
        Plan(
            Phase.ANNOUNCED_BY_KUBE_VIP,
            READY,
            condition="True EnsuredLoadBalancer",
            write={"annotations": {ANNOUNCED_AS: "adopted, 0.0.0.0, again, from n1"}},
        ),
    ),
}
OTHER_ADDRESSES: dict[str, tuple[World, Plan]] = {
    "of an IP pool is withdrawn": (
        World(FROM_POOL, (BY_DHCP,)),
        Plan(
            Phase.ANNOUNCED_BY_KUBE_VIP,
            "NotReady DHCPLeasePending",
            condition="False DHCPLeasePending",
            write={
                "annotations": {
                    KUBE_VIP_ADDRESSES: DHCP_ADDRESS,
                    KUBE_VIP_HOST: None,
                    ANNOUNCED_AS: "published, 0.0.0.0, again, to respell, from n1",
                },
                "ingress": [],
            },
            delay=30.0,
        ),
    ),
    "is withdrawn, then the lease is requested": (
        World(service(ours=True, annotations={**DHCP, **WITHDRAWN, KUBE_VIP_HOST: "n1"}), (BY_DHCP,), {"since": 1.0}),
        Plan(
            Phase.ANNOUNCED_BY_KUBE_VIP,
            "NotReady DHCPLeasePending",
            condition="False DHCPLeasePending",
            write={"annotations": {KUBE_VIP_IGNORE: "true", ANNOUNCED_AS: "held, again, from n1"}},
            delay=29.0,
        ),
    ),
    "of another controller is replaced by the lease": (
        World(service(ours=True, address="10.0.0.9", annotations=NOTED), (RECORDED,)),
        Plan(Phase.ANNOUNCED_BY_KUBE_VIP, READY, condition="True EnsuredLoadBalancer", write={"ingress": [SHOWN]}),
    ),
}
NETWORKS: dict[str, tuple[World, Plan]] = {
    "Harvester stored the requested network": (
        World(
            service(ours=True, annotations={**SUPPRESSED, **VLAN}),
            (marked(ip=ADDRESS, pool="lan", annotations={**IN_VLAN, LB_SELECT_NETWORK: "infra/vlan9"}),),
            DEVICES,
        ),
        Plan(
            Phase.ANNOUNCED_BY_KUBE_VIP,
            READY,
            condition="True EnsuredLoadBalancer",
            write={
                "annotations": {
                    KUBE_VIP_ADDRESSES: ADDRESS,
                    KUBE_VIP_INTERFACE: "eth1",
                    KUBE_VIP_IGNORE: None,
                    ANNOUNCED_AS: f"shown, {ADDRESS}",
                },
                "ingress": [SHOWN],
            },
            then={"change": LB_NAME, "status": {"address": ADDRESS}},
            events=("Normal EnsuredLoadBalancer",),
            delay=60.0,
        ),
    ),
    "Harvester stored another network": (
        World(service(ours=True, annotations={**SUPPRESSED, **VLAN}), (IN_OTHER,), DEVICES),
        Plan(
            Phase.OTHER_NETWORK,
            "NotReady AddressInOtherNetwork",
            condition="False AddressInOtherNetwork",
            write="condition",
            events=("Warning AddressInOtherNetwork",),
        ),
    ),
    "another network, and then the Service names its pool": (
        World(service(ours=True, annotations={**SUPPRESSED, **VLAN, IP_POOL: "lan"}), (IN_OTHER,), DEVICES),
        Plan(
            Phase.ANNOUNCED_BY_KUBE_VIP,
            READY,
            condition="True EnsuredLoadBalancer",
            write={
                "annotations": {
                    KUBE_VIP_ADDRESSES: ADDRESS,
                    KUBE_VIP_INTERFACE: "eth1",
                    KUBE_VIP_IGNORE: None,
                    ANNOUNCED_AS: f"shown, {ADDRESS}",
                },
                "ingress": [SHOWN],
            },
            then={"change": LB_NAME, "spec": {"ipPool": "lan"}, "status": {"address": ADDRESS}},
            events=("Normal EnsuredLoadBalancer",),
            delay=60.0,
        ),
    ),
    "another network, and then the Service requests that": (
        World(service(ours=True, annotations={**SUPPRESSED, NETWORK: "infra/vlan7"}), (IN_OTHER,), DEVICES),
        Plan(Phase.OTHER_NETWORK, "NotReady ReplacementPending", write={"delete": LB_NAME}),
    ),
    "another network, already announced": (
        World(
            served(annotations={**VLAN, KUBE_VIP_INTERFACE: "eth1"}),
            (replace(IN_OTHER, status=replace(IN_OTHER.status, address=ADDRESS)),),
            {"network_devices": {"infra/vlan7": "eth0", "infra/vlan9": "eth1"}},
        ),
        Plan(
            Phase.ANNOUNCED_BY_KUBE_VIP,
            READY,
            condition="True EnsuredLoadBalancer",
            events=("Warning AddressInOtherNetwork",),
            delay=60.0,
        ),
    ),
    "Harvester stored no network": (
        World(
            served(annotations={**VLAN, KUBE_VIP_INTERFACE: "eth1"}),
            (allocated(pool="lan", annotations={**IN_VLAN, LB_SELECT_NETWORK: ""}),),
            DEVICES,
        ),
        Plan(
            Phase.ANNOUNCED_BY_KUBE_VIP,
            READY,
            condition="True EnsuredLoadBalancer",
            events=("Warning AddressInOtherNetwork",),
            delay=60.0,
        ),
    ),
    "announced on its device": (
        World(
            service(ours=True, annotations={**SUPPRESSED, **VLAN}), (marked(ip=ADDRESS, annotations=IN_VLAN),), DEVICES
        ),
        Plan(
            Phase.ANNOUNCED_BY_KUBE_VIP,
            READY,
            condition="True EnsuredLoadBalancer",
            write={
                "annotations": {
                    KUBE_VIP_ADDRESSES: ADDRESS,
                    KUBE_VIP_IGNORE: None,
                    ANNOUNCED_AS: f"shown, {ADDRESS}",
                    KUBE_VIP_INTERFACE: "eth1",
                },
                "ingress": [SHOWN],
            },
            then={"change": LB_NAME, "status": {"address": ADDRESS}},
            events=("Normal EnsuredLoadBalancer",),
            delay=60.0,
        ),
    ),
    "ready": (
        World(served(annotations={**VLAN, KUBE_VIP_INTERFACE: "eth1"}), (allocated(annotations=IN_VLAN),), DEVICES),
        Plan(Phase.ANNOUNCED_BY_KUBE_VIP, READY, condition="True EnsuredLoadBalancer", delay=60.0),
    ),
    "a device since, announced on the default device": (
        World(served(annotations=VLAN), (allocated(annotations=IN_VLAN),), DEVICES),
        Plan(
            Phase.ANNOUNCED_BY_KUBE_VIP,
            READY,
            condition="True EnsuredLoadBalancer",
            write={"annotations": {KUBE_VIP_INTERFACE: "eth1"}},
            events=("Warning NetworkDeviceChanged",),
            delay=60.0,
        ),
    ),
    "a device since, ignored by kube-vip": (
        World(served(annotations={**VLAN, KUBE_VIP_IGNORE: "true"}), (allocated(annotations=IN_VLAN),), DEVICES),
        Plan(
            Phase.ANNOUNCED_BY_KUBE_VIP,
            "NotReady AddressNotAnnounced",
            condition="False AddressNotAnnounced",
            write={"annotations": {KUBE_VIP_INTERFACE: "eth1"}},
            events=("Warning AddressNotAnnounced",),
        ),
    ),
    "devices not looked up": (
        World(
            service(ours=True, annotations={**SUPPRESSED, **VLAN}),
            (marked(ip=ADDRESS, annotations=IN_VLAN),),
            {"network_devices": None},
        ),
        Plan(Phase.ANNOUNCED_BY_KUBE_VIP, "NotReady NetworkDeviceUnknown"),
    ),
    "no device": (
        World(
            service(ours=True, annotations={**SUPPRESSED, **VLAN}),
            (marked(ip=ADDRESS, annotations=IN_VLAN),),
            {"network_devices": {"infra/other": "eth1"}},
        ),
        Plan(
            Phase.ANNOUNCED_BY_KUBE_VIP,
            "NotReady NetworkDeviceUnknown",
            condition="False NetworkDeviceUnknown",
            write="condition",
            events=("Warning NetworkDeviceUnknown",),
        ),
    ),
    "no device, DHCP": (
        World(
            service(ours=True, annotations={**SUPPRESSED, **VLAN, **DHCP}),
            (marked(ip=DHCP_ADDRESS, annotations=IN_VLAN, spec={"ipam": "dhcp"}),),
            {"network_devices": {"infra/other": "eth1"}},
        ),
        Plan(
            Phase.ANNOUNCED_BY_KUBE_VIP,
            "NotReady NetworkDeviceUnknown",
            condition="False NetworkDeviceUnknown",
            write="condition",
            events=("Warning NetworkDeviceUnknown",),
        ),
    ),
    "a device of the user": (
        World(
            service(ours=True, annotations={**SUPPRESSED, **VLAN, KUBE_VIP_INTERFACE: "bond7"}),
            (marked(ip=ADDRESS, annotations=IN_VLAN),),
            {"network_devices": {}},
        ),
        Plan(
            Phase.ANNOUNCED_BY_KUBE_VIP,
            READY,
            condition="True EnsuredLoadBalancer",
            write={
                "annotations": {KUBE_VIP_ADDRESSES: ADDRESS, KUBE_VIP_IGNORE: None, ANNOUNCED_AS: f"shown, {ADDRESS}"},
                "ingress": [SHOWN],
            },
            then={"change": LB_NAME, "status": {"address": ADDRESS}},
            events=("Warning NetworkDeviceUnknown", "Normal EnsuredLoadBalancer"),
            delay=60.0,
        ),
    ),
    "no component publishes devices": (
        World(
            service(ours=True, annotations={**SUPPRESSED, **VLAN}),
            (marked(ip=ADDRESS, annotations=IN_VLAN),),
            {"cluster": replace(CLUSTER, publishes_devices=False)},
        ),
        Plan(
            Phase.ANNOUNCED_BY_KUBE_VIP,
            READY,
            condition="True EnsuredLoadBalancer",
            write={
                "annotations": {KUBE_VIP_ADDRESSES: ADDRESS, KUBE_VIP_IGNORE: None, ANNOUNCED_AS: f"shown, {ADDRESS}"},
                "ingress": [SHOWN],
            },
            then={"change": LB_NAME, "status": {"address": ADDRESS}},
            events=("Warning NetworkDeviceUnknown", "Normal EnsuredLoadBalancer"),
            delay=60.0,
        ),
    ),
    "of the load balancer, not the one that is requested since": (
        World(
            service(ours=True, annotations={**SUPPRESSED, NETWORK: "infra/other"}),
            (marked(ip=ADDRESS, annotations=IN_VLAN),),
            {"network_devices": {"infra/vlan9": "eth1", "infra/other": "eth2"}},
        ),
        Plan(
            Phase.ANNOUNCED_BY_KUBE_VIP,
            READY,
            condition="True EnsuredLoadBalancer",
            write={
                "annotations": {
                    KUBE_VIP_ADDRESSES: ADDRESS,
                    KUBE_VIP_IGNORE: None,
                    ANNOUNCED_AS: f"shown, {ADDRESS}",
                    KUBE_VIP_INTERFACE: "eth1",
                },
                "ingress": [SHOWN],
            },
            then={"change": LB_NAME, "status": {"address": ADDRESS}},
            events=("Warning ImmutableSettingChanged", "Normal EnsuredLoadBalancer"),
            delay=60.0,
        ),
    ),
}


@pytest.mark.parametrize(("world", "expected"), POOL.values(), ids=POOL.keys())
def test_address_from_a_pool(world: World, expected: Plan) -> None:
    assert outline(world) == expected


@pytest.mark.parametrize(("world", "expected"), LEASES.values(), ids=LEASES.keys())
def test_address_from_dhcp(world: World, expected: Plan) -> None:
    assert outline(world) == expected


@pytest.mark.parametrize(("world", "expected"), OTHER_ADDRESSES.values(), ids=OTHER_ADDRESSES.keys())
def test_other_address_than_the_lease(world: World, expected: Plan) -> None:
    assert outline(world) == expected


def test_status_is_cleared_only_if_kube_vip_has_not_written_a_lease_since() -> None:
    made = plan(service(ours=True, address="10.0.0.9", annotations=LEASING.metadata.annotations), BY_DHCP)
    assert isinstance(made.write, PatchService)
    assert made.write.patch["metadata"] == {"resourceVersion": "7"}


@pytest.mark.parametrize(("world", "expected"), NETWORKS.values(), ids=NETWORKS.keys())
def test_network(world: World, expected: Plan) -> None:
    assert outline(world) == expected


DEVICE_TEXTS: dict[str, tuple[dict[str, str], bool, list[str]]] = {
    "device of the annotation": ({KUBE_VIP_INTERFACE: "bond7"}, False, ["on bond7: no device is known"]),
    "device that is not published any more": ({KUBE_VIP_INTERFACE: "eth9"}, True, ["on eth9: "]),
    "no device any more": ({}, True, ["on its default device: ", "Networks with one: infra/other"]),
}


@pytest.mark.parametrize(("annotations", "published", "texts"), DEVICE_TEXTS.values(), ids=DEVICE_TEXTS.keys())
def test_announced_address_without_a_published_device_is_reported(
    annotations: dict[str, str], *, published: bool, texts: list[str]
) -> None:
    devices = {"infra/other": "eth1"} if published else {}
    made = plan(served(annotations={**VLAN, **annotations}), allocated(annotations=IN_VLAN), network_devices=devices)
    (message,) = messages(made, Reason.NETWORK_DEVICE_UNKNOWN)
    assert all(text in message for text in texts)


def test_restored_annotation_is_named_with_both_addresses() -> None:
    (message,) = messages(plan(served(annotations={KUBE_VIP_ADDRESSES: "10.0.0.66"}), allocated()))
    assert message.startswith(
        f"Annotation {KUBE_VIP_ADDRESSES} was changed to '10.0.0.66' and is restored to {ADDRESS}"
    )
