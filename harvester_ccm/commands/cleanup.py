"""Lists the load balancers that a guest cluster left in Harvester, and with --yes deletes them.

For clusters that no longer exist: the controller deletes its own load balancers, and Harvester those of clusters that
Rancher removed. The label with the cluster name selects them. Without --cluster-uid, nothing is deleted while VMs of a
cluster of that name exist, or if several clusters have used the name. --cloud-config is any kubeconfig for Harvester
that is allowed to get, list, update and delete load balancers and list VMs.
"""

from collections.abc import Iterator, Sequence
from functools import partial
from typing import Final

import structlog

from harvester_ccm.access import harvester_credentials
from harvester_ccm.commands import EXIT_OK, EXIT_PROBLEMS
from harvester_ccm.commands.clusters import HARVESTER, ClusterStore, request_or_error
from harvester_ccm.commands.runner import OUTPUT, CommandContext, CommandSpec, Document, describe, flag, switch
from harvester_ccm.errors import ConfigurationError
from harvester_ccm.flags.settings import trimmed_cluster_name
from harvester_ccm.kube.backoff import repeat
from harvester_ccm.kube.client import ApiClient
from harvester_ccm.kube.errors import Conflict, KubeError, NotFound
from harvester_ccm.model.harvester import LOAD_BALANCERS, VIRTUAL_MACHINES, ClusterIdentity, LoadBalancer
from harvester_ccm.names import DEFAULT_CLUSTER_NAME, LB_CLUSTER, LB_OWNER, VM_CLUSTER
from harvester_ccm.plan.node.vms import Membership, all_vms
from harvester_ccm.plan.service.deletion import deletion_write
from harvester_ccm.plan.service.desired import ChangeLoadBalancer
from harvester_ccm.plan.service.load_balancer import changed_document
from harvester_ccm.plan.service.ownership import service_key

NAMESPACE: Final = flag(
    "namespace",
    "Namespace in Harvester of the VMs and load balancers. Without it: that of the cloud-config's context.",
    shorthand="n",
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


async def _clean_up(context: CommandContext) -> int:
    name, uid = trimmed_cluster_name(context.flags[CLUSTER_NAME.name]), context.flags[CLUSTER_UID.name]
    if not name:
        raise ConfigurationError(["--cluster-name is required: the name of the deleted guest cluster"])
    async with ApiClient(
        harvester_credentials(context.settings.harvester, context.environment), cluster=HARVESTER
    ) as client:
        namespace = context.flags[NAMESPACE.name] or client.namespace
        page = await client.list(LOAD_BALANCERS, namespace=namespace)
        for unread in page.unread.values():
            log.warning("object not decoded", lb=unread.key, error=unread.fault)
        vms = await request_or_error(client.list(VIRTUAL_MACHINES, namespace=namespace))
        named = [one for one in page.items if one.metadata.label(LB_CLUSTER) == name]
        chosen = [one for one in named if not uid or one.metadata.annotation(LB_OWNER) == uid]
        store = ClusterStore(ClusterIdentity(name, namespace), {VIRTUAL_MACHINES.plural: vms})
        warnings = [] if uid or not chosen else list(find_warnings(store, chosen))
        done: Document = {"deleted": [], "failed": []}
        if context.flags[YES.name] and not warnings:
            done = await delete_all(client, chosen)
    entries = [_entry(one) for one in chosen]
    hint = "" if context.flags[YES.name] else "Nothing was deleted; add --yes to delete them"
    hint = "Nothing is deleted without --cluster-uid, because of the warnings" if warnings else hint
    document = {"cluster": name, "namespace": namespace, "loadBalancers": entries, "warnings": warnings, **done}
    context.output.answer(
        document, lambda shown: describe({**shown, "result": hint if chosen else "Nothing to delete"})
    )
    return EXIT_PROBLEMS if warnings or done["failed"] else EXIT_OK


def find_warnings(store: ClusterStore, load_balancers: Sequence[LoadBalancer]) -> Iterator[str]:
    """Yield why the name alone does not prove that the cluster is gone."""
    if store.cluster.name == DEFAULT_CLUSTER_NAME:
        yield f"{DEFAULT_CLUSTER_NAME!r} is the name of every cluster without a name; these may be several clusters'"
    elif store.vms.problem is not None:
        yield f"the VMs cannot be read, so the cluster may still have some: {store.vms.problem}"
    else:
        names = {one: sorted(vm.name for vm in all_vms(store) if vm.membership is one) for one in Membership}
        if names[Membership.OWN]:
            yield f"VMs of a cluster of this name exist: {', '.join(names[Membership.OWN])}"
        if names[Membership.UNMARKED]:
            unlabeled = ", ".join(names[Membership.UNMARKED])
            yield f"VMs without the label {VM_CLUSTER} exist, which may be the cluster's: {unlabeled}"
        if store.vms.unread:
            yield f"VMs that cannot be decoded exist, which may be the cluster's: {', '.join(sorted(store.vms.unread))}"
    uids = sorted({one.metadata.annotation(LB_OWNER) or "" for one in load_balancers} - {""})
    if len(uids) > 1:
        yield f"clusters with different UIDs have used the name: {', '.join(uids)}"


async def delete_all(client: ApiClient, load_balancers: Sequence[LoadBalancer]) -> Document:
    """Delete load balancers, wait until Harvester has removed them, and return which are deleted and which are not."""
    failed: dict[str, str] = {}
    removal = REMOVAL_ATTEMPTS + round(len(load_balancers) / RETRY_SECONDS)
    for step, attempts in ((_delete, ALLOCATION_ATTEMPTS), (_expect_removed, removal)):
        for one in load_balancers:
            if one.metadata.name in failed:
                continue
            # Harvester removes them one after the other. If one stays, the others are only read once.
            is_read_once = bool(failed) and step is _expect_removed
            try:
                await repeat(
                    partial(step, client, one),
                    on=(NotYet, Conflict),
                    attempts=1 if is_read_once else attempts,
                    delay=lambda _failures: RETRY_SECONDS,
                )
            except KubeError as error:
                failed[one.metadata.name] = str(error)
    return {
        "deleted": [one.metadata.name for one in load_balancers if one.metadata.name not in failed],
        "failed": [{"name": name, "reason": reason} for name, reason in failed.items()],
    }


async def _delete(client: ApiClient, found: LoadBalancer) -> None:
    """Delete a load balancer as it is now. Raises NotYet while a deletion would lose the address."""
    name, namespace = found.metadata.name, found.metadata.namespace
    current = await _read(client, found)
    if current is None or current.metadata.deleting:
        return
    owners = {(one.metadata.label(LB_CLUSTER), one.metadata.annotation(LB_OWNER)) for one in (found, current)}
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
    if await _read(client, found) is not None:
        raise NotYet("it is being deleted, but Harvester has not removed its finalizer")


async def _read(client: ApiClient, found: LoadBalancer) -> LoadBalancer | None:
    """Return a load balancer as it is now; None if it or another one of its name has been deleted."""
    try:
        current = await client.get(LOAD_BALANCERS, found.metadata.name, namespace=found.metadata.namespace)
    except NotFound:
        return None
    return current if current.metadata.uid == found.metadata.uid else None


def _entry(one: LoadBalancer) -> Document:
    return {
        "name": one.metadata.name,
        "service": service_key(one),
        "workloadType": one.spec.workload_type,
        "address": one.address or one.allocated_ip,
        "pool": one.allocated_pool or one.spec.ip_pool,
        "clusterUid": one.metadata.annotation(LB_OWNER),
        "created": one.metadata.creation_timestamp,
    }


SPEC: Final = CommandSpec(
    meaning=__doc__,
    usages=("cleanup --cluster-name=NAME --cloud-config=FILE [--yes] [flags]",),
    own=(CLUSTER_NAME, CLUSTER_UID, NAMESPACE, YES, OUTPUT),
    action=_clean_up,
)
