"""VMs that files leave out, supposed to be there, so that more is told than that they are missing."""

from __future__ import annotations

from collections.abc import Iterable

from msgspec.structs import replace

from harvester_ccm.commands.inventory import Inventory
from harvester_ccm.model.core import parse_provider_id
from harvester_ccm.model.harvester import VirtualMachine
from harvester_ccm.model.meta import ObjectMeta


def with_stand_ins(inventory: Inventory) -> Inventory:
    """Return the inventory with a VM for every instance that has none."""
    present = {one.metadata.name for one in inventory.vms}
    missing = [one.metadata for one in inventory.vmis if one.metadata.name not in present]
    if not missing:
        return inventory
    names = ", ".join(one.name for one in missing)
    sentence = f"a VM of the same name for VirtualMachineInstance {names}; its UID is not known"
    return _with(inventory, missing).assuming(sentence)


def with_vms_of_nodes(inventory: Inventory) -> Inventory:
    """Return the inventory with a VM for every Node, where none is in the files."""
    if inventory.vms or not inventory.nodes:
        return inventory
    metas = (ObjectMeta(name=one.metadata.name, namespace=inventory.namespace) for one in inventory.nodes)
    return _with(inventory, metas).assuming("each Node is the VM of its name: no VM is in the files")


def _with(inventory: Inventory, metas: Iterable[ObjectMeta]) -> Inventory:
    """Return the inventory with VMs of these names; each has the UID of the Node of its name, where that says one."""
    uids = {one.metadata.name: parse_provider_id(one.spec.provider_id) for one in inventory.nodes}
    made = (
        ObjectMeta(
            name=one.name, namespace=one.namespace, uid=uids.get(one.name) or f"uid-of-vm-{one.name}", labels=one.labels
        )
        for one in metas
    )
    return replace(inventory, vms=(*inventory.vms, *(VirtualMachine(metadata=one) for one in made)))
