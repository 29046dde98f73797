"""Why an address is pending, and what a failed request means for a Service: the text of Events and conditions.

A message states the meaning first, then what to do, then Harvester's own message, which can be searched for.

Harvester's messages contain what tenants wrote. They are read by splitting at literal words, never by a pattern that
has to try again: a search with several ``.*?`` takes a time that grows with the fourth power of the text.
"""

import json
import shlex
from collections.abc import Callable
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
_EXHAUSTED: Final = "no IP addresses available"
_POOL_NOT_WRITTEN: Final = (("fail to reserve ", " into "), ("record ", " into "))
"""Literal words of Harvester's messages about a pool in which it cannot write an address, before and after the address;
the first since 1.4, the second up to 1.3. The name of the pool follows."""
_NO_ALLOCATOR: Final = ("fail to get allocator ", "could not get the allocator ")
"""Literal words before the name of a pool that does not exist or is not ready; the second in 1.2."""


class PendingCause(Struct, frozen=True):
    """Why a load balancer has no address yet."""

    reason: WaitReason
    note: EventMessage

    @property
    def patience(self) -> float:
        """Seconds in which it usually passes without a report; 0 if it does not pass by itself."""
        passes = self.reason in {WaitReason.NOT_PROCESSED, WaitReason.ALLOCATING, WaitReason.ANNOUNCING}
        return CONTROLLER_PATIENCE if passes else 0.0


class _Meaning(Struct, frozen=True):
    """What a message of Harvester means; ``{pool}`` is the pool after a blank."""

    reason: WaitReason
    is_meant: Callable[[str], bool]
    """Whether a message has this meaning."""
    cause: str
    remedy: str


def _says(*texts: str) -> Callable[[str], bool]:
    """Return a function that finds one of the texts in a message."""
    return lambda message: any(text in message for text in texts)


_MEANINGS: Final = (
    # Two writes of the pool conflicted, or the pool cannot be written at all.
    _Meaning(
        WaitReason.ALLOCATING,
        lambda message: bool(_pool_not_written(message)),
        "Harvester cannot write IP pool{pool}",
        "If this stays, the VM network of the pool was most likely deleted: create it again under its name, or create "
        f"the Service again with another pool in annotation {IP_POOL}",
    ),
    _Meaning(
        WaitReason.ALLOCATING,
        lambda message: message == "" or _says("duplicate allocation", "has been modified")(message),
        "Harvester is still allocating the address",
        "If this stays, check the status of the IP pool and the log of harvester-load-balancer in namespace "
        "harvester-system",
    ),
    _Meaning(
        WaitReason.ANNOUNCING,
        _says("service is not existing", "waiting for external IP"),
        "Harvester has an address for this Service but does not announce it yet",
        "Check that kube-vip runs in namespace harvester-system of Harvester and, for ipam dhcp, that a DHCP server "
        "answers there",
    ),
    _Meaning(
        WaitReason.POOL_EXHAUSTED,
        _says(_EXHAUSTED),
        "IP pool{pool} has no free address",
        "Add a range to it or delete a load balancer that uses it",
    ),
    _Meaning(
        WaitReason.NO_MATCHING_POOL,
        _says(*_NO_ALLOCATOR),
        "Harvester has no ready IP pool{pool}",
        f"Create it, or name another one in annotation {IP_POOL}",
    ),
    _Meaning(
        WaitReason.OTHER,
        _says("not in range set"),
        "The IP pool no longer has the address that a load balancer of this name had, and Harvester gives it no other "
        "one",
        "Add it to a range of the pool, or delete the Service and create it again",
    ),
)
"""Meanings of Harvester's messages; the first that fits counts."""
_NO_MEANING: Final = _Meaning(
    WaitReason.OTHER, lambda _message: True, "Harvester cannot give this Service an address", ""
)


def _pending(cause: str, remedy: str = "", message: str = "") -> EventMessage:
    answer = f"Harvester: {message}" if message else ""
    return EventMessage("Warning", Reason.ADDRESS_PENDING, cause, remedy, answer=answer)


NOT_PROCESSED: Final = PendingCause(
    WaitReason.NOT_PROCESSED,
    _pending(
        "Harvester has not processed the load balancer yet; it processes about one per second",
        "If this stays, check that the deployment harvester-load-balancer in namespace harvester-system of Harvester "
        "is running",
    ),
)
NO_DHCP_ANSWER: Final = _pending(
    "kube-vip has not got an address from DHCP yet",
    "Check that a DHCP server answers in the network of the nodes, that the kube-vip pods run, and that the nodes have "
    "the kernel module macvlan",
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
        return PendingCause(WaitReason.NO_MATCHING_POOL, _no_pool(message))
    meaning = next((one for one in _MEANINGS if one.is_meant(message)), _NO_MEANING)
    pool = _pool_without_allocator(message) or pool_of_last_attempt(load_balancer)
    cause = meaning.cause.format(pool=f" {pool!r}" if pool else "")
    return PendingCause(meaning.reason, _pending(cause, meaning.remedy, message or "(nothing)"))


def pool_of_last_attempt(load_balancer: LoadBalancer) -> str:
    """Return the pool in which Harvester last tried to allocate; empty if it is not known, or found none.

    Since 1.7 Harvester names the pool first, in every message. Before, it names one that it cannot write, and does not
    name a pool that is full: that one is known if the load balancer names it. A pool that is full exists.
    """
    message = load_balancer.ready.message if load_balancer.ready else ""
    before, named, rest = message.partition("fail to get ip from pool ")
    if named and not before:
        pool, ending, _ = rest.partition(", error: ")
        if ending and " " not in pool:
            return pool
    if pool := _pool_not_written(message):
        return pool
    return load_balancer.spec.ip_pool if _EXHAUSTED in message else ""


def _pool_not_written(message: str) -> str:
    """Return the pool in which Harvester cannot write an address; empty if the message is about something else."""
    for before_address, after_address in _POOL_NOT_WRITTEN:
        _, _, rest = message.partition(before_address)
        address, literal, behind = rest.partition(after_address)
        if literal and " " not in address:
            return _first_word(behind)
    return ""


def _pool_without_allocator(message: str) -> str:
    """Return the pool that does not exist or is not ready; empty if the message is about something else."""
    for literal in _NO_ALLOCATOR:
        _, found, behind = message.partition(literal)
        if found:
            return _first_word(behind)
    return ""


def _first_word(text: str) -> str:
    return next(iter(text.split(maxsplit=1)), "")


class _Requirement(Struct, frozen=True):
    """What Harvester has looked for among the selectors of its IP pools."""

    network: str
    project: str
    namespace: str
    cluster: str


def _requirement(message: str) -> _Requirement | None:
    """Return the requirement in a message such as ``requirement &{Network:n Project:p Namespace:s Cluster:c}``.

    The values are those of annotations, which can contain the literal words: then the parts are wrong, and only shown.
    """
    _, literal, rest = message.partition("requirement &{Network:")
    network, _, rest = rest.partition(" Project:")
    project, _, rest = rest.partition(" Namespace:")
    namespace, _, rest = rest.partition(" Cluster:")
    cluster, ending, _ = rest.partition("}")
    return _Requirement(network, project, namespace, cluster) if literal and ending else None


def _no_pool(message: str) -> EventMessage:
    """Return the Warning that no IP pool fits, with what Harvester has looked for."""
    wanted = _requirement(message)
    if wanted is None:
        remedy = "Create a pool whose selector matches, or a global one"
        return _pending("No IP pool of Harvester fits this Service", remedy, message)
    values = {name: getattr(wanted, name) for name in ("network", "project", "namespace", "cluster")}
    searched = ", ".join(f"{name} {value!r}" for name, value in values.items() if value)
    where = "In Harvester"
    if wanted.cluster in ("", DEFAULT_CLUSTER_NAME):
        where = (
            "This cluster has no name of its own, and pools for a named one do not fit: set --cluster-name (chart: "
            "global.cattle.clusterName). Or in Harvester"
        )
    remedy = (
        f"{where}, create an IP pool whose network is {wanted.network or '(none)'} and whose scope covers namespace "
        f"{wanted.namespace!r} and guest cluster {wanted.cluster or '(none)'}, or a global pool"
    )
    return _pending(f"No IP pool of Harvester fits {searched or 'this Service'}", remedy, message)


class _Explanation(Struct, frozen=True):
    """What an error means, and what to do."""

    cause: str
    remedy: str = ""


_NO_BACKENDS: Final = {
    "no running backend servers": _Explanation(
        "no VM of this cluster has label harvesterhci.io/vmName with a name of its nodes",
        "Add it to the template labels of the VMs and restart them",
    ),
    "running backend servers have no IP": _Explanation(
        "Harvester knows no address of the VMs",
        "Check that qemu-guest-agent runs in them",
    ),
    "not probed as healthy": _Explanation(
        "no node accepts connections on the health check port, or Harvester's hosts cannot reach the nodes",
        "Check the pods of the Service and the network of the nodes",
    ),
}
"""Explanations by the words of Harvester."""


def backend_note(load_balancer: LoadBalancer) -> EventMessage | None:
    """Return the Warning about a VM load balancer without any usable backend, from its Ready condition, or None.

    The state of single backends is not in the object.
    """
    condition = load_balancer.ready
    if condition is None or condition.status == "True":
        return None
    for words, explanation in _NO_BACKENDS.items():
        if words in condition.message:
            cause = f"Harvester sends no traffic to the nodes: {explanation.cause}"
            answer = f"Harvester: {condition.message}"
            return EventMessage("Warning", Reason.BACKENDS_UNHEALTHY, cause, explanation.remedy, answer=answer)
    return None


_UNAVAILABLE: Final = {
    errors.NotServed: _Explanation(
        "Harvester does not serve loadbalancer.harvesterhci.io/v1beta1. Harvester before 1.2 is not supported",
        "Upgrade Harvester to 1.2 or later. If Harvester is newer, check that the server in the cloud-config is "
        "Harvester, not this cluster, and that its load balancer controller is installed",
    ),
    errors.CredentialError: _Explanation("Harvester cannot be reached"),
    errors.NotFound: _Explanation(
        "The namespace of the cloud-config does not exist in Harvester",
        "Set the namespace of its context to that of this cluster's VMs",
    ),
    errors.WebhookFailed: _Explanation(
        "Harvester's admission webhook does not answer; the controller retries", WEBHOOK_AWAY
    ),
    errors.CCMError: _Explanation(
        "Harvester cannot serve requests at the moment; the controller retries",
        "If this stays, check its API servers and what stands in front of them",
    ),
}
"""Causes and remedies of errors without a remedy of their own; the first class that fits counts."""


def harvester_unavailable(error: errors.CCMError | None, service: Service | None = None) -> EventMessage:
    """Return the Warning for Services that wait while load balancers cannot be read or written.

    For a ``service`` that is being deleted while Harvester sends no response at all, it has the command that releases
    the Service without Harvester: a server that rejects a credential or a request still exists, and so does the load
    balancer.
    """
    explanation = _explanation_of(error)
    remedy, command = explanation.remedy, ""
    if service is not None and service.metadata.deleting and isinstance(error, errors.Unreachable):
        remedy = f"{remedy}. If that Harvester no longer exists, release the Service"
        command = _release_command(service)
    return EventMessage(
        "Warning", Reason.HARVESTER_UNAVAILABLE, explanation.cause, remedy, command, answer=_answer_of(error)
    )


def _answer_of(error: errors.CCMError | None) -> str:
    """Return what Harvester said, or why the request failed if it said nothing."""
    # The text of a rejected credential is part of the cause.
    if error is None or isinstance(error, errors.Unauthorized):
        return ""
    return f"Harvester: {error}" if isinstance(error, errors.ApiError) else f"Error: {error}"


def _release_command(service: Service) -> str:
    """Return the command that removes this controller's finalizer and keeps those of others."""
    meta = service.metadata
    others = [name for name in meta.finalizers or () if name != SERVICE_FINALIZER]
    patch = json.dumps({"metadata": {"finalizers": others or None}}, separators=(",", ":"))
    return f"kubectl patch service -n {meta.namespace} {meta.name} --type=merge -p {shlex.quote(patch)}"


def _explanation_of(error: errors.CCMError | None) -> _Explanation:
    match error:
        case None:
            return _Explanation("Harvester has not answered yet")
        case errors.Unauthorized():
            return _Explanation(f"Harvester {error.summary} (401)", error.remedy)
        case errors.Forbidden():
            remedy = f"{error.remedy[0].upper()}{error.remedy[1:]}"
            return _Explanation("The credential in the cloud-config lacks a permission in Harvester", remedy)
        case errors.Unreachable():
            return _Explanation(f"Harvester {error.summary}; the controller retries", error.remedy)
    return next(explanation for kind, explanation in _UNAVAILABLE.items() if isinstance(error, kind))


def harvester_mismatch(cluster: ClusterIdentity) -> EventMessage:
    """Return the Warning for a cloud-config that leads to another Harvester or namespace."""
    cause = (
        f"Harvester has no load balancer and no VM of this cluster in namespace {cluster.namespace}: the cloud-config "
        "seems to lead to another Harvester or namespace. No load balancer is created there, and Services keep their "
        "addresses"
    )
    remedy = "Correct the cloud-config; if the cluster moved there, start the controller with --accept-new-harvester"
    return EventMessage("Warning", Reason.HARVESTER_MISMATCH, cause, remedy)


def replacement_mismatch(cluster: ClusterIdentity) -> EventMessage:
    """Return the Warning for a Service whose load balancer is kept, because no other would be created in its place."""
    text = (
        "The workload type is not changed: without the load balancer of this Service, Harvester has no load balancer "
        f"and no VM of this cluster in namespace {cluster.namespace}, so the next one would not be created. Check the "
        "provider IDs of the Nodes: if all VMs were recreated, let a Node join again, or start the controller with "
        "--accept-new-harvester for the change"
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
        cause = "Every write conflicts with a change by another client; the controller retries"
        conflict = EventMessage("Warning", Reason.SYNC_FAILED, cause, answer=f"API server: {error}")
        return conflict if failures >= LASTING_CONFLICT else None
    if in_guest:
        return _patch_rejected(error) if (rejected or away) and failures >= REPORTED_FAILURES else None
    if rejected:
        return _rejected(error)
    at_once = away or isinstance(error, errors.Unauthorized | errors.NoResponse)
    return harvester_unavailable(error, service) if at_once or failures >= REPORTED_FAILURES else None


def _rejected(error: errors.CCMError) -> EventMessage:
    """Return the Warning for a load balancer that Harvester's webhook or schema rejects."""
    cause = "Harvester refused the load balancer"
    answer = f"Harvester: {error}"
    return EventMessage("Warning", Reason.SYNC_FAILED, cause, remedy(str(error)), answer=answer)


def _patch_rejected(error: errors.CCMError) -> EventMessage:
    """Return the Warning for a Service whose patch the API server of the guest cluster rejects."""
    action = "Have the policy or webhook that refuses it allow this controller to patch services/status"
    if isinstance(error, errors.WebhookFailed):
        action = "Check that the pods of that webhook run"
    elif "cannot patch resource" in str(error):
        action = "Grant the verb patch on services/status to the ClusterRole of this controller"
    cause = (
        "The API server of this cluster refuses the write to this Service. Until that is fixed, the Service gets no "
        "address and no change, and its deletion does not finish"
    )
    answer, subject = f"API server: {error}", errors.normalized_message(str(error))
    return EventMessage("Warning", Reason.SYNC_FAILED, cause, action, answer=answer, subject=subject)


class _Rejection(Struct, frozen=True):
    """A rejection by Harvester that has a remedy."""

    words: tuple[str, ...]
    """One of them occurs in its message."""
    remedy: str


_REJECTIONS: Final = (
    _Rejection(("is being removed",), "Rancher is removing this cluster, so it gets no new load balancers"),
    _Rejection(
        ("it has no running vm", "no virtual machine instance matched"),
        "Harvester finds no running VM of this cluster: give the VMs the label guestcluster.harvesterhci.io/name with "
        "the value of --cluster-name (instance labels in Harvester), or update Harvester to 1.8.1",
    ),
    _Rejection(
        ("exceeded quota",),
        "A quota in Harvester is used up: raise the ResourceQuota that it names, in the namespace of the VMs, or "
        "delete load balancers there that are not needed",
    ),
    _Rejection(
        ("it is being terminated",), "In Harvester the namespace of the VMs is being deleted, so it takes nothing new"
    ),
    _Rejection(
        ("needs to have at least one listener",),
        "This version of Harvester wants listeners on every load balancer; update Harvester to 1.5 or later",
    ),
    _Rejection(
        ("metadata.name: Invalid value", "metadata.labels: Invalid value", "a valid label must"),
        "The name of the cluster cannot be used in Harvester; --cluster-name takes lower-case letters, digits, dashes",
    ),
)


def remedy(message: str) -> str:
    """Return the remedy for a rejection by Harvester's admission webhook or schema; empty if unknown."""
    for rejection in _REJECTIONS:
        if any(words in message for words in rejection.words):
            return rejection.remedy
    return ""
