"""``make dev``: both clusters and the controller for manual work, with faults whose cause can be searched.

After the file ``env``, ``kubectl`` in a shell has contexts for both clusters, and ``harvester-ccm`` needs no flags. As
in a cluster, the controller is restarted when it exits, and a new token comes from ``deploy/generate_addon.sh``.
"""

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
from devenv.demo.scenario import (
    DHCP_RANGE,
    NETWORKS,
    NODES,
    POOL,
    PORT,
    SECONDS,
    Scenario,
    Text,
    initialized,
    listen,
    open_stage,
)
from devenv.guestnodes import GuestNodes, name_of
from devenv.harvester.records import is_ready
from devenv.kubeconfig import merge_kubeconfigs
from devenv.process import ReservedPort
from devenv.stage import VM_NAMESPACE, Scene, until
from harvester_ccm.names import (
    HEALTH_CHECK_FAILURE_THRESHOLD,
    HEALTH_CHECK_PERIOD,
    HEALTH_CHECK_PORT,
    HEALTH_CHECK_TIMEOUT,
)

GUEST: Final = "harvester-ccm-dev-guest"
HARVESTER: Final = "harvester-ccm-dev-harvester"
"""Names of the contexts."""
WEB, PORTAL = "web", "portal"
"""Services with a cluster and a VM load balancer."""
PORTAL_PORT: Final = 8080
CHECK: Final[Mapping[str, str]] = {
    HEALTH_CHECK_PORT: "http",
    HEALTH_CHECK_PERIOD: "1",
    HEALTH_CHECK_TIMEOUT: "1",
    HEALTH_CHECK_FAILURE_THRESHOLD: "2",
}
FIX: Final = "none"
"""Typed to end a fault."""
POLL_SECONDS: Final = 0.5
RESTART_SECONDS: Final = 1.0
"""Pause before the controller is restarted, as the kubelet's first one."""
_CHECKOUT: Final = Path(__file__).parents[2]


async def keep(text: Text, scene: Scene, directory: Path, fault: str | None) -> NoReturn:
    """Start everything, print how to use it, and keep it running until cancelled.

    ``fault`` is caused at the beginning.
    """
    # A copy, which generate_addon.sh -o replaces.
    scene = replace(scene, cloud_config=Path(shutil.copy(scene.cloud_config, directory / "cloud-config")))
    port = ReservedPort()
    port.release()
    flags = {"secure-port": str(port.number)}
    async with (
        open_stage(scene, directory) as stage,
        GuestNodes(stage.guest, stage.host, networks=NETWORKS) as nodes,
    ):
        text.headline("Starting harvester-ccm, three nodes and two Services")
        scenario = Scenario(text, stage, nodes, stage.run(flags=flags))
        await stage.logged(scenario.run, "became leader")
        await asyncio.gather(*map(nodes.join, NODES))
        await initialized(stage)
        await stage.create_service(WEB, ports=[{"name": "http", "port": PORT}])
        await stage.create_service(PORTAL, ports=[{"name": "http", "port": PORTAL_PORT}], annotations=CHECK)
        await listen(stage, nodes)
        web, _ = await stage.served(WEB, PORTAL, within=SECONDS)

        async def checked() -> bool:
            return all(map(is_ready, stage.harvester.balancers.all()))

        await until(checked, within=SECONDS, what="healthy backends of the VM load balancer")
        text.headline("Ready for manual work")
        text.show(_help(scenario, port.number, web.addresses[0]))
        faults, words = Faults(scenario), [fault] if fault else []
        while True:
            for word in words:
                await _follow(scenario, faults, word)
            if scenario.run.exit_code is not None:
                code = scenario.run.exit_code
                await asyncio.sleep(RESTART_SECONDS)
                scenario.run = stage.run(flags=flags)
                _write_pid(scenario)
                text.headline(f"harvester-ccm exited with code {code} and was restarted; log: {scenario.run.log_file}")
            await listen(stage, nodes)
            await asyncio.sleep(POLL_SECONDS)
            words = _typed()


async def _follow(scenario: Scenario, faults: Faults, word: str) -> None:
    """Cause or end the fault that was typed."""
    if word == FIX:
        await faults.fix()
        scenario.text.headline("Fixed")
    elif word in FAULTS:
        scenario.text.headline(f"Causing {word}")
        affected = await faults.cause(word)
        scenario.text.show(f"Done. What is wrong?\n\n  harvester-ccm status\n  harvester-ccm explain {affected}")
    else:
        scenario.text.headline(f"{word!r} is no fault; expected one of: {', '.join((*FAULTS, FIX))}")


def _typed() -> list[str]:
    """Return the words that were typed at the terminal, or came through the pipe, since the last call."""
    try:
        # A process in the background that reads from its terminal is stopped.
        is_background = os.isatty(0) and os.tcgetpgrp(0) != os.getpgrp()
        if is_background or not select.select([0], [], [], 0)[0]:
            return []
        return os.read(0, 4096).decode(errors="replace").split()
    except OSError:
        return []


def _help(scenario: Scenario, port: int, web: str) -> str:
    scene, directory = scenario.stage.scene, scenario.stage.directory
    meanings = {**{name: fault.meaning for name, fault in FAULTS.items()}, FIX: "end the fault"}
    faults = "\n".join(f"  {name:15}{meaning}" for name, meaning in meanings.items())
    return f"""
In another terminal, first:

  . {_write_env(scene, directory)}

In that shell, kubectl and harvester-ccm use these clusters. For example:

  harvester-ccm status
  harvester-ccm explain svc/{WEB}       # kube-vip announces it
  harvester-ccm explain svc/{PORTAL}    # a VM load balancer: Harvester announces it
  harvester-ccm explain node/{name_of(1)}
  kubectl get nodes,services
  kubectl --context={HARVESTER} get loadbalancers,ippools,virtualmachines
  curl http://{web}:{PORT}/
  echo "Authorization: Bearer $TOKEN" | curl -sk -H @- https://127.0.0.1:{port}/metrics | grep ^harvester_ccm
  kubectl create service loadbalancer mine --tcp={PORT}
  kubectl events --for service/mine
  pkill -KILL -F {_write_pid(scenario)}       # the controller is restarted

A new token for Harvester, as after the fault expired-token:

  {_CHECKOUT / "scripts" / "generate_addon.sh"} --context {HARVESTER} --server {scene.harvester.url} \
-o {directory} {DEFAULT_FLAGS["cluster-name"]} {VM_NAMESPACE}

Addresses come from {POOL}, or from {"-".join(DHCP_RANGE)} with the annotation
cloudprovider.harvesterhci.io/ipam=dhcp. They are loopback addresses of this machine.
Log of the controller: {scenario.run.log_file}

Faults whose cause can be searched: type a word here, and harvester-ccm status there.

{faults}

Ctrl-C stops everything and removes the files.
"""


def _write_pid(scenario: Scenario) -> Path:
    """Write the process ID of the controller into a file, and return it."""
    file = scenario.stage.directory / "pid"
    file.write_text(f"{scenario.run.pid}\n")
    return file


def _write_env(scene: Scene, directory: Path) -> Path:
    """Write the file for the shell, and its commands. kubectl is built first if it is missing."""
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
    command = tools / "harvester-ccm"
    command.write_text(
        "#!/bin/sh\n"
        # Without a command, the flags would start a second controller.
        "[ $# -gt 0 ] || set -- --help\n"
        f'PYTHONPATH={shlex.quote(str(_CHECKOUT))} exec {sys.executable} -m harvester_ccm "$@" {words}\n'
    )
    command.chmod(0o700)
    files = {GUEST: scene.guest.admin_kubeconfig, HARVESTER: scene.harvester.admin_kubeconfig}
    exports = {"KUBECONFIG": merge_kubeconfigs(directory / "kubeconfig", files), "TOKEN": scene.guest.admin_token}
    env = directory / "env"
    env.touch(0o600)
    lines = [f"export {name}={shlex.quote(str(value))}" for name, value in exports.items()]
    env.write_text("\n".join([*lines, f"export PATH={shlex.quote(str(tools))}:$PATH\n"]))
    return env
