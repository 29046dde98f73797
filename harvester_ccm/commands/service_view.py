"""How a command looks at Services: with the eyes of the running program after a start, at a point in time."""

from __future__ import annotations

from datetime import datetime
from functools import cached_property

from msgspec import Struct
from msgspec.structs import replace

from harvester_ccm.commands.call import Call
from harvester_ccm.commands.inventory import Inventory
from harvester_ccm.config import SERVICE_CONTROLLER
from harvester_ccm.kube.clock import time_text
from harvester_ccm.model.cluster import ClusterIdentity
from harvester_ccm.model.core import Service
from harvester_ccm.plan.service.snapshot import ListedStore, Situation, observe


class ServiceView(Struct, frozen=True, dict=True):
    """What was read, and what the flags say."""

    inventory: Inventory
    cluster: ClusterIdentity
    serving: bool
    """Whether the service controller is on."""

    @cached_property
    def store(self) -> ListedStore:
        """Services and what they depend on, with indexes."""
        return self.inventory.service_store(self.cluster)

    def observe(self, service: Service) -> Situation:
        """Return what the running program would know about the Service right after its start."""
        situation = observe(self.store, service, self.cluster)
        return replace(situation, now=self._waited(situation), wall_time=time_text(self.inventory.taken))

    def left_alone(self, situation: Situation) -> str:
        """Return why nothing is done about the Service; empty when it is served or being let go."""
        return situation.scope.because if self.serving else f"{SERVICE_CONTROLLER} is switched off by --controllers"

    def _waited(self, situation: Situation) -> float:
        """Return the seconds since the Service entered its phase: it left, its load balancer came to be, or it did.

        They are the time of the look, too: the clock of what is remembered began with the phase.
        """
        meta, lb = situation.service.metadata, situation.match.lb
        began = meta.creation_timestamp
        if situation.scope.leaving:
            began = meta.deletion_timestamp
        elif lb is not None:
            began = lb.metadata.deletion_timestamp or lb.metadata.creation_timestamp
        try:
            return max((self.inventory.taken - datetime.fromisoformat(began or "")).total_seconds(), 0.0)
        except (ValueError, TypeError):
            # Absent, or not a time of the API.
            return 0.0


def view_of(call: Call, inventory: Inventory) -> ServiceView:
    """Return the view that the flags give."""
    settings = call.settings
    cluster = ClusterIdentity.of(settings, inventory.namespace, inventory.cluster_uid)
    return ServiceView(inventory, cluster, SERVICE_CONTROLLER in settings.controllers)
