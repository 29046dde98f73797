"""``explain nad-mapping``: which network is on which device in all nodes, and what the ConfigMap would say."""

from __future__ import annotations

import json

from msgspec import Struct

from harvester_ccm.commands import EXIT_OK, EXIT_PROBLEMS
from harvester_ccm.commands.call import NAMESPACE, Call, expect_arguments, refuse
from harvester_ccm.commands.clusters import open_clusters, read_inventory
from harvester_ccm.commands.inventory import Inventory
from harvester_ccm.commands.render import Document
from harvester_ccm.model.harvester import INSTANCES, VirtualMachineInstance
from harvester_ccm.names import NAD_MAPPING_KEY, NAD_MAPPING_NAME, NAD_MAPPING_NAMESPACE
from harvester_ccm.plan.node.device_mapping import MappingPlan, mapping_text, plan_nad_mapping
from harvester_ccm.plan.node.vms import own_vmis


class MappingReport(Struct, frozen=True):
    """The mapping explained."""

    plan: MappingPlan
    vmis: tuple[VirtualMachineInstance, ...]
    """Those that count."""
    assumptions: tuple[str, ...]

    @property
    def exit_code(self) -> int:
        """Problems: the device of a network is not known or not the same everywhere."""
        return EXIT_PROBLEMS if self.plan.dropped or self.plan.unknown else EXIT_OK

    def document(self) -> Document:
        """Return the explanation for scripts; ``write`` is null when the ConfigMap would be left as it is."""
        return {
            "mapping": dict(self.plan.mapping),
            "value": mapping_text(self.plan.mapping),
            "write": self.plan.value,
            "configMap": f"{NAD_MAPPING_NAMESPACE}/{NAD_MAPPING_NAME}",
            "key": NAD_MAPPING_KEY,
            "instances": [one.metadata.name for one in self.vmis],
            "dropped": [{"network": network, "reason": reason} for network, reason in self.plan.dropped.items()],
            "silent": list(self.plan.unknown),
            "assumptions": list(self.assumptions),
        }

    def text(self) -> Document:
        """Return the explanation for people."""
        value = self.plan.value
        return {
            "VMs that count": ", ".join(one.metadata.name for one in self.vmis) or "none",
            "Networks left out": [f"{network}: {reason}" for network, reason in self.plan.dropped.items()],
            "VMs that do not report all their devices": ", ".join(self.plan.unknown),
            "What would be done now": (
                f"ConfigMap {NAD_MAPPING_NAMESPACE}/{NAD_MAPPING_NAME}, key {NAD_MAPPING_KEY}: "
                + ("nothing" if value is None else f"written as {value!r}")
            ),
            "Assumed": list(self.assumptions),
        }


async def explain_mapping(call: Call) -> MappingReport:
    """Return the explanation of the mapping; for people, the mapping itself is printed first."""
    expect_arguments(call, [], skip=1)
    if NAMESPACE.name in call.flags.explicit:
        raise refuse("--namespace is that of a Service, and the mapping is in none")
    report = await _from_clusters(call)
    if not call.output.scripted:
        mapping = dict(report.plan.mapping)
        call.output.line(json.dumps(mapping, sort_keys=True, separators=(",", ":"), ensure_ascii=False))
    return report


async def _from_clusters(call: Call) -> MappingReport:
    async with open_clusters(call.settings, call.environment) as clusters:
        inventory = await read_inventory(clusters)
        problem = inventory.problems.get(INSTANCES.plural)
        if problem is not None:
            raise problem
        index = inventory.node_store(call.settings).index()
        return report_mapping(inventory, own_vmis(index))


def report_mapping(inventory: Inventory, vmis: tuple[VirtualMachineInstance, ...]) -> MappingReport:
    """Return the explanation: the plan is the one that the running program would make after a start."""
    plan = plan_nad_mapping(vmis, inventory.mapping, remembered={})
    return MappingReport(plan, vmis, inventory.assumptions)
