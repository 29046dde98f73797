"""What to tell people: why an address is pending, and what a failed request means for a Service.

Harvester's own messages stay in the text, so that they can be searched for; in front of them stands what they mean,
behind them what to do.
"""

from __future__ import annotations

import json
import re
from typing import Final

from msgspec import Struct

from harvester_ccm.errors import (
    AdmissionDenied,
    BadRequest,
    CCMError,
    CredentialError,
    Forbidden,
    Invalid,
    NotFound,
    NotServed,
    ServerError,
    Unauthorized,
    Unreachable,
    gist,
)
from harvester_ccm.model.core import Service
from harvester_ccm.model.harvester import LoadBalancer
from harvester_ccm.model.outcome import EventMessage, WaitReason
from harvester_ccm.names import DEFAULT_CLUSTER_NAME, IP_POOL, SERVICE_FINALIZER, Reason

CONTROLLER_PATIENCE: Final = 30.0
"""Seconds Harvester may take to look at a new load balancer before we tell; in bulk it serves about one a second."""
CONTENTION_PATIENCE: Final = 180.0
"""Seconds for which Harvester may meet other writers of its objects before we tell: each try of it may meet another."""


class PendingCause(Struct, frozen=True):
    """Why a load balancer has no address yet."""

    reason: WaitReason
    note: EventMessage
    """What to tell the user."""
    patience: float = CONTROLLER_PATIENCE
    """Seconds in which it should pass by itself, and until which nothing is told; 0 where it does not."""


UNAVAILABLE_PATIENCE: Final = 5.0
"""Seconds Harvester may be out of reach before waiting Services are told."""
TELL_AFTER_FAILURES: Final = 2
"""Failures in a row after which a fault that may pass by itself is told to the user."""
_REQUIREMENT = re.compile(
    r"requirement &\{Network:(?P<network>.*?) Project:(?P<project>.*?) "
    r"Namespace:(?P<namespace>.*?) Cluster:(?P<cluster>.*?)\}"
)
_RESERVING = re.compile(r"(fail to reserve|\brecord) \S+ into (?P<pool>\S+)")
"""Harvester has chosen an address, and its write of the pool failed; up to 1.3 it says that it could not record it."""
_POOL = re.compile(r"^fail to get ip from pool (?P<pool>\S+), error: ")
"""Begins what Harvester says of a pool since 1.7. Before, the pool stands in few of its answers."""
_DUPLICATE: Final = "duplicate allocation"
_ANNOUNCING: Final = ("service is not existing", "waiting for external IP")
_NOT_ANNOUNCED: Final = (
    "Harvester has an address for this Service but does not announce it yet. Check that kube-vip runs in namespace "
    "harvester-system of Harvester and, for ipam dhcp, that a DHCP server answers there"
)
_SLOW: Final = (
    "Harvester is still working on the address. If this stays, look at the status of the IP pool and at the log of "
    "harvester-load-balancer in namespace harvester-system"
)
NO_CONTROLLER_ANSWER: Final = EventMessage(
    "Warning",
    Reason.ADDRESS_PENDING,
    "Harvester has not looked at the load balancer yet; it serves about one new load balancer per second. If this "
    "stays, check that the deployment harvester-load-balancer in namespace harvester-system is running",
)

WEBHOOK_AWAY: Final = (
    "Check that the pods of harvester-load-balancer-webhook in namespace harvester-system of Harvester run"
)
"""What to do when Harvester's API server cannot call its webhook."""
NOT_PROCESSED: Final = PendingCause(WaitReason.NOT_PROCESSED, NO_CONTROLLER_ANSWER)


def is_in_progress(load_balancer: LoadBalancer) -> bool:
    """Return whether Harvester is still allocating an address for a load balancer, or releasing it on its deletion.

    A failure that Harvester retries at once, because two of its writes collided, is not a response: the next creation
    would collide as well.
    """
    if load_balancer.metadata.deleting:
        return bool(load_balancer.allocated_ip)
    if load_balancer.allocated_ip or load_balancer.address:
        return False
    return load_balancer.ready is None or pending_cause(load_balancer).reason is WaitReason.ALLOCATING


def pending_cause(load_balancer: LoadBalancer) -> PendingCause:
    """Return why Harvester has not given the load balancer an address, from its Ready condition."""
    condition = load_balancer.ready
    if condition is None:
        return NOT_PROCESSED
    message = condition.message
    if load_balancer.contended:
        return PendingCause(WaitReason.ALLOCATING, _pending(_SLOW, message), CONTENTION_PATIENCE)
    if any(words in message for words in _ANNOUNCING):
        return PendingCause(WaitReason.ANNOUNCING, _pending(_NOT_ANNOUNCED, message))
    reserving = _RESERVING.search(message)
    if not message or reserving or _DUPLICATE in message:
        text = _unwritable(reserving["pool"]) if reserving else _SLOW
        return PendingCause(WaitReason.ALLOCATING, _pending(text, message or "(nothing)"))
    reason, text = _refusal(load_balancer, message)
    return PendingCause(reason, _pending(text, message), patience=0.0)


def pool_of_last_attempt(load_balancer: LoadBalancer) -> str:
    """Return the pool in which Harvester tried to book an address last; empty when it does not say, or found none.

    Before 1.7 it does not say which one is full: that is known where the load balancer names it. One that is full
    exists.
    """
    message = load_balancer.ready.message if load_balancer.ready else ""
    found = _POOL.search(message) or _RESERVING.search(message)
    full = load_balancer.spec.ip_pool if _is_exhausted(message) else ""
    return found["pool"] if found else full


_CHOSEN_POOL_IS_GONE: Final = "The IP pool that Harvester chose is not there any more, or not ready"


def _is_exhausted(message: str) -> bool:
    return "no IP addresses available" in message


def _refusal(load_balancer: LoadBalancer, message: str) -> tuple[WaitReason, str]:
    if "no match" in message.lower():
        return WaitReason.NO_MATCHING_POOL, _no_pool(message)
    if _is_exhausted(message):
        return WaitReason.POOL_EXHAUSTED, _exhausted(load_balancer)
    if "fail to get allocator" in message or "could not get the allocator" in message:
        pool = load_balancer.spec.ip_pool
        missing = f"Harvester has no ready IP pool {pool!r}" if pool else _CHOSEN_POOL_IS_GONE
        return WaitReason.NO_SUCH_POOL, f"{missing}. Create it, or name another one"
    return WaitReason.OTHER, _moved_away(load_balancer) if "not in range set" in message else _NO_ADDRESS


def _pending(text: str, harvester_says: str) -> EventMessage:
    return EventMessage("Warning", Reason.ADDRESS_PENDING, f"{text}. Harvester says: {harvester_says}")


_NO_ADDRESS: Final = "Harvester cannot give this Service an address"


def _moved_away(load_balancer: LoadBalancer) -> str:
    """Return what it means that Harvester remembers an address by the name of a load balancer and cannot give it."""
    pool = pool_of_last_attempt(load_balancer)
    name = f" {pool!r}" if pool else ""
    return (
        f"IP pool{name} does not have the address any more that a load balancer of this name had there, and Harvester "
        "gives it no other one. Put it back into a range of the pool, or delete the Service and create it anew: its "
        "load balancer has another name then"
    )


def _no_pool(message: str) -> str:
    wanted = _REQUIREMENT.search(message)
    if wanted is None:
        return "No IP pool of Harvester fits this Service. Create a pool whose selector matches, or a global one"
    searched = ", ".join(f"{name} {value!r}" for name, value in wanted.groupdict().items() if value)
    where = "In Harvester"
    if wanted["cluster"] in ("", DEFAULT_CLUSTER_NAME):
        where = (
            "This cluster has no name of its own, and pools for a named one do not fit: set --cluster-name (chart: "
            "global.cattle.clusterName). Or in Harvester"
        )
    return (
        f"No IP pool of Harvester fits {searched or 'this Service'}. {where}, create an IP pool whose network is "
        f"{wanted['network'] or '(none)'} and whose scope covers namespace {wanted['namespace']!r} and guest cluster "
        f"{wanted['cluster'] or '(none)'}, or a global pool"
    )


def _exhausted(load_balancer: LoadBalancer) -> str:
    pool = pool_of_last_attempt(load_balancer)
    name = f" {pool!r}" if pool else ""
    return f"IP pool{name} has no free address. Add a range to it or delete a load balancer that uses it"


def _unwritable(pool: str) -> str:
    """Return what it means that an address is chosen and cannot be booked, again and again."""
    return (
        f"Harvester is still working on the address: it cannot write IP pool {pool!r}. If this stays, the VM network "
        "that the pool names was most likely deleted, and Harvester's webhook refuses every change of the pool: create "
        "the network again under its name, or delete the Service and create it anew with another pool in annotation "
        f"{IP_POOL}. Otherwise look at the log of harvester-load-balancer in namespace harvester-system"
    )


NO_DHCP_ANSWER: Final = EventMessage(
    "Warning",
    Reason.ADDRESS_PENDING,
    "kube-vip has not got an address from DHCP yet. Check that a DHCP server answers in the network of the nodes, that "
    "the kube-vip pods run, and that the nodes have the kernel module macvlan",
)


_NO_BACKENDS: Final = {
    "no running backend servers": "no VM of this cluster carries the label harvesterhci.io/vmName with a name of its "
    "nodes. Add it to the template labels of the VMs and restart them",
    "running backend servers have no IP": "Harvester knows no address of the VMs. Check that qemu-guest-agent runs in "
    "them",
    "not probed as healthy": "no node accepts connections on the health check port, or Harvester's hosts cannot reach "
    "the nodes. Check the pods of the Service and the network of the nodes",
}


def backend_note(load_balancer: LoadBalancer) -> EventMessage | None:
    """Return what to tell about a VM load balancer without any usable backend, from its Ready condition.

    The state of single backends is not in the object; it is never guessed.
    """
    condition = load_balancer.ready
    if condition is None or condition.status == "True":
        return None
    for words, meaning in _NO_BACKENDS.items():
        if words in condition.message:
            text = f"Harvester sends no traffic to the nodes: {meaning}. Harvester says: {condition.message}"
            return EventMessage("Warning", Reason.BACKENDS_UNHEALTHY, text)
    return None


def harvester_unavailable(error: CCMError | None, service: Service | None = None) -> EventMessage:
    """Return what to tell the Services that wait while Harvester's load balancers cannot be read or written.

    One that is being deleted waits for as long as that lasts: ``service`` hears how to let it go without Harvester.
    """
    text = _unavailable_text(error)
    if service is not None and service.metadata.deleting:
        text = f"{text}. {_without_harvester(service)}"
    return EventMessage("Warning", Reason.HARVESTER_UNAVAILABLE, text)


def _without_harvester(service: Service) -> str:
    meta = service.metadata
    others = [one for one in meta.finalizers or () if one != SERVICE_FINALIZER]
    patch = json.dumps({"metadata": {"finalizers": others or None}}, separators=(",", ":"))
    return (
        "If that Harvester is gone for good, let the Service go with: kubectl patch service "
        f"-n {meta.namespace} {meta.name} --type=merge -p '{patch}'"
    )


def _unavailable_text(error: CCMError | None) -> str:
    match error:
        case None:
            return "Harvester has not answered yet"
        case Unauthorized():
            return f"Harvester {error.meaning} (401). {error.remedy}"
        case Forbidden():
            remedy = f"{error.remedy[0].upper()}{error.remedy[1:]}"
            return f"The credential in the cloud-config lacks a right in Harvester: {error}. {remedy}"
        case NotServed():
            return (
                "Harvester does not serve loadbalancer.harvesterhci.io/v1beta1. Harvester before 1.2 is not "
                "supported: upgrade Harvester to 1.2 or later. If Harvester is newer, check that the server in the "
                "cloud-config is Harvester, not this cluster, and that its load balancer controller is installed"
            )
        case _:
            return f"{_fault(error)}: {error}"


def _fault(error: CCMError) -> str:
    """Return what a fault means that may pass by itself, and where to look if it does not."""
    match error:
        case Unreachable():
            return f"Harvester {error.meaning}; this is tried again by itself. {error.remedy}"
        case CredentialError():
            return "Harvester cannot be reached"
        case NotFound():
            return (
                "The namespace of the cloud-config does not exist in Harvester. Set the namespace of its context to "
                "that of this cluster's VMs"
            )
        case ServerError() if "failed calling webhook" in str(error):
            return f"Harvester's admission webhook does not answer; this is tried again by itself. {WEBHOOK_AWAY}"
        case _:
            return (
                "Harvester cannot serve requests at the moment; this is tried again by itself. If it stays, look at "
                "its API servers and what stands in front of them"
            )


def failure_event(error: CCMError, failures: int, service: Service | None = None) -> EventMessage | None:
    """Return what to tell a Service whose load balancer could not be written in Harvester; None while it is too early.

    ``failures`` is how often that was in a row. A fault that trying again may mend is told from the second one on.
    """
    lasts = isinstance(error, AdmissionDenied | Invalid | BadRequest | Forbidden | Unauthorized)
    if not lasts and failures < TELL_AFTER_FAILURES:
        return None
    match error:
        case AdmissionDenied() | Invalid() | BadRequest():
            text = " ".join(filter(None, ("Harvester refused the load balancer.", remedy(str(error)))))
            return EventMessage("Warning", Reason.SYNC_FAILED, f"{text} Harvester says: {error}")
        case _:
            return harvester_unavailable(error, service)


def write_refused(error: CCMError, failures: int) -> EventMessage | None:
    """Return what to tell of a Service that the guest does not let us write; None for what passes, and too early.

    ``failures`` is how often that was in a row.
    """
    away = "failed calling webhook" in str(error)
    refused = away or isinstance(error, AdmissionDenied | Invalid | BadRequest | Forbidden)
    if not refused or failures < TELL_AFTER_FAILURES:
        return None
    if away:
        remedy = "Check that the pods of that webhook run"
    elif "cannot patch resource" in str(error):
        remedy = "Grant the verb patch on services/status to the ClusterRole of this cloud controller manager"
    else:
        remedy = (
            "Have the policy or webhook that refuses it allow this cloud controller manager to patch services/status"
        )
    text = (
        "The API server of this cluster refuses what is to be written to this Service; until that is mended it gets no "
        f"address and no change, and is not let go when it is deleted. {remedy}. It says: {error}"
    )
    return EventMessage("Warning", Reason.SYNC_FAILED, text, subject=gist(str(error)))


_REMEDIES: Final[tuple[tuple[str, str], ...]] = (
    (r"guest cluster \S+ is being removed", "Rancher is removing this cluster, so it gets no new load balancers."),
    (
        r"it has no running vm|no virtual machine instance matched",
        (
            "Harvester finds no running VM of this cluster: give the VMs the label guestcluster.harvesterhci.io/name "
            "with the value of --cluster-name (instance labels in Harvester), or update Harvester to 1.8.1."
        ),
    ),
    (
        r"exceeded quota",
        (
            "A quota in Harvester is used up: raise the ResourceQuota that it names, in the namespace of the VMs, or "
            "delete load balancers there that nobody needs."
        ),
    ),
    (r"it is being terminated", "In Harvester the namespace of the VMs is being deleted, so it takes nothing new."),
    (
        r"needs to have at least one listener",
        "This version of Harvester wants listeners on every load balancer; update Harvester to 1.5 or later.",
    ),
    (r"duplicate name", "Two ports of the Service have the same name; give each its own."),
    (r"duplicate port", "Two ports of the Service, or of Services sharing the address, are the same; change one."),
    (
        r"duplicate backend port",
        "Two ports of the Service have the same node port; let Kubernetes choose another for one of them.",
    ),
    (r"listener (backend )?port \S+ must", "A port of the Service is out of range; use 1 to 65535."),
    (
        r"healthcheck port \d+ is not in listener",
        (
            "The health check port is no port of the Service; correct annotation "
            "cloudprovider.harvesterhci.io/healthcheck-port."
        ),
    ),
    (
        r"can only be a TCP backend port",
        "Only TCP ports can be checked; name a TCP port in annotation cloudprovider.harvesterhci.io/healthcheck-port.",
    ),
    (
        r"healthcheck \w+ should > 0",
        "Thresholds and times of a health check start at 1; correct cloudprovider.harvesterhci.io/healthcheck-*.",
    ),
    (
        r"can't change the (IPAM|WorkloadType)",
        "That is fixed once a load balancer exists; delete the Service and create it anew.",
    ),
    (
        r"metadata\.name: Invalid value|metadata\.labels: Invalid value|a valid label must",
        "The name of the cluster cannot be used in Harvester; --cluster-name takes lower-case letters, digits, dashes.",
    ),
    (r"Unsupported value", "A value is not one that Harvester knows."),
    (
        r"get namespace \S+ failed|list vmis with",
        "Harvester could not look up what it needs to decide; this is tried again.",
    ),
)


def remedy(message: str) -> str:
    """Return what to do about a refusal of Harvester's admission webhook or schema; empty when unknown."""
    return next((text for pattern, text in _REMEDIES if re.search(pattern, message)), "")
