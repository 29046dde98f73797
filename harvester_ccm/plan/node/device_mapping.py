"""The ConfigMap that maps a Harvester network to its device in the nodes.

``kube-system/harvester-nad-mapping`` contains, under ``interface-nad-mapping``, a JSON object of network to device, for
the networks that every node has on the same device; an empty string if none exists. Service controllers and Rancher
read it. When all VMs report their devices, the value is the one of the Go provider. Differences for a VM that does not
report a device (no guest agent, restart, migration), which empties the mapping of the Go provider:

* What is published for the networks of that VM stays, unless the other VMs report two different devices.
* If nothing is published yet, the devices that the other VMs report count. If no VM reports any, nothing is written.
"""

from collections.abc import Iterable

import msgspec

from harvester_ccm.model.core import ConfigMap, published_devices
from harvester_ccm.model.harvester import VirtualMachineInstance
from harvester_ccm.names import NAD_MAPPING_KEY, NAD_MAPPING_NAME, NAD_MAPPING_NAMESPACE


def plan_device_mapping(vmis: Iterable[VirtualMachineInstance], config_map: ConfigMap | None) -> str | None:
    """Return the value to write for the VMIs of the nodes; None if the ConfigMap stays as it is."""
    reports = [_devices(vmi) for vmi in vmis if vmi.status.phase == "Running"]
    if not reports:
        return None
    # A value that is not valid JSON counts as not published: the next known mapping replaces it.
    published = published_devices(config_map)
    mapping: dict[str, str] = {}
    is_incomplete = False
    for network in set[str].intersection(*map(set, reports)):
        devices = {report[network] for report in reports}
        is_silent = "" in devices
        is_incomplete |= is_silent
        if len(devices - {""}) == 1 and (not is_silent or published is None):
            mapping[network] = max(devices)
        elif len(devices - {""}) <= 1 and published and network in published:
            mapping[network] = published[network]
    if mapping == published or (is_incomplete and not mapping and not published):
        return None
    return msgspec.json.encode(mapping, order="sorted").decode() if mapping else ""


def _devices(vmi: VirtualMachineInstance) -> dict[str, str]:
    """Return the networks of a VM with their devices, which are empty if the VM does not report them.

    Devices during a live migration are not reliable.
    """
    networks = vmi.spec.multus_networks
    devices = dict.fromkeys(filter(None, networks.values()), "")
    reported = () if vmi.is_migrating else vmi.interfaces
    return devices | {networks[i.name]: i.interface_name for i in reported if i.interface_name and networks.get(i.name)}


def new_config_map(value: str) -> dict[str, object]:
    """Return the ConfigMap to create if none exists."""
    return {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {"name": NAD_MAPPING_NAME, "namespace": NAD_MAPPING_NAMESPACE},
        "data": {NAD_MAPPING_KEY: value},
    }
