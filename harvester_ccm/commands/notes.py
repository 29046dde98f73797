"""What waits in the cluster although this controller has nothing to do about it, for ``status``.

An operator who reads "All is well." does not look any further. So each Service without an address, each Node that is
not usable and each deletion that does not end has at least a note with the reason, whoever has to act.
"""

from collections.abc import Iterable, Iterator, Sequence
from typing import Final

from harvester_ccm.commands.states import UNANNOUNCED, ObjectStatus, Planned, State
from harvester_ccm.model.core import Node, Service
from harvester_ccm.model.event import abbreviate
from harvester_ccm.plan.node.decision import NodePlan
from harvester_ccm.plan.node.patch import uninitialized_taints
from harvester_ccm.plan.service.scope import finalizer_remedy

PlannedNode = tuple[Node, NodePlan, ObjectStatus]
"""A Node with its plan and its status."""
_UNMANAGED: Final = "not managed by this controller"


def service_notes(planned: Iterable[Planned]) -> Iterator[str]:
    """Yield the notes about Services: one for each text, with the Services that have it."""
    about: list[tuple[str, str]] = []
    for entry in planned:
        # Something is not known, or nothing is announced although nothing is wrong.
        unannounced = (event.prose for event in entry.plan.events if event.reason in UNANNOUNCED)
        texts = (*_about_service(entry.service, entry.status), *unannounced)
        about.extend((entry.service.metadata.key, text) for text in texts)
    yield from grouped("Service", about)


def _about_service(service: Service, status: ObjectStatus) -> Iterator[str]:
    if status.state is State.DELETING and not status.reasons:
        yield "is being deleted, and waits for its load balancer to be deleted"
    if status.state is not State.UNMANAGED or service.spec.type != "LoadBalancer":
        return
    reason = status.reasons[0].message
    if service.metadata.deleting:
        yield f"{_UNMANAGED}: {reason}"
    elif not service.status.load_balancer.ingress:
        yield f"without an address, and {_UNMANAGED}: {reason}"


def grouped(kind: str, texts: Iterable[tuple[str, str]]) -> Iterator[str]:
    """Yield a note for each text, with the names of the objects that have it."""
    names_by_text: dict[str, list[str]] = {}
    for name, text in texts:
        names_by_text.setdefault(text, []).append(name)
    for text, names in names_by_text.items():
        yield f"{kind} {abbreviate(sorted(names))}: {text}".lstrip()


def node_notes(planned: Iterable[PlannedNode]) -> Iterator[str]:
    """Yield the notes about Nodes. Unmanaged ones differ in each text, so they share a note by their reason."""
    unmanaged: dict[str, list[tuple[str, str]]] = {}
    for node, plan, status in planned:
        name = node.metadata.name
        if node.metadata.deleting:
            yield _being_deleted(node)
        elif status.state is State.UNMANAGED:
            reason = status.reasons[0]
            unmanaged.setdefault(reason.reason, []).append((name, f"{_condition_of(node)}{reason.message}"))
        yield from _unreported(node, plan)
    for entries in unmanaged.values():
        yield _unmanaged(entries)


def _being_deleted(node: Node) -> str:
    name = node.metadata.name
    if not node.metadata.finalizers:
        return f"Node {name}: is being deleted"
    finalizers = abbreviate(node.metadata.finalizers)
    return f"Node {name}: is being deleted. It waits for finalizers: {finalizers}. {finalizer_remedy(f'node {name}')}"


def _unmanaged(entries: Sequence[tuple[str, str]]) -> str:
    """Return the note about Nodes, each with its text, that are not managed for the same reason."""
    names = abbreviate(sorted(name for name, _ in entries))
    first, text = min(entries)
    about = "" if len(entries) == 1 else f" Of {first}:"
    return f"Node {names}: {_UNMANAGED}.{about} {text}"


def _condition_of(node: Node) -> str:
    """Return the states of a Node that Kubernetes shows."""
    uninitialized = "It is not initialized. " if uninitialized_taints(node) else ""
    return uninitialized if node.ready == "True" else f"{uninitialized}It is NotReady. "


def _unreported(node: Node, plan: NodePlan) -> Iterator[str]:
    """Yield the addresses of an initialized Node that its VM does not report."""
    if uninitialized_taints(node):
        return
    chosen = {entry.address for entry in plan.addresses.addresses}
    for address in plan.addresses.missing:
        if str(address) in chosen:
            yield (
                f"Node {node.metadata.name}: has address {address}, which its VM does not report. If this stays, "
                "correct the kubelet's --node-ip, the address of the VM, or check qemu-guest-agent"
            )
