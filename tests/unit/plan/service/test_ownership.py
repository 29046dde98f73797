"""The owner of a load balancer, and the names of load balancers."""

import re
import string

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from harvester_ccm.model.core import Service
from harvester_ccm.model.harvester import ClusterIdentity, LoadBalancer
from harvester_ccm.names import (
    LB_CLUSTER,
    LB_OWNER,
    LB_SERVICE_NAME,
    LB_SERVICE_NAMESPACE,
    LB_SERVICE_UID,
    LB_SERVICE_UUID,
)
from harvester_ccm.plan.service.ownership.owner import candidate_of, load_balancer_name, match_load_balancer
from tests.support.builders import ADDRESS, CLUSTER, LB_NAME, UID, allocated, load_balancer, marked, served, service
from tests.unit.plan.service.outcomes import differing

NO_UID = ClusterIdentity(name="demo", namespace="vms")
"""The cluster if it is not permitted to read its own UID."""
DEFAULT = ClusterIdentity(name="kubernetes", namespace="vms", uid="cluster-uid")
RENAMED = replace(CLUSTER, former_names=("old",))
LABELS = {LB_CLUSTER: "demo", LB_SERVICE_NAMESPACE: "shop", LB_SERVICE_NAME: "web"}
SECOND = "demo-shop-web-99999999"
EARLIER = {LB_SERVICE_UID: "earlier"}


def of_go(name: str, cluster: str | None = "demo", **annotations: str) -> LoadBalancer:
    """Return a load balancer of the Go provider, without owner annotations; ``cluster`` None: without labels."""
    labels = {**LABELS, LB_CLUSTER: cluster} if cluster else {}
    return load_balancer(name, labels=labels, annotations=annotations, ip=ADDRESS)


ROWS: dict[str, tuple[LoadBalancer, ClusterIdentity]] = {
    "owner annotation": (marked(), CLUSTER),
    "owner annotation, another name": (marked(name="x"), CLUSTER),
    "owner annotation, another cluster name": (marked(labels={LB_CLUSTER: "y"}), CLUSTER),
    "owner annotation, another cluster name, an earlier Service": (
        marked(name="x", labels={LB_CLUSTER: "y"}, annotations=EARLIER),
        CLUSTER,
    ),
    "owner annotation, a former cluster name": (marked(name="x", labels={LB_CLUSTER: "old"}), RENAMED),
    "owner annotation, no cluster label": (
        load_balancer("x", annotations={LB_OWNER: "cluster-uid", LB_SERVICE_UID: UID}),
        CLUSTER,
    ),
    "owner annotation of another cluster": (marked(annotations={LB_OWNER: "other"}), CLUSTER),
    "own UID unknown, this Service": (marked(name="x"), NO_UID),
    "own UID unknown, an earlier Service": (marked(name="x", annotations=EARLIER), NO_UID),
    "own UID unknown, another cluster name": (marked(name="x", labels={LB_CLUSTER: "y"}), NO_UID),
    "Go provider": (of_go(LB_NAME), CLUSTER),
    "Go provider, a clone or a renamed cluster": (of_go(load_balancer_name("old", "shop", "web", UID), "old"), CLUSTER),
    "Go provider, a former cluster name": (of_go(load_balancer_name("old", "shop", "web", UID), "old"), RENAMED),
    "Go provider, an earlier Service": (of_go("demo-shop-web-00000000"), CLUSTER),
    "Go provider, an earlier Service of a former cluster name": (of_go("old-shop-web-00000000", "old"), RENAMED),
    "Go provider, an earlier Service of another cluster": (of_go("old-shop-web-00000000", "old"), CLUSTER),
    "Go provider, default cluster name": (
        of_go(load_balancer_name("kubernetes", "shop", "web", UID), "kubernetes"),
        DEFAULT,
    ),
    "Go provider, no labels": (of_go(LB_NAME, None), CLUSTER),
    "no labels, another name": (of_go("something", None), CLUSTER),
    "renamed or cloned cluster": (
        marked(name=load_balancer_name("old", "shop", "web", UID), labels={LB_CLUSTER: "old"}),
        CLUSTER,
    ),
    "owner annotation of another cluster, another cluster name, another name": (
        marked(name="x", labels={LB_CLUSTER: "y"}, annotations={LB_OWNER: "other"}),
        CLUSTER,
    ),
    "owner annotation of another cluster, another cluster name": (
        marked(labels={LB_CLUSTER: "y"}, annotations={LB_OWNER: "other"}),
        CLUSTER,
    ),
}


WITH_ITS_ADDRESS: dict[str, tuple[LoadBalancer, ClusterIdentity]] = {
    "earlier Service": (of_go("demo-shop-web-00000000"), CLUSTER),
    "former cluster name": (of_go("old-shop-web-00000000", "old"), RENAMED),
    "another cluster name": (of_go("old-shop-web-00000000", "old"), CLUSTER),
    "default cluster name": (of_go("kubernetes-shop-web-00000000", "kubernetes"), DEFAULT),
    "owner annotation of another cluster": (of_go("demo-shop-web-00000000", **{LB_OWNER: "other"}), CLUSTER),
    "own UID unknown": (of_go("demo-shop-web-00000000", **{LB_OWNER: "x"}), NO_UID),
    "owner annotation of another cluster, another cluster name": (
        allocated(name="x", labels={LB_CLUSTER: "y"}, annotations={LB_OWNER: "other"}),
        CLUSTER,
    ),
}


PROOFS: dict[str, LoadBalancer] = {
    "owner annotation": marked(),
    "UID of the Service": load_balancer("x", labels=LABELS, annotations={LB_SERVICE_UID: UID}),
    "UID of the Service by the Go provider": load_balancer("x", labels=LABELS, annotations={LB_SERVICE_UUID: UID}),
}


def told(found: LoadBalancer, concerned: Service, cluster: ClusterIdentity) -> str:
    """Return who owns a load balancer, why, and what a user can do about it."""
    match = match_load_balancer([found], concerned, cluster)
    (candidate,) = match.candidates
    assert candidate_of(found, concerned, cluster).owner is candidate.owner
    conflict = " (conflict)" if match.foreign else ""
    lines = [f"{candidate.owner.name}{conflict}: {candidate.reason}", candidate.remedy, candidate.command]
    return "\n".join(line for line in lines if line)


def test_owner() -> None:
    rows = {
        **{name: told(found, service(), cluster) for name, (found, cluster) in ROWS.items()},
        **{f"proven by: {name}": told(found, service(), CLUSTER) for name, found in PROOFS.items()},
        **{
            f"the Service has its address: {name}": told(found, served(), cluster)
            for name, (found, cluster) in WITH_ITS_ADDRESS.items()
        },
    }
    assert differing("owners", rows) == []


def test_adoption_next_to_a_load_balancer_in_use_deletes_that_first() -> None:
    claims = match_load_balancer([allocated(), of_go("demo-shop-web-00000000")], service(), CLUSTER).candidates
    assert f"stop the controller, delete load balancer {LB_NAME} in Harvester, and adopt it" in claims[1].remedy


def test_load_balancers_that_are_deleted_with_the_service() -> None:
    deleting = allocated(name=SECOND, uid="2", deleting=True)
    match = match_load_balancer([allocated(), deleting], served(), CLUSTER)
    assert match.own_load_balancers == (allocated(), deleting)
    assert match.own_undeleted == (allocated(),)
    assert match_load_balancer([], served(), CLUSTER).own_load_balancers == ()


def test_load_balancer_whose_address_is_in_use_is_chosen() -> None:
    unused, used = marked(uid="1"), allocated(name=SECOND, uid="2")
    match = match_load_balancer([unused, used], served(), CLUSTER)
    assert (match.load_balancer, match.duplicates) == (used, (unused,))


def test_load_balancer_that_is_being_deleted_is_not_chosen() -> None:
    deleted, other = allocated(deleting=True), allocated(name=SECOND, uid="2")
    assert match_load_balancer([deleted, other], served(), CLUSTER).load_balancer is other


def test_second_load_balancer_without_the_owner_annotation_is_no_duplicate() -> None:
    match = match_load_balancer([allocated(), of_go(SECOND)], served(), CLUSTER)
    assert (match.duplicates, len(match.candidates)) == ((), 2)


@given(
    names=st.tuples(*[st.sampled_from(["demo", "before", "kubernetes", ""])] * 2),
    former=st.sampled_from([(), ("before",)]),
    own_uid=st.sampled_from([CLUSTER.uid, ""]),
    uid=st.sampled_from([UID, "earlier"]),
    owner=st.sampled_from([None, CLUSTER.uid, "another"]),
    service_uid=st.sampled_from([None, UID, "earlier"]),
    has_address=st.booleans(),
)
def test_load_balancer_with_another_cluster_name_is_never_ours(
    names: tuple[str, str],
    former: tuple[str, ...],
    own_uid: str,
    uid: str,
    owner: str | None,
    service_uid: str | None,
    has_address: bool,
) -> None:
    cluster, label = names
    annotations = {key: value for key, value in {LB_OWNER: owner, LB_SERVICE_UID: service_uid}.items() if value}
    name = load_balancer_name(label, "shop", "web", uid)
    candidate = load_balancer(name, labels={**LABELS, LB_CLUSTER: label}, annotations=annotations, ip=ADDRESS)
    identity = ClusterIdentity(cluster, CLUSTER.namespace, own_uid, former_names=former)
    match = match_load_balancer([candidate], served() if has_address else service(), identity)
    if label not in identity.names or (own_uid and owner == "another"):
        assert match.load_balancer is None


NAMES = {
    "plain": (("demo", "default", "nginx", UID), "demo-default-nginx-27a92c93"),
    "cluster starts with a digit": (("8080-lab", "default", "nginx", UID), "a8080-lab-default-nginx-1526ee57"),
    "no cluster name": (("", "default", "nginx", UID), "a-default-nginx-a028be36"),
    "cluster name too long for a label": (("b" * 64, "default", "nginx", UID), f"a{'b' * 54}d9032966"),
    "cluster name that Harvester rejects": (
        ("My.Cluster", "default", "nginx", UID),
        "aMy.Cluster-default-nginx-7235c6f3",
    ),
    "ingress of RKE2 with the default cluster name": (
        ("kubernetes", "kube-system", "rke2-ingress-nginx-controller", "0d9e8f7a-6b5c-4d3e-8f2a-1b0c9d8e7f6a"),
        "kubernetes-kube-system-rke2-ingress-nginx-controller-d55039ed",
    ),
    "readable part is truncated": (
        (
            "manufacturing-line-4",
            "shop-floor-telemetry",
            "message-broker-public",
            "c0ffee00-1234-4abc-9def-001122334455",
        ),
        "manufacturing-line-4-shop-floor-telemetry-message-broke5ebeeaeb",
    ),
    "readable part fits exactly": (
        ("hq", "n" * 20, "s" * 30, "a1a1a1a1-b2b2-4c3c-8d4d-e5e5e5e5e5e5"),
        f"hq-{'n' * 20}-{'s' * 30}-2fed9db1",
    ),
}


@pytest.mark.parametrize(("parts", "name"), NAMES.values(), ids=NAMES.keys())
def test_names_are_those_of_the_go_provider(parts: tuple[str, str, str, str], name: str) -> None:
    """Harvester's allocation history contains them: they can never change."""
    assert load_balancer_name(*parts) == name


ENDS = st.sampled_from(string.ascii_lowercase + string.digits)
LABEL = ENDS | st.tuples(ENDS, st.text("-" + string.ascii_lowercase + string.digits, max_size=61), ENDS).map("".join)


@given(cluster=LABEL, namespace=LABEL, name=LABEL, uid=st.uuids().map(str))
def test_valid_parts_result_in_a_valid_name(cluster: str, namespace: str, name: str, uid: str) -> None:
    made = load_balancer_name(cluster, namespace, name, uid)
    assert len(made) <= 63
    assert re.fullmatch(r"[a-z]([-a-z0-9]*[a-z0-9])?", made)


def test_name_that_is_cut_within_a_character_has_the_length_of_a_name() -> None:
    assert len(load_balancer_name("b" + "ä" * 40, "shop", "web", UID).encode()) <= 63
