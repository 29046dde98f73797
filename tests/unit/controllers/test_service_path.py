"""The way of a Service through the program: which modules it passes, and how often each decision is made on it."""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any

import pytest

from harvester_ccm.model.core import SERVICES
from harvester_ccm.model.harvester import LOAD_BALANCERS
from harvester_ccm.names import PREFIX, PRIMARY_SERVICE
from harvester_ccm.plan.service.request import MOST_UNKNOWN
from tests.worlds.builders import allocated, marked, served, service
from tests.worlds.service_controller_world import ServiceControllerWorld

KEY = "shop/web"
Calls = Counter[tuple[str, str]]
"""Calls of functions, by the name of the module below ``harvester_ccm`` and of the function."""
BESIDE = ("kube.", "model.", "names", "errors", "netip", "redaction")
"""What speaks Kubernetes' protocol (informer and client), and what is values and words; nothing is decided there."""


@contextmanager
def recorded() -> Iterator[Calls]:
    """Count the calls of functions of the program while the block runs."""
    calls: Calls = Counter()

    def note(frame: FrameType, event: str, _argument: object) -> None:
        module = frame.f_globals.get("__name__", "")
        if event == "call" and module.startswith("harvester_ccm."):
            calls[module.removeprefix("harvester_ccm."), frame.f_code.co_name] += 1

    sys.setprofile(note)
    try:
        yield calls
    finally:
        sys.setprofile(None)


async def world_with(asked: Any, *balancers: Any, others: tuple[Any, ...] = ()) -> ServiceControllerWorld:
    """Return a started world with these objects."""
    world = ServiceControllerWorld()
    for one in (asked, *others):
        world.guest.put(SERVICES, one)
    for balancer in balancers:
        world.harvester.put(LOAD_BALANCERS, balancer)
    await world.start()
    return world


PRIMARY = served("main", uid="main-uid")
SECONDARY = service(annotations={PRIMARY_SERVICE: "shop/main"}, ports=[{"port": 443}], ours=True)
REFUSED = "fail to get ip from pool lan, error: no IP addresses available in range set: 10.0.0.1-10.0.0.2"
NO_POOL = "no matched IPPool with requirement"
LOOKS: dict[str, tuple[Any, list[Any], tuple[Any, ...], int, int]] = {
    "served": (served(), [allocated()], (), 0, 1),
    # For each of the writes, and once more after the last one.
    "pending": (service(ours=True), [marked(message=REFUSED)], (), 2, 2),
    "secondary": (SECONDARY, [allocated(PRIMARY, "lb-main", uid="lb-main-uid")], (PRIMARY,), 0, 2),
    "leaving": (served(deleting=True), [allocated()], (), 0, 3),
    # The creation gate compares the load balancer before and after the write.
    "leaving while pending": (service(ours=True, deleting=True), [marked(message=NO_POOL)], (), 3, 2),
}


@pytest.mark.parametrize(("asked", "balancers", "others", "pending", "looks"), LOOKS.values(), ids=LOOKS.keys())
async def test_every_decision_is_made_once(
    asked: Any, balancers: list[Any], others: tuple[Any, ...], pending: int, looks: int
) -> None:
    world = await world_with(asked, *balancers, others=others)
    with recorded() as calls:
        await world.controller.work_on(KEY)
    made = {name: count for (module, name), count in calls.items() if module.startswith("plan.service")}
    assert made["match_load_balancer"] == looks, "whose load balancer it is"
    assert made["scope_of"] == looks, "whether it is ours, and to be removed"
    assert made["read_request"] == looks, "what it asks for"
    assert made.get("pending_cause", 0) == pending, "why it has no address"


async def test_what_a_tenant_writes_costs_little_however_much_it_is() -> None:
    annotations = {f"{PREFIX}healthcheck-prt-{number}": "80" for number in range(4000)}
    world = await world_with(service(annotations=annotations))
    with recorded() as calls:
        await world.controller.work_on(KEY)
    assert calls["plan.service.request", "_likened"] == MOST_UNKNOWN
    (text,) = [text for text in world.recorder.texts if "Unknown" in text]
    assert text.count("did you mean") == MOST_UNKNOWN
    assert text.endswith(" and 3995 more")
    assert len(text) <= 1024


async def test_an_event_asks_for_no_load_balancers_owner() -> None:
    world = await world_with(served(), allocated())
    with recorded() as calls:
        world.guest.put(SERVICES, served(annotations={"example.com/note": "new"}))
        await world.settle()
    assert world.woken == [KEY]
    assert ("plan.service.ownership", "match_load_balancer") not in calls


@pytest.mark.parametrize(
    ("asked", "balancers"),
    [pytest.param(service(), [], id="new"), pytest.param(service(), [marked(ip="10.0.0.1", pool="lan")], id="given")],
)
async def test_modules_from_the_watch_to_the_patch(asked: Any, balancers: list[Any]) -> None:
    world = await world_with(service("other", uid="other"), *balancers)
    world.controller.at_work = True
    with recorded() as calls:
        world.guest.put(SERVICES, asked)
        while not any(call.verb == "PATCH" for call in world.guest.calls):
            await world.settle()
    passed = sorted({module for module, _ in calls if not module.startswith(BESIDE)})
    assert len(passed) <= 12, passed
