"""What kube-vip has noted on Services: the node that announces the address of each (annotation ``vipHost``).

kube-vip writes the note when it announces an address in ARP mode, and in BGP mode since 1.0. It never removes one. So a
note shows that an address was announced once, and the notes of all Services show what kube-vip works on.
"""

from collections.abc import Iterator
from enum import StrEnum, auto
from math import inf
from typing import Final

from msgspec import Struct

from harvester_ccm.kube.store import Store
from harvester_ccm.model.core import Service
from harvester_ccm.names import SERVICE_FINALIZER
from harvester_ccm.plan.service.kube_vip import noted_node, read_state
from harvester_ccm.plan.service.scope import has_other_class

BY_VIP_HOST: Final = "vipHost"
"""Index of managed Services by the node that kube-vip has noted."""
BY_PROGRESS: Final = "progress"
"""Index of managed Services by ``Progress``."""


class Progress(StrEnum):
    """How far kube-vip has come with a managed Service, in the cases that explain others."""

    NOTED_WITH_CLASS = auto()
    """It has noted a node on a Service with this controller's class."""
    NOTED_WITHOUT_CLASS = auto()
    """It has noted a node on a Service without a class."""
    AWAITS_LEASE = auto()
    """It is to get an address from DHCP. Until a DHCP server answers, other Services can wait behind this one."""


class Announcements(Struct, frozen=True):
    """What the notes of kube-vip on all managed Services show."""

    with_class: bool = False
    """Whether kube-vip has announced a Service with this controller's class."""
    without_class: bool = False
    """Whether kube-vip has announced a Service without a class."""
    awaits_lease: str = ""
    """The key of a Service that waits for an address from DHCP; empty if none does."""
    last_at: float = -inf
    """When a note last appeared on a Service, in seconds of the monotonic clock."""

    @property
    def exist(self) -> bool:
        """Whether kube-vip has noted a node on any managed Service."""
        return self.with_class or self.without_class


def announcements_of(services: Store[Service], last_at: float) -> Announcements:
    """Return what the notes on Services show; ``services`` has the index BY_PROGRESS."""
    waiting = services.first_by_index(BY_PROGRESS, Progress.AWAITS_LEASE)
    awaits_lease = "" if waiting is None else waiting.metadata.key
    return Announcements(
        with_class=services.first_by_index(BY_PROGRESS, Progress.NOTED_WITH_CLASS) is not None,
        without_class=services.first_by_index(BY_PROGRESS, Progress.NOTED_WITHOUT_CLASS) is not None,
        awaits_lease=awaits_lease,
        last_at=last_at,
    )


def is_node_of_kube_vip(services: Store[Service], node: str) -> bool:
    """Return whether kube-vip has announced an address on a node; ``services`` has the index BY_VIP_HOST."""
    return services.first_by_index(BY_VIP_HOST, node) is not None


def vip_host(service: Service | None) -> str:
    """Return the node that kube-vip has noted on a Service; empty if it has noted none."""
    return "" if service is None else noted_node(service) or ""


def vip_hosts_of(service: Service) -> frozenset[str]:
    """Return the values of a Service in the index BY_VIP_HOST."""
    return frozenset({vip_host(service)} - {""}) if _is_managed(service) else frozenset()


def progress_of(service: Service) -> Iterator[str]:
    """Yield the values of a Service in the index BY_PROGRESS."""
    if not _is_managed(service):
        return
    kube_vip = read_state(service)
    if kube_vip.node:
        has_class = service.spec.load_balancer_class is not None
        yield Progress.NOTED_WITH_CLASS if has_class else Progress.NOTED_WITHOUT_CLASS
    if kube_vip.is_for_lease and not kube_vip.status:
        yield Progress.AWAITS_LEASE


def _is_managed(service: Service) -> bool:
    """Return whether this controller manages a Service, as far as the Service itself shows it."""
    is_requested = service.spec.type == "LoadBalancer" and not has_other_class(service)
    return is_requested and service.metadata.has_finalizer(SERVICE_FINALIZER)
