"""``status``: what people and scripts read, and the exit codes."""

from __future__ import annotations

import json

import pytest
import yaml

from harvester_ccm.commands.status_report import (
    Leader,
    NodeLine,
    Problem,
    Server,
    ServiceLine,
    State,
    Status,
)
from harvester_ccm.commands.status_view import age, status_lines
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
    assert "PROBLEMS" not in result.out
    assert "shop/web  ready  10.0.0.7  pool lan" in result.out
    assert result.out.endswith("All is well.\n")


def test_problems_come_first_with_their_remedy(run: Runner, serve: ClusterServer) -> None:
    result = run("status", *serve(*well(), *pending(), objects.balancer(of="shop/gone", uid="9", annotations=MARK)))
    assert result.code == 1
    lines = result.out.splitlines()
    start = lines.index("PROBLEMS (2)")
    assert [line for line in lines[:start] if line.startswith("SERVICES")] == []
    assert " ".join(lines[start + 2].split()).startswith("Service team/api pending ")
    said = " ".join(result.out.split())
    assert "PoolExhausted IP pool 'tiny' has no free address." in said
    assert "Service shop/gone does not exist." in said
    assert lines[-1] == "2 problems."


@pytest.mark.parametrize(
    ("words", "keys", "code"),
    [
        ((), ["team/api", "shop/web"], 1),
        (("-n", "shop"), ["shop/web"], 0),
        (("-n", "team"), ["team/api"], 1),
        (("-n", "nobody"), [], 0),
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
    assert "--output is 'xml'; expected one of: text, json, yaml" in result.err


@pytest.mark.parametrize("words", [(), ("-o", "json")])
def test_watching_needs_a_terminal(run: Runner, words: tuple[str, ...]) -> None:
    result = run("status", "--watch", "--cloud-config=/missing", *words)
    assert (result.code, result.out) == (2, "")
    assert "--watch needs a terminal" in result.err


FULL_TEXT = "IP pool 'tiny' has no free address. Add a range to it or delete a load balancer"
WHOLE = Status(
    observed=NOW,
    cluster="demo",
    namespace="vms",
    leader=Leader(identity="w1_x", since="2026-11-21T10:00:00Z"),
    servers=(
        Server(cluster="guest", url="https://10.53.0.1:443", token_expires="2026-11-01T00:00:00Z"),
        Server(
            cluster="harvester", url="https://10.0.0.9:6443", problem="no route", token_expires="2026-12-21T12:00:00Z"
        ),
    ),
    problems=(
        Problem(object="Harvester", reason="HarvesterUnavailable", message="no route to host"),
        *(
            Problem(
                object=f"Service shop/web-{number}",
                state="pending",
                since=f"2026-11-21T11:{48 + number}:00Z",
                reason="PoolExhausted",
                message=FULL_TEXT,
            )
            for number in range(7)
        ),
        Problem(object="Node w2", state="pending", reason="VMNotFound", message="No VM of that name"),
    ),
    services=(
        ServiceLine(namespace="shop", name="web-0", state=State.PENDING, ipam="dhcp", created="2026-11-21T11:47:00Z"),
        ServiceLine(namespace="shop", name="api", state=State.READY, addresses=("10.0.0.7",), primary="shop/main"),
    ),
    nodes=(NodeLine(name="w1", state=State.READY, vm="vms/w1", addresses=("10.0.0.5",), ready="True"),),
    notes=("cannot read leases",),
)
TEXT = """\
Cluster:          demo (Harvester namespace vms)
Leader:           w1_x, for 2h
Guest:            https://10.53.0.1:443, OK, the token has EXPIRED
Harvester:        https://10.0.0.9:6443, UNREADABLE, token expires in 30d

PROBLEMS (9)
  OBJECT                         STATE    FOR  REASON
  Harvester                      -        -    HarvesterUnavailable
      no route to host
  Service shop/web-0 and 6 more  pending  12m  PoolExhausted
      IP pool 'tiny' has no free address. Add a range to it or delete a load balancer
  Node w2                        pending  -    VMNotFound
      No VM of that name

SERVICES (1 pending, 1 ready)
  SERVICE     STATE    ADDRESS   FROM                   AGE
  shop/web-0  pending  -         dhcp                   13m
  shop/api    ready    10.0.0.7  shared with shop/main  -

NODES (1 ready)
  NODE  STATE  VM      ADDRESS   READY
  w1    ready  vms/w1  10.0.0.5  True

Notes:
  cannot read leases

9 problems.
"""


def test_the_text_of_a_status() -> None:
    """Services with the same problem share a row: if a pool is exhausted, the remedy is the same for all."""
    text = "\n".join(status_lines(WHOLE, width=120)) + "\n"
    assert text == TEXT


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
