"""Walks of one Service: real plans, write after write, as in ``walks.md``.

``HARVESTER_CCM_RENEW_SNAPSHOTS=1`` writes the tables, else they are compared. Before each write, a
controller that has just started plans the same write, or waits for the time that the other one has waited already.
"""

import os
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any, Final

import msgspec
import pytest
from msgspec.structs import replace

from harvester_ccm import names
from harvester_ccm.model.core import SERVICES
from harvester_ccm.model.harvester import WHOLE_LOAD_BALANCERS, LoadBalancer
from harvester_ccm.plan.service.announcing.record import Record
from harvester_ccm.plan.service.announcing.sequence import STEP_SECONDS
from harvester_ccm.plan.service.desired import (
    ChangeLoadBalancer,
    CreateLoadBalancer,
    DeleteLoadBalancer,
    PatchService,
    ServicePlan,
    TouchEndpoints,
    Write,
)
from harvester_ccm.plan.service.load_balancer.specification import changed_document
from harvester_ccm.plan.service.patch import sent_patch
from harvester_ccm.plan.service.phase import Phase
from harvester_ccm.plan.service.plan import PLANS, plan_service
from harvester_ccm.plan.service.snapshot import ServiceSnapshot, ServiceState, observe
from harvester_ccm.plan.service.verdict import NotReady, Ready
from tests.support.builders import ADDRESS, CLUSTER, DELETED_AT, UID, listed_store
from tests.support.merge_patch import merged, merged_strategically

Document = dict[str, Any]
WALKS: Final = Path(__file__).with_name("walks.md")
WORDS: Final = {
    names.KUBE_VIP_ADDRESSES: "`loadbalancerIPs`",
    names.KUBE_VIP_IGNORE: "`ignore`",
    names.KUBE_VIP_DDNS: "`ddns`",
    names.KUBE_VIP_HOST: "`vipHost`",
    names.IP_POOL: "`ip-pool`",
}
"""Short names of annotations in the tables."""


class Walk:
    """One Service and its load balancer, which a controller, Harvester, kube-vip and a user change in turn."""

    def __init__(self, annotations: Mapping[str, str]) -> None:
        self.service: Document | None = {
            "metadata": {
                "name": "web",
                "namespace": "shop",
                "uid": UID,
                "resourceVersion": "1",
                "annotations": dict(annotations),
            },
            "spec": {"type": "LoadBalancer", "ports": [{"port": 80, "protocol": "TCP", "nodePort": 30080}]},
        }
        self.load_balancer: Document | None = None
        self.state = ServiceState()
        self.now = 0.0
        self.rows: list[tuple[str, ...]] = []

    def change_service(self, patch: Mapping[str, Any]) -> None:
        """Change the Service as another client."""
        self.service = merged(self.service, patch)

    def change_load_balancer(self, patch: Mapping[str, Any]) -> None:
        """Change the load balancer as Harvester."""
        self.load_balancer = merged(self.load_balancer, patch)

    def reconcile(self, event: str) -> None:
        """Add a row for each write after an event, and one for the state in which the controller waits or is done."""
        while self.service is not None:
            snapshot = self._snapshot(self.state)
            plan = plan_service(snapshot)
            self._check_restart(plan)
            self.state.enter(plan.phase, self.now)
            is_waiting = _is_next_step_due(plan)
            if not is_waiting:
                self.rows.append(_row(event, plan, snapshot))
                event = ""
            if plan.write is not None:
                self._carry_out(plan.write)
            elif is_waiting:
                self.now += STEP_SECONDS
            else:
                return

    def _check_restart(self, plan: ServicePlan) -> None:
        """Check that a controller which has just started plans the same write, or waits for one that takes time."""
        restarted = plan_service(self._snapshot(ServiceState()))
        assert restarted.phase == plan.phase
        assert restarted.write == plan.write or _is_next_step_due(restarted) or self.state.touches

    def _snapshot(self, state: ServiceState) -> ServiceSnapshot:
        service = SERVICES.decode(msgspec.json.encode(self.service))
        load_balancers = [] if self.load_balancer is None else [_decoded(self.load_balancer)]
        store = listed_store([service], load_balancers, ("vm-1",))
        state.see_record(service, self.now)
        found = observe(store, service, CLUSTER)
        return replace(found, remembered=state, now=self.now, wall_time="2026-11-21T08:00:00Z")

    def _carry_out(self, write: Write) -> None:
        match write:
            case PatchService(patch=patch):
                self._patch(patch)
            case CreateLoadBalancer(body=body):
                self.load_balancer = merged(body, {"metadata": {"uid": "lb-uid", "resourceVersion": "1"}})
            case ChangeLoadBalancer() if self.load_balancer is not None:
                self.load_balancer = changed_document(_decoded(self.load_balancer), write)
            case DeleteLoadBalancer():
                self.change_load_balancer({"metadata": {"deletionTimestamp": DELETED_AT}})
            case TouchEndpoints():
                self.state.count_touch(self.now, is_permitted=True)

    def _patch(self, patch: Mapping[str, object]) -> None:
        assert self.service is not None
        service = SERVICES.decode(msgspec.json.encode(self.service))
        self.service = merged_strategically(self.service, sent_patch(service, patch))
        meta = self.service["metadata"]
        if "deletionTimestamp" in meta and not meta.get("finalizers"):
            self.service = None


def _decoded(document: Document) -> LoadBalancer:
    return WHOLE_LOAD_BALANCERS.decode(msgspec.json.encode(document))


def _row(event: str, plan: ServicePlan, snapshot: ServiceSnapshot) -> tuple[str, ...]:
    phase = Phase(plan.phase)
    module = PLANS[phase].__module__.rpartition(".")[2]
    return (event, f"`{phase}`", f"`{module}.py`", _step(snapshot.record), _words(plan))


def _step(record: Record | None) -> str:
    return "" if record is None else f"`{record.step}`"


def _words(plan: ServicePlan) -> str:
    """Return the write of a plan in the words of the page."""
    match plan.write:
        case PatchService(patch=patch):
            return f"Patch the Service: {', '.join(_changes(patch))}"
        case CreateLoadBalancer():
            return "Create the load balancer"
        case ChangeLoadBalancer(annotations=annotations, status=status):
            fields = [f"`status.{field}`" for field in status] + [f"`{key.rpartition('/')[2]}`" for key in annotations]
            return f"Change the load balancer: {', '.join(fields)}"
        case DeleteLoadBalancer():
            return "Delete the load balancer"
        case TouchEndpoints():
            return "Touch an EndpointSlice"
    return f"None: {_verdict_words(plan)}"


def _verdict_words(plan: ServicePlan) -> str:
    match plan.verdict:
        case Ready():
            return "ready"
        case NotReady(reason=reason):
            return f"wait, `{reason}`"
    return "done"


def _is_next_step_due(plan: ServicePlan) -> bool:
    """Return whether the controller only lets a second pass before the next step of the announcement."""
    delay = plan.look_again_after
    return plan.write is None and delay is not None and delay <= STEP_SECONDS


def _changes(patch: Mapping[str, Any]) -> list[str]:
    metadata, status = patch.get("metadata", {}), patch.get("status", {})
    changes = []
    if "finalizers" in metadata:
        changes.append("finalizer" if names.SERVICE_FINALIZER in metadata["finalizers"] else "no finalizer")
    for key, value in metadata.get("annotations", {}).items():
        if key == names.ANNOUNCED_AS:
            changes.append("no record" if value is None else f"record `{msgspec.json.decode(value)['step']}`")
            continue
        word = WORDS[key]
        if value is None:
            changes.append(f"no {word}")
        else:
            changes.append(f"{word} `{value}`" if value else f"empty {word}")
    if "loadBalancer" in status:
        changes.append("address in the status" if status["loadBalancer"]["ingress"] else "no address in the status")
    for condition in status.get("conditions", ()):
        words = "no condition" if "$patch" in condition else f"condition {condition['status']} {condition['reason']}"
        changes.append(words)
    return changes


ALLOCATED: Final = {
    "status": {
        "allocatedAddress": {"ip": ADDRESS, "ipPool": "lan"},
        "conditions": [{"type": "Ready", "status": "True"}],
    }
}
LEASE: Final = "10.0.0.9"
ANNOUNCED: Final = {"metadata": {"annotations": {names.KUBE_VIP_HOST: "node-1"}}}


def announced() -> Walk:
    """A Service from its creation to the announcement of its address."""
    walk = Walk({})
    walk.reconcile("A user creates the Service")
    walk.change_load_balancer(ALLOCATED)
    walk.reconcile("Harvester allocates the address")
    walk.change_service(ANNOUNCED)
    walk.reconcile("kube-vip announces it")
    return walk


def life() -> Walk:
    """The life of a Service with a cluster load balancer."""
    walk = announced()
    walk.change_service({"metadata": {"deletionTimestamp": DELETED_AT}})
    walk.reconcile("A user deletes the Service")
    assert walk.service is None
    return walk


def switch() -> Walk:
    """A Service whose user requests a VM load balancer, and a cluster load balancer again."""
    walk = announced()
    walk.rows.clear()
    for workload_type in ("vm", "cluster"):
        walk.change_service({"metadata": {"annotations": {names.WORKLOAD_TYPE: workload_type}}})
        walk.reconcile(f"A user sets `workload-type` to `{workload_type}`")
        walk.load_balancer = None
        walk.reconcile("Harvester removes its finalizer")
        # Harvester writes the address of a VM load balancer itself.
        address = ADDRESS if workload_type == "vm" else ""
        walk.change_load_balancer(merged(ALLOCATED, {"status": {"address": address}}))
        walk.reconcile("Harvester allocates the address")
    walk.change_service(ANNOUNCED)
    walk.reconcile("kube-vip announces it")
    return walk


def to_dhcp() -> Walk:
    """A Service whose load balancer is lost, and whose next address is from DHCP."""
    walk = announced()
    walk.rows.clear()
    walk.change_service({"metadata": {"annotations": {names.IPAM: "dhcp"}}})
    walk.reconcile("A user sets `ipam` to `dhcp`")
    walk.load_balancer = None
    walk.reconcile("An administrator deletes the load balancer")
    walk.change_load_balancer(merged(ALLOCATED, {"status": {"allocatedAddress": {"ip": names.DHCP_ADDRESS}}}))
    walk.reconcile("Harvester writes `0.0.0.0`")
    note = {names.KUBE_VIP_LEASE: LEASE, names.KUBE_VIP_HOST: "node-1"}
    walk.change_service({"metadata": {"annotations": note}})
    ports = [{"port": 80, "protocol": "TCP"}]
    walk.change_service({"status": {"loadBalancer": {"ingress": [{"ip": LEASE, "ipMode": "VIP", "ports": ports}]}}})
    walk.reconcile("kube-vip notes its lease and writes the status")
    return walk


def to_local() -> Walk:
    """A Service whose externalTrafficPolicy is changed while kube-vip announces it."""
    walk = announced()
    walk.rows.clear()
    walk.change_service({"spec": {"externalTrafficPolicy": "Local"}})
    walk.reconcile("A user sets `externalTrafficPolicy` to `Local`")
    return walk


def table(head: Iterable[str], rows: Iterable[Iterable[str]]) -> str:
    """Return a table in Markdown."""
    names_of_columns = list(head)
    lines = [names_of_columns, ["---"] * len(names_of_columns), *rows]
    return "".join(f"| {' | '.join(cells)} |\n" for cells in lines)


def with_section(page: str, name: str, content: str) -> str:
    """Return a page in which the generated section of this name has this content."""
    begin, end = f"<!-- generated: {name} -->\n", "<!-- end -->\n"
    before, mark, rest = page.partition(begin)
    _, closing, after = rest.partition(end)
    assert mark
    assert closing
    return f"{before}{begin}\n{content}\n{end}{after}"


@pytest.mark.parametrize("walk", [life, switch, to_dhcp, to_local], ids=lambda walk: str(walk.__name__))
def test_walk_is_that_of_the_plans(walk: Callable[[], Walk]) -> None:
    head = ("What happens", "Phase", "Plan in", "Record", "Write")
    page = WALKS.read_text(encoding="utf-8")
    current = with_section(page, walk.__name__, table(head, walk().rows))
    if os.environ.get("HARVESTER_CCM_RENEW_SNAPSHOTS"):
        WALKS.write_text(current, encoding="utf-8")
        return
    assert page == current, "run make generate"
