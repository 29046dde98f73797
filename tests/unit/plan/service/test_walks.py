"""The walks of one Service on the page for contributors: real plans, write after write.

``HARVESTER_CCM_RENEW_SNAPSHOTS=1`` writes the tables into the page, else they are compared. Before each write, a
controller that has just started plans the same write.
"""

import os
from collections.abc import Callable, Mapping
from typing import Any, Final

import msgspec
import pytest
from msgspec.structs import replace

from devenv.contributor_tables import PAGE, table, with_section
from harvester_ccm import names
from harvester_ccm.model.core import SERVICES, Service
from harvester_ccm.model.harvester import WHOLE_LOAD_BALANCERS, LoadBalancer
from harvester_ccm.plan.service.desired import (
    ChangeLoadBalancer,
    CreateLoadBalancer,
    DeleteLoadBalancer,
    PatchService,
    ServicePlan,
    TriggerKubeVipResync,
    Write,
)
from harvester_ccm.plan.service.kube_vip import RESYNC_AFTER_SECONDS
from harvester_ccm.plan.service.lease_wait import FIRST_REQUEST_SECONDS
from harvester_ccm.plan.service.load_balancer import changed_document
from harvester_ccm.plan.service.patch import sent_patch
from harvester_ccm.plan.service.phase import Phase
from harvester_ccm.plan.service.plan import PLANS, plan_service
from harvester_ccm.plan.service.snapshot import ServiceSnapshot, ServiceState, observe
from harvester_ccm.plan.service.verdict import NotReady, Ready
from tests.support.builders import ADDRESS, CLUSTER, DELETED_AT, UID, listed_store
from tests.support.merge_patch import merged, merged_strategically

Document = dict[str, Any]
WORDS: Final = {
    names.KUBE_VIP_ADDRESSES: "`loadbalancerIPs`",
    names.KUBE_VIP_IGNORE: "`ignore`",
    names.KUBE_VIP_DDNS: "`ddns`",
    names.IP_POOL: "`ip-pool`",
    names.ANNOUNCED_AS: "`announced-as`",
}
"""Short names of annotations on the page."""


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
            self.state.note_lease_wait(snapshot, plan.waiting_reason, self.now)
            self.rows.append(_row(event, plan, snapshot))
            event = ""
            if plan.write is not None:
                self._carry_out(plan.write)
            elif _waits_for_touch(plan):
                self.now += plan.look_again_after or 0.0
            else:
                return

    def _check_restart(self, plan: ServicePlan) -> None:
        """Check that a controller which has just started plans the same write.

        While the condition says that kube-vip has to announce an address again, it touches the endpoints at once, also
        if that was done just before.
        """
        state = ServiceState()
        state.resume(self._snapshot(state), self.now)
        restarted = plan_service(self._snapshot(state))
        assert restarted.phase == plan.phase
        if state.resync_at is not None and restarted.write != plan.write:
            assert restarted.write == TriggerKubeVipResync()
        else:
            assert restarted.write == plan.write

    def _snapshot(self, state: ServiceState) -> ServiceSnapshot:
        service = SERVICES.decode(msgspec.json.encode(self.service))
        load_balancers = [] if self.load_balancer is None else [_decoded(self.load_balancer)]
        store = listed_store([service], load_balancers, ("vm-1",))
        found = observe(store, service, CLUSTER)
        return replace(found, remembered=state, now=self.now, wall_time="2026-11-21T08:00:00Z")

    def _carry_out(self, write: Write) -> None:
        match write:
            case PatchService(patch=patch, triggers_resync=touches, requests_lease=requests):
                self._patch(patch)
                if requests:
                    self.state.note_lease_request(self.now)
                if touches:
                    self.state.resync_at = self.now + RESYNC_AFTER_SECONDS
            case CreateLoadBalancer(body=body):
                self.load_balancer = merged(body, {"metadata": {"uid": "lb-uid", "resourceVersion": "1"}})
            case ChangeLoadBalancer() if self.load_balancer is not None:
                self.load_balancer = changed_document(_decoded(self.load_balancer), write)
            case DeleteLoadBalancer():
                self.change_load_balancer({"metadata": {"deletionTimestamp": DELETED_AT}})
            case TriggerKubeVipResync():
                self.state.note_touch()
                self.state.resync_at = None

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
    return (event, f"`{phase}`", f"`{module}.py`", f"`{snapshot.kube_vip.mode.name}`", _words(plan, snapshot.service))


def _words(plan: ServicePlan, service: Service) -> str:
    """Return the write of a plan in the words of the page."""
    match plan.write:
        case PatchService(patch=patch, triggers_resync=touches):
            return f"Patch the Service: {', '.join(_changes(patch))}{'; touch due in 1 s' if touches else ''}"
        case CreateLoadBalancer():
            return "Create the load balancer"
        case ChangeLoadBalancer(annotations=annotations, status=status):
            fields = [f"`status.{field}`" for field in status] + [f"`{key.rpartition('/')[2]}`" for key in annotations]
            return f"Change the load balancer: {', '.join(fields)}"
        case DeleteLoadBalancer():
            return "Delete the load balancer"
        case TriggerKubeVipResync():
            return "Touch an EndpointSlice"
    return "None: wait a second" if _waits_for_touch(plan) else f"None: {_verdict_words(plan)}"


def _verdict_words(plan: ServicePlan) -> str:
    match plan.verdict:
        case Ready():
            return "ready"
        case NotReady(reason=reason):
            return f"wait, `{reason}`"
    return "done"


def _waits_for_touch(plan: ServicePlan) -> bool:
    return plan.write is None and plan.waiting_reason == names.Reason.KUBE_VIP_RESYNC_PENDING


def _changes(patch: Mapping[str, Any]) -> list[str]:
    metadata, status = patch.get("metadata", {}), patch.get("status", {})
    changes = []
    if "finalizers" in metadata:
        changes.append("finalizer" if names.SERVICE_FINALIZER in metadata["finalizers"] else "no finalizer")
    for key, value in metadata.get("annotations", {}).items():
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
    walk.now += FIRST_REQUEST_SECONDS
    walk.reconcile("kube-vip notes no lease for 10 s")
    note = {names.KUBE_VIP_LEASE: LEASE, names.KUBE_VIP_HARDWARE: "02:00:00:00:00:01"}
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


@pytest.mark.parametrize("walk", [life, switch, to_dhcp, to_local], ids=lambda walk: str(walk.__name__))
def test_walk_on_the_page_is_that_of_the_plans(walk: Callable[[], Walk]) -> None:
    head = ("What happens", "Phase", "Plan in", "kube-vip", "Write")
    page = PAGE.read_text(encoding="utf-8")
    current = with_section(page, walk.__name__, table(head, walk().rows))
    if os.environ.get("HARVESTER_CCM_RENEW_SNAPSHOTS"):
        PAGE.write_text(current, encoding="utf-8")
        return
    assert page == current, "run make generate"
