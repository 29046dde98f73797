"""``explain service``: one Service, from the clusters or from files."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime

from harvester_ccm.commands.call import FILENAME, NAMESPACE, WAITED, Call, expect_arguments, refuse, split_key
from harvester_ccm.commands.clusters import Clusters, open_clusters, read_endpoint_slice, read_inventory
from harvester_ccm.commands.files import read_files
from harvester_ccm.commands.inventory import ENDPOINT_SLICES, IDENTITY_NAMESPACE, Inventory
from harvester_ccm.commands.service_report import ServiceReport, ServiceView, report_service
from harvester_ccm.config import SERVICE_CONTROLLER, Settings
from harvester_ccm.errors import CCMError
from harvester_ccm.model.cluster import ClusterIdentity
from harvester_ccm.model.core import Service
from harvester_ccm.model.harvester import VIRTUAL_MACHINES
from harvester_ccm.names import NAD_MAPPING_NAME, NAD_MAPPING_NAMESPACE
from harvester_ccm.plan.service.request import read_request
from harvester_ccm.plan.service.selection import primary_reference


def explain_service(call: Call) -> int:
    """Explain a Service and return the exit code."""
    files = call.flags.words(FILENAME.name)
    if files:
        report = _from_files(call, files)
    else:
        (key,) = expect_arguments(call, ["NAMESPACE/NAME"], skip=1)
        report = asyncio.run(_from_clusters(call, "/".join(split_key(key, "the Service"))))
    call.output.answer(report.document(), text=report.text())
    return report.exit_code


async def _from_clusters(call: Call, key: str) -> ServiceReport:
    async with open_clusters(call.settings, call.environment) as clusters:
        inventory = await read_inventory(clusters)
        service = inventory.service(key)
        if service is None:
            raise CCMError(f"there is no Service {key} in this cluster")
        machines = inventory.problems.get(VIRTUAL_MACHINES.plural)
        if machines is not None:
            inventory = inventory.assuming(f"the VMs cannot be read; nodes count under their own names ({machines})")
        view = _view(call, inventory, clusters.harvester.namespace, now=datetime.now(UTC))
        report = report_service(service, inventory, view)
        claimed = report.claimed
        if claimed is None or claimed.load_balancer.spec.workload_type != "vm":
            return report
        return report_service(service, await _with_health(inventory, clusters, claimed.name), view)


async def _with_health(inventory: Inventory, clusters: Clusters, load_balancer: str) -> Inventory:
    asked = await read_endpoint_slice(clusters.harvester, load_balancer)
    if asked.answer is not None:
        return replace(inventory, slices=(asked.answer,))
    problems = {ENDPOINT_SLICES.plural: asked.error} if asked.error is not None else {}
    return replace(inventory, problems={**inventory.problems, **problems})


def _from_files(call: Call, files: tuple[str, ...]) -> ServiceReport:
    contents = read_files(files, namespace=call.flags.text(NAMESPACE.name))
    inventory = contents.inventory
    service, choice = _chosen(call, inventory)
    view = _view(call, inventory, contents.namespace, now=None)
    return report_service(service, inventory.assuming(choice, *_missing(call, inventory, service)), view)


def _view(call: Call, inventory: Inventory, namespace: str, *, now: datetime | None) -> ServiceView:
    settings: Settings = call.settings
    cluster = ClusterIdentity.of(settings, namespace, inventory.cluster_uid)
    given = WAITED.name in call.flags.explicit
    waited = call.flags.read(WAITED.name, float) if given else None
    serving = SERVICE_CONTROLLER in settings.controllers
    return ServiceView(cluster, serving, waited, now)


def _chosen(call: Call, inventory: Inventory) -> tuple[Service, str]:
    """Return the Service to explain, and how it was chosen where the files leave a choice."""
    arguments = call.arguments[1:]
    if arguments:
        (key,) = expect_arguments(call, ["NAMESPACE/NAME"], skip=1)
        named = inventory.service("/".join(split_key(key, "the Service")))
        if named is None:
            present = ", ".join(one.metadata.key for one in inventory.services) or "none"
            raise refuse(f"Service {key} is not in the files; there are: {present}")
        return named, ""
    if not inventory.services:
        raise refuse("there is no Service in the files")
    primaries = {primary_reference(one) for one in inventory.services}
    choice = [one for one in inventory.services if one.metadata.key not in primaries] or list(inventory.services)
    if len(choice) == 1:
        return choice[0], ""
    keys = ", ".join(one.metadata.key for one in choice[1:])
    return choice[0], f"Service {choice[0].metadata.key} is meant, the first one; name another as argument: {keys}"


def _missing(call: Call, inventory: Inventory, service: Service) -> Iterator[str]:
    """Yield what the files leave out and the plan depends on."""
    yield from call.settings.warnings
    if not inventory.cluster_uid:
        yield (
            f"the UID of this cluster is not known (Namespace {IDENTITY_NAMESPACE} is not in the files): load "
            "balancers are judged and written without an owner mark"
        )
    if not inventory.load_balancers:
        yield "Harvester has no load balancer: none is in the files"
    primary = primary_reference(service)
    if primary is not None and inventory.service(primary) is None:
        yield f"Service {primary} does not exist: it is not in the files"
    request = read_request(service)
    if request.wants_vm and not inventory.nodes:
        yield "the cluster has no Node: none is in the files"
    if request.network and inventory.mapping is None:
        yield f"ConfigMap {NAD_MAPPING_NAMESPACE}/{NAD_MAPPING_NAME} does not exist: it is not in the files"
    if WAITED.name not in call.flags.explicit:
        yield "the Service has just come into its present state (--waited 0s)"
