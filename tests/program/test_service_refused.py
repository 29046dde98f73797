"""A guest that refuses what is written to a Service: its user reads who refuses what, and the Service goes on after."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable

import pytest
from structlog.testing import capture_logs

from harvester_ccm.errors import CCMError, Unreachable
from harvester_ccm.model.core import SERVICES
from harvester_ccm.model.harvester import LOAD_BALANCERS
from harvester_ccm.names import LOAD_BALANCER_READY, SERVICE_FINALIZER
from tests.worlds.clock import jumping_time
from tests.worlds.memory_server import Call, Document, MemoryServer, refused
from tests.worlds.program_world import Harvester, Program, guest_server

POLICY = refused(
    422, "Invalid", "services \"web\" is forbidden: ValidatingAdmissionPolicy 'no-vips' denied request: not here"
)
RIGHT = refused(
    403,
    "Forbidden",
    'services "web" is forbidden: User "system:serviceaccount:kube-system:ccm" cannot patch resource "services/status" '
    'in API group "" in the namespace "shop"',
)
WEBHOOK = refused(400, "", 'admission webhook "x.example" denied the request: no')
AWAY = refused(500, "InternalError", 'failed calling webhook "x.example": connection refused')
REFUSALS = {"policy": POLICY, "missing right": RIGHT, "webhook": WEBHOOK, "webhook that is away": AWAY}


def to_status(answer: Callable[[], CCMError]) -> Callable[[Call], CCMError | None]:
    """Return the fault of a guest that answers each patch of a Service so."""
    return lambda call: answer() if call.verb == "PATCH" and "/services/" in call.path else None


def condition(guest: MemoryServer) -> Document:
    """Return our condition of the only Service."""
    (service,) = guest.items(SERVICES)
    (found,) = (one for one in service["status"]["conditions"] if one["type"] == LOAD_BALANCER_READY)
    return dict(found)


@pytest.mark.parametrize("name", REFUSALS)
def test_a_refused_write_is_told_once_and_overcome(name: str) -> None:
    @jumping_time
    async def run() -> None:
        guest, harvester = guest_server(), Harvester()
        program = Program(guest, harvester, "demo")
        guest.fault = to_status(lambda: REFUSALS[name])
        with capture_logs() as logs:
            async with program.live():
                program.create("web")
                await asyncio.sleep(0.1)
                assert program.told() == [], "the first try may have met a moment"
                await asyncio.sleep(900)
                assert program.told() == ["web: SyncLoadBalancerFailed"]
                (told,) = program.warnings("web")
                assert str(REFUSALS[name]) in told
                assert "The API server of this cluster refuses" in told
                assert ("Grant the verb patch on services/status" in told) == (name == "missing right")
                guest.fault = None
                await asyncio.sleep(120)
                assert program.address("web")
        assert [one["event"] for one in logs].count("reconcile failed") == 1
        assert [one.get("reason") for one in logs].count("SyncLoadBalancerFailed") == 1

    run()


@pytest.mark.parametrize("second", [1, 2, 3], ids=["quota", "policy", "webhook"])
@jumping_time
async def test_the_condition_says_why_the_last_write_failed(second: int) -> None:
    guest, harvester = guest_server(), Harvester()
    program = Program(guest, harvester, "demo")
    says = [
        refused(403, "Forbidden", f'loadbalancers "web" is forbidden: {words}')
        for words in ("refused at first", "exceeded quota: team", "policy 'p' denied request: no", "denied again")
    ]
    reason = says[0]
    harvester.fault = lambda call: reason if call.verb == "POST" else None
    async with program.live():
        program.create("web")
        await asyncio.sleep(60)
        assert str(says[0]) in condition(guest)["message"]
        reason = says[second]
        await asyncio.sleep(600)
        assert str(says[second]) in condition(guest)["message"]
        harvester.fault = None
        await asyncio.sleep(120)
        assert condition(guest)["status"] == "True"


@jumping_time
async def test_a_service_that_cannot_be_let_go_says_why() -> None:
    guest, harvester = guest_server(), Harvester()
    program = Program(guest, harvester, "demo")
    async with program.live():
        program.create("web")
        await asyncio.sleep(1)
        guest.fault = to_status(lambda: POLICY)
        guest.delete(SERVICES, "shop/web")
        await asyncio.sleep(900)
        (told,) = program.warnings("web")
        assert "denied request: not here" in told
        assert "its deletion does not finish" in told
        assert len(harvester.of(LOAD_BALANCERS)) == 1, "the address is announced until the Service could be written"
        guest.fault = None
        await asyncio.sleep(120)
        assert "shop/web" not in guest.of(SERVICES)
        assert not harvester.of(LOAD_BALANCERS)


@jumping_time
async def test_a_text_that_is_another_one_each_time_is_told_once() -> None:
    guest, harvester = guest_server(), Harvester()
    program = Program(guest, harvester, "demo")
    tries = iter(range(1_000_000))
    guest.fault = to_status(
        lambda: refused(403, "Forbidden", f'admission webhook "x" denied the request: no at 10:{next(tries)}')
    )
    with capture_logs() as logs:
        async with program.live():
            program.create("web")
            await asyncio.sleep(900)
            assert len(program.warnings("web")) == 1
            guest.fault = to_status(lambda: POLICY)
            await asyncio.sleep(900)
            assert len(program.warnings("web")) == 2, "another reason"
    assert [one["event"] for one in logs].count("reconcile failed") == 2


@jumping_time
async def test_the_words_of_a_stranger_stay_on_their_line() -> None:
    guest, harvester = guest_server(), Harvester()
    program = Program(guest, harvester, "demo")
    hostile = 'admission webhook "x" denied the request: no\n\x1b[31mWarning\u202e gnp.evil password=hunter2'
    guest.fault = to_status(lambda: refused(403, "Forbidden", hostile))
    async with program.live():
        program.create("web")
        await asyncio.sleep(60)
        (told,) = program.warnings("web")
    assert told.isprintable()
    assert "no\\n\\u001b[31mWarning\\u202e gnp.evil" in told
    assert "hunter2" not in told


@jumping_time
async def test_a_guest_that_is_busy_is_no_refusal() -> None:
    guest, harvester = guest_server(), Harvester()
    program = Program(guest, harvester, "demo")
    guest.fault = to_status(lambda: refused(503, "ServiceUnavailable", "busy"))
    async with program.live():
        program.create("web")
        await asyncio.sleep(60)
        assert program.told() == []


@pytest.mark.parametrize("seen", [True, False], ids=["seen before", "never seen"])
def test_a_service_that_waits_for_a_harvester_that_is_gone_says_how_it_is_let_go(seen: bool) -> None:
    @jumping_time
    async def run() -> None:
        guest, harvester = guest_server(), Harvester()
        program = Program(guest, harvester, "demo")
        async with program.live():
            program.create("web")
            await asyncio.sleep(1)
        guest.change(SERVICES, "shop/web", {"metadata": {"finalizers": [SERVICE_FINALIZER, "example.com/keep"]}})
        async with program.live():
            await asyncio.sleep(1 if seen else 0)
            harvester.fault = lambda _call: Unreachable("no route")
            harvester.break_watches()
            guest.delete(SERVICES, "shop/web")
            await asyncio.sleep(900)
            (told,) = program.warnings("web")
            assert "no route" in told
            command = told.partition("If that Harvester is gone for good, release the Service with: ")[2]
            assert command.startswith("kubectl patch service -n shop web --type=merge -p '")
            patch = json.loads(command.split("'")[1])
            guest.change(SERVICES, "shop/web", patch)
            assert guest.get(SERVICES, "shop/web")["metadata"]["finalizers"] == ["example.com/keep"]

    run()


@jumping_time
async def test_a_service_that_stays_hears_nothing_of_letting_it_go() -> None:
    guest, harvester = guest_server(), Harvester()
    program = Program(guest, harvester, "demo")
    harvester.fault = lambda _call: Unreachable("no route")
    async with program.live():
        program.create("web")
        await asyncio.sleep(60)
        (told,) = program.warnings("web")
        assert "gone for good" not in told
