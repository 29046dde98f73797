"""kube-vip's attention is drawn to an address that it would not announce again, by way of the endpoints."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from harvester_ccm.errors import Answer, ServerError, Unreachable
from harvester_ccm.model.core import ENDPOINT_SLICES, SERVICE_LABEL, SERVICES
from harvester_ccm.model.harvester import LOAD_BALANCERS
from harvester_ccm.model.outcome import Done, Wait, WaitReason
from harvester_ccm.names import (
    ENDPOINTS_TOUCHED,
    KUBE_VIP_ADDRESSES,
    KUBE_VIP_HOST,
    LOAD_BALANCER_READY,
    WORKLOAD_TYPE,
)
from harvester_ccm.plan.service.cluster_lb import TOUCH_ENDPOINTS_AFTER, TOUCH_RETRY
from tests.worlds.builders import ADDRESS, allocated, served
from tests.worlds.clock import jumping_time
from tests.worlds.memory_server import Call, Document, refused
from tests.worlds.service_controller_world import ServiceControllerWorld

KEY = "shop/web"
WITHDRAWN = served(annotations={KUBE_VIP_ADDRESSES: "", KUBE_VIP_HOST: "node-a"})
"""As it is before a load balancer that has come back announces its address again."""


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
    assert await stage.reconcile(KEY) == Wait(WaitReason.ENDPOINTS, TOUCH_ENDPOINTS_AFTER)
    assert stage.writes() == ["PATCH web/status"]
    assert touched(stage) == {}

    await stage.reconcile(KEY)
    await asyncio.sleep(TOUCH_ENDPOINTS_AFTER)
    assert await stage.reconcile(KEY) == Done()
    assert stage.writes() == ["PATCH web-b", "PATCH web/status"], "it is ready again"
    first = touched(stage)
    assert list(first) == ["web-b"]

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


def refuse(stage: ServiceControllerWorld, verb: str) -> None:
    """Take a right on EndpointSlices away."""
    no = refused(403, "Forbidden", "endpointslices is forbidden")
    stage.guest.fault = lambda call: no if of_endpoints(call) and call.verb == verb else None


def tries(stage: ServiceControllerWorld, verb: str) -> int:
    return sum(of_endpoints(call) and call.verb == verb for call in stage.guest.calls)


@pytest.mark.parametrize("verb", ["GET", "PATCH"])
@jumping_time
async def test_a_touch_that_is_not_permitted_is_told_once_and_tried_again_at_each_resync(verb: str) -> None:
    stage = await stage_with(endpoint_slice("web-a", "10.42.0.9"))
    refuse(stage, verb)
    for _ in range(3):
        await stage.reconcile(KEY)
        await asyncio.sleep(TOUCH_ENDPOINTS_AFTER)
    assert tries(stage, verb) == 1
    (text,) = [one for one in stage.recorder.texts if "annotate endpointslices" in one]
    assert f"--namespace shop annotate endpointslices --selector {SERVICE_LABEL}=web " in text
    assert "annotate endpointslices" in text
    await asyncio.sleep(TOUCH_RETRY)
    await stage.reconcile(KEY)
    assert (tries(stage, verb), touched(stage)) == (2, {})
    stage.guest.fault = None
    await asyncio.sleep(TOUCH_RETRY)
    await stage.reconcile(KEY)
    assert list(touched(stage)) == ["web-a"]
    assert [one for one in stage.told() if "Warning" in one] == ["web: Warning AddressNotAnnounced"]


@pytest.mark.parametrize(("status", "count"), [("False", 1), ("True", 0)])
@jumping_time
async def test_a_restart_touches_the_endpoints_of_a_service_that_was_not_announced_before(
    status: str, count: int
) -> None:
    stage = await stage_with(endpoint_slice("web-a", "10.42.0.9"), asked=served(annotations={KUBE_VIP_HOST: "node-a"}))
    condition = {"type": LOAD_BALANCER_READY, "status": status, "reason": "Endpoints"}
    stage.guest.change(SERVICES, KEY, {"status": {"conditions": [condition]}})
    await stage.reconcile(KEY)
    assert len(touched(stage)) == count


@jumping_time
async def test_a_touch_that_failed_is_made_later() -> None:
    stage = await stage_with(endpoint_slice("web-a", "10.42.0.9"))
    stage.controller.at_work = True
    busy = ServerError(Answer(503, "ServiceUnavailable", "busy"))
    failures = iter([busy, busy, refused(404, "NotFound", "no such slice", about="web-a")])
    stage.guest.fault = lambda call: next(failures, None) if of_endpoints(call) else None
    stage.controller.queue.enqueue(KEY)
    await asyncio.sleep(60.0)
    assert list(touched(stage)) == ["web-a"]
    assert [one for one in stage.told() if "Warning" in one] == []


@jumping_time
async def test_without_endpoints_nothing_is_to_be_touched() -> None:
    stage = await stage_with(endpoint_slice("web-a"))
    for _ in range(3):
        await stage.reconcile(KEY)
        await asyncio.sleep(1.0)
    assert touched(stage) == {}
    assert stage.guest.of(SERVICES)[KEY]["metadata"]["annotations"][KUBE_VIP_ADDRESSES] == ADDRESS


@jumping_time
async def test_endpoints_are_touched_although_the_response_to_the_announcement_was_lost() -> None:
    stage = await stage_with(endpoint_slice("web-a", "10.42.0.9"))
    once = [Unreachable("connection reset by peer")]
    stage.guest.lost = lambda call: once.pop() if once and call.verb == "PATCH" and "services" in call.path else None
    stage.controller.at_work = True
    stage.controller.queue.enqueue(KEY)
    await asyncio.sleep(60.0)
    assert list(touched(stage)) == ["web-a"]


@jumping_time
async def test_a_switch_does_not_wait_for_a_touch_that_is_not_permitted() -> None:
    stage = await stage_with(endpoint_slice("web-a", "10.42.0.9"))
    refuse(stage, "GET")
    stage.controller.at_work = True
    stage.controller.queue.enqueue(KEY)
    await asyncio.sleep(5.0)
    stage.guest.change(SERVICES, KEY, {"metadata": {"annotations": {WORKLOAD_TYPE: "vm"}}})
    await asyncio.sleep(60.0)
    (balancer,) = stage.harvester.of(LOAD_BALANCERS).values()
    assert balancer["spec"]["workloadType"] == "vm"
