"""Which objects a change concerns: the functions of the rules in ``wake``.

Each gets the caches with the change in them, and the old and the new object: None if it was created or deleted. For a
signal that is no change of an object, both are None. Each returns keys.
"""

from typing import Final, TypeVar

from harvester_ccm.controllers.caches import Caches
from harvester_ccm.model.core import Node, Service, parse_provider_id
from harvester_ccm.model.harvester import LoadBalancer, VirtualMachine, VirtualMachineInstance
from harvester_ccm.names import NAD_MAPPING_NAME, NAD_MAPPING_NAMESPACE
from harvester_ccm.plan.node.vms import IDENTITY, identity, vm_identities, vmi_identities, vms_of
from harvester_ccm.plan.service.ownership.orphans import is_orphan, service_of
from harvester_ccm.plan.service.ownership.owner import allocated_addresses, has_cluster_name, service_key
from harvester_ccm.plan.service.request import requests_address
from harvester_ccm.plan.service.scope import BY_PRIMARY, may_be_ours
from harvester_ccm.plan.service.sharing.ranking import families_of_change
from harvester_ccm.plan.service.store import BY_ADDRESS, BY_REQUEST, BY_SERVICE

MAPPING_KEY: Final = f"{NAD_MAPPING_NAMESPACE}/{NAD_MAPPING_NAME}"
"""Key of the ConfigMap that maps networks to devices."""

T = TypeVar("T")
_Machine = Node | VirtualMachine | VirtualMachineInstance


# Services


def changed_service(caches: Caches, old: Service | None, new: Service | None) -> set[str]:
    """Return the Service, if it is, was or can be managed."""
    changed = _existing(old, new)
    return {service.metadata.key for service in changed if new is None or may_be_ours(service, caches.cluster)}


def primaries_of_service(caches: Caches, old: Service | None, new: Service | None) -> set[str]:
    """Return the primaries whose families read a field of the Service that has changed."""
    return families_of_change(caches.services, caches.cluster, old, new)


def family_of(caches: Caches, primary_key: str) -> list[str]:
    """Return a primary and the Services that name it, or last had its address."""
    family = [secondary.metadata.key for secondary in caches.services.by_index(BY_PRIMARY, primary_key)]
    if caches.services.get(primary_key) is not None:
        family.insert(0, primary_key)
    return family


def managed_services(caches: Caches, *_change: object) -> list[str]:
    """Return all Services that can be managed."""
    return [service.metadata.key for service in caches.services.all() if may_be_ours(service, caches.cluster)]


def services_without_address(caches: Caches, *_change: object) -> list[str]:
    """Return the Services without an address: they are urgent."""
    keys = []
    for service in caches.services.all():
        lacks_address = service.spec.type == "LoadBalancer" and not service.addresses
        if lacks_address and may_be_ours(service, caches.cluster):
            keys.append(service.metadata.key)
    return keys


def decidable_services(caches: Caches, *_change: object) -> list[str]:
    """Return all Services, as soon as Harvester has responded or failed: each of these enqueues all again."""
    load_balancers = caches.load_balancers
    if load_balancers.synced or load_balancers.problem is not None:
        return managed_services(caches)
    return []


def service_of_load_balancer(caches: Caches, old: LoadBalancer | None, new: LoadBalancer | None) -> list[str]:
    """Return the Service that the load balancer was created for."""
    keys = {service_key(load_balancer) for load_balancer in _existing(old, new)}
    return [key for key in keys if caches.services.get(key) is not None]


def primaries_of_load_balancer(_caches: Caches, old: LoadBalancer | None, new: LoadBalancer | None) -> set[str]:
    """Return the Service of a load balancer whose addresses have changed, for the Services that share them."""
    if _addresses_of(old) == _addresses_of(new):
        return set()
    return {service_key(load_balancer) for load_balancer in _existing(old, new)}


def services_of_address(caches: Caches, old: LoadBalancer | None, new: LoadBalancer | None) -> list[str]:
    """Return the Services that have or request the address of a load balancer whose addresses have changed."""
    if _addresses_of(old) == _addresses_of(new):
        return []
    keys = []
    for load_balancer in _existing(old, new):
        address = load_balancer.allocated_ip
        services = (*caches.services.by_index(BY_ADDRESS, address), *caches.services.by_index(BY_REQUEST, address))
        keys += [service.metadata.key for service in services if may_be_ours(service, caches.cluster)]
    return keys


def services_with_request(caches: Caches, *_change: object) -> list[str]:
    """Return the Services that may request a certain address: it can be requested now, or their Warning is another."""
    services = filter(requests_address, caches.services.all())
    return [service.metadata.key for service in services if may_be_ours(service, caches.cluster)]


def services_with_backends(caches: Caches, *_change: object) -> list[str]:
    """Return the Services with a VM load balancer."""
    keys = []
    for load_balancer in caches.load_balancers.all():
        if load_balancer.spec.workload_type == "vm":
            keys += service_of_load_balancer(caches, None, load_balancer)
    return keys


# Load balancers


def orphaned_load_balancer(caches: Caches, old: LoadBalancer | None, new: LoadBalancer | None) -> set[str]:
    """Return the load balancer, if it is or was an orphan."""
    changed = _existing(old, new)
    return {load_balancer.metadata.key for load_balancer in changed if is_orphan_in(caches, load_balancer)}


def load_balancers_of_service(caches: Caches, old: Service | None, new: Service | None) -> list[str]:
    """Return the load balancers of a Service that was created, deleted or recreated."""
    if old is not None and new is not None and old.metadata.uid == new.metadata.uid:
        return []
    keys = []
    for service in _existing(old, new):
        load_balancers = caches.load_balancers.by_index(BY_SERVICE, service.metadata.key)
        keys += [load_balancer.metadata.key for load_balancer in load_balancers]
    return keys


def is_orphan_in(caches: Caches, load_balancer: LoadBalancer) -> bool:
    """Return whether a load balancer is an orphan by the caches."""
    # To find the Service of one without labels, all Services are looked at.
    if not has_cluster_name(load_balancer, caches.cluster):
        return False
    return is_orphan(load_balancer, service_of(load_balancer, caches.services), caches.cluster)


def _addresses_of(load_balancer: LoadBalancer | None) -> frozenset[str]:
    """Return the addresses of a load balancer that the Services which share it read."""
    if load_balancer is None:
        return frozenset()
    return allocated_addresses((load_balancer,))


# The ConfigMap


def network_mapping(_caches: Caches, *_change: object) -> list[str]:
    """Return the ConfigMap that maps networks to devices."""
    return [MAPPING_KEY]


# Nodes


def all_nodes(caches: Caches, *_change: object) -> list[str]:
    """Return all Nodes."""
    return [node.metadata.name for node in caches.nodes.all()]


def nodes_of_node(caches: Caches, old: Node | None, new: Node | None) -> set[str]:
    """Return the Node, and with a change of its provider ID the Nodes that can be the same VM."""
    if _is_equal(old, new):
        return set()
    changed = _existing(old, new)
    names = {node.metadata.name for node in changed}
    if old is None or new is None or old.spec.provider_id != new.spec.provider_id:
        # Another Node can be waiting for the VM of a provider ID that was set or removed.
        for node in changed:
            uid = parse_provider_id(node.spec.provider_id)
            if uid:
                names |= _nodes_of_uid(caches, uid)
    return names


def nodes_of_vm(caches: Caches, old: VirtualMachine | None, new: VirtualMachine | None) -> set[str]:
    """Return the Nodes that have an identity in common with the VM."""
    if _is_equal(old, new):
        return set()
    names: set[str] = set()
    for vm in _existing(old, new):
        names |= _nodes_of(caches, vm, caches.vmis.get(vm.metadata.key))
    return names


def nodes_of_vmi(caches: Caches, old: VirtualMachineInstance | None, new: VirtualMachineInstance | None) -> set[str]:
    """Return the Nodes that have an identity in common with the VM of the VMI."""
    if _is_equal(old, new):
        return set()
    vmis = _existing(old, new)
    vm = caches.vms.get(vmis[0].metadata.key)
    # A VMI without a VM is no Node.
    if vm is None:
        return set()
    return _nodes_of(caches, vm, *vmis)


def nodes_without_identity(
    caches: Caches, old: VirtualMachineInstance | None, new: VirtualMachineInstance | None
) -> list[str]:
    """Return the Nodes that only the host name of a guest can identify, when a guest agent connects."""
    had_agent = old is not None and old.has_agent
    if new is None or not new.has_agent or had_agent:
        return []
    return sorted(caches.unidentified)


def _nodes_of_uid(caches: Caches, uid: str) -> set[str]:
    names: set[str] = set()
    for vm in vms_of(caches, identity("uid", uid)):
        names |= _nodes_of(caches, vm.object, vm.vmi)
    return names


def _nodes_of(caches: Caches, vm: VirtualMachine, *vmis: VirtualMachineInstance | None) -> set[str]:
    """Return the names of the Nodes that can be this VM."""
    values = set(vm_identities(vm))
    for vmi in vmis:
        if vmi is not None:
            values.update(vmi_identities(vmi))
    hostname = caches.hostnames.get(vm.metadata.name, "")
    values.add(identity("host", hostname.lower().partition(".")[0]))
    return {node.metadata.name for value in values for node in caches.nodes.by_index(IDENTITY, value)}


def _existing(*objects: T | None) -> list[T]:
    return [item for item in objects if item is not None]


def _is_equal(old: _Machine | None, new: _Machine | None) -> bool:
    """Return whether everything that a plan reads is equal: neither versions nor heartbeats."""
    if old is None or new is None:
        return False
    return _read_fields(old) == _read_fields(new)


def _read_fields(item: _Machine) -> tuple[object, ...]:
    meta = item.metadata
    return (item.spec, item.status, meta.uid, meta.deleting, meta.labels, meta.annotations)
