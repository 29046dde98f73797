"""Nodes of the guest cluster whose VMs run in Harvester, with small servers behind their node ports.

Node ``n`` is the VM ``node-<n>`` with address 192.0.2.<n>, which is played on 127.0.2.<n> (see
``devenv.harvester.routes``). What listens there on a node port answers with the name of the node. It has no kubelet:
a Node is a record.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from contextlib import suppress
from types import TracebackType
from typing import Final, Self

from devenv.echo import EchoServers
from devenv.harvester.machines import Machine, Machines
from devenv.harvester.routes import loopback_of
from devenv.watch import Document, documents
from harvester_ccm.errors import NotFound
from harvester_ccm.kube.client import ApiClient
from harvester_ccm.model.core import Service

NODES: Final = documents("", "v1", "nodes", kind="Node", namespaced=False)
POD_NETWORK: Final = ""


def name_of(number: int) -> str:
    """Return the name of a node and of its VM."""
    return f"node-{number}"


def address_of(number: int) -> str:
    """Return the address that Harvester knows of a node's VM."""
    return f"192.0.2.{number}"


class GuestNodes:
    """The nodes of one guest cluster. Use as an async context manager; at its end nodes, VMs and servers are gone."""

    def __init__(
        self,
        guest: ApiClient,
        harvester: ApiClient,
        *,
        cluster: str = "demo",
        networks: tuple[str, ...] = (POD_NETWORK,),
    ) -> None:
        """``networks``: one NIC of every VM for each, ``namespace/name`` or the pod network."""
        self.machines = Machines(harvester)
        self._guest = guest
        self._cluster = cluster
        self._networks = networks
        self._servers = EchoServers()
        self._numbers: dict[int, None] = {}

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._servers.close()
        for number in self._numbers:
            await self.remove(number)
            with suppress(NotFound):
                await self.machines.delete(self.machine(number))

    def machine(self, number: int) -> Machine:
        """Return the VM of a node."""
        return Machine(name_of(number), cluster=self._cluster, networks=self._networks)

    async def add(self, *numbers: int) -> None:
        """Make a running VM and a Node for each number."""
        for number in numbers:
            self._numbers[number] = None
            vm = await self.machines.create(self.machine(number), address_of(number))
            await self._guest.create(NODES, _node(number, vm["metadata"]["uid"]))

    async def change(self, number: int, patch: Mapping[str, object]) -> None:
        """Change a Node by a JSON merge patch. Raises NotFound."""
        await self._guest.merge_patch(NODES, name_of(number), patch)

    async def remove(self, number: int) -> None:
        """Delete a Node; its VM stays. One that is gone is fine."""
        with suppress(NotFound):
            await self._guest.delete(NODES, name_of(number))

    async def listen(self, service: Service, *numbers: int) -> None:
        """Let nodes, by default all, answer on every node port of a Service, as kube-proxy does."""
        for number in numbers or self._numbers:
            await self._servers.open(name_of(number), _place(number), _node_ports(service))

    def fail(self, *numbers: int) -> None:
        """Let nodes answer on no port any more."""
        for number in numbers:
            self._servers.close(_place(number))


def _place(number: int) -> str:
    place = loopback_of(address_of(number))
    assert place is not None
    return place


def _node_ports(service: Service) -> Iterable[tuple[str, int]]:
    return [(port.protocol, port.node_port) for port in service.spec.ports if port.node_port]


def _node(number: int, vm_uid: str) -> Document:
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": name_of(number)},
        "spec": {"providerID": f"harvester://{vm_uid}"},
        "status": {"conditions": [{"type": "Ready", "status": "True", "reason": "KubeletReady"}]},
    }
