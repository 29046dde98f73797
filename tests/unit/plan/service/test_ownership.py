"""Whose load balancer it is: adoption, refusal, duplicates."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from harvester_ccm.model.harvester import ClusterIdentity
from harvester_ccm.names import (
    LB_CLUSTER,
    LB_OWNER,
    LB_SERVICE_NAME,
    LB_SERVICE_NAMESPACE,
    LB_SERVICE_UID,
)
from harvester_ccm.plan.service.ownership import Owner, claim_of, load_balancer_name, match_load_balancer
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
    "our mark, another cluster name": (marked(name="x", labels={LB_CLUSTER: "y"}), CLUSTER, Owner.FOREIGN),
    "our mark, our name, another cluster name": (marked(labels={LB_CLUSTER: "y"}), CLUSTER, Owner.FOREIGN),
    "our mark, a former cluster name": (marked(name="x", labels={LB_CLUSTER: "old"}), RENAMED, Owner.OURS),
    "our mark, another cluster name, made for an earlier Service": (
        marked(name="x", labels={LB_CLUSTER: "y"}, annotations={LB_SERVICE_UID: "earlier"}),
        CLUSTER,
        Owner.FOREIGN,
    ),
    "our mark, no cluster name": (load_balancer("x", annotations=MARKS), CLUSTER, Owner.UNPROVEN),
    "a mark, our own UID unknown, another cluster name": (
        marked(name="x", labels={LB_CLUSTER: "y"}),
        NAMELESS,
        Owner.FOREIGN,
    ),
    "another mark": (marked(annotations={LB_OWNER: "other"}), CLUSTER, Owner.FOREIGN),
    "a mark, our own UID unknown, made for this Service": (marked(name="x"), NAMELESS, Owner.OURS),
    "a mark, our own UID unknown, made for an earlier Service": (
        marked(name="x", annotations={LB_SERVICE_UID: "earlier"}),
        NAMELESS,
        Owner.UNPROVEN,
    ),
    "Go provider, name of this Service": (bare(LB_NAME), CLUSTER, Owner.OURS),
    "Go provider, a clone or the cluster renamed": (bare(OLD_NAME, "old"), CLUSTER, Owner.FOREIGN),
    "Go provider, cluster renamed": (bare(OLD_NAME, "old"), RENAMED, Owner.OURS),
    "Go provider, earlier Service of this name": (bare("demo-shop-web-00000000"), CLUSTER, Owner.UNPROVEN),
    "Go provider, earlier Service, default cluster name": (
        bare("kubernetes-shop-web-00000000", "kubernetes"),
        DEFAULT,
        Owner.UNPROVEN,
    ),
    "Go provider, this Service, default cluster name": (
        bare(load_balancer_name("kubernetes", "shop", "web", UID), "kubernetes"),
        DEFAULT,
        Owner.OURS,
    ),
    "Go provider, another cluster, earlier Service": (bare("old-shop-web-00000000", "old"), CLUSTER, Owner.UNPROVEN),
    "Go provider, earlier Service of a former cluster name": (
        bare("old-shop-web-00000000", "old"),
        RENAMED,
        Owner.UNPROVEN,
    ),
    "labels lost, name of this Service": (bare(LB_NAME, None), CLUSTER, Owner.OURS),
    "labels lost, another name": (bare("something", None), CLUSTER, Owner.UNPROVEN),
}


SHOWN = {
    "earlier Service of this name": (bare("demo-shop-web-00000000"), CLUSTER, Owner.OURS),
    "earlier Service of a former cluster name": (bare("old-shop-web-00000000", "old"), RENAMED, Owner.OURS),
    "another cluster's": (bare("old-shop-web-00000000", "old"), CLUSTER, Owner.UNPROVEN),
    "default cluster name": (bare("kubernetes-shop-web-00000000", "kubernetes"), DEFAULT, Owner.UNPROVEN),
    "another cluster's mark": (bare("demo-shop-web-00000000", **{LB_OWNER: "other"}), CLUSTER, Owner.FOREIGN),
    "a mark, our own UID unknown": (bare("demo-shop-web-00000000", **{LB_OWNER: "x"}), NAMELESS, Owner.UNPROVEN),
}


@pytest.mark.parametrize(("found", "cluster", "owner"), SHOWN.values(), ids=SHOWN.keys())
def test_owner_of_one_whose_address_the_service_shows(found: Any, cluster: ClusterIdentity, owner: Owner) -> None:
    assert claim_of(found, served(), cluster).owner is owner


@pytest.mark.parametrize(("found", "cluster", "owner"), OWNERS.values(), ids=OWNERS.keys())
def test_owner(found: Any, cluster: ClusterIdentity, owner: Owner) -> None:
    assert claim_of(found, service(), cluster).owner is owner


def test_the_one_whose_address_is_in_use_serves_the_service() -> None:
    named, in_use = marked(uid="1"), allocated(name=EXTRA, uid="2")
    match = match_load_balancer([named, in_use], served(), CLUSTER)
    assert (match.lb, match.duplicates) == (in_use, (named,))


def test_one_that_is_being_deleted_is_not_chosen() -> None:
    going, staying = allocated(deleting=True), allocated(name=EXTRA, uid="2")
    assert match_load_balancer([going, staying], served(), CLUSTER).lb is staying


def test_without_the_owner_annotation_a_second_one_is_no_duplicate() -> None:
    match = match_load_balancer([allocated(), bare(EXTRA)], served(), CLUSTER)
    assert (match.duplicates, len(match.claims)) == ((), 2)


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
    (judged,) = match.claims
    decided = claim_of(one, asked, identity)
    assert (match.lb is one) == (decided.owner is Owner.OURS)
    assert judged.owner is decided.owner
    our_name = made_by in identity.names
    assert our_name or decided.owner is not Owner.OURS, "nothing outweighs another name"
    facts = {
        "its owner annotation is this cluster's UID": known and owner == CLUSTER.uid and our_name,
        f"annotation {LB_SERVICE_UID} is this Service's UID": marked_uid == UID and our_name,
        "its name is made from this Service": uid == UID and made_by in identity.names,
        "a name of this cluster's own": our_name and not owner and shown and made_by not in ("", "kubernetes"),
        f"and this cluster is {CLUSTER.uid}": known and owner == "another",
        "it belongs to this cluster under the name": not our_name,
        "with another UID": not owner,
        "(namespace kube-system) is not known": bool(owner) and not known,
    }
    said_of_it = [fact for fact in facts if fact in judged.because]
    assert len(said_of_it) == 1, judged.because
    assert facts[said_of_it[0]], judged.because
