"""``explain service``: what it is, which load balancer is its own and why, what would be done now, what it awaits."""

from __future__ import annotations

from msgspec.structs import replace

from harvester_ccm.commands.admission import ask_admission
from harvester_ccm.commands.backend_report import backends_of
from harvester_ccm.commands.call import Call
from harvester_ccm.commands.clusters import ask, open_clusters, open_guest
from harvester_ccm.commands.inventory import Inventory
from harvester_ccm.commands.one_service import read_for, read_without_harvester
from harvester_ccm.commands.service_report import ServiceReport, report_from_guest, report_service
from harvester_ccm.commands.service_view import view_of
from harvester_ccm.commands.targets import Target
from harvester_ccm.errors import CCMError
from harvester_ccm.model.core import ENDPOINT_SLICES, Service
from harvester_ccm.model.harvester import VIRTUAL_MACHINES


async def explain_service(call: Call, target: Target) -> ServiceReport:
    """Return the explanation of a Service."""
    if call.settings.harvester.cloud_config is None:
        return await _from_guest(call, target)
    return await _from_clusters(call, target)


async def _from_guest(call: Call, target: Target) -> ServiceReport:
    """Explain a Service without its load balancer: what the running program has said of it is all that is known."""
    async with open_guest(call.settings, call.environment) as guest:
        inventory = await read_without_harvester(guest, target.key_in(guest.namespace))
        service = _named_service(inventory, target, guest.namespace)
        return report_from_guest(service, view_of(call, inventory))


async def _from_clusters(call: Call, target: Target) -> ServiceReport:
    async with open_clusters(call.settings, call.environment) as clusters:
        inventory = await read_for(clusters, target.key_in(clusters.guest.namespace))
        service = _named_service(inventory, target, clusters.guest.namespace)
        vms = inventory.problems.get(VIRTUAL_MACHINES.plural)
        if vms is not None:
            why = "" if inventory.harvester_away is not None else f" ({vms})"
            inventory = inventory.assuming(f"the VMs cannot be read; nodes count under their own names{why}")
        report = report_service(service, view_of(call, inventory))
        if report.creation is not None:
            admission = await ask_admission(clusters.harvester, report.creation, clusters.harvester.namespace)
            return replace(report, admission=admission)
        claimed = report.claimed
        if claimed is None or claimed.load_balancer.spec.workload_type != "vm":
            return report
        # Their health is in an object that the running program does not read.
        question = clusters.harvester.get(ENDPOINT_SLICES, claimed.name, namespace=clusters.harvester.namespace)
        none_because = report.situation.backends.none_because
        backends = backends_of(claimed.load_balancer, inventory.vmis, await ask(question), none_because)
        return replace(report, backends=backends)


def _named_service(inventory: Inventory, target: Target, namespace: str) -> Service:
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
