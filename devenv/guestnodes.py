"""Nodes of the guest cluster with their VMs in Harvester, and small servers on their node ports.

Node ``n`` is the VM ``node-<n>`` with the address 192.0.2.<n>, whose server listens on 127.0.2.<n> (see
``devenv.harvester.routes``) and responds with the name of the node. There is no kubelet.
"""

from collections.abc import Mapping
from contextlib import suppress
from typing import Self

from devenv.echo import EchoServers
from devenv.harvester.machines import Machine, Machines
from devenv.harvester.routes import loopback_of
from devenv.kubelets import DOCUMENTS, Kubelet, node_document
from harvester_ccm.kube.client import ApiClient
from harvester_ccm.kube.errors import NotFound
from harvester_ccm.model.core import Service


def name_of(number: int) -> str:
    """Return the name of a node and of its VM."""
    return f"node-{number}"


def address_of(number: int) -> str:
    """Return the address of a node's VM."""
    return f"192.0.2.{number}"


class GuestNodes:
    """The nodes of one guest cluster. Use as an async context manager, which deletes nodes, VMs and servers."""

    def __init__(
        self, guest: ApiClient, harvester: ApiClient, *, cluster: str = "demo", networks: tuple[str, ...] = ("",)
    ) -> None:
        """``networks``: one NIC of every VM for each, ``namespace/name``; empty for the pod network."""
        self._machines = Machines(harvester)
        self._guest = guest
        self._cluster = cluster
        self._networks = networks
        self._servers = EchoServers()
        self._numbers: dict[int, None] = {}

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._servers.end()
        for number in self._numbers:
            await self.remove(number)
            with suppress(NotFound):
                await self._machines.delete(self._machine(number))

    def _machine(self, number: int) -> Machine:
        zone = f"rack-{number}"
        return Machine(name_of(number), cluster=self._cluster, networks=self._networks, zone=zone, region="home")

    async def join(self, number: int, *, agent: bool = True, address: str = "", node_ip: str = "") -> None:
        """Start a VM and register its Node with the taint. Without an ``agent`` in the VM its address is unknown.

        ``address``: another one than that of the number. ``node_ip``: the kubelet's ``--node-ip``.
        """
        machine = self._machine(number)
        self._numbers[number] = None
        addresses = [address or address_of(number)] if agent else []
        await self._machines.create(machine, *addresses)
        kubelet = Kubelet(machine.name, system_uuid=machine.system_uuid, node_ip=node_ip)
        await self._guest.create(DOCUMENTS, node_document(kubelet))

    async def leave(self, number: int) -> None:
        """Delete a Node, if it exists, and its VM. Raises NotFound."""
        await self.remove(number)
        await self.delete_vm(number)

    async def stop_vm(self, number: int) -> None:
        """Stop the VM of a Node. Raises NotFound."""
        await self._machines.stop(self._machine(number))

    async def delete_vm(self, number: int) -> None:
        """Delete the VM of a Node, which stays. Raises NotFound."""
        await self._machines.delete(self._machine(number))
        self._numbers.pop(number, None)

    async def add(self, *numbers: int) -> None:
        """Create a running VM and an initialized Node for each number."""
        for number in numbers:
            machine = self._machine(number)
            self._numbers[number] = None
            stored = await self._machines.create(machine, address_of(number))
            node = node_document(Kubelet(machine.name, system_uuid=machine.system_uuid))
            node["spec"] = {"providerID": f"harvester://{stored['metadata']['uid']}"}
            node["status"]["addresses"].append({"type": "InternalIP", "address": address_of(number)})
            await self._guest.create(DOCUMENTS, node)

    async def change(self, number: int, patch: Mapping[str, object]) -> None:
        """Send a JSON merge patch of a Node. Raises NotFound."""
        await self._guest.merge_patch(DOCUMENTS, name_of(number), patch)

    async def remove(self, number: int) -> None:
        """Delete a Node, if it exists; its VM stays."""
        with suppress(NotFound):
            await self._guest.delete(DOCUMENTS, name_of(number))

    async def listen(self, service: Service) -> None:
        """Listen on every node port of a Service on all nodes, as kube-proxy does."""
        ports = [(port.protocol, port.node_port) for port in service.spec.ports if port.node_port]
        for number in self._numbers:
            place = loopback_of(address_of(number))
            assert place is not None
            await self._servers.open(name_of(number), place, ports)
