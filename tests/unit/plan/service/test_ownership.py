"""Whose load balancer it is: adoption, refusal, duplicates."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from harvester_ccm.kube_vip_names import KUBE_VIP_ADDRESSES
from harvester_ccm.model.cluster import ClusterIdentity
from harvester_ccm.model.outcome import Done, Refused, Wait
from harvester_ccm.names import (
    LB_CLUSTER,
    LB_OWNER,
    LB_SERVICE_NAME,
    LB_SERVICE_NAMESPACE,
    LB_SERVICE_UID,
    Reason,
)
from harvester_ccm.plan.service.ownership import Owner, Verdict, load_balancer_name, match_load_balancer, owner_of
from tests.unit.plan.service.plans import outline, plan, said
from tests.worlds.builders import (
    ADDRESS,
    CLUSTER,
    LB_NAME,
    UID,
    allocated,
    load_balancer,
    marked,
    served,
    service,
)

NAMELESS = ClusterIdentity(name="demo", namespace="vms")
"""The cluster where its own UID may not be read."""
DEFAULT = ClusterIdentity(name="kubernetes", namespace="vms", uid="cluster-uid")
RENAMED = replace(CLUSTER, former_names=("old",))
MARKS = {LB_OWNER: "cluster-uid", LB_SERVICE_UID: UID}
LABELS = {LB_CLUSTER: "demo", LB_SERVICE_NAMESPACE: "shop", LB_SERVICE_NAME: "web"}
EXTRA = "demo-shop-web-99999999"
OLD_NAME = load_balancer_name("old", "shop", "web", UID)


def bare(name: str, cluster: str | None = "demo", **annotations: str) -> Any:
    """Return a load balancer without our marks, as the Go provider makes them."""
    labels = {**LABELS, LB_CLUSTER: cluster} if cluster else {}
    return load_balancer(name, labels={k: v for k, v in labels.items() if v}, annotations=annotations, ip=ADDRESS)


OWNERS = {
    "our mark": (marked(), CLUSTER, Owner.OURS),
    "our mark, any name": (marked(name="x"), CLUSTER, Owner.OURS),
    "our mark, another cluster name": (marked(name="x", labels={LB_CLUSTER: "y"}), CLUSTER, Owner.OTHER_NAME),
    "our mark, our name, another cluster name": (marked(labels={LB_CLUSTER: "y"}), CLUSTER, Owner.OTHER_NAME),
    "our mark, a former cluster name": (marked(name="x", labels={LB_CLUSTER: "old"}), RENAMED, Owner.OURS),
    "our mark, another cluster name, made for an earlier Service": (
        marked(name="x", labels={LB_CLUSTER: "y"}, annotations={LB_SERVICE_UID: "earlier"}),
        CLUSTER,
        Owner.OTHER_NAME,
    ),
    "our mark, no cluster name": (load_balancer("x", annotations=MARKS), CLUSTER, Owner.UNKNOWN),
    "a mark, our own UID unknown, another cluster name": (
        marked(name="x", labels={LB_CLUSTER: "y"}),
        NAMELESS,
        Owner.OTHER_NAME,
    ),
    "another mark": (marked(annotations={LB_OWNER: "other"}), CLUSTER, Owner.FOREIGN),
    "a mark, our own UID unknown, made for this Service": (marked(name="x"), NAMELESS, Owner.OURS),
    "a mark, our own UID unknown, made for an earlier Service": (
        marked(name="x", annotations={LB_SERVICE_UID: "earlier"}),
        NAMELESS,
        Owner.UNKNOWN,
    ),
    "Go provider, name of this Service": (bare(LB_NAME), CLUSTER, Owner.OURS),
    "Go provider, a clone or the cluster renamed": (bare(OLD_NAME, "old"), CLUSTER, Owner.OTHER_NAME),
    "Go provider, cluster renamed": (bare(OLD_NAME, "old"), RENAMED, Owner.OURS),
    "Go provider, earlier Service of this name": (bare("demo-shop-web-00000000"), CLUSTER, Owner.UNKNOWN),
    "Go provider, earlier Service, default cluster name": (
        bare("kubernetes-shop-web-00000000", "kubernetes"),
        DEFAULT,
        Owner.UNKNOWN,
    ),
    "Go provider, this Service, default cluster name": (
        bare(load_balancer_name("kubernetes", "shop", "web", UID), "kubernetes"),
        DEFAULT,
        Owner.OURS,
    ),
    "Go provider, another cluster, earlier Service": (bare("old-shop-web-00000000", "old"), CLUSTER, Owner.UNKNOWN),
    "Go provider, earlier Service of a former cluster name": (
        bare("old-shop-web-00000000", "old"),
        RENAMED,
        Owner.UNKNOWN,
    ),
    "labels lost, name of this Service": (bare(LB_NAME, None), CLUSTER, Owner.OURS),
    "labels lost, another name": (bare("something", None), CLUSTER, Owner.UNKNOWN),
}


SHOWN = {
    "earlier Service of this name": (bare("demo-shop-web-00000000"), CLUSTER, Owner.OURS),
    "earlier Service of a former cluster name": (bare("old-shop-web-00000000", "old"), RENAMED, Owner.OURS),
    "another cluster's": (bare("old-shop-web-00000000", "old"), CLUSTER, Owner.UNKNOWN),
    "default cluster name": (bare("kubernetes-shop-web-00000000", "kubernetes"), DEFAULT, Owner.UNKNOWN),
    "another cluster's mark": (bare("demo-shop-web-00000000", **{LB_OWNER: "other"}), CLUSTER, Owner.FOREIGN),
    "a mark, our own UID unknown": (bare("demo-shop-web-00000000", **{LB_OWNER: "x"}), NAMELESS, Owner.UNKNOWN),
}


@pytest.mark.parametrize(("found", "cluster", "owner"), SHOWN.values(), ids=SHOWN.keys())
def test_owner_of_one_whose_address_the_service_shows(found: Any, cluster: ClusterIdentity, owner: Owner) -> None:
    assert owner_of(found, served(), cluster).owner is owner


@pytest.mark.parametrize(("found", "cluster", "owner"), OWNERS.values(), ids=OWNERS.keys())
def test_owner(found: Any, cluster: ClusterIdentity, owner: Owner) -> None:
    assert owner_of(found, service(), cluster).owner is owner


SELECT = {"loadbalancer.harvesterhci.io/cluster": "demo"}
NEW_UID = "11111111-1111-4111-8111-111111111111"
REBORN_NAME = load_balancer_name("demo", "shop", "web", NEW_UID)
ADOPTIONS: dict[str, tuple[Any, Any, list[object]]] = {
    "cluster renamed": (
        served(),
        allocated(
            name=OLD_NAME, labels={LB_CLUSTER: "old"}, annotations={"loadbalancer.harvesterhci.io/cluster": "old"}
        ),
        ["Normal AdoptedLoadBalancer", {"write": OLD_NAME, "labels": {LB_CLUSTER: "demo"}, "annotations": SELECT}],
    ),
    "Service created anew while we were away": (
        service(uid=NEW_UID),
        allocated(),
        [
            "Normal AdoptedLoadBalancer",
            {
                "service": {
                    "annotations": {KUBE_VIP_ADDRESSES: ADDRESS},
                    "finalizers": ["service.kubernetes.io/load-balancer-cleanup"],
                    "ingress": [f"{ADDRESS} VIP 80/TCP"],
                }
            },
            "Normal EnsuredLoadBalancer",
            {"write": LB_NAME, "annotations": {LB_SERVICE_UID: NEW_UID}},
        ],
    ),
    "Go provider, nothing to tell": (
        served(),
        load_balancer(labels=LABELS, annotations=SELECT, ip=ADDRESS, pool="lan", address=ADDRESS),
        [{"write": LB_NAME, "annotations": MARKS}],
    ),
    "Go provider, earlier Service": (
        served(),
        load_balancer("demo-shop-web-0", labels=LABELS, annotations=SELECT, ip=ADDRESS, pool="lan", address=ADDRESS),
        ["Normal AdoptedLoadBalancer", {"write": "demo-shop-web-0", "annotations": MARKS}],
    ),
}


@pytest.mark.parametrize(("asked", "found", "steps"), ADOPTIONS.values(), ids=ADOPTIONS.keys())
def test_adoption(asked: Any, found: Any, steps: list[object]) -> None:
    assert outline(asked, found, cluster=RENAMED) == (steps, Done())


OTHER_NAME = Refused("other_cluster_name")
ELSEWHERE = {LB_CLUSTER: "old"}
COPIES: dict[str, tuple[Any, Any, list[object], object]] = {
    "the Service shows its address": (
        served(),
        allocated(name=OLD_NAME, labels=ELSEWHERE),
        ["Warning ForeignLoadBalancer"],
        OTHER_NAME,
    ),
    "made by the Go provider": (served(), bare(OLD_NAME, "old"), ["Warning ForeignLoadBalancer"], OTHER_NAME),
    "somebody has written another name on ours": (
        served(),
        allocated(labels=ELSEWHERE),
        ["Warning ForeignLoadBalancer"],
        OTHER_NAME,
    ),
    "the same before there is an address": (
        service(annotations={KUBE_VIP_ADDRESSES: ""}, ours=True),
        marked(labels=ELSEWHERE),
        ["Warning ForeignLoadBalancer"],
        OTHER_NAME,
    ),
    "somebody has written another mark on ours": (
        served(),
        allocated(name=EXTRA, annotations={LB_OWNER: "other"}),
        ["Warning ForeignLoadBalancer"],
        Refused("foreign_load_balancer"),
    ),
    "the Service is new": (
        service(annotations={KUBE_VIP_ADDRESSES: ""}, ours=True),
        allocated(name=OLD_NAME, labels=ELSEWHERE),
        [{"create": LB_NAME, "workloadType": "cluster", "ipam": "pool"}, "Normal EnsuringLoadBalancer"],
        Wait("not_processed", 30.0),
    ),
}


@pytest.mark.parametrize(("asked", "found", "steps", "outcome"), COPIES.values(), ids=COPIES.keys())
def test_of_a_copy_nothing_is_touched(asked: Any, found: Any, steps: list[object], outcome: object) -> None:
    assert outline(asked, found) == (steps, outcome)


def test_the_service_of_a_copy_goes_without_its_load_balancer() -> None:
    steps, outcome = outline(served(deleting=True), allocated(name=OLD_NAME, labels=ELSEWHERE))
    assert not [step for step in steps if isinstance(step, dict) and "delete" in step]
    assert {"service": {"finalizers": [], "ingress": None}} in steps
    assert outcome == Done()


def test_without_a_uid_of_our_own_no_mark_is_written_or_removed() -> None:
    for found in (allocated(), load_balancer(labels=LABELS, annotations=SELECT, ip=ADDRESS, pool="x", address=ADDRESS)):
        steps = [step for step in plan(served(), found, cluster=NAMELESS).steps if LB_OWNER in repr(step)]
        assert steps == []


def test_a_load_balancer_of_a_cluster_of_our_name_is_left_alone_and_told() -> None:
    foreign = allocated(name="demo-shop-web-11111111", annotations={LB_OWNER: "other"})
    asked = service(annotations={KUBE_VIP_ADDRESSES: ""}, ours=True)
    steps, outcome = outline(asked, foreign)
    assert steps[0] == "Warning ForeignLoadBalancer"
    assert steps[1:] == [{"create": LB_NAME, "workloadType": "cluster", "ipam": "pool"}, "Normal EnsuringLoadBalancer"]
    assert outcome == Wait("not_processed", 30.0)
    text = said(plan(asked, foreign), Reason.FOREIGN_LOAD_BALANCER)
    assert "demo-shop-web-11111111" in text
    assert "--cluster-name" in text


@pytest.mark.parametrize("cluster", ["demo", "prod"])
def test_a_foreign_one_in_the_place_of_ours_is_not_fought_over(cluster: str) -> None:
    foreign = allocated(labels={LB_CLUSTER: cluster}, annotations={LB_OWNER: "other"})
    asked = service(annotations={KUBE_VIP_ADDRESSES: ""}, ours=True)
    assert outline(asked, foreign) == (["Warning ForeignLoadBalancer"], Refused("foreign_load_balancer"))


def test_the_same_service_in_a_cluster_of_another_name_is_nothing_to_tell() -> None:
    neighbour = allocated(name="prod-shop-web-11111111", labels={LB_CLUSTER: "prod"}, annotations={LB_OWNER: "other"})
    assert outline(served(), neighbour, allocated()) == ([], Done())


DUPLICATES: dict[str, tuple[Any, list[object]]] = {
    "ours, booked": (allocated(name=EXTRA, uid="2", ip="10.0.0.9", address=""), [{"delete": EXTRA}]),
    "ours, not booked yet": (marked(name=EXTRA, uid="2", finalizer=False), []),
    "ours, going already": (allocated(name=EXTRA, uid="2", deleting=True), []),
    "without a mark": (bare(EXTRA), []),
    "of another name": (allocated(name=EXTRA, uid="2", labels=ELSEWHERE), []),
    "foreign": (allocated(name=EXTRA, uid="2", annotations={LB_OWNER: "other"}), ["Warning ForeignLoadBalancer"]),
}


@pytest.mark.parametrize(("extra", "steps"), DUPLICATES.values(), ids=DUPLICATES.keys())
@pytest.mark.parametrize("first", [True, False], ids=["listed first", "listed last"])
def test_a_second_load_balancer(extra: Any, steps: list[object], first: bool) -> None:
    both = (extra, allocated()) if first else (allocated(), extra)
    assert outline(served(), *both) == (steps, Done())


def test_the_one_whose_address_is_in_use_stays() -> None:
    used = allocated(name=EXTRA, uid="2")
    other = allocated(ip="10.0.0.9", address="")
    assert outline(served(), other, used)[0] == [{"delete": LB_NAME}]


def test_one_that_is_going_is_not_chosen_before_one_that_stays() -> None:
    going, staying = allocated(deleting=True), allocated(name=EXTRA, uid="2")
    assert outline(served(), going, staying) == ([], Done()), "though the other one has the better name"


def test_names_of_new_ones() -> None:
    (_, create, _), _ = outline(service(uid=NEW_UID))
    assert isinstance(create, dict)
    assert create["create"] == REBORN_NAME


@given(
    cluster=st.sampled_from(["demo", "before", "kubernetes", ""]),
    former=st.sampled_from([(), ("before",)]),
    known=st.booleans(),
    made_by=st.sampled_from(["demo", "before", "kubernetes", ""]),
    uid=st.sampled_from([UID, "earlier"]),
    owner=st.sampled_from([None, CLUSTER.uid, "another"]),
    marked_uid=st.sampled_from([None, UID, "earlier"]),
    shown=st.booleans(),
)
@settings(deadline=None)
def test_the_evidence_fits_the_verdict(
    cluster: str,
    former: tuple[str, ...],
    known: bool,
    made_by: str,
    uid: str,
    owner: str | None,
    marked_uid: str | None,
    shown: bool,
) -> None:
    annotations = {key: value for key, value in {LB_OWNER: owner, LB_SERVICE_UID: marked_uid}.items() if value}
    name = load_balancer_name(made_by, "shop", "web", uid)
    one = load_balancer(name, labels={**LABELS, LB_CLUSTER: made_by}, annotations=annotations, ip=ADDRESS)
    identity = ClusterIdentity(cluster, CLUSTER.namespace, CLUSTER.uid if known else "", former_names=former)
    asked = served() if shown else service()
    match = match_load_balancer([one], asked, identity)
    (judged,) = match.candidates
    decided = owner_of(one, asked, identity)
    assert (judged.verdict is Verdict.CLAIMED) == (match.lb is one) == (decided.owner is Owner.OURS)
    if judged.verdict is not Verdict.CLAIMED:
        assert judged.verdict == decided.owner.value
    our_name = made_by in identity.names
    assert our_name or decided.owner is not Owner.OURS, "nothing outweighs another name"
    facts = {
        "its owner mark is this cluster's": known and owner == CLUSTER.uid and our_name,
        f"annotation {LB_SERVICE_UID} is this Service's UID": marked_uid == UID and our_name,
        "its name is made from this cluster": uid == UID and made_by == cluster,
        "a former name of this cluster": uid == UID and made_by in former,
        "a name of this cluster's own": our_name and not owner and shown and made_by not in ("", "kubernetes"),
        f"and this cluster is {CLUSTER.uid}": known and owner == "another",
        "it belongs to this cluster under the name": not our_name,
        "with another UID": not owner,
        "whether that is this one is not known": bool(owner) and not known,
    }
    said_of_it = [fact for fact in facts if fact in judged.because]
    assert len(said_of_it) == 1, judged.because
    assert facts[said_of_it[0]], judged.because
