"""Harvester's words, turned into what they mean and what to do; its own words always stay in the text."""

from __future__ import annotations

from typing import Any

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
    error_from_answer,
)
from harvester_ccm.model.outcome import EventMessage
from harvester_ccm.names import Reason
from harvester_ccm.plan.service.messages import (
    REPORTED_FAILURES,
    backend_note,
    failure_event,
    harvester_unavailable,
    pending_cause,
)
from tests.worlds.builders import ADDRESS, marked, service

WEBHOOK = 'admission webhook "validator.harvester-system.harvester-load-balancer-webhook" denied the request: '
CREATE = "Internal error occurred: create loadbalancer vms/web failed: "
UPDATE = "Internal error occurred: update loadbalancer vms/web failed: "
GUEST = "Internal error occurred: create loadbalancer vms/web failed with guest cluster check: "


def refused(text: str, status: int = 500, reason: str = "InternalError") -> CCMError:
    """Return the error that the answer of an API server becomes."""
    return error_from_answer(Answer(status, reason, text))


def answer(status: int, text: str = "no") -> Answer:
    return Answer(status, "", text)


DENIALS: dict[str, tuple[str, str]] = {
    "no listener": (CREATE + "the loadbalancer needs to have at least one listener", "update Harvester to 1.5"),
    "names": (CREATE + "listener has duplicate name http", "same name"),
    "ports": (CREATE + "listener b has duplicate port TCP:80 with listener a", "are the same; change one"),
    "node ports": (CREATE + "listener b has duplicate backend port TCP:30080 with listener a", "same node port"),
    "ipam": (UPDATE + "can't change the IPAM from pool to dhcp", "fixed once a load balancer exists"),
    "kind": (UPDATE + "can't change the WorkloadType from vm to cluster", "fixed once a load balancer exists"),
    "cluster is being removed": (
        GUEST + "the vm vms/a shows guest cluster demo is being removed",
        "Rancher is removing",
    ),
    "no running VM": (GUEST + "it has no running vm", "label guestcluster.harvesterhci.io/name"),
    "no VM, Harvester 1.2": (CREATE + "no virtual machine instance matched", "label guestcluster.harvesterhci.io/name"),
    "unknown": (CREATE + "the moon is full", ""),
}


def told(error: CCMError) -> EventMessage:
    """Return what is told once the request has failed often enough."""
    event = failure_event(error, REPORTED_FAILURES, service())
    assert event is not None
    return event


@pytest.mark.parametrize(("text", "remedy"), DENIALS.values(), ids=DENIALS.keys())
def test_denials_of_the_webhook_come_with_a_remedy(text: str, remedy: str) -> None:
    error = refused(WEBHOOK + text)
    note = told(error)
    assert (note.type, note.reason) == ("Warning", Reason.SYNC_FAILED)
    assert note.message.startswith("Harvester refused the load balancer. ")
    assert remedy in note.message
    assert note.message.endswith(f"Harvester says: {WEBHOOK}{text}")
    assert "  " not in note.message
    assert failure_event(error, 1, service()) == told(error)


SCHEMA = {
    "label": (
        'LoadBalancer "x" is invalid: metadata.labels: Invalid value: "Atlas 1": a valid label must be',
        "--cluster-name",
    ),
    "name": ('LoadBalancer "X" is invalid: metadata.name: Invalid value: "X"', "--cluster-name"),
}


@pytest.mark.parametrize(("text", "remedy"), SCHEMA.values(), ids=SCHEMA.keys())
def test_refusals_of_the_schema_come_with_a_remedy(text: str, remedy: str) -> None:
    error = refused(text, 422, "Invalid")
    assert remedy in told(error).message
    assert failure_event(error, 1, service()) == told(error)


RULES = {
    "quota": (
        (
            'loadbalancers.loadbalancer.harvesterhci.io "x" is forbidden: exceeded quota: team, requested: '
            "count/loadbalancers.loadbalancer.harvesterhci.io=1, used: 5, limited: 5"
        ),
        "raise the ResourceQuota that it names, in the namespace of the VMs, or delete load balancers",
    ),
    "namespace that goes": (
        (
            'loadbalancers.loadbalancer.harvesterhci.io "x" is forbidden: unable to create new content in namespace '
            "vms because it is being terminated"
        ),
        "the namespace of the VMs is being deleted",
    ),
}


@pytest.mark.parametrize(("text", "remedy"), RULES.values(), ids=RULES.keys())
def test_a_rule_of_the_namespace_is_no_missing_right(text: str, remedy: str) -> None:
    note = told(refused(text, 403, "Forbidden"))
    assert note.reason == Reason.SYNC_FAILED
    assert note.message.startswith("Harvester refused the load balancer. ")
    assert remedy in note.message
    assert "ClusterRole" not in note.message
    assert note.message.endswith(f"Harvester says: {text}")


CALLING = 'Internal error occurred: failed calling webhook "validator.harvester-system": connection refused'
FAILURES: dict[str, tuple[CCMError, bool, str]] = {
    "the webhook is away": (
        refused(CALLING),
        False,
        "pods of harvester-load-balancer-webhook in namespace harvester-system",
    ),
    "a fault of the server": (ServerError(answer(503)), False, "cannot serve requests at the moment"),
    "unreachable": (Unreachable("no route"), False, "server in the cloud-config is that address: no route"),
    "host without an address": (HostUnknown("lost"), False, "DNS servers of the nodes, or put Harvester's VIP"),
    "nothing listens": (ConnectionRefused("refused"), False, "address and port of the server in the cloud-config"),
    "another certificate": (NotTrusted("issuer"), False, "or the cloud-config is old: make it again with generate_"),
    "expired certificate": (
        CertificateNotValid("expired"),
        False,
        "Compare the clocks of this node and of Harvester's",
    ),
    "credential": (CredentialError("token file gone"), False, "cannot be reached: token file gone"),
    "credential refused": (Unauthorized(answer(401)), True, "generate_addon.sh <account>"),
    "right missing": (Forbidden(answer(403, "may not create")), True, "may not create. Bind the ClusterRole"),
    "namespace missing": (NotFound(answer(404, 'namespaces "vms" not found')), False, "namespace of the cloud-config"),
    "type missing": (
        NotServed(answer(404, "the server could not find it")),
        False,
        "load balancer controller is installed",
    ),
}


@pytest.mark.parametrize(("error", "permanent", "text"), FAILURES.values(), ids=FAILURES.keys())
def test_what_is_nobodys_mistake_is_harvester_unavailable(error: CCMError, permanent: bool, text: str) -> None:
    note = told(error)
    assert note == harvester_unavailable(error)
    assert note.reason == Reason.HARVESTER_UNAVAILABLE
    assert text in note.message
    assert (failure_event(error, REPORTED_FAILURES - 1, service()) is not None) is permanent


def test_a_bad_request_is_told_as_it_is() -> None:
    assert "what?" in told(BadRequest(answer(400, "what?"))).message


def test_no_answer_yet() -> None:
    assert "not answered yet" in harvester_unavailable(None).message


REQUIREMENT = "no matched IPPool with requirement &{Network:infra/vlan9 Project:c-1/p-1 Namespace:vms Cluster:demo}"
CAUSES: dict[str, tuple[str, str, list[str]]] = {
    "no pool fits": (
        REQUIREMENT,
        "no_matching_pool",
        ["infra/vlan9", "'vms'", "'demo'. In Harvester, create", "guest cluster demo, or a global pool"],
    ),
    "no pool fits, older words": (
        "No matched IPPool with requirement &{Network: Project: Namespace:default Cluster:}",
        "no_matching_pool",
        ["'default'", "set --cluster-name (chart: global.cattle.clusterName). Or in Harvester", "(none)"],
    ),
    "no pool fits, Harvester 1.2": (
        (
            "allocate ip for lb a/b failed, error: fail to select the pool for lb a/b, error: no matching IP pool "
            "with requirement &{Network: Project: Namespace:a Cluster:kubernetes}"
        ),
        "no_matching_pool",
        ["cluster 'kubernetes'. This cluster has no name of its own"],
    ),
    "selector fault": ("no matched IPPool with selector, error: x", "no_matching_pool", ["Create a pool"]),
    "used up": (
        "fail to get ip from pool lan, error: no IP addresses available in range set: 10.0.0.1-10.0.0.2",
        "pool_exhausted",
        ["'lan'", "Add a range"],
    ),
    "used up, before Harvester 1.7": (
        "no IP addresses available in range set: *.80-*.80",
        "pool_exhausted",
        ["IP pool 'lab' has no free address. Add a range"],
    ),
    "no such pool": ("fail to get allocator lab", "no_matching_pool", ["'lab'", "Create it"]),
    "no such pool, Harvester 1.2": ("x: could not get the allocator lab", "no_matching_pool", ["'lab'"]),
    "an address of before that its pool has no more": (
        "fail to get ip from pool lan, error: 10.0.0.9 not in range set 10.0.0.1-10.0.0.2",
        "other",
        ["The IP pool no longer has the address", "Add it to a range", "create it again"],
    ),
    "the same, before Harvester 1.7": (
        "10.0.0.9 not in range set 10.0.0.1-10.0.0.2",
        "other",
        ["The IP pool no longer has the address"],
    ),
    "other": ("fail to get ip from pool lan, error: requested ip 10.0.0.1 is subnet's gateway", "other", ["gateway"]),
}


@pytest.mark.parametrize(("message", "code", "texts"), CAUSES.values(), ids=CAUSES.keys())
def test_why_an_address_is_pending(message: str, code: str, texts: list[str]) -> None:
    cause = pending_cause(marked(message=message, spec={"ipPool": "lab"}))
    assert cause.reason == code
    assert cause.patience == 0, "told at once"
    assert all(text in cause.note.message for text in texts)
    assert cause.note.message.endswith(f"Harvester says: {message}")


def test_a_deleted_pool_that_harvester_chose_is_named() -> None:
    cause = pending_cause(marked(message="fail to get allocator lan"))
    assert cause.reason == "no_matching_pool"
    assert cause.patience == 0, "told at once"
    assert cause.note.message == (
        "Harvester has no ready IP pool 'lan'. Create it, or name another one. "
        "Harvester says: fail to get allocator lan"
    )


PASSING: dict[str, tuple[dict[str, Any], str, str]] = {
    "not looked at": ({}, "not_processed", "harvester-load-balancer"),
    "two at once": (
        {"message": "fail to get ip from pool lan, error: fail to reserve 10.0.0.1 into lan"},
        "allocating",
        "cannot write IP pool 'lan'",
    ),
    "a pool that cannot be written": (
        {"message": "fail to get ip from pool v9, error: fail to reserve 10.0.0.1 into v9"},
        "allocating",
        "cannot write IP pool 'v9'. If this stays, the VM network of the pool was most likely deleted",
    ),
    "a pool that cannot be written, Harvester 1.4 to 1.6": (
        {"message": "fail to reserve 10.0.0.1 into v9"},
        "allocating",
        "cannot write IP pool 'v9'. If this stays",
    ),
    "a pool that cannot be written, up to Harvester 1.3": (
        {"message": "allocate ip for lb vms/web failed, error: record 10.0.0.1 into v9 failed"},
        "allocating",
        "cannot write IP pool 'v9'. If this stays",
    ),
    "a record of before": (
        {"message": "x: 10.0.0.1 has been allocated to vms/web, duplicate allocation is not allowed"},
        "allocating",
        "duplicate allocation",
    ),
    "ready without an address": ({"message": ""}, "allocating", "still allocating"),
    "Harvester's kube-vip": ({"message": "service is waiting for external IP"}, "announcing", "kube-vip runs"),
    "Service just made": ({"message": "service is not existing, ensure it first"}, "announcing", "kube-vip runs"),
}


@pytest.mark.parametrize(("made_of", "code", "late"), PASSING.values(), ids=PASSING.keys())
def test_what_passes_by_itself_is_told_only_late(made_of: dict[str, Any], code: str, late: str) -> None:
    cause = pending_cause(marked(**made_of))
    assert cause.reason == code
    assert cause.patience >= 30
    assert late in cause.note.message


BACKENDS: dict[str, tuple[str, str]] = {
    "none": ("no running backend servers", "label harvesterhci.io/vmName"),
    "no addresses": ("running backend servers have no IP", "qemu-guest-agent"),
    "all down": ("running backend servers are not probed as healthy total:3, healthy:0", "health check port"),
}


@pytest.mark.parametrize(("message", "text"), BACKENDS.values(), ids=BACKENDS.keys())
def test_no_backend_takes_traffic(message: str, text: str) -> None:
    note = backend_note(marked(message=message, address=ADDRESS))
    assert note is not None
    assert text in note.message
    assert message in note.message


def test_other_conditions_say_nothing_about_backends() -> None:
    assert backend_note(marked(message="service is waiting for external IP")) is None
    assert backend_note(marked(ip=ADDRESS)) is None
    assert backend_note(marked()) is None


def test_a_webhook_that_hangs_is_named_while_harvester_can_be_read() -> None:
    hangs = NoResponse("https://harvester: no answer within 35 s (POST /x)")
    note = failure_event(hangs, 1, service())
    assert note is not None
    assert note.message.startswith("Harvester can be read but does not respond to this write")
    assert "harvester-load-balancer-webhook" in note.message
    assert failure_event(hangs, 1, service(), readable=False) is None
    assert failure_event(hangs, REPORTED_FAILURES, service(), readable=False) == harvester_unavailable(hangs)
