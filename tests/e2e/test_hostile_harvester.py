"""A Harvester with answers that are too large or never end: the program keeps its memory and says what is wrong."""

from collections.abc import Callable
from pathlib import Path

import pytest
import yaml

from devenv.stage import Stage, until
from harvester_ccm.names import Reason
from tests.support.hostile_server import MIB, Reply, hostile_server, padded, whole

pytestmark = pytest.mark.apiserver

MEMORY_LIMIT = 256 * MIB
"""Memory limit of the container in the chart."""
ROUNDS = 12
"""Requests after which each of the three collections was read several times."""
EMPTY = b'{"metadata":{"resourceVersion":"1"},"items":[]}'


def large(_path: str) -> Reply:
    return Reply(padded(b'{"metadata":{"resourceVersion":"1","a":"', 300 * MIB, b'"},"items":[]}'))


def endless_line(path: str) -> Reply:
    if "watch=1" in path:
        return Reply(padded(b'{"type":"ADDED","object":{"metadata":{"name":"', 300 * MIB))
    return Reply(whole(EMPTY))


@pytest.mark.parametrize(
    ("answer", "text"),
    [
        pytest.param(large, "the answer is larger than 8 MiB (GET ", id="300 MiB"),
        pytest.param(endless_line, "a line of the watch is larger than 8 MiB (WATCH ", id="endless line"),
    ],
)
@pytest.mark.security("a response that stops the controller")
@pytest.mark.security("A server that exceeds a limit is reported, and the other cluster is still served")
async def test_answers_of_harvester_exhaust_no_memory(
    stage: Stage, tmp_path: Path, answer: Callable[[str], Reply], text: str
) -> None:
    async with hostile_server(answer) as hostile:
        document = yaml.safe_load(stage.scene.cloud_config.read_text())
        document["clusters"][0]["cluster"] = {"server": hostile.url}
        path = tmp_path / "hostile"
        path.write_text(yaml.safe_dump(document))
        run = stage.run(cloud_config=path, fresh=True)
        await stage.logged(run, "became leader")
        await stage.logged(run, text)

        async def asked_often() -> bool:
            return len(hostile.requests) >= ROUNDS

        await until(asked_often, within=120, what="several requests for each collection")
        # The guest cluster is served meanwhile: a Service gets its Event.
        await stage.create_service("web")
        if answer is not endless_line:
            event = await stage.hears("web", Reason.HARVESTER_UNAVAILABLE)
            assert text in event.message
        assert run.peak_memory() < MEMORY_LIMIT
        lease = await stage.lease()
        assert lease.spec.holder_identity
        assert "leadership lost" not in run.log
        run.terminate(0)
        assert await stage.ended(run) == 0
