"""``cleanup``: the load balancers of a guest cluster that is gone, listed or deleted with Harvester's kubeconfig alone.

Harvester tidies up by itself only after clusters that Rancher removed. What belongs to the cluster is told by the label
with its name; nothing is deleted while VMs of a cluster of that name exist or more than one cluster has used the name.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from typing import Final

from msgspec import Struct, field

from harvester_ccm.access import harvester_credentials
from harvester_ccm.commands import EXIT_OK, EXIT_PROBLEMS
from harvester_ccm.commands.call import OUTPUT, Call, Manual, expect_arguments, flag, refuse, switch
from harvester_ccm.commands.clusters import AskingClient, ask_all, unusable_cloud_config
from harvester_ccm.commands.inventory import Inventory, ListedNodes
from harvester_ccm.commands.render import Document
from harvester_ccm.errors import CCMError, Conflict, CredentialError, NotFound
from harvester_ccm.flags.settings import trimmed_cluster_name
from harvester_ccm.kube.client import ApiClient
from harvester_ccm.kube.flowcontrol import loop_time
from harvester_ccm.model.harvester import (
    LOAD_BALANCERS,
    VIRTUAL_MACHINES,
    ClusterIdentity,
    LoadBalancer,
    VirtualMachine,
)
from harvester_ccm.names import DEFAULT_CLUSTER_NAME, LB_CLUSTER, LB_OWNER, VM_CLUSTER
from harvester_ccm.plan.node.vms import Membership, all_vms
from harvester_ccm.plan.service.load_balancer import changed_document
from harvester_ccm.plan.service.ownership import service_key
from harvester_ccm.plan.service.removal import deletion_of
from harvester_ccm.plan.service.writes import ChangeLoadBalancer, DeleteLoadBalancer

HARVESTER_NAMESPACE: Final = flag(
    "harvester-namespace",
    "Namespace in Harvester of the VMs and load balancers. Without it: that of the cloud-config's context.",
)
CLUSTER: Final = flag("cluster", "Name of the guest cluster that is gone: what its --cluster-name was. Required.")
CLUSTER_UID: Final = flag(
    "cluster-uid",
    "Only load balancers with this owner mark: the UID of the kube-system namespace of the cluster that is gone.",
)
YES: Final = switch("yes", "Do it; without it, it is only shown what would be done.")
FORCE: Final = switch("force", "Do it in spite of the warnings that are listed; together with --yes.")

GONE_SECONDS: Final = 30.0
"""Time that Harvester gets to let the next load balancer go; as long as one goes after the other, it is waited for."""
LOOK_SECONDS: Final = 0.5
"""Pause between two looks whether they are gone."""
ANSWER_SECONDS: Final = 10.0
"""Time that Harvester gets to say whether it is booking an address for one that it has refused one before."""

RIGHTS: Final = "get, list, update and delete load balancers and list VMs"
_STILL_BOOKING: Final = (
    "Harvester has not finished booking its address, which a deletion now would lose; try again in a moment, and check "
    "that harvester-load-balancer runs in namespace harvester-system"
)
_TAKEN_OVER: Final = "it was made anew or taken over by another cluster since it was listed; list them again"
_KEEPS_CHANGING: Final = "somebody keeps changing it; try again in a moment"


class Leftovers(Struct, frozen=True):
    """What a cluster left behind."""

    cluster: str
    namespace: str
    load_balancers: tuple[LoadBalancer, ...]
    warnings: tuple[str, ...]
    """Why nothing is deleted without --force."""
    unsafe: tuple[str, ...]
    """Names of those that are not deleted at all, because Harvester is booking their addresses."""


class CleanupResult(Struct):
    """What became of them."""

    deleted: list[str] = field(default_factory=list)
    """Names of the deleted ones."""
    deleting: list[str] = field(default_factory=list)
    """Names of those that still have Harvester's finalizer."""
    failed: dict[str, str] = field(default_factory=dict)
    """Name to the reason why it was not deleted."""


async def _clean_up(call: Call) -> int:
    expect_arguments(call, [])
    name = trimmed_cluster_name(call.flags[CLUSTER.name])
    if not name:
        raise refuse("--cluster is required: the name of the guest cluster that is gone")
    try:
        credentials = harvester_credentials(call.settings.harvester, call.environment)
    except CredentialError as error:
        raise unusable_cloud_config(error) from error
    async with AskingClient(credentials, cluster="harvester") as harvester:
        namespace = call.flags[HARVESTER_NAMESPACE.name] or harvester.namespace
        leftovers = await _look(harvester, name, namespace, uid=call.flags[CLUSTER_UID.name])
        allowed = call.flags[FORCE.name] or not leftovers.warnings
        told = call.flags[YES.name]
        result = await delete_leftovers(harvester, leftovers) if allowed and told else CleanupResult()
    call.output.answer(_document(leftovers, result), _sentence(leftovers, result, allowed=allowed, told=told))
    left = result.deleting or result.failed or (leftovers.load_balancers and not allowed)
    return EXIT_PROBLEMS if left else EXIT_OK


async def _look(harvester: ApiClient, cluster: str, namespace: str, *, uid: str) -> Leftovers:
    balancers = await ask_all(harvester.list(LOAD_BALANCERS, namespace=namespace))
    if balancers.answer is None:
        raise balancers.error or CCMError("there was no answer")
    vms = await ask_all(harvester.list(VIRTUAL_MACHINES, namespace=namespace))
    named = [one for one in balancers.answer.items if one.metadata.label(LB_CLUSTER) == cluster]
    chosen = tuple(one for one in named if not uid or one.metadata.annotation(LB_OWNER) == uid)
    return judge_leftovers(cluster, namespace, chosen, vms.answer.items if vms.answer else None)


def judge_leftovers(
    cluster: str, namespace: str, load_balancers: tuple[LoadBalancer, ...], vms: Sequence[VirtualMachine] | None
) -> Leftovers:
    """Return what is left over, and why not to delete it; ``vms`` None means that they could not be read."""
    warnings = tuple(_warnings(cluster, namespace, load_balancers, vms))
    alive = (one for one in load_balancers if not one.metadata.deleting)
    unsafe = (one for one in alive if deletion_of(one) is None)
    return Leftovers(cluster, namespace, load_balancers, warnings, tuple(one.metadata.name for one in unsafe))


def _warnings(
    cluster: str, namespace: str, load_balancers: Iterable[LoadBalancer], vms: Sequence[VirtualMachine] | None
) -> Iterator[str]:
    if cluster == DEFAULT_CLUSTER_NAME:
        yield f"{cluster!r} is what every cluster without a name of its own is called; these may be several clusters'"
    elif vms is None:
        yield f"the VMs in namespace {namespace} cannot be read, so the cluster may still have some"
    else:
        guest = ClusterIdentity(cluster, namespace)
        listed = all_vms(ListedNodes(Inventory(vms=tuple(vms)), guest))
        alive = sorted(one.name for one in listed if one.membership is Membership.OWN)
        if alive:
            yield f"VMs of a cluster of this name exist: {', '.join(alive)}"
        unmarked = sorted(one.name for one in listed if one.membership is Membership.UNMARKED)
        if unmarked:
            yield f"VMs without the label {VM_CLUSTER} exist, which may be the cluster's: {', '.join(unmarked)}"
    marks = sorted({one.metadata.annotation(LB_OWNER) or "" for one in load_balancers} - {""})
    if len(marks) > 1:
        yield f"clusters with different UIDs have used the name: {', '.join(marks)}; choose one with --cluster-uid"


async def delete_leftovers(harvester: ApiClient, leftovers: Leftovers) -> CleanupResult:
    """Delete what may be deleted, wait as long as one goes after the other, and return what became of them."""
    result = CleanupResult(failed=dict.fromkeys(leftovers.unsafe, _STILL_BOOKING))
    asked: dict[str, str] = {}
    for one in leftovers.load_balancers:
        meta = one.metadata
        if meta.name in leftovers.unsafe:
            continue
        try:
            await _end(harvester, one)
        except NotFound:
            result.deleted.append(meta.name)
        except CCMError as error:
            result.failed[meta.name] = str(error)
        else:
            asked[meta.name] = meta.uid
    result.deleting = await _await_end(harvester, leftovers.namespace, asked)
    result.deleted += [name for name in asked if name not in result.deleting]
    return result


async def _end(harvester: ApiClient, found: LoadBalancer) -> None:
    """Delete a load balancer as it is now; one that was refused an address is closed first. Raises CCMError."""
    name, namespace = found.metadata.name, found.metadata.namespace
    deadline = loop_time() + ANSWER_SECONDS
    current = found
    while not current.metadata.deleting:
        if _whose(current) != _whose(found):
            raise CCMError(_TAKEN_OVER)
        write = deletion_of(current)
        with suppress(Conflict):
            match write:
                case DeleteLoadBalancer(uid=uid, version=version):
                    await harvester.delete(LOAD_BALANCERS, name, namespace=namespace, uid=uid, version=version)
                    return
                case ChangeLoadBalancer():
                    document = changed_document(current, write)
                    await harvester.replace(LOAD_BALANCERS, name, document, namespace=namespace)
        if loop_time() >= deadline:
            raise CCMError(_KEEPS_CHANGING if isinstance(write, DeleteLoadBalancer) else _STILL_BOOKING)
        await asyncio.sleep(LOOK_SECONDS)
        current = await harvester.get(LOAD_BALANCERS, name, namespace=namespace)


def _whose(load_balancer: LoadBalancer) -> tuple[str | None, ...]:
    """Return what says which load balancer it is, and of which cluster."""
    meta = load_balancer.metadata
    return meta.uid, meta.label(LB_CLUSTER), meta.annotation(LB_OWNER)


async def _await_end(harvester: ApiClient, namespace: str, asked: dict[str, str]) -> list[str]:
    """Return the names of those that are still there when for some time none of them went."""
    left, deadline = list(asked), loop_time() + GONE_SECONDS
    while left:
        present = {one.metadata.uid for one in (await harvester.list(LOAD_BALANCERS, namespace=namespace)).items}
        still = [name for name in left if asked[name] in present]
        if len(still) < len(left):
            deadline = loop_time() + GONE_SECONDS
        left = still
        if not left or loop_time() >= deadline:
            break
        await asyncio.sleep(LOOK_SECONDS)
    return left


def _document(leftovers: Leftovers, result: CleanupResult) -> Document:
    return {
        "cluster": leftovers.cluster,
        "namespace": leftovers.namespace,
        "loadBalancers": [_entry(one) for one in leftovers.load_balancers],
        "warnings": list(leftovers.warnings),
        "deleted": result.deleted,
        "deleting": result.deleting,
        "failed": [{"name": name, "reason": why} for name, why in result.failed.items()],
    }


def _entry(one: LoadBalancer) -> Document:
    return {
        "name": one.metadata.name,
        "service": service_key(one),
        "workloadType": one.spec.workload_type,
        "address": one.address or one.allocated_ip or None,
        "pool": one.allocated_pool or one.spec.ip_pool or None,
        "clusterUid": one.metadata.annotation(LB_OWNER),
        "created": one.metadata.creation_timestamp,
    }


def _sentence(leftovers: Leftovers, result: CleanupResult, *, allowed: bool, told: bool) -> str:
    if not leftovers.load_balancers:
        return f"No load balancer of cluster {leftovers.cluster!r} in namespace {leftovers.namespace} of Harvester."
    if not allowed:
        return "Nothing is deleted without --force, because of the warnings."
    if not told:
        return "Nothing was deleted; add --yes to delete them."
    if result.deleting:
        return "Harvester has not removed its finalizer from those that are being deleted."
    return ""


MANUAL: Final = Manual(
    usages=("cleanup --cluster=NAME --cloud-config=FILE [--yes] [flags]",),
    examples=(
        ("What did cluster demo leave?", "cleanup --cluster=demo --cloud-config=harvester.yaml"),
        ("Delete it.", "cleanup --cluster=demo --cloud-config=harvester.yaml --yes"),
    ),
    meaning=f"""
        Lists the load balancers that a guest cluster left in Harvester, and with --yes deletes them, so that their
        addresses can be used again. For clusters that no longer exist: the running program deletes its own.
        --cloud-config is any kubeconfig for Harvester that may {RIGHTS}.

        Exit codes: 0 listed, deleted, or none found, 1 warnings or a failure left some in place, 2 the command line
        cannot be used.
    """,
    own=(CLUSTER, CLUSTER_UID, HARVESTER_NAMESPACE, YES, FORCE, OUTPUT),
    action=_clean_up,
    rights=RIGHTS,
)
