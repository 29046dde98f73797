"""``make dev``: both clusters and the controller for manual work.

After the file ``env``, ``kubectl`` in a shell has contexts for both clusters, and ``harvester-ccm`` needs no flags. As
in a cluster, the controller is restarted when it exits.
"""

import asyncio
import shlex
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Final, NoReturn

from devenv.binaries import require
from devenv.ccm import DEFAULT_FLAGS, CcmProcess
from devenv.demo.scenario import (
    DHCP_RANGE,
    NETWORKS,
    NODES,
    POOL,
    PORT,
    SECONDS,
    Text,
    initialized,
    listen,
    open_stage,
)
from devenv.guestnodes import GuestNodes, name_of
from devenv.harvester.records import is_ready
from devenv.kubeconfig import merge_kubeconfigs
from devenv.process import ReservedPort
from devenv.stage import Scene, Stage, until
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
POLL_SECONDS: Final = 0.5
RESTART_SECONDS: Final = 1.0
"""Pause before the controller is restarted, as the kubelet's first one."""
_CHECKOUT: Final = Path(__file__).parents[2]


async def keep(text: Text, scene: Scene, directory: Path) -> NoReturn:
    """Start everything, print how to use it, and keep it running until cancelled."""
    port = ReservedPort()
    port.release()
    flags = {"secure-port": str(port.number)}
    async with (
        open_stage(scene, directory) as stage,
        GuestNodes(stage.guest, stage.host, networks=NETWORKS) as nodes,
    ):
        text.headline("Starting harvester-ccm, three nodes and two Services")
        run = stage.run(flags=flags)
        await stage.logged(run, "became leader")
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
        text.show(_help(stage, run, port.number, web.addresses[0]))
        while True:
            if run.exit_code is not None:
                code = run.exit_code
                await asyncio.sleep(RESTART_SECONDS)
                run = stage.run(flags=flags)
                _write_pid(stage, run)
                text.headline(f"harvester-ccm exited with code {code} and was restarted; log: {run.log_file}")
            await listen(stage, nodes)
            await asyncio.sleep(POLL_SECONDS)


def _help(stage: Stage, run: CcmProcess, port: int, web: str) -> str:
    return f"""
In another terminal, first:

  . {_write_env(stage.scene, stage.directory)}

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
  pkill -KILL -F {_write_pid(stage, run)}       # the controller is restarted

Addresses come from {POOL}, or from {"-".join(DHCP_RANGE)} with the annotation
cloudprovider.harvesterhci.io/ipam=dhcp. They are loopback addresses of this machine.
Log of the controller: {run.log_file}

Ctrl-C stops everything and removes the files.
"""


def _write_pid(stage: Stage, run: CcmProcess) -> Path:
    """Write the process ID of the controller into a file, and return it."""
    file = stage.directory / "pid"
    file.write_text(f"{run.pid}\n")
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
