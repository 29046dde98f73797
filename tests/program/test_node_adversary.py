"""The whole node side against a random hour: agents, tenants, kubelets, backups and restarts of the program.

What the VMs have is known; each write of the program is judged by that when it arrives. At the end all are left alone,
and every Node must be as its VM is.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from random import Random
from typing import Any, Final

import pytest

from devenv.harvester.machines import Machine
from harvester_ccm.names import KUBE_VIP_ADDRESSES, PROVIDED_NODE_IP, SERVICE_FINALIZER, SHUTDOWN_TAINT, ZONE
from tests.worlds.clock import jumping_time
from tests.worlds.memory_server import Call
from tests.worlds.node_objects import DEFAULTS
from tests.worlds.node_world import BALANCER, NAMESPACE, NODE, TAINT, VM, VMI, NodeWorld, initialised, machine

SERVICE: Final = "v1/services"
PATIENCE: Final = DEFAULTS.address_patience
VMS: Final = {
    "w1": machine("w1", networks=("default/mgmt", "default/vlan5")),
    "w2": machine("w2", zone="zone-a"),
    "w3": machine("w3", networks=("",)),
}
HAVE: Final[Mapping[str, tuple[tuple[str, ...], ...]]] = {
    "w1": (("10.0.0.1", "10.0.0.100"), ("192.168.5.1", "192.168.5.100", "fd05::1")),
    "w2": (("10.0.0.2", "10.0.0.100", "fd00::2"),),
    "w3": ((),),
}
PROVIDED: Final = {"w1": "192.168.5.1,fd05::1", "w2": "", "w3": "10.0.0.3"}
EXPECTED: Final = {
    "w1": [{"192.168.5.1", "fd05::1"}],
    # Load balancers may have the others when the Node joins.
    "w2": [{"10.0.0.2", "fd00::2"}, {"10.0.0.100", "fd00::2"}, {"10.0.0.2"}, {"10.0.0.100"}],
    "w3": [{"10.0.0.3"}],
}
PARTS: Final = 3
"""So often the program is started."""


class Judge:
    """Sees every request of the program to the guest before it is answered."""

    def __init__(self, scene: NodeWorld) -> None:
        self._scene = scene
        self.wrong: list[str] = []

    def __call__(self, call: Call) -> None:
        """Take note of what must never be asked for."""
        if not call.is_write or "/nodes/" not in call.path:
            return
        name = call.path.split("/nodes/")[1].partition("/")[0]
        node = self._scene.guest_server.objects[NODE].get(name)
        if call.verb == "DELETE":
            self.wrong.append(f"{name} is deleted")
        elif node is not None and is_for(node, call.body):
            self._judge_patch(name, node, call.body)

    def _judge_patch(self, name: str, node: Mapping[str, Any], body: Mapping[str, Any]) -> None:
        before, written = node["status"]["addresses"], body.get("status", {}).get("addresses")
        tainted = TAINT in (node["spec"].get("taints") or [])
        if written is not None and not tainted:
            lost = internal(before) - internal(written)
            self.wrong += [f"{name}: {one} is lost" for one in lost & set().union(*EXPECTED[name])]
        taints = body.get("spec", {}).get("taints", [])
        if tainted and "taints" in body.get("spec", {}) and TAINT not in (taints or []):
            given = set(filter(None, PROVIDED[name].split(",")))
            if not internal(before) or not given <= internal(before):
                self.wrong.append(f"{name} is released with {before}")


def is_for(node: Mapping[str, Any], body: Mapping[str, Any]) -> bool:
    """Return whether a patch would be taken: it names the Node by its UID, and maybe its version."""
    return all(
        node["metadata"][key] == body["metadata"].get(key, node["metadata"][key]) for key in ("uid", "resourceVersion")
    )


def internal(addresses: list[Mapping[str, str]]) -> set[str]:
    return {one["address"] for one in addresses if one["type"] == "InternalIP"}


class Adversary:
    """Does one thing after the other to Nodes, VMs and load balancers."""

    def __init__(self, scene: NodeWorld, dice: Random) -> None:
        self._scene, self._dice = scene, dice

    async def act(self) -> None:
        """Do something, and let some time pass."""
        name = self._dice.choice(list(VMS))
        deeds: list[Callable[[str, Machine], Any]] = [
            self._blink, self._blink, self._silence, self._shut_down, self._claim, self._serve, self._taint,
            self._join_anew, self._restore, self._meddle,
        ]  # fmt: skip
        await self._dice.choice(deeds)(name, VMS[name])
        await asyncio.sleep(self._dice.choice([0, 0.01, 1, 40, 400]))

    async def _blink(self, name: str, vm: Machine) -> None:
        parts = [self._dice.sample(nic, self._dice.randint(0, len(nic))) for nic in HAVE[name]]
        self._scene.report_lists(vm, *parts)
        await asyncio.sleep(self._dice.choice([0, 1, PATIENCE - 1]))
        self._scene.report_lists(vm, *HAVE[name])

    async def _silence(self, name: str, vm: Machine) -> None:
        self._scene.report(vm)
        await asyncio.sleep(self._dice.choice([1, 3 * PATIENCE]))
        self._scene.report_lists(vm, *HAVE[name])

    async def _shut_down(self, name: str, vm: Machine) -> None:
        self._scene.stop(vm)
        self._scene.say_ready(name, self._dice.choice(["Unknown", "False"]))
        await asyncio.sleep(self._dice.choice([1, 60]))
        self._scene.start(vm)
        await asyncio.sleep(self._dice.choice([0, 20]))
        self._scene.report_lists(vm, *HAVE[name])
        self._scene.say_ready(name, "True")

    async def _claim(self, _name: str, _vm: Machine) -> None:
        server, addresses = self._scene.harvester_server, [one for nics in HAVE.values() for nic in nics for one in nic]
        if f"{NAMESPACE}/lb" in server.of(BALANCER):
            server.remove(BALANCER, f"{NAMESPACE}/lb")
        else:
            status = {"address": self._dice.choice(addresses)}
            server.put(BALANCER, {"metadata": {"name": "lb", "namespace": NAMESPACE}, "status": status})

    async def _serve(self, _name: str, _vm: Machine) -> None:
        server = self._scene.guest_server
        if "shop/web" in server.of(SERVICE):
            server.remove(SERVICE, "shop/web")
            return
        claimed = ",".join(one for nics in HAVE.values() for nic in nics for one in nic)
        finalizers = self._dice.choice([[], [SERVICE_FINALIZER]])
        meta = {
            "name": "web",
            "namespace": "shop",
            "finalizers": finalizers,
            "annotations": {KUBE_VIP_ADDRESSES: claimed},
        }
        server.put(SERVICE, {"metadata": meta, "spec": {"type": self._dice.choice(["ClusterIP", "LoadBalancer"])}})

    async def _taint(self, name: str, _vm: Machine) -> None:
        self._scene.guest_server.change(NODE, name, {"spec": {"taints": [TAINT]}})

    async def _join_anew(self, name: str, vm: Machine) -> None:
        self._scene.guest_server.remove(NODE, name)
        await asyncio.sleep(self._dice.choice([0, 5]))
        register(self._scene, name, vm)

    async def _restore(self, name: str, vm: Machine) -> None:
        self._scene.destroy(vm)
        await asyncio.sleep(self._dice.choice([0, 5]))
        self._scene.boot(vm)
        await asyncio.sleep(self._dice.choice([0, 20]))
        self._scene.report_lists(vm, *HAVE[name])

    async def _meddle(self, name: str, _vm: Machine) -> None:
        self._scene.guest_server.change(NODE, name, {"metadata": {"labels": {ZONE: "elsewhere"}}})


def register(scene: NodeWorld, name: str, vm: Machine) -> None:
    """Have the kubelet register its Node."""
    annotations = {PROVIDED_NODE_IP: PROVIDED[name]} if PROVIDED[name] else {}
    scene.join(name, system_uuid=vm.system_uuid, **annotations)


@pytest.mark.parametrize("seed", range(6))
def test_random_hour(seed: int, thorough: bool) -> None:
    for game in range(6 if thorough else 1):
        _play(f"{seed} {game}")


def _play(seed: str) -> None:
    @jumping_time
    async def run() -> None:
        dice, scene = Random(seed), NodeWorld()
        wrong: list[str] = []
        for name, vm in VMS.items():
            scene.boot(vm)
            scene.report_lists(vm, *HAVE[name])
            register(scene, name, vm)
        for _ in range(PARTS):
            judge, adversary = Judge(scene), Adversary(scene, dice)
            scene.guest_server.fault = judge
            async with scene.live():
                await initialised(scene, list(VMS), 1200)
                for _ in range(12):
                    await adversary.act()
                await asyncio.sleep(dice.choice([0, 700]))
            wrong += judge.wrong
            assert not wrong, str(wrong)
            last, scene = scene, NodeWorld(after=scene)
        scene.guest_server.fault = None
        async with scene.live():
            await asyncio.sleep(1800)
        shown = {name: internal(scene.stored(name)["status"]["addresses"]) for name in VMS}
        assert {name: addresses for name, addresses in shown.items() if addresses not in EXPECTED[name]} == {}
        assert [scene.taints(name) for name in VMS] == [[], [], []]
        assert SHUTDOWN_TAINT not in str(scene.guest_server.of(NODE))
        assert scene.stored("w2")["metadata"]["labels"][ZONE] == "zone-a"
        assert set(last.harvester_server.of(VM)) == set(last.harvester_server.of(VMI))

    run()
