"""Which Services may use the address of a primary, and what they read of each other.

A change that no other plan reads wakes no other Service, so no other plan may differ after it.
"""

from collections.abc import Iterator
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import fields, replace

from harvester_ccm import names
from harvester_ccm.config import SharedAddressScope
from harvester_ccm.kube.store import Store
from harvester_ccm.model.core import Service, ServiceCondition
from harvester_ccm.model.harvester import LOAD_BALANCERS
from harvester_ccm.names import KUBE_VIP_ADDRESSES, LOAD_BALANCER_READY, PRIMARY_SERVICE, PRIMARY_SERVICE_LABEL
from harvester_ccm.plan.service.load_balancer.vm_spec import listeners
from harvester_ccm.plan.service.plan import plan_service
from harvester_ccm.plan.service.sharing.ranking import (
    Ranking,
    Rankings,
    families_of_change,
    rank,
)
from harvester_ccm.plan.service.snapshot import observe
from harvester_ccm.plan.service.store import SERVICE_INDEXES
from tests.support.builders import ADDRESS, CLUSTER, SUPPRESSED, VM_SPEC, allocated, listed_store, served, service
from tests.unit.plan.service.outcomes import differing
from tests.unit.plan.service.snapshots import BACKENDS

ANNOTATIONS = sorted(
    {value for value in vars(names).values() if isinstance(value, str) and "/" in value}
    | set(names.SERVICE_ANNOTATIONS)
)
"""All annotations and labels that this project knows, and some other names."""
SPECS: dict[str, Any] = {
    "type": "ClusterIP",
    "ports": (),
    "load_balancer_class": "example.com/other",
    "load_balancer_ip": "10.0.0.99",
    "external_ips": ("10.0.0.98",),
    "load_balancer_source_ranges": ("10.0.0.0/8",),
    "external_traffic_policy": "Local",
    "session_affinity": "ClientIP",
    "cluster_ips": ("10.43.0.9",),
    "ip_families": ("IPv6",),
    "ip_family_policy": "RequireDualStack",
    "allocate_load_balancer_node_ports": False,
}
METADATA: dict[str, Any] = {
    "uid": "another",
    "resource_version": "8",
    "generation": 9,
    "creation_timestamp": "2020-01-01T00:00:00Z",
    "deletion_timestamp": "2026-01-01T00:00:00Z",
    "finalizers": ("example.com/hold",),
}


def test_every_field_of_the_specification_is_changed_here() -> None:
    assert {field.name for field in fields(service().spec)} == SPECS.keys()


def changes_of(item: Service) -> Iterator[tuple[str, Service]]:
    meta, spec, status = item.metadata, item.spec, item.status
    for key in ANNOTATIONS:
        for value in ("", "true", "10.0.0.99", "shop/web"):
            yield key, replace(item, metadata=replace(meta, annotations={**(meta.annotations or {}), key: value}))
            yield key, replace(item, metadata=replace(meta, labels={**(meta.labels or {}), key: value}))
    for name, value in SPECS.items():
        yield name, replace(item, spec=replace(spec, **{name: value}))
    for name, value in METADATA.items():
        yield name, replace(item, metadata=replace(meta, **{name: value}))
    condition = ServiceCondition(type=LOAD_BALANCER_READY, status="False", reason="Other", message="other")
    yield "condition", replace(item, status=replace(status, conditions=(condition,)))
    yield "status", replace(item, status=replace(status, load_balancer=replace(status.load_balancer, ingress=())))


SHARES: dict[str, Any] = {"annotations": {PRIMARY_SERVICE: "shop/web", KUBE_VIP_ADDRESSES: ADDRESS}}
SHARED: dict[str, Any] = {**SHARES, "labels": {PRIMARY_SERVICE_LABEL: "shop.web"}}
FAMILY = (
    served(),
    served("api", uid="2", ports=[{"port": 9, "nodePort": 30009}], created="2026-01-02T00:00:00Z", **SHARED),
    service("new", uid="3", ports=[{"port": 10, "nodePort": 30010}], created="2026-01-03T00:00:00Z", **SHARES),
)


@pytest.mark.parametrize("spec", [{}, VM_SPEC], ids=["cluster", "vm"])
@pytest.mark.parametrize("changed", FAMILY, ids=["primary", "secondary", "new secondary"])
@pytest.mark.parametrize("leaving", [False, True], ids=["stays", "is deleted"])
def test_other_plans_differ_only_after_a_change_of_a_field_that_sharing_reads(
    spec: dict[str, Any], changed: Service, leaving: bool
) -> None:
    """``leaving``: whether the primary is being deleted."""
    balancers = (allocated(spec=spec),) if spec else (allocated(),)
    deleted_at = "2026-01-01T00:00:00Z" if leaving else None
    family = [replace(member, metadata=replace(member.metadata, deletion_timestamp=None)) for member in FAMILY]
    family[0] = replace(family[0], metadata=replace(family[0].metadata, deletion_timestamp=deleted_at))

    def plans(services: list[Service]) -> list[object]:
        store = listed_store(services, balancers, BACKENDS)
        others = [service for service in services if service.metadata.name != changed.metadata.name]
        return [plan_service(observe(store, other, CLUSTER)) for other in others]

    place = [member.metadata.name for member in FAMILY].index(changed.metadata.name)
    before, expected = family[place], plans(family)
    services = listed_store(family, (), BACKENDS).services
    differed = set()
    for name, after in changes_of(before):
        made = plans([*family[:place], after, *family[place + 1 :]])
        if not families_of_change(services, CLUSTER, before, after):
            assert made == expected, name
        elif made != expected:
            differed.add(name)
    assert differed or changed != FAMILY[0], "many changes of a primary matter"


MAIN = served("main", uid="main-uid", annotations={names.NETWORK: "infra/vlan9"})
PORT: dict[str, Any] = {"ports": [{"port": 443, "nodePort": 30443}]}


def secondary(name: str, created: str = "2026-01-05T00:00:00Z", **fields: Any) -> Service:
    """Return a Service that names ``MAIN``, with port 443."""
    annotations = {PRIMARY_SERVICE: "shop/main", **fields.pop("annotations", {})}
    return service(name, uid=name, created=created, annotations=annotations, **{**PORT, **fields})


LABEL: dict[str, Any] = {"labels": {PRIMARY_SERVICE_LABEL: "shop.main"}}
HAS_ADDRESS: dict[str, Any] = {**LABEL, "address": ADDRESS}
NO_NODE_PORT: dict[str, Any] = {"ports": [{"port": 443}], "spec": {"allocateLoadBalancerNodePorts": False}}
RANKINGS: dict[str, tuple[Service, ...]] = {
    "nobody": (),
    "one": (secondary("a"),),
    "a port of the primary": (secondary("a", ports=[{"port": 81}, {"port": 80}]),),
    "the number of a port of the primary, in another protocol": (
        secondary("a", ports=[{"port": 80, "protocol": "UDP"}]),
    ),
    "the older one comes first": (secondary("b"), secondary("a", "2026-01-01T00:00:00Z")),
    "the one with the address comes first": (secondary("b", "2026-01-01T00:00:00Z"), secondary("a", **HAS_ADDRESS)),
    "only the label says that the older one has the address": (
        secondary("b", "2026-01-01T00:00:00Z", **LABEL),
        secondary("a", **HAS_ADDRESS),
    ),
    "only the label, and another address": (
        secondary("b", "2026-01-01T00:00:00Z", **LABEL, address="10.0.0.99"),
        secondary("a", **HAS_ADDRESS),
    ),
    "only the address, which a tenant cannot write": (
        secondary("b", "2026-01-01T00:00:00Z"),
        secondary("a", address=ADDRESS),
    ),
    "another network, and only the label": (secondary("a", annotations={names.NETWORK: "infra/other"}, **LABEL),),
    "of one second, the first in the cache comes first": (secondary("a"), secondary("b")),
    "a Service with a clash uses no port": (
        secondary("a", "2026-01-01T00:00:00Z"),
        secondary("b", "2026-01-02T00:00:00Z", ports=[{"port": 443}, {"port": 444}]),
        secondary("c", ports=[{"port": 444}]),
    ),
    "IPv6 only, older": (secondary("a", "2026-01-01T00:00:00Z", spec={"ipFamilies": ["IPv6"]}), secondary("b")),
    "IPv6 required, older": (
        secondary("a", "2026-01-01T00:00:00Z", spec={"ipFamilyPolicy": "RequireDualStack"}),
        secondary("b"),
    ),
    "IPv6 only, with the address": (secondary("a", spec={"ipFamilies": ["IPv6"]}, **HAS_ADDRESS), secondary("b")),
    "no node port, and kube-vip announces the address": (
        secondary("a", "2026-01-01T00:00:00Z", **NO_NODE_PORT),
        secondary("b"),
    ),
    "not served": (secondary("a", kind="ClusterIP"),),
    "another network": (secondary("a", annotations={names.NETWORK: "infra/other"}),),
    "another network, with the address": (secondary("a", annotations={names.NETWORK: "infra/other"}, **HAS_ADDRESS),),
    "the same network": (secondary("a", annotations={names.NETWORK: "infra/vlan9"}),),
}


def test_service_without_a_node_port_has_no_rank_if_harvester_announces_the_address() -> None:
    hosted = service("main", uid="main-uid", ours=True, address=ADDRESS, annotations=SUPPRESSED)
    members = (secondary("a", "2026-01-01T00:00:00Z", **NO_NODE_PORT), secondary("b"))
    ranking = rank(hosted, members, CLUSTER)
    assert ranking.clashes == {"shop/b": ""}
    waiting = service("main", uid="main-uid", ours=True, annotations=SUPPRESSED)
    assert rank(waiting, members[:1], CLUSTER).clashes == {"shop/a": ""}, "kube-vip may announce its address"


def test_ranking() -> None:
    rows: dict[str, str] = {}
    for name, secondaries in RANKINGS.items():
        ranking = rank(MAIN, secondaries, CLUSTER)
        lines = [f"{key}: {clash or 'shares'}" for key, clash in ranking.clashes.items()]
        ports = ", ".join(str(port.port) for port in ranking.shared_ports)
        rows[name] = "\n".join([*lines, f"ports: {ports or 'none'}"])
    assert differing("rankings", rows) == []


FORGED: dict[str, tuple[dict[str, Any], str]] = {
    "the label alone, which a tenant can write": (LABEL, "shop/a"),
    "the label and the address that the primary had": (HAS_ADDRESS, "shop/b"),
}


@pytest.mark.parametrize(("fields", "first"), FORGED.values(), ids=FORGED.keys())
def test_label_counts_with_an_address_while_the_primary_has_none(fields: dict[str, Any], first: str) -> None:
    primary = service("main", uid="main-uid", ours=True, annotations={names.NETWORK: "infra/vlan9"})
    older, newer = secondary("a", "2026-01-01T00:00:00Z"), secondary("b", **fields)
    ranking = rank(primary, (older, newer), CLUSTER)
    assert [key for key, clash in ranking.clashes.items() if not clash] == [first]


@pytest.mark.parametrize("namespace", ["infra", "sho", "shop-dev"])
def test_service_of_another_namespace_has_no_rank_if_the_scope_is_a_namespace(namespace: str) -> None:
    """Namespaces of tenants often begin alike."""
    cluster = replace(CLUSTER, shared_address_scope=SharedAddressScope.NAMESPACE)
    other, same = secondary("a", namespace=namespace), secondary("b")
    ranking = rank(MAIN, (other, same), cluster)
    assert ranking.clashes == {"shop/b": ""}


def ports_from(first: int, number: int) -> list[dict[str, Any]]:
    return [{"port": port, "nodePort": port} for port in range(first, first + number)]


def test_new_service_needs_room_among_the_ports_of_an_address() -> None:
    members = (
        secondary("first", "2026-01-01T00:00:00Z", ports=ports_from(1000, 1998)),
        secondary("too-many", "2026-01-02T00:00:00Z", ports=ports_from(5000, 3)),
        secondary("last", "2026-01-03T00:00:00Z", ports=ports_from(6000, 2)),
        secondary("one-more", "2026-01-04T00:00:00Z", ports=ports_from(7000, 1)),
    )
    ranking = rank(MAIN, members, CLUSTER)
    assert len(ranking.shared_ports) == 2000
    refused = {key: clash for key, clash in ranking.clashes.items() if clash}
    text = "The Services that share this address can have 2,000 ports, and would have more with it"
    assert refused == {"shop/too-many": text, "shop/one-more": text}


def test_service_that_shares_the_address_keeps_it_when_it_gets_more_ports() -> None:
    members = (
        secondary("grown", "2026-01-01T00:00:00Z", ports=ports_from(1000, 2009), **HAS_ADDRESS),
        secondary("b", "2026-01-02T00:00:00Z", **HAS_ADDRESS),
        secondary("new", "2026-01-03T00:00:00Z", ports=ports_from(6000, 1)),
    )
    ranking = rank(MAIN, members, CLUSTER)
    assert [key for key, clash in ranking.clashes.items() if not clash] == ["shop/grown", "shop/b"]
    assert len(ranking.shared_ports) == 2000


def test_new_service_is_rejected_if_the_limit_of_services_share_the_address() -> None:
    ports = [ports_from(1000 + number, 1) for number in range(501)]
    members = [secondary(f"s{number:04}", ports=one) for number, one in enumerate(ports)]
    ranking = rank(MAIN, members, CLUSTER)
    assert {key: clash for key, clash in ranking.clashes.items() if clash} == {
        "shop/s0500": "500 Services share this address already, which is the limit"
    }
    with_address = [secondary(f"s{number:04}", ports=one, **HAS_ADDRESS) for number, one in enumerate(ports)]
    assert not any(rank(MAIN, with_address, CLUSTER).clashes.values())


def test_load_balancer_with_all_ports_that_can_share_its_address_is_kept() -> None:
    """Else this controller could not read it any more, and its own ports and backends would not change again."""
    own = [{**port, "name": f"{number:063}"} for number, port in enumerate(ports_from(1, 300))]
    shared = service("api", ports=ports_from(60000, 2000)).spec.ports
    made = listeners(service(ports=own), shared)
    assert len(made) == 2300
    found = LOAD_BALANCERS.decode(msgspec.json.encode({"spec": {"listeners": made}}))
    assert found.document()["spec"] == {"listeners": made}


def test_service_with_the_label_that_names_another_primary_has_no_rank() -> None:
    former = secondary("a", "2026-01-01T00:00:00Z", annotations={PRIMARY_SERVICE: "shop/other"}, **HAS_ADDRESS)
    store = listed_store([MAIN, former, secondary("b")], (), BACKENDS)
    assert store.rankings.of("shop/main").clashes == {"shop/b": ""}


def test_ranking_of_a_missing_primary_is_empty() -> None:
    store = listed_store([secondary("a")], (), BACKENDS)
    assert store.rankings.of("shop/main") == Ranking()
    assert listed_store([MAIN, secondary("a")], (), BACKENDS).rankings.of("shop/main").clashes == {"shop/a": ""}


MEMBERS = st.builds(
    secondary,
    st.sampled_from(["a", "b", "c"]),
    ports=st.sampled_from([[{"port": 443}], [{"port": 80}], [{"port": 81}]]),
    labels=st.sampled_from([{}, {PRIMARY_SERVICE_LABEL: "shop.main"}]),
    annotations=st.sampled_from([{}, {PRIMARY_SERVICE: "shop/other"}, {PRIMARY_SERVICE: ""}, {"example.com/x": "1"}]),
)
PRIMARIES = st.sampled_from([MAIN, served("main", uid="main-uid", ports=[{"port": 443}]), service("other", uid="o")])
CHANGES = st.lists(st.tuples(st.one_of(MEMBERS, PRIMARIES), st.booleans()), max_size=8)


@given(changes=CHANGES)
def test_change_of_a_ranking_concerns_its_family(changes: list[tuple[Service, bool]]) -> None:
    store = Store[Service]((), SERVICE_INDEXES)
    rankings = Rankings(store, CLUSTER)
    for changed, is_deleted in changes:
        key = changed.metadata.key
        if is_deleted and store.get(key) is None:
            continue
        before = {primary: rankings.of(primary) for primary in ("shop/main", "shop/other")}
        old, new = store._set(key, None if is_deleted else changed)
        concerned = families_of_change(store, CLUSTER, old, new)
        for primary, ranking in before.items():
            assert rankings.of(primary) == Rankings(store, CLUSTER).of(primary)
            if ranking != rankings.of(primary):
                assert primary in concerned
