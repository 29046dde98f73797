"""What a Node and a VM have in common when they can be each other's: the index by which an event finds its Nodes.

A Node and a VM without a common identity are never matched by ``node_match``. The reverse does not hold.
"""

from __future__ import annotations

from harvester_ccm.model.core import Node, parse_provider_id
from harvester_ccm.plan.node.vms import VM


def node_identities(node: Node) -> tuple[str, ...]:
    """Return the identities of a Node: VM UID of its provider ID, system UUID, short name."""
    uid = parse_provider_id(node.spec.provider_id)
    uuid = node.status.node_info.system_uuid.strip().lower()
    return (*([f"uid {uid}"] if uid else []), *([f"uuid {uuid}"] if uuid else []), _host(node.metadata.name))


def vm_identities(vm: VM) -> frozenset[str]:
    """Return the identities of a VM: UID, firmware UUID, short name, short guest host name."""
    found = {f"uid {vm.uid}", _host(vm.name)}
    if vm.firmware_uuid:
        found.add(f"uuid {vm.firmware_uuid}")
    if vm.hostname:
        found.add(_host(vm.hostname))
    return frozenset(found)


def _host(name: str) -> str:
    return f"host {name.partition('.')[0]}"
