"""Load balancers that a version of Harvester rejects: what the Event and ``preflight`` say is enough to have one."""

import asyncio
import shlex
from typing import Final

import pytest

from devenv.harvester.machines import Kind, Machine
from devenv.harvester.records import MACHINES
from harvester_ccm.commands.preflight import Result, check_admission
from harvester_ccm.names import Reason
from tests.devenv.emulated import balancer
from tests.support.builders import CLUSTER, service
from tests.support.clock import jumping_time
from tests.support.memory_server import MemoryClient
from tests.support.versioned_harvester import World, world_with_machines

LABELLED: Final = {"cloudprovider.harvesterhci.io/cluster": CLUSTER.name}


def name_of(kind: Kind) -> str:
    return Machine.of_kind(kind, 1, CLUSTER.name).name


def carry_out(command: str, world: World) -> None:
    """Carry out a command that labels a VM."""
    words = shlex.split(command)
    assert words[:6] == ["kubectl", "-n", CLUSTER.namespace, "label", "--overwrite", "virtualmachine"]
    labels = dict(word.split("=") for word in words[7:])
    world.harvester.change(MACHINES, f"{CLUSTER.namespace}/{words[6]}", {"metadata": {"labels": labels}})


@pytest.mark.parametrize("kind", [Kind.PLAIN, Kind.LABELLED, Kind.OLDER_RANCHER])
@jumping_time
async def test_command_in_the_event_ends_the_rejection_of_harvester_1_8_0(kind: Kind) -> None:
    world = world_with_machines(1, kind=kind)
    async with world.serving("1.8.0", service()):
        assert world.condition()["reason"] == Reason.SYNC_FAILED
        text = next(text for text in world.warnings() if "it has no running vm" in text)
        carry_out(text.partition("Run: ")[2].replace("NAME", name_of(kind)), world)
        await asyncio.sleep(300)
        assert world.condition()["status"] == "True"
        assert world.address()


@jumping_time
async def test_preflight_has_the_command_that_ends_the_rejection_of_harvester_1_8_0() -> None:
    world = world_with_machines(1, kind=Kind.PLAIN)
    body = balancer("preflight", CLUSTER.namespace, cluster=CLUSTER.name)
    body["metadata"]["labels"] = LABELLED
    client = MemoryClient(world.harvester, cluster="harvester", namespace=CLUSTER.namespace)
    async with world.on("1.8.0"):
        await asyncio.sleep(1)
        result, _, advice = await check_admission(client, body, CLUSTER)
        assert result is Result.FAILED
        carry_out(advice.partition("Run: ")[2].replace("NAME", name_of(Kind.PLAIN)), world)
        await asyncio.sleep(1)
        result, _, advice = await check_admission(client, body, CLUSTER)
        assert (result, advice) == (Result.OK, "")
