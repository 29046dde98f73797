"""``make dev``: the scene kept running for work by hand, with faults to find the cause of.

The file ``env`` is for a shell: after it, ``kubectl`` knows both clusters, and ``harvester-ccm`` needs no flags. As in
a cluster, the program is started again when it exits, and a new token comes from ``scripts/generate_addon.sh``.
"""

from __future__ import annotations

import asyncio
import os
import select
import shlex
import shutil
import sys
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Final, NoReturn

from devenv.binaries import require
from devenv.ccm import DEFAULT_FLAGS
from devenv.demo.faults import FAULTS, Faults
from devenv.demo.play import CHECK, DHCP_RANGE, NODES, POOL, PORT, PORTAL, PORTAL_PORT, SECONDS, Play
from devenv.demo.requests import ask
from devenv.guestnodes import name_of
from devenv.kubeconfig import merge_kubeconfigs
from devenv.process import ReservedPort
from devenv.stage import VM_NAMESPACE, Scene

GUEST: Final = "harvester-ccm-dev-guest"
HARVESTER: Final = "harvester-ccm-dev-harvester"
"""Names of the contexts. Nobody has another cluster with such a name."""
WEB: Final = "web"
FIX: Final = "none"
"""The word that ends a fault."""
POLL_SECONDS: Final = 0.5
RESTART_SECONDS: Final = 1.0
"""Pause before the program is started again, as the kubelet's first one."""
_CHECKOUT: Final = Path(__file__).parents[2]

_HELP: Final = """
At another terminal, first:

  . {env}

That shell has the kubectl and the harvester-ccm of this scene. For example:

  harvester-ccm status
  harvester-ccm explain svc/{web}
  harvester-ccm explain node/{node}
  kubectl get nodes,services
  kubectl --context={harvester} get loadbalancers,ippools,virtualmachines
  curl http://{web_address}:{web_port}/       # {web}: kube-vip announces it
  curl http://{portal_address}:{portal_port}/        # {portal}: Harvester balances over the nodes
  curl -sk -H "Authorization: Bearer $TOKEN" https://127.0.0.1:{metrics}/metrics | grep ^harvester_ccm
  kubectl create service loadbalancer mine --tcp={web_port}
  kubectl events --for service/mine
  pkill -KILL -F {pid}       # the program is started again

A new token for Harvester, as after the fault expired-token:

  {script} --context {harvester} --server {server} -o {directory} {account} {namespace}

Addresses come from {pool}, or from {dhcp} with the annotation
cloudprovider.harvesterhci.io/ipam=dhcp. They are loopback addresses of this machine.
Log of the program: {log}

Faults to find the cause of: type one of these words here, and harvester-ccm status there.

{faults}

Ctrl-C ends all of it and removes the files.
"""


def own_files(scene: Scene, directory: Path) -> Scene:
    """Return the scene with a cloud-config that ``generate_addon.sh -o`` replaces."""
    file = directory / "cloud-config"
    shutil.copy(scene.cloud_config, file)
    return replace(scene, cloud_config=file)


def reserve_port() -> int:
    """Return a free port of 127.0.0.1 for metrics and health checks."""
    port = ReservedPort()
    port.release()
    return port.number


async def keep(play: Play, flags: Mapping[str, str], fault: str | None) -> NoReturn:
    """Create nodes and Services, print how to use them, and keep everything running until cancelled.

    ``flags`` are those of the program, which is started with them again when it exits. ``fault`` is what is broken from
    the beginning.
    """
    voice, stage = play.voice, play.stage
    voice.headline("Creating three nodes and two Services")
    await asyncio.gather(*map(play.guest.join, NODES))
    await play.guest.initialized()
    await stage.create_service(WEB, ports=[{"name": "http", "port": PORT}])
    await stage.create_service(PORTAL, ports=[{"name": "http", "port": PORTAL_PORT}], annotations=CHECK)
    await play.guest.answer()
    web, portal = await stage.served(WEB, PORTAL, within=SECONDS)
    # Until its backends have passed their checks, connections to a VM load balancer are never answered.
    await ask("TCP", portal.addresses[0], PORTAL_PORT)
    voice.headline("Ready for work by hand")
    voice.show(_help(play, flags["secure-port"], web.addresses[0], portal.addresses[0]).splitlines())
    faults, typed, words = Faults(play), Typed(), [fault] if fault else []
    while True:
        for word in words:
            await _follow(play, faults, word)
        if play.run.exit_code is not None:
            code = play.run.exit_code
            await asyncio.sleep(RESTART_SECONDS)
            play.run = stage.run(flags=flags)
            _write_pid(play)
            voice.headline(f"harvester-ccm exited with code {code} and was started again; log: {play.run.log_file}")
        await play.guest.answer()
        await asyncio.sleep(POLL_SECONDS)
        words = typed.words()


def _write_pid(play: Play) -> Path:
    """Write the process ID of the program into a file, and return it."""
    file = play.stage.directory / "pid"
    file.write_text(f"{play.run.pid}\n")
    return file


def _help(play: Play, port: str, web: str, portal: str) -> str:
    scene, directory = play.stage.scene, play.stage.directory
    meanings = {**{name: fault.meaning for name, fault in FAULTS.items()}, FIX: "end the fault"}
    return _HELP.format(
        env=_write_env(scene, directory),
        web=WEB,
        web_address=web,
        web_port=PORT,
        portal=PORTAL,
        portal_address=portal,
        portal_port=PORTAL_PORT,
        metrics=port,
        node=name_of(1),
        harvester=HARVESTER,
        pid=_write_pid(play),
        script=_CHECKOUT / "scripts" / "generate_addon.sh",
        server=scene.harvester.url,
        directory=directory,
        account=DEFAULT_FLAGS["cluster-name"],
        namespace=VM_NAMESPACE,
        pool=POOL,
        dhcp="-".join(DHCP_RANGE),
        log=play.run.log_file,
        faults="\n".join(f"  {name:15}{meaning}" for name, meaning in meanings.items()),
    )


def _write_env(scene: Scene, directory: Path) -> Path:
    """Write the file for the shell, and what it needs. kubectl is built first if it is missing."""
    tools = directory / "bin"
    tools.mkdir()
    (tools / "kubectl").symlink_to(require("kubectl")["kubectl"])
    # The guest's own kubeconfig: another current context of kubectl must not lead the commands to another cluster.
    flags = {
        "cloud-config": scene.cloud_config,
        "kubeconfig": scene.guest.admin_kubeconfig,
        "cluster-name": DEFAULT_FLAGS["cluster-name"],
    }
    words = shlex.join(f"--{name}={value}" for name, value in flags.items())
    program = tools / "harvester-ccm"
    program.write_text(
        f'#!/bin/sh\nPYTHONPATH={shlex.quote(str(_CHECKOUT))} exec {sys.executable} -m harvester_ccm "$@" {words}\n'
    )
    program.chmod(0o700)
    files = {GUEST: scene.guest.admin_kubeconfig, HARVESTER: scene.harvester.admin_kubeconfig}
    exports = {"KUBECONFIG": merge_kubeconfigs(directory / "kubeconfig", files), "TOKEN": scene.guest.admin.token}
    env = directory / "env"
    env.touch(0o600)
    lines = [f"export {name}={shlex.quote(str(value))}" for name, value in exports.items()]
    env.write_text("\n".join([*lines, f"export PATH={shlex.quote(str(tools))}:$PATH\n"]))
    return env


async def _follow(play: Play, faults: Faults, word: str) -> None:
    """Do what a typed word means."""
    voice = play.voice
    if word == FIX:
        await faults.fix()
        voice.headline("Fixed")
    elif word in FAULTS:
        voice.headline(f"Breaking something: {word}")
        affected = await faults.cause(word)
        voice.say("Done. What is wrong?")
        voice.show(["", "  harvester-ccm status", f"  harvester-ccm explain {affected}"])
    else:
        voice.headline(f"{word!r} is no fault; expected one of: {', '.join((*FAULTS, FIX))}")


class Typed:
    """Words that are typed at this process's terminal, or come through a pipe; read without waiting."""

    def __init__(self) -> None:
        self._rest = b""
        self._ended = False

    def words(self) -> list[str]:
        """Return the words of all whole lines since the last call."""
        while not self._ended and self._is_ready():
            try:
                data = os.read(0, 4096)
            except OSError:
                data = b""
            self._ended, self._rest = not data, self._rest + data
        *lines, self._rest = self._rest.split(b"\n")
        return b" ".join(lines).decode(errors="replace").split()

    def _is_ready(self) -> bool:
        try:
            # A process in the background that reads from its terminal is stopped.
            if os.isatty(0) and os.tcgetpgrp(0) != os.getpgrp():
                return False
            return bool(select.select([0], [], [], 0)[0])
        except (OSError, ValueError):
            self._ended = True
            return False
