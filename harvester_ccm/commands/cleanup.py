"""Lists the load balancers that a guest cluster left in Harvester, and with --yes deletes them.

For clusters that no longer exist: the controller deletes its own load balancers, and Harvester those of clusters that
Rancher removed. The label with the cluster name selects them. Without --cluster-uid, nothing is deleted while VMs of a
cluster of that name exist, or if several clusters have used the name. --cloud-config is any kubeconfig for Harvester
that is allowed to get, list, update and delete load balancers and list VMs.
"""

from collections.abc import Awaitable, Callable, Iterator, Sequence, Set
from functools import partial
from typing import Final

import structlog

from harvester_ccm.access import harvester_credentials
from harvester_ccm.commands import EXIT_OK, EXIT_PROBLEMS
from harvester_ccm.commands.clusters import HARVESTER, ClusterStore, request_or_error
from harvester_ccm.commands.runner import (
    OUTPUT,
    CommandContext,
    CommandSpec,
    Document,
    describe,
    flag,
    switch,
)
from harvester_ccm.errors import ConfigurationError
from harvester_ccm.flags import FlagValues
from harvester_ccm.flags.settings import TO_HARVESTER, trimmed_cluster_name
from harvester_ccm.kube.backoff import repeat
from harvester_ccm.kube.client import ApiClient
from harvester_ccm.kube.errors import Conflict, KubeError, NotFound
from harvester_ccm.model.event import abbreviate
from harvester_ccm.model.harvester import (
    LOAD_BALANCERS,
    VIRTUAL_MACHINES,
    WHOLE_LOAD_BALANCERS,
    ClusterIdentity,
    LoadBalancer,
)
from harvester_ccm.names import DEFAULT_CLUSTER_NAME, LB_CLUSTER, LB_OWNER, VM_CLUSTER
from harvester_ccm.plan.node.vms import Membership, all_vms
from harvester_ccm.plan.service.allocation.deletion import deletion_remedy, deletion_write
from harvester_ccm.plan.service.desired import ChangeLoadBalancer
from harvester_ccm.plan.service.load_balancer.specification import changed_document
from harvester_ccm.plan.service.ownership.owner import service_key

NAMESPACE: Final = flag(
    "harvester-namespace",
    "Namespace in Harvester of the VMs and load balancers. Without it: that of the cloud-config's context.",
)
CLUSTER_NAME: Final = flag("cluster-name", "Name of the deleted guest cluster: what its --cluster-name was. Required.")
CLUSTER_UID: Final = flag(
    "cluster-uid",
    "Only load balancers with this owner annotation, the UID of the namespace kube-system of the deleted cluster. "
    "They are deleted despite warnings.",
)
YES: Final = switch("yes", "Delete them; without it, they are only listed.")

log = structlog.get_logger(__name__)

RETRY_SECONDS: Final = 0.5
ALLOCATION_ATTEMPTS: Final = 20
"""Attempts to delete a load balancer while Harvester still allocates its address: ten seconds."""
REMOVAL_ATTEMPTS: Final = 60
"""Requests until Harvester has removed a load balancer: half a minute, and one second for each of them."""


class NotYet(KubeError):
    """Raised while Harvester has not finished something."""


def _check(flags: FlagValues) -> None:
    if not trimmed_cluster_name(flags[CLUSTER_NAME.name]):
        raise ConfigurationError(["--cluster-name is required: the name of the deleted guest cluster"])


async def _clean_up(context: CommandContext) -> int:
    name = trimmed_cluster_name(context.flags[CLUSTER_NAME.name])
    uid = context.flags[CLUSTER_UID.name]
    async with ApiClient(
        harvester_credentials(context.settings.harvester, context.environment), cluster=HARVESTER
    ) as client:
        namespace = context.flags[NAMESPACE.name] or client.namespace
        page = await client.list(LOAD_BALANCERS, namespace=namespace)
        for unread in page.unread.values():
            log.warning("object not decoded", lb=unread.key, error=unread.fault)
        vms = await request_or_error(client.list(VIRTUAL_MACHINES, namespace=namespace))
        chosen = [load_balancer for load_balancer in page.items if _is_of_cluster(load_balancer, name, uid)]
        store = ClusterStore(ClusterIdentity(name, namespace), {VIRTUAL_MACHINES.plural: vms})
        warnings = [] if uid or not chosen else list(find_warnings(store, chosen, _clusters_of(page.items)))
        done: Document = {"deleted": [], "failed": []}
        if context.flags[YES.name] and not warnings:
            done = await delete_all(client, chosen)
    entries = [_entry(load_balancer) for load_balancer in chosen]
    document = {"cluster": name, "namespace": namespace, "loadBalancers": entries, "warnings": warnings, **done}
    others = _others_with_name(page.items, name) or _others(page.items, namespace)
    hint = _hint(chosen, warnings, deletes=bool(context.flags[YES.name]), others=others)
    context.output.answer(document, lambda shown: describe({**shown, "result": hint}))
    return EXIT_PROBLEMS if warnings or done["failed"] else EXIT_OK


def _clusters_of(load_balancers: Sequence[LoadBalancer]) -> Set[str]:
    return {load_balancer.metadata.label(LB_CLUSTER) or "" for load_balancer in load_balancers}


def _is_of_cluster(load_balancer: LoadBalancer, name: str, uid: str) -> bool:
    """Return whether a load balancer has the label of the cluster, and its UID unless that is empty."""
    meta = load_balancer.metadata
    if meta.label(LB_CLUSTER) != name:
        return False
    return not uid or meta.annotation(LB_OWNER) == uid


def _others(present: Sequence[LoadBalancer], namespace: str) -> str:
    """Return which clusters have load balancers, for a name that may be misspelt."""
    clusters = sorted(_clusters_of(present) - {""})
    return f"Clusters with load balancers in namespace {namespace}: {abbreviate(clusters) or 'none'}"


def _others_with_name(present: Sequence[LoadBalancer], name: str) -> str:
    """Return that a cluster has load balancers with other UIDs than the given one, which may be misspelt."""
    uids = {
        load_balancer.metadata.annotation(LB_OWNER)
        for load_balancer in present
        if _is_of_cluster(load_balancer, name, "")
    }
    known = sorted(uid for uid in uids if uid)
    return f"Cluster {name} has load balancers of other UIDs: {abbreviate(known)}" if uids else ""


def _hint(chosen: Sequence[LoadBalancer], warnings: Sequence[str], *, deletes: bool, others: str) -> str:
    """Return why nothing was deleted, and what deletes the load balancers; empty if they were."""
    if not chosen:
        return f"Nothing to delete. {others}"
    if warnings:
        return "Nothing is deleted without --cluster-uid, because of the warnings"
    return "" if deletes else "Nothing was deleted; add --yes to delete them"


def find_warnings(
    store: ClusterStore, load_balancers: Sequence[LoadBalancer], clusters: Set[str] = frozenset()
) -> Iterator[str]:
    """Yield why the name alone does not prove that the cluster is gone.

    ``clusters`` are the names on all load balancers of the namespace.
    """
    if store.cluster.name == DEFAULT_CLUSTER_NAME:
        yield f"{DEFAULT_CLUSTER_NAME!r} is the name of every cluster without a name; these may be several clusters'"
    elif store.vms.problem is not None:
        yield f"the VMs cannot be read, so the cluster may still have some: {store.vms.problem}"
    else:
        yield from _remaining_vms(store, clusters)
    uids = sorted({load_balancer.metadata.annotation(LB_OWNER) or "" for load_balancer in load_balancers} - {""})
    if len(uids) > 1:
        yield f"clusters with different UIDs have used the name: {', '.join(uids)}"


def _remaining_vms(store: ClusterStore, clusters: Set[str]) -> Iterator[str]:
    """Yield the VMs that are the cluster's, or may be.

    The name on the VMs of a cluster can differ from that of its load balancers, which is a flag of the controller. Then
    no load balancer has the name on the VMs.
    """
    own = _names_of_vms(store, Membership.OWN)
    if own:
        yield f"VMs of a cluster of this name exist: {own}"
    unmarked = _names_of_vms(store, Membership.UNMARKED)
    if unmarked:
        yield f"VMs without the label {VM_CLUSTER} exist, which may be the cluster's: {unmarked}"
    foreign = sorted(
        vm.name for vm in all_vms(store) if vm.membership is Membership.FOREIGN and vm.cluster_label not in clusters
    )
    if foreign:
        yield (
            f"VMs of clusters without a load balancer exist, which may be the cluster's under another name: "
            f"{', '.join(foreign)}"
        )
    if store.vms.unread:
        yield f"VMs that cannot be decoded exist, which may be the cluster's: {', '.join(sorted(store.vms.unread))}"


def _names_of_vms(store: ClusterStore, membership: Membership) -> str:
    return ", ".join(sorted(vm.name for vm in all_vms(store) if vm.membership is membership))


async def delete_all(client: ApiClient, load_balancers: Sequence[LoadBalancer]) -> Document:
    """Delete load balancers, wait until Harvester has removed them, and return which are deleted and which are not."""
    failed: dict[str, str] = {}
    for load_balancer in load_balancers:
        await _try(partial(_delete, client, load_balancer), ALLOCATION_ATTEMPTS, load_balancer, failed)
    attempts = REMOVAL_ATTEMPTS + round(len(load_balancers) / RETRY_SECONDS)
    for load_balancer in load_balancers:
        if load_balancer.metadata.name in failed:
            continue
        if failed:
            # Harvester removes them one after the other. If one stays, the others are only read once.
            attempts = 1
        await _try(partial(_expect_removed, client, load_balancer), attempts, load_balancer, failed)
    names = [load_balancer.metadata.name for load_balancer in load_balancers]
    return {
        "deleted": [name for name in names if name not in failed],
        "failed": [{"name": name, "reason": reason} for name, reason in failed.items()],
    }


async def _try(
    step: Callable[[], Awaitable[None]], attempts: float, load_balancer: LoadBalancer, failed: dict[str, str]
) -> None:
    """Repeat a step of the deletion while it is not possible yet; note in ``failed`` why it was not in the end."""
    try:
        await repeat(step, on=(NotYet, Conflict), attempts=attempts, delay=lambda _failures: RETRY_SECONDS)
    except KubeError as error:
        failed[load_balancer.metadata.name] = str(error)


async def _delete(client: ApiClient, found: LoadBalancer) -> None:
    """Delete a load balancer as it is now. Raises NotYet while a deletion would lose the address."""
    name = found.metadata.name
    namespace = found.metadata.namespace
    current = await _read(client, found)
    if current is None or current.metadata.deleting:
        return
    owners = {(seen.metadata.label(LB_CLUSTER), seen.metadata.annotation(LB_OWNER)) for seen in (found, current)}
    if len(owners) > 1:
        raise KubeError("another cluster has taken it over since it was listed; list again")
    write = deletion_write(current)
    if isinstance(write, ChangeLoadBalancer):
        await client.replace(LOAD_BALANCERS, name, changed_document(current, write), namespace=namespace)
    if write is None or isinstance(write, ChangeLoadBalancer):
        raise NotYet(
            "Harvester has not finished allocating its address, which a deletion now would lose; try again later, and "
            "check that harvester-load-balancer runs in namespace harvester-system"
        )
    await client.delete(
        LOAD_BALANCERS, name, namespace=namespace, uid=current.metadata.uid, version=current.metadata.resource_version
    )


async def _expect_removed(client: ApiClient, found: LoadBalancer) -> None:
    """Raise NotYet while a load balancer exists."""
    current = await _read(client, found)
    if current is not None:
        raise NotYet(f"it is being deleted, but a finalizer keeps it. {deletion_remedy(current)}")


async def _read(client: ApiClient, found: LoadBalancer) -> LoadBalancer | None:
    """Return a whole load balancer as it is now; None if it or another one of its name has been deleted."""
    try:
        current = await client.get(WHOLE_LOAD_BALANCERS, found.metadata.name, namespace=found.metadata.namespace)
    except NotFound:
        return None
    return current if current.metadata.uid == found.metadata.uid else None


def _entry(load_balancer: LoadBalancer) -> Document:
    meta = load_balancer.metadata
    return {
        "name": meta.name,
        "service": service_key(load_balancer),
        "workloadType": load_balancer.spec.workload_type,
        "address": load_balancer.address or load_balancer.allocated_ip,
        "pool": load_balancer.allocated_pool or load_balancer.spec.ip_pool,
        "clusterUid": meta.annotation(LB_OWNER),
        "created": meta.creation_timestamp,
    }


SPEC: Final = CommandSpec(
    meaning=__doc__,
    usage="cleanup --cluster-name=NAME [flags]",
    own=(CLUSTER_NAME, CLUSTER_UID, NAMESPACE, YES, OUTPUT),
    action=_clean_up,
    connection=TO_HARVESTER,
    check=_check,
)
