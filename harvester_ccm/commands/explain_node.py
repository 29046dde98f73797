"""``explain node``: its VM, its addresses with the reason for each, what is wrong with it, and the next write."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import Final

from msgspec.structs import replace

from harvester_ccm.commands.clusters import ClusterStore, ask
from harvester_ccm.commands.explain_service import diff, plain, write
from harvester_ccm.commands.render import Document
from harvester_ccm.commands.verdict import judge_node, warnings_in
from harvester_ccm.config import LIFECYCLE_CONTROLLER, Settings
from harvester_ccm.errors import CCMError
from harvester_ccm.kube.client import ApiClient
from harvester_ccm.model.core import Node
from harvester_ccm.model.harvester import GUEST_OS_INFO, VIRTUAL_MACHINES, GuestOSInfo
from harvester_ccm.plan.node.addresses import AddressPlan
from harvester_ccm.plan.node.lifecycle import LifecyclePlan, is_absent, observe_lifecycle, plan_lifecycle, power
from harvester_ccm.plan.node.match import Match, find_vm, needs_hostname
from harvester_ccm.plan.node.patch import uninitialized_taints
from harvester_ccm.plan.node.vms import all_vms, has_queryable_guest

GUEST_AGENTS_QUERIED: Final = 50
"""Maximum number of guest agents that are queried for their host name to find the VM of one Node."""


async def explain_node(
    store: ClusterStore, name: str, settings: Settings, harvester: ApiClient
) -> tuple[Document, bool]:
    """Return the explanation of a Node, and whether all is well. Raises CCMError if there is no such Node."""
    node = store.nodes.get(name)
    if node is None:
        raise CCMError(f"there is no Node {name} in this cluster")
    if settings.nodes.asks_guests and needs_hostname(node, find_vm(store, node)):
        store.hostnames = await _hostnames(store, harvester)
    view, plan, verdict = judge_node(store, node, settings)
    is_gone = await _is_vm_absent(store, node, settings, harvester)
    lifecycle = LifecyclePlan()
    if LIFECYCLE_CONTROLLER in settings.controllers:
        # As if all confirmations had been made.
        absences = max(settings.nodes.deletion_confirmations, 2) if is_gone else 0
        lifecycle = plan_lifecycle(observe_lifecycle(store, node, settings.nodes, absences=absences))
    # An outage of Harvester is no problem of a Node that works, but here it explains why the VM is unknown.
    more = warnings_in([lifecycle.event, view.match.problem])
    verdict = replace(verdict, reasons=tuple(dict.fromkeys((*verdict.reasons, *more))))
    patches = [one for one in (plan.request, lifecycle.request) if one is not None]
    writes = [write(f"patch Node {name}", diff(plain(node), one.body)) for one in patches]
    if lifecycle.deletes:
        confirmations = settings.nodes.deletion_confirmations
        writes.append(write(f"delete Node {name}, after {confirmations} live GETs did not find its VM"))
    document = {
        "node": name,
        "initialized": not uninitialized_taints(node),
        "ready": node.ready,
        "providerId": node.spec.provider_id,
        "vm": _vm(view.match),
        "vmExistence": "present" if view.match.vm is not None else "absent" if is_gone else "unknown",
        "addresses": list(_addresses(plan.addresses)),
        **verdict.explained(),
        "nextWrites": writes,
        "notes": store.notes,
    }
    return document, not ((verdict.is_problem and not verdict.waits) or lifecycle.deletes or store.vms.problem)


async def _hostnames(store: ClusterStore, harvester: ApiClient) -> dict[str, str]:
    """Return VM names with the host names of their guests, which alone can show which VM the Node is."""
    vmis = [vm.vmi for vm in all_vms(store) if vm.vmi and has_queryable_guest(store, vm)][:GUEST_AGENTS_QUERIED]
    requests = (
        harvester.get(GUEST_OS_INFO, one.metadata.name, namespace=one.metadata.namespace, subresource="guestosinfo")
        for one in vmis
    )
    found = await asyncio.gather(*map(ask, requests))
    return {
        vmi.metadata.name: one.hostname
        for vmi, one in zip(vmis, found, strict=True)
        if isinstance(one, GuestOSInfo) and one.hostname
    }


async def _is_vm_absent(store: ClusterStore, node: Node, settings: Settings, harvester: ApiClient) -> bool:
    """Return whether a live GET confirms that the VM of a Node is gone."""
    view = observe_lifecycle(store, node, settings.nodes)
    if not (view.has_lost_vm and view.vm_name):
        return False
    found = await ask(harvester.get(VIRTUAL_MACHINES, view.vm_name, namespace=store.cluster.namespace))
    return isinstance(found, CCMError) and is_absent(found, view.vm_name)


def _addresses(plan: AddressPlan) -> Iterator[Document]:
    """Yield the published addresses in their order, then the others."""
    published = {one.address: one.type for one in plan.addresses}
    for address in dict.fromkeys((*published, *plan.reasons)):
        yield {"type": published.get(address, "dropped"), "address": address, "reason": plan.reasons.get(address, "")}


def _vm(match: Match) -> Document | None:
    vm = match.vm
    if vm is None:
        return None
    return {
        "name": vm.object.metadata.key,
        "uid": vm.uid,
        "foundBy": str(match.by or ""),
        "status": vm.object.status.printable_status,
        "host": vm.vmi.status.node_name if vm.vmi else "",
        "power": power(vm).value,
        "guestAgent": "connected" if vm.vmi and vm.vmi.has_agent else "not connected",
    }
