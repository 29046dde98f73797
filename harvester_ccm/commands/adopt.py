"""``adopt``: let a Service take over a load balancer that nothing proves to be its own.

What can be proved is adopted by the running program by itself (see ``plan.ownership``). Left are load balancers of a
cluster that was set up anew, or of another name of this cluster: there a person has to say so. The write is
the one that the running program makes for a load balancer of its own: labels, and the marks of cluster and Service.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Final, cast

from msgspec import Struct

from harvester_ccm.commands import EXIT_OK, EXIT_PROBLEMS
from harvester_ccm.commands.call import FORCE, NAMESPACE, OUTPUT, YES, Call, Manual, expect_arguments
from harvester_ccm.commands.clusters import Clusters, open_clusters, read_inventory
from harvester_ccm.commands.explain_service import named_service
from harvester_ccm.commands.inventory import Inventory
from harvester_ccm.commands.render import Document
from harvester_ccm.commands.service_view import ServiceView, view_of
from harvester_ccm.commands.targets import SERVICE, Target, kind_of, read_target
from harvester_ccm.errors import CCMError
from harvester_ccm.model.cluster import ClusterIdentity
from harvester_ccm.model.core import Service
from harvester_ccm.model.harvester import LOAD_BALANCERS, LoadBalancer
from harvester_ccm.names import LB_CLUSTER, LB_OWNER
from harvester_ccm.plan.service.load_balancer import changed_document, load_balancer_change
from harvester_ccm.plan.service.ownership import Verdict, service_key
from harvester_ccm.plan.service.selection import primary_reference


class Adoption(Struct, frozen=True):
    """What would be written, and what speaks against it."""

    service: Service
    load_balancer: LoadBalancer
    document: Document
    """The whole object as it would be written."""
    changes: tuple[str, ...]
    """What is different in it; empty when it is this Service's already."""
    obstacles: tuple[str, ...]
    """Why it cannot be done."""
    doubts: tuple[str, ...]
    """Why it is done with --force only."""


async def _adopt(call: Call) -> int:
    word, name = expect_arguments(call, ["SERVICE", "LOADBALANCER"])
    words = [word] if kind_of(word) == SERVICE else [SERVICE, word]
    target = read_target(words, namespace=call.flags.text(NAMESPACE.name))
    async with open_clusters(call.settings, call.environment) as clusters:
        adoption = await _look(call, clusters, target, name)
        allowed = not adoption.obstacles and (call.flags.read(FORCE.name, bool) or not adoption.doubts)
        write = allowed and bool(adoption.changes) and call.flags.read(YES.name, bool)
        if write:
            namespace = clusters.harvester.namespace
            await clusters.harvester.replace(LOAD_BALANCERS, name, adoption.document, namespace=namespace)
    call.output.answer(_document(adoption, written=write), _verdict(adoption, allowed=allowed, written=write))
    return EXIT_OK if allowed else EXIT_PROBLEMS


async def _look(call: Call, clusters: Clusters, target: Target, name: str) -> Adoption:
    inventory = await read_inventory(clusters)
    problem = inventory.problems.get(LOAD_BALANCERS.plural)
    if problem is not None:
        raise problem
    service = named_service(inventory, target, clusters.guest.namespace)
    load_balancer = next((one for one in inventory.load_balancers if one.metadata.name == name), None)
    if load_balancer is None:
        raise CCMError(f"there is no load balancer {name} in namespace {inventory.namespace} of Harvester")
    return propose(service, load_balancer, inventory, view_of(call, inventory))


def propose(service: Service, load_balancer: LoadBalancer, inventory: Inventory, view: ServiceView) -> Adoption:
    """Return what would be written to make the load balancer the Service's, and what speaks against it."""
    change = load_balancer_change(load_balancer, service, view.cluster)
    document = changed_document(load_balancer, change)
    return Adoption(
        service=service,
        load_balancer=load_balancer,
        document=document,
        changes=tuple(differences(load_balancer.document(), document)),
        obstacles=tuple(_obstacles(service, load_balancer, inventory, view)),
        doubts=tuple(_doubts(service, load_balancer, inventory, view.cluster)),
    )


def _obstacles(service: Service, load_balancer: LoadBalancer, inventory: Inventory, view: ServiceView) -> Iterator[str]:
    situation = view.observe(service, inventory)
    not_served = view.left_alone(situation)
    if not_served:
        yield f"the Service is not served: {not_served}"
    if service.metadata.deleting:
        yield "the Service is being deleted, and the load balancer would be deleted with it"
    primary = primary_reference(service)
    if primary:
        yield f"the Service shares the address of {primary}; a load balancer of its own would be deleted"
    if load_balancer.metadata.deleting:
        yield "the load balancer is being deleted"
    wanted = situation.request.workload_type
    if wanted not in {None, load_balancer.spec.workload_type}:
        yield (
            f"the Service asks for a {wanted} load balancer and this is a {load_balancer.spec.workload_type} one, so "
            "it would be deleted and created again"
        )
    for one in situation.match.candidates:
        if one.verdict is Verdict.CLAIMED and one.name != load_balancer.metadata.name:
            yield (
                f"load balancer {one.name} serves the Service ({one.because}), and of two the running program deletes "
                "one. Stop it, delete that load balancer in Harvester, adopt this one, start it again"
            )


def _doubts(
    service: Service, load_balancer: LoadBalancer, inventory: Inventory, cluster: ClusterIdentity
) -> Iterator[str]:
    meta, serves = load_balancer.metadata, service_key(load_balancer)
    mark, made_for = meta.annotation(LB_OWNER), meta.label(LB_CLUSTER)
    if mark and mark != cluster.uid:
        yield (
            f"annotation {LB_OWNER} is {mark}: it belongs to another cluster, called {made_for!r}. If that cluster "
            "still exists, the two would take the address from each other"
        )
    if serves not in (service.metadata.key, "/") and inventory.service(serves) is not None:
        yield f"its labels say that it serves Service {serves}, which exists in this cluster and would lose it"
    address = load_balancer.address or load_balancer.allocated_ip
    if service.addresses and address and address not in service.addresses:
        yield f"the address of the Service changes from {service.addresses[0]} to {address}"


def _document(adoption: Adoption, *, written: bool) -> Document:
    return {
        "service": adoption.service.metadata.key,
        "loadBalancer": adoption.load_balancer.metadata.name,
        "changes": list(adoption.changes),
        "obstacles": list(adoption.obstacles),
        "doubts": list(adoption.doubts),
        "written": written,
    }


def _verdict(adoption: Adoption, *, allowed: bool, written: bool) -> str:
    if adoption.obstacles:
        return "It cannot be done, because of the obstacles."
    if not adoption.changes:
        return "It is this Service's already; nothing is to be done."
    if not allowed:
        return "Because of the doubts it is done with --force only."
    return "The changes were written." if written else "Nothing was written; add --yes to do it."


MANUAL: Final = Manual(
    usages=("adopt SERVICE LOADBALANCER [-n NAMESPACE] [--yes] [flags]",),
    examples=(
        ("What would be written?", "adopt svc/web demo-shop-web-4cc2bc7e -n shop"),
        ("Do it.", "adopt svc/web demo-shop-web-4cc2bc7e -n shop --yes"),
    ),
    meaning="""
        Lets a Service take over a load balancer in Harvester, and with it the address, where the running program does
        not do so by itself because nothing proves that the load balancer is this cluster's: after the cluster was set
        up anew, or renamed without --former-cluster-name. explain service says which load balancers there are.

        Without --yes it is only shown what would be written. A Service that has a load balancer of its own already
        keeps it: delete that one first, while this program does not run.

        Exit codes: 0 done, or nothing to do, 1 refused or failed, 2 the command line cannot be used.
    """,
    own=(NAMESPACE, YES, FORCE, OUTPUT),
    action=_adopt,
    words=("svc", SERVICE),
)


def differences(before: Mapping[str, object], after: Mapping[str, object], path: str = "") -> list[str]:
    """Return what differs between two documents, one text per field."""
    found: list[str] = []
    for key in dict.fromkeys((*before, *after)):
        old, new = before.get(key), after.get(key)
        where = f"{path}.{key}" if path else key
        if isinstance(old, dict) and isinstance(new, dict):
            found += differences(cast("Mapping[str, object]", old), cast("Mapping[str, object]", new), where)
        elif old != new:
            texts = [json.dumps(one[key]) if key in one else "absent" for one in (before, after)]
            found.append(f"{where} {' → '.join(texts)}")
    return found
