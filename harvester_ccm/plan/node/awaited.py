"""Which addresses a VM should have and does not report, and what becomes of them meanwhile.

A guest agent leaves out an address for moments: while its lease is renewed, after a restart, or before the second
family is configured. So what the kubelet was given, and the InternalIP that a Node has, is waited for before anything
else takes its place.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from msgspec import Struct

from harvester_ccm.netip import IPAddress
from harvester_ccm.plan.node.interfaces import NetworkEvidence, read_addresses


class Awaited(Struct, frozen=True):
    """Addresses that are not reported."""

    pending: tuple[IPAddress, ...]
    """The kubelet's that are waited for: no other becomes the InternalIP of their family."""
    trusted: tuple[IPAddress, ...]
    """The kubelet's that were waited for long enough. A kubelet only names what it has found on its host."""
    kept: tuple[IPAddress, ...]
    """InternalIPs of now in whose place no other may come yet."""
    stand_ins: tuple[IPAddress, ...]
    """The other InternalIPs of now: they stay where there is no other of their family."""
    seconds: Mapping[IPAddress, float]
    """For how long each is waited for already, where something would take its place."""


def awaited_addresses(
    evidence: NetworkEvidence,
    reported: Sequence[IPAddress],
    elsewhere: Mapping[IPAddress, str],
    *,
    waited: Mapping[IPAddress, float],
    patience: float,
) -> Awaited:
    """Return what is waited for. ``elsewhere`` has the addresses on other interfaces, ``waited`` the seconds so far.

    A provided address is not looked for where the InternalIP of its family is reported: that one stays.
    """
    sought = _sought(evidence, reported)
    pending = tuple(address for address in sought if waited.get(address, 0.0) < patience)
    families = {address.version for address in pending}
    held, silent = _absent(evidence, reported, elsewhere)
    kept = [one for one in silent if waited.get(one, 0.0) < patience or one.version in families]
    replaceable = [one for one in silent if any(other.version == one.version for other in reported)]
    return Awaited(
        pending=pending,
        trusted=tuple(address for address in sought if address not in pending),
        kept=(*held, *kept),
        stand_ins=tuple(address for address in silent if address not in kept),
        seconds={address: waited.get(address, 0.0) for address in (*sought, *replaceable)},
    )


def _sought(evidence: NetworkEvidence, reported: Sequence[IPAddress]) -> tuple[IPAddress, ...]:
    """Return the kubelet's addresses that the VM does not report and the Node does not have."""
    settled = {address.version for address in evidence.present if address in reported}
    unseen = [address for address in evidence.provided if address not in (*reported, *evidence.present)]
    return read_addresses((str(address) for address in unseen if address.version not in settled), {})[0]


def _absent(
    evidence: NetworkEvidence, reported: Sequence[IPAddress], elsewhere: Mapping[IPAddress, str]
) -> tuple[list[IPAddress], list[IPAddress]]:
    """Return the InternalIPs of now that are not reported: those that stay, and those that are reported nowhere."""
    absent = [address for address in evidence.present if address not in reported]
    # Where no flag names a network, the VM has one on another interface as well as one on that which counts.
    held = [] if evidence.asked else [address for address in absent if address in elsewhere]
    return held, [address for address in absent if address not in elsewhere]
