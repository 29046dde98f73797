"""What is in the clusters: APIs, rights, VMs, Nodes, load balancers, and whether they fit together."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any, Final

from msgspec import Struct
from msgspec.structs import replace

from harvester_ccm.commands.checks_connection import BOTH, Check, Result
from harvester_ccm.commands.clusters import Asked, ask
from harvester_ccm.commands.dry_run import check_admission
from harvester_ccm.commands.inventory import Inventory, ListedNodes
from harvester_ccm.commands.rights import GUEST, HARVESTER, Collection, Reviewed
from harvester_ccm.config import NodeSettings
from harvester_ccm.errors import Forbidden
from harvester_ccm.kube.client import ApiClient
from harvester_ccm.kube.reviews import served_versions
from harvester_ccm.model.core import LEASES, NODES, SERVICES, Service
from harvester_ccm.model.harvester import GUEST_OS_INFO, INSTANCES, LOAD_BALANCERS, VIRTUAL_MACHINES, ClusterIdentity
from harvester_ccm.model.meta import ObjectMeta, Resource
from harvester_ccm.model.outcome import some_of
from harvester_ccm.names import IP_POOL, LB_CLUSTER, VM_CLUSTER, NodeReason
from harvester_ccm.plan.node.decision import observe as observe_node
from harvester_ccm.plan.node.decision import plan_node
from harvester_ccm.plan.node.match import find_vm
from harvester_ccm.plan.node.vms import all_vms
from harvester_ccm.plan.service.load_balancer import new_load_balancer
from harvester_ccm.plan.service.ownership import allocated_addresses, goes_by, marked_ours
from harvester_ccm.plan.service.request import read_request
from harvester_ccm.plan.service.scope import is_served
from harvester_ccm.plan.service.snapshot import observe

NO_ANSWER: Final = (
    "The program does not work while this server is like that. Check its health and its load, and try again"
)


class Needed(Struct, frozen=True):
    """An API that the program uses."""

    resource: Resource[Any]
    advice: str
    required: bool = True


APIS: Final[Mapping[str, Sequence[Needed]]] = {
    HARVESTER: (
        Needed(
            LOAD_BALANCERS,
            "Harvester before 1.2 is not supported: upgrade Harvester to 1.2 or later. If Harvester is newer, its load "
            "balancer controller has to be installed",
        ),
        Needed(VIRTUAL_MACHINES, "Is the server in the cloud-config a Harvester? Its VMs are KubeVirt's"),
        Needed(
            GUEST_OS_INFO,
            "Without it a Node is found only if its VM has the Node's name or system UUID",
            required=False,
        ),
    ),
    GUEST: (Needed(LEASES, "Is this a Kubernetes cluster? The Lease for leader election is needed"),),
}


Served = Mapping[str, Asked[tuple[str, ...]]]
"""API group to its versions on a server."""


async def served_by(client: ApiClient) -> Served:
    """Return which versions the server has of the API groups that are looked for on either side."""
    groups = dict.fromkeys(one.resource.group for needed in APIS.values() for one in needed)
    answers = await asyncio.gather(*(ask(served_versions(client, group)) for group in groups))
    return dict(zip(groups, answers, strict=True))


def is_harvester(served: Served) -> bool:
    """Return whether a server has load balancers of Harvester; False, too, while it does not say."""
    return bool(served[LOAD_BALANCERS.group].answer)


def api_check(served_here: Served, where: str) -> Check:
    """Return the check that the server has the APIs in the versions that are used."""
    row, needed = partial(Check, where, "API versions"), APIS[where]
    asked = [served_here[one.resource.group] for one in needed]
    problems, advice, lacking = [], [], False
    for one, answer in zip(needed, asked, strict=True):
        served = answer.answer
        if served is None:
            return row(Result.FAILED, f"cannot be told: {answer.error}", NO_ANSWER)
        if one.resource.version in served:
            continue
        there = ", ".join(served) or "nothing of this group"
        problems.append(f"{one.resource.api_version} is not served (there is {there})")
        advice.append(one.advice)
        lacking |= one.required
    if not problems:
        return row(Result.OK, ", ".join(dict.fromkeys(one.resource.api_version for one in needed)))
    return row(Result.FAILED if lacking else Result.WARNING, "; ".join(problems), ". ".join(advice))


def rights_check(where: str, collection: Collection, reviewed: Sequence[Reviewed], *, grantee: str) -> Check:
    """Return the check of the rights on one kind of object; ``grantee`` says where to grant what is missing."""
    verbs, row = [right.verb for right, _ in reviewed], partial(Check, where, collection.title)
    unknown = next((asked.error for _, asked in reviewed if asked.error is not None), None)
    missing = [right for right, asked in reviewed if asked.answer is False]
    if missing:
        losses = "; ".join(f"{right.verb}: {right.loss}" for right in missing)
        if len(missing) == len(verbs) > 1:
            worst = next((right for right in missing if right.required), missing[0])
            losses = f"do anything ({', '.join(verbs)}): {worst.loss}"
        listed = ", ".join(right.verb for right in missing)
        group = f" ({collection.group})" if collection.group else ""
        advice = f"Grant {listed} on {collection.title}{group} {grantee}"
        result = Result.FAILED if any(right.required for right in missing) else Result.WARNING
        return row(result, f"may not {losses}", advice)
    if isinstance(unknown, Forbidden):
        return row(Result.SKIPPED, f"what it may do cannot be told: {unknown}")
    if unknown is not None:
        return row(Result.FAILED, f"what it may do cannot be told: {unknown}", NO_ANSWER)
    return row(Result.OK, f"may {', '.join(verbs)}")


async def webhook_check(client: ApiClient, guest: ClusterIdentity) -> Check:
    """Return the check that Harvester's webhook admits a load balancer; a dry run, so none is made."""
    made_up = Service(metadata=ObjectMeta(name="preflight", namespace="default", uid=guest.uid or "preflight"))
    body = new_load_balancer(made_up, read_request(made_up), guest, {})
    return await check_admission(client, body, guest.namespace)


def vm_check(inventory: Inventory, guest: ClusterIdentity) -> Check:
    """Return the check that the namespace has VMs, and that they are marked as this cluster's."""
    row, vms, unread = partial(Check, HARVESTER, "VMs"), inventory.vms, _why_unread(inventory, VIRTUAL_MACHINES)
    if unread:
        return row(Result.SKIPPED, unread)
    if not vms:
        return row(
            Result.FAILED,
            f"there is no VM in namespace {guest.namespace}",
            "The namespace of the cloud-config's context must be the one of this cluster's VMs; all of them must be in "
            "one namespace",
        )
    labels = [one.cluster_label for one in all_vms(_store(inventory, guest))]
    text, marked = f"{len(vms)} in namespace {guest.namespace}", labels.count(guest.name)
    if marked:
        return row(Result.OK, f"{text}, {marked} with label {VM_CLUSTER}={guest.name}")
    detail = f"{text}, none with label {VM_CLUSTER}={guest.name}"
    others = sorted({*labels} - {""})
    if others:
        return row(
            Result.WARNING,
            f"{detail}; there is {some_of(others)}",
            "If one of these is this cluster, set --cluster-name to it. Otherwise give this cluster's VMs the label "
            "(in Harvester: instance labels) and restart them",
        )
    return row(
        Result.WARNING,
        detail,
        "Harvester before 1.8.1 then refuses load balancers (it has no running vm). Give the VMs the label (in "
        "Harvester: instance labels) and restart them",
    )


def node_check(inventory: Inventory, guest: ClusterIdentity) -> Check:
    """Return the check that every Node is a VM."""
    row, nodes = partial(Check, BOTH, "Nodes and VMs"), inventory.nodes
    unread = _why_unread(inventory, NODES, VIRTUAL_MACHINES)
    if unread:
        return row(Result.SKIPPED, unread)
    if not nodes:
        return row(Result.WARNING, "the cluster has no Node", "Is this the right cluster?")
    store = _store(inventory, guest)
    matches = {one.metadata.name: find_vm(store, one) for one in nodes}
    lost = {name: match.problem for name, match in matches.items() if match.vm is None}
    if not lost:
        evidence = sorted({str(match.by) for match in matches.values() if match.by})
        return row(Result.OK, f"the VMs of all {len(nodes)} Nodes are found, by {', '.join(evidence)}")
    first = lost[min(lost)]
    return row(
        Result.WARNING if len(lost) < len(nodes) else Result.FAILED,
        f"{len(lost)} of {len(nodes)} Nodes have no VM: {some_of(sorted(lost))}",
        first.message if first else "",
    )


def name_check(inventory: Inventory, guest: ClusterIdentity) -> Check:
    """Return the check that the VMs of the Nodes are marked with --cluster-name."""
    row, unread = partial(Check, BOTH, "cluster name"), _why_unread(inventory, NODES, VIRTUAL_MACHINES)
    if unread:
        return row(Result.SKIPPED, unread)
    # By name no VM of another cluster is found, which is the point here: compared without a name of our own.
    store = _store(inventory, ClusterIdentity("", guest.namespace))
    found = [find_vm(store, one).vm for one in inventory.nodes]
    labels = sorted({one.cluster_label for one in found if one is not None} - {""})
    if not labels:
        return row(Result.SKIPPED, f"no VM of a Node carries label {VM_CLUSTER}")
    if labels == [guest.name]:
        return row(Result.OK, f"the VMs of the Nodes are marked {guest.name!r}, as --cluster-name says")
    return row(
        Result.FAILED,
        f"--cluster-name is {guest.name!r} and the VMs of the Nodes are marked {some_of(labels)}",
        f"Set --cluster-name={labels[0]} (chart: global.cattle.clusterName). Load balancers that this cluster has made "
        f"under {guest.name!r} keep their addresses with --former-cluster-name={guest.name}, see explain service",
    )


def load_balancer_check(inventory: Inventory, cluster: ClusterIdentity) -> Check:
    """Return the check that no other cluster uses our name for load balancers."""
    row, unread = partial(Check, BOTH, "load balancers"), _why_unread(inventory, LOAD_BALANCERS)
    if unread:
        return row(Result.SKIPPED, unread)
    named = [one for one in inventory.load_balancers if one.metadata.label(LB_CLUSTER) == cluster.name]
    if not cluster.uid:
        return row(Result.SKIPPED, f"{len(named)} carry the name of this cluster; whose they are cannot be told")
    foreign = sorted(one.metadata.name for one in named if marked_ours(one, cluster) is False)
    if foreign:
        return row(
            Result.WARNING,
            f"{len(foreign)} of cluster name {cluster.name!r} are marked by another cluster: {some_of(foreign)}",
            "Give each cluster its own --cluster-name. If that cluster no longer exists (this one was set up anew): "
            "explain svc/NAME prints the command that keeps one of them; cleanup --cluster-uid deletes them",
        )
    ours = [one for one in inventory.load_balancers if marked_ours(one, cluster)]
    elsewhere = sorted({one.metadata.label(LB_CLUSTER) or "" for one in ours if not goes_by(one, cluster)})
    if elsewhere:
        return row(
            Result.WARNING,
            f"some are this cluster's under another name: {some_of(elsewhere)}",
            f"If this cluster was renamed, add --former-cluster-name={','.join(elsewhere)}; they keep their addresses. "
            "If it is a copy of a cluster that goes on (a clone, a restored snapshot), leave it: those are the other's",
        )
    unmarked = sum(1 for one in named if marked_ours(one, cluster) is None)
    return row(Result.OK, f"{len(ours)} of this cluster, {unmarked} with its name and no mark yet")


def kept_addresses_check(inventory: Inventory, cluster: ClusterIdentity) -> Check | None:
    """Return the check that names Services whose address Harvester did not give; None when there is none."""
    if _why_unread(inventory, SERVICES, LOAD_BALANCERS):
        return None
    held, store = allocated_addresses(inventory.load_balancers), inventory.service_store(cluster)
    shown = (one for one in inventory.services if is_served(one) and held.isdisjoint(one.addresses))
    seen = (observe(store, one, cluster) for one in shown)
    kept = sorted(f"{one.service.metadata.key} ({one.kept})" for one in seen if one.scope.ours and one.kept)
    if not kept:
        return None
    return Check(
        BOTH,
        "addresses",
        Result.WARNING,
        f"{len(kept)} Services ask for an address that no load balancer of Harvester gave: {some_of(kept)}",
        "They keep it, and it stays announced, but Harvester may give it to somebody else. To have one booked, make an "
        f"IP pool with that single address and name it in annotation {IP_POOL}",
    )


def node_addresses_check(inventory: Inventory, cluster: ClusterIdentity, settings: NodeSettings) -> Check | None:
    """Return the check that names initialised Nodes which would get another InternalIP; None when there is none."""
    if _why_unread(inventory, NODES, VIRTUAL_MACHINES, INSTANCES, SERVICES, LOAD_BALANCERS):
        return None
    store = ListedNodes(inventory, cluster)
    # What it comes to when nothing is waited for any more.
    settings = replace(settings, monitor_period=0.0)
    having = (one for one in inventory.nodes if any(entry.type == "InternalIP" for entry in one.status.addresses))
    views = (observe_node(store, one, virtual_ips=store.virtual_ips, settings=settings) for one in having)
    told = {view.node.metadata.name: plan_node(view).emitted for view in views}
    changed = sorted(
        f"{name}: {event.message}"
        for name, events in told.items()
        for event in events
        if event.reason is NodeReason.INTERNAL_IP_CHANGED
    )
    if not changed:
        return None
    return Check(
        BOTH,
        "node addresses",
        Result.WARNING,
        f"{len(changed)} Nodes would get another InternalIP: {some_of(changed)}",
        "What talks to them by the old address is cut off. See 'explain node NAME'; --management-network and "
        "--node-ip-cidr choose the address",
    )


def shared_addresses_check(inventory: Inventory) -> Check | None:
    """Return the check that names Nodes with the same InternalIP; None when there are none."""
    names: dict[str, list[str]] = {}
    for node, entry in ((one, entry) for one in inventory.nodes for entry in one.status.addresses):
        if entry.type == "InternalIP":
            names.setdefault(entry.address, []).append(node.metadata.name)
    shared = sorted(f"{address} ({some_of(sorted(nodes))})" for address, nodes in names.items() if len(nodes) > 1)
    advice = "Give each VM its own address. Check static addresses and machine IDs that were cloned with an image"
    text = f"Nodes have the same InternalIP: {some_of(shared)}"
    return Check(BOTH, "InternalIPs", Result.WARNING, text, advice) if shared else None


def _store(inventory: Inventory, guest: ClusterIdentity) -> ListedNodes:
    # Without VMIs less is found, and what is found holds nevertheless.
    return ListedNodes(replace(inventory, problems={}), guest)


def _why_unread(inventory: Inventory, *needed: Resource[Any]) -> str:
    """Return why one of the collections is not there; empty when all of them are."""
    error = next((inventory.problems[one.plural] for one in needed if one.plural in inventory.problems), None)
    match error:
        case None:
            return ""
        case Forbidden():
            return "cannot be read, see the rights above"
    return f"cannot be read: {error}"
