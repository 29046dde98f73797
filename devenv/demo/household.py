"""A guest cluster that looks lived in: three nodes with their VMs, and Services with backends that answer."""

from __future__ import annotations

import asyncio
from typing import Final

from devenv.demo.hosted import CHECK, PORT
from devenv.demo.play import Play
from devenv.guestnodes import GuestNodes, address_of, name_of
from devenv.harvester.machines import Machine, Machines
from devenv.kubelets import Kubelet, Kubelets
from devenv.stage import until
from harvester_ccm.names import UNINITIALIZED_TAINT

NUMBERS: Final = (1, 2, 3)
WEB: Final = "web"
WEB_PORT: Final = 18080
PORTAL: Final = "portal"
PORTAL_PORT: Final = PORT
SECONDS: Final = 60.0


class Household:
    """The nodes, their VMs and what answers on their node ports."""

    def __init__(self, play: Play, backends: GuestNodes) -> None:
        self._stage = play.stage
        self._backends = backends
        self.machines = Machines(play.stage.host)
        self.kubelets = Kubelets(play.stage.guest)

    async def move_in(self) -> None:
        """Make the nodes and two Services: ``web`` announced by kube-vip, ``portal`` balanced by Harvester."""
        await asyncio.gather(*(self.join(number) for number in NUMBERS))
        await until(self._all_initialised, within=SECONDS, what="nodes without the taint")
        stage = self._stage
        await stage.create_service(WEB, ports=[{"name": "http", "port": WEB_PORT}])
        await stage.create_service(PORTAL, ports=[{"name": "http", "port": PORTAL_PORT}], annotations=CHECK)
        await self.answer()
        await stage.served(WEB, PORTAL, within=SECONDS)

    async def join(self, number: int, *, agent: bool = True) -> None:
        """Start a VM and let its kubelet register; without an ``agent`` in the VM nobody knows its address."""
        vm = machine(number)
        await self.machines.create(vm, *([address_of(number)] if agent else []))
        await self.kubelets.register(Kubelet(vm.name, system_uuid=vm.system_uuid))

    async def leave(self, number: int) -> None:
        """Delete a node and its VM. Raises NotFound."""
        await self.kubelets.remove(name_of(number))
        await self.machines.delete(machine(number))

    async def answer(self) -> None:
        """Let every node answer on the node ports of all Services there are now, as kube-proxy does."""
        for service in await self._stage.services(None):
            await self._backends.listen(service, *NUMBERS)

    async def _all_initialised(self) -> bool:
        nodes = (await self._stage.nodes()).values()
        return not any(taint.key == UNINITIALIZED_TAINT for node in nodes for taint in node.spec.taints)


def machine(number: int) -> Machine:
    """Return the VM of a node."""
    return Machine(name_of(number), zone=f"rack-{number}", region="home")
