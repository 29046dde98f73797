"""Responses of servers, and the Events, reasons and remedies that they result in."""

from pathlib import Path
from typing import Any, Final

import pytest
from msgspec.structs import replace

from harvester_ccm.commands.clusters import ClusterStore
from harvester_ccm.kube.errors import (
    Answer,
    BadRequest,
    CertificateNotValid,
    ConnectionRefused,
    CredentialError,
    Forbidden,
    HostUnknown,
    KubeError,
    NoResponse,
    NotFound,
    NotServed,
    NotTrusted,
    ServerError,
    Unauthorized,
    Unreachable,
    error_from_response,
)
from harvester_ccm.kube.store import Store
from harvester_ccm.model.core import Service
from harvester_ccm.names import VM_NAME, Reason
from harvester_ccm.plan.service.messages import (
    Remedy,
    backends_warning,
    failure_event,
    harvester_mismatch,
    harvester_unavailable,
    label_vm_command,
    remedy_of_rejection,
)
from harvester_ccm.plan.service.phase import Phase
from harvester_ccm.plan.service.plan import plan_service
from harvester_ccm.plan.service.snapshot import ServiceState, observe
from tests.support.builders import CLUSTER, DELETED_AT, VM_SPEC, allocated, listed_store, marked, service
from tests.support.memory_server import refused
from tests.support.node_objects import instance
from tests.unit.plan.service.outcomes import differing
from tests.unit.plan.service.snapshots import BACKENDS as BACKEND_VMS
from tests.unit.plan.service.snapshots import HOSTED, messages, plan, snapshot_of

SNAPSHOT: Final = snapshot_of(service(), backends=())
BALANCER: Final = f"-n vms loadbalancers.loadbalancer.harvesterhci.io {SNAPSHOT.match.expected_name}"
WEBHOOK = 'admission webhook "validator.harvester-system.harvester-load-balancer-webhook" denied the request: '
CREATE = "Internal error occurred: create loadbalancer vms/web failed: "
UPDATE = "Internal error occurred: update loadbalancer vms/web failed: "
GUEST = "Internal error occurred: create loadbalancer vms/web failed with guest cluster check: "
FORBIDDEN = 'loadbalancers.loadbalancer.harvesterhci.io "x" is forbidden: '


def denied(text: str) -> KubeError:
    """Return the rejection of Harvester's webhook."""
    return refused(500, "InternalError", WEBHOOK + text)


REJECTIONS: dict[str, KubeError] = {
    "cluster being removed": denied(GUEST + "the vm vms/a shows guest cluster demo is being removed"),
    "cluster being removed, Harvester 1.8.0": denied(GUEST + "the vm vms/a shows guest cluster is on remove"),
    "no VM of Rancher, Harvester 1.8.0": denied(GUEST + "it has no running vm"),
    "no VM, Harvester 1.2": denied(CREATE + "no virtual machine instance matched"),
    "two listeners with one number": denied(CREATE + "listener dns-udp has duplicate port 53 with listener dns"),
    "unknown": denied(CREATE + "the moon is full"),
    "invalid label": refused(422, "Invalid", 'LoadBalancer "x" is invalid: metadata.labels: Invalid value: "Atlas 1"'),
    "invalid name": refused(422, "Invalid", 'LoadBalancer "X" is invalid: metadata.name: Invalid value'),
    "quota": refused(403, "Forbidden", f"{FORBIDDEN}exceeded quota: team, used: 5, limited: 5"),
    "policy of an administrator": refused(
        403, "Forbidden", f"{FORBIDDEN}ValidatingAdmissionPolicy 'need-owner' with binding 'x' denied request: no"
    ),
    "namespace being deleted": refused(
        403, "Forbidden", f"{FORBIDDEN}unable to create new content in namespace vms because it is being terminated"
    ),
    "bad request": BadRequest(Answer(400, "", "what?")),
}


def test_rejection_is_reported_at_once_with_a_remedy() -> None:
    rows: dict[str, str] = {}
    for name, error in REJECTIONS.items():
        event = failure_event(error, 1, SNAPSHOT)
        assert event is not None
        assert event.prose.endswith(f"Harvester: {error}")
        assert "  " not in event.message
        rows[name] = f"{event.type} {event.reason}: {event.message}"
    assert differing("rejections", rows) == []


def answer(status: int, text: str = "no") -> Answer:
    return Answer(status, "", text)


FAILURES: dict[str, KubeError] = {
    "webhook unreachable": refused(
        500, "InternalError", 'failed calling webhook "validator.harvester-system": connection refused'
    ),
    "webhook of another program": refused(
        500, "InternalError", 'failed calling webhook "validate.example.com-fail": failed to call: connection refused'
    ),
    "server error": ServerError(answer(503)),
    "unreachable": Unreachable("no route"),
    "unknown host": HostUnknown("unknown"),
    "connection refused": ConnectionRefused("refused"),
    "certificate of another issuer": NotTrusted("issuer"),
    "expired certificate": CertificateNotValid("expired"),
    "no token": CredentialError("token file gone"),
    "unauthorized": Unauthorized(answer(401)),
    "unauthorized by Rancher": Unauthorized(
        answer(401), server="https://rancher.example.org/k8s/clusters/local", credential="the token"
    ),
    "forbidden": Forbidden(answer(403, "may not create")),
    "path of another server": Forbidden(
        answer(403, 'forbidden: User "system:serviceaccount:vms:demo" cannot get path "/k8s/clusters/c-m-abc/apis/x"')
    ),
    "no namespace": NotFound(answer(404, 'namespaces "vms" not found')),
    "no such API": NotServed(answer(404, "not found")),
    "http instead of https": error_from_response(
        status=400, body=b"Client sent an HTTP request to an HTTPS server.\n", request="GET /x"
    ),
}


def test_other_errors_are_reported_as_harvester_unavailable() -> None:
    rows: dict[str, str] = {}
    for name, error in FAILURES.items():
        event = failure_event(error, 2, SNAPSHOT)
        assert event == harvester_unavailable(error)
        is_at_once = failure_event(error, 1, SNAPSHOT) is not None
        rows[name] = f"{'at once, ' if is_at_once else ''}{event.type} {event.reason}: {event.message}"
    assert differing("failures", rows) == []


def test_write_without_response_names_the_webhook() -> None:
    error = NoResponse("https://harvester: no answer within 35 s (POST /x)")
    event = failure_event(error, 1, SNAPSHOT)
    assert event is not None
    assert "harvester-load-balancer-webhook" in event.message
    assert "not answered yet" in harvester_unavailable(None).message


BACKENDS: dict[str, tuple[str, str]] = {
    "no VM": ("no running backend servers", "label harvesterhci.io/vmName"),
    "no addresses": ("running backend servers have no IP", "qemu-guest-agent"),
    "health checks fail": ("running backend servers are not probed as healthy total:3, healthy:0", "health check port"),
    "not about backends": ("service is waiting for external IP", ""),
}


@pytest.mark.parametrize(("message", "text"), BACKENDS.values(), ids=BACKENDS.keys())
def test_backends_without_traffic_are_reported(message: str, text: str) -> None:
    warnings = messages(plan(HOSTED, allocated(spec=VM_SPEC, message=message), waited=60.0), Reason.BACKENDS_UNHEALTHY)
    assert len(warnings) == bool(text)
    assert all(text in warning and warning.endswith(f"Harvester: {message}") for warning in warnings)


def running(name: str, **fields: Any) -> ClusterStore:
    """Return a store in which a VM load balancer finds no VM, although one runs that is labelled with this name."""
    found = allocated(spec=VM_SPEC, message="no running backend servers")
    store = listed_store([HOSTED], [found], BACKEND_VMS)
    vmi = instance(labels={VM_NAME: name})
    vmi = replace(vmi, metadata=replace(vmi.metadata, **fields))
    store.vmis = Store([vmi], {})
    return store


RUNNING: dict[str, tuple[ClusterStore, int]] = {
    "a backend: the report is of earlier backends": (running("vm-1"), 0),
    "a backend that stops": (running("vm-1", deletion_timestamp=DELETED_AT), 1),
    "another VM": (running("vm-9"), 1),
}


@pytest.mark.parametrize(("store", "warnings"), RUNNING.values(), ids=RUNNING.keys())
def test_label_is_missing_only_if_no_backend_has_it(store: ClusterStore, warnings: int) -> None:
    state = ServiceState(phase=Phase.ANNOUNCED_BY_HARVESTER)
    planned = plan_service(replace(observe(store, HOSTED, CLUSTER), remembered=state, now=60.0))
    assert len(messages(planned, Reason.BACKENDS_UNHEALTHY)) == warnings
    assert planned.condition is not None
    assert planned.condition.message.endswith("no running backend servers")


def test_missing_backends_are_reported_although_the_condition_does_not_tell() -> None:
    ready = allocated(spec=VM_SPEC, backends=())
    (message,) = messages(plan(HOSTED, ready, waited=60.0), Reason.BACKENDS_UNHEALTHY)
    assert "no running VM of them with an address" in message
    assert messages(plan(HOSTED, ready, waited=5.0)) == []


def test_backends_of_a_ready_load_balancer_are_not_reported() -> None:
    assert backends_warning(allocated(spec=VM_SPEC)) is None
    assert backends_warning(marked(spec=VM_SPEC)) is None


CONFLICT: Final = refused(409, "Conflict", "the object has been modified")


@pytest.mark.parametrize("in_guest", [False, True])
def test_conflict_is_reported_only_if_it_lasts(*, in_guest: bool) -> None:
    assert failure_event(CONFLICT, 12, SNAPSHOT, in_guest=in_guest) is None
    event = failure_event(CONFLICT, 13, SNAPSHOT, in_guest=in_guest)
    assert event is not None
    assert event.reason == Reason.SYNC_FAILED
    place = "this Service" if in_guest else "the load balancer of this Service in Harvester"
    assert event.message.startswith(f"Another client has changed {place} at every attempt")
    target = "service -n shop web" if in_guest else BALANCER
    assert event.command == f"kubectl get {target} -o yaml --show-managed-fields"


PATCH: Final = 'services "web" is forbidden: User "ccm" cannot patch resource "services/status"'
REFUSED_PATCHES: dict[str, KubeError] = {
    "no permission": refused(403, "Forbidden", PATCH),
    "a policy": denied("images must be signed"),
    "a webhook that does not answer": refused(
        500, "InternalError", 'failed calling webhook "x.y.z": connection refused'
    ),
    "an invalid patch": refused(422, "Invalid", "x"),
}


def test_refused_patch_of_a_service_says_what_it_holds_up() -> None:
    rows: dict[str, str] = {}
    for name, error in REFUSED_PATCHES.items():
        assert failure_event(error, 1, SNAPSHOT, in_guest=True) is None
        event = failure_event(error, 2, SNAPSHOT, in_guest=True)
        assert event is not None
        rows[name] = f"{event.type} {event.reason}: {event.message}"
    assert differing("refused_patches", rows) == []


@pytest.mark.parametrize("error", [ServerError(answer(503)), Unreachable("no route"), Unauthorized(answer(401))])
def test_outage_of_the_guest_cluster_is_no_event_of_a_service(error: KubeError) -> None:
    assert failure_event(error, 99, SNAPSHOT, in_guest=True) is None


RELEASES: dict[str, tuple[Service | None, KubeError, bool]] = {
    "deleted, no response": (service(ours=True, deleting=True), Unreachable("no route"), True),
    "deleted, refused": (service(ours=True, deleting=True), Forbidden(answer(403)), False),
    "deleted, not read yet": (service(ours=True, deleting=True), ServerError(answer(500)), False),
    "not deleted": (service(ours=True), Unreachable("no route"), False),
    "no Service": (None, Unreachable("no route"), False),
}


@pytest.mark.parametrize(("concerned", "error", "has_command"), RELEASES.values(), ids=RELEASES.keys())
def test_command_that_releases_a_service(concerned: Service | None, error: KubeError, *, has_command: bool) -> None:
    event = harvester_unavailable(error, concerned)
    assert bool(event.command) is has_command
    assert ("If that Harvester no longer exists, release the Service" in event.message) is has_command
    if has_command:
        assert event.message.endswith(
            'Run: kubectl patch service -n shop web --type=merge -p \'{"metadata":{"finalizers":null}}\''
        )


def test_response_of_a_server_is_part_of_the_message_unless_the_cause_says_it() -> None:
    assert harvester_unavailable(ServerError(answer(500, "boom"))).message.endswith(". Harvester: boom")
    assert harvester_unavailable(Unreachable("no route")).message.endswith(". Error: no route")
    assert "boom" not in harvester_unavailable(Unauthorized(answer(401, "boom"))).message


def test_mismatch_names_the_namespace_and_the_flag() -> None:
    event = harvester_mismatch(CLUSTER)
    assert (event.type, event.reason) == ("Warning", Reason.HARVESTER_MISMATCH)
    assert "in namespace vms" in event.message
    assert "--allow-harvester-change" in event.message


def test_unknown_rejection_has_no_remedy() -> None:
    assert remedy_of_rejection("the moon is full", CLUSTER) == Remedy()


LABEL_VM: Final = (
    "kubectl -n {namespace} label --overwrite virtualmachine {vm} "
    "harvesterhci.io/creator=docker-machine-driver-harvester guestcluster.harvesterhci.io/name={cluster}"
)


def test_harvester_1_8_0_is_answered_with_the_command_of_the_pages() -> None:
    event = failure_event(denied(GUEST + "it has no running vm"), 1, replace(SNAPSHOT, backends=("vm-1", "vm-2")))
    assert event is not None
    assert event.command == LABEL_VM.format(namespace="vms", vm="vm-1", cluster="demo")
    remedy = remedy_of_rejection("it has no running vm", CLUSTER)
    assert remedy.advice == f"{remedy.text}. Run: {LABEL_VM.format(namespace='vms', vm='NAME', cluster='demo')}"
    page = Path("docs/operations/troubleshooting.md").read_text(encoding="utf-8")
    as_one_line = " ".join(page.replace("\\\n", " ").split())
    assert label_vm_command(replace(CLUSTER, namespace="my-namespace", name="CLUSTER"), "NAME") in as_one_line
