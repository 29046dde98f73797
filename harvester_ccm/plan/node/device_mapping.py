"""The ConfigMap that maps a Harvester network to its device in the nodes.

``kube-system/harvester-nad-mapping`` contains, under ``interface-nad-mapping``, a JSON object of network to device, for
the networks that every node has on the same device; an empty string if there is none. Service controllers and Rancher
read it. When all VMs report their devices, the value is the one of the Go provider. Differences for a VM that does not
report a device (no guest agent, restart, migration), which empties the mapping of the Go provider:

* What is published for the networks of that VM stays, unless the other VMs report two different devices.
* If nothing is published yet, the devices that the other VMs report count. If no VM reports any, nothing is written.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import msgspec
from msgspec import Struct

from harvester_ccm.model.core import ConfigMap, published_devices
from harvester_ccm.model.harvester import VirtualMachineInstance
from harvester_ccm.names import NAD_MAPPING_KEY, NAD_MAPPING_NAME, NAD_MAPPING_NAMESPACE


class DeviceReport(Struct, frozen=True):
    """The networks of a running VM: everything that the mapping depends on."""

    attached: frozenset[str]
    devices: Mapping[str, str]
    """Network to device, for those networks whose device the VM reports."""


def device_report(vmi: VirtualMachineInstance) -> DeviceReport | None:
    """Return the networks of a VM; None if it does not run. Devices during a live migration are not reliable."""
    if vmi.phase != "Running":
        return None
    networks = vmi.spec.multus_networks
    interfaces = () if vmi.is_migrating else vmi.interfaces
    devices = {networks[i.name]: i.interface_name for i in interfaces if i.interface_name and i.name in networks}
    return DeviceReport(frozenset(filter(None, networks.values())), devices)


def plan_device_mapping(vmis: Iterable[VirtualMachineInstance], config_map: ConfigMap | None) -> str | None:
    """Return the value to write for the VMIs of the nodes; None if the ConfigMap stays as it is."""
    reports = [report for report in map(device_report, vmis) if report is not None]
    if not reports:
        return None
    # A value that is not valid JSON counts as not published: the next known mapping replaces it.
    published = published_devices(config_map)
    mapping: dict[str, str] = {}
    is_incomplete = False
    for network in frozenset[str].intersection(*(report.attached for report in reports)):
        found = {report.devices.get(network, "") for report in reports}
        devices = found - {""}
        is_incomplete |= "" in found
        if len(devices) > 1:
            continue
        if devices and ("" not in found or published is None):
            mapping[network] = devices.pop()
        elif published and network in published:
            mapping[network] = published[network]
    if mapping == published or (is_incomplete and not mapping and not published):
        return None
    return msgspec.json.encode(mapping, order="sorted").decode() if mapping else ""


def new_config_map(value: str) -> dict[str, object]:
    """Return the ConfigMap to create if there is none."""
    return {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {"name": NAD_MAPPING_NAME, "namespace": NAD_MAPPING_NAMESPACE},
        "data": {NAD_MAPPING_KEY: value},
    }
