"""Several Services on one address: who may, who not, what the others see, and what happens when roles change."""

from __future__ import annotations

from typing import Any

import pytest

from harvester_ccm.kube_vip_names import KUBE_VIP_ADDRESSES, KUBE_VIP_IGNORE, KUBE_VIP_INTERFACE
from harvester_ccm.model.outcome import Done, Refused, Wait
from harvester_ccm.names import (
    IPAM,
    NETWORK,
    PRIMARY_SERVICE,
    PRIMARY_SERVICE_LABEL,
    Reason,
)
from harvester_ccm.plan.service.decision import condition_after
from harvester_ccm.plan.service.shared_address import PRIMARY_PATIENCE, approved
from tests.unit.plan.service.plans import OURS, outline, plan, said, situation_of
from tests.unit.plan.service.sharing_services import (
    API,
    HANDS_OFF,
    HELD,
    LABEL,
    NAMES_WEB,
    OTHER,
    WITHDRAWN,
    asking,
    hosted_primary,
    sharing,
)
from tests.worlds.builders import ADDRESS, CLUSTER, allocated, served, service

STEPS = {
    "asks for the address": (
        asking(),
        served(),
        [
            {
                "service": {
                    "annotations": {KUBE_VIP_ADDRESSES: ADDRESS},
                    "labels": LABEL,
                    "finalizers": OURS,
                    "ingress": [f"{ADDRESS} VIP 8080/TCP"],
                }
            },
            "Normal EnsuredLoadBalancer",
        ],
        Done(),
    ),
    "nothing to do": (sharing(), served(), [], Done()),
    "ipam and device are those of the primary, the network is copied": (
        sharing({IPAM: "dhcp", KUBE_VIP_INTERFACE: "eth5"}),
        served(annotations={NETWORK: "infra/vlan9"}),
        [{"service": {"annotations": {NETWORK: "infra/vlan9", KUBE_VIP_INTERFACE: None, IPAM: None}}}],
        Done(),
    ),
    "on the device of the primary": (
        asking(HELD, ours=True),
        served(annotations={NETWORK: "infra/vlan9", KUBE_VIP_INTERFACE: "eth1"}),
        [
            {
                "service": {
                    "annotations": {
                        KUBE_VIP_ADDRESSES: ADDRESS,
                        KUBE_VIP_IGNORE: None,
                        KUBE_VIP_INTERFACE: "eth1",
                        NETWORK: "infra/vlan9",
                    },
                    "labels": LABEL,
                    "ingress": [f"{ADDRESS} VIP 8080/TCP"],
                }
            },
            "Normal EnsuredLoadBalancer",
        ],
        Done(),
    ),
    "announced on the default device until now": (
        sharing({NETWORK: "infra/vlan9"}),
        served(annotations={NETWORK: "infra/vlan9", KUBE_VIP_INTERFACE: "eth1"}),
        ["Warning NetworkDeviceChanged", {"service": {"annotations": {KUBE_VIP_INTERFACE: "eth1"}}}],
        Done(),
    ),
    "no longer names a primary, nor its network": (
        sharing({PRIMARY_SERVICE: "", KUBE_VIP_INTERFACE: "eth1"}),
        None,
        [
            {
                "service": {
                    "annotations": {**WITHDRAWN, KUBE_VIP_INTERFACE: None},
                    "labels": {PRIMARY_SERVICE_LABEL: None},
                    "ingress": None,
                }
            }
        ],
        Wait("leaving_primary"),
    ),
    "created before the primary has an address": (
        asking(),
        service(),
        [{"service": {"annotations": HELD, "finalizers": OURS}}],
        Wait("primary", PRIMARY_PATIENCE),
    ),
    "address of the primary changed": (
        sharing(),
        served(address=OTHER, annotations={KUBE_VIP_ADDRESSES: OTHER}),
        ["Warning AddressChanged", {"service": {"annotations": WITHDRAWN}}],
        Wait("endpoints"),
    ),
    "lease of a primary with DHCP": (
        sharing(),
        served(annotations={KUBE_VIP_ADDRESSES: "0.0.0.0", IPAM: "dhcp"}),
        [],
        Done(),
    ),
    "primary announced by Harvester": (
        asking(WITHDRAWN, ours=True),
        hosted_primary(),
        [
            {"service": {"annotations": {KUBE_VIP_IGNORE: "true"}}},
            {"service": {"labels": LABEL, "ingress": [f"{ADDRESS} VIP 8080/TCP"]}},
            "Normal EnsuredLoadBalancer",
        ],
        Done(),
    ),
    "primary is being switched: nobody announces": (
        sharing(),
        served(annotations={KUBE_VIP_ADDRESSES: ""}),
        [{"service": {"annotations": WITHDRAWN}}],
        Done(),
    ),
    "primary went to Harvester: withdrawn before it is ignored": (
        sharing(),
        hosted_primary(),
        [{"service": {"annotations": WITHDRAWN}}],
        Done(),
    ),
    "primary came back from Harvester": (
        sharing(HANDS_OFF),
        served(),
        [{"service": {"annotations": {KUBE_VIP_ADDRESSES: ADDRESS, KUBE_VIP_IGNORE: None}}}],
        Done(),
    ),
    "kept from kube-vip by the user": (sharing({KUBE_VIP_IGNORE: "true"}), served(), [], Done()),
    "primary changed to another one": (
        sharing({PRIMARY_SERVICE: "infra/edge"}),
        served("edge", namespace="infra", uid="edge", address=OTHER, annotations={KUBE_VIP_ADDRESSES: OTHER}),
        ["Warning AddressChanged", {"service": {"annotations": WITHDRAWN}}],
        Wait("endpoints"),
    ),
    "no longer names a primary": (
        service(
            "api",
            uid="api",
            ports=API,
            annotations={KUBE_VIP_ADDRESSES: ADDRESS},
            labels=LABEL,
            ours=True,
            address=ADDRESS,
        ),
        None,
        [{"service": {"annotations": WITHDRAWN, "labels": {PRIMARY_SERVICE_LABEL: None}, "ingress": None}}],
        Wait("leaving_primary"),
    ),
    "no longer names a primary that Harvester announces": (
        service("api", uid="api", ports=API, annotations=HANDS_OFF, labels=LABEL, ours=True, address=ADDRESS),
        None,
        [{"service": {"labels": {PRIMARY_SERVICE_LABEL: None}, "ingress": None}}],
        Wait("leaving_primary"),
    ),
    "an empty annotation names nobody": (
        service(
            "api",
            uid="api",
            annotations={PRIMARY_SERVICE: " ", KUBE_VIP_ADDRESSES: ADDRESS},
            ours=True,
            address=ADDRESS,
        ),
        None,
        "own",
        None,
    ),
}


@pytest.mark.parametrize("given", [{ADDRESS}, {"0.0.0.0"}], ids=["from a pool", "by DHCP"])
def test_the_address_that_harvester_gave_is_shared(given: set[str]) -> None:
    steps, outcome = outline(asking(HELD, ours=True), primary=served(), primary_allocated=frozenset(given))
    assert steps[-1] == "Normal EnsuredLoadBalancer"
    assert outcome == Done()


@pytest.mark.parametrize("given", [set(), {OTHER}], ids=["none", "another one"])
def test_an_address_that_only_the_user_of_the_primary_gave_is_not_shared(given: set[str]) -> None:
    assert outline(asking(HELD, ours=True), primary=served(), primary_allocated=frozenset(given)) == (
        [],
        Wait("primary", PRIMARY_PATIENCE),
    )


def test_one_whose_primary_waits_is_told_after_a_minute() -> None:
    """Without a word of its own it looks as if no program were there."""
    early = plan(asking(HELD, ours=True), primary=service(), waited=PRIMARY_PATIENCE - 1)
    assert (said(early, Reason.ADDRESS_PENDING), early.outcome) == ("", Wait("primary", 1.0))
    late = plan(asking(HELD, ours=True), primary=service(), waited=PRIMARY_PATIENCE)
    assert late.outcome == Wait("primary")
    assert (
        "Service shop/web, whose address this Service shares, has none from Harvester yet: its own Events say why"
        in (said(late, Reason.ADDRESS_PENDING))
    )
    served_till_now = plan(sharing(), primary=service(ours=True), waited=PRIMARY_PATIENCE)
    assert said(served_till_now, Reason.ADDRESS_PENDING) == ""


@pytest.mark.parametrize(("asked", "primary", "steps", "outcome"), STEPS.values(), ids=STEPS.keys())
def test_steps(asked: Any, primary: Any, steps: Any, outcome: object) -> None:
    if steps == "own":
        assert outline(asked, allocated(asked)) == ([], Done())
    else:
        assert outline(asked, primary=primary) == (steps, outcome)


CHAINED = served(annotations={PRIMARY_SERVICE: "shop/front"})
REFUSALS: dict[str, tuple[Any, Any, tuple[Any, ...], str]] = {
    "not found": (asking(), None, (), "Service shop/web does not exist"),
    "itself": (asking({PRIMARY_SERVICE: "shop/api"}), asking(), (), "names itself"),
    "chained": (asking(), CHAINED, (), "Name shop/front as primary instead"),
    "being deleted": (asking(), served(deleting=True), (), "is being deleted"),
    "not a load balancer": (asking(), served(kind="ClusterIP"), (), "type must be LoadBalancer"),
    "of another class": (
        asking(),
        service(address=ADDRESS, spec={"loadBalancerClass": "example.com/other"}),
        (),
        "has no load balancer of Harvester",
    ),
    "served by MetalLB": (
        asking(),
        service(address=ADDRESS, annotations={"metallb.io/ip-allocated-from-pool": "x"}),
        (),
        "has no load balancer of Harvester",
    ),
    "port of the primary": (
        asking(ports=[{"port": 80}]),
        served(),
        (),
        "Port 80/TCP is used on this address by Service shop/web",
    ),
    "port of an older one": (
        asking(created="2026-01-02T00:00:00Z"),
        served(),
        (service("old", uid="old", ports=API, annotations=NAMES_WEB, created="2026-01-01T00:00:00Z"),),
        "Port 8080/TCP is used on this address by Service shop/old",
    ),
    "port of one that is served already": (
        asking(created="2026-01-01T00:00:00Z"),
        served(),
        (service("z", uid="z", ports=API, annotations=NAMES_WEB, labels=LABEL, created="2026-01-02T00:00:00Z"),),
        "Port 8080/TCP is used on this address by Service shop/z",
    ),
    "port that a served one wants beside one of the primary": (
        asking(created="2026-01-01T00:00:00Z"),
        served(),
        (
            service(
                "z",
                uid="z",
                ports=[{"port": 80}, {"port": 8080}],
                annotations=NAMES_WEB,
                labels=LABEL,
                created="2026-01-02T00:00:00Z",
            ),
        ),
        "Port 8080/TCP is used on this address by Service shop/z",
    ),
    "no namespace": (asking({PRIMARY_SERVICE: "web"}), None, (), "expected namespace/name"),
    "an empty namespace": (asking({PRIMARY_SERVICE: "/web"}), None, (), "expected namespace/name"),
    "an empty name": (asking({PRIMARY_SERVICE: "shop/"}), None, (), "expected namespace/name"),
    "too many parts": (asking({PRIMARY_SERVICE: "a/b/c"}), None, (), "expected namespace/name"),
}


@pytest.mark.parametrize(("asked", "primary", "secondaries", "text"), REFUSALS.values(), ids=REFUSALS.keys())
def test_refusals(asked: Any, primary: Any, secondaries: tuple[Any, ...], text: str) -> None:
    made = plan(asked, primary=primary, secondaries_of_primary=secondaries)
    assert text in said(made, Reason.SHARING_REFUSED) + said(made, Reason.INVALID_ANNOTATION)
    steps, outcome = outline(asked, primary=primary, secondaries_of_primary=secondaries)
    assert steps[1:] == [{"service": {"annotations": HELD, "finalizers": OURS}}]
    # What is no name of a Service is only mended by its user.
    is_wrong = "expected" in text
    assert outcome == (Refused("not_sharable") if is_wrong else Wait("not_sharable"))
    told = condition_after(made, situation_of(asked))
    assert told is not None
    assert text in told.message


YOUNGER = service("new", uid="new", ports=API, annotations=NAMES_WEB, created="2026-01-02T00:00:00Z")
FROM_ELSEWHERE = service(
    "a", uid="a", ports=API, annotations=NAMES_WEB, labels={PRIMARY_SERVICE_LABEL: "infra.edge"}, ours=True
)
ALLOWED: dict[str, tuple[Any, tuple[Any, ...]]] = {
    "TCP and UDP of one number": (asking(ports=[{"port": 80, "protocol": "UDP"}]), ()),
    "the younger one gives way": (asking(created="2026-01-01T00:00:00Z"), (YOUNGER,)),
    "one that was served with another address gives way": (sharing(), (FROM_ELSEWHERE,)),
    "one that was refused does not take its ports": (
        asking(created="2026-01-03T00:00:00Z"),
        (
            service(
                "bad",
                uid="bad",
                ports=[{"port": 80}, {"port": 8080}],
                annotations=NAMES_WEB,
                created="2026-01-01T00:00:00Z",
            ),
        ),
    ),
    "one that is ClusterIP by now": (
        asking(created="2026-01-03T00:00:00Z"),
        (service("c", uid="c", kind="ClusterIP", ports=API, annotations=NAMES_WEB, created="2026-01-01T00:00:00Z"),),
    ),
}


@pytest.mark.parametrize(("asked", "secondaries"), ALLOWED.values(), ids=ALLOWED.keys())
def test_no_refusal(asked: Any, secondaries: tuple[Any, ...]) -> None:
    made = plan(asked, primary=served(), secondaries_of_primary=secondaries)
    assert said(made, Reason.SHARING_REFUSED) == ""
    assert asked.metadata.key in [one.metadata.key for one in approved(served(), (asked, *secondaries), CLUSTER)]


@pytest.mark.parametrize("order", [(0, 1, 2), (2, 1, 0), (1, 2, 0)], ids=str)
def test_verdicts_do_not_depend_on_the_order_of_events(order: tuple[int, ...]) -> None:
    three = (asking(created="2026-01-01T00:00:00Z"), YOUNGER, FROM_ELSEWHERE)
    verdict = approved(served(), [three[number] for number in order], CLUSTER)
    assert [one.metadata.key for one in verdict] == ["shop/a"]


def test_one_that_was_served_keeps_its_ports_when_the_primary_takes_one_of_them() -> None:
    """Until it has left the address, it still answers there on the other one."""
    both = [{"name": "web", "port": 80, "nodePort": 32081}, {"name": "alt", "port": 8080, "nodePort": 32080}]
    leaving = asking(labels=LABEL, ours=True, ports=both, created="2026-01-02T00:00:00Z")
    wishing = service("b", uid="b", ports=API, annotations=NAMES_WEB, created="2026-01-01T00:00:00Z")
    assert approved(served(), (leaving, wishing), CLUSTER) == ()
    assert approved(served(), (wishing,), CLUSTER) == (wishing,)


def test_an_edit_takes_no_port_from_the_one_that_is_served_with_it() -> None:
    before = [{"port": 9000, "protocol": "TCP", "nodePort": 32090}]
    shown = {"ingress": [{"ip": ADDRESS, "ipMode": "VIP", "ports": [{"port": 9000, "protocol": "TCP"}]}]}
    edited = asking(labels=LABEL, ours=True, status=shown, created="2026-01-01T00:00:00Z")
    holder = service(
        "b", uid="b", ports=API, annotations=NAMES_WEB, labels=LABEL, address=ADDRESS, created="2026-01-02T00:00:00Z"
    )
    assert approved(served(), (edited, holder), CLUSTER) == (holder,)
    unedited = asking(labels=LABEL, ours=True, ports=before, address=ADDRESS, created="2026-01-01T00:00:00Z")
    assert approved(served(), (unedited, holder), CLUSTER) == (unedited, holder)
