"""kube-vip's attention is drawn to an address that it would not announce again, by way of the endpoints."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from harvester_ccm.errors import Answer, ServerError
from harvester_ccm.kube_vip_names import (
    ANNOUNCE_AGAIN,
    ENDPOINTS_TOUCHED,
    KUBE_VIP_ADDRESSES,
    KUBE_VIP_HOST,
)
from harvester_ccm.model.core import ENDPOINT_SLICES, SERVICE_LABEL, SERVICES
from harvester_ccm.model.harvester import LOAD_BALANCERS
from harvester_ccm.model.outcome import Done, Wait, WaitReason
from harvester_ccm.plan.service.steps import FIRST_TOUCH_RETRY, LONGEST_TOUCH_RETRY, TOUCH_ENDPOINTS_AFTER
from tests.worlds.builders import ADDRESS, allocated, served
from tests.worlds.clock import jumping_time
from tests.worlds.memory_server import Call, Document, refused
from tests.worlds.service_controller_world import ServiceControllerWorld

KEY = "shop/web"
WITHDRAWN = served(annotations={KUBE_VIP_ADDRESSES: "", KUBE_VIP_HOST: "node-a"})
"""As it is before a load balancer that has come back announces its address again."""
REFUSED = served(annotations={KUBE_VIP_HOST: "node-a", ANNOUNCE_AGAIN: "refused"})
"""As another process has left it that was not permitted to touch an EndpointSlice."""


def endpoint_slice(name: str, *addresses: str, of: str = "web", namespace: str = "shop") -> Document:
    metadata = {"name": name, "namespace": namespace, "labels": {SERVICE_LABEL: of}}
    return {"metadata": metadata, "endpoints": [{"addresses": [address]} for address in addresses]}


async def stage_with(*slices: Document, asked: Any = WITHDRAWN) -> ServiceControllerWorld:
    stage = ServiceControllerWorld()
    stage.guest.put(SERVICES, asked)
    for one in slices:
        stage.guest.put(ENDPOINT_SLICES, one)
    stage.harvester.put(LOAD_BALANCERS, allocated())
    await stage.start()
    return stage


def touched(stage: ServiceControllerWorld) -> dict[str, str]:
    """Return the slices that were touched, with what was written."""
    found = stage.guest.of(ENDPOINT_SLICES).values()
    marks = {one["metadata"]["name"]: one["metadata"].get("annotations", {}).get(ENDPOINTS_TOUCHED) for one in found}
    return {name: mark for name, mark in marks.items() if mark is not None}


def is_noted(stage: ServiceControllerWorld) -> bool:
    """Return whether the touch is still to be done, by the note on the Service."""
    return ANNOUNCE_AGAIN in stage.guest.of(SERVICES)[KEY]["metadata"]["annotations"]


def of_endpoints(call: Call) -> bool:
    return ENDPOINT_SLICES.plural in call.path


@jumping_time
async def test_one_slice_with_endpoints_is_touched_once_for_each_change() -> None:
    stage = await stage_with(
        endpoint_slice("web-a"),
        endpoint_slice("web-c", "10.42.0.9"),
        endpoint_slice("web-b", "10.42.0.8"),
        endpoint_slice("api-a", "10.42.0.7", of="api"),
        endpoint_slice("web-x", "10.42.0.6", namespace="infra"),
    )
    assert await stage.reconcile(KEY) == Wait(WaitReason.ENDPOINTS)
    assert stage.writes() == ["PATCH web/status"]
    assert (is_noted(stage), touched(stage)) == (True, {})

    await stage.reconcile(KEY)
    await asyncio.sleep(1.0)
    assert await stage.reconcile(KEY) == Done()
    assert stage.writes() == ["PATCH web-b", "PATCH web/status"]
    assert (is_noted(stage), list(touched(stage))) == (False, ["web-b"])
    first = touched(stage)

    await asyncio.sleep(3600.0)
    assert await stage.reconcile(KEY) == Done()
    assert stage.writes() == []
    assert [one for one in stage.told() if "Warning" in one] == []

    # The next change is touched with another value: the same one would be no change.
    stage.guest.change(SERVICES, KEY, {"metadata": {"annotations": {KUBE_VIP_ADDRESSES: "10.0.0.9"}}})
    for _ in range(8):
        await stage.reconcile(KEY)
        await asyncio.sleep(1.0)
    assert list(touched(stage)) == ["web-b"]
    assert touched(stage) != first
    assert not is_noted(stage)


def refuse(stage: ServiceControllerWorld, verb: str) -> None:
    """Take a right on EndpointSlices away."""
    no = refused(403, "Forbidden", "endpointslices is forbidden")
    stage.guest.fault = lambda call: no if of_endpoints(call) and call.verb == verb else None


def tries(stage: ServiceControllerWorld, verb: str) -> int:
    return sum(of_endpoints(call) and call.verb == verb for call in stage.guest.calls)


@pytest.mark.parametrize("verb", ["GET", "PATCH"])
@jumping_time
async def test_without_the_right_it_is_told_once_what_to_do_and_tried_again_seldom(verb: str) -> None:
    stage = await stage_with(endpoint_slice("web-a", "10.42.0.9"))
    refuse(stage, verb)
    stage.controller.at_work = True
    stage.controller.queue.enqueue(KEY)
    await asyncio.sleep(TOUCH_ENDPOINTS_AFTER + FIRST_TOUCH_RETRY / 2)
    assert tries(stage, verb) == 1
    assert stage.guest.of(SERVICES)[KEY]["metadata"]["annotations"][ANNOUNCE_AGAIN] == "refused"
    (text,) = [one for one in stage.recorder.texts if "annotate endpointslices" in one]
    assert f"--namespace shop annotate endpointslices --selector {SERVICE_LABEL}=web " in text
    assert "rollout restart daemonset kube-vip" in text
    assert "tried again, at least once an hour" in text

    # Somebody who changes the Service all the time does not make it more.
    for number in range(10):
        stage.guest.change(SERVICES, KEY, {"metadata": {"labels": {"number": str(number)}}})
        await asyncio.sleep(LONGEST_TOUCH_RETRY / 10)
    assert 7 <= tries(stage, verb) <= 10
    stage.guest.calls.clear()
    await asyncio.sleep(2 * LONGEST_TOUCH_RETRY)
    assert 1 <= tries(stage, verb) <= 2
    assert [call.path for call in stage.guest.calls if call.is_write and not of_endpoints(call)] == []
    assert [one for one in stage.told() if "Warning" in one] == ["web: Warning AddressNotAnnounced"]
    assert is_noted(stage)


@pytest.mark.parametrize("verb", ["GET", "PATCH"])
@pytest.mark.parametrize("missing", [0.5, 30.0, 600.0])
@jumping_time
async def test_a_right_that_comes_back_is_used(verb: str, missing: float) -> None:
    """An address is silent for no longer than twice the time that the right was missing, and ten seconds."""
    stage = await stage_with(endpoint_slice("web-a", "10.42.0.9"))
    refuse(stage, verb)
    stage.controller.at_work = True
    stage.controller.queue.enqueue(KEY)
    await asyncio.sleep(TOUCH_ENDPOINTS_AFTER + missing)
    stage.guest.fault = None
    await asyncio.sleep(missing + FIRST_TOUCH_RETRY)
    assert (is_noted(stage), list(touched(stage))) == (False, ["web-a"])
    assert [one for one in stage.told() if "Warning" in one] == ["web: Warning AddressNotAnnounced"]
    stage.guest.calls.clear()
    await asyncio.sleep(LONGEST_TOUCH_RETRY)
    assert [call.path for call in stage.guest.calls if call.is_write or of_endpoints(call)] == []


@jumping_time
async def test_a_right_that_comes_back_is_used_by_the_next_process() -> None:
    stage = await stage_with(endpoint_slice("web-a", "10.42.0.9"), asked=REFUSED)
    stage.controller.at_work = True
    stage.controller.queue.enqueue(KEY)
    await asyncio.sleep(FIRST_TOUCH_RETRY + 1.0)
    assert (is_noted(stage), list(touched(stage))) == (False, ["web-a"])
    assert [one for one in stage.told() if "Warning" in one] == ["web: Warning AddressNotAnnounced"]


@jumping_time
async def test_a_refusal_that_could_not_be_noted_is_none_the_less_no_last_word() -> None:
    stage = await stage_with(endpoint_slice("web-a", "10.42.0.9"))
    busy = ServerError(Answer(503, "ServiceUnavailable", "busy", "PATCH /x"))
    no = refused(403, "Forbidden", "endpointslices is forbidden")
    stage.controller.at_work = True
    stage.controller.queue.enqueue(KEY)
    await asyncio.sleep(TOUCH_ENDPOINTS_AFTER / 2)
    stage.guest.fault = lambda call: (no if of_endpoints(call) else busy) if call.is_write else None
    await asyncio.sleep(60.0)
    assert tries(stage, "PATCH") == 1
    stage.guest.fault = None
    await asyncio.sleep(60.0 + FIRST_TOUCH_RETRY)
    assert (is_noted(stage), list(touched(stage))) == (False, ["web-a"])


@jumping_time
async def test_a_touch_that_failed_is_made_later() -> None:
    stage = await stage_with(endpoint_slice("web-a", "10.42.0.9"))
    stage.controller.at_work = True
    busy = ServerError(Answer(503, "ServiceUnavailable", "busy", "PATCH /x"))
    failures = iter([busy, busy, refused(404, "NotFound", "no such slice", about="web-a")])
    stage.guest.fault = lambda call: next(failures, None) if of_endpoints(call) else None
    stage.controller.queue.enqueue(KEY)
    await asyncio.sleep(60.0)
    assert (is_noted(stage), list(touched(stage))) == (False, ["web-a"])
    assert [one for one in stage.told() if "Warning" in one] == []


@jumping_time
async def test_without_endpoints_nothing_is_to_be_touched() -> None:
    stage = await stage_with(endpoint_slice("web-a"))
    for _ in range(3):
        await stage.reconcile(KEY)
        await asyncio.sleep(1.0)
    assert (is_noted(stage), touched(stage)) == (False, {})
    assert stage.guest.of(SERVICES)[KEY]["metadata"]["annotations"][KUBE_VIP_ADDRESSES] == ADDRESS


@jumping_time
async def test_a_note_that_somebody_keeps_putting_back_touches_seldom() -> None:
    stage = await stage_with(endpoint_slice("web-a", "10.42.0.9"))
    note = {"metadata": {"annotations": {ANNOUNCE_AGAIN: "due"}}}
    for _ in range(100):
        await stage.reconcile(KEY)
        stage.guest.change(SERVICES, KEY, note)
        await asyncio.sleep(1.0)
    assert 1 <= sum(of_endpoints(call) and call.verb == "PATCH" for call in stage.guest.calls) <= 5
