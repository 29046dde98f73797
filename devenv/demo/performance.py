"""The demo from the first server started to the last one stopped: which scenes there are and what frames them.

To add a scene, write a function like those in ``services`` and put it into ``SCENES``.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Final

from devenv.ccm import DEFAULT_FLAGS
from devenv.demo import hosted, nodes, services
from devenv.demo.play import Disappointment, Play, expect
from devenv.demo.tables import reader
from devenv.demo.voice import Voice
from devenv.harvester.queue import FAST
from devenv.kubevip import KubeVipOptions
from devenv.logfile import logs_to
from devenv.process import DevenvError, run_directory
from devenv.stage import Scene, Stage
from harvester_ccm.errors import CCMError

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
POOL: Final = "127.77.0.0/24"
DHCP_RANGE: Final = ("127.78.0.10", "127.78.0.99")
WATCH_SECONDS: Final = 0.5

HELP_BY_HAND: Final = """
Guest cluster:   export KUBECONFIG={guest}
Harvester:       export KUBECONFIG={harvester}
Log of the CCM:  tail -f {log}

For example, in the guest cluster:
  kubectl create service loadbalancer web --tcp=18080
  kubectl get service web
  kubectl events --for service/web
  curl http://ADDRESS:18080/
  kubectl delete service web
and in Harvester:
  kubectl get loadbalancers,ippools

Addresses come from {pool}, or from {dhcp} with the annotation
cloudprovider.harvesterhci.io/ipam=dhcp. They are loopback addresses of this machine.
Ctrl-C ends all of it and removes the files.
"""


def perform(*, keep: bool) -> int:
    """Start everything, show all scenes, stop everything and return the exit code.

    With ``keep`` no scene is shown and everything runs until it is interrupted.
    """
    voice = Voice()
    try:
        with run_directory("demo") as directory:
            return _run(voice, directory, keep=keep)
    except (AssertionError, CCMError, DevenvError, Disappointment, TimeoutError) as error:
        voice.headline(f"FAILED: {error}")
        return 1


def _run(voice: Voice, directory: Path, *, keep: bool) -> int:
    try:
        with logs_to(directory / "emulators.log"):
            scene = _start_clusters(voice, directory)
            try:
                return asyncio.run(_play(voice, scene, directory, keep=keep))
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


async def _play(voice: Voice, scene: Scene, directory: Path, *, keep: bool) -> int:
    voice.headline("Starting what stands in for Harvester's controllers and for kube-vip in the guest")
    options = KubeVipOptions(serve=True, dhcp_range=DHCP_RANGE)
    async with Stage(scene, directory, pace=FAST, kube_vip=options) as stage:
        await stage.harvester.create_pool("lan", POOL)
        voice.say(f"IP pool lan with {POOL}, a DHCP server with {DHCP_RANGE[0]} to {DHCP_RANGE[1]}")
        play = await _start_program(voice, stage)
        if keep:
            return await _keep(play)
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


async def _keep(play: Play) -> int:
    """Tell how to use what runs, and wait for Ctrl-C."""
    scene = play.stage.scene
    text = HELP_BY_HAND.format(
        guest=scene.guest.admin_kubeconfig,
        harvester=scene.harvester.admin_kubeconfig,
        log=play.run.log_file,
        pool=POOL,
        dhcp=f"{DHCP_RANGE[0]}-{DHCP_RANGE[1]}",
    )
    play.voice.headline("Ready for work by hand")
    play.voice.show(text.splitlines())
    while play.run.exit_code is None:  # noqa: ASYNC110 - a process has no event
        await asyncio.sleep(WATCH_SECONDS)
    raise Disappointment(f"harvester-ccm ended with exit code {play.run.exit_code}; see {play.run.log_file}")
