"""The ranking of the Services that ask for one address: which of them may use it.

It follows from the stored Services alone, so all of them come to the same answer. They are ranked: those that already
have the address first, then older ones. Each gets its ports unless the primary or one before it has any of them.

A tenant can have thousands of Services share one address. ``SharingFields`` has everything that the plan of one Service
reads of another one. Any other change of a Service concerns no other Service, and a ranking is kept until one of these
fields changes.
"""

from collections.abc import Iterable, Mapping
from typing import Final

from msgspec import Struct, field

from harvester_ccm import names
from harvester_ccm.kube.store import Store
from harvester_ccm.model.core import Service, ServicePort
from harvester_ccm.model.harvester import ClusterIdentity
from harvester_ccm.plan.service.announcing.seen import read_seen
from harvester_ccm.plan.service.request import is_in_network, primary_reference
from harvester_ccm.plan.service.scope import (
    BY_PRIMARY,
    has_other_class,
    is_managed,
    is_served_by_us,
    may_share,
    primaries_of,
    primary_label,
)
from harvester_ccm.plan.service.supported import unsupported_reason

MAX_SHARED_PORTS: Final = 2000
"""Ports that other Services can have on an address. Each is a listener of a VM load balancer. With tens of thousands,
Harvester could not store it any more, nor a change of its backends."""


class SharingFields(Struct, frozen=True):
    """Everything that the plans of other Services read of a Service: of their primary, or of their secondary."""

    key: str
    uid: str
    created: str
    deleting: bool
    type: str
    is_served: bool
    """Whether this controller serves it."""
    is_managed: bool
    """Whether this controller serves it or is removing it."""
    is_supported: bool
    """Whether a load balancer of Harvester can serve it, if kube-vip announces the address."""
    is_supported_by_vm: bool
    """The same, if Harvester announces the address."""
    may_share: bool
    """Whether ``--shared-address-scope`` permits the primary that it names."""
    has_condition: bool
    has_other_class: bool
    has_finalizer: bool
    ports: tuple[ServicePort, ...]
    network: str | None
    """The annotation as it is written: secondaries copy it."""
    primary: str
    """The primary that the Service names; empty without one."""
    label: str | None
    """The primary whose address the Service last had."""
    addresses: tuple[str, ...]
    """Those in the status."""
    announced: str | None
    """The address in the annotation of kube-vip."""
    specified: str
    """``spec.loadBalancerIP``."""
    is_ignored: bool
    """Whether kube-vip ignores the Service."""
    device: str | None
    """The device on which kube-vip announces the address."""

    def has_address_of(self, primary: "SharingFields", label: str) -> bool:
        """Return whether the Service has the address of a primary, whose secondaries have this label.

        Tenants can write the label of their Services, but not the status: the label counts only with an address there,
        which may be any one while the primary has none.
        """
        if self.label != label:
            return False
        if not primary.addresses:
            return bool(self.addresses)
        return not set(primary.addresses).isdisjoint(self.addresses)

    def can_be_served_with(self, primary: "SharingFields") -> bool:
        """Return whether a load balancer of the type of the primary's can serve the Service."""
        is_paused = primary.announced == "" and primary.is_ignored
        is_announced_by_harvester = bool(primary.addresses) and is_paused
        return self.is_supported_by_vm if is_announced_by_harvester else self.is_supported

    def is_in_network_of(self, primary: "SharingFields") -> bool:
        """Return whether the primary's address is in the network that the Service requests, or none is requested."""
        return is_in_network(self.network, primary.network)


def sharing_fields(service: Service, cluster: ClusterIdentity) -> SharingFields:
    """Return what the plans of other Services read of this one."""
    meta = service.metadata
    seen = read_seen(service)
    return SharingFields(
        key=meta.key,
        uid=meta.uid,
        created=meta.creation_timestamp or "",
        deleting=meta.deleting,
        type=service.spec.type,
        is_served=is_served_by_us(service, cluster),
        is_managed=is_managed(service, cluster),
        is_supported=unsupported_reason(service, is_vm=False) is None,
        is_supported_by_vm=unsupported_reason(service, is_vm=True) is None,
        may_share=may_share(service, primary_reference(service), cluster),
        has_condition=service.ready_condition is not None,
        has_other_class=has_other_class(service),
        has_finalizer=meta.has_finalizer(names.SERVICE_FINALIZER),
        ports=service.spec.ports,
        network=meta.annotation(names.NETWORK),
        primary=primary_reference(service),
        label=meta.label(names.PRIMARY_SERVICE_LABEL),
        addresses=service.addresses,
        announced=seen.address_annotation,
        specified=seen.specified,
        is_ignored=seen.ignored,
        device=seen.device,
    )


class Ranking(Struct, frozen=True):
    """Which Services may use the address of a primary."""

    clashes: Mapping[str, str] = field(default_factory=dict)
    """For each Service, by its key: which port another Service has, or that all have too many; empty if neither."""
    shared_ports: tuple[ServicePort, ...] = ()
    """The ports of the Services that may use the address, in order of rank; those of the primary are not among them."""


def rank(primary: SharingFields, secondaries: Iterable[SharingFields]) -> Ranking:
    """Return the ranking of the Services that name a primary, in the order of the cache.

    TCP and UDP of one number are different ports. Of the Services created in one second, the first one in the cache
    comes first: its patch may already be on the way when the others arrive.
    """
    label = primary_label(primary.key)
    used = dict.fromkeys(_ports_of(primary), primary.key)
    clashes: dict[str, str] = {}
    shared_ports: list[ServicePort] = []
    ranked = sorted(secondaries, key=lambda secondary: secondary.created)
    # Sorting is stable: within each half, the older one comes first.
    for secondary in sorted(ranked, key=lambda secondary: not secondary.has_address_of(primary, label)):
        if not _takes_part(secondary, primary, label):
            continue
        clash = _clash(secondary, used) or _excess(secondary, shared_ports, primary)
        clashes[secondary.key] = clash
        if clash:
            continue
        shared_ports.extend(secondary.ports)
        used.update(dict.fromkeys(_ports_of(secondary), secondary.key))
    return Ranking(clashes, tuple(shared_ports))


def _takes_part(secondary: SharingFields, primary: SharingFields, label: str) -> bool:
    """Return whether a Service may have ports of the address.

    One that has the address keeps it in any network, and although it asks for another IP family now.
    """
    if not secondary.is_served or not secondary.may_share:
        return False
    if secondary.has_address_of(primary, label):
        return True
    return secondary.is_in_network_of(primary) and secondary.can_be_served_with(primary)


def _clash(secondary: SharingFields, used: Mapping[tuple[str, int], str]) -> str:
    """Return which port of the Service another one has; empty if none has."""
    clash = min((port for port in _ports_of(secondary) if port in used), default=None)
    if clash is None:
        return ""
    protocol, number = clash
    return f"Port {number}/{protocol} is used on this address by Service {used[clash]}"


def _excess(secondary: SharingFields, shared_ports: list[ServicePort], primary: SharingFields) -> str:
    """Return that the ports of the Service are too many beside those that are shared already; empty if they are not."""
    if len(shared_ports) + len(secondary.ports) <= MAX_SHARED_PORTS:
        return ""
    # No number that changes with other Services: the text is in the condition.
    return (
        f"The Services that share the address of Service {primary.key} can have {MAX_SHARED_PORTS:,} ports together, "
        "and would have more with this one"
    )


def _ports_of(fields: SharingFields) -> set[tuple[str, int]]:
    """Return protocol and number of the ports."""
    return {(port.protocol, port.port) for port in fields.ports}


class Rankings:
    """The ranking for each primary, computed once after a change that concerns it.

    It is derived from the stored Services: without it, everything is computed again, with the same result.
    """

    def __init__(self, services: Store[Service], cluster: ClusterIdentity) -> None:
        """``services`` has the index BY_PRIMARY."""
        self._services = services
        self._cluster = cluster
        self._rankings: dict[str, Ranking] = {}
        """By the key of the primary."""
        self._fields: dict[str, tuple[Service, SharingFields]] = {}
        """What is read of each Service that shares an address, with the version that it was read of."""
        services.on_change(self._changed)

    def of(self, primary_key: str) -> Ranking:
        """Return the ranking of the Services that name a primary; it is empty for a primary that does not exist."""
        known = self._rankings.get(primary_key)
        if known is not None:
            return known
        primary = self._services.get(primary_key)
        named_by = self._services.by_index(BY_PRIMARY, primary_key)
        if primary is None or not named_by:
            return Ranking()
        fields = map(self._fields_of, named_by)
        secondaries = (secondary for secondary in fields if secondary.primary == primary_key)
        ranking = self._rankings[primary_key] = rank(self._fields_of(primary), secondaries)
        return ranking

    def concerned_by(self, old: Service | None, new: Service | None) -> set[str]:
        """Return the keys of the primaries whose families a change of a Service concerns, also of missing ones.

        A family is a primary and the Services that name it or last had its address. It is empty if no field has changed
        that another Service reads.
        """
        before = None if old is None else sharing_fields(old, self._cluster)
        after = None if new is None else sharing_fields(new, self._cluster)
        if before == after:
            return set()
        concerned: set[str] = set()
        for service in (old, new):
            if service is None:
                continue
            concerned.update(primaries_of(service))
            if self._services.by_index(BY_PRIMARY, service.metadata.key):
                concerned.add(service.metadata.key)
        return concerned

    def _fields_of(self, service: Service) -> SharingFields:
        key = service.metadata.key
        known = self._fields.get(key)
        if known is None or known[0] is not service:
            known = self._fields[key] = (service, sharing_fields(service, self._cluster))
        return known[1]

    def _changed(self, old: Service | None, new: Service | None) -> None:
        if old is not None:
            self._fields.pop(old.metadata.key, None)
        if not self._rankings:
            return
        for primary_key in self.concerned_by(old, new):
            self._rankings.pop(primary_key, None)
