"""The leader of the controller, by its Lease, for ``status`` and ``explain``."""

import asyncio
from datetime import UTC, datetime
from functools import partial
from typing import Final

from harvester_ccm.commands.clusters import request_or_error
from harvester_ccm.commands.events import RECORDED_EVENTS, RecordedEvent, self_reports
from harvester_ccm.commands.states import NO_LEADER, Line, ObjectStatus, State, StatusReason, seconds_between
from harvester_ccm.config import LeaderElectionSettings, Settings
from harvester_ccm.kube.builtin import LEASES, Lease, LeaseSpec
from harvester_ccm.kube.client import ApiClient
from harvester_ccm.kube.errors import AdmissionDenied, Forbidden, KubeError, NotFound, WebhookFailed
from harvester_ccm.kube.holder import program_of_holder
from harvester_ccm.kube.objects import Condition, Model, Object, Resource, decoder
from harvester_ccm.kube.reviews import ACCESS_REVIEWS, SUBJECT_ACCESS_REVIEWS, ask_review
from harvester_ccm.kube.tokens import token_claims
from harvester_ccm.names import LEASE_HOLDER, PROGRAM
from harvester_ccm.remedies import guest_rbac_hint

_LONGEST_RENEWAL: Final = 60.0
"""Seconds between two renewals by any holder that works, whatever duration it writes into the Lease."""
LEASE_EXPIRED: Final = "LeaseExpired"
"""Reason of a Lease whose holder does not renew it."""
OTHER_LEADER: Final = "OtherLeader"
"""Reason of a Lease that another program holds."""
_OTHER_LEADER: Final = (
    f"holds the Lease and is not {PROGRAM}, which marks its Lease: most likely the Go provider still runs. {PROGRAM} "
    "waits and reconciles nothing. Uninstall the other program, or scale it down. The holder begins with the name of "
    "its node, and the managed fields of the Lease name the program. If none runs, delete the Lease"
)
OTHERS_COMMAND: Final = (
    "kubectl get deployments,daemonsets,pods -A -o wide | grep -e cloud-provider -e cloud-controller -e ccm"
)
"""The Go provider and those of other clouds are among these."""
_ACCOUNT: Final = "kube-system/harvester-cloud-provider"
"""ServiceAccount of the chart and of the manifests."""
_NOT_RECONCILED: Final = (
    "Nothing is reconciled. Find the pods of the controller: if there is none, scale its Deployment; otherwise "
    "its log has the cause (kubectl logs). If it is silent, delete the pod, and it is started again"
)
_PODS: Final = "app.kubernetes.io/name=harvester-cloud-provider"
PODS_COMMAND: Final = f"kubectl -n kube-system get pods -l {_PODS} -o wide"
"""The pods of the controller, of the chart and of the manifests."""


class _Waiting(Model, frozen=True, kw_only=True):
    """Why a container does not run."""

    reason: str = ""
    message: str = ""


class _ContainerState(Model, frozen=True, kw_only=True):
    waiting: _Waiting | None = None


class _ContainerStatus(Model, frozen=True, kw_only=True):
    state: _ContainerState = _ContainerState()


class _PodStatus(Model, frozen=True, kw_only=True):
    conditions: tuple[Condition, ...] | None = None
    container_statuses: tuple[_ContainerStatus, ...] | None = None


class Pod(Object, frozen=True, kw_only=True):
    """A pod of the controller."""

    status: _PodStatus = _PodStatus()

    @property
    def obstacle(self) -> str:
        """Why it does not run; empty if it shows none."""
        for condition in self.status.conditions or ():
            if (condition.type, condition.status) == ("PodScheduled", "False"):
                return condition.message
        for container in self.status.container_statuses or ():
            waiting = container.state.waiting
            if waiting is not None:
                return f"{waiting.reason}: {waiting.message}"
        return ""


PODS: Final = Resource("", "v1", "pods", "Pod", decoder(Pod))


async def read_lease(settings: Settings, guest: ApiClient) -> tuple[LeaseSpec | None, list[Line]]:
    """Return the Lease, without the holder if it has expired, and its problem.

    None instead of a Lease: there is no leader election, or the Lease cannot be read.

    The clocks of the holder and of this process can differ. If the Lease looks expired, or renewed in the future, it is
    therefore read again after a time in which a leader renews it.
    """
    election = settings.leader_election
    if not election.enabled:
        return None, []
    read = partial(guest.get, LEASES, election.name, namespace=election.namespace)
    before = lease = await request_or_error(read())
    if _is_doubtful(lease, election):
        await asyncio.sleep(2 * election.retry_period)
        lease = await request_or_error(read())
    name = f"Lease {election.namespace}/{election.name}"
    spec = LeaseSpec() if isinstance(lease, KubeError) else lease.spec
    since = ""
    if isinstance(lease, KubeError) and not isinstance(lease, NotFound):
        return None, [(name, ObjectStatus(State.NONE, reasons=(_unreadable(lease),)))]
    if not spec.holder_identity:
        text = f"No replica of the controller leads. {await _obstacle(guest, election, lease)}{_NOT_RECONCILED}"
        reason = StatusReason(NO_LEADER, text, PODS_COMMAND)
    elif _is_doubtful(lease, election) and lease == before:
        reason = _not_renewed(spec, election, await _obstacle(guest, election, lease))
        since = spec.renew_time or ""
        spec = LeaseSpec()
    elif isinstance(lease, Lease) and not program_of_holder(lease, LEASE_HOLDER):
        reason = StatusReason(OTHER_LEADER, f"{spec.holder_identity} {_OTHER_LEADER}", OTHERS_COMMAND)
    else:
        return spec, []
    return spec, [(name, ObjectStatus(State.NONE, since, (reason,)))]


def _unreadable(error: KubeError) -> StatusReason:
    text = f"{error}. {guest_rbac_hint(LEASES.plural)}" if isinstance(error, Forbidden) else str(error)
    return StatusReason("LeaseNotReadable", text)


async def _obstacle(guest: ApiClient, election: LeaderElectionSettings, lease: Lease | KubeError) -> str:
    """Return why the Lease cannot be written, as far as a review and a dry run show it; empty if they do not.

    The account is that of this credential, as in the pod of the controller, or else that of the chart and manifests.
    """
    _, own_account = token_claims(guest.credentials.token.get())
    namespace, _, name = (own_account or _ACCOUNT).partition("/")
    subject = {
        "user": f"system:serviceaccount:{namespace}:{name}",
        "groups": ["system:authenticated", "system:serviceaccounts", f"system:serviceaccounts:{namespace}"],
    }
    attributes = {"group": LEASES.group, "resource": LEASES.plural, "namespace": election.namespace, "verb": "create"}
    if isinstance(lease, Lease):
        attributes |= {"verb": "update", "name": election.name}
    kind = ACCESS_REVIEWS if own_account else SUBJECT_ACCESS_REVIEWS
    question = {"resourceAttributes": attributes, **({} if own_account else subject)}
    answer = await request_or_error(ask_review(guest, kind, question))
    if isinstance(answer, KubeError) or answer.allowed:
        return await _rejection(guest, election)
    return (
        f"ServiceAccount {namespace}/{name} may not {attributes['verb']} the Lease: {guest_rbac_hint(LEASES.plural)}. "
    )


async def _rejection(guest: ApiClient, election: LeaderElectionSettings) -> str:
    """Return what a webhook or a policy answers to a Lease; nothing is written."""
    body = {"metadata": {"name": election.name}, "spec": {}}
    rejection = await request_or_error(guest.check_creation(LEASES, body, namespace=election.namespace))
    if not isinstance(rejection, AdmissionDenied | WebhookFailed):
        return await _waiting_pod(guest)
    return f"The API server rejects the Lease: {rejection}. Correct or delete that webhook or policy. "


async def _waiting_pod(guest: ApiClient) -> str:
    """Return why a pod of the controller does not run; empty if none waits, or pods cannot be read."""
    found = await request_or_error(guest.list(PODS, namespace="kube-system", params={"labelSelector": _PODS}))
    for pod in () if isinstance(found, KubeError) else found.items:
        if pod.obstacle:
            return f"Pod {pod.metadata.name} does not run: {pod.obstacle}. "
    return ""


def _not_renewed(spec: LeaseSpec, election: LeaderElectionSettings, obstacle: str) -> StatusReason:
    """Return the problem of a Lease whose holder is gone: with a long duration, it keeps others waiting."""
    text = f"{spec.holder_identity} has not renewed the Lease and does not lead."
    duration = spec.lease_duration_seconds or 0
    if duration <= _LONGEST_RENEWAL:
        return StatusReason(LEASE_EXPIRED, f"{text} {obstacle}{_NOT_RECONCILED}", PODS_COMMAND)
    text += f" It has a duration of {duration} s, for which no other replica leads. If that process is gone, delete it"
    return StatusReason(LEASE_EXPIRED, text, f"kubectl -n {election.namespace} delete lease {election.name}")


def _is_doubtful(lease: Lease | KubeError, election: LeaderElectionSettings) -> bool:
    """Return whether the renewal of a Lease is too long ago, or as far in the future, by the clock of this machine."""
    if isinstance(lease, KubeError) or not lease.spec.holder_identity:
        return False
    age = seconds_between(lease.spec.renew_time, datetime.now(UTC))
    duration = lease.spec.lease_duration_seconds or election.lease_duration
    return age is not None and abs(age) > min(duration, _LONGEST_RENEWAL)


async def reports_of_controllers(settings: Settings, guest: ApiClient) -> list[RecordedEvent]:
    """Return the Warnings of controllers about themselves that hold, the newest first: Events about the Lease.

    Empty if Events cannot be read, as in the pod of the controller.
    """
    election = settings.leader_election
    selector = f"involvedObject.kind={LEASES.kind},involvedObject.name={election.name}"
    found = await request_or_error(
        guest.list(RECORDED_EVENTS, namespace=election.namespace, params={"fieldSelector": selector})
    )
    if isinstance(found, KubeError):
        return []
    # Servers of tests, and some proxies, do not know the selector.
    about = [event for event in found.items if event.involved_object.kind == LEASES.kind]
    return self_reports(about, datetime.now(UTC))
