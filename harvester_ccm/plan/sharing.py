"""Sharing an address: which Service may use another one's, decided from annotations alone.

The answer depends only on what is stored on the Services, so all of them come to the same one whatever the order of
events. A primary has an address of its own; its secondaries may not use its ports or each other's. Among secondaries
those already served on this address come first, then the older ones.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterable
from dataclasses import dataclass

from harvester_ccm.model.core import Service
from harvester_ccm.names import PRIMARY_SERVICE, PRIMARY_SERVICE_LABEL, SERVICE_FINALIZER, Reason
from harvester_ccm.plan.refusal import Note
from harvester_ccm.plan.request import invalid, primary_reference
from harvester_ccm.plan.selection import wants_load_balancer

MAX_LABEL = 63


@dataclass(frozen=True)
class Sharing:
    """Whether a secondary may use its primary's address."""

    address: str = ""
    """The shared address, when it may and there is one."""
    note: Note | None = None
    """Why not, for the user."""
    waiting: bool = False
    """Whether the obstacle is expected to pass by itself."""


def share(service: Service, primary: Service | None, sharers: Iterable[Service], *, class_only: bool) -> Sharing:
    """Return whether ``service`` may share the address of ``primary``, the one it names (None: not found)."""
    reference = primary_reference(service) or ""
    namespace, slash, name = reference.partition("/")
    if not (namespace and slash and name) or "/" in name:
        return Sharing(note=invalid(PRIMARY_SERVICE, reference, "namespace/name of a Service of type LoadBalancer"))
    why = _obstacle(service, primary, reference, class_only=class_only)
    if primary is None or why:
        return _refuse(why)
    clash = port_clashes(primary, (service, *sharers), class_only=class_only).get(service.metadata.key)
    if clash is not None:
        return _refuse(clash)
    return Sharing(address=primary.addresses[0]) if primary.addresses else Sharing(waiting=True)


def _obstacle(service: Service, primary: Service | None, reference: str, *, class_only: bool) -> str:
    """Return why the primary itself cannot be one for this Service; empty when it can."""
    if primary is None:
        return f"Service {reference} does not exist. Create it, or correct annotation {PRIMARY_SERVICE}"
    if primary.metadata.key == service.metadata.key:
        return f"It names itself as its primary. Remove annotation {PRIMARY_SERVICE}"
    further = primary_reference(primary)
    if further is not None:
        return f"Service {reference} itself shares the address of {further}. Name {further} as primary instead"
    if primary.metadata.deleting:
        return f"Service {reference} is being deleted. Name another primary, or give this Service its own address"
    if not _is_served_by_us(primary, class_only=class_only):
        return f"Service {reference} has no load balancer of Harvester. Its type must be LoadBalancer"
    return ""


def _is_served_by_us(service: Service, *, class_only: bool) -> bool:
    # Whether a load balancer exists is not known here; our finalizer stands for it.
    owned = service.metadata.has_finalizer(SERVICE_FINALIZER)
    return wants_load_balancer(service, class_only=class_only, owned=owned)


def _refuse(why: str) -> Sharing:
    return Sharing(note=Note("Warning", Reason.SHARING_REFUSED, f"The address cannot be shared. {why}"))


def port_clashes(primary: Service, sharers: Iterable[Service], *, class_only: bool) -> dict[str, str | None]:
    """Return for each Service that wants the primary's address why a port of it is taken, or None if it may share.

    TCP and UDP of one number are different ports.
    """
    taken = {(port.protocol, port.port): primary.metadata.key for port in primary.spec.ports}
    verdicts: dict[str, str | None] = {}
    label = primary_label(primary.metadata.key)
    for one in sorted(sharers, key=lambda one: _rank(one, label)):
        if not _is_served_by_us(one, class_only=class_only):
            continue
        ports = {(port.protocol, port.port) for port in one.spec.ports}
        clashing = sorted(ports & taken.keys())
        verdicts[one.metadata.key] = _clash(clashing[0], taken[clashing[0]]) if clashing else None
        if not clashing:
            taken.update(dict.fromkeys(ports, one.metadata.key))
    return verdicts


def _clash(port: tuple[str, int], owner: str) -> str:
    return (
        f"Port {port[1]}/{port[0]} is used on this address by Service {owner}. Choose another port, or another primary"
    )


def approved(primary: Service, sharers: Iterable[Service], *, class_only: bool) -> tuple[Service, ...]:
    """Return the Services that may share the primary's address, in the order in which they were accepted."""
    by_key = {one.metadata.key: one for one in sharers}
    verdicts = port_clashes(primary, by_key.values(), class_only=class_only)
    return tuple(by_key[key] for key, clash in verdicts.items() if clash is None)


def _rank(service: Service, label: str) -> tuple[bool, str, str]:
    meta = service.metadata
    return (meta.label(PRIMARY_SERVICE_LABEL) != label, meta.creation_timestamp or "", meta.key)


def primary_label(primary_key: str) -> str:
    """Return the value of the label that marks a secondary; where it would be too long, a checksum ends it."""
    value = primary_key.replace("/", ".", 1)
    return value if len(value) <= MAX_LABEL else f"{value[: MAX_LABEL - 9]}-{zlib.crc32(value.encode()):08x}"


def labelled_primary(service: Service) -> str | None:
    """Return the ``namespace/name`` of the Service whose address this one was last served with, or None.

    A shortened label says nothing here. A namespace has no dots in its name.
    """
    label = service.metadata.label(PRIMARY_SERVICE_LABEL) or ""
    return label.replace(".", "/", 1) or None
