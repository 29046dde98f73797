"""Responses of Harvester, and the Events, reasons and remedies that they result in."""

from collections.abc import Sequence
from typing import NamedTuple

import pytest

from harvester_ccm.errors import (
    Answer,
    BadRequest,
    CCMError,
    CertificateNotValid,
    ConnectionRefused,
    CredentialError,
    Forbidden,
    HostUnknown,
    NoResponse,
    NotFound,
    NotServed,
    NotTrusted,
    ServerError,
    Unauthorized,
    Unreachable,
)
from harvester_ccm.names import WORKLOAD_TYPE, Reason
from harvester_ccm.plan.service.messages import REPORTED_FAILURES, failure_event, harvester_unavailable
from tests.unit.plan.service.plans import messages, plan
from tests.worlds.builders import ADDRESS, SUPPRESSED, VM_SPEC, allocated, marked, service
from tests.worlds.memory_server import refused

WEBHOOK = 'admission webhook "validator.harvester-system.harvester-load-balancer-webhook" denied the request: '
CREATE = "Internal error occurred: create loadbalancer vms/web failed: "
UPDATE = "Internal error occurred: update loadbalancer vms/web failed: "
GUEST = "Internal error occurred: create loadbalancer vms/web failed with guest cluster check: "
FORBIDDEN = 'loadbalancers.loadbalancer.harvesterhci.io "x" is forbidden: '


def denied(text: str) -> CCMError:
    """Return the rejection of Harvester's webhook."""
    return refused(500, "InternalError", WEBHOOK + text)


REJECTIONS: dict[str, tuple[CCMError, str]] = {
    "no listener": (denied(CREATE + "the loadbalancer needs to have at least one listener"), "update Harvester to 1.5"),
    "cluster being removed": (
        denied(GUEST + "the vm vms/a shows guest cluster demo is being removed"),
        "Rancher is removing",
    ),
    "no running VM": (denied(GUEST + "it has no running vm"), "label guestcluster.harvesterhci.io/name"),
    "no VM, Harvester 1.2": (
        denied(CREATE + "no virtual machine instance matched"),
        "label guestcluster.harvesterhci.io/name",
    ),
    "unknown": (denied(CREATE + "the moon is full"), ""),
    "invalid label": (
        refused(422, "Invalid", 'LoadBalancer "x" is invalid: metadata.labels: Invalid value: "Atlas 1"'),
        "--cluster-name",
    ),
    "invalid name": (
        refused(422, "Invalid", 'LoadBalancer "X" is invalid: metadata.name: Invalid value'),
        "--cluster-name",
    ),
    "quota": (
        refused(403, "Forbidden", f"{FORBIDDEN}exceeded quota: team, used: 5, limited: 5"),
        "raise the ResourceQuota that it names, in the namespace of the VMs, or delete load balancers",
    ),
    "namespace being deleted": (
        refused(
            403, "Forbidden", f"{FORBIDDEN}unable to create new content in namespace vms because it is being terminated"
        ),
        "the namespace of the VMs is being deleted",
    ),
    "bad request": (BadRequest(Answer(400, "", "what?")), "what?"),
}


@pytest.mark.parametrize(("error", "remedy"), REJECTIONS.values(), ids=REJECTIONS.keys())
def test_rejection_is_reported_at_once_with_a_remedy(error: CCMError, remedy: str) -> None:
    event = failure_event(error, 1, service())
    assert event is not None
    assert (event.type, event.reason) == ("Warning", Reason.SYNC_FAILED)
    assert event.message.startswith("Harvester refused the load balancer. ")
    assert remedy in event.message
    assert event.message.endswith(f"Harvester: {error}")
    assert "  " not in event.message


def answer(status: int, text: str = "no") -> Answer:
    return Answer(status, "", text)


FAILURES: dict[str, tuple[CCMError, bool, str]] = {
    "webhook unreachable": (
        refused(500, "InternalError", 'failed calling webhook "validator.harvester-system": connection refused'),
        True,
        "pods of harvester-load-balancer-webhook in namespace harvester-system",
    ),
    "server error": (ServerError(answer(503)), False, "cannot serve requests at the moment"),
    "unreachable": (Unreachable("no route"), False, "server in the cloud-config is that address. Error: no route"),
    "unknown host": (HostUnknown("unknown"), False, "DNS servers of the nodes, or put Harvester's VIP"),
    "connection refused": (ConnectionRefused("refused"), False, "address and port of the server in the cloud-config"),
    "certificate of another issuer": (NotTrusted("issuer"), False, "or the cloud-config is old: make it again"),
    "expired certificate": (
        CertificateNotValid("expired"),
        False,
        "Compare the clocks of this node",
    ),
    "no token": (CredentialError("token file gone"), False, "cannot be reached. Error: token file gone"),
    "unauthorized": (Unauthorized(answer(401)), True, "generate_addon.sh <account>"),
    "forbidden": (Forbidden(answer(403, "may not create")), True, "permission in Harvester. Bind the ClusterRole"),
    "no namespace": (NotFound(answer(404, 'namespaces "vms" not found')), False, "namespace of the cloud-config"),
    "no such API": (NotServed(answer(404, "not found")), False, "load balancer controller is installed"),
}


@pytest.mark.parametrize(("error", "at_once", "text"), FAILURES.values(), ids=FAILURES.keys())
def test_other_errors_are_reported_as_harvester_unavailable(error: CCMError, at_once: bool, text: str) -> None:
    event = failure_event(error, REPORTED_FAILURES, service())
    assert event == harvester_unavailable(error)
    assert event.reason == Reason.HARVESTER_UNAVAILABLE
    assert text in event.message
    assert (failure_event(error, REPORTED_FAILURES - 1, service()) is not None) is at_once


def test_write_without_response_names_the_webhook() -> None:
    error = NoResponse("https://harvester: no answer within 35 s (POST /x)")
    event = failure_event(error, 1, service())
    assert event is not None
    assert "harvester-load-balancer-webhook" in event.message
    assert "not answered yet" in harvester_unavailable(None).message


RANGE_SET = "10.0.0.1-10.0.0.2"
RESERVE = "If this stays, the VM network of the pool was most likely deleted"


class Waiting(NamedTuple):
    """Fields of a load balancer without an address: the reason to wait, and parts of the Event after a time."""

    reason: str
    texts: Sequence[str]
    message: str | None = None
    pool: str = ""
    seconds: float = 0.0


WAITS = {
    "no pool matches": Waiting(
        "no_matching_pool",
        ["infra/vlan9", "'vms'", "'demo'. In Harvester, create", "guest cluster demo, or a global pool"],
        message="no matched IPPool with requirement &{Network:infra/vlan9 Project:p-1 Namespace:vms Cluster:demo}",
    ),
    "no pool matches, no cluster name": Waiting(
        "no_matching_pool",
        ["'default'", "set --cluster-name (chart: global.cattle.clusterName). Or in Harvester", "(none)"],
        message="No matched IPPool with requirement &{Network: Project: Namespace:default Cluster:}",
    ),
    "no pool matches, Harvester 1.2": Waiting(
        "no_matching_pool",
        ["cluster 'kubernetes'. This cluster has no name of its own"],
        message="error: no matching IP pool with requirement &{Network: Project: Namespace:a Cluster:kubernetes}",
    ),
    "no pool matches the selector": Waiting(
        "no_matching_pool", ["Create a pool"], message="no matched IPPool with selector, error: x"
    ),
    "exhausted": Waiting(
        "pool_exhausted",
        ["'lan'", "Add a range"],
        message=f"fail to get ip from pool lan, error: no IP addresses available in range set: {RANGE_SET}",
    ),
    "exhausted, before Harvester 1.7": Waiting(
        "pool_exhausted",
        ["IP pool 'lab' has no free address. Add a range"],
        message="no IP addresses available in range set: *.80-*.80",
        pool="lab",
    ),
    "no such pool": Waiting(
        "no_matching_pool", ["no ready IP pool 'lab'. Create it"], message="fail to get allocator lab"
    ),
    "no such pool, Harvester 1.2": Waiting("no_matching_pool", ["'lab'"], message="x: could not get the allocator lab"),
    "former address outside of the pool": Waiting(
        "other",
        ["The IP pool no longer has the address", "Add it to a range", "create it again"],
        message=f"fail to get ip from pool lan, error: 10.0.0.9 not in range set {RANGE_SET}",
    ),
    "unknown": Waiting(
        "other", ["gateway"], message="fail to get ip from pool lan, error: requested ip is subnet's gateway"
    ),
    "not processed": Waiting("not_processed", ["harvester-load-balancer"], seconds=30),
    "pool written by another worker": Waiting(
        "allocating",
        [f"cannot write IP pool 'lan'. {RESERVE}"],
        message="fail to get ip from pool lan, error: fail to reserve 10.0.0.1 into lan",
        seconds=300,
    ),
    "pool not writable, Harvester 1.4 to 1.6": Waiting(
        "allocating", ["cannot write IP pool 'v9'"], message="fail to reserve 10.0.0.1 into v9", seconds=300
    ),
    "pool not writable, up to Harvester 1.3": Waiting(
        "allocating",
        ["cannot write IP pool 'v9'"],
        message="allocate ip for lb vms/web failed, error: record 10.0.0.1 into v9 failed",
        seconds=300,
    ),
    "duplicate allocation": Waiting(
        "allocating",
        ["duplicate allocation"],
        message="x: 10.0.0.1 has been allocated to vms/web, duplicate allocation is not allowed",
        seconds=300,
    ),
    "kube-vip of Harvester": Waiting(
        "announcing", ["kube-vip runs"], message="service is waiting for external IP", seconds=300
    ),
    "ready without an address": Waiting("allocating", ["still allocating"], message="", seconds=300),
}


@pytest.mark.parametrize("row", WAITS.values(), ids=WAITS.keys())
def test_reason_to_wait_for_an_address(row: Waiting) -> None:
    asked = service(ours=True, annotations=SUPPRESSED)
    found = marked(message=row.message, spec={"ipPool": row.pool} if row.pool else {})
    late, early = (plan(asked, found, waited=waited) for waited in (row.seconds, 0.0))
    assert getattr(late.outcome, "reason", None) == row.reason
    (message,) = messages(late)
    assert all(text in message for text in row.texts)
    if row.message:
        assert message.endswith(f"Harvester: {row.message}")
    assert bool(messages(early)) is (row.seconds == 0), "what Harvester retries is reported only if it persists"


BACKENDS: dict[str, tuple[str, str]] = {
    "no VM": ("no running backend servers", "label harvesterhci.io/vmName"),
    "no addresses": ("running backend servers have no IP", "qemu-guest-agent"),
    "health checks fail": ("running backend servers are not probed as healthy total:3, healthy:0", "health check port"),
    "not about backends": ("service is waiting for external IP", ""),
}


@pytest.mark.parametrize(("message", "text"), BACKENDS.values(), ids=BACKENDS.keys())
def test_backends_without_traffic_are_reported(message: str, text: str) -> None:
    asked = service(ours=True, annotations={WORKLOAD_TYPE: "vm", **SUPPRESSED}, address=ADDRESS)
    found = messages(plan(asked, allocated(spec=VM_SPEC, message=message), waited=60.0), Reason.BACKENDS_UNHEALTHY)
    assert [text in one and message in one for one in found] == [True] * bool(text)
