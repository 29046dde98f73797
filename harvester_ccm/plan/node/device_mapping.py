"""The ConfigMap that maps a Harvester network to the device it has in the nodes.

``kube-system/harvester-nad-mapping`` holds, under ``interface-nad-mapping``, a JSON object of network name to device
for the networks that every node has on a device of the same name; an empty string when there is none. Service
controllers and Rancher read it. When all VMs report their devices the value is the Go provider's. Differences:

* A VM that does not report devices (no guest agent, restart, migration) says nothing about them: what it last said
  counts, and without that it does not vote. In Go it empties the mapping, which blocks every Service with a network.
* A network whose device no VM reports keeps what is published.
* While nothing at all is known, nothing is written; in Go the empty string is.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import msgspec
from msgspec import Struct, field
from msgspec.structs import replace

from harvester_ccm.model.core import ConfigMap, published_devices
from harvester_ccm.model.harvester import VirtualMachineInstance
from harvester_ccm.names import NAD_MAPPING_KEY, NAD_MAPPING_NAME, NAD_MAPPING_NAMESPACE
from harvester_ccm.plan.node.vms import migrating, phase

Devices = Mapping[str, str]
"""Network name to device name."""


class MappingPlan(Struct, frozen=True):
    """What the ConfigMap must say."""

    value: str | None = None
    """Text to write; None: leave the ConfigMap as it is."""
    remembered: Mapping[str, Devices] = field(default_factory=dict)
    """What each VM last said, by UID of its VMI; pass it in next time."""


class DeviceReport(Struct, frozen=True):
    """What a running VM says about its networks: all that the mapping depends on."""

    vmi_uid: str
    attached: frozenset[str]
    """Its networks."""
    devices: Devices
    """Those of them whose device is known."""
    reports: bool
    """Whether it reports any interface at the moment."""


def plan_nad_mapping(
    vmis: Iterable[VirtualMachineInstance], config_map: ConfigMap | None, *, remembered: Mapping[str, Devices]
) -> MappingPlan:
    """Return the mapping over the nodes' VMIs (``vms.own_vmis``). ``config_map``: None if absent."""
    # Unreadable text counts as none, so that anything known replaces it.
    published = published_devices(config_map)
    said = [report for report in map(device_report, vmis) if report is not None]
    recalled = (_with_memory(report, remembered.get(report.vmi_uid, {})) for report in said)
    # One that has never reported an interface does not count.
    reports = tuple(report for report in recalled if report.reports or report.devices)
    memory = {report.vmi_uid: report.devices for report in reports}
    unknown = any(report.attached - report.devices.keys() for report in reports)
    if not reports:
        return MappingPlan()
    mapping = _common(reports, published or {})
    nothing_known = unknown and not mapping and not published
    value = None if nothing_known or mapping == published else mapping_text(mapping)
    return MappingPlan(value, memory)


def mapping_text(mapping: Devices) -> str:
    """Return the value of the key: compact JSON with sorted keys, or nothing for no network."""
    return msgspec.json.encode(mapping, order="sorted").decode() if mapping else ""


def new_config_map(value: str) -> dict[str, object]:
    """Return the ConfigMap to create when there is none."""
    return {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {"name": NAD_MAPPING_NAME, "namespace": NAD_MAPPING_NAMESPACE},
        "data": {NAD_MAPPING_KEY: value},
    }


def device_report(vmi: VirtualMachineInstance) -> DeviceReport | None:
    """Return what a VM says now; None while it does not run. A VM that is being moved reports nothing certain."""
    if phase(vmi) != "Running":
        return None
    networks = vmi.spec.multus_networks
    interfaces = () if migrating(vmi) else vmi.interfaces
    devices = {networks[i.name]: i.interface_name for i in interfaces if i.interface_name and i.name in networks}
    attached = frozenset(network for network in networks.values() if network)
    return DeviceReport(vmi.metadata.uid, attached, devices, bool(interfaces))


def _with_memory(report: DeviceReport, remembered: Devices) -> DeviceReport:
    known = {network: device for network, device in remembered.items() if network in report.attached}
    return replace(report, devices=known | dict(report.devices))


def _common(reports: tuple[DeviceReport, ...], published: Devices) -> dict[str, str]:
    """Return the networks that every VM has on the same device; ``published`` counts where no VM reports a device."""
    common: dict[str, str] = {}
    for network in sorted(frozenset[str]().union(*(report.attached for report in reports))):
        devices = {report.devices[network] for report in reports if network in report.devices}
        if any(network not in report.attached for report in reports) or len(devices) > 1:
            continue
        if devices:
            common[network] = devices.pop()
        elif network in published:
            common[network] = published[network]
    return common
