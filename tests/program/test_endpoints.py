"""One EndpointSlice of a Service is annotated so that kube-vip announces a changed address."""

import asyncio
from collections.abc import Sequence

import pytest

from harvester_ccm.kube.errors import AnswerTooLarge, KubeError, Unreachable
from harvester_ccm.model.core import ENDPOINT_SLICES, SERVICE_LABEL
from harvester_ccm.model.harvester import LOAD_BALANCERS
from harvester_ccm.names import KUBE_VIP_ADDRESSES, KUBE_VIP_HOST, RESYNC_TRIGGER, WORKLOAD_TYPE
from harvester_ccm.plan.service.announcing.sequence import STEP_SECONDS
from tests.support.builders import ADDRESS, CLUSTER, allocated, served
from tests.support.clock import jumping_time
from tests.support.memory_server import Call, Document, document_of, refused
from tests.support.program_world import Harvester, Program, guest_server

WITHDRAWN = served(annotations={KUBE_VIP_ADDRESSES: "", KUBE_VIP_HOST: "node-a"})


def endpoint_slice(name: str, *addresses: str, of: str = "web", namespace: str = "shop") -> Document:
    metadata = {"name": name, "namespace": namespace, "labels": {SERVICE_LABEL: of}}
    return {"metadata": metadata, "endpoints": [{"addresses": [address]} for address in addresses]}


def world_with(*slices: Document, flags: Sequence[str] = ()) -> Program:
    """Return a program whose Service has a load balancer again, and no announced address yet."""
    program = Program(guest_server(), Harvester(), CLUSTER.name, *flags)
    program.put(WITHDRAWN)
    program.harvester.put(LOAD_BALANCERS, document_of(allocated()))
    for one in slices:
        program.guest.put(ENDPOINT_SLICES, one)
    return program


def touched(program: Program) -> dict[str, str]:
    """Return the annotation of each slice that has it."""
    found = program.guest.of(ENDPOINT_SLICES).values()
    values = {one["metadata"]["name"]: one["metadata"].get("annotations", {}).get(RESYNC_TRIGGER) for one in found}
    return {name: value for name, value in values.items() if value is not None}


def of_endpoints(call: Call) -> bool:
    return ENDPOINT_SLICES.plural in call.path


@jumping_time
@pytest.mark.guarantee("Every address is announced, or an Event reports the reason")
async def test_one_slice_with_endpoints_is_touched_once_for_each_change() -> None:
    program = world_with(
        endpoint_slice("web-a"),
        endpoint_slice("web-c", "10.42.0.9"),
        endpoint_slice("web-b", "10.42.0.8"),
        endpoint_slice("api-a", "10.42.0.7", of="api"),
        endpoint_slice("web-x", "10.42.0.6", namespace="infra"),
    )
    async with program.live():
        await asyncio.sleep(1.5 * STEP_SECONDS)
        assert program.annotations()[KUBE_VIP_ADDRESSES] == ADDRESS
        assert (touched(program), program.condition()["status"]) == ({}, "False")
        await asyncio.sleep(STEP_SECONDS)
        first = touched(program)
        assert (list(first), program.condition()["status"]) == (["web-b"], "True")
        await asyncio.sleep(3600)
        last = touched(program)
        assert list(last) == ["web-b"]
        await asyncio.sleep(3600)
        assert touched(program) == last
        assert program.reasons() == []
        # The next change is touched with another value: the same one would be no change.
        program.change(metadata={"annotations": {KUBE_VIP_ADDRESSES: "10.0.0.9"}})
        await asyncio.sleep(10)
        assert list(touched(program)) == ["web-b"]
        assert touched(program) != last


@jumping_time
async def test_each_touch_has_another_value() -> None:
    """kube-vip has not answered, so touches follow although nothing of the Service changes meanwhile."""
    program = world_with(endpoint_slice("web-a", "10.42.0.9"), flags=["--announcer=kube-vip"])
    async with program.live():
        await asyncio.sleep(60)
        touches = [call for call in program.guest.calls if of_endpoints(call) and call.verb == "PATCH"]
        values = [call.body["metadata"]["annotations"][RESYNC_TRIGGER] for call in touches]
        assert len({*values}) == len(values) > 2


FORBIDDEN = refused(403, "Forbidden", "endpointslices is forbidden")


@pytest.mark.parametrize(
    ("verb", "denial", "most"),
    [("GET", FORBIDDEN, 24), ("GET", AnswerTooLarge("more than 16 MiB"), 72), ("PATCH", FORBIDDEN, 24)],
    ids=["list", "large list", "patch"],
)
@pytest.mark.guarantee("Every address is announced, or an Event reports the reason")
@jumping_time
async def test_touch_that_is_forbidden_is_reported_only_where_nobody_has_noted_the_address(
    verb: str, denial: KubeError, most: int
) -> None:
    program = world_with(endpoint_slice("web-a", "10.42.0.9"), flags=["--announcer=kube-vip"])
    program.guest.fault = lambda call: denial if of_endpoints(call) and call.verb == verb else None
    async with program.live():
        await asyncio.sleep(30)
        assert program.warnings() == []
        await asyncio.sleep(2700)
        events = [event for event in program.guest.events() if "annotate endpointslices" in event["message"]]
        command = f"--namespace shop annotate endpointslices --selector {SERVICE_LABEL}=web "
        assert all(command in event["message"] for event in events)
        expected = ["Normal"] if verb == "GET" else ["Warning"]
        assert [event["type"] for event in events] == expected, "without a list, the endpoints are not known"
        await asyncio.sleep(900)
        assert sum(of_endpoints(call) and call.verb == verb for call in program.guest.calls) <= most
        program.change(metadata={"annotations": {KUBE_VIP_HOST: "node-a"}})
        await asyncio.sleep(5)
        assert program.condition()["status"] == "True", "an old kube-vip needs no touch"
        program.change(metadata={"annotations": {WORKLOAD_TYPE: "vm"}})
        await asyncio.sleep(60)
        (balancer,) = program.harvester.items(LOAD_BALANCERS)
        assert balancer["spec"]["workloadType"] == "vm", "a switch does not wait for a touch"


@jumping_time
async def test_slice_that_cannot_be_decoded_may_have_endpoints() -> None:
    program = world_with({**endpoint_slice("web-a"), "endpoints": 1}, flags=["--announcer=auto"])
    async with program.live():
        await asyncio.sleep(120)
    assert "cannot read EndpointSlices" in program.condition()["message"]


@jumping_time
async def test_touch_follows_lost_responses_and_transient_errors() -> None:
    program = world_with(endpoint_slice("web-a", "10.42.0.9"))
    busy = refused(503, "ServiceUnavailable", "busy")
    errors = iter([busy, busy, refused(404, "NotFound", "no such slice", about="web-a")])
    lost = iter([Unreachable("connection reset by peer")])
    program.guest.fault = lambda call: next(errors, None) if of_endpoints(call) else None

    def lose(call: Call) -> KubeError | None:
        return next(lost, None) if call.verb == "PATCH" and "/services/" in call.path else None

    program.guest.lost = lose
    async with program.live():
        await asyncio.sleep(60)
    assert list(touched(program)) == ["web-a"]
    assert program.reasons() == []
