"""What Harvester says about a load balancer without an address, the next step of a deletion, and what keeps it."""

from typing import Final, NamedTuple

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import astuple, replace

from harvester_ccm.model.harvester import LoadBalancer
from harvester_ccm.names import IP_POOL, LB_CONTROLLER_FINALIZER, LB_RECONCILE, Reason
from harvester_ccm.plan.service.allocation.deletion import deletion_remedy, deletion_write, next_deletion
from harvester_ccm.plan.service.allocation.pending import pending_warning
from harvester_ccm.plan.service.allocation.state import (
    Allocation,
    Entry,
    Stage,
    is_in_progress,
    read_allocation,
)
from harvester_ccm.plan.service.desired import ChangeLoadBalancer, DeleteLoadBalancer
from harvester_ccm.plan.service.verdict import NotReady
from tests.support.builders import ADDRESS, LB_NAME, SUPPRESSED, VM_SPEC, allocated, marked, service
from tests.unit.plan.service.outcomes import differing
from tests.unit.plan.service.snapshots import EXHAUSTED, WAITING, messages, plan, short_write

RANGE_SET: Final = "10.0.0.1-10.0.0.2"
ASKED: Final = {LB_RECONCILE: "true"}


DUPLICATE: Final = "x: 10.0.0.1 has been allocated to vms/web, duplicate allocation is not allowed"
ENTRY: Final = Entry("10.0.0.1", "vms/web")
RELEASE: Final = (
    'kubectl patch ippools.loadbalancer.harvesterhci.io "$(kubectl get ippools.loadbalancer.harvesterhci.io -o '
    """jsonpath='{.items[?(@.status.allocated.10\\.0\\.0\\.1=="vms/web")].metadata.name}')" --type=json """
    """-p '[{"op":"remove","path":"/status/allocated/10.0.0.1"}]'"""
)


class Said(NamedTuple):
    """The message of Harvester's Ready condition."""

    message: str | None
    """None: there is no such condition."""
    pool: str = ""
    """The pool that the load balancer names."""


MESSAGES: dict[str, Said] = {
    "no pool matches": Said(
        "no matched IPPool with requirement &{Network:infra/vlan9 Project:p-1 Namespace:vms Cluster:demo}"
    ),
    "no pool matches, no cluster name": Said(
        "No matched IPPool with requirement &{Network: Project: Namespace:default Cluster:}"
    ),
    "no pool matches, Harvester 1.2": Said(
        "error: no matching IP pool with requirement &{Network: Project: Namespace:a Cluster:kubernetes}"
    ),
    "no pool matches the selector": Said("no matched IPPool with selector, error: x"),
    "no pool matches, the message ends early": Said(
        "no matched IPPool with requirement &{Network:infra/vlan9 Project:p-1"
    ),
    "exhausted": Said(EXHAUSTED),
    "exhausted, before Harvester 1.7": Said("no IP addresses available in range set: *.80-*.80", pool="lab"),
    "exhausted, before Harvester 1.7, pool not named": Said("no IP addresses available in range set: *.80-*.80"),
    "no such pool": Said("fail to get allocator lab"),
    "a pool with a namespace": Said("fail to get allocator default/lan"),
    "no such pool, Harvester 1.2": Said("x: could not get the allocator lab"),
    "former address outside of the pool": Said(
        f"fail to get ip from pool lan, error: 10.0.0.9 not in range set {RANGE_SET}"
    ),
    "unknown": Said("fail to get ip from pool lan, error: requested ip is subnet's gateway"),
    "no name of a pool": Said("fail to get ip from pool of the moon, error: x"),
    "name of a pool without an error": Said("fail to get ip from pool lan"),
    "name of a pool in the middle of a message": Said("x: fail to get ip from pool lan, error: x"),
    "not processed": Said(None),
    "pool written by another worker": Said("fail to get ip from pool lan, error: fail to reserve 10.0.0.1 into lan"),
    "pool not writable, Harvester 1.4 to 1.6": Said("fail to reserve 10.0.0.1 into v9"),
    "pool not writable, up to Harvester 1.3": Said(
        "allocate ip for lb vms/web failed, error: record 10.0.0.1 into v9 failed"
    ),
    "duplicate allocation": Said(DUPLICATE),
    "duplicate allocation, the pool is named": Said(DUPLICATE, pool="lan"),
    "duplicate allocation, Harvester 1.7": Said(
        "fail to get ip from pool lan, error: 10.0.0.1 has been allocated to vms/web, duplicate allocation is not "
        "allowed"
    ),
    "duplicate allocation, of no address": Said("x has been allocated to vms/web, duplicate allocation is not allowed"),
    "two writes of the pool": Said(
        "fail to get ip from pool lan, error: Operation cannot be fulfilled: the object has been modified"
    ),
    "ready without an address": Said(""),
    "kube-vip of Harvester, up to Harvester 1.3": Said("wait service vms/web external ip failed, error: timeout"),
    "kube-vip of Harvester": Said("service is waiting for external IP"),
    "no Service in Harvester yet": Said("service is not existing"),
}


def said(row: Said) -> LoadBalancer:
    return marked(message=row.message, spec={"ipPool": row.pool} if row.pool else {})


def facts_and_warning(row: Said) -> str:
    """Return what a message means, and the Event about it."""
    allocation = read_allocation(said(row))
    event = pending_warning(allocation)
    facts = {
        "pool": allocation.pool,
        "missing pool": allocation.missing_pool,
        "requirement": astuple(allocation.requirement) if allocation.requirement else "",
        "entry": astuple(allocation.entry) if allocation.entry else "",
    }
    words = [str(allocation.stage), *(f"{name} {value}" for name, value in facts.items() if value)]
    return f"{'; '.join(words)}\n{event.type} {event.reason}: {event.message}"


def test_message_of_harvester_becomes_facts_and_a_warning() -> None:
    assert differing("allocation", {name: facts_and_warning(row) for name, row in MESSAGES.items()}) == []
    for row in MESSAGES.values():
        allocation = read_allocation(said(row))
        assert allocation.message == (row.message or "")
        assert pending_warning(allocation).answer == (f"Harvester: {row.message}" if row.message else "")


IN_PROGRESS: Final = {
    Stage.NOT_PROCESSED,
    Stage.POOL_NOT_WRITTEN,
    Stage.ALLOCATING,
    Stage.DUPLICATE,
}
PASSING: Final = {*IN_PROGRESS, Stage.NOT_ANNOUNCED}
REFUSED: Final = {Stage.NO_MATCHING_POOL, Stage.POOL_NOT_READY, Stage.POOL_EXHAUSTED}


@pytest.mark.parametrize("stage", Stage)
def test_stage(stage: Stage) -> None:
    assert any(read_allocation(said(row)).stage is stage for row in MESSAGES.values())
    allocation = Allocation(stage)
    assert allocation.passes_by_itself is (stage in PASSING)
    assert allocation.is_refused is (stage in REFUSED)
    assert allocation.is_in_progress is (stage in IN_PROGRESS)


@pytest.mark.parametrize("row", MESSAGES.values(), ids=MESSAGES.keys())
def test_stage_that_passes_by_itself_is_reported_only_if_it_persists(row: Said) -> None:
    assert bool(messages(plan(WAITING, said(row)))) is (read_allocation(said(row)).stage not in PASSING)
    assert messages(plan(WAITING, said(row), waited=30.0))


LONG: Final = 100_000


@pytest.mark.parametrize(
    "message",
    [
        "fail to get ip from pool " * (LONG // 25),
        "fail to reserve " * (LONG // 16),
        "record a into " * (LONG // 14),
        "requirement &{Network: Project: Namespace:" * (LONG // 42),
        "fail to get allocator ",
    ],
)
def test_hostile_message_is_read(message: str) -> None:
    allocation = read_allocation(marked(message=message))
    assert allocation.message
    assert message.startswith(allocation.message)


@given(st.text(alphabet="frp into record fail &{}:,.", max_size=60))
def test_any_message_is_read(message: str) -> None:
    allocation = read_allocation(marked(message=message))
    assert " " not in allocation.pool
    assert pending_warning(allocation).type == "Warning"


PROGRESS: dict[str, tuple[LoadBalancer, bool]] = {
    "not processed": (marked(), True),
    "a conflict": (marked(message="the object has been modified"), True),
    "refused": (marked(message=EXHAUSTED), False),
    "not announced by Harvester": (marked(message="service is waiting for external IP", spec=VM_SPEC), False),
    "allocated": (marked(ip=ADDRESS), False),
    "an address without allocation": (marked(address=ADDRESS), False),
    "deleted, its address is released": (marked(ip=ADDRESS, deleting=True), True),
    "deleted without an address": (marked(deleting=True), False),
}


@pytest.mark.parametrize(("load_balancer", "expected"), PROGRESS.values(), ids=PROGRESS.keys())
def test_harvester_is_working_on_the_address(load_balancer: LoadBalancer, *, expected: bool) -> None:
    assert is_in_progress(load_balancer) is expected


NAMED: Final[dict[str, object]] = {"allocatedAddress": {"ipPool": "lan"}, "conditions": None}
BLOCK: Final = ChangeLoadBalancer(LB_NAME, status=NAMED)
"""The pool is named in the status, so that Harvester allocates nothing more."""
ASK_AGAIN: Final = ChangeLoadBalancer(LB_NAME, annotations=ASKED, status={"conditions": None})
DELETE: Final = "delete"
STEPS: dict[str, tuple[LoadBalancer, object]] = {
    "Harvester's finalizer is absent": (marked(finalizer=False, ip=ADDRESS), None),
    "not processed": (marked(), None),
    "allocated": (marked(ip=ADDRESS), DELETE),
    "a conflict, Harvester names the pool": (
        marked(message="fail to get ip from pool lan, error: the object has been modified"),
        BLOCK,
    ),
    "a conflict": (marked(message="the object has been modified"), None),
    "no free address": (marked(message=EXHAUSTED), BLOCK),
    "the pool is blocked": (marked(closed="lan"), None),
    "the blocked pool was confirmed": (marked(closed="lan", message="x"), DELETE),
    "no pool fits": (marked(message="no matched IPPool"), ASK_AGAIN),
    "no pool fits, Harvester has searched again": (marked(message="no matched IPPool", annotations=ASKED), DELETE),
    "no pool fits, Harvester has not searched again": (marked(annotations=ASKED), None),
    "the pool does not exist: it must not be named": (marked(message="fail to get allocator lab"), ASK_AGAIN),
}


@pytest.mark.parametrize(("load_balancer", "expected"), STEPS.values(), ids=STEPS.keys())
def test_step_of_a_deletion(load_balancer: LoadBalancer, expected: object) -> None:
    if expected == DELETE:
        expected = DeleteLoadBalancer(load_balancer)
    assert deletion_write(load_balancer) == expected


FORGED: Final = (
    "fail to reserve 10.0.0.1 into nowhere",
    "record 10.0.0.1 into nowhere failed",
    "no IP addresses available in range set",
    "fail to get ip from pool nowhere, error: x",
    "fail to get allocator nowhere",
    "duplicate allocation",
    "no match",
    "service is not existing",
    "not in range set",
)
"""Sentences of Harvester in an annotation of a tenant."""
QUOTING: Final = {
    "network": (
        "no matched IPPool with requirement &{{Network:default/{} Project: Namespace:vms Cluster:demo}}",
        Stage.NO_MATCHING_POOL,
    ),
    "project, for a VM load balancer": (
        "no matched IPPool with requirement &{{Network: Project:{} Namespace:vms Cluster:demo}}",
        Stage.NO_MATCHING_POOL,
    ),
    "network, up to Harvester 1.3": (
        "error: no matching IP pool with requirement &{{Network:{} Project: Namespace:vms Cluster:demo}}",
        Stage.NO_MATCHING_POOL,
    ),
    "pool": ("fail to get allocator {}", Stage.POOL_NOT_READY),
    "pool, up to Harvester 1.3": (
        "allocate ip for lb vms/web failed, error: could not get the allocator {}",
        Stage.POOL_NOT_READY,
    ),
}
"""Messages of Harvester that quote an annotation, and what they mean."""


@pytest.mark.parametrize("forged", FORGED)
@pytest.mark.parametrize(("quoting", "stage"), QUOTING.values(), ids=QUOTING.keys())
def test_sentence_of_harvester_in_an_annotation_decides_nothing(quoting: str, stage: Stage, forged: str) -> None:
    message = quoting.format(f"x {forged}")
    # The annotation ip-pool is in the specification of the load balancer, too.
    load_balancer = marked(message=message, spec={"ipPool": f"x {forged}"})
    allocation = read_allocation(load_balancer)
    assert (allocation.stage, allocation.pool) == (stage, "")
    # A pool that does not exist must not be named: Harvester would never complete the deletion.
    assert deletion_write(load_balancer) == ASK_AGAIN
    assert allocation.message == message


WAITS: dict[str, tuple[float, bool, bool, float | None]] = {
    "at first": (0.0, False, False, 30.0),
    "before the Event": (29.0, False, False, 1.0),
    "after 30 s": (30.0, True, False, 270.0),
    "before it is forced": (299.0, True, False, 1.0),
    "after 300 s": (300.0, False, True, None),
}


@pytest.mark.parametrize(("waited", "is_reported", "deletes", "delay"), WAITS.values(), ids=WAITS.keys())
def test_deletion_is_reported_and_forced(
    waited: float, *, is_reported: bool, deletes: bool, delay: float | None
) -> None:
    deletion = next_deletion([marked()], waited)
    assert isinstance(deletion.verdict, NotReady)
    assert deletion.verdict.emits_event is is_reported
    assert deletion.verdict.changes_condition is is_reported
    assert isinstance(deletion.write, DeleteLoadBalancer) is deletes
    assert bool(deletion.events) is deletes
    assert deletion.look_again_after == delay


def test_pool_is_blocked_before_a_forced_deletion() -> None:
    named = marked(message=DUPLICATE, spec={"ipPool": "lan"})
    deletion = next_deletion([named], 301.0)
    assert isinstance(deletion.write, ChangeLoadBalancer)
    assert deletion.write.status == NAMED


def test_deletion_that_an_entry_prevents_has_the_command_that_releases_it() -> None:
    deletion = next_deletion([marked(message=DUPLICATE)], 30.0)
    assert isinstance(deletion.verdict, NotReady)
    assert deletion.verdict.message.command == RELEASE
    assert deletion.verdict.message.reason is Reason.DELETION_PENDING


@pytest.mark.parametrize(("waited", "write"), [(29.0, None), (30.0, {"change": LB_NAME, "status": NAMED})])
def test_load_balancer_with_an_entry_in_a_known_pool_is_created_again(waited: float, write: object) -> None:
    named = marked(message=DUPLICATE, spec={"ipPool": "lan"})
    concerned = service(ours=True, annotations={**SUPPRESSED, IP_POOL: "lan"})
    made = plan(concerned, named, waited=waited)
    assert short_write(made.following_write or made.write) == write


def test_load_balancer_that_can_be_deleted_does_not_wait_for_another_one() -> None:
    ready = marked(name="b", ip=ADDRESS)
    assert next_deletion([marked(), ready], 0.0).write == DeleteLoadBalancer(ready)


OURS: Final = LB_CONTROLLER_FINALIZER
FOREIGN: Final = "example.com/backup"


@pytest.mark.parametrize(
    ("finalizers", "text"),
    [
        pytest.param((OURS,), "Check that harvester-load-balancer and its webhook run", id="only Harvester's"),
        pytest.param((), "Check that harvester-load-balancer and its webhook run", id="none"),
        pytest.param((OURS, FOREIGN), f"It waits for finalizers in Harvester: {FOREIGN}. ", id="both"),
        pytest.param((FOREIGN,), f"It waits for finalizers in Harvester: {FOREIGN}. ", id="another program's"),
    ],
)
def test_remedy_is_about_the_finalizers_that_are_left(finalizers: tuple[str, ...], text: str) -> None:
    deleted = allocated(deleting=True)
    found = deletion_remedy(replace(deleted, metadata=replace(deleted.metadata, finalizers=finalizers)))
    assert found.startswith(text)
    command = f"kubectl edit loadbalancers.loadbalancer.harvesterhci.io -n vms {LB_NAME}, with the kubeconfig"
    assert (command in found) is (FOREIGN in finalizers), found
    assert ("IP pool 'vlan100' does not exist" in found) is (FOREIGN not in finalizers)
