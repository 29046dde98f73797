"""What is said about a Node: why it waits, what is odd about it, what was done to it, and what to do.

A plan returns each message for as long as it holds; the recorder emits it once. The log has the same messages.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from harvester_ccm.errors import CCMError, CredentialError, Forbidden, NotServed, Unauthorized, Unreachable
from harvester_ccm.model.harvester import VirtualMachineInstance
from harvester_ccm.model.outcome import EventMessage
from harvester_ccm.names import ADDITIONAL_INTERNAL_IPS, PROVIDED_NODE_IP, UNINITIALIZED_TAINT, NodeReason
from harvester_ccm.netip import IPAddress, IPNetwork
from harvester_ccm.plan.node.interfaces import DroppedAddress, Nic
from harvester_ccm.plan.node.vms import VM, agent_connected


def warning(reason: NodeReason, message: str, subject: str = "") -> EventMessage:
    """Return what somebody has to look after."""
    return EventMessage("Warning", reason, message, subject)


def write_note(error: CCMError) -> EventMessage:
    """Return why a write to the Node failed."""
    what_to_do = (
        "Grant the verb patch on nodes and nodes/status to the ClusterRole of this cloud controller manager"
        if isinstance(error, Forbidden)
        else "See what refuses it, for example an admission webhook"
    )
    return warning(NodeReason.WRITE_REFUSED, f"The Node could not be written: {error}. {what_to_do}")


def harvester_note(error: CCMError, *, action: str, namespace: str) -> EventMessage:
    """Return why Harvester could not be asked about the VM of a Node. None of this ever means that the VM is gone.

    ``action`` is what was tried, for example ``list VirtualMachines``.
    """
    match error:
        case Forbidden():
            return warning(
                NodeReason.HARVESTER_FORBIDDEN,
                f"Harvester forbids the credential in the cloud-config to {action} in namespace {namespace}: {error}. "
                f"{error.remedy[0].upper()}{error.remedy[1:]}",
                subject=action,
            )
        case Unauthorized():
            text, subject = f"{error.meaning} (401). {error.remedy}", "credential"
        case CredentialError():
            text, subject = f"cannot be asked without the credential of the cloud-config: {error}", "credential"
        case Unreachable():
            text, subject = f"{error.meaning}; this is tried again by itself. {error.remedy}: {error}", "unreachable"
        case NotServed():
            text, subject = f"does not know how to {action}; is the cloud-config's server a Harvester? {error}", "kind"
        case _:
            text, subject = f"failed to {action} in namespace {namespace}; trying again: {error}", "failing"
    return warning(NodeReason.HARVESTER_UNAVAILABLE, f"Harvester {text}", subject=subject)


def not_running(vm: VM) -> EventMessage:
    """Return the note for a VM that has no VMI."""
    status = vm.object.status.printable_status if vm.object.status else ""
    return warning(
        NodeReason.VM_NOT_RUNNING,
        f"VM {vm.object.metadata.key} is not running (status {status or 'unknown'}), so it has no address yet",
    )


def no_provider_id(vm: VM) -> EventMessage:
    """Return the note for a Node that was not initialised by any cloud controller manager."""
    return warning(
        NodeReason.NO_PROVIDER_ID,
        f"This Node is VM {vm.object.metadata.key} and has no provider ID, because it joined without the taint "
        f"{UNINITIALIZED_TAINT}. Its addresses and labels follow the VM, but it is not deleted with it. Run its "
        "kubelet with --cloud-provider=external, delete the Node and restart the kubelet",
    )


def no_network(vmi: VirtualMachineInstance, network: str | None) -> EventMessage:
    """Return the note for a VM without an interface that counts."""
    name, attached = vmi.metadata.key, ", ".join(vmi.spec.multus_networks.values())
    if attached:
        text = f"VM {name} has no interface in --management-network {network}; its networks: {attached}"
    else:
        wanted = f"VM network {network}, which --management-network names," if network else "a VM network"
        text = (
            f"VM {name} is only in Harvester's management (pod) network, whose addresses change. Give it {wanted} as "
            "first or second network; --management-network never means Harvester's management network"
        )
    return warning(NodeReason.NO_MANAGEMENT_NETWORK, text, subject=network or "")


def guessed_network(nic: Nic) -> EventMessage:
    """Return the note for a VM with several interfaces of which none was asked for."""
    return warning(
        NodeReason.NETWORK_GUESSED,
        f"The VM has several network interfaces ({', '.join(nic.guessed_among)}); the addresses of {nic.name!r} in "
        f"network {nic.network} are used. Name the network with --management-network",
    )


def no_address(vmi: VirtualMachineInstance, nic: Nic, dropped: Sequence[DroppedAddress]) -> EventMessage:
    """Return the note for an interface without a usable address."""
    where = f"VM {vmi.metadata.key} has no address yet on network {nic.network}"
    if dropped:
        held = (f"{entry.reason}: {entry.holder}" if entry.holder else entry.reason for entry in dropped)
        unusable = ", ".join(f"{entry.address} ({why})" for entry, why in zip(dropped, held, strict=True))
        text = f"{where}: unusable are {unusable}. Does the guest get an address from DHCP or its configuration?"
    elif agent_connected(vmi):
        text = f"{where}: qemu-guest-agent is connected but reports none. Does the guest configure this interface?"
    else:
        text = f"{where}: is qemu-guest-agent installed and running in the guest?"
    return warning(NodeReason.NO_ADDRESS, text)


def unreported(internal_ips: Sequence[IPAddress], vmi: VirtualMachineInstance) -> EventMessage:
    """Return the note for an InternalIP that none of several interfaces reports, of which more than one may have it."""
    names = ", ".join(map(str, internal_ips))
    text = f"No interface of VM {vmi.metadata.key} reports {names}, and which of them has it is not known yet"
    return warning(NodeReason.NO_ADDRESS, f"{text}. The Node keeps its addresses")


def no_longer_reported(
    internal_ips: Sequence[IPAddress], vmi: VirtualMachineInstance, others: Mapping[str, Sequence[IPAddress]]
) -> EventMessage:
    """Return the note for an InternalIP that seems gone, where several interfaces may have the one in its place.

    ``others`` are the addresses that are reported instead, by the name of the interface.
    """
    names = ", ".join(map(str, internal_ips))
    seen = "; ".join(f"{name} has {', '.join(map(str, usable)) or 'none'}" for name, usable in others.items())
    text = (
        f"No interface of VM {vmi.metadata.key} reports {names} any more ({seen}), and which of them the Node is to "
        "follow is not known. The Node keeps its addresses until one reports that again. Name the network with "
        "--management-network, or the address with the kubelet's --node-ip"
    )
    return warning(NodeReason.NO_INTERNAL_IP, text, subject=f"unreported {names}")


def no_internal_ip(nic: Nic, reported: Sequence[IPAddress], cidrs: Sequence[IPNetwork]) -> EventMessage:
    """Return the note for addresses none of which may be the InternalIP."""
    seen, ranges = ", ".join(map(str, reported)), ", ".join(map(str, cidrs))
    text = f"None of the VM's addresses on network {nic.network} ({seen}) is inside --node-ip-cidr {ranges}"
    return warning(NodeReason.NO_INTERNAL_IP, f"{text}. Correct the flag or the address", subject=ranges)


def invalid_provided(value: str, cause: str) -> EventMessage:
    """Return the note for an annotation that cannot be read."""
    text = f"Annotation {PROVIDED_NODE_IP} {cause}. It is ignored; correct the kubelet's --node-ip"
    return warning(NodeReason.PROVIDED_IP_INVALID, text, subject=value)


def invalid_additional(value: str, cause: str) -> EventMessage:
    """Return the note for an annotation that cannot be read, or only in part."""
    text = (
        f"Annotation {ADDITIONAL_INTERNAL_IPS} is {value!r}, expected a JSON list of IP addresses such as "
        f'["10.0.0.5"]: {cause}. What cannot be read is ignored'
    )
    return warning(NodeReason.ADDITIONAL_IPS_INVALID, text, subject=value)


def internal_ip_changed(before: Sequence[str], after: Sequence[str], why: Mapping[str, str]) -> EventMessage:
    """Return what to tell when InternalIPs of an initialised Node were written; ``why`` is of those that differ."""
    reasons = "; ".join(f"{address}: {because}" for address, because in why.items())
    text = f"InternalIP changed from {', '.join(before) or 'none'} to {', '.join(after)} ({reasons})"
    return warning(NodeReason.INTERNAL_IP_CHANGED, text, subject=",".join(after))


def virtual_ips_unread(source: str, error: CCMError | None) -> EventMessage:
    """Return the note for a new Node while what has virtual IPs cannot be listed; no error: there is no answer yet."""
    if error is None:
        text = f"{source} have not been listed yet. The Node waits for that, as their addresses may not become its own"
        return warning(NodeReason.VIRTUAL_IPS_UNREAD, text, subject=source)
    text = (
        f"{source} cannot be listed: {error}. The Node is initialised nevertheless, and an address of its VM that is "
        "a load balancer's may become its own. Let the program list and watch them"
    )
    return warning(NodeReason.VIRTUAL_IPS_UNREAD, text, subject=source)


def provided_elsewhere(misplaced: Sequence[IPAddress], elsewhere: Mapping[IPAddress, str], nic: Nic) -> EventMessage:
    """Return the note for a kubelet's address that the VM has in another network than the one that counts."""
    names = ", ".join(map(str, misplaced))
    interfaces = ", ".join(sorted({elsewhere[address] for address in misplaced}))
    return warning(
        NodeReason.PROVIDED_IP_NOT_FOUND,
        f"Annotation {PROVIDED_NODE_IP} names {names}, which the VM has on interface {interfaces} and not on network "
        f"{nic.network} ({nic.because}). A new Node waits, and one that has addresses keeps them. Name the network of "
        f"interface {interfaces} with --management-network, or correct the kubelet's --node-ip",
        subject=names,
    )


def provided_awaited(
    awaited: Sequence[IPAddress], vmi: VirtualMachineInstance, nic: Nic | None, reported: Sequence[IPAddress]
) -> EventMessage:
    """Return the note for a kubelet's address that the VM does not report yet."""
    names = ", ".join(map(str, awaited))
    text = (
        f"Annotation {PROVIDED_NODE_IP} names {names}, which {_unseen(vmi, nic, reported)}. It is waited for, and "
        "then becomes the InternalIP all the same. Correct the kubelet's --node-ip if the VM does not have it"
    )
    return warning(NodeReason.PROVIDED_IP_NOT_FOUND, text, subject=f"awaited {names}")


def provided_missing(missing: Sequence[IPAddress], reported: Sequence[IPAddress], nic: Nic | None) -> EventMessage:
    """Return the note for a kubelet's address in whose place another one stays or was chosen."""
    names, seen = ", ".join(map(str, missing)), ", ".join(map(str, reported))
    where = f" on network {nic.network} (it has {seen})" if nic else ""
    return warning(
        NodeReason.PROVIDED_IP_NOT_FOUND,
        f"Annotation {PROVIDED_NODE_IP} names {names}, which the VM does not have{where}; another address is used. "
        "Correct the kubelet's --node-ip or the address of the VM",
        subject=names,
    )


def provided_trusted(
    trusted: Sequence[IPAddress], vmi: VirtualMachineInstance, nic: Nic | None, reported: Sequence[IPAddress]
) -> EventMessage:
    """Return the note for a kubelet's address that is used although the VM does not report it."""
    names = ", ".join(map(str, trusted))
    text = (
        f"{names} is the InternalIP because annotation {PROVIDED_NODE_IP} names it. It {_unseen(vmi, nic, reported)}; "
        "correct the kubelet's --node-ip if the VM does not have it"
    )
    return warning(NodeReason.PROVIDED_IP_TRUSTED, text, subject=names)


def _unseen(vmi: VirtualMachineInstance, nic: Nic | None, reported: Sequence[IPAddress]) -> str:
    """Return how an address is not known from the VM: goes on after "which"."""
    if nic is None:
        return "cannot be reported, because the VM is only in Harvester's management (pod) network"
    seen = ", ".join(map(str, reported)) or "none"
    text = f"is not among the addresses that the VM reports on network {nic.network} ({seen})"
    return text if agent_connected(vmi) else f"{text}: is qemu-guest-agent installed and running in the guest?"


def excluded_used(addresses: Sequence[IPAddress]) -> EventMessage:
    """Return the note for an excluded address that is the InternalIP nevertheless."""
    used = ", ".join(map(str, addresses))
    text = f"{used} is in --node-exclude-ip-ranges, and the InternalIP because the VM has no other of its family"
    return warning(NodeReason.EXCLUDED_ADDRESS_USED, f"{text}. Correct the flag", subject=used)
