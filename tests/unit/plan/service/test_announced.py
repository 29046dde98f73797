"""Plans of a Service with an allocated address that kube-vip in this cluster announces."""

from typing import Any, Final

import pytest
from msgspec.structs import replace

from harvester_ccm.names import (
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
    NETWORK,
    REQUESTED_ADDRESS,
    Reason,
)
from harvester_ccm.plan.service.announcing.record import Step
from harvester_ccm.plan.service.desired import PatchService
from tests.support.builders import ADDRESS, CLUSTER, SUPPRESSED, allocated, load_balancer, marked, served, service
from tests.unit.plan.service.outcomes import differences
from tests.unit.plan.service.snapshots import (
    SHARED,
    WAITING,
    WITHDRAWN,
    World,
    messages,
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
HOLDER: Final = load_balancer("other", uid="other", ip=ADDRESS)
FROM_POOL: Final = served(annotations={**DHCP, KUBE_VIP_HOST: "n1"})
"""A Service with the address of an IP pool that is to get its address from DHCP."""
TWO: Final[dict[str, Any]] = {"ingress": [{"ip": ADDRESS, "ipMode": "VIP"}, {"ip": "fd00::1", "ipMode": "VIP"}]}

POOL: dict[str, World] = {
    "allocated": World(WAITING, (ONE_ADDRESS,)),
    "allocated, while the finalizer was removed": World(
        service(annotations={**SUPPRESSED, **record_of(Step.HELD, "")}), (ONE_ADDRESS,)
    ),
    "allocated, the address of the specification": World(
        service(ours=True, spec={"loadBalancerIP": ADDRESS}), (ONE_ADDRESS,)
    ),
    "allocated, another one than the specification has": World(
        service(ours=True, spec={"loadBalancerIP": "10.0.0.7"}), (ONE_ADDRESS,)
    ),
    "the load balancer gets the address": World(served(), (ONE_ADDRESS,)),
    "ready": World(served(), (allocated(),)),
    "ready, another port since": World(replace(served(), spec=served(ports=[{"port": 81}]).spec), (allocated(),)),
    "ready, served by the Go provider: no patch for the condition alone": World(
        served(condition=False), (allocated(),)
    ),
    "ready, a user has kube-vip ignore the Service": World(
        served(annotations={KUBE_VIP_IGNORE: "true"}), (allocated(),)
    ),
    "ready, another client changed the annotation": World(
        served(annotations={KUBE_VIP_ADDRESSES: "10.0.0.66"}), (allocated(),)
    ),
    "held, another client changed the annotation": World(
        service(ours=True, annotations={KUBE_VIP_ADDRESSES: "10.0.0.66", **record_of(Step.HELD, "")}), (ONE_ADDRESS,)
    ),
    "adopted without the finalizer: the address is no request": World(
        service(address=ADDRESS, annotations={KUBE_VIP_ADDRESSES: ADDRESS}), (allocated(),)
    ),
    "the Go provider announced it: the label of a former primary": World(
        served(condition=False, labels=SHARED), (allocated(),)
    ),
    "ready, a duplicate": World(served(), (allocated(), allocated(name="demo-shop-web-old", uid="old"))),
    "ready, a duplicate that is being deleted": World(
        served(), (allocated(), allocated(name="demo-shop-web-old", uid="old", deleting=True))
    ),
    "ready, a load balancer of another cluster": World(
        served(), (allocated(), marked(name="demo-shop-web-old", uid="old", annotations={LB_OWNER: "other"}))
    ),
    "ready, another address is requested": World(served(annotations={REQUESTED_ADDRESS: "10.0.0.7"}), (allocated(),)),
    "ready, the search before is not needed any more": World(
        served(), (allocated(annotations={LB_RECONCILE: "true"}),)
    ),
    "ready, the labels of the load balancer were changed": World(
        served(), (allocated(labels={"cloudprovider.harvesterhci.io/serviceName": "api"}),)
    ),
    "another address": World(served(), (OTHER_ADDRESS,)),
    "other clients removed everything from the Service": World(service(ours=True), (allocated(),)),
    "withdrawn, the load balancer gets its address before the touch": World(
        served(annotations=record_of(Step.PUBLISHED, again=True)), (ONE_ADDRESS,), {"since": 1.0}
    ),
}
LEASES: dict[str, World] = {
    "kube-vip is to get one": World(service(ours=True, annotations={**SUPPRESSED, **DHCP}), (BY_DHCP,)),
    "none yet": World(LEASING, (BY_DHCP,)),
    "none yet, a user has kube-vip ignore the Service": World(
        service(
            ours=True,
            annotations={
                **DHCP,
                KUBE_VIP_ADDRESSES: DHCP_ADDRESS,
                KUBE_VIP_IGNORE: "true",
                **record_of(Step.PUBLISHED, DHCP_ADDRESS),
            },
        ),
        (BY_DHCP,),
    ),
    "none for 30 s": World(LEASING, (BY_DHCP,), {"since": 30.0}),
    "in the status": World(LEASED, (BY_DHCP,)),
    "ready": World(LEASED, (RECORDED,)),
    "Harvester has allocated it to another load balancer": World(
        LEASED, (BY_DHCP,), {"other_load_balancers": (HOLDER,)}
    ),
    "two addresses, which are kube-vip's": World(
        service(ours=True, status=TWO, annotations={**NOTED, KUBE_VIP_LEASE: f"{ADDRESS},fd00::1"}), (RECORDED,)
    ),
    "two addresses, Harvester has allocated the second one to another load balancer": World(
        service(
            ours=True,
            status={"ingress": [{"ip": ADDRESS}, {"ip": "10.0.0.9"}]},
            annotations={**NOTED, KUBE_VIP_LEASE: f"{ADDRESS},10.0.0.9"},
        ),
        (RECORDED,),
        {"other_load_balancers": (load_balancer("other", uid="other", ip="10.0.0.9"),)},
    ),
    "recorded, another program wrote two addresses": World(
        service(
            ours=True,
            status={"ingress": [{"ip": "10.0.0.8"}, {"ip": "10.0.0.9"}]},
            annotations={**NOTED, **record_of(Step.SHOWN, DHCP_ADDRESS)},
        ),
        (RECORDED,),
    ),
    "of the Go provider: the record is written": World(
        service(ours=True, address=ADDRESS, condition=False, annotations=NOTED), (RECORDED,)
    ),
}
OTHER_ADDRESSES: dict[str, World] = {
    "of an IP pool is withdrawn": World(FROM_POOL, (BY_DHCP,)),
    "is withdrawn, then the lease is requested": World(
        service(ours=True, annotations={**DHCP, **WITHDRAWN, KUBE_VIP_HOST: "n1"}), (BY_DHCP,), {"since": 1.0}
    ),
    "of another controller is replaced by the lease": World(
        service(ours=True, address="10.0.0.9", annotations=NOTED), (RECORDED,)
    ),
}
NETWORKS: dict[str, World] = {
    "Harvester stored the requested network": World(
        service(ours=True, annotations={**SUPPRESSED, **VLAN}),
        (marked(ip=ADDRESS, pool="lan", annotations={**IN_VLAN, LB_SELECT_NETWORK: "infra/vlan9"}),),
        DEVICES,
    ),
    "Harvester stored another network": World(
        service(ours=True, annotations={**SUPPRESSED, **VLAN}), (IN_OTHER,), DEVICES
    ),
    "another network, and then the Service names its pool": World(
        service(ours=True, annotations={**SUPPRESSED, **VLAN, IP_POOL: "lan"}), (IN_OTHER,), DEVICES
    ),
    "another network, and then the Service requests that": World(
        service(ours=True, annotations={**SUPPRESSED, NETWORK: "infra/vlan7"}), (IN_OTHER,), DEVICES
    ),
    "another network, already announced": World(
        served(annotations={**VLAN, KUBE_VIP_INTERFACE: "eth1"}),
        (replace(IN_OTHER, status=replace(IN_OTHER.status, address=ADDRESS)),),
        {"network_devices": {"infra/vlan7": "eth0", "infra/vlan9": "eth1"}},
    ),
    "another network, announced by the Go provider, which writes no record": World(
        service(annotations={**VLAN, KUBE_VIP_ADDRESSES: ADDRESS}, address=ADDRESS), (IN_OTHER,), DEVICES
    ),
    "another network, already announced, another client changed the annotation": World(
        service(
            ours=True, annotations={**VLAN, KUBE_VIP_ADDRESSES: "10.0.0.66", **record_of(Step.SHOWN)}, address=ADDRESS
        ),
        (IN_OTHER,),
        DEVICES,
    ),
    "Harvester stored the requested network without a namespace": World(
        service(ours=True, annotations={**SUPPRESSED, NETWORK: "vlan9"}),
        (marked(ip=ADDRESS, pool="lan", annotations={LB_REQUESTED_NETWORK: "vlan9", LB_SELECT_NETWORK: "vlan9"}),),
        {"network_devices": {"default/vlan9": "eth1"}},
    ),
    "another network, another address was announced before": World(
        service(ours=True, address="10.0.0.9", annotations={**VLAN, KUBE_VIP_ADDRESSES: "10.0.0.9"}),
        (IN_OTHER,),
        DEVICES,
    ),
    "Harvester stored no network, not announced yet": World(
        service(ours=True, annotations={**SUPPRESSED, **VLAN}),
        (marked(ip=ADDRESS, pool="lan", annotations={**IN_VLAN, LB_SELECT_NETWORK: ""}),),
        DEVICES,
    ),
    "Harvester stored no network": World(
        served(annotations={**VLAN, KUBE_VIP_INTERFACE: "eth1"}),
        (allocated(pool="lan", annotations={**IN_VLAN, LB_SELECT_NETWORK: ""}),),
        DEVICES,
    ),
    "announced on its device": World(
        service(ours=True, annotations={**SUPPRESSED, **VLAN}), (marked(ip=ADDRESS, annotations=IN_VLAN),), DEVICES
    ),
    "ready": World(
        served(annotations={**VLAN, KUBE_VIP_INTERFACE: "eth1"}), (allocated(annotations=IN_VLAN),), DEVICES
    ),
    "a device since, announced on the default device": World(
        served(annotations=VLAN), (allocated(annotations=IN_VLAN),), DEVICES
    ),
    "a device since, ignored by kube-vip": World(
        served(annotations={**VLAN, KUBE_VIP_IGNORE: "true"}), (allocated(annotations=IN_VLAN),), DEVICES
    ),
    "devices not looked up": World(
        service(ours=True, annotations={**SUPPRESSED, **VLAN}),
        (marked(ip=ADDRESS, annotations=IN_VLAN),),
        {"network_devices": None},
    ),
    "devices not looked up, already announced": World(
        served(annotations={**VLAN, KUBE_VIP_INTERFACE: "eth1"}),
        (allocated(annotations=IN_VLAN),),
        {"network_devices": None},
    ),
    "no device": World(
        service(ours=True, annotations={**SUPPRESSED, **VLAN}),
        (marked(ip=ADDRESS, annotations=IN_VLAN),),
        {"network_devices": {"infra/other": "eth1"}},
    ),
    "no device, without the controller of VM instances": World(
        service(ours=True, annotations={**SUPPRESSED, **VLAN}),
        (marked(ip=ADDRESS, annotations=IN_VLAN),),
        {"network_devices": {"infra/other": "eth1"}, "cluster": replace(CLUSTER, publishes_devices=False)},
    ),
    "no device, DHCP": World(
        service(ours=True, annotations={**SUPPRESSED, **VLAN, **DHCP}),
        (marked(ip=DHCP_ADDRESS, annotations=IN_VLAN, spec={"ipam": "dhcp"}),),
        {"network_devices": {"infra/other": "eth1"}},
    ),
    "a device of the user": World(
        service(ours=True, annotations={**SUPPRESSED, **VLAN, KUBE_VIP_INTERFACE: "bond7"}),
        (marked(ip=ADDRESS, annotations=IN_VLAN),),
        {"network_devices": {}},
    ),
    "no device of any network yet": World(
        service(ours=True, annotations={**SUPPRESSED, **VLAN}),
        (marked(ip=ADDRESS, annotations=IN_VLAN),),
        {"network_devices": {}},
    ),
    "no component publishes devices": World(
        service(ours=True, annotations={**SUPPRESSED, **VLAN}),
        (marked(ip=ADDRESS, annotations=IN_VLAN),),
        {"cluster": replace(CLUSTER, publishes_devices=False)},
    ),
    "of the load balancer, not the one that is requested since": World(
        service(ours=True, annotations={**SUPPRESSED, NETWORK: "infra/other"}),
        (marked(ip=ADDRESS, annotations=IN_VLAN),),
        {"network_devices": {"infra/vlan9": "eth1", "infra/other": "eth2"}},
    ),
}


def test_address_from_a_pool() -> None:
    assert differences("announced_pool", POOL) == []


def test_address_from_dhcp() -> None:
    assert differences("announced_leases", LEASES) == []


def test_other_address_than_the_lease() -> None:
    assert differences("announced_other_addresses", OTHER_ADDRESSES) == []


def test_status_is_cleared_only_if_kube_vip_has_not_written_a_lease_since() -> None:
    made = plan(service(ours=True, address="10.0.0.9", annotations=LEASING.metadata.annotations), BY_DHCP)
    assert isinstance(made.write, PatchService)
    assert made.write.patch["metadata"] == {"resourceVersion": "7"}


def test_network() -> None:
    assert differences("announced_networks", NETWORKS) == []


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
