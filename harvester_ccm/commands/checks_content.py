"""Checks of ``preflight`` that concern the content of the clusters: VMs, Nodes, names and load balancers.

Each reads the store of both clusters, and is skipped if a collection that it needs cannot be read.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from typing import Any, Final

from msgspec.structs import replace

from harvester_ccm.commands.checks import BOTH, Check, Finding, Result
from harvester_ccm.commands.clusters import HARVESTER, ClusterStore
from harvester_ccm.config import NODE_CONTROLLER, NodeSettings, Settings
from harvester_ccm.errors import Forbidden
from harvester_ccm.model.core import NODES, SERVICES
from harvester_ccm.model.harvester import INSTANCES, LOAD_BALANCERS, VIRTUAL_MACHINES, ClusterIdentity
from harvester_ccm.model.meta import Resource
from harvester_ccm.model.outcome import some_of
from harvester_ccm.names import IP_POOL, LB_CLUSTER, VM_CLUSTER, NodeReason
from harvester_ccm.plan.node.decision import observe, plan_node
from harvester_ccm.plan.node.match import find_vm
from harvester_ccm.plan.node.vms import all_vms
from harvester_ccm.plan.service.ownership import goes_by, marked_ours
from harvester_ccm.plan.service.scope import is_served
from harvester_ccm.plan.service.snapshot import observe as observe_service


def check_content(store: ClusterStore, settings: Settings) -> Iterator[Check]:
    """Yield the checks of the content of both clusters, or of one. The last three are left out if they find nothing."""
    for where, name, check, needed in _CHECKS:
        yield Check(where, name, *_run(store, check, needed))
    remarks: list[tuple[str, Callable[[ClusterStore], Finding], tuple[Resource[Any], ...]]] = [
        ("InternalIPs", check_shared_addresses, (NODES,)),
        ("addresses", check_allocations, _EVERYTHING),
    ]
    if NODE_CONTROLLER in settings.controllers:
        remarks.append(("node addresses", partial(check_node_addresses, settings=settings.nodes), _EVERYTHING))
    for name, check, needed in remarks:
        finding = _run(store, check, needed)
        if finding[0] is Result.WARNING:
            yield Check(BOTH, name, *finding)


def _run(store: ClusterStore, check: Callable[[ClusterStore], Finding], needed: tuple[Resource[Any], ...]) -> Finding:
    if unlisted := [one.plural for one in needed if one.plural not in store.lists]:
        return Result.SKIPPED, f"{', '.join(unlisted)}: the cluster cannot be used", ""
    error = store.problem(*needed)
    if error is not None:
        why = "see the permissions above" if isinstance(error, Forbidden) else str(error)
        return Result.SKIPPED, f"cannot be read: {why}", ""
    return check(store)


def check_vms(store: ClusterStore) -> Finding:
    """Check that the namespace has VMs, and that they have the label of this cluster."""
    cluster, vms = store.cluster, all_vms(store)
    if not vms:
        advice = (
            "The namespace of the cloud-config's context must be the one of this cluster's VMs; all of them must be in "
            "one namespace"
        )
        return Result.FAILED, f"there is no VM in namespace {cluster.namespace}", advice
    labels = [one.cluster_label for one in vms]
    text, labeled = f"{len(vms)} in namespace {cluster.namespace}", labels.count(cluster.name)
    if labeled:
        return Result.OK, f"{text}, {labeled} with label {VM_CLUSTER}={cluster.name}", ""
    text += f", none with label {VM_CLUSTER}={cluster.name}"
    others = sorted({*labels} - {""})
    if others:
        advice = (
            "If one of these is this cluster, set --cluster-name to it. Otherwise give this cluster's VMs the label "
            "(in Harvester: instance labels) and restart them"
        )
        return Result.WARNING, f"{text}; there is {some_of(others)}", advice
    advice = (
        "Harvester before 1.8.1 then refuses load balancers (it has no running vm). Give the VMs the label (in "
        "Harvester: instance labels) and restart them"
    )
    return Result.WARNING, text, advice


def check_nodes(store: ClusterStore) -> Finding:
    """Check that every Node is a VM."""
    nodes = store.nodes.all()
    if not nodes:
        return Result.WARNING, "the cluster has no Node", "Is this the right cluster?"
    matches = {one.metadata.name: find_vm(store, one) for one in nodes}
    lost = {name: match.problem for name, match in matches.items() if match.vm is None}
    if not lost:
        evidence = sorted({str(match.by) for match in matches.values() if match.by})
        return Result.OK, f"the VMs of all {len(nodes)} Nodes are found, by {', '.join(evidence)}", ""
    first = lost[min(lost)]
    result = Result.WARNING if len(lost) < len(nodes) else Result.FAILED
    text = f"{len(lost)} of {len(nodes)} Nodes have no VM: {some_of(sorted(lost))}"
    return result, text, first.message if first else ""


def check_name(store: ClusterStore) -> Finding:
    """Check that the VMs of the Nodes have the label of this cluster."""
    name = store.cluster.name
    # VMs of another cluster are only found without a cluster name.
    unnamed = ClusterStore(ClusterIdentity("", store.cluster.namespace), store.lists)
    found = [find_vm(unnamed, one).vm for one in store.nodes.all()]
    labels = sorted({one.cluster_label for one in found if one is not None} - {""})
    if not labels:
        return Result.SKIPPED, f"no VM of a Node has label {VM_CLUSTER}", ""
    if labels == [name]:
        return Result.OK, f"the VMs of the Nodes have label {VM_CLUSTER}={name}, as --cluster-name", ""
    advice = (
        f"Set --cluster-name={labels[0]} (chart: global.cattle.clusterName). Load balancers that this cluster has made "
        f"under {name!r} keep their addresses with --former-cluster-name={name}, see explain service"
    )
    text = f"--cluster-name is {name!r} and the VMs of the Nodes have label {VM_CLUSTER}={some_of(labels)}"
    return Result.FAILED, text, advice


def check_load_balancers(store: ClusterStore) -> Finding:
    """Check that no other cluster uses this cluster's name, and this one no other name."""
    cluster, lbs = store.cluster, store.load_balancers.all()
    named = [one for one in lbs if one.metadata.label(LB_CLUSTER) == cluster.name]
    if not cluster.uid:
        return Result.SKIPPED, f"{len(named)} have the name of this cluster; their owners are unknown", ""
    foreign = sorted(one.metadata.name for one in named if marked_ours(one, cluster) is False)
    if foreign:
        advice = (
            "Give each cluster its own --cluster-name. If that cluster no longer exists (this one was set up again): "
            "explain svc/NAME prints the command that keeps one of them; cleanup --cluster-uid deletes them"
        )
        text = f"{len(foreign)} with cluster name {cluster.name!r} belong to another cluster: {some_of(foreign)}"
        return Result.WARNING, text, advice
    ours = [one for one in lbs if marked_ours(one, cluster)]
    others = sorted({one.metadata.label(LB_CLUSTER) or "" for one in ours if not goes_by(one, cluster)})
    if others:
        advice = (
            f"If this cluster was renamed, add --former-cluster-name={','.join(others)}; they keep their addresses. "
            "If it is a clone of a cluster that still runs, change nothing: the load balancers belong to the other one"
        )
        return Result.WARNING, f"some are this cluster's under another name: {some_of(others)}", advice
    unmarked = sum(1 for one in named if marked_ours(one, cluster) is None)
    return Result.OK, f"{len(ours)} of this cluster, {unmarked} with its name and no owner annotation yet", ""


def check_allocations(store: ClusterStore) -> Finding:
    """Check that Harvester has allocated the addresses that Services request and have."""
    snapshots = (observe_service(store, one, store.cluster) for one in store.services.all() if is_served(one))
    kept = sorted(f"{one.service.metadata.key} ({one.kept})" for one in snapshots if one.scope.ours and one.kept)
    advice = (
        "They keep it, and it stays announced, but Harvester can allocate it again. To have one allocated, create an "
        f"IP pool with that single address and name it in annotation {IP_POOL}"
    )
    text = f"{len(kept)} Services request an address that no load balancer of Harvester has: {some_of(kept)}"
    return (Result.WARNING, text, advice) if kept else (Result.OK, "", "")


def check_node_addresses(store: ClusterStore, settings: NodeSettings) -> Finding:
    """Check that no initialized Node gets another InternalIP."""
    # A missing address is replaced at once.
    settings = replace(settings, monitor_period=0.0)
    nodes = (node for node in store.nodes.all() if any(one.type == "InternalIP" for one in node.status.addresses))
    views = (observe(store, one, virtual_ips=store.virtual_ips, settings=settings) for one in nodes)
    changed = sorted(
        f"{view.node.metadata.name}: {event.message}"
        for view in views
        for event in plan_node(view).emitted
        if event.reason is NodeReason.INTERNAL_IP_CHANGED
    )
    advice = (
        "Connections to the previous address break. See 'explain node NAME'; --management-network and --node-ip-cidr "
        "choose the address"
    )
    text = f"{len(changed)} Nodes would get another InternalIP: {some_of(changed)}"
    return (Result.WARNING, text, advice) if changed else (Result.OK, "", "")


def check_shared_addresses(store: ClusterStore) -> Finding:
    """Check that no two Nodes have the same InternalIP."""
    names: dict[str, list[str]] = {}
    for node, entry in ((one, entry) for one in store.nodes.all() for entry in one.status.addresses):
        if entry.type == "InternalIP":
            names.setdefault(entry.address, []).append(node.metadata.name)
    shared = sorted(f"{address} ({some_of(sorted(nodes))})" for address, nodes in names.items() if len(nodes) > 1)
    advice = "Give each VM its own address. Check static addresses and machine IDs that were cloned with an image"
    text = f"Nodes have the same InternalIP: {some_of(shared)}"
    return (Result.WARNING, text, advice) if shared else (Result.OK, "", "")


_EVERYTHING: Final = (NODES, SERVICES, VIRTUAL_MACHINES, INSTANCES, LOAD_BALANCERS)
_CHECKS: Final[tuple[tuple[str, str, Callable[[ClusterStore], Finding], tuple[Resource[Any], ...]], ...]] = (
    (HARVESTER, "VMs", check_vms, (VIRTUAL_MACHINES,)),
    (BOTH, "Nodes and VMs", check_nodes, (NODES, VIRTUAL_MACHINES)),
    (BOTH, "cluster name", check_name, (NODES, VIRTUAL_MACHINES)),
    (BOTH, "load balancers", check_load_balancers, (LOAD_BALANCERS,)),
)
