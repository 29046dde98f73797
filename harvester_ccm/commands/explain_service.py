"""``explain service``: what it is, which load balancer is its own and why, what would be done now, what it awaits.

From the clusters, or from files.
"""

from __future__ import annotations

from collections.abc import Iterator

from msgspec.structs import replace

from harvester_ccm.commands.admission import ask_admission
from harvester_ccm.commands.call import HARVESTER_NAMESPACE, NAMESPACE, WAITED, Call, harvester_namespace, refuse
from harvester_ccm.commands.clusters import ask, open_clusters, open_guest
from harvester_ccm.commands.files import read_files, with_vms_of_nodes
from harvester_ccm.commands.inventory import Inventory
from harvester_ccm.commands.one_service import read_for, read_without_harvester
from harvester_ccm.commands.service_report import ServiceReport, report_from_guest, report_service
from harvester_ccm.commands.service_view import view_of
from harvester_ccm.commands.targets import Target
from harvester_ccm.errors import CCMError
from harvester_ccm.kube.identity import IDENTITY_NAMESPACE
from harvester_ccm.model.core import ENDPOINT_SLICES, Service
from harvester_ccm.model.harvester import VIRTUAL_MACHINES
from harvester_ccm.names import NAD_MAPPING_NAME, NAD_MAPPING_NAMESPACE
from harvester_ccm.plan.service.request import read_request
from harvester_ccm.plan.service.selection import primary_reference


async def explain_service(call: Call, target: Target) -> ServiceReport:
    """Return the explanation of a Service."""
    if call.files:
        return _from_files(call, target)
    if not target.name:
        raise refuse("no Service is named: explain svc/NAME -n NAMESPACE")
    if call.settings.harvester.cloud_config is None:
        return await _from_guest(call, target)
    return await _from_clusters(call, target)


async def _from_guest(call: Call, target: Target) -> ServiceReport:
    """Explain a Service without its load balancer: what the running program has said of it is all that is known."""
    async with open_guest(call.settings, call.environment) as guest:
        inventory = await read_without_harvester(guest, target.key_in(guest.namespace))
        service = named_service(inventory, target, guest.namespace)
        return report_from_guest(service, inventory, view_of(call, inventory))


async def _from_clusters(call: Call, target: Target) -> ServiceReport:
    async with open_clusters(call.settings, call.environment) as clusters:
        inventory = await read_for(clusters, target.key_in(clusters.guest.namespace))
        service = named_service(inventory, target, clusters.guest.namespace)
        vms = inventory.problems.get(VIRTUAL_MACHINES.plural)
        if vms is not None:
            why = "" if inventory.harvester_away is not None else f" ({vms})"
            inventory = inventory.assuming(f"the VMs cannot be read; nodes count under their own names{why}")
        view = view_of(call, inventory)
        report = report_service(service, inventory, view)
        if report.creation is not None:
            admission = await ask_admission(clusters.harvester, report.creation, clusters.harvester.namespace)
            return replace(report, admission=admission)
        claimed = report.claimed
        if claimed is None or claimed.load_balancer.spec.workload_type != "vm":
            return report
        # Their health is in an object that the running program does not read.
        question = clusters.harvester.get(ENDPOINT_SLICES, claimed.name, namespace=clusters.harvester.namespace)
        asked = await ask(question)
        if asked.error is not None:
            inventory = replace(inventory, problems={**inventory.problems, ENDPOINT_SLICES.plural: asked.error})
        elif asked.answer is not None:
            inventory = replace(inventory, slices=(asked.answer,))
        return report_service(service, inventory, view)


def named_service(inventory: Inventory, target: Target, namespace: str) -> Service:
    """Return a Service of the cluster; ``namespace`` is that of the kubeconfig. Raises CCMError when it is not there.

    The error names the Services of that name in other namespaces.
    """
    key = target.key_in(namespace)
    service = inventory.service(key)
    if service is None:
        elsewhere = (one.metadata for one in inventory.services if one.metadata.name == target.name)
        there = " or ".join(sorted(f"-n {one.namespace}" for one in elsewhere))
        raise CCMError(f"there is no Service {key} in this cluster" + (f"; did you mean {there}?" if there else ""))
    return service


def _from_files(call: Call, target: Target) -> ServiceReport:
    inventory = read_files(call.files, namespace=harvester_namespace(call))
    service, choice = _chosen(target, inventory)
    if read_request(service).wants_vm or any(one.spec.workload_type == "vm" for one in inventory.load_balancers):
        inventory = with_vms_of_nodes(inventory)
    view = view_of(call, inventory)
    return report_service(service, inventory.assuming(choice, *_missing(call, inventory, service)), view)


def _chosen(target: Target, inventory: Inventory) -> tuple[Service, str]:
    """Return the Service to explain, and how it was chosen where the files leave a choice."""
    services = [one for one in inventory.services if target.namespace in ("", one.metadata.namespace)]
    if target.name:
        named = [one for one in services if one.metadata.name == target.name]
        if not named:
            present = ", ".join(one.metadata.key for one in inventory.services) or "none"
            wanted = target.key_in("") if target.namespace else target.name
            raise refuse(f"Service {wanted} is not in the files; there are: {present}")
        services = named
    if not services and inventory.services:
        present = ", ".join(one.metadata.key for one in inventory.services)
        raise refuse(
            f"there is no Service of namespace {target.namespace} in the files; there are: {present}. The namespace in "
            f"Harvester, which --{NAMESPACE.name} once was, is --{HARVESTER_NAMESPACE.name}"
        )
    if not services:
        raise refuse("there is no Service in the files")
    primaries = {primary_reference(one) for one in services}
    choice = [one for one in services if one.metadata.key not in primaries] or services
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
