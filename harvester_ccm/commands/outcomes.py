"""The answers of plans in words: what a Service waits for, or why nothing more is done."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from harvester_ccm.model.outcome import Done, Outcome, Refused, Retry, Wait

Document = dict[str, object]

MEANINGS: Final[Mapping[str, str]] = {
    "announcing": "the kube-vip of Harvester itself to announce the address",
    "allocating": "Harvester to finish booking an address, which takes moments",
    "backends": "the nodes to answer Harvester's health check, before anybody is told that they do not",
    "booking": "Harvester to finish booking the address, so that the deletion does not lose it",
    "dhcp": "kube-vip in this cluster to get an address from DHCP",
    "foreign_load_balancer": "the name of its load balancer, which another cluster's load balancer has",
    "harvester_unavailable": "Harvester to answer; nothing is decided while its load balancers cannot be read",
    "leaving_primary": "the shared address to be given up, before it gets one of its own",
    "machines": "Harvester to list the VMs, which are the backends",
    "no_matching_pool": "an IP pool in Harvester that fits this Service",
    "no_such_pool": "the IP pool that the load balancer names to be there and ready",
    "node_ports": "Kubernetes to allocate node ports for the Service",
    "not_processed": "Harvester's load balancer controller to look at the load balancer",
    "not_servable": "a change of the Service: as it is, no load balancer of Harvester can serve it",
    "old_load_balancer": "the old load balancer to be gone in Harvester",
    "other": "Harvester to give an address; its message is in the Event",
    "pool_exhausted": "a free address in the IP pool",
    "primary": "the primary Service, whose address it shares",
    "secondaries": "the Services that share its address to let it go",
    "switching": "the old load balancer and its parts to be gone, before one of the other workload type is created",
    "touch": "the moment to write the recreated load balancer once more, so that Harvester restores its parts",
}
"""What each word of an outcome stands for."""


def outcome_document(outcome: Outcome) -> Document:
    """Return the outcome for scripts: ``result``, and ``reason``, ``meaning``, ``atMost`` (seconds) where there are."""
    match outcome:
        case Done():
            return {"result": "done"}
        case Wait(reason=reason, at_most=at_most):
            limit = {} if at_most is None else {"atMost": round(at_most, 3)}
            return {"result": "wait", "reason": reason, "meaning": meaning_of(reason), **limit}
        case Retry(after=after):
            return {"result": "retry", "atMost": round(after, 3)}
        case Refused(reason=reason):
            return {"result": "refused", "reason": reason, "meaning": meaning_of(reason)}


def outcome_sentence(outcome: Outcome) -> str:
    """Return the outcome for people."""
    match outcome:
        case Done():
            return "nothing: with this, all is as it should be"
        case Wait(reason=reason, at_most=at_most):
            limit = "" if at_most is None else f"; looked at again after {at_most:.0f} s at the latest"
            return f"{meaning_of(reason)}{limit}"
        case Retry(after=after):
            return f"the next try, in {after:.0f} s"
        case Refused(reason=reason):
            return meaning_of(reason)


def meaning_of(reason: str) -> str:
    """Return what a reason stands for; an unknown one as it is."""
    return MEANINGS.get(reason, reason.replace("_", " "))
