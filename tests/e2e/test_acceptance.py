"""The acceptance test for real clusters, run on the development environment."""

import asyncio
from collections.abc import Callable
from dataclasses import replace

import pytest

from devenv import acceptance
from devenv.guestnodes import GuestNodes
from devenv.harvester import FAST
from devenv.stage import Stage, until

pytestmark = [
    pytest.mark.apiserver,
    pytest.mark.usefixtures("lan"),
    pytest.mark.parametrize("pace", [FAST], ids=["fast"]),
]


def run_of(stage: Stage, *, seconds: float = 60, prompt: Callable[[str], None] = print) -> acceptance.Run:
    """A run with the credential of the controller for Harvester, which allows all that the test does there."""
    run = acceptance.connect(str(stage.scene.guest.admin_kubeconfig), str(stage.scene.cloud_config))
    return replace(run, seconds=seconds, prompt=prompt)


async def test_every_step_succeeds_with_a_swap(stage: Stage, capsys: pytest.CaptureFixture[str]) -> None:
    loop, prompts = asyncio.get_running_loop(), asyncio.Queue[str]()

    def prompt(text: str) -> None:
        loop.call_soon_threadsafe(prompts.put_nowait, text)

    run = run_of(stage, prompt=prompt)
    async with GuestNodes(stage.guest, stage.host, networks=("default/vlan1",)) as nodes:
        await nodes.add(1, 2)
        controller = stage.run()
        accepted = asyncio.create_task(asyncio.to_thread(acceptance.accept, run, acceptance.STEPS))
        for _ in range(2):
            await asyncio.wait_for(prompts.get(), 120)
            controller.terminate(0)
            await stage.ended(controller)
            controller = stage.run()
        assert await accepted, capsys.readouterr().out
    report = capsys.readouterr().out
    assert [line.split(" | ")[1] for line in report.splitlines() if line.startswith("| ")][1:] == ["ok"] * 9


async def test_failed_step_is_reported_and_everything_is_deleted(
    stage: Stage, capsys: pytest.CaptureFixture[str]
) -> None:
    """Without a controller no address is assigned, and no finalizer is removed."""
    run = run_of(stage, seconds=1)

    def left_over(run: acceptance.Run) -> str:
        run.core.create_namespaced_service(
            run.namespace,
            {
                "metadata": {"name": "held", "finalizers": ["service.kubernetes.io/load-balancer-cleanup"]},
                "spec": {"type": "LoadBalancer", "ports": [{"port": 80}]},
            },
        )
        return ""

    assert not await asyncio.to_thread(acceptance.accept, run, (left_over, acceptance.creation))
    report = capsys.readouterr().out
    assert "| Creation | **failed** | " in report
    assert "not within 1 s: address of web" in report
    assert "Deleted without the controller: not within 1 s: deletion of held" in report

    async def is_empty() -> bool:
        return not await asyncio.to_thread(acceptance.addresses, run)

    await until(is_empty, within=10, what="end of the Services")
