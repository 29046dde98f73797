"""Wishes that are corrected while there is no address: nothing is to be lost yet, so they are followed."""

from __future__ import annotations

from typing import Any

import pytest

from harvester_ccm.kube_vip_names import KUBE_VIP_ADDRESSES
from harvester_ccm.model.outcome import Refused
from harvester_ccm.names import (
    IP_POOL,
    IPAM,
    LB_ASKED_AGAIN,
    LB_CLUSTER,
    LB_OWNER,
    LB_REQUESTED_NETWORK,
    LB_SELECT_CLUSTER,
    LB_SELECT_NETWORK,
    LB_SERVICE_NAME,
    LB_SERVICE_NAMESPACE,
    LB_SERVICE_UID,
    NETWORK,
)
from tests.unit.plan.service.plans import outline, plan, told, writes
from tests.worlds.builders import ADDRESS, CLUSTER, LB_NAME, allocated, load_balancer, marked, service

NO_SUCH_POOL = "fail to get allocator lab"


def pending(pool: str = "", network: str = "", **more: Any) -> Any:
    """Return a load balancer that was made with this pool and network, and got no address."""
    return marked(
        spec={"ipPool": pool} if pool else {},
        annotations={LB_REQUESTED_NETWORK: network, LB_SELECT_NETWORK: network},
        message=NO_SUCH_POOL,
        **more,
    )


def unnamed_network() -> Any:
    """Return one of a provider that did not write which network was asked for."""
    marks = {LB_OWNER: CLUSTER.uid, LB_SERVICE_UID: service().metadata.uid, LB_SELECT_CLUSTER: CLUSTER.name}
    labels = {LB_CLUSTER: CLUSTER.name, LB_SERVICE_NAMESPACE: "shop", LB_SERVICE_NAME: "web"}
    return load_balancer(labels=labels, annotations={**marks, LB_SELECT_NETWORK: "infra/vlan1"}, message=NO_SUCH_POOL)


WISHES: dict[str, tuple[dict[str, str], Any, bool]] = {
    "another pool": ({IP_POOL: "lan"}, pending("lab"), True),
    "no pool": ({}, pending("lab"), True),
    "a pool at last": ({IP_POOL: "lan"}, pending(), True),
    "another network": ({NETWORK: "vlan2"}, pending(network="infra/vlan1"), True),
    "no network": ({}, pending(network="infra/vlan1"), True),
    "as before": ({IP_POOL: "lab", NETWORK: "infra/vlan1"}, pending("lab", "infra/vlan1"), False),
    "the same network, with its namespace": ({NETWORK: "default/vlan1"}, pending(network="vlan1"), False),
    "the same network, without its namespace": ({NETWORK: " vlan1 "}, pending(network="default/vlan1"), False),
    "a network, of a provider that did not write it": ({NETWORK: "vlan2"}, unnamed_network(), False),
    "a pool, which DHCP has none of": (
        {IPAM: "dhcp", IP_POOL: "lan"},
        marked(spec={"ipam": "dhcp"}, message=NO_SUCH_POOL),
        False,
    ),
}


@pytest.mark.parametrize(("wishes", "found", "corrected"), WISHES.values(), ids=WISHES.keys())
def test_pool_and_network_follow_while_there_is_no_address(wishes: dict[str, str], found: Any, corrected: bool) -> None:
    asked = service(annotations={**wishes, KUBE_VIP_ADDRESSES: ""}, ours=True)
    steps, _ = outline(asked, found)
    ask_again = {"write": LB_NAME, "annotations": {LB_ASKED_AGAIN: "true"}, "ask_again": True}
    assert [step for step in steps if isinstance(step, dict)] == ([ask_again] if corrected else [])
    assert "Warning ChangeRefused" not in steps


def test_pool_and_network_stay_once_there_is_an_address() -> None:
    asked = service(annotations={IP_POOL: "lan", NETWORK: "vlan2", KUBE_VIP_ADDRESSES: ADDRESS}, ours=True)
    asked_network = {LB_REQUESTED_NETWORK: "infra/vlan1"}
    found = allocated(asked, LB_NAME, spec={"ipPool": "lab"}, annotations=asked_network)
    made = plan(asked, found)
    assert told(made).count("Warning ChangeRefused") == 2
    assert not [step for step in writes(made) if "ipPool" in str(step) or "vlan2" in str(step)]


SEEN: dict[str, Any] = {
    "in the status": service(annotations={IP_POOL: "lan", KUBE_VIP_ADDRESSES: ""}, ours=True, address=ADDRESS),
    "by kube-vip": service(annotations={IP_POOL: "lan", KUBE_VIP_ADDRESSES: ADDRESS}, ours=True),
}


@pytest.mark.parametrize("asked", SEEN.values(), ids=SEEN.keys())
def test_an_address_that_was_seen_stays(asked: Any) -> None:
    found = marked(spec={"ipPool": "lab"}, ip=ADDRESS, pool="lab", finalizer=True)
    assert "Warning ChangeRefused" in told(plan(asked, found))


def test_an_address_that_was_in_use_stays_when_somebody_empties_the_service() -> None:
    asked = service(annotations={IP_POOL: "lan", KUBE_VIP_ADDRESSES: ""}, ours=True)
    found = allocated(spec={"ipPool": "vlan100"}, finalizer=True)
    assert "Warning ChangeRefused" in told(plan(asked, found))


def test_address_is_given_up_when_there_will_be_no_load_balancer() -> None:
    asked = service(annotations={IPAM: "mark", KUBE_VIP_ADDRESSES: ADDRESS}, ours=True, address=ADDRESS)
    steps, outcome = outline(asked)
    withdrawn = {"service": {"annotations": {KUBE_VIP_ADDRESSES: ""}, "ingress": None}}
    assert steps == ["Warning InvalidAnnotation", withdrawn]
    assert outcome == Refused("not_servable")


def test_address_of_others_is_left_alone_when_there_will_be_no_load_balancer() -> None:
    asked = service(annotations={IPAM: "mark"}, address=ADDRESS)
    assert writes(plan(asked)) == []


@pytest.mark.parametrize(
    ("message", "given_up"),
    [(NO_SUCH_POOL, True), ("no matched IPPool with requirement", True), ("fail to do something", False)],
)
def test_address_in_use_is_given_up_only_when_there_certainly_is_none(message: str, given_up: bool) -> None:
    asked = service(annotations={KUBE_VIP_ADDRESSES: ADDRESS}, ours=True, address=ADDRESS)
    steps, _ = outline(asked, marked(message=message))
    withdrawn = {"service": {"annotations": {KUBE_VIP_ADDRESSES: ""}, "ingress": None}}
    kept = [] if given_up else ["Warning AddressNotBooked"]
    assert steps == [*([withdrawn] if given_up else []), "Warning AddressPending", *kept]
