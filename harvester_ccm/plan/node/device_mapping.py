"""The network devices of the nodes: what the ConfigMap ``kube-system/harvester-nad-mapping`` says about them.

Under ``interface-nad-mapping`` it contains a JSON object of network to device, for the networks that every node has on
the same device; an empty string if none exists. Service controllers and Rancher read it. A VM that reports no device
(no guest agent, restart, migration) empties the mapping of the Go provider. Here, what is published for its networks
stays, unless the other VMs report two devices; if nothing is published yet, the devices that the others report count.
"""

from collections.abc import Iterable, Mapping, Sequence

import msgspec

from harvester_ccm.model.core import ConfigMap, is_device, published_devices
from harvester_ccm.model.harvester import VirtualMachineInstance


def plan_device_mapping(vmis: Iterable[VirtualMachineInstance], config_map: ConfigMap | None) -> str | None:
    """Return the value to write for the VMIs of the nodes; None if the ConfigMap stays as it is."""
    reports = [_devices(vmi) for vmi in vmis if vmi.status.phase == "Running"]
    if not reports:
        return None
    # A value that is not valid JSON counts as not published: the next known mapping replaces it.
    published = published_devices(config_map)
    of_networks = _devices_of_networks(reports)
    mapping: dict[str, str] = {}
    for network, devices in of_networks.items():
        device = _device(devices, (published or {}).get(network), is_published=published is not None)
        if device is not None:
            mapping[network] = device
    is_incomplete = any("" in devices for devices in of_networks.values())
    if mapping == published or (is_incomplete and not mapping and not published):
        return None
    if not mapping:
        return ""
    return msgspec.json.encode(mapping, order="sorted").decode()


def _devices_of_networks(reports: Sequence[Mapping[str, str]]) -> dict[str, set[str]]:
    """Return the networks that all VMs have, with the devices that they report; an empty one if a VM is silent."""
    common = set[str].intersection(*map(set, reports))
    return {network: {report[network] for report in reports} for network in common}


def _device(devices: set[str], published: str | None, *, is_published: bool) -> str | None:
    """Return the device of a network for the mapping; None if the network is left out.

    ``published`` is the device in the present mapping, and ``is_published`` whether there is a mapping.
    """
    named = devices - {""}
    if len(named) > 1:
        return None
    is_silent = "" in devices
    if named and (not is_silent or not is_published):
        return max(named)
    return published


def _devices(vmi: VirtualMachineInstance) -> dict[str, str]:
    """Return the networks of a VM with their devices, which are empty if the VM does not report them.

    Devices during a live migration are not reliable. The guest agent belongs to whoever is root in the VM.
    """
    networks = vmi.spec.multus_networks
    devices = dict.fromkeys(filter(None, networks.values()), "")
    if vmi.is_migrating:
        return devices
    for interface in vmi.interfaces:
        network = networks.get(interface.name)
        if network and is_device(interface.interface_name):
            devices[network] = interface.interface_name
    return devices
