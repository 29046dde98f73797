"""``status``: what people and scripts read, and the exit codes."""

from __future__ import annotations

import json

import pytest
import yaml

from harvester_ccm.commands.status_document import (
    Leader,
    LeftOver,
    NodeLine,
    Notice,
    Pool,
    Server,
    ServiceLine,
    State,
    Status,
)
from harvester_ccm.commands.status_view import age, fitted, status_lines
from harvester_ccm.names import LB_OWNER, SERVICE_FINALIZER
from tests.unit.commands import objects
from tests.unit.commands.conftest import ClusterServer, Json, Runner

DEMO = "--cluster-name=demo"
OTHER_UID = "2f1c2a34-9b7d-4e58-8a10-3c5d7e9f0b12"
MARK = {LB_OWNER: objects.CLUSTER_UID}
FULL = "fail to get ip from pool tiny, error: no IP addresses available in range set"
NOW = "2026-11-21T12:00:00Z"


def well() -> list[Json]:
    """A served Service and its load balancer."""
    marks = {"kube-vip.io/loadbalancerIPs": "10.0.0.7", "kube-vip.io/vipHost": "w1"}
    one = objects.service(address="10.0.0.7", finalizers=[SERVICE_FINALIZER], annotations=marks)
    return [objects.home(), objects.lease(), one, objects.balancer(address="10.0.0.7", annotations=MARK)]


def pending() -> list[Json]:
    """A Service whose pool is exhausted, in another namespace."""
    one = objects.service("api", namespace="team", uid=OTHER_UID, finalizers=[SERVICE_FINALIZER])
    return [one, objects.balancer(of="team/api", uid=OTHER_UID, message=FULL, annotations=MARK)]


def test_all_is_well(run: Runner, serve: ClusterServer) -> None:
    result = run("status", *serve(*well()))
    assert (result.code, result.err) == (0, "")
    assert "What is wrong" not in result.out
    assert "shop/web  ready  10.0.0.7  pool lan" in result.out
    assert result.out.endswith("All is well.\n")


def test_what_is_wrong_comes_first_with_its_remedy(run: Runner, serve: ClusterServer) -> None:
    result = run("status", *serve(*well(), *pending(), objects.balancer(of="shop/gone", uid="9", annotations=MARK)))
    assert result.code == 1
    lines = result.out.splitlines()
    start = lines.index("What is wrong (2):")
    assert [line for line in lines[:start] if line.startswith("Services")] == []
    assert lines[start + 1].startswith("  Service team/api: pending for ")
    assert lines[start + 2].startswith("      AddressPending: IP pool 'tiny' has no free address.")
    assert any("there is no Service shop/gone for it" in line for line in lines)
    assert lines[-1].startswith("2 to see to")


@pytest.mark.parametrize(
    ("words", "keys", "code"),
    [
        ((), ["team/api", "shop/web"], 1),
        (("-n", "shop"), ["shop/web"], 0),
        (("-n", "team"), ["team/api"], 1),
        (("-n", "nobody"), [], 0),
        (("-n", "shop", "-A"), ["team/api", "shop/web"], 1),
    ],
)
def test_namespaces(run: Runner, serve: ClusterServer, words: tuple[str, ...], keys: list[str], code: int) -> None:
    result = run("status", *serve(*well(), *pending()), "-o", "json", *words)
    found = [f"{one['namespace']}/{one['name']}" for one in result.document["services"]]
    assert (found, result.code) == (keys, code)


def test_json_and_yaml_are_the_same_document(run: Runner, serve: ClusterServer) -> None:
    flags = serve(*well(), *pending())
    documents = [
        json.loads(run("status", *flags, "-o", "json").out),
        yaml.safe_load(run("status", *flags, "-o", "yaml").out),
    ]
    for one in documents:
        assert (one["apiVersion"], one["kind"]) == ("harvester-ccm/v1", "Status")
        del one["observed"]
    assert documents[0] == documents[1]


def test_another_form_is_refused(run: Runner, serve: ClusterServer) -> None:
    result = run("status", *serve(*well()), "-o", "xml")
    assert (result.code, result.out) == (2, "")
    assert "--output is 'xml'; expected one of: text, wide, json, yaml" in result.err


@pytest.mark.parametrize("words", [(), ("-o", "json")])
def test_watching_needs_a_terminal(run: Runner, words: tuple[str, ...]) -> None:
    result = run("status", "--watch", "--cloud-config=/missing", *words)
    assert (result.code, result.out) == (2, "")
    assert "--watch is for people at a terminal" in result.err


def many(count: int) -> tuple[ServiceLine, ...]:
    return tuple(
        ServiceLine(
            namespace="shop",
            name=f"web-{number:03}",
            state=State.READY,
            addresses=("10.0.0.7",),
            kind="cluster",
            ipam="pool",
            pool="lan",
            announced_by="worker-1",
            load_balancer=f"demo-shop-web-{number:03}-df804e86",
            created="2026-11-21T09:00:00Z",
        )
        for number in range(count)
    )


WHOLE = Status(
    observed=NOW,
    cluster="demo",
    namespace="vms",
    leader=Leader(identity="w1_x", since="2026-11-21T10:00:00Z"),
    servers=(
        Server(cluster="guest", url="https://10.53.0.1:443"),
        Server(cluster="harvester", url="https://10.0.0.9:6443", token_expires="2026-12-21T12:00:00Z"),
    ),
    services=(
        ServiceLine(
            namespace="team-with-a-name",
            name="service-with-a-name",
            state=State.PENDING,
            reason="PoolExhausted",
            message="IP pool 'tiny' has no free address. Add a range to it or delete a load balancer",
            since="2026-11-21T11:48:00Z",
            warnings=(
                Notice(
                    reason="AddressPending",
                    message="IP pool 'tiny' has no free address. Add a range to it or delete a load balancer",
                ),
            ),
            kind="cluster",
            ipam="dhcp",
            network="default/vlan-with-a-name",
            created="2026-11-21T11:47:00Z",
        ),
        *many(30),
    ),
    nodes=(
        NodeLine(name="w2", state=State.PENDING, reason="VMNotFound", message="No VM of that name"),
        NodeLine(name="w1", state=State.READY, vm="vms/w1", addresses=("10.0.0.5",), ready="True"),
    ),
    left_over=(LeftOver(name="lb", service="shop/old", address="10.0.0.8", message="made by this cluster"),),
    pools=(Pool(name="lan", addresses=30, available=2, total=50), Pool(name="tiny", addresses=0)),
)


@pytest.mark.parametrize("width", [80, 120])
def test_a_status_fits_the_terminal(width: int) -> None:
    lines = [line for one in status_lines(WHOLE, width=width) for line in one.splitlines()]
    assert [line for line in lines if len(line) > width] == []
    assert "  leader     w1_x, for 2h" in lines
    assert any(line.startswith("  harvester  https://10.0.0.9:6443, reachable, token expires in 30d") for line in lines)
    assert "What is wrong (3):" in lines
    assert any("pending for 12m" in line for line in lines)
    assert sum("AddressPending: IP pool 'tiny'" in line for line in lines) == 1
    assert "Services: 1 pending, 30 ready" in lines
    assert "  and 10 more; -o wide shows all" in lines
    assert "Pools: lan (30 of this cluster, 2 of 50 free); tiny (0 of this cluster)" in lines
    assert len(lines) < 60


def test_services_of_which_the_same_is_to_be_said_are_one_fault() -> None:
    """When a pool is used up a hundred Services wait, and the remedy is one."""
    waiting = tuple(
        ServiceLine(
            namespace="shop",
            name=f"web-{number}",
            state=State.PENDING,
            reason="PoolExhausted",
            message="IP pool 'lan' has no free address.",
            since=f"2026-11-21T11:{50 + number}:00Z",
        )
        for number in range(7)
    )
    lines = list(status_lines(Status(observed=NOW, cluster="demo", namespace="vms", services=waiting), width=120))
    assert lines[2:5] == [
        "What is wrong (7):",
        "  7 Services (shop/web-0, shop/web-1, shop/web-2, shop/web-3, shop/web-4 and 2 more): pending for 10m",
        "      PoolExhausted: IP pool 'lan' has no free address.",
    ]
    assert lines[-1].startswith("7 to see to")


def test_nodes_of_which_the_same_is_to_be_said_are_one_fault() -> None:
    """While Harvester cannot be read that is said of all Nodes there are."""
    nodes = tuple(
        NodeLine(name=name, state=State.PENDING, reason="", message=f"nothing is decided{about}")
        for name, about in (("w1", ""), ("w2", ""), ("w3", " about it"))
    )
    lines = list(status_lines(Status(observed=NOW, cluster="demo", namespace="vms", nodes=nodes), width=120))
    assert lines[2:7] == [
        "What is wrong (3):",
        "  2 Nodes (w1, w2): pending",
        "      nothing is decided",
        "  Node w3: pending",
        "      nothing is decided about it",
    ]


def test_why_something_is_left_alone_is_said_below_the_table() -> None:
    why = "its class is 'x', which is somebody else's"
    others = tuple(ServiceLine(namespace="shop", name=name, state=State.OTHER, message=why) for name in ("a", "b"))
    node = NodeLine(name="w9", state=State.OTHER, reason="x", message="its provider ID is of another cloud")
    lines = list(
        status_lines(Status(observed=NOW, cluster="demo", namespace="vms", services=others, nodes=(node,)), width=120)
    )
    assert f"  other: 2 Services (shop/a, shop/b): {why}" in lines
    assert "  other: Node w9: its provider ID is of another cloud" in lines
    assert lines[-1] == "All is well."


def test_wide_shows_all() -> None:
    lines = list(status_lines(WHOLE, width=80, wide=True))
    assert sum("  shop/web-" in line for line in lines) == 30
    assert any("LOAD BALANCER" in line and "NETWORK" in line for line in lines)


def test_servers_that_cannot_be_read_and_tokens_that_have_ended() -> None:
    servers = (
        Server(cluster="harvester", url="https://h:6443", problem="no answer", token_expires="2026-11-01T00:00:00Z"),
    )
    status = Status(observed=NOW, cluster="demo", namespace="vms", servers=servers, problems=("It is down.",))
    lines = "\n".join(status_lines(status, width=120))
    assert "NOT READABLE, see below" in lines
    assert "the token has EXPIRED" in lines
    assert "What is wrong (1):\n  It is down." in lines


def test_columns_are_spared_from_the_highest_number_on() -> None:
    columns = [(0, ["NAME", "x" * 10]), (1, ["A", "aaaa"]), (0, ["EMPTY", ""]), (2, ["B", "bbbb"])]
    assert next(line.split() for line in fitted(columns, width=30)) == ["NAME", "A", "B"]
    assert next(line.split() for line in fitted(columns, width=20)) == ["NAME", "A"]
    assert next(line.split() for line in fitted(columns, width=10)) == ["NAME"]
    assert next(line.split() for line in fitted(columns, width=None)) == ["NAME", "A", "B"]


@pytest.mark.parametrize(
    ("since", "shown"),
    [
        ("2026-11-21T11:59:59Z", "1s"),
        ("2026-11-21T11:58:01Z", "119s"),
        ("2026-11-21T11:00:00Z", "60m"),
        ("2026-11-20T12:00:00Z", "24h"),
        ("2026-11-01T12:00:00.123456Z", "19d"),
        ("2020-11-21T12:00:00Z", "6y"),
        ("2026-11-21T12:00:01Z", ""),
        ("", ""),
        ("yesterday", ""),
    ],
)
def test_ages(since: str, shown: str) -> None:
    assert age(since, NOW) == shown
