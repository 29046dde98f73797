"""Runs the controller next to two kubelets of Kubernetes and verifies the life of their Nodes.

The kubelets (``devenv/gobuild/kubelet``) run without containers against a real guest API server; Harvester is emulated.
kube-controller-manager does not run, so the conditions of a Node whose kubelet is stopped are set to Unknown here.
"""

import asyncio
import os
import socket
import time
from collections.abc import Callable
from pathlib import Path
from typing import Final

from devenv.binaries import require
from devenv.harvester.machines import Machine, Machines
from devenv.logfile import logs_to
from devenv.process import ChildProcess, DevenvError, run_directory, stop_together
from devenv.restclient import Json
from devenv.stage import Scene, Stage, until
from harvester_ccm.names import UNINITIALIZED_TAINT

QUIET_SECONDS: Final = 60.0  # with a status update of each kubelet every 10 s
STEP_SECONDS: Final = 90.0
NODES: Final = "/api/v1/nodes"


class Kubelets:
    """The kubelets of node-1 and node-2. Only the first has a --node-ip, which must be an address of this machine."""

    def __init__(self, scene: Scene, directory: Path) -> None:
        self.scene, self.directory = scene, directory
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
            probe.connect(("192.0.2.1", 9))  # sends nothing, chooses the address of the default route
            self.addresses = {"node-1": str(probe.getsockname()[0]), "node-2": "10.9.0.12"}
        self.running: dict[str, ChildProcess] = {}

    def restart(self, name: str) -> None:
        """Start the kubelet of a Node, after the end of the one that runs."""
        if name in self.running:
            self.running[name].stop()
        files = self.directory / name
        files.mkdir(exist_ok=True)
        node_ip = self.addresses[name] if name == "node-1" else ""
        program = require("hollow-kubelet")["hollow-kubelet"]
        command: list[str | Path] = [program, self.scene.guest.admin_kubeconfig, name, node_ip]
        environment = os.environ | {"TMPDIR": str(files)}
        self.running[name] = ChildProcess.start("kubelet", command, log_file=files / "log", env=environment)

    async def nodes(self, what: str, condition: Callable[[Json], bool], *names: str) -> dict[str, Json]:
        """Return the Nodes once the condition holds for exactly these, by default for both. Raises TimeoutError."""

        async def found() -> dict[str, Json] | None:
            items = self.scene.guest.admin.request("GET", NODES)["items"]
            nodes = {node["metadata"]["name"]: node for node in items if condition(node)}
            return nodes if set(nodes) == set(names or self.addresses) else None

        return await until(found, within=STEP_SECONDS, what=what)

    def is_initialized(self, node: Json) -> bool:
        """Whether a Node has its provider ID and the address of its VM, and no taint of a new Node."""
        internal = [one["address"] for one in node["status"]["addresses"] if one["type"] == "InternalIP"]
        expected = [self.addresses[node["metadata"]["name"]]]
        return "harvester://" in node["spec"].get("providerID", "") and internal == expected and not is_tainted(node)


def is_tainted(node: Json) -> bool:
    """Whether a Node has the taint of a new Node."""
    return any(taint["key"] == UNINITIALIZED_TAINT for taint in node["spec"].get("taints", ()))


def lasting(node: Json) -> Json:
    """Return the fields that updates of a kubelet must not change."""
    metadata = {key: node["metadata"].get(key) for key in ("uid", "labels", "annotations")}
    return {**metadata, "spec": node["spec"], "addresses": node["status"]["addresses"]}


def is_updated(node: Json, before: dict[str, Json]) -> bool:
    """Whether the kubelet has updated a Node. Raises DevenvError if the Node changed otherwise."""
    old = before[node["metadata"]["name"]]
    if lasting(node) != lasting(old):
        raise DevenvError(f"the Node changed: {lasting(old)} -> {lasting(node)}")
    return bool(node["status"]["conditions"] != old["status"]["conditions"])


async def verify(stage: Stage, kubelets: Kubelets) -> None:
    """Take all steps and print each. Raises TimeoutError or DevenvError at the first that fails."""
    admin, machines, began = stage.scene.guest.admin, Machines(stage.host), time.monotonic()

    def done(step: str) -> None:
        print(f"{time.monotonic() - began:5.1f} s  {step}: ok", flush=True)

    for name, address in kubelets.addresses.items():
        await machines.create(Machine(name), address)
        kubelets.restart(name)
    await kubelets.nodes("registration", is_tainted)
    done("registration with the taint")

    run = stage.run(proxied=True)
    nodes = await kubelets.nodes("initialization", kubelets.is_initialized)
    done("initialization")

    patches = stage.guest_proxy.count(method="PATCH", path="/nodes/")
    await asyncio.sleep(QUIET_SECONDS)
    nodes = await kubelets.nodes("status updates", lambda node: is_updated(node, nodes))
    if not patches or stage.guest_proxy.count(method="PATCH", path="/nodes/") != patches:
        raise DevenvError("the controller patched a Node that only its kubelet had changed")
    done(f"{QUIET_SECONDS:.0f} s of status updates")

    run.terminate(0)
    await stage.ended(run)
    for name in kubelets.addresses:
        kubelets.restart(name)
    stage.run(proxied=True)
    await kubelets.nodes("status updates", lambda node: is_updated(node, nodes))
    done("restart of the kubelets and of the controller")

    uids = [lasting(node)["uid"] for node in nodes.values()]
    admin.request("DELETE", f"{NODES}/node-1")
    kubelets.restart("node-1")
    await kubelets.nodes("registration", lambda node: lasting(node)["uid"] not in uids, "node-1")
    await kubelets.nodes("initialization", kubelets.is_initialized)
    done("new registration after a manual deletion")

    kubelets.running["node-2"].stop()
    await machines.delete(Machine("node-2"))
    conditions = [one | {"status": "Unknown"} for one in nodes["node-2"]["status"]["conditions"]]
    admin.request("PATCH", f"{NODES}/node-2/status", body={"status": {"conditions": conditions}})
    await kubelets.nodes("deletion of node-2", lambda node: True, "node-1")
    done("deletion of the Node of a deleted VM")


async def _run(directory: Path) -> None:
    scene = Scene.start(directory)
    kubelets = Kubelets(scene, directory)
    try:
        async with Stage(scene, directory) as stage:
            await verify(stage, kubelets)
    finally:
        stop_together(list(kubelets.running.values()))
        scene.stop()


def main() -> None:
    """Entry point of ``python -m devenv.realkubelet``."""
    require("hollow-kubelet", "etcd", "kube-apiserver")
    with run_directory("kubelet") as directory, logs_to(directory / "emulators.log"):
        asyncio.run(_run(directory))


if __name__ == "__main__":
    main()
