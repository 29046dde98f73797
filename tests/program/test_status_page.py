"""``/status`` of a whole program in memory: what the leader shows, what others say, and that it is made in slices."""

from __future__ import annotations

import asyncio
from collections import Counter

import pytest

from harvester_ccm import __version__
from harvester_ccm.app import Application
from harvester_ccm.errors import CCMError
from harvester_ccm.flags import build_settings, parse_command_line
from harvester_ccm.kube.fence import WriteFence
from harvester_ccm.kube.tokens import FixedToken
from harvester_ccm.model.harvester import IP_POOLS
from harvester_ccm.model.outcome import WaitReason
from harvester_ccm.names import Reason
from harvester_ccm.status.document import NodeLine, Pool, ServiceLine, State, Status, decode
from harvester_ccm.telemetry import status as page
from harvester_ccm.telemetry.metrics import Telemetry
from tests.worlds.builders import CLUSTER
from tests.worlds.clock import JumpingLoop, jumping_time
from tests.worlds.fights import FIGHTS, MINUTE, Arena, Fight, calls_per_minute
from tests.worlds.memory_server import refused
from tests.worlds.offline import json_web_token, offline_client
from tests.worlds.program_world import Harvester, Program, guest_server


class Silent(Harvester):
    """Takes load balancers, and gives no address."""

    def _give_address(self, key: str) -> None:
        """Leave it as it is."""


async def shown(program: Program) -> Status:
    assert program.application is not None
    return decode(await program.application.status.answer())


@jumping_time
async def test_the_leader_shows_services_as_it_knows_them() -> None:
    program = Program(guest_server(), Harvester(), "demo")
    program.create("web")
    async with program.live():
        await asyncio.sleep(5)
        status = await shown(program)
    assert (status.cluster, status.namespace, status.wrong) == ("demo", CLUSTER.namespace, False)
    assert status.program is not None
    assert (status.program.version, status.program.leading, status.leader) == (__version__, True, None)
    assert [(one.cluster, one.problem) for one in status.servers] == [("guest", ""), ("harvester", "")]
    assert status.services is not None
    (line,) = status.services
    assert (line.key, line.state, line.addresses, line.pool) == ("shop/web", State.READY, ("10.0.0.2",), "lan")
    assert (status.nodes, status.left_over) == ((), ())


@jumping_time
async def test_services_that_are_left_to_another_program_page_nobody() -> None:
    program = Program(guest_server(), Harvester(), "demo", "--controllers=-service-lb-controller,*")
    program.create("web")
    async with program.live():
        await asyncio.sleep(1200)
        status = await shown(program)
        told, _ = program.telemetry.exposition("")
    assert (status.services, status.wrong) == ((), False)
    assert "Services are left alone: service-lb-controller is switched off by --controllers" in status.assumptions
    assert b"harvester_ccm_services_pending{" not in told
    assert b"harvester_ccm_service_pending_longest_seconds{" not in told


@jumping_time
async def test_an_answer_is_given_again_for_a_moment() -> None:
    program = Program(guest_server(), Harvester(), "demo")
    async with program.live():
        await asyncio.sleep(5)
        before = await shown(program)
        program.create("web")
        await asyncio.sleep(page.KEPT_SECONDS / 2)
        assert await shown(program) == before
        await asyncio.sleep(page.KEPT_SECONDS)
        assert len((await shown(program)).services or ()) == 1


@jumping_time
async def test_everything_else_gets_its_turn_meanwhile(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(page, "SLICE_SECONDS", 0.0)
    program = Program(guest_server(), Harvester(), "demo")
    program.create(*(f"web-{number}" for number in range(20)))
    async with program.live():
        await asyncio.sleep(60)
        # With this one the pools are read, for which others have time anyway.
        await shown(program)
        await asyncio.sleep(page.KEPT_SECONDS)
        answering, turns = asyncio.create_task(shown(program)), 0
        while not answering.done():
            await asyncio.sleep(0)
            turns += 1
        assert len((await answering).services or ()) == 20
    assert turns >= 20


@jumping_time
async def test_who_stands_in_line_waits_for_a_turn() -> None:
    program = Program(guest_server(), Silent(), "demo")
    program.create(*(f"web-{number}" for number in range(6)))
    async with program.live():
        await asyncio.sleep(2)
        status = await shown(program)
    messages = Counter(one.message for one in status.services or ())
    assert messages == {
        f"waits for {WaitReason.NOT_PROCESSED.meaning}": 1,
        f"waits for {WaitReason.TURN.meaning}": 5,
    }


@pytest.mark.parametrize("fight", [fight for fight in FIGHTS.values() if fight.about], ids=lambda fight: fight.field)
def test_a_fight_is_shown_as_long_as_it_lasts(fight: Fight) -> None:
    async def scene() -> None:
        arena = Arena()
        async with arena.at_rest():
            assert not (await shown(arena.program)).wrong
            await calls_per_minute(arena, fight, 5)
            status = await shown(arena.program)
            lines: list[ServiceLine | NodeLine] = [*(status.services or ()), *(status.nodes or ())]
            (line,) = [one for one in lines if one.name == fight.about]
            (said,) = [one.message for one in line.warnings if one.reason == Reason.CONTESTED]
            assert fight.field in said
            await asyncio.sleep(10 * MINUTE)
            assert not (await shown(arena.program)).wrong

    with asyncio.Runner(loop_factory=JumpingLoop) as runner:
        runner.run(scene())


@pytest.mark.parametrize(
    ("answer", "pause"),
    [
        (refused(403, "Forbidden", "no"), page.REFUSED_SECONDS),
        (refused(500, "InternalError", "etcd"), page.POOLS_SECONDS),
        (refused(429, "TooManyRequests", "later"), page.POOLS_SECONDS),
    ],
    ids=["not allowed", "a fault", "busy"],
)
@jumping_time
async def test_pools_are_shown_where_they_may_be_read(answer: CCMError, pause: float) -> None:
    harvester = Harvester()
    harvester.put(IP_POOLS, {"metadata": {"name": "lan", "uid": "1"}, "status": {"total": 9, "available": 7}})
    program = Program(guest_server(), harvester, "demo")
    program.create("web")
    known, unknown = Pool(name="lan", addresses=1, available=7, total=9), Pool(name="lan", addresses=1)
    async with program.live():
        await asyncio.sleep(5)
        assert (await shown(program)).pools == (known,)
        harvester.fault = lambda call: answer if call.path.endswith("/ippools") else None
        await asyncio.sleep(page.POOLS_SECONDS)
        assert (await shown(program)).pools == (unknown,)
        harvester.fault = lambda _call: None
        for _ in range(5):
            await asyncio.sleep(pause / 10)
            assert (await shown(program)).pools == (unknown,)
        await asyncio.sleep(pause)
        assert (await shown(program)).pools == (known,)
    assert len([call for call in harvester.calls if call.path.endswith("/ippools")]) == 3


@jumping_time
async def test_harvester_that_is_slow_to_tell_of_pools_holds_up_nobody() -> None:
    harvester = Harvester()
    harvester.way_back = lambda call: 3600.0 if call.path.endswith("/ippools") else 0.0
    program = Program(guest_server(), harvester, "demo")
    async with program.live():
        await asyncio.sleep(5)
        async with asyncio.timeout(page.POOLS_TIMEOUT + 1):
            assert (await shown(program)).pools == ()


async def test_a_process_that_waits_for_the_lease_says_that_it_does_not_lead() -> None:
    settings = build_settings(parse_command_line(["--cloud-config=/missing", "--cluster-name=demo"]), {})
    application = Application(
        settings,
        offline_client("guest"),
        offline_client("harvester"),
        fence=WriteFence(shut=True),
        reloaders=(),
        telemetry=Telemetry("1"),
    )
    status = decode(await application.status.answer())
    assert status.program is not None
    assert (status.program.leading, status.services, status.nodes, status.left_over) == (False, None, None, None)
    assert status.leader is not None
    assert status.leader.identity == ""
    assert any(one.startswith("caches-synced: never listed") for one in status.problems)


async def test_a_token_that_ends_is_told_and_not_shown() -> None:
    settings = build_settings(parse_command_line(["--cloud-config=/missing", "--cluster-name=demo"]), {})
    token = json_web_token({"exp": 1, "sub": "system:serviceaccount:default:demo"})
    application = Application(
        settings,
        offline_client("guest"),
        offline_client("harvester", FixedToken(token)),
        fence=WriteFence(shut=True),
        reloaders=(),
        telemetry=Telemetry("1"),
    )
    answer = (await application.status.answer()).decode()
    assert "The token for harvester expired on 1970-01-01. Get a new one (generate_addon.sh demo default, " in answer
    assert token not in answer
