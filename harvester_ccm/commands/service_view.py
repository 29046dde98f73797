"""The state of Services at one point in time, as the controller observes it after a start."""

from __future__ import annotations

from datetime import datetime
from functools import cached_property

from msgspec import Struct
from msgspec.structs import replace

from harvester_ccm.commands.call import Call
from harvester_ccm.commands.inventory import Inventory
from harvester_ccm.config import SERVICE_CONTROLLER
from harvester_ccm.kube.flowcontrol import time_text
from harvester_ccm.model.core import Service, ServiceCondition
from harvester_ccm.model.harvester import ClusterIdentity
from harvester_ccm.model.outcome import Done, Wait, WaitReason
from harvester_ccm.plan.service.scope import is_served
from harvester_ccm.plan.service.snapshot import ListedStore, ServiceSnapshot, observe
from harvester_ccm.plan.service.writes import ServicePlan


class ServiceView(Struct, frozen=True, dict=True):
    """The lists of both clusters, and the flags that concern Services."""

    inventory: Inventory
    cluster: ClusterIdentity
    serving: bool
    """Whether the service controller is enabled."""

    @cached_property
    def store(self) -> ListedStore:
        """Services and what they depend on, with indexes."""
        return self.inventory.service_store(self.cluster)

    def observe(self, service: Service) -> ServiceSnapshot:
        """Return what the controller would observe right after its start."""
        snapshot = observe(self.store, service, self.cluster)
        return replace(snapshot, now=self._waited(snapshot), wall_time=time_text(self.inventory.taken))

    def skip_reason(self, snapshot: ServiceSnapshot) -> str:
        """Return why the controller ignores the Service; empty if it manages it."""
        return snapshot.scope.because if self.serving else f"{SERVICE_CONTROLLER} is switched off by --controllers"

    def _waited(self, snapshot: ServiceSnapshot) -> float:
        """Return the seconds since the Service was created or deleted, or its load balancer was."""
        meta, lb = snapshot.service.metadata, snapshot.match.lb
        began = meta.creation_timestamp
        if snapshot.scope.leaving:
            began = meta.deletion_timestamp
        elif lb is not None:
            began = lb.metadata.deletion_timestamp or lb.metadata.creation_timestamp
        try:
            return max((self.inventory.taken - datetime.fromisoformat(began or "")).total_seconds(), 0.0)
        except (ValueError, TypeError):
            # Absent, or not a time of the API.
            return 0.0


def view_of(call: Call, inventory: Inventory) -> ServiceView:
    """Return the view for the flags of a command."""
    settings = call.settings
    cluster = ClusterIdentity.of(settings, inventory.namespace, inventory.cluster_uid)
    return ServiceView(inventory, cluster, SERVICE_CONTROLLER in settings.controllers)


def condition_after(plan: ServicePlan, snapshot: ServiceSnapshot) -> ServiceCondition:
    """Return the condition that the Service has according to a plan, with the time since which it has it.

    For a Service without a condition it is derived from what the plan waits for.
    """
    before, condition, outcome = snapshot.service.ready_condition, plan.condition, plan.outcome
    if condition is not None:
        has_status = before is not None and before.status == condition.status
        return replace(condition, last_transition_time=before.last_transition_time if has_status and before else None)
    if isinstance(outcome, Done) and is_served(snapshot.service):
        return ServiceCondition(status="True")
    reason = WaitReason.QUEUED if isinstance(outcome, Done) else WaitReason(outcome.reason)
    if reason is WaitReason.NOT_PROCESSED and snapshot.match.lb is None:
        # That is what it waits for after the creation.
        reason = WaitReason.QUEUED
    status = "True" if isinstance(outcome, Wait) and is_served(snapshot.service) else "False"
    return ServiceCondition(status=status, message=f"waits for {reason.meaning}")
