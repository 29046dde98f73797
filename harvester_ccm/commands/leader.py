"""The leader of the controller, by its Lease, for ``status`` and ``explain``."""

import asyncio
from collections.abc import Mapping
from datetime import UTC, datetime
from functools import partial
from typing import Final

from harvester_ccm.commands.clusters import GUEST, answer_within, request_or_error
from harvester_ccm.commands.events import RECORDED_EVENTS, RecordedEvent, self_reports
from harvester_ccm.commands.permissions import NO_LEASE, Account, Permission, is_granted
from harvester_ccm.commands.states import NO_LEADER, Line, ObjectStatus, State, StatusReason, seconds_between
from harvester_ccm.config import LeaderElectionSettings, Settings
from harvester_ccm.kube.builtin import LEASES, Lease, LeaseSpec
from harvester_ccm.kube.client import ApiClient
from harvester_ccm.kube.errors import (
    AdmissionDenied,
    Forbidden,
    KubeError,
    NotFound,
    ServerError,
    Unreachable,
    WebhookFailed,
)
from harvester_ccm.kube.holder import program_of_holder
from harvester_ccm.kube.objects import Condition, Model, Object, Resource, decoder
from harvester_ccm.names import LEASE_HOLDER, PROGRAM
from harvester_ccm.remedies import SLOW_REMEDIES, guest_rbac_hint

_LONGEST_RENEWAL: Final = 60.0
"""Seconds between two renewals by any holder that works, whatever duration it writes into the Lease."""
LEASE_EXPIRED: Final = "LeaseExpired"
"""Reason of a Lease whose holder does not renew it."""
LEASE_NOT_WRITABLE: Final = "LeaseNotWritable"
"""Reason of a Lease that no controller can write."""
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
_NOT_RECONCILED: Final = (
    "Nothing is reconciled. Find the pods of the controller: if there is none, scale its Deployment; otherwise "
    "its log has the cause (kubectl logs). If it is silent, delete the pod, and it is started again"
)
_PODS: Final = "app.kubernetes.io/name=harvester-cloud-provider"
PODS_COMMAND: Final = f"kubectl -n kube-system get pods -l {_PODS} -o wide"
"""The pods of the controller, of the chart and of the manifests."""


class _ContainerStatus(Model, frozen=True, kw_only=True):
    state: Mapping[str, Mapping[str, str]] = {}
    """``waiting`` with reason and message, or another state."""


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
            if waiting := container.state.get("waiting"):
                return f"{waiting.get('reason', '')}: {waiting.get('message', '')}"
        return ""


PODS: Final = Resource("", "v1", "pods", "Pod", decoder(Pod))


async def read_lease(settings: Settings, guest: ApiClient, account: Account) -> tuple[LeaseSpec | None, list[Line]]:
    """Return the Lease, without the holder if that does not renew it, and its problem; ``account`` is to write it.

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
    if isinstance(lease, NotFound):
        lease = Lease()
    if isinstance(lease, KubeError):
        fix = f". {guest_rbac_hint(LEASES.plural)}" if isinstance(lease, Forbidden) else ""
        reason = StatusReason("LeaseNotReadable", f"{lease}{fix}")
        return None, [(name, ObjectStatus(State.NONE, reasons=(reason,)))]
    holder = lease.spec.holder_identity
    if not holder or (_is_doubtful(lease, election) and lease == before):
        status = await _without_leader(lease, guest, settings, account)
        return LeaseSpec(acquire_time=lease.spec.acquire_time), [(name, status)]
    if program_of_holder(lease, LEASE_HOLDER):
        return lease.spec, []
    reason = StatusReason(OTHER_LEADER, f"{holder} {_OTHER_LEADER}", OTHERS_COMMAND)
    return lease.spec, [(name, ObjectStatus(State.NONE, reasons=(reason,)))]


async def _without_leader(lease: Lease, guest: ApiClient, settings: Settings, account: Account) -> ObjectStatus:
    """Return the problem of a Lease without a leader: what prevents one, or the long duration for which others wait."""
    election = settings.leader_election
    spec = lease.spec
    holder = spec.holder_identity
    reason = LEASE_EXPIRED if holder else NO_LEADER
    text = f"{holder} has not renewed the Lease and does not lead." if holder else "No replica of the controller leads."
    since = (holder and spec.renew_time) or ""
    duration = spec.lease_duration_seconds or 0
    if holder and duration > _LONGEST_RENEWAL:
        text += f" It has a duration of {duration} s, for which no other leads. If that process is gone, delete it"
        command = f"kubectl -n {election.namespace} delete lease {election.name}"
        return ObjectStatus(State.NONE, since, (StatusReason(reason, text, command),))
    rejection = await _rejection(guest, election, lease)
    obstacle = rejection or await _missing_permission(guest, settings, lease, account) or await _waiting_pod(guest)
    if rejection:
        reason = LEASE_NOT_WRITABLE
    return ObjectStatus(State.NONE, since, (StatusReason(reason, f"{text} {obstacle}{_NOT_RECONCILED}", PODS_COMMAND),))


async def _missing_permission(guest: ApiClient, settings: Settings, lease: Lease, account: Account) -> str:
    """Return that the controller may not write the Lease; empty if it may, or if that is not known."""
    verb = "update" if lease.metadata.resource_version else "create"
    permission = Permission(LEASES, verb, True, NO_LEASE)
    if await request_or_error(is_granted(guest, permission, settings, account.subject)) is False:
        return f"ServiceAccount {account.name} may not {verb} the Lease: {guest_rbac_hint(LEASES.plural)}. "
    return ""


async def _rejection(guest: ApiClient, election: LeaderElectionSettings, lease: Lease) -> str:
    """Return why the API server takes no write of the Lease, by a dry run; empty if it does, or does not say it."""
    version = lease.metadata.resource_version
    metadata = {"name": election.name, **({"resourceVersion": version} if version else {})}
    check = guest.check_update if version else guest.check_creation
    request = check(LEASES, {"metadata": metadata, "spec": {}}, namespace=election.namespace)
    # The controller waits no longer.
    match await answer_within(max(1.0, election.renew_deadline / 2), request):
        case AdmissionDenied() | WebhookFailed() as error:
            return f"The API server rejects the Lease: {error}. Correct or delete that webhook or policy. "
        case NotFound() if not version:
            return (
                f"Namespace {election.namespace} does not exist in this cluster: create it, or correct "
                "--leader-elect-resource-namespace. "
            )
        case Unreachable() | ServerError() as error:
            return f"The API server does not complete a write of the Lease: {error}. {SLOW_REMEDIES[GUEST]}. "
    return ""


async def _waiting_pod(guest: ApiClient) -> str:
    """Return why a pod of the controller does not run; empty if none waits, or pods cannot be read."""
    found = await request_or_error(guest.list(PODS, namespace="kube-system", params={"labelSelector": _PODS}))
    for pod in () if isinstance(found, KubeError) else found.items:
        if pod.obstacle:
            return f"Pod {pod.metadata.name} does not run: {pod.obstacle}. "
    return ""


def _is_doubtful(lease: Lease | KubeError, election: LeaderElectionSettings) -> bool:
    """Return whether the renewal of a Lease is too long ago, or as far in the future, by the clock of this machine."""
    if isinstance(lease, KubeError) or not lease.spec.holder_identity:
        return False
    age = seconds_between(lease.spec.renew_time, datetime.now(UTC))
    duration = lease.spec.lease_duration_seconds or election.lease_duration
    return age is not None and abs(age) > min(duration, _LONGEST_RENEWAL)


def clock_difference(lease: LeaseSpec | None, now: datetime) -> list[Line]:
    """Return by how much the clock of a leader differs: it renews its Lease, and the time in it is not the present."""
    seconds = seconds_between(lease.renew_time, now) if lease else None
    if lease is None or seconds is None or abs(seconds) <= _LONGEST_RENEWAL:
        return []
    side = "behind" if seconds > 0 else "ahead of"
    text = (
        f"Its clock is {abs(seconds):.0f} s {side} the one here, and its Events and conditions have the times of its "
        "clock. Check the time synchronization of its node"
    )
    return [
        (f"Leader {lease.holder_identity}", ObjectStatus(State.NONE, reasons=(StatusReason("ClockDiffers", text),)))
    ]


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
