"""The virtual IPs of load balancers, for Nodes: they appear on the nodes' interfaces and are no addresses of Nodes.

A virtual IP counts for ``LINGER_SECONDS`` after it was removed, because guest agents report it for a while.
"""

from collections import OrderedDict
from typing import Final

from msgspec import Struct

from harvester_ccm.kube.clock import loop_time
from harvester_ccm.kube.informer import Informer
from harvester_ccm.model.core import Service
from harvester_ccm.model.harvester import ClusterIdentity, LoadBalancer
from harvester_ccm.plan.service.ownership.virtual_ips import (
    VirtualIPIndex,
    owner_of_load_balancer,
    owner_of_service,
    virtual_ips_of_load_balancer,
    virtual_ips_of_service,
)
from harvester_ccm.plan.service.scope import is_in_scope

LINGER_SECONDS: Final = 120.0


class _Removed(Struct, frozen=True):
    """The end of a virtual IP."""

    owner: str
    """The object that had the address."""
    at: float
    """Loop time."""


class VirtualAddresses:
    """The ``VirtualIPs`` of the controllers."""

    def __init__(
        self, services: Informer[Service], load_balancers: Informer[LoadBalancer], cluster: ClusterIdentity
    ) -> None:
        """The informers have the index VIRTUAL_IP."""
        self._cluster = cluster
        self._present = VirtualIPIndex(services, load_balancers, cluster)
        self._removed: OrderedDict[str, _Removed] = OrderedDict()
        """The former virtual IPs, the one that was removed longest ago first."""
        services.on_change(self._service_changed)
        load_balancers.on_change(self._load_balancer_changed)

    @property
    def listed(self) -> bool:
        """Whether Services and load balancers were listed, or cannot be listed."""
        return self._present.listed

    def owner(self, address: str) -> str:
        """Return the object that has the address; empty if it is no virtual IP."""
        present = self._present.owner(address)
        if present:
            return present
        removed = self._removed.get(address)
        if removed is None or loop_time() - removed.at >= LINGER_SECONDS:
            return ""
        return f"{removed.owner}, which had it in the last {LINGER_SECONDS:.0f} s"

    def _service_changed(self, old: Service | None, _new: Service | None) -> None:
        if old is not None and is_in_scope(old, self._cluster):
            self._remember(virtual_ips_of_service(old), owner_of_service(old))

    def _load_balancer_changed(self, old: LoadBalancer | None, _new: LoadBalancer | None) -> None:
        if old is not None:
            self._remember(virtual_ips_of_load_balancer(old), owner_of_load_balancer(old))

    def _remember(self, addresses: set[str], owner: str) -> None:
        """Record addresses that an object had before its last change; of those that it still has, ``owner`` knows."""
        now = loop_time()
        for address in addresses:
            self._removed.pop(address, None)
            self._removed[address] = _Removed(owner, now)
        while self._removed:
            oldest, removed = next(iter(self._removed.items()))
            if now - removed.at < LINGER_SECONDS:
                break
            del self._removed[oldest]
