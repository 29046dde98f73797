"""The demo from the first server started to the last one stopped: which scenes there are and what frames them.

To add a scene, write a function like those in ``services`` and put it into ``SCENES``.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Final

from devenv.ccm import DEFAULT_FLAGS
from devenv.demo import byhand, hosted, nodes, services
from devenv.demo.play import Play, expect
from devenv.demo.setting import DHCP_RANGE, FAILURES, POOL, POOL_NAME, open_stage
from devenv.demo.tables import reader
from devenv.demo.voice import Voice
from devenv.logfile import logs_to
from devenv.process import run_directory
from devenv.stage import Scene, Stage

SCENES: Final[tuple[Callable[[Play], Awaitable[None]], ...]] = (
    nodes.initialise_nodes,
    nodes.move_node,
    services.serve_services,
    services.send_requests,
    services.show_events,
    services.cure_pending_service,
    services.delete_everything,
    hosted.show_vm_load_balancer,
)


def perform(*, keep: bool, fault: str | None = None) -> int:
    """Start everything, show all scenes, stop everything and return the exit code.

    With ``keep`` no scene is shown and everything runs until it is interrupted, with ``fault`` broken at first.
    """
    voice = Voice()
    try:
        with run_directory("demo") as directory:
            return _run(voice, directory, keep=keep, fault=fault)
    except FAILURES as error:
        voice.headline(f"FAILED: {error}")
        return 1


def _run(voice: Voice, directory: Path, *, keep: bool, fault: str | None) -> int:
    try:
        with logs_to(directory / "emulators.log"):
            scene = _start_clusters(voice, directory)
            try:
                return asyncio.run(_play(voice, scene, directory, keep=keep, fault=fault))
            finally:
                scene.stop()
    except KeyboardInterrupt:
        voice.headline("Interrupted; everything is stopped")
        return 130


def _start_clusters(voice: Voice, directory: Path) -> Scene:
    voice.headline("Starting a guest cluster and a Harvester cluster: etcd and kube-apiserver, each twice")
    scene = Scene.start(directory)
    voice.say(f"guest      {scene.guest.url}")
    voice.say(f"Harvester  {scene.harvester.url}")
    return scene


async def _play(voice: Voice, scene: Scene, directory: Path, *, keep: bool, fault: str | None) -> int:
    voice.headline("Starting what stands in for Harvester's controllers and for kube-vip in the guest")
    async with open_stage(scene, directory) as stage:
        voice.say(f"IP pool {POOL_NAME} with {POOL}, a DHCP server with {DHCP_RANGE[0]} to {DHCP_RANGE[1]}")
        play = await _start_program(voice, stage)
        if keep:
            return await byhand.keep(play, pool=POOL, dhcp="-".join(DHCP_RANGE), fault=fault)
        for show in SCENES:
            await show(play)
        await _stop_program(play)
    voice.headline("Everything was as expected")
    return 0


async def _start_program(voice: Voice, stage: Stage) -> Play:
    voice.headline("Starting harvester-ccm with the service accounts that a real installation has")
    started = voice.elapsed
    run = stage.run()
    scene = stage.scene
    flags = {"cloud-config": scene.cloud_config, "kubeconfig": scene.kubeconfig, **DEFAULT_FLAGS}
    voice.show(["$ harvester-ccm", *(f"    --{name}={value}" for name, value in flags.items())])
    await stage.logged(run, "became leader")
    voice.say(f"process {run.pid} is the leader, {voice.elapsed - started:.2f} s after its start")
    return Play(voice, stage, reader(scene.guest.admin_kubeconfig), reader(scene.harvester.admin_kubeconfig), run)


async def _stop_program(play: Play) -> None:
    play.voice.headline("Asking harvester-ccm to stop (SIGTERM)")
    started = play.voice.elapsed
    play.run.terminate(0)
    code = await play.stage.ended(play.run)
    play.voice.say(f"exit code {code} after {play.voice.elapsed - started:.2f} s, leadership handed on")
    expect(code == 0, f"the program ended with exit code {code}")
    expect("lease released" in play.run.log, "the program did not hand its leadership on")
    expect("Traceback" not in play.run.log, "the program logged an error of its own")
