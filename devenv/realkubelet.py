"""Runs the controller next to two kubelets of Kubernetes and verifies the life of their Nodes.

The kubelets (``devenv/gobuild/hollow-kubelet``) run without containers against a real guest API server; Harvester is
emulated. kube-controller-manager does not run, so the conditions of a Node whose kubelet is stopped are set to Unknown
here.
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
    """The kubelets. Those of ``node_ips`` have a --node-ip, which must be an address of this machine."""

    def __init__(self, scene: Scene, directory: Path) -> None:
        self.scene, self.directory = scene, directory
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
            probe.connect(("192.0.2.1", 9))  # sends nothing, chooses the address of the default route
            self.host_address = str(probe.getsockname()[0])
        self.addresses = {"node-1": self.host_address, "node-2": "10.9.0.12"}
        self.node_ips = {"node-1": self.host_address}
        self.running: dict[str, ChildProcess] = {}

    def restart(self, name: str) -> None:
        """Start the kubelet of a Node, after the end of the one that runs."""
        if name in self.running:
            self.running[name].stop()
        files = self.directory / name
        files.mkdir(exist_ok=True)
        program = require("hollow-kubelet")["hollow-kubelet"]
        command: list[str | Path] = [program, self.scene.guest.admin_kubeconfig, name, self.node_ips.get(name, "")]
        environment = os.environ | {"TMPDIR": str(files)}
        self.running[name] = ChildProcess.start("kubelet", command, log_file=files / "log", env=environment)

    def remove(self, name: str) -> None:
        """Stop the kubelet of a Node and delete the Node."""
        self.running.pop(name).stop()
        self.scene.guest.admin.request("DELETE", f"{NODES}/{name}")

    def become_silent(self, name: str) -> None:
        """Stop the kubelet of a Node, and set the conditions as kube-controller-manager does."""
        self.running.pop(name).stop()
        path = f"{NODES}/{name}"
        present = self.scene.guest.admin.request("GET", path)["status"]["conditions"]
        conditions = [condition | {"status": "Unknown"} for condition in present]
        self.scene.guest.admin.request("PATCH", f"{path}/status", body={"status": {"conditions": conditions}})

    async def event(self, reason: str, name: str) -> str:
        """Return the message of an Event about a Node once it exists. Raises TimeoutError."""

        async def found() -> str | None:
            for event in self.scene.guest.admin.request("GET", "/api/v1/events")["items"]:
                if (event["reason"], event["involvedObject"]["name"]) == (reason, name):
                    return str(event["message"])
            return None

        return await until(found, within=STEP_SECONDS, what=f"the Event {reason} on {name}")

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

    await verify_pod_network(kubelets, machines)
    done("no InternalIP behind the pod network")

    await verify_shared_address(kubelets, machines)
    done("a replacement gets the address of its predecessor, and not before the VM of that is stopped")

    await machines.delete(Machine("node-2"))
    await kubelets.nodes("deletion of node-2", lambda node: True, "node-1", "node-4")
    done("deletion of the Node of a deleted VM")


async def verify_pod_network(kubelets: Kubelets, machines: Machines) -> None:
    """Verify that a Node waits whose kubelet names an address behind the pod network."""
    machine = Machine("node-3", networks=("", "default/vlan1"))
    kubelets.node_ips["node-3"] = kubelets.host_address
    await machines.create(machine, kubelets.host_address, "10.9.0.13")
    kubelets.restart("node-3")
    message = await kubelets.event("NodeIPInPodNetwork", "node-3")
    if "10.9.0.13" not in message:
        raise DevenvError(f"the Event does not name the address in the VM network: {message}")
    await kubelets.nodes("registration of node-3", is_tainted, "node-3")
    kubelets.remove("node-3")
    await machines.delete(machine)


async def verify_shared_address(kubelets: Kubelets, machines: Machines) -> None:
    """Verify that node-4 gets the address of node-2 only when the VM of that one is stopped."""
    kubelets.addresses["node-4"] = kubelets.addresses["node-2"]
    await machines.create(Machine("node-4"), kubelets.addresses["node-4"])
    kubelets.restart("node-4")
    for name in ("node-2", "node-4"):
        await kubelets.event("InternalIPInUse", name)
    await kubelets.nodes("registration of node-4", is_tainted, "node-4")
    await machines.stop(Machine("node-2"))
    kubelets.become_silent("node-2")
    await kubelets.nodes("initialization of node-4", kubelets.is_initialized, "node-1", "node-2", "node-4")
    await kubelets.event("VMNotRunning", "node-2")


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
