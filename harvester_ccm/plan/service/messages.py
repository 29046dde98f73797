"""What a failed request, or a state that Harvester reports, means for a Service: the text of Events and conditions.

A message states the meaning first, then what to do, then the server's own words, which can be searched for. This module
has texts and decides nothing about load balancers.
"""

import json
import shlex
from collections.abc import Mapping, Sequence
from typing import Final

from msgspec import Struct

from harvester_ccm.kube import errors
from harvester_ccm.model.core import Service
from harvester_ccm.model.event import EventMessage, abbreviate
from harvester_ccm.model.harvester import IP_POOLS, ClusterIdentity, LoadBalancer
from harvester_ccm.names import NODE_DRIVER, SERVICE_FINALIZER, VM_CLUSTER, VM_CREATOR, Reason
from harvester_ccm.plan.service.load_balancer.refused import SAME_NUMBER, SAME_NUMBER_REMEDY
from harvester_ccm.plan.service.ownership.owner import kubectl_arguments
from harvester_ccm.plan.service.snapshot import ServiceSnapshot
from harvester_ccm.remedies import GUEST_WEBHOOK_AWAY, problem_of, remedy_of

CONTROLLER_GRACE_SECONDS: Final = 30.0
"""Time that Harvester may take for the allocation of an address before an Event reports it."""
UNAVAILABLE_GRACE_SECONDS: Final = 5.0
"""Time for which Harvester may be unreachable before waiting Services get an Event."""
LASTING_CONFLICT: Final = 13
"""Failures in a row, about a minute, after which a conflict is reported to the user."""
REPORTED_FAILURES: Final = 2
"""Failures in a row after which a transient error is reported to the user."""

WEBHOOK_AWAY: Final = (
    "Check that the pods of harvester-load-balancer-webhook in namespace harvester-system of Harvester run"
)
"""Remedy if Harvester's API server cannot call its webhook."""
_POOLS: Final = f"{IP_POOLS.plural}.{IP_POOLS.group}"


class _Explanation(Struct, frozen=True):
    """What an error means, and what to do."""

    cause: str
    remedy: str = ""
    command: str = ""


_NO_RUNNING_BACKEND: Final = "no running backend servers"
_NO_BACKENDS: Final = {
    _NO_RUNNING_BACKEND: _Explanation(
        "no running VM of this cluster has label harvesterhci.io/vmName with a name of its nodes",
        "Start the VMs. If they run, add the label to their template labels and restart them",
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
_NO_BACKEND_LISTED: Final = EventMessage(
    "Warning",
    Reason.BACKENDS_UNHEALTHY,
    "Harvester sends no traffic to the nodes: it knows no running VM of them with an address",
    "Check that the VMs run, that label harvesterhci.io/vmName in their template labels has the name of each, and that "
    "qemu-guest-agent runs in them",
)


def backends_warning(load_balancer: LoadBalancer, *, is_labelled: bool = False) -> EventMessage | None:
    """Return the Warning about a VM load balancer without any usable backend, or None.

    It is in the Ready condition; up to Harvester 1.3, only an empty list of backends shows it. The state of single
    backends is not in the object. ``is_labelled``: Harvester finds one by its label. If it reports none, it has not
    processed the present backends yet.
    """
    condition = load_balancer.ready
    if condition is None:
        return None
    if condition.status == "True":
        return None if load_balancer.backends else _NO_BACKEND_LISTED
    for words, explanation in _NO_BACKENDS.items():
        is_of_earlier_backends = is_labelled and words == _NO_RUNNING_BACKEND
        if words in condition.message and not is_of_earlier_backends:
            cause = f"Harvester sends no traffic to the nodes: {explanation.cause}"
            answer = f"Harvester: {condition.message}"
            return EventMessage("Warning", Reason.BACKENDS_UNHEALTHY, cause, explanation.remedy, answer=answer)
    return None


_UNAVAILABLE: Final = {
    errors.NotServed: _Explanation(
        "Harvester does not serve loadbalancer.harvesterhci.io/v1beta1",
        "If it did before, its CustomResourceDefinition was deleted, and the load balancers with it: create it again "
        "with the kubeconfig of Harvester, from crds/loadbalancer.harvesterhci.io_loadbalancers.yaml of the repository "
        "harvester/load-balancer-harvester, at the tag of Harvester's version. Harvester before 1.2 is not supported: "
        "upgrade it. Otherwise check that the server in the cloud-config is Harvester, not this cluster",
    ),
    errors.PlainText: _Explanation(
        "The server in the cloud-config begins with http://, and Harvester expects https://", "Correct the cloud-config"
    ),
    errors.CredentialError: _Explanation(
        "The credential in the cloud-config cannot be used, so nothing was sent to Harvester",
        "Correct what the error names, or make a cloud-config with a token, which needs no plugin (generate_addon.sh)",
    ),
    errors.NotFound: _Explanation(
        "The namespace of the cloud-config does not exist in Harvester",
        "Set the namespace of its context to that of this cluster's VMs",
    ),
    errors.KubeError: _Explanation(
        "Harvester cannot serve requests at the moment; the controller retries",
        "If this stays, check its API servers, and any proxy or load balancer in front of them",
    ),
}
"""Causes and remedies of errors without a remedy of their own; the first class that fits counts."""


_OWN_WEBHOOK: Final = _Explanation(
    "Harvester's API server cannot call its admission webhook; the controller retries",
    f"{WEBHOOK_AWAY}. If they do, restart them with the kubeconfig of Harvester",
    "kubectl -n harvester-system rollout restart deployment harvester-load-balancer-webhook",
)
_OTHER_WEBHOOK: Final = _Explanation(
    "Harvester's API server cannot call an admission webhook of another program; the controller retries",
    "Check that the pods of that program run in Harvester. If it was removed, delete its webhook configuration, with "
    "the kubeconfig of Harvester: find it by the name of the webhook",
    "kubectl get validatingwebhookconfigurations,mutatingwebhookconfigurations",
)


def webhook_advice(error: errors.WebhookFailed) -> str:
    """Return the remedy for a webhook that Harvester's API server cannot call, with its command."""
    explanation = _explanation_of(error)
    return f"{explanation.remedy}: {explanation.command}"


def harvester_unavailable(error: errors.KubeError | None, service: Service | None = None) -> EventMessage:
    """Return the Warning for Services that wait while load balancers cannot be read or written.

    For a ``service`` that is being deleted while Harvester sends no response at all, it has the command that releases
    the Service without Harvester: a server that rejects a credential or a request still exists, and so does the load
    balancer.
    """
    explanation = _explanation_of(error)
    remedy = explanation.remedy
    command = explanation.command
    if service is not None and service.metadata.deleting and isinstance(error, errors.Unreachable):
        remedy = f"{remedy}. If that Harvester no longer exists, release the Service"
        command = _release_command(service)
    return EventMessage(
        "Warning", Reason.HARVESTER_UNAVAILABLE, explanation.cause, remedy, command, answer=_answer_of(error)
    )


def _answer_of(error: errors.KubeError | None) -> str:
    """Return what Harvester said, or why the request failed if it said nothing."""
    # The text of a rejected credential is part of the cause.
    if error is None or isinstance(error, errors.Unauthorized):
        return ""
    return f"Harvester: {error}" if isinstance(error, errors.ApiError) else f"Error: {error}"


def release_entry_command(address: str, owner: str) -> str:
    """Return the command that releases the entry of a load balancer in an IP pool, whichever pool that is."""
    key = address.replace(".", r"\.")
    wanted = shlex.quote(f'{{.items[?(@.status.allocated.{key}=="{owner}")].metadata.name}}')
    patch = json.dumps([{"op": "remove", "path": f"/status/allocated/{address}"}], separators=(",", ":"))
    return f'kubectl patch {_POOLS} "$(kubectl get {_POOLS} -o jsonpath={wanted})" --type=json -p {shlex.quote(patch)}'


def record_entry_command(pool: str, address: str, owner: str) -> str:
    """Return the command that records in an IP pool which load balancer has an address."""
    patch = json.dumps({"status": {"allocated": {address: owner}}}, separators=(",", ":"))
    return f"kubectl patch {_POOLS} {shlex.quote(pool)} --type=merge -p {shlex.quote(patch)}"


def _release_command(service: Service) -> str:
    """Return the command that removes this controller's finalizer and keeps those of others."""
    meta = service.metadata
    others = [name for name in meta.finalizers or () if name != SERVICE_FINALIZER]
    patch = json.dumps({"metadata": {"finalizers": others or None}}, separators=(",", ":"))
    return f"kubectl patch service -n {meta.namespace} {meta.name} --type=merge -p {shlex.quote(patch)}"


def _explanation_of(error: errors.KubeError | None) -> _Explanation:
    match error:
        case None:
            return _Explanation("Harvester has not answered yet")
        case errors.Unauthorized():
            return _Explanation(f"Harvester {problem_of(error)} (401)", remedy_of(error))
        case errors.Forbidden(is_of_server_path=True):
            return _Explanation("The server in the cloud-config has a path that it does not serve", remedy_of(error))
        case errors.Forbidden():
            return _Explanation("The credential in the cloud-config lacks a permission in Harvester", remedy_of(error))
        case errors.Unreachable():
            return _Explanation(f"Harvester {problem_of(error)}; the controller retries", remedy_of(error))
        case errors.WebhookFailed():
            return _OWN_WEBHOOK if "harvester" in error.webhook else _OTHER_WEBHOOK
    return next(explanation for kind, explanation in _UNAVAILABLE.items() if isinstance(error, kind))


def harvester_mismatch(cluster: ClusterIdentity) -> EventMessage:
    """Return the Warning for a cloud-config that leads to another Harvester or namespace."""
    cause = (
        f"Harvester has no load balancer and no VM of this cluster in namespace {cluster.namespace}: the cloud-config "
        "seems to lead to another Harvester or namespace. No load balancer is created there, and Services keep their "
        "addresses"
    )
    remedy = "Correct the cloud-config; if the cluster moved there, start the controller with --allow-harvester-change"
    return EventMessage("Warning", Reason.HARVESTER_MISMATCH, cause, remedy)


def failure_event(
    error: errors.KubeError, failures: int, snapshot: ServiceSnapshot, *, in_guest: bool = False
) -> EventMessage | None:
    """Return the Warning for a write that failed; None while it is too early for a report.

    ``failures`` is the number of failures in a row; ``in_guest``: whether the Service could not be patched, instead of
    its load balancer. A webhook that hangs is reported at once, because each attempt takes its timeout.
    """
    away = isinstance(error, errors.Forbidden | errors.WebhookFailed)
    rejected = isinstance(error, errors.AdmissionDenied | errors.Invalid | errors.BadRequest)
    if isinstance(error, errors.Conflict):
        event = _lasting_conflict(error, snapshot, in_guest=in_guest)
        return event if failures >= LASTING_CONFLICT else None
    if in_guest:
        return _patch_rejected(error) if (rejected or away) and failures >= REPORTED_FAILURES else None
    if rejected:
        return _rejected(error, snapshot)
    at_once = away or isinstance(error, errors.Unauthorized | errors.NoResponse)
    return harvester_unavailable(error, snapshot.service) if at_once or failures >= REPORTED_FAILURES else None


def _lasting_conflict(error: errors.KubeError, snapshot: ServiceSnapshot, *, in_guest: bool) -> EventMessage:
    """Return the Warning for an object that another client changes before each write."""
    meta = snapshot.service.metadata
    place = "this Service"
    target = f"service -n {meta.namespace} {meta.name}"
    remedy = "Find the client in the managed fields, and stop it"
    if not in_guest:
        place = "the load balancer of this Service in Harvester"
        # A creation that got no response conflicts with a load balancer that the cache lacks.
        present = snapshot.match.load_balancer
        name = snapshot.match.expected_name if present is None else present.metadata.name
        target = kubectl_arguments(snapshot.cluster.namespace, name)
        remedy = "With the kubeconfig of Harvester, find the client in the managed fields, and stop it"
    cause = f"Another client has changed {place} at every attempt for a minute; the controller retries"
    command = f"kubectl get {target} -o yaml --show-managed-fields"
    return EventMessage("Warning", Reason.SYNC_FAILED, cause, remedy, command, answer=f"API server: {error}")


def write_reverted(fields: Sequence[str], *, in_guest: bool) -> EventMessage:
    """Return the Warning about a write of these fields that an API server accepted and did not store."""
    remedy = "Find the admission webhook or policy that removes or reverts it, and exempt this controller"
    place = "this cluster"
    if not in_guest:
        place = "Harvester"
        remedy = f"With the kubeconfig of Harvester: {remedy[0].lower()}{remedy[1:]}"
    cause = f"The API server of {place} accepted the last write, and {abbreviate(fields)} is as before"
    return EventMessage(
        "Warning", Reason.SYNC_FAILED, cause, remedy, "kubectl get mutatingwebhookconfigurations", subject="reverted"
    )


def _rejected(error: errors.KubeError, snapshot: ServiceSnapshot) -> EventMessage:
    """Return the Warning for a load balancer that Harvester's webhook or schema rejects."""
    cause = "Harvester rejected the load balancer"
    answer = f"Harvester: {error}"
    vm = snapshot.backends[0] if snapshot.backends else "NAME"
    remedy = remedy_of_rejection(str(error), snapshot.cluster, vm)
    return EventMessage("Warning", Reason.SYNC_FAILED, cause, remedy.text, remedy.command, answer=answer)


def _patch_rejected(error: errors.KubeError) -> EventMessage:
    """Return the Warning for a Service whose patch the API server of the guest cluster rejects."""
    action = (
        "Allow the service account of this controller to patch services/status in the policy or webhook that rejects it"
    )
    if isinstance(error, errors.WebhookFailed):
        action = GUEST_WEBHOOK_AWAY
    elif "cannot patch resource" in str(error):
        action = (
            "Add the verb patch on services/status to the ClusterRole of this controller: install its chart or "
            "manifest again"
        )
    cause = (
        "The API server of this cluster rejected the update of this Service: its address cannot be published, and its "
        "deletion cannot finish"
    )
    answer = f"API server: {error}"
    subject = errors.normalized_message(str(error))
    return EventMessage("Warning", Reason.SYNC_FAILED, cause, action, answer=answer, subject=subject)


_NO_VM_OF_RANCHER: Final = "it has no running vm"
_REJECTIONS: Final[Mapping[tuple[str, ...], str]] = {
    ("is being removed", "is on remove"): ("Rancher is removing this cluster, so it gets no new load balancers"),
    (_NO_VM_OF_RANCHER,): (
        "Harvester 1.8.0 gives load balancers only to clusters with a VM that Rancher made: update it to 1.8.1, or "
        "give one VM of this cluster the labels of such a VM, with the kubeconfig of Harvester"
    ),
    ("no virtual machine instance matched",): (
        "Harvester before 1.4 takes load balancers only while a VM runs in their namespace, and for VM load balancers "
        "one of their backends: start a VM of this cluster, check the namespace in the cloud-config, or update "
        "Harvester to 1.4"
    ),
    SAME_NUMBER: SAME_NUMBER_REMEDY,
    ("exceeded quota",): (
        "A quota in Harvester is used up: raise the ResourceQuota that it names, in the namespace of the VMs, or "
        "delete load balancers there that are not needed"
    ),
    ("ValidatingAdmissionPolicy",): (
        "Have the administrator of Harvester exempt load balancers, or the service account in the cloud-config, from "
        "that policy: the controller cannot add what it wants"
    ),
    ("it is being terminated",): ("In Harvester the namespace of the VMs is being deleted, so it takes nothing new"),
    ("metadata.name: Invalid value", "metadata.labels: Invalid value", "a valid label must"): (
        "The name of the cluster cannot be used in Harvester; --cluster-name takes lower-case letters, digits, dashes"
    ),
}
"""Remedies by words, one of which occurs in the message of a rejection."""


class Remedy(Struct, frozen=True):
    """What to do about a rejection."""

    text: str = ""
    """Empty if nothing is known."""
    command: str = ""

    @property
    def advice(self) -> str:
        """Both as one text."""
        return f"{self.text}. Run: {self.command}" if self.command else self.text


def remedy_of_rejection(message: str, cluster: ClusterIdentity, vm: str = "NAME") -> Remedy:
    """Return the remedy for a rejection by Harvester's admission webhook or schema; ``vm`` is one of the cluster."""
    for words, text in _REJECTIONS.items():
        if any(word in message for word in words):
            return Remedy(text, label_vm_command(cluster, vm) if _NO_VM_OF_RANCHER in words else "")
    return Remedy()


def label_vm_command(cluster: ClusterIdentity, vm: str) -> str:
    """Return the command that gives a VM the labels of one that Rancher made for the cluster."""
    labels = f"{VM_CREATOR}={NODE_DRIVER} {VM_CLUSTER}={shlex.quote(cluster.name)}"
    return f"kubectl -n {cluster.namespace} label --overwrite virtualmachine {vm} {labels}"
