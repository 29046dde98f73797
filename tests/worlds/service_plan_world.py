"""A tiny world for Service plans: Services in a guest, and a Harvester that books, records, holds and gives back.

Everything happens in small steps that a test orders as it likes. Harvester books an address in the pool first, writes
it to the load balancer next and adds its finalizer last; a load balancer deleted before that loses its booking, also
one that was refused before or closed only just. Both clusters are servers in memory that are called without a loop: no
time passes but that of the test.
"""

from __future__ import annotations

import itertools
from dataclasses import dataclass, field
from typing import Any

import msgspec
from msgspec.structs import replace

from harvester_ccm.kube.workqueue import ObjectStates
from harvester_ccm.model.core import SERVICES, Service
from harvester_ccm.model.harvester import LOAD_BALANCERS, LoadBalancer
from harvester_ccm.names import DHCP_ADDRESS, KUBE_VIP_ADDRESSES, KUBE_VIP_IGNORE, LB_CONTROLLER_FINALIZER
from harvester_ccm.plan.service.backends import Backends
from harvester_ccm.plan.service.decision import plan_service
from harvester_ccm.plan.service.kube_vip import virtual_ip_ingress
from harvester_ccm.plan.service.load_balancer import changed_document
from harvester_ccm.plan.service.request import primary_reference
from harvester_ccm.plan.service.snapshot import ServiceSnapshot, ServiceState, observe
from harvester_ccm.plan.service.writes import (
    ChangeLoadBalancer,
    ChangeService,
    CreateLoadBalancer,
    DeleteLoadBalancer,
    ServiceChange,
    ServicePlan,
    Write,
    service_patch,
)
from tests.worlds.builders import CLUSTER, listed_store
from tests.worlds.memory_server import Document, MemoryServer
from tests.worlds.merge_patch import merged

POOL = ("10.0.0.1", "10.0.0.2")
EXHAUSTED = "fail to get ip from pool lan, error: no IP addresses available in range set: 10.0.0.1-10.0.0.2"


@dataclass
class ServicePlanWorld:
    """Both clusters, a clock, and what the program remembers."""

    guest: MemoryServer = field(default_factory=MemoryServer)
    harvester: MemoryServer = field(default_factory=MemoryServer)
    booked: dict[str, str] = field(default_factory=dict)
    """Address to name of the load balancer it is booked for."""
    history: dict[str, str] = field(default_factory=dict)
    """Name of a load balancer to the address it had."""
    attempts: dict[str, str] = field(default_factory=dict)
    """Name of a load balancer that an address was booked for to the version of it that the address is written to."""
    given_up: set[str] = field(default_factory=set)
    """Addresses that went back to the pool because somebody else deleted the load balancer."""
    leases: dict[str, str] = field(default_factory=dict)
    """Service, or load balancer that Harvester announces, to its address from DHCP."""
    backends: tuple[str, ...] = ("vm-1",)
    now: float = 0.0
    states: ObjectStates[ServiceState] = field(default_factory=lambda: ObjectStates(ServiceState))
    """What the program remembers."""

    @property
    def services(self) -> dict[str, Document]:
        """The Services as stored, by key."""
        return self.guest.of(SERVICES)

    @property
    def load_balancers(self) -> dict[str, Document]:
        """The load balancers as stored, by name."""
        return {one["metadata"]["name"]: one for one in self.harvester.items(LOAD_BALANCERS)}

    def service(self, key: str) -> Service:
        """Return the Service as the program sees it."""
        return SERVICES.decode(msgspec.json.encode(self.services[key]))

    def balancer(self, name: str) -> LoadBalancer:
        """Return the load balancer as the program sees it."""
        return LOAD_BALANCERS.decode(msgspec.json.encode(self.load_balancers[name]))

    def snapshot(self, key: str) -> ServiceSnapshot:
        """Return what is known about a Service, but for what is remembered."""
        balancers = map(self.balancer, self.load_balancers)
        store = listed_store(map(self.service, self.services), balancers, Backends(self.backends))
        return observe(store, self.service(key), CLUSTER)

    def plan(self, key: str) -> ServicePlan:
        """Return what the program would do for the Service now."""
        snapshot = self.snapshot(key)
        if not snapshot.scope.ours:
            return ServicePlan()
        state = self.states.of(snapshot.service)
        state.follow(snapshot, self.now)
        return plan_service(replace(snapshot, remembered=state, now=self.now))

    def restart(self) -> None:
        """Forget what the program remembers, and begin as it does."""
        self.states = ObjectStates(ServiceState)

    def reconcile(self, key: str, *, at_most: int = 99) -> bool:
        """Plan and write at most so often, as if the next write failed; return whether anything was written."""
        for number in range(at_most):
            write = self.plan(key).write if key in self.services else None
            if write is None or not self._take(key, write):
                return number > 0
        return True

    def reconcile_together(self, *keys: str) -> None:
        """Send the writes of plans that were made before any of them was seen.

        Services of one address take turns: each of them sees what the one before it has written.
        """
        groups: dict[str, list[str]] = {}
        for key in keys:
            if key in self.services:
                groups.setdefault(primary_reference(self.service(key)) or key, []).append(key)
        for turn in itertools.zip_longest(*groups.values()):
            plans = [(key, self.plan(key).write) for key in turn if key is not None and key in self.services]
            for key, write in plans:
                if write is not None:
                    self._take(key, write)

    def _take(self, key: str, write: Write) -> bool:
        """Do what the API servers do; return whether the write worked."""
        match write:
            case ChangeService(change=change) if key in self.services:
                self.guest.change(SERVICES, key, service_patch(self.service(key), change))
                self._forget_gone(key)
            case CreateLoadBalancer(name=name, body=body):
                if name in self.load_balancers:
                    return False
                document = msgspec.json.decode(msgspec.json.encode(body))
                named = {"metadata": {"namespace": CLUSTER.namespace, "finalizers": []}}
                self.harvester.create(LOAD_BALANCERS, merged(document, named))
            case ChangeLoadBalancer(name=name) if name in self.load_balancers:
                self.harvester.replace(LOAD_BALANCERS, _key(name), changed_document(self.balancer(name), write))
            case DeleteLoadBalancer(name=name, uid=uid):
                if name in self.load_balancers and self.load_balancers[name]["metadata"]["uid"] == uid:
                    self.delete_balancer(name)
        return True

    def delete_balancer(self, name: str) -> None:
        """Delete as the API server does: at once without a finalizer."""
        self.harvester.delete(LOAD_BALANCERS, _key(name))

    def delete_service(self, key: str) -> None:
        """Delete as the API server does."""
        self.guest.delete(SERVICES, key)
        self._forget_gone(key)

    def _forget_gone(self, key: str) -> None:
        if key not in self.services:
            self.states.forget(key)

    def lease(self, key: str) -> bool:
        """Let kube-vip in the guest get an address from DHCP for a Service that asks; return whether it did."""
        service = self.service(key)
        meta = service.metadata
        asks = meta.annotation(KUBE_VIP_ADDRESSES) == DHCP_ADDRESS and meta.annotation(KUBE_VIP_IGNORE) != "true"
        if not asks or service.addresses or service.spec.type != "LoadBalancer":
            return False
        change = ServiceChange(ingress=virtual_ip_ingress(self._leased(key), service))
        self.guest.change(SERVICES, key, service_patch(service, change))
        return True

    def _leased(self, holder: str) -> str:
        return self.leases.setdefault(holder, f"10.0.8.{len(self.leases) + 1}")

    def harvest(self, name: str) -> bool:
        """Let Harvester take its next step for a load balancer; return whether there was one."""
        document = self.load_balancers[name]
        meta, status = document["metadata"], document.get("status") or {}
        allocated = status.get("allocatedAddress", {})
        if "deletionTimestamp" in meta:
            # What a run has booked that meets the deletion is not in its copy of the pool yet.
            if allocated.get("ipPool") and name not in self.attempts:
                self._give_back(name)
            return self._written(name, finalizers=[])
        if not allocated:
            dhcp = document["spec"]["ipam"] == "dhcp"
            return self._written(name, **_allocated(DHCP_ADDRESS)) if dhcp else self._allocate(name, meta)
        if LB_CONTROLLER_FINALIZER not in meta["finalizers"]:
            return self._written(name, finalizers=[LB_CONTROLLER_FINALIZER])
        if "ip" not in allocated:
            if self.attempts.pop(name, None):
                return True
            return self._written(name, conditions=[{"type": "Ready", "status": "True"}])
        address = self._leased(name) if allocated["ip"] == DHCP_ADDRESS else allocated["ip"]
        return document["spec"]["workloadType"] == "vm" and self._written(name, address=address)

    def _give_back(self, name: str) -> None:
        """Release whatever is booked for a load balancer."""
        for ip in [ip for ip, owner in self.booked.items() if owner == name]:
            del self.booked[ip]
            self.history[name] = ip

    def _allocate(self, name: str, meta: Document) -> bool:
        """Book an address, or write down the one that is booked; where that conflicts, Harvester starts anew."""
        mine = [ip for ip, owner in self.booked.items() if owner == name]
        free = [ip for ip in POOL if ip not in self.booked]
        if mine:
            if self.attempts.pop(name) == meta["resourceVersion"]:
                return self._written(name, **_allocated(mine[0], ipPool="lan"))
            self._give_back(name)
        elif free:
            old = self.history.get(name)
            self.booked[old if old in free and old is not None else free[0]] = name
            self.attempts[name] = meta["resourceVersion"]
        else:
            conditions = [{"type": "Ready", "status": "False", "message": EXHAUSTED}]
            return self._written(name, finalizers=[LB_CONTROLLER_FINALIZER], conditions=conditions)
        return True

    def _written(self, name: str, *, finalizers: list[str] | None = None, **status: Any) -> bool:
        """Have Harvester write its finalizers and status; return whether that is a change."""
        before = self.load_balancers[name]
        kept = before["metadata"]["finalizers"] if finalizers is None else finalizers
        patch = {"metadata": {"finalizers": kept}, **({"status": status} if status else {})}
        return self.harvester.change(LOAD_BALANCERS, _key(name), patch) is not before


def _key(name: str) -> str:
    return f"{CLUSTER.namespace}/{name}"


def _allocated(ip: str, **pool: str) -> Document:
    """Return the status of a load balancer with an address."""
    return {"allocatedAddress": {"ip": ip, **pool}, "conditions": [{"type": "Ready", "status": "True"}]}
