"""The text of ``status`` letter by letter: what stands where, and what is left out."""

from __future__ import annotations

from typing import Any

import pytest

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
from harvester_ccm.commands.status_view import status_lines

NOW = "2026-11-22T10:00:00Z"
AWAY = "Harvester does not answer: no route to host"


def line(name: str, state: State, **known: Any) -> ServiceLine:
    return ServiceLine(namespace="shop", name=name, state=state, created="2026-11-20T10:00:00Z", **known)


WHOLE = Status(
    observed=NOW,
    cluster="demo",
    namespace="vms",
    leader=Leader(identity="ccm-1", since="2026-11-22T09:58:30Z"),
    servers=(
        Server(cluster="guest", url="https://g:6443", token_expires="2026-11-25T10:00:00Z"),
        Server(cluster="harvester", url="https://h:6443", problem="no route to host"),
    ),
    problems=(AWAY,),
    services=(
        line(
            "api",
            State.PENDING,
            reason="HarvesterUnavailable",
            message=f"{AWAY}. Nothing is lost",
            since="2026-11-22T09:50:00Z",
            pool="lan",
        ),
        line(
            "web",
            State.PENDING,
            reason="NoMatchingPool",
            message="no pool fits",
            since="2026-11-22T09:55:00Z",
            warnings=(Notice(reason="NoMatchingPool", message="no pool fits"),),
        ),
        line(
            "odd",
            State.WARNING,
            reason="Ready",
            message="fine",
            addresses=("10.0.0.1",),
            ipam="pool",
            pool="lan",
            warnings=(Notice(reason="PortInUse", message="port 80 is taken"),),
        ),
        line("main", State.READY, addresses=("10.0.0.2",), ipam="dhcp", pool="x", announced_by="w1"),
        line("side", State.READY, addresses=("10.0.0.2",), shares="shop/main", ipam="", announced_by="w1"),
        line("theirs", State.OTHER, message="its class is another one"),
    ),
    nodes=(NodeLine(name="w1", state=State.READY, vm="vms/w1", addresses=("10.1.0.1",), ready="True"),),
    left_over=(
        LeftOver(name="lb-1", service="shop/gone", address="10.0.0.9", message="it is deleted"),
        LeftOver(name="lb-2", service="shop/old", message="it stays"),
    ),
    pools=(Pool(name="lan", addresses=2, available=3, total=9), Pool(name="dmz", addresses=0)),
    assumptions=("Pods are not looked at",),
)
EMPTY = Status(
    observed=NOW,
    cluster="demo",
    namespace="vms",
    leader=Leader(),
    servers=(Server(cluster="harvester", url="https://h:6443"),),
    services=(),
    nodes=(),
)
WHOLE_TEXT = """\
Cluster demo, namespace vms of Harvester
  leader     ccm-1, for 90s
  guest      https://g:6443, reachable, token expires in 3d (2026-11-25)
  harvester  https://h:6443, NOT READABLE, see below

What is wrong (6):
  Harvester does not answer: no route to host
  Service shop/api: pending for 10m
      HarvesterUnavailable: see above. Nothing is lost
  Service shop/web: pending for 5m
      NoMatchingPool: no pool fits
  Service shop/odd: works, with a warning
      PortInUse: port 80 is taken
  Load balancer lb-1 with 10.0.0.9: there is no Service shop/gone for it
      it is deleted
  Load balancer lb-2: there is no Service shop/old for it
      it stays

Services: 1 warning, 2 pending, 2 ready, 1 other
  SERVICE      STATE    ADDRESS   FROM              ANNOUNCED BY  AGE
  shop/api     pending  -         pool lan          -             2d
  shop/web     pending  -         -                 -             2d
  shop/odd     warning  10.0.0.1  pool lan          -             2d
  shop/main    ready    10.0.0.2  dhcp              w1            2d
  shop/side    ready    10.0.0.2  shares shop/main  w1            2d
  shop/theirs  other    -         -                 -             2d
  other: Service shop/theirs: its class is another one

Nodes: 1 ready
  NODE  STATE  VM      ADDRESS   READY
  w1    ready  vms/w1  10.1.0.1  True

Pools: lan (2 of this cluster, 3 of 9 free); dmz (0 of this cluster)

Note: Pods are not looked at
6 to see to: above, what is wrong comes first.
"""
EMPTY_TEXT = """\
Cluster demo, namespace vms of Harvester
  leader     none: nobody holds the Lease
  harvester  https://h:6443, reachable

Services: none

Nodes: none

All is well.
"""


@pytest.mark.parametrize(("status", "text"), [(WHOLE, WHOLE_TEXT), (EMPTY, EMPTY_TEXT)], ids=["much", "nothing"])
def test_the_text_of_a_status(status: Status, text: str) -> None:
    assert "\n".join(status_lines(status, width=100)) + "\n" == text
