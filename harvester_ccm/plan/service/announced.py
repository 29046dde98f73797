"""Plans of a Service with an allocated address that kube-vip in this cluster announces."""

from harvester_ccm import names
from harvester_ccm.model.harvester import LoadBalancer
from harvester_ccm.names import Reason
from harvester_ccm.plan.service.address import allocated_twice, has_older_twin
from harvester_ccm.plan.service.announced_address import address_events, announcement_of
from harvester_ccm.plan.service.announcement import with_announcement
from harvester_ccm.plan.service.desired import Desired, Finalizer, not_ready, virtual_ip_ingress, waits_for
from harvester_ccm.plan.service.device import device_for
from harvester_ccm.plan.service.dhcp_lease import awaits_first_lease, plan_dhcp, without_address
from harvester_ccm.plan.service.kube_vip import NOTES_ARE_VALID, PAUSE, Intent, Withdraw
from harvester_ccm.plan.service.load_balancer import load_balancer_change
from harvester_ccm.plan.service.reannouncement import with_reannouncement
from harvester_ccm.plan.service.snapshot import ServiceSnapshot
from harvester_ccm.plan.service.verdict import Ready, Verdict


def plan_device_unknown(snapshot: ServiceSnapshot) -> Desired:
    """Wait for the device: kube-vip would announce the address on another device, permanently."""
    load_balancer = snapshot.load_balancer
    warning = device_for(snapshot, load_balancer).warning
    verdict = waits_for(Reason.NETWORK_DEVICE_UNKNOWN)
    if warning is not None:
        verdict = not_ready(warning, snapshot)
    intent: Intent = PAUSE
    if snapshot.service.addresses:
        intent = Withdraw()
    ingress = None
    if awaits_first_lease(snapshot, load_balancer):
        ingress = without_address(snapshot)
    return Desired(
        verdict,
        intent,
        finalizer=Finalizer.ADD,
        ingress=ingress,
        write=load_balancer_change(load_balancer, snapshot),
    )


def plan_announced_by_kube_vip(snapshot: ServiceSnapshot) -> Desired:
    """Announce the allocated address and publish it in the status."""
    load_balancer = snapshot.load_balancer
    allocated = load_balancer.allocated_ip
    desired = _plan_pool(snapshot, load_balancer)
    if allocated == names.DHCP_ADDRESS:
        desired = plan_dhcp(snapshot, load_balancer)
    return with_announcement(with_reannouncement(desired, snapshot, allocated), snapshot)


def _plan_pool(snapshot: ServiceSnapshot, load_balancer: LoadBalancer) -> Desired:
    """Return the desired state with an address from an IP pool."""
    address = load_balancer.allocated_ip
    conflict = allocated_twice(snapshot, load_balancer)
    verdict: Verdict = Ready((address,), f"The load balancer has address {address}")
    if conflict is not None and has_older_twin(snapshot, load_balancer):
        verdict = not_ready(conflict, snapshot)
    return Desired(
        verdict,
        announcement_of(snapshot, load_balancer),
        annotations=NOTES_ARE_VALID,
        finalizer=Finalizer.ADD,
        ingress=virtual_ip_ingress(address, snapshot.service),
        write=load_balancer_change(load_balancer, snapshot, address=address),
        events=(*address_events(snapshot, load_balancer, address), conflict),
    )
