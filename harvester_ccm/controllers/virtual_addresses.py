"""The virtual IPs of load balancers, for Nodes: they appear on the nodes' interfaces and are no addresses of Nodes.

A virtual IP counts for ``LINGER_SECONDS`` after it was removed, because guest agents report it for a while.
"""

from collections import OrderedDict
from collections.abc import Callable
from typing import Final

from harvester_ccm.kube.informer import Informer
from harvester_ccm.kube.workqueue import loop_time
from harvester_ccm.model.core import Service
from harvester_ccm.model.harvester import ClusterIdentity, LoadBalancer
from harvester_ccm.plan.service.scope import is_served_by_us
from harvester_ccm.plan.service.virtual_ips import VirtualIPIndex, virtual_ips_of_load_balancer, virtual_ips_of_service

LINGER_SECONDS: Final = 120.0


class VirtualAddresses:
    """The ``VirtualIPs`` of the controllers."""

    def __init__(
        self, services: Informer[Service], load_balancers: Informer[LoadBalancer], cluster: ClusterIdentity
    ) -> None:
        """The informers have the index VIRTUAL_IP."""
        self._informers = services, load_balancers
        self._cluster = cluster
        self._present = VirtualIPIndex(services, load_balancers, cluster)
        self._removed: OrderedDict[str, float] = OrderedDict()
        """Loop time at which each address was removed, the longest ago first."""
        of_service, of_load_balancer = self._of_service, virtual_ips_of_load_balancer
        services.on_change(lambda old, new: self._changed(of_service(old), of_service(new)))
        load_balancers.on_change(lambda old, new: self._changed(of_load_balancer(old), of_load_balancer(new)))

    @property
    def listed(self) -> bool:
        """Whether Services and load balancers were listed, or cannot be listed."""
        return self._present.listed

    def owner(self, address: str) -> str:
        """Return the object that has the address; empty if it is no virtual IP."""
        removed_at = self._removed.get(address)
        is_recent = removed_at is not None and loop_time() - removed_at < LINGER_SECONDS
        return self._present.owner(address) or ("a load balancer that was deleted recently" if is_recent else "")

    def on_state(self, callback: Callable[[], None]) -> None:
        """Call ``callback`` when ``listed`` can have changed."""
        for informer in self._informers:
            informer.on_state(callback)

    def _of_service(self, service: Service | None) -> set[str]:
        if service is None or not is_served_by_us(service, self._cluster):
            return set()
        return virtual_ips_of_service(service)

    def _changed(self, before: set[str], after: set[str]) -> None:
        now = loop_time()
        for address in before - after:
            self._removed.pop(address, None)
            self._removed[address] = now
        while self._removed:
            oldest, removed_at = next(iter(self._removed.items()))
            if now - removed_at < LINGER_SECONDS:
                break
            del self._removed[oldest]
