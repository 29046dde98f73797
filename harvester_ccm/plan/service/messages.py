"""Why an address is pending, and what a failed request means for a Service: the text of Events and conditions.

A message states the meaning first, then what to do, then Harvester's own message, which can be searched for.
"""

import json
import re
from typing import Final

from msgspec import Struct

from harvester_ccm import errors
from harvester_ccm.model.core import Service
from harvester_ccm.model.harvester import ClusterIdentity, LoadBalancer
from harvester_ccm.model.outcome import EventMessage, WaitReason
from harvester_ccm.names import DEFAULT_CLUSTER_NAME, IP_POOL, SERVICE_FINALIZER, Reason

CONTROLLER_PATIENCE: Final = 30.0
"""Seconds that Harvester may take for a new load balancer before an Event reports it; it processes about one a second
if there are many."""
UNAVAILABLE_PATIENCE: Final = 5.0
"""Seconds for which Harvester may be unreachable before waiting Services get an Event."""
LASTING_CONFLICT: Final = 13
"""Failures in a row, about a minute, after which a conflict is reported to the user."""
REPORTED_FAILURES: Final = 2
"""Failures in a row after which a transient error is reported to the user."""

WEBHOOK_AWAY: Final = (
    "Check that the pods of harvester-load-balancer-webhook in namespace harvester-system of Harvester run"
)
"""Remedy if Harvester's API server cannot call its webhook."""
_REQUIREMENT = re.compile(
    r"requirement &\{Network:(?P<network>.*?) Project:(?P<project>.*?) "
    r"Namespace:(?P<namespace>.*?) Cluster:(?P<cluster>.*?)\}"
)
_POOL = re.compile(r"^fail to get ip from pool (\S+), error: |(?:fail to reserve|\brecord) \S+ into (\S+)")
"""Harvester's messages about a pool since 1.7, and earlier those about a pool in which it cannot write an address."""
_EXHAUSTED: Final = "no IP addresses available"


class PendingCause(Struct, frozen=True):
    """Why a load balancer has no address yet."""

    reason: WaitReason
    note: EventMessage

    @property
    def patience(self) -> float:
        """Seconds in which it usually passes without a report; 0 if it does not pass by itself."""
        passes = self.reason in {WaitReason.NOT_PROCESSED, WaitReason.ALLOCATING, WaitReason.ANNOUNCING}
        return CONTROLLER_PATIENCE if passes else 0.0


_MEANINGS: Final = {
    # Two writes of the pool conflicted, or the pool cannot be written at all.
    (r"(fail to reserve|\brecord) \S+ into", WaitReason.ALLOCATING): "Harvester cannot write IP pool{pool}. If this "
    "stays, the VM network of the pool was most likely deleted: create it again under its name, or create the Service "
    f"again with another pool in annotation {IP_POOL}",
    (r"duplicate allocation|has been modified|^$", WaitReason.ALLOCATING): "Harvester is still allocating the address. "
    "If this stays, check the status of the IP pool and the log of harvester-load-balancer in namespace "
    "harvester-system",
    (r"service is not existing|waiting for external IP", WaitReason.ANNOUNCING): "Harvester has an address for this "
    "Service but does not announce it yet. Check that kube-vip runs in namespace harvester-system of Harvester and, "
    "for ipam dhcp, that a DHCP server answers there",
    (_EXHAUSTED, WaitReason.POOL_EXHAUSTED): "IP pool{pool} has no free address. Add a range to it or delete a load "
    "balancer that uses it",
    (r"(fail to get|could not get the) allocator (?P<pool>\S+)", WaitReason.NO_MATCHING_POOL): "Harvester has no ready "
    f"IP pool{{pool}}. Create it, or name another one in annotation {IP_POOL}",
    (r"not in range set", WaitReason.OTHER): "The IP pool no longer has the address that a load balancer of this name "
    "had, and Harvester gives it no other one. Add it to a range of the pool, or delete the Service and create it "
    "again",
    (r"", WaitReason.OTHER): "Harvester cannot give this Service an address",
}
"""Meanings of Harvester's messages, by pattern and reason; ``{pool}`` is the pool after a blank. The first counts."""


def _pending(text: str, harvester_says: str = "") -> EventMessage:
    quoted = f". Harvester says: {harvester_says}" if harvester_says else ""
    return EventMessage("Warning", Reason.ADDRESS_PENDING, f"{text}{quoted}")


NOT_PROCESSED: Final = PendingCause(
    WaitReason.NOT_PROCESSED,
    _pending(
        "Harvester has not processed the load balancer yet; it processes about one per second. If this stays, check "
        "that the deployment harvester-load-balancer in namespace harvester-system of Harvester is running"
    ),
)
NO_DHCP_ANSWER: Final = _pending(
    "kube-vip has not got an address from DHCP yet. Check that a DHCP server answers in the network of the nodes, that "
    "the kube-vip pods run, and that the nodes have the kernel module macvlan"
)


def is_in_progress(load_balancer: LoadBalancer) -> bool:
    """Return whether Harvester is still allocating an address for a load balancer, or releasing it on its deletion.

    A failure that Harvester retries at once, because two of its writes conflicted, is not a response: the next creation
    would conflict as well.
    """
    if load_balancer.metadata.deleting:
        return bool(load_balancer.allocated_ip)
    reason = pending_cause(load_balancer).reason
    has_address = load_balancer.allocated_ip or load_balancer.address
    return not has_address and reason in {WaitReason.NOT_PROCESSED, WaitReason.ALLOCATING}


def pending_cause(load_balancer: LoadBalancer) -> PendingCause:
    """Return why Harvester has not given the load balancer an address, from its Ready condition."""
    condition = load_balancer.ready
    if condition is None:
        return NOT_PROCESSED
    message = condition.message
    if "no match" in message.lower():
        return PendingCause(WaitReason.NO_MATCHING_POOL, _pending(_no_pool(message), message))
    found = ((re.search(pattern, message), reason, text) for (pattern, reason), text in _MEANINGS.items())
    match, reason, text = next((match, reason, text) for match, reason, text in found if match)
    pool = match.groupdict().get("pool") or pool_of_last_attempt(load_balancer)
    return PendingCause(reason, _pending(text.format(pool=f" {pool!r}" if pool else ""), message or "(nothing)"))


def pool_of_last_attempt(load_balancer: LoadBalancer) -> str:
    """Return the pool in which Harvester last tried to allocate; empty if it is not known, or found none.

    Before 1.7 Harvester does not name a pool that is full: it is known if the load balancer names it. A pool that is
    full exists.
    """
    message = load_balancer.ready.message if load_balancer.ready else ""
    found = _POOL.search(message)
    full = load_balancer.spec.ip_pool if _EXHAUSTED in message else ""
    return (found[1] or found[2]) if found else full


def _no_pool(message: str) -> str:
    wanted = _REQUIREMENT.search(message)
    if wanted is None:
        return "No IP pool of Harvester fits this Service. Create a pool whose selector matches, or a global one"
    searched = ", ".join(f"{name} {value!r}" for name, value in wanted.groupdict().items() if value)
    unnamed = (
        "This cluster has no name of its own, and pools for a named one do not fit: set --cluster-name (chart: "
        "global.cattle.clusterName). Or in Harvester"
    )
    where = unnamed if wanted["cluster"] in ("", DEFAULT_CLUSTER_NAME) else "In Harvester"
    return (
        f"No IP pool of Harvester fits {searched or 'this Service'}. {where}, create an IP pool whose network is "
        f"{wanted['network'] or '(none)'} and whose scope covers namespace {wanted['namespace']!r} and guest cluster "
        f"{wanted['cluster'] or '(none)'}, or a global pool"
    )


_NO_BACKENDS: Final = {
    "no running backend servers": "no VM of this cluster has label harvesterhci.io/vmName with a name of its nodes. "
    "Add it to the template labels of the VMs and restart them",
    "running backend servers have no IP": "Harvester knows no address of the VMs. Check that qemu-guest-agent runs in "
    "them",
    "not probed as healthy": "no node accepts connections on the health check port, or Harvester's hosts cannot reach "
    "the nodes. Check the pods of the Service and the network of the nodes",
}


def backend_note(load_balancer: LoadBalancer) -> EventMessage | None:
    """Return the Warning about a VM load balancer without any usable backend, from its Ready condition, or None.

    The state of single backends is not in the object.
    """
    condition = load_balancer.ready
    message = condition.message if condition and condition.status != "True" else ""
    meaning = next((text for words, text in _NO_BACKENDS.items() if words in message), "")
    text = f"Harvester sends no traffic to the nodes: {meaning}. Harvester says: {message}"
    return EventMessage("Warning", Reason.BACKENDS_UNHEALTHY, text) if meaning else None


_UNAVAILABLE: Final = {
    errors.NotServed: "Harvester does not serve loadbalancer.harvesterhci.io/v1beta1. Harvester before 1.2 is not "
    "supported: upgrade Harvester to 1.2 or later. If Harvester is newer, check that the server in the cloud-config is "
    "Harvester, not this cluster, and that its load balancer controller is installed",
    errors.CredentialError: "Harvester cannot be reached",
    errors.NotFound: "The namespace of the cloud-config does not exist in Harvester. Set the namespace of its context "
    "to that of this cluster's VMs",
    errors.WebhookFailed: f"Harvester's admission webhook does not answer; the controller retries. {WEBHOOK_AWAY}",
    errors.CCMError: "Harvester cannot serve requests at the moment; the controller retries. If this stays, check its "
    "API servers and what stands in front of them",
}
"""Meanings of errors without a remedy of their own; the first class that fits counts."""


def harvester_unavailable(error: errors.CCMError | None, service: Service | None = None) -> EventMessage:
    """Return the Warning for Services that wait while load balancers cannot be read or written.

    For a ``service`` that is being deleted it says how to release the Service without Harvester.
    """
    text = _unavailable_text(error)
    if service is not None and service.metadata.deleting:
        meta = service.metadata
        others = [one for one in meta.finalizers or () if one != SERVICE_FINALIZER]
        patch = json.dumps({"metadata": {"finalizers": others or None}}, separators=(",", ":"))
        text = (
            f"{text}. If that Harvester is gone for good, release the Service with: kubectl patch service "
            f"-n {meta.namespace} {meta.name} --type=merge -p '{patch}'"
        )
    return EventMessage("Warning", Reason.HARVESTER_UNAVAILABLE, text)


def _unavailable_text(error: errors.CCMError | None) -> str:
    match error:
        case None:
            return "Harvester has not answered yet"
        case errors.Unauthorized():
            return f"Harvester {error.summary} (401). {error.remedy}"
        case errors.Forbidden():
            remedy = f"{error.remedy[0].upper()}{error.remedy[1:]}"
            return f"The credential in the cloud-config lacks a permission in Harvester: {error}. {remedy}"
        case errors.Unreachable():
            meaning = f"Harvester {error.summary}; the controller retries. {error.remedy}"
        case _:
            meaning = next(text for kind, text in _UNAVAILABLE.items() if isinstance(error, kind))
    return f"{meaning}: {error}"


def harvester_mismatch(cluster: ClusterIdentity) -> EventMessage:
    """Return the Warning for a cloud-config that leads to another Harvester or namespace."""
    text = (
        f"Harvester has no load balancer and no VM of this cluster in namespace {cluster.namespace}: the cloud-config "
        "seems to lead to another Harvester or namespace. No load balancer is created there, and Services keep their "
        "addresses. Correct the cloud-config; if the cluster moved there, start the controller with "
        "--accept-new-harvester"
    )
    return EventMessage("Warning", Reason.HARVESTER_MISMATCH, text)


def failure_event(
    error: errors.CCMError, failures: int, service: Service, *, in_guest: bool = False
) -> EventMessage | None:
    """Return the Warning for a write that failed; None while it is too early for a report.

    ``failures`` is the number of failures in a row; ``in_guest``: whether the Service could not be patched, instead of
    its load balancer. A webhook that hangs is reported at once, because each attempt takes its timeout.
    """
    away = isinstance(error, errors.Forbidden | errors.WebhookFailed)
    rejected = isinstance(error, errors.AdmissionDenied | errors.Invalid | errors.BadRequest)
    if isinstance(error, errors.Conflict):
        text = f"Every write conflicts with a change by another client; the controller retries. It says: {error}"
        return EventMessage("Warning", Reason.SYNC_FAILED, text) if failures >= LASTING_CONFLICT else None
    if in_guest:
        return _patch_rejected(error) if (rejected or away) and failures >= REPORTED_FAILURES else None
    if rejected:
        text = f"{remedy(str(error))} Harvester says: {error}".strip()
        return EventMessage("Warning", Reason.SYNC_FAILED, f"Harvester refused the load balancer. {text}")
    at_once = away or isinstance(error, errors.Unauthorized | errors.NoResponse)
    return harvester_unavailable(error, service) if at_once or failures >= REPORTED_FAILURES else None


def _patch_rejected(error: errors.CCMError) -> EventMessage:
    """Return the Warning for a Service whose patch the API server of the guest cluster rejects."""
    action = "Have the policy or webhook that refuses it allow this controller to patch services/status"
    if isinstance(error, errors.WebhookFailed):
        action = "Check that the pods of that webhook run"
    elif "cannot patch resource" in str(error):
        action = "Grant the verb patch on services/status to the ClusterRole of this controller"
    text = (
        "The API server of this cluster refuses the write to this Service. Until that is fixed, the Service gets no "
        f"address and no change, and its deletion does not finish. {action}. It says: {error}"
    )
    return EventMessage("Warning", Reason.SYNC_FAILED, text, subject=errors.normalized_message(str(error)))


_REMEDIES: Final = {
    r"guest cluster \S+ is being removed": "Rancher is removing this cluster, so it gets no new load balancers.",
    r"it has no running vm|no virtual machine instance matched": "Harvester finds no running VM of this cluster: give "
    "the VMs the label guestcluster.harvesterhci.io/name with the value of --cluster-name (instance labels in "
    "Harvester), or update Harvester to 1.8.1.",
    r"exceeded quota": "A quota in Harvester is used up: raise the ResourceQuota that it names, in the namespace of "
    "the VMs, or delete load balancers there that are not needed.",
    r"it is being terminated": "In Harvester the namespace of the VMs is being deleted, so it takes nothing new.",
    r"needs to have at least one listener": "This version of Harvester wants listeners on every load balancer; update "
    "Harvester to 1.5 or later.",
    r"metadata\.name: Invalid value|metadata\.labels: Invalid value|a valid label must": "The name of the cluster "
    "cannot be used in Harvester; --cluster-name takes lower-case letters, digits, dashes.",
}
"""Remedies for rejections by Harvester, by a pattern that occurs in the message."""


def remedy(message: str) -> str:
    """Return the remedy for a rejection by Harvester's admission webhook or schema; empty if unknown."""
    return next((text for pattern, text in _REMEDIES.items() if re.search(pattern, message)), "")
