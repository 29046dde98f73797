"""A tiny world for Service plans: Services in a guest, and a Harvester that books, records, holds and gives back.

Everything happens in small steps that a test orders as it likes. Harvester books an address in the pool first, writes
it to the load balancer next and adds its finalizer last; a load balancer deleted before that loses its booking.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import msgspec

from harvester_ccm.kube_vip_names import KUBE_VIP_ADDRESSES, KUBE_VIP_IGNORE
from harvester_ccm.model.core import SERVICES, Service
from harvester_ccm.model.harvester import LOAD_BALANCERS, LoadBalancer
from harvester_ccm.names import DHCP_ADDRESS, LB_CONTROLLER_FINALIZER
from harvester_ccm.plan.service.create import REPLACEMENT_PAUSE
from harvester_ccm.plan.service.decision import plan_service
from harvester_ccm.plan.service.load_balancer import changed_document
from harvester_ccm.plan.service.selection import primary_reference
from harvester_ccm.plan.service.situation import Backends, ListedStore, ServiceStates, Situation, observe
from harvester_ccm.plan.service.steps import (
    ChangeLoadBalancer,
    ChangeService,
    CreateLoadBalancer,
    DeleteLoadBalancer,
    EmitEvent,
    ServiceChange,
    ServicePlan,
    Step,
    service_patch,
    virtual_ip_ingress,
)
from tests.worlds.builders import CLUSTER, DELETED_AT

Document = dict[str, Any]
POOL = ("10.0.0.1", "10.0.0.2")
EXHAUSTED = "fail to get ip from pool lan, error: no IP addresses available in range set: 10.0.0.1-10.0.0.2"


@dataclass
class ServicePlanWorld:
    """Both clusters, a clock, and what the program remembers."""

    services: dict[str, Document] = field(default_factory=dict)
    load_balancers: dict[str, Document] = field(default_factory=dict)
    booked: dict[str, str] = field(default_factory=dict)
    """Address to name of the load balancer it is booked for."""
    history: dict[str, str] = field(default_factory=dict)
    """Name of a load balancer to the address it had."""
    given_up: set[str] = field(default_factory=set)
    """Addresses that went back to the pool because somebody else deleted the load balancer."""
    leases: dict[str, str] = field(default_factory=dict)
    """Service, or load balancer that Harvester announces, to its address from DHCP."""
    backends: tuple[str, ...] = ("vm-1",)
    now: float = 0.0
    states: ServiceStates = field(default_factory=ServiceStates)
    """What the program remembers."""
    numbers: Iterator[int] = field(default_factory=itertools.count)

    def service(self, key: str) -> Service:
        """Return the Service as the program sees it."""
        return SERVICES.decode(msgspec.json.encode(self.services[key]))

    def balancer(self, name: str) -> LoadBalancer:
        """Return the load balancer as the program sees it."""
        return LOAD_BALANCERS.decode(msgspec.json.encode(self.load_balancers[name]))

    def situation(self, key: str) -> Situation:
        """Return what is known about a Service, but for what is remembered."""
        store = ListedStore.of(
            map(self.service, self.services), map(self.balancer, self.load_balancers), backends=Backends(self.backends)
        )
        return observe(store, self.service(key), CLUSTER)

    def plan(self, key: str) -> ServicePlan:
        """Return what the program would do for the Service now."""
        situation = self.situation(key)
        if not situation.scope.ours:
            return ServicePlan()
        state = self.states.follow(situation, self.now)
        plan = plan_service(state.complete(situation, self.now))
        state.emitted = {step.event for step in plan.steps if isinstance(step, EmitEvent)}
        return plan

    def restart(self) -> None:
        """Forget what the program remembers, and begin as it does."""
        self.states = ServiceStates()
        self.states.start(map(self.service, self.services), self.now - REPLACEMENT_PAUSE)

    def reconcile(self, key: str, *, at_most: int = 99) -> bool:
        """Take the first ``at_most`` writing steps of the plan, as if the next one failed; return whether any."""
        wrote = False
        steps = [step for step in self.plan(key).steps if not isinstance(step, EmitEvent)]
        for step in steps[:at_most]:
            if not self._take(key, step):
                break
            wrote = True
        return wrote

    def reconcile_together(self, *keys: str) -> None:
        """Take whole plans that were made before any of their writes was seen.

        Services of one address take turns: each of them sees what the one before it has written.
        """
        groups: dict[str, list[str]] = {}
        for key in keys:
            if key in self.services:
                groups.setdefault(primary_reference(self.service(key)) or key, []).append(key)
        for turn in itertools.zip_longest(*groups.values()):
            plans = [(key, self.plan(key).steps) for key in turn if key is not None and key in self.services]
            for key, steps in plans:
                for step in steps:
                    if not isinstance(step, EmitEvent) and not self._take(key, step):
                        break

    def _take(self, key: str, step: Step) -> bool:
        """Do what the API servers do; return whether the step worked."""
        match step:
            case ChangeService(change=change) if key in self.services:
                patch = service_patch(self.service(key), change)
                _merge(self.services[key], patch)
                self._collect_service(key)
            case CreateLoadBalancer(name=name, body=body):
                if name in self.load_balancers:
                    return False
                document = msgspec.json.decode(msgspec.json.encode(body))
                document["metadata"] |= {"uid": f"lb-{next(self.numbers)}", "finalizers": []}
                self.load_balancers[name] = document
            case ChangeLoadBalancer(name=name, change=lb_change) if name in self.load_balancers:
                self.load_balancers[name] = changed_document(self.balancer(name), lb_change)
            case DeleteLoadBalancer(name=name, uid=uid):
                if name in self.load_balancers and self.load_balancers[name]["metadata"]["uid"] == uid:
                    self.delete_balancer(name)
        return True

    def delete_balancer(self, name: str) -> None:
        """Delete as the API server does: at once without a finalizer."""
        document = self.load_balancers[name]
        if document["metadata"]["finalizers"]:
            document["metadata"]["deletionTimestamp"] = DELETED_AT
        else:
            self._remove_balancer(name)

    def _remove_balancer(self, name: str) -> None:
        self.states.saw(self.balancer(name), self.now)
        del self.load_balancers[name]

    def delete_service(self, key: str) -> None:
        """Delete as the API server does."""
        self.services[key]["metadata"]["deletionTimestamp"] = DELETED_AT
        self._collect_service(key)

    def _collect_service(self, key: str) -> None:
        meta = self.services[key]["metadata"]
        if "deletionTimestamp" in meta and not meta.get("finalizers"):
            del self.services[key]
            self.states.forget(key)

    def lease(self, key: str) -> bool:
        """Let kube-vip in the guest get an address from DHCP for a Service that asks; return whether it did."""
        service = self.service(key)
        meta = service.metadata
        asks = meta.annotation(KUBE_VIP_ADDRESSES) == DHCP_ADDRESS and meta.annotation(KUBE_VIP_IGNORE) != "true"
        if not asks or service.addresses or service.spec.type != "LoadBalancer":
            return False
        change = ServiceChange(ingress=virtual_ip_ingress(self._leased(key), service))
        _merge(self.services[key], service_patch(service, change))
        return True

    def _leased(self, holder: str) -> str:
        return self.leases.setdefault(holder, f"10.0.8.{len(self.leases) + 1}")

    def harvest(self, name: str) -> bool:
        """Let Harvester take its next step for a load balancer; return whether there was one."""
        document = self.load_balancers[name]
        meta, status = document["metadata"], document.setdefault("status", {})
        if "deletionTimestamp" in meta:
            address = status.get("allocatedAddress", {}).get("ip")
            if self.booked.get(address) == name:
                del self.booked[address]
                self.history[name] = address
            self._remove_balancer(name)
            return True
        dhcp = document["spec"]["ipam"] == "dhcp"
        mine = [self._leased(name)] if dhcp else [ip for ip, owner in self.booked.items() if owner == name]
        if not status.get("allocatedAddress", {}).get("ip"):
            if not dhcp:
                return self._allocate(name, document, mine)
            status["allocatedAddress"] = {"ip": DHCP_ADDRESS}
            status["conditions"] = [{"type": "Ready", "status": "True"}]
            return True
        if LB_CONTROLLER_FINALIZER not in meta["finalizers"]:
            meta["finalizers"] = [LB_CONTROLLER_FINALIZER]
            return True
        if document["spec"]["workloadType"] == "vm" and status.get("address") != mine[0]:
            status["address"] = mine[0]
            return True
        return False

    def _allocate(self, name: str, document: Document, mine: list[str]) -> bool:
        """Book an address, or write down one that is booked.

        After a refusal both come at once: in the moment between them nobody could tell that a deletion is too early.
        """
        refused = bool(document["status"])
        free = [ip for ip in POOL if ip not in self.booked]
        if not mine and not free:
            status = {"conditions": [{"type": "Ready", "status": "False", "message": EXHAUSTED}]}
            news: bool = document["status"] != status
            document["status"] = status
            document["metadata"]["finalizers"] = [LB_CONTROLLER_FINALIZER]
            return news
        if not mine:
            old = self.history.get(name)
            mine = [old if old in free and old is not None else free[0]]
            self.booked[mine[0]] = name
            if not refused:
                return True
        document["status"] = {
            "allocatedAddress": {"ip": mine[0], "ipPool": "lan"},
            "conditions": [{"type": "Ready", "status": "True"}],
        }
        return True


def _merge(target: Document, patch: Document) -> None:
    for key, value in patch.items():
        if value is None:
            target.pop(key, None)
        elif isinstance(value, dict):
            child = target.setdefault(key, {})
            _merge(child, value)
        else:
            target[key] = value
