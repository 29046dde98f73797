"""Plans of a Service that shares the address of a primary, or did."""

from typing import Any, Final

import pytest
from msgspec.structs import replace

from harvester_ccm.config import SharedAddressScope
from harvester_ccm.model.core import Service
from harvester_ccm.model.harvester import LoadBalancer
from harvester_ccm.names import (
    DESCRIPTION,
    IP_POOL,
    IPAM,
    KUBE_VIP_ADDRESSES,
    KUBE_VIP_HOST,
    KUBE_VIP_IGNORE,
    KUBE_VIP_INTERFACE,
    LB_CLUSTER,
    NETWORK,
    PREFIX,
    PRIMARY_SERVICE,
    PRIMARY_SERVICE_LABEL,
    REQUESTED_ADDRESS,
    Reason,
)
from harvester_ccm.plan.service.scope import primary_label
from harvester_ccm.plan.service.sharing.ranking import MAX_SHARED_PORTS
from harvester_ccm.plan.service.verdict import NotReady, Ready
from tests.support.builders import (
    ADDRESS,
    CLUSTER,
    SUPPRESSED,
    allocated,
    load_balancer,
    marked,
    served,
    service,
)
from tests.unit.plan.service.outcomes import differences, differing
from tests.unit.plan.service.snapshots import (
    PRIMARY,
    SHARED,
    SHARES,
    VM,
    WITHDRAWN,
    World,
    messages,
    plan,
)

PORT: dict[str, Any] = {"ports": [{"port": 443, "protocol": "TCP", "nodePort": 30443}]}
ALLOCATED: Final[dict[str, Any]] = {"primary": PRIMARY, "primary_allocated": frozenset({ADDRESS})}
NEW: Final = service(annotations=SHARES, **PORT)
PAUSED: Final = service(ours=True, annotations={**SUPPRESSED, **SHARES}, **PORT)
SHARING: Final = served(annotations=SHARES, labels=SHARED, **PORT)
"""A Service that has the address of its primary."""
HOSTED_PRIMARY: Final = service("main", uid="main-uid", ours=True, address=ADDRESS, annotations={**SUPPRESSED, **VM})
HOSTED: Final[dict[str, Any]] = {
    "primary": HOSTED_PRIMARY,
    "primary_allocated": frozenset({ADDRESS}),
    "primary_served": ADDRESS,
}
IGNORED_PRIMARY: Final = served("main", uid="main-uid", annotations={KUBE_VIP_IGNORE: "true"})
REPLACED_PRIMARY: Final = service("main", uid="main-uid", ours=True, address=ADDRESS, annotations=WITHDRAWN)
"""Its load balancer is being replaced by one of the other workload type."""
WITHOUT_ADDRESS: Final = service("main", uid="main-uid", ours=True, annotations=SUPPRESSED)
OTHER_PRIMARY: Final = service(
    "main", uid="main-uid", ours=True, address="10.0.0.9", annotations={KUBE_VIP_ADDRESSES: "10.0.0.9"}
)
TO_OTHER: Final[dict[str, Any]] = {"primary": OTHER_PRIMARY, "primary_allocated": frozenset({"10.0.0.9"})}
IN_VLAN: Final = served("main", uid="main-uid", annotations={NETWORK: "infra/vlan9", KUBE_VIP_INTERFACE: "eth1"})
TO_VLAN: Final[dict[str, Any]] = {"primary": IN_VLAN, "primary_allocated": frozenset({ADDRESS})}
OTHER_NAMESPACE: Final = {PRIMARY_SERVICE: "infra/main"}
NAMESPACE_ONLY: Final = replace(CLUSTER, shared_address_scope=SharedAddressScope.NAMESPACE)
DNS: Final = service(ours=True, ports=[{"port": 80, "protocol": "UDP"}], annotations={**SUPPRESSED, **SHARES})
OLDER: Final = service(ours=True, created="2026-01-01T00:00:00Z", annotations={**SUPPRESSED, **SHARES}, **PORT)
NEWER: Final = served("b", uid="b", created="2026-02-01T00:00:00Z", annotations=SHARES, labels=SHARED, **PORT)
USER: Final = served("b", uid="b", labels={PRIMARY_SERVICE_LABEL: "shop.web"})
"""A Service that shares the address of this one."""
HOLDER: Final = load_balancer("other", uid="other", ip=ADDRESS, pool="lan")
CLONED: Final = allocated(PRIMARY, labels={LB_CLUSTER: "clone"})
"""The load balancer of the primary, under the name of a clone of this cluster."""

SHARING_PLANS: dict[str, World] = {
    "new": World(NEW, facts=ALLOCATED),
    "shared before, but other clients removed everything": World(
        service(annotations=SHARES, labels=SHARED, **PORT), facts=ALLOCATED
    ),
    "new, the address is in kube-vip's annotation as well": World(
        service(annotations={**SHARES, KUBE_VIP_ADDRESSES: ADDRESS}, **PORT), facts=ALLOCATED
    ),
    "waiting": World(PAUSED, facts=ALLOCATED),
    "ready": World(SHARING, facts=ALLOCATED),
    "ready, kube-vip announces it on a device": World(
        served(annotations={**SHARES, KUBE_VIP_INTERFACE: "eth1", NETWORK: "infra/vlan9"}, labels=SHARED, **PORT),
        facts=TO_VLAN,
    ),
    "network and device are copied": World(service(annotations=SHARES, **PORT), facts=TO_VLAN),
    "ready, and a user has set ipam": World(
        served(annotations={**SHARES, IPAM: "pool"}, labels=SHARED, **PORT), facts=ALLOCATED
    ),
    "another device than the one of the primary": World(
        served(annotations={**SHARES, KUBE_VIP_INTERFACE: "eth7", NETWORK: "infra/vlan9"}, labels=SHARED, **PORT),
        facts=TO_VLAN,
    ),
    "a device, and the primary has none": World(
        served(annotations={**SHARES, KUBE_VIP_INTERFACE: "eth7"}, labels=SHARED, **PORT), facts=ALLOCATED
    ),
    "settings of the primary": World(
        served(
            annotations={
                **SHARES,
                DESCRIPTION: "front",
                IP_POOL: "lab",
                REQUESTED_ADDRESS: "10.0.0.7",
                f"{PREFIX}zz": "",
            },
            labels=SHARED,
            **PORT,
        ),
        facts=ALLOCATED,
    ),
    "a port of the primary in another protocol": World(DNS, facts={**ALLOCATED, "ranked": (DNS,)}),
    "Harvester announces the address": World(PAUSED, facts=HOSTED),
    "Harvester announces the address, which kube-vip has to withdraw first": World(SHARING, facts=HOSTED),
    "Harvester announces the address, which kube-vip has to withdraw from any device": World(
        SHARING,
        facts={
            **HOSTED,
            "primary": service(
                "main",
                uid="main-uid",
                ours=True,
                address=ADDRESS,
                annotations={**SUPPRESSED, **VM, KUBE_VIP_INTERFACE: "eth1"},
            ),
        },
    ),
    "Harvester does not announce the address yet": World(PAUSED, facts={**HOSTED, "primary_served": ""}),
    "a user lets kube-vip ignore the primary, whose address it announces": World(
        SHARING, facts={**ALLOCATED, "primary": IGNORED_PRIMARY}
    ),
    "the primary is withdrawn": World(
        SHARING, facts={"primary": REPLACED_PRIMARY, "primary_allocated": frozenset({ADDRESS})}
    ),
    "the primary is withdrawn, and has no device": World(
        served(annotations={**SHARES, KUBE_VIP_INTERFACE: "eth7"}, labels=SHARED, **PORT),
        facts={"primary": REPLACED_PRIMARY, "primary_allocated": frozenset({ADDRESS})},
    ),
    "the primary is announced again": World(
        service(
            ours=True,
            address=ADDRESS,
            annotations={**WITHDRAWN, **SHARES, KUBE_VIP_HOST: "n1"},
            labels=SHARED,
            **PORT,
        ),
        facts=ALLOCATED,
    ),
    "the primary has another address": World(SHARING, facts=TO_OTHER),
    "the primary has another address, withdrawn": World(
        service(ours=True, address=ADDRESS, annotations={**WITHDRAWN, **SHARES}, labels=SHARED, **PORT),
        facts=TO_OTHER,
    ),
    "the address of the primary is from DHCP": World(
        PAUSED, facts={"primary": PRIMARY, "primary_allocated": frozenset({"0.0.0.0", ADDRESS})}
    ),
    "its own load balancer: withdrawal": World(served(annotations=SHARES, **PORT), (allocated(),), TO_OTHER),
    "its own load balancer: deletion": World(
        service(ours=True, address=ADDRESS, annotations={**WITHDRAWN, **SHARES}, **PORT), (allocated(),), TO_OTHER
    ),
    "its own load balancer: Harvester has not responded": World(PAUSED, (marked(),), ALLOCATED),
    "its own load balancer: Harvester has not responded for 30 s": World(
        PAUSED, (marked(),), {**ALLOCATED, "waited": 30.0}
    ),
    "its own load balancer: another Service begins to share its address": World(
        service(ours=True, address=ADDRESS, annotations={**WITHDRAWN, **SHARES}, **PORT),
        (allocated(),),
        {**TO_OTHER, "secondary_in_progress": True},
    ),
    "its own load balancer is being deleted": World(PAUSED, (marked(deleting=True),), ALLOCATED),
}
PENDING: dict[str, World] = {
    "no such Service": World(NEW),
    "no such Service, its address was given up before": World(SHARING),
    "a malformed name": World(service(annotations={PRIMARY_SERVICE: "main"}, **PORT)),
    "no such Service, its own load balancer is being deleted": World(
        served(annotations=SHARES), (allocated(deleting=True),)
    ),
    "the primary has no address": World(NEW, facts={"primary": WITHOUT_ADDRESS}),
    "the primary has no address for a minute": World(PAUSED, facts={"primary": WITHOUT_ADDRESS, "waited": 60.0}),
    "the address of the primary is only requested": World(
        PAUSED, facts={"primary": served("main", uid="main-uid", spec={"loadBalancerIP": ADDRESS})}
    ),
    "IPv6 only": World(service(annotations=SHARES, spec={"ipFamilies": ["IPv6"]}, **PORT), facts=ALLOCATED),
    "the load balancer of the primary is replaced: withdrawal": World(SHARING, facts={"primary": REPLACED_PRIMARY}),
    "the load balancer of the primary is replaced": World(
        service(ours=True, address=ADDRESS, annotations={**WITHDRAWN, **SHARES}, labels=SHARED, **PORT),
        facts={"primary": REPLACED_PRIMARY},
    ),
    "the primary lost its address, which another load balancer has": World(
        SHARING, facts={"primary": WITHOUT_ADDRESS, "other_load_balancers": (HOLDER,)}
    ),
    "the primary lost its address": World(SHARING, facts={"primary": WITHOUT_ADDRESS}),
    "the primary has another address, which is not allocated": World(SHARING, facts={"primary": OTHER_PRIMARY}),
    "the load balancer of the primary belongs to others: the secondary keeps the address as its primary does": World(
        SHARING, facts={"primary": PRIMARY, "other_load_balancers": (CLONED,)}
    ),
    "the load balancer of the primary belongs to others for 60 s": World(
        SHARING, facts={"primary": PRIMARY, "other_load_balancers": (CLONED,), "waited": 60.0}
    ),
    "the primary waits for a lease": World(
        SHARING, facts={"primary": WITHOUT_ADDRESS, "primary_allocated": frozenset({"0.0.0.0"})}
    ),
    "the primary waits for a lease and shows the address of another controller": World(
        PAUSED, facts={"primary": PRIMARY, "primary_allocated": frozenset({"0.0.0.0"})}
    ),
    "another client emptied the status of the primary, which has a lease": World(
        SHARING, facts={"primary": WITHOUT_ADDRESS, "primary_allocated": frozenset({"0.0.0.0", ADDRESS})}
    ),
    "another client emptied the status of the primary, whose address Harvester announced": World(
        service(ours=True, address=ADDRESS, annotations={**SUPPRESSED, **SHARES}, labels=SHARED, **PORT),
        facts={"primary": replace(PRIMARY, status=NEW.status), "primary_allocated": frozenset({ADDRESS})},
    ),
    "the primary is not served any more": World(
        SHARING, facts={"primary": service("main", uid="main-uid", kind="ClusterIP", ours=True)}
    ),
    "a clash of ports": World(OLDER, facts={**ALLOCATED, "ranked": (OLDER, NEWER)}),
    "a clash of ports gives up the address": World(
        served("c", uid="c", created="2026-03-01T00:00:00Z", annotations=SHARES, labels=SHARED, **PORT),
        facts={
            **ALLOCATED,
            "ranked": (
                NEWER,
                served("c", uid="c", created="2026-03-01T00:00:00Z", annotations=SHARES, labels=SHARED, **PORT),
            ),
        },
    ),
    "another namespace, which is not permitted": World(
        service(annotations=OTHER_NAMESPACE, **PORT), facts={"cluster": NAMESPACE_ONLY}
    ),
    "another namespace, which is not permitted any more": World(
        served(annotations=OTHER_NAMESPACE, labels={PRIMARY_SERVICE_LABEL: "infra.main"}, **PORT),
        facts={"cluster": NAMESPACE_ONLY},
    ),
    "another namespace, which is not permitted any more, with the device of the primary": World(
        served(
            annotations={**OTHER_NAMESPACE, KUBE_VIP_INTERFACE: "eth1"},
            labels={PRIMARY_SERVICE_LABEL: "infra.main"},
            **PORT,
        ),
        facts={"cluster": NAMESPACE_ONLY},
    ),
    "its own address is shared": World(
        served(annotations=SHARES, **PORT), (allocated(),), {**TO_OTHER, "own_secondaries": (USER,)}
    ),
}
OF_PRIMARY: Final = allocated(PRIMARY, name="demo-shop-main-1", uid="lb-main")
"""The load balancer that has the address."""
FORMER: dict[str, World] = {
    "the address is withdrawn": World(served(labels=SHARED), facts={"other_load_balancers": (OF_PRIMARY,)}),
    "nobody has the address": World(served(labels=SHARED)),
    "with the device": World(
        served(labels=SHARED, annotations={KUBE_VIP_INTERFACE: "eth1"}),
        facts={"other_load_balancers": (OF_PRIMARY,)},
    ),
    "withdrawn": World(
        service(ours=True, address=ADDRESS, annotations=WITHDRAWN, labels=SHARED),
        facts={"other_load_balancers": (OF_PRIMARY,), "since": 1.0},
    ),
    "Harvester announced it": World(
        service(ours=True, address=ADDRESS, annotations=SUPPRESSED, labels=SHARED),
        facts={"other_load_balancers": (OF_PRIMARY,)},
    ),
}


def test_sharing() -> None:
    assert differences("shared_address_sharing_plans", SHARING_PLANS) == []


def test_address_cannot_be_used() -> None:
    assert differences("shared_address_pending", PENDING) == []


def test_former_secondary() -> None:
    assert differences("shared_address_former", FORMER) == []


def test_new_secondary_is_told_whose_address_it_has() -> None:
    events = plan(NEW, **ALLOCATED).events
    message = f"Ensured load balancer, address {ADDRESS} shared with shop/main"
    assert message in [event.message for event in events if event.reason == Reason.ENSURED]


REFUSALS: dict[str, tuple[dict[str, str], Service | None]] = {
    "itself": ({PRIMARY_SERVICE: "shop/web"}, service(**PORT)),
    "a secondary": (SHARES, served("main", uid="main-uid", annotations={PRIMARY_SERVICE: "shop/front"})),
    "a circle": (SHARES, served("main", uid="main-uid", annotations={PRIMARY_SERVICE: "shop/web"})),
    "deleted": (SHARES, served("main", uid="main-uid", deleting=True)),
    "another type": (SHARES, service("main", uid="main-uid", kind="ClusterIP")),
    "another network": ({**SHARES, NETWORK: "infra/vlan8"}, IN_VLAN),
    "no network": ({**SHARES, NETWORK: "infra/vlan8"}, PRIMARY),
    "missing": (SHARES, None),
    "no namespace": ({PRIMARY_SERVICE: "main"}, None),
    "no name": ({PRIMARY_SERVICE: "shop/"}, None),
    "three parts": ({PRIMARY_SERVICE: "a/b/c"}, None),
}


def test_refusal() -> None:
    rows: dict[str, str] = {}
    for name, (annotations, primary) in REFUSALS.items():
        concerned = service(annotations=annotations, **PORT)
        made = plan(concerned, primary=primary, primary_allocated=frozenset({ADDRESS}))
        rows[name] = "\n".join(messages(made))
    assert differing("shared_address_refusals", rows) == []


@pytest.mark.parametrize("exists", [True, False])
def test_refusal_in_the_scope_of_a_namespace_does_not_say_whether_the_primary_exists(*, exists: bool) -> None:
    primary = served("main", namespace="infra", uid="main-uid") if exists else None
    made = plan(service(annotations=OTHER_NAMESPACE, **PORT), primary=primary, cluster=NAMESPACE_ONLY)
    (message,) = messages(made)
    assert message == messages(plan(service(annotations=OTHER_NAMESPACE, **PORT), cluster=NAMESPACE_ONLY))[0]


@pytest.mark.parametrize(("primary", "own"), [(PRIMARY, ()), (HOSTED_PRIMARY, ()), (OTHER_PRIMARY, (allocated(),))])
def test_description_of_a_secondary_is_reported_as_ignored(primary: Service, own: tuple[LoadBalancer, ...]) -> None:
    secondary = served(annotations={**SHARES, DESCRIPTION: "front"}, labels=SHARED, **PORT)
    made = plan(secondary, *own, primary=primary, primary_allocated=frozenset(primary.addresses))
    (message,) = messages(made, Reason.IGNORED)
    assert f"{DESCRIPTION} (effective only on shop/main, whose address is shared)" in message


LABELS: dict[str, tuple[str, str]] = {
    "short": ("shop/main", "shop.main"),
    "63 characters": (f"shop/{'m' * 58}", f"shop.{'m' * 58}"),
    "64 characters": (f"shop/{'m' * 59}", f"shop.{'m' * 49}-69496d89"),
}


@pytest.mark.parametrize(("key", "label"), LABELS.values(), ids=LABELS.keys())
def test_label_of_a_secondary_is_valid(key: str, label: str) -> None:
    assert primary_label(key) == label
    assert len(primary_label(key)) <= 63


def test_ports_beyond_the_limit_of_a_vm_load_balancer_are_reported() -> None:
    ports = [{"port": number, "nodePort": number} for number in range(1001, 1001 + MAX_SHARED_PORTS + 1)]
    grown = service(ports=ports, ours=True, address=ADDRESS, annotations={**SHARES, **SUPPRESSED}, labels=SHARED)
    primary = service("main", uid="main-uid", ours=True, address=ADDRESS, annotations=SUPPRESSED)
    facts = {"primary": primary, "primary_allocated": {ADDRESS}, "primary_served": ADDRESS, "ranked": (grown,)}
    verdict = plan(grown, **facts).verdict
    assert isinstance(verdict, NotReady)
    assert verdict.message.message.startswith(f"Ports {1001 + MAX_SHARED_PORTS}/TCP are not served")
    by_kube_vip = replace(SHARING, spec=grown.spec)
    made = plan(by_kube_vip, **{**facts, "primary": PRIMARY, "ranked": (by_kube_vip,)})
    assert isinstance(made.verdict, Ready), "kube-proxy has no such limit"
