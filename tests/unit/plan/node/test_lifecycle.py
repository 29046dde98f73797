"""Shutdown taint and deletion of Nodes that are not ready."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from harvester_ccm.commands.inventory import Inventory, ListedNodes
from harvester_ccm.errors import CCMError, Unreachable
from harvester_ccm.model.core import Node
from harvester_ccm.names import GO_MACHINE_RECORD, MACHINE_RECORD
from harvester_ccm.plan.node.existence import (
    ClusterCheck,
    Existence,
    LiveGet,
    Power,
    VMExistence,
    check_cluster,
    power,
    vm_existence,
)
from harvester_ccm.plan.node.lifecycle import (
    DELETION_PERCENT,
    AbsenceCount,
    LifecycleMemory,
    LifecyclePlan,
    LifecycleView,
    deletion_refused,
    plan_lifecycle,
)
from harvester_ccm.plan.node.patch import NodeRequest
from harvester_ccm.plan.node.vms import VM, VMIndex
from tests.worlds.node_objects import (
    CLUSTER,
    DEFAULTS,
    FOREIGN,
    SHUTDOWN,
    answered,
    index,
    instance,
    node,
    node_settings,
    vm,
    vm_not_found,
)

OURS = "harvester://uid-w1"
RECORD = "cloudprovider.harvesterhci.io/virtual-machine"
FIRMWARE = "5f3c0000-0000-4000-8000-00000000000a"
GONE = VMExistence(Existence.ABSENT, detail="404")
UNSURE = VMExistence(Existence.UNKNOWN, detail="timed out")
RUNNING = VMExistence(Existence.PRESENT, VM(vm(), instance()))
STOPPED = VMExistence(Existence.PRESENT, VM(vm(printable="Stopped", ready=False, created=False)))
TEN = ClusterCheck(managed=10, missing=frozenset({"w1"}), missing_ready=frozenset())
EXTRA = {"key": "other", "effect": "NoExecute"}
CONFIRMED = AbsenceCount("node-uid", OURS, 2, 0.0, 10.0)


def view(
    target: Node | None = None,
    sighting: VMExistence = GONE,
    *,
    now: float = 20.0,
    absences: AbsenceCount | None = CONFIRMED,
    survey: ClusterCheck = TEN,
    deletions: Mapping[str, float] | None = None,
    seen: str | None = None,
) -> LifecycleView:
    target = target or node(provider_id=OURS, ready="Unknown")
    memory = LifecycleMemory("w1", seen, absences, deletions or {})
    return LifecycleView(target, sighting, survey, DEFAULTS, now, memory)


@pytest.mark.parametrize(
    ("ready", "sighting", "outcome"),
    [
        pytest.param("False", GONE, "deleted", id="not ready, VM gone"),
        pytest.param("False", UNSURE, "kept", id="not ready, no certain answer"),
        pytest.param("False", RUNNING, "kept", id="not ready, VM runs"),
        pytest.param("Unknown", GONE, "deleted", id="silent, VM gone"),
        pytest.param("Unknown", RUNNING, "kept", id="silent, VM runs"),
        pytest.param("True", GONE, "kept", id="ready, VM gone"),
        pytest.param("False", STOPPED, "tainted", id="not ready, VM shut down"),
        pytest.param("Unknown", STOPPED, "tainted", id="silent, VM shut down"),
        pytest.param("True", STOPPED, "kept", id="ready, VM shut down"),
        pytest.param(None, GONE, "kept", id="never ready, VM gone (Go: deleted)"),
        pytest.param(None, STOPPED, "tainted", id="never ready, VM shut down"),
    ],
)
def test_outcome(ready: str | None, sighting: VMExistence, outcome: str) -> None:
    plan = plan_lifecycle(view(node(provider_id=OURS, ready=ready), sighting))
    seen = {"DELETE": "deleted", "PATCH": "tainted"}[plan.request.method] if plan.request else "kept"
    assert seen == outcome


@pytest.mark.parametrize(
    ("printable", "phase", "flags", "before", "after"),
    [
        pytest.param("Stopped", None, (False, False), False, True, id="stopped"),
        pytest.param("Stopped", None, (False, False), True, True, id="stopped, marked already"),
        pytest.param("Stopped", "Running", (False, False), False, False, id="stopped, but an instance runs"),
        pytest.param("CrashLoopBackOff", None, (False, False), False, True, id="guest keeps failing"),
        pytest.param("ErrorUnschedulable", "Pending", (False, True), False, True, id="no room on any host"),
        pytest.param("Stopping", "Running", (False, True), False, False, id="going down"),
        pytest.param("Stopping", "Succeeded", (False, True), False, True, id="is down"),
        pytest.param("Terminating", None, (False, False), False, True, id="deleted and down"),
        pytest.param("CrashLoopBackOff", "Running", (False, True), False, False, id="keeps failing, and runs just now"),
        pytest.param("Terminating", "Running", (True, True), True, True, id="runs, and is about to go down: stays"),
        pytest.param("Starting", None, (False, False), False, False, id="starts, without an instance yet"),
        pytest.param("Starting", "Scheduling", (False, True), False, False, id="starts: not set"),
        pytest.param("Starting", "Scheduling", (False, True), True, True, id="starts: stays"),
        pytest.param("Running", "Running", (True, True), True, False, id="runs again, Node not ready yet"),
        pytest.param("Running", "Running", (False, True), True, True, id="shown as running, not ready"),
        pytest.param("Paused", "Running", (False, True), False, False, id="paused: not set"),
        pytest.param("Paused", "Running", (False, True), True, False, id="paused: removed"),
        pytest.param("Migrating", "Running", (False, True), True, False, id="migrating: removed"),
        pytest.param("Unknown", "Running", (False, True), True, True, id="host lost: stays"),
        pytest.param("Unknown", "Running", (False, True), False, False, id="host lost: not set"),
        pytest.param("", None, (False, False), False, True, id="no status text, nothing there"),
        pytest.param("", None, (False, True), False, False, id="no status text, made, and not there"),
        pytest.param("", "Running", (False, False), False, False, id="no status text, an instance runs"),
        pytest.param("", "Running", (True, True), True, False, id="no status text, ready"),
    ],
)
def test_shutdown_taint_follows_the_power(
    printable: str, phase: str | None, flags: tuple[bool, bool], before: bool, after: bool
) -> None:
    ready, created = flags
    machine = VM(
        vm(printable=printable, ready=ready, created=created), instance(phase=phase) if phase is not None else None
    )
    target = node(provider_id=OURS, ready="False", taints=[EXTRA, *([SHUTDOWN] if before else [])], version="42")
    plan = plan_lifecycle(view(target, VMExistence(Existence.PRESENT, machine)))
    wanted = [EXTRA, SHUTDOWN] if after else [EXTRA]
    patch = {"metadata": {"uid": "node-uid", "resourceVersion": "42"}, "spec": {"taints": wanted}}
    assert plan == LifecyclePlan(NodeRequest("PATCH", "w1", patch) if before != after else None)


def test_nothing_is_concluded_from_a_vm_without_a_status() -> None:
    assert power(VM(msgspec.structs.replace(vm(), status=None))) is Power.UNKNOWN


@pytest.mark.parametrize(("sighting", "taints"), [(STOPPED, []), (RUNNING, [SHUTDOWN])], ids=["stopped", "runs"])
def test_power_of_a_vm_that_only_has_the_name_changes_nothing(
    sighting: VMExistence, taints: list[dict[str, str]]
) -> None:
    target = node(provider_id=OURS, ready="False", taints=taints)
    assert plan_lifecycle(view(target, sighting)).request is not None
    assert plan_lifecycle(view(target, replace(sighting, namesake=True))) == LifecyclePlan()


@pytest.mark.parametrize("taint", [SHUTDOWN, {**SHUTDOWN, "value": "x"}], ids=["as we set it", "with a value"])
@pytest.mark.parametrize("stranger", [False, True])
def test_ready_node_loses_the_taint_whatever_harvester_says_and_whosever_it_is(
    taint: dict[str, str], stranger: bool
) -> None:
    target = node(taints=[taint])
    plan = plan_lifecycle(view(target, replace(UNSURE, stranger=stranger)))
    assert plan.request is not None
    assert plan.request.body["spec"] == {"taints": None}


@pytest.mark.parametrize("ready", ["False", "Unknown", None])
def test_stranger_that_is_not_ready_keeps_the_taint(ready: str | None) -> None:
    target = node(taints=[SHUTDOWN], ready=ready)
    assert plan_lifecycle(view(target, VMExistence(Existence.UNKNOWN, stranger=True))) == LifecyclePlan()


@pytest.mark.parametrize(
    "taint", [{**SHUTDOWN, "effect": "NoExecute"}, {**SHUTDOWN, "key": "other"}], ids=["other effect", "other key"]
)
def test_taint_that_is_not_ours_stays(taint: dict[str, str]) -> None:
    target = node(taints=[taint])
    assert plan_lifecycle(view(target, RUNNING)).request is None


def test_deletion_is_bound_to_the_very_node() -> None:
    plan = plan_lifecycle(view(node(provider_id=OURS, ready="False", version="42")))
    assert plan.request == NodeRequest("DELETE", "w1", {"uid": "node-uid", "resourceVersion": "42"})
    done = plan.done
    assert done is not None
    assert (done.type, done.reason, done.message) == (
        "Normal",
        "DeletingNode",
        "Deleting node w1 because it does not exist in the cloud provider",
    )


def test_deletion_needs_several_confirmations_with_time_between() -> None:
    absences: AbsenceCount | None = None
    outcomes = []
    for now in (0.0, 1.0, 10.0, 12.0, 20.0):
        plan = plan_lifecycle(view(absences=absences, now=now))
        absences = plan.absences
        outcomes.append((absences.count if absences else 0, plan.recheck_after, plan.request is not None))
    assert outcomes == [(1, 10.0, False), (1, 9.0, False), (2, 10.0, False), (2, 8.0, False), (3, 10.0, True)]


@pytest.mark.parametrize(
    ("absences", "sighting", "count"),
    [
        pytest.param(CONFIRMED, UNSURE, 2, id="no answer does not count"),
        pytest.param(CONFIRMED, RUNNING, 0, id="VM seen again"),
        pytest.param(replace(CONFIRMED, node_uid="before"), GONE, 1, id="another Node of that name"),
        pytest.param(replace(CONFIRMED, provider_id="harvester://before"), GONE, 1, id="another VM"),
        pytest.param(replace(CONFIRMED, node_uid="before"), UNSURE, 0, id="another Node, no answer"),
    ],
)
def test_confirmations_are_of_one_node_in_a_row(absences: AbsenceCount, sighting: VMExistence, count: int) -> None:
    plan = plan_lifecycle(view(absences=absences, sighting=sighting))
    assert plan.request is None
    assert (plan.absences.count if plan.absences else 0) == count


def test_once_is_never_enough() -> None:
    eager = replace(view(absences=None), settings=node_settings(deletion_confirmations=1))
    assert plan_lifecycle(eager).request is None


def named(*names: str) -> frozenset[str]:
    return frozenset(names)


@pytest.mark.parametrize(
    ("survey", "deletions", "held"),
    [
        pytest.param(ClusterCheck(3, named("node-uid"), named()), {}, "", id="one of three"),
        pytest.param(ClusterCheck(2, named("node-uid"), named()), {}, "", id="one is always allowed"),
        pytest.param(ClusterCheck(10, named("node-uid", "w2", "w3"), named()), {}, "", id="three of ten"),
        pytest.param(ClusterCheck(10, named("node-uid", "w2", "w3", "w4"), named()), {}, "share", id="four of ten"),
        pytest.param(
            ClusterCheck(4, named("node-uid"), named()), {"w9": 0.0}, "share", id="another one deleted just now"
        ),
        pytest.param(
            ClusterCheck(4, named("node-uid"), named()), {"w9": -600.0}, "", id="another one deleted long ago"
        ),
        pytest.param(ClusterCheck(1, named("node-uid"), named()), {}, "none", id="no VM of the cluster found"),
        pytest.param(ClusterCheck(4, named("node-uid"), named(), 3), {}, "none", id="only copies of VMs found"),
        pytest.param(ClusterCheck(4, named("node-uid"), named(), 2), {}, "", id="a copy among others"),
        pytest.param(ClusterCheck(3, named("node-uid", "w2"), named("w2")), {}, "ready", id="a ready Node has no VM"),
    ],
)
def test_never_many_at_once(survey: ClusterCheck, deletions: Mapping[str, float], held: str) -> None:
    plan = plan_lifecycle(view(survey=survey, deletions=deletions))
    assert (plan.request is None) == bool(held)
    assert (plan.note.subject if plan.note else "") == held


FOUR = ClusterCheck(4, named("node-uid", "w2"), named(), confirmed=2)
STALE = ClusterCheck(4, named("node-uid", "w2"), named("w2"), confirmed=2)


@pytest.mark.parametrize(
    ("survey", "deletions", "seen", "now", "held"),
    [
        pytest.param(FOUR, {}, OURS, 20.0, "", id="two of four, the first"),
        pytest.param(FOUR, {"w9": 10.0}, OURS, 20.0, "turn", id="two of four, another one deleted just now"),
        pytest.param(FOUR, {"w2": 20.0}, OURS, 20.0, "turn", id="two of four, the other is being deleted"),
        pytest.param(FOUR, {"node-uid": 20.0}, OURS, 20.0, "", id="two of four, this one was not deleted after all"),
        pytest.param(FOUR, {"w9": 10.0}, OURS, 610.0, "", id="two of four, another one deleted some minutes ago"),
        pytest.param(FOUR, {}, None, 20.0, "share", id="its VM was never seen"),
        pytest.param(FOUR, {}, "harvester://other", 20.0, "share", id="another VM was seen for it"),
        pytest.param(replace(FOUR, confirmed=3), {}, OURS, 20.0, "", id="more are sure than are without"),
        pytest.param(replace(FOUR, confirmed=1), {}, OURS, 20.0, "share", id="fewer are sure than are without"),
        pytest.param(replace(FOUR, confirmed=0), {}, OURS, 20.0, "share", id="no Node is ready"),
        pytest.param(STALE, {}, OURS, 599.0, "ready", id="a ready Node without VM is waited for"),
        pytest.param(STALE, {}, OURS, 600.0, "", id="a ready Node without VM holds not for ever"),
        pytest.param(STALE, {"w9": 590.0}, OURS, 600.0, "turn", id="and the share is for all"),
        pytest.param(STALE, {}, None, 1e6, "ready", id="a ready Node without VM, and its own was never seen"),
        pytest.param(replace(STALE, confirmed=1), {}, OURS, 1e6, "ready", id="ready ones without VM, and few are sure"),
    ],
)
def test_deletions_go_on_by_and_by_where_our_view_is_proven(
    survey: ClusterCheck, deletions: Mapping[str, float], seen: str | None, now: float, held: str
) -> None:
    plan = plan_lifecycle(view(survey=survey, deletions=deletions, seen=seen, now=now))
    assert (plan.note.subject if plan.note else "") == held
    assert (plan.request is None) == bool(held)


@pytest.mark.parametrize(
    ("survey", "deletions", "now", "held"),
    [
        pytest.param(FOUR, {}, 599.0, "turn", id="what an earlier process deleted is not known"),
        pytest.param(FOUR, {}, 600.0, "", id="nothing an earlier process deleted counts any more"),
        pytest.param(FOUR, {"w9": 590.0}, 600.0, "turn", id="another one deleted just now"),
        pytest.param(replace(FOUR, confirmed=1), {}, 1e6, "share", id="fewer are sure than are without"),
        pytest.param(STALE, {}, 1e6, "ready", id="a ready Node without VM"),
    ],
)
def test_record_of_an_earlier_process_is_enough_for_the_share(
    survey: ClusterCheck, deletions: Mapping[str, float], now: float, held: str
) -> None:
    recorded = node(provider_id=OURS, ready="Unknown", annotations={MACHINE_RECORD: "prod/w1"})
    plan = plan_lifecycle(view(recorded, survey=survey, deletions=deletions, now=now))
    assert (plan.note.subject if plan.note else "") == held
    assert (plan.request is None) == bool(held)
    for record in (MACHINE_RECORD, GO_MACHINE_RECORD):
        nameless = node(provider_id=OURS, ready="Unknown", annotations={record: "w1"})
        assert plan_lifecycle(view(nameless, survey=survey, deletions=deletions, now=now)).request is None


@pytest.mark.parametrize(
    ("current", "advice"),
    [
        pytest.param(
            view(survey=FOUR, deletions={"w9": 10.0}, seen=OURS),
            "not deleted yet: 3 of 5 Nodes lost their VM, and 1 may be deleted within 10 minutes. Its turn "
            "comes; to have it gone now, run: kubectl delete node w1",
            id="turn",
        ),
        pytest.param(
            view(survey=STALE, seen=OURS),
            "not deleted yet: ready Nodes have no VM either (w2), so Harvester may not have shown all VMs. That is "
            "done when they are not ready any more, or 10 minutes after its VM went",
            id="soon",
        ),
        pytest.param(
            view(survey=replace(STALE, confirmed=1), seen=OURS),
            "not deleted yet: ready Nodes have no VM either (w2), so Harvester may not have shown all VMs. That is "
            "done when they are not ready any more",
            id="as long as they are ready",
        ),
        pytest.param(
            view(survey=STALE),
            "not deleted: ready Nodes have no VM either (w2), so Harvester may not have shown all VMs. Check the "
            "namespace in the cloud-config",
            id="no VM was ever seen",
        ),
    ],
)
def test_advice_fits_the_case(current: LifecycleView, advice: str) -> None:
    note = plan_lifecycle(current).note
    assert note is not None
    assert note.message.endswith(advice)


@given(
    managed=st.integers(1, 12),
    missing=st.integers(1, 12),
    ready=st.integers(0, 3),
    confirmed=st.integers(0, 12),
    ages=st.lists(st.floats(0, 900), max_size=6),
    seen=st.booleans(),
    now=st.floats(10, 2000),
)
def test_no_evidence_lets_more_go_than_the_share(
    managed: int,
    missing: int,
    ready: int,
    confirmed: int,
    ages: list[float],
    seen: bool,
    now: float,
) -> None:
    names = [f"w{number}" for number in range(1, min(missing, managed) + 1)]
    survey = ClusterCheck(managed, named(*names), named(*names[1 : ready + 1]), confirmed=confirmed)
    gone = {f"gone-{number}": now - age for number, age in enumerate(ages)}
    plan = plan_lifecycle(view(survey=survey, deletions=gone, seen=OURS if seen else None, now=now))
    recent = sum(1 for age in ages if age < 600)
    allowed = max(1, (managed + recent) * DELETION_PERCENT // 100)
    if plan.request is None:
        return
    assert recent + 1 <= allowed
    assert managed > len(names)
    surely = seen and confirmed >= len(names)
    assert surely or len(names) + recent <= allowed
    assert surely or not survey.missing_ready


def test_node_that_is_being_deleted_is_left_alone() -> None:
    target = node(provider_id=OURS, ready="False", deleting=True)
    assert plan_lifecycle(view(target)) == LifecyclePlan()


@given(st.sampled_from([GONE, UNSURE, RUNNING, STOPPED]), st.integers(0, 5), st.integers(0, 5))
def test_deletion_only_after_certain_absence_and_within_the_share(
    sighting: VMExistence, missing: int, count: int
) -> None:
    names = frozenset(f"w{number}" for number in range(1, missing + 1))
    survey, absences = ClusterCheck(6, names, named()), replace(CONFIRMED, count=count)
    plan = plan_lifecycle(view(sighting=sighting, survey=survey, absences=absences))
    assert (plan.done is not None) == (plan.request is not None and plan.request.method == "DELETE")
    if plan.done:
        assert sighting is GONE
        assert count >= 2
        assert missing <= 6 * DELETION_PERCENT // 100
        assert plan.note is None


@pytest.mark.parametrize("unprovable", [False, True])
def test_only_an_absence_that_cannot_be_proven_is_told(unprovable: bool) -> None:
    note = plan_lifecycle(view(sighting=replace(UNSURE, unprovable=unprovable))).note
    assert (note.subject if note else "") == ("doubt" if unprovable else "")


CERTAIN = vm_not_found()


class Unsynced(ListedNodes, frozen=True, dict=True):
    """VMs whose list is not complete yet."""

    def index(self) -> VMIndex:
        """Return the VMs that are known."""
        return replace(super().index(), synced=False)


def existence_of(
    target: Node,
    vms: Sequence[str],
    live_get: LiveGet | None = None,
    *,
    synced: bool = True,
    seen_name: str | None = "w1",
    unread: frozenset[str] = frozenset(),
) -> VMExistence:
    kind = ListedNodes if synced else Unsynced
    store = kind(Inventory(vms=tuple(map(vm, vms)), unread=unread), CLUSTER)
    return vm_existence(store, target, seen_name=seen_name, live_get=live_get)


@pytest.mark.parametrize(
    ("error", "existence"),
    [
        pytest.param(CERTAIN, Existence.ABSENT, id="404 for this VM"),
        pytest.param(vm_not_found("w10"), Existence.UNKNOWN, id="404 for another VM"),
        pytest.param(
            answered(404, "the server could not find the requested resource", "NotFound"),
            Existence.UNKNOWN,
            id="404: no such resource type",
        ),
        pytest.param(answered(404, "404 page not found"), Existence.UNKNOWN, id="404 of a proxy"),
        pytest.param(answered(401, "Unauthorized"), Existence.UNKNOWN, id="401"),
        pytest.param(answered(403, 'virtualmachines.kubevirt.io "w1" is forbidden'), Existence.UNKNOWN, id="403"),
        pytest.param(answered(500, "boom"), Existence.UNKNOWN, id="500"),
        pytest.param(answered(503, "unavailable"), Existence.UNKNOWN, id="503"),
        pytest.param(Unreachable("timed out"), Existence.UNKNOWN, id="time-out"),
        pytest.param(Unreachable("Name or service not known"), Existence.UNKNOWN, id="DNS"),
    ],
)
def test_only_a_certain_404_means_gone(error: CCMError, existence: Existence) -> None:
    target = node(provider_id=OURS, ready="Unknown")
    assert existence_of(target, ["w2"], LiveGet("w1", error=error)).existence is existence


@pytest.mark.parametrize(
    ("target", "vms", "synced", "probe", "existence"),
    [
        pytest.param(
            node(provider_id=OURS, ready="False"), ["w1"], True, None, Existence.PRESENT, id="in the list"
        ),
        pytest.param(
            node(provider_id=OURS, ready="False"), [], False, LiveGet("w1", error=CERTAIN), Existence.UNKNOWN,
            id="list not complete",
        ),
        pytest.param(node(provider_id=OURS, ready="False"), [], True, None, Existence.UNKNOWN, id="not asked"),
        pytest.param(
            node(ready="False"), [], True, LiveGet("w1", error=CERTAIN), Existence.UNKNOWN, id="VM was never known"
        ),
        pytest.param(
            node(provider_id=OURS, ready="False"), [], True, LiveGet("w1", vm=vm(uid="after")), Existence.PRESENT,
            id="list behind: made again meanwhile",
        ),
    ],
)  # fmt: skip
def test_existence(target: Node, vms: list[str], synced: bool, probe: LiveGet | None, existence: Existence) -> None:
    assert existence_of(target, vms, probe, synced=synced).existence is existence


def test_restored_vm_is_present() -> None:
    target = node(provider_id="harvester://gone", ready="False", system_uuid=FIRMWARE)
    store = ListedNodes(Inventory(vms=(vm(firmware=FIRMWARE),)), CLUSTER)
    assert vm_existence(store, target, seen_name="w1").existence is Existence.PRESENT


def test_foreign_vm_in_the_place_of_ours_is_no_certain_absence() -> None:
    target = node(provider_id="harvester://gone", ready="False")
    store = ListedNodes(Inventory(vms=(vm(labels=FOREIGN),)), CLUSTER)
    seen = vm_existence(store, target, seen_name="w1", live_get=LiveGet("w1", error=CERTAIN))
    assert seen.existence is Existence.UNKNOWN


def test_probe_is_asked_for_only_where_it_can_decide() -> None:
    lost = node(provider_id=OURS, ready="Unknown")
    assert existence_of(lost, ["w2"]).vm_to_get == "w1"
    assert existence_of(lost, ["w2"], synced=False).vm_to_get is None
    assert existence_of(lost, ["w2"], unread=named("ns/a")).vm_to_get is None
    assert existence_of(lost, ["w2"], seen_name=None).vm_to_get is None
    for target in (
        node(provider_id=OURS),
        node(ready="Unknown"),
        node("w2", provider_id="harvester://uid-w2", ready="False"),
    ):
        assert existence_of(target, ["w2"]).vm_to_get is None


@pytest.mark.parametrize(
    ("recorded", "remembered", "name"),
    [
        pytest.param("prod/vm-1", None, "vm-1", id="seen by an earlier process, with its namespace"),
        pytest.param("staging/vm-1", None, None, id="of another namespace"),
        pytest.param("staging/vm-1", "vm-1", None, id="of another namespace, whatever was seen"),
        pytest.param("prod/team/vm-1", None, None, id="two namespaces"),
        pytest.param(None, None, None, id="never seen: not the Node's own name"),
        pytest.param(None, "vm-1", "vm-1", id="seen by this process"),
        pytest.param("vm-1", None, "vm-1", id="seen by an earlier process"),
        pytest.param("vm-1", "vm-2", "vm-2", id="seen by both"),
        pytest.param("../../nodes", None, None, id="no name of an object"),
        pytest.param("", None, None, id="empty"),
    ],
)
def test_name_that_is_asked_for(recorded: str | None, remembered: str | None, name: str | None) -> None:
    annotations = {} if recorded is None else {RECORD: recorded}
    target = node("w1", provider_id="harvester://gone", ready="False", annotations=annotations)
    # Some Node has its VM here, so that one of another namespace is no sign of a wrong cloud-config.
    nodes = (target, node("w2", provider_id="harvester://uid-w2"))
    store = ListedNodes(Inventory(nodes=nodes, vms=(vm("w2"),)), CLUSTER)
    assert vm_existence(store, target, seen_name=remembered).vm_to_get == name


@pytest.mark.parametrize(
    ("name", "unread", "told"),
    [
        pytest.param("w1", frozenset(), "", id="proven"),
        pytest.param(
            None,
            frozenset(),
            "This Node has no VM in Harvester, but the Node is not deleted: its VM was never seen, so its name is not "
            "known and Harvester cannot be asked for it. If it is gone, run: kubectl delete node w1",
            id="VM never seen",
        ),
        pytest.param(
            "w1",
            frozenset({"ns/b", "ns/a"}),
            "This Node has no VM in Harvester, but the Node is not deleted: ns/a, ns/b in Harvester cannot be read and "
            "may be its VM",
            id="VMs that cannot be read",
        ),
    ],
)
def test_absence_that_cannot_be_proven_is_told(name: str | None, unread: frozenset[str], told: str) -> None:
    target = node(provider_id=OURS, ready="Unknown")
    sighting = existence_of(target, ["w2"], LiveGet("w1", error=CERTAIN), seen_name=name, unread=unread)
    plan = plan_lifecycle(view(target, sighting))
    assert (plan.request is None) == bool(told)
    assert (plan.note.message if plan.note else "") == told
    present = existence_of(target, ["w1"], seen_name=name, unread=unread)
    assert present.existence is Existence.PRESENT


def test_survey_counts_our_nodes_only() -> None:
    nodes = [
        node("a", provider_id="harvester://uid-a"),
        node("b", uid="b", provider_id="harvester://gone-b", ready="False"),
        node("c", uid="c", provider_id="harvester://gone-c"),
        node("d", provider_id="harvester://gone-d", deleting=True),
        node("e"),
        node("f", provider_id="k3s://f"),
        node("g", provider_id="harvester://gone-g", annotations={RECORD: "staging/g"}),
        node("h", provider_id="harvester://gone-h", annotations={RECORD: "staging/h"}, ready="False"),
    ]
    assert check_cluster(nodes, index([vm("a")])) == ClusterCheck(
        3, frozenset({"b", "c"}), frozenset({"c"}), confirmed=1
    )


def test_only_the_very_vm_of_a_ready_node_confirms_our_view() -> None:
    nodes = [
        node("a", provider_id="harvester://uid-a"),
        node("b", provider_id="harvester://uid-b", ready="False"),
        node("copied", provider_id="harvester://elsewhere", system_uuid=FIRMWARE),
    ]
    vms = [vm("a"), vm("b"), vm("copy", firmware=FIRMWARE)]
    assert check_cluster(nodes, index(vms)) == ClusterCheck(3, named(), named(), replaced=1, confirmed=1)


@pytest.mark.parametrize(
    ("error", "words", "pause"),
    [
        pytest.param(
            answered(403, 'nodes "w1" is forbidden'),
            'Failed deleting node w1, whose VM no longer exists: nodes "w1" is forbidden. Grant the verb delete',
            600.0,
            id="not granted",
        ),
        pytest.param(
            answered(403, "nodes \"w1\" is forbidden: ValidatingAdmissionPolicy 'p' denied request: no"),
            'Failed deleting node w1, whose VM no longer exists: nodes "w1" is forbidden: ValidatingAdmissionPolicy '
            "'p' denied request: no. Have the policy or webhook that refuses it allow",
            600.0,
            id="refused by a policy",
        ),
        pytest.param(answered(500, "boom"), "Failed deleting node w1: boom", None, id="fault of the server"),
        pytest.param(answered(404, 'nodes "w1" not found', "NotFound", about="w1"), None, None, id="is gone already"),
        pytest.param(answered(409, "uid mismatch"), None, None, id="was made again or changed"),
    ],
)
def test_refused_deletion(error: CCMError, words: str | None, pause: float | None) -> None:
    note, wait = deletion_refused(node(), error)
    assert wait == pause
    if words is None:
        assert note is None
    else:
        assert note is not None
        assert (note.type, note.reason) == ("Warning", "DeletingNodeFailed")
        assert note.message.startswith(words)
