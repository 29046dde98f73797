"""``/status`` of a whole program in memory: what the leader shows, what others say, and that it is made in slices."""

from __future__ import annotations

import asyncio

import pytest

from harvester_ccm import __version__
from harvester_ccm.app import Application
from harvester_ccm.flags import build_settings, parse_command_line
from harvester_ccm.kube.fence import WriteFence
from harvester_ccm.kube.tokens import FixedToken
from harvester_ccm.status.document import State, Status, decode
from harvester_ccm.telemetry import status as page
from harvester_ccm.telemetry.metrics import Telemetry
from tests.worlds.builders import CLUSTER
from tests.worlds.clock import jumping_time
from tests.worlds.offline import json_web_token, offline_client
from tests.worlds.program_world import Harvester, Program, guest_server


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
        answering, turns = asyncio.create_task(shown(program)), 0
        while not answering.done():
            await asyncio.sleep(0)
            turns += 1
        assert len((await answering).services or ()) == 20
    assert turns >= 20


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
    token = json_web_token({"exp": 1})
    application = Application(
        settings,
        offline_client("guest"),
        offline_client("harvester", FixedToken(token)),
        fence=WriteFence(shut=True),
        reloaders=(),
        telemetry=Telemetry("1"),
    )
    answer = (await application.status.answer()).decode()
    assert "The token for harvester expired on 1970-01-01" in answer
    assert token not in answer
