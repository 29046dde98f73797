"""Whatever happens in whatever order: nothing leaks, nobody announces what is not booked, and it all comes to rest."""

from __future__ import annotations

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from harvester_ccm.model.core import SERVICES, Service
from harvester_ccm.model.harvester import LOAD_BALANCERS
from harvester_ccm.names import (
    DHCP_ADDRESS,
    IPAM,
    KUBE_VIP_ADDRESSES,
    KUBE_VIP_IGNORE,
    LB_CONTROLLER_FINALIZER,
    LB_OWNER,
    LB_SERVICE_NAME,
    LB_SERVICE_UID,
    PRIMARY_SERVICE,
    PRIMARY_SERVICE_LABEL,
    WORKLOAD_TYPE,
)
from harvester_ccm.plan.service.ownership import service_key
from harvester_ccm.plan.service.request import primary_reference
from harvester_ccm.plan.service.scope import primaries_of
from harvester_ccm.plan.service.shared_address import share
from tests.worlds.builders import CLUSTER
from tests.worlds.memory_server import Document
from tests.worlds.service_plan_world import ServicePlanWorld

KEYS = ("shop/a", "shop/b", "shop/c")
EDITED = "shop/edited"
"""What the labels of a load balancer name after somebody has edited them."""
key_of = st.sampled_from(KEYS)
kinds = st.sampled_from([None, "cluster", "vm"])
ports = st.sampled_from([80, 443, 8080])
ipams = st.sampled_from([None, None, "dhcp"])
any_number = st.integers(0, 7)


class ServiceLife(RuleBasedStateMachine):
    """Users, Harvester, faults and the program take turns."""

    def __init__(self) -> None:
        super().__init__()
        self.world = ServicePlanWorld()

    def _annotate(self, key: str, name: str, value: str | None) -> None:
        if key in self.world.services:
            self.world.guest.change(SERVICES, key, {"metadata": {"annotations": {name: value}}})

    @rule(key=key_of, kind=kinds, primary=st.sampled_from([None, None, *KEYS]), port=ports, ipam=ipams)
    def create(self, key: str, kind: str | None, primary: str | None, port: int, ipam: str | None = None) -> None:
        if key in self.world.services:
            return
        namespace, name = key.split("/")
        document: Document = {
            "metadata": {"name": name, "namespace": namespace},
            "spec": {"type": "LoadBalancer", "ports": [{"port": port, "nodePort": 30000 + port}]},
        }
        self.world.guest.put(SERVICES, document)
        self._annotate(key, WORKLOAD_TYPE, kind)
        self._annotate(key, PRIMARY_SERVICE, primary)
        self._annotate(key, IPAM, ipam)

    @rule(key=key_of, ipam=ipams)
    def ask_for_ipam(self, key: str, ipam: str | None) -> None:
        self._annotate(key, IPAM, ipam)

    @rule(key=key_of, kind=kinds)
    def ask_for_kind(self, key: str, kind: str | None) -> None:
        self._annotate(key, WORKLOAD_TYPE, kind)

    @rule(key=key_of, primary=st.sampled_from([None, *KEYS, "shop/none"]))
    def name_primary(self, key: str, primary: str | None) -> None:
        self._annotate(key, PRIMARY_SERVICE, primary)

    @rule(key=key_of, kind=st.sampled_from(["LoadBalancer", "ClusterIP"]), port=ports)
    def edit_spec(self, key: str, kind: str, port: int) -> None:
        if key in self.world.services:
            spec = {"type": kind, "ports": [{"port": port, "nodePort": 30000 + port if kind == "LoadBalancer" else 0}]}
            self.world.guest.put(SERVICES, {**self.world.services[key], "spec": spec})

    @rule(key=key_of)
    def delete(self, key: str) -> None:
        if key in self.world.services:
            self.world.delete_service(key)

    @rule(key=key_of, at_most=st.integers(0, 5))
    def reconcile(self, key: str, at_most: int) -> None:
        if key in self.world.services:
            self.world.reconcile(key, at_most=at_most)

    @rule(key=key_of)
    def reconcile_wholly(self, key: str) -> None:
        if key in self.world.services:
            self.world.reconcile(key)

    @rule(order=st.permutations(KEYS))
    def reconcile_together(self, order: list[str]) -> None:
        self.world.reconcile_together(*order)

    @rule(key=key_of, kind=kinds, primary=st.sampled_from([None, None, None, *KEYS]), rush=st.integers(0, 2))
    def edit_in_a_rush(self, key: str, kind: str | None, primary: str | None, rush: int) -> None:
        """One Service is edited and looked at again and again before the others are."""
        self.ask_for_kind(key, kind)
        self.name_primary(key, primary)
        for _ in range(3):
            self.reconcile_wholly(key)
            self._harvest_all(rush)

    @rule(key=key_of, rush=st.integers(0, 2))
    def delete_in_a_rush(self, key: str, rush: int) -> None:
        """A Service is deleted just after it was created, or just after Harvester has started with it."""
        self.create(key, None, None, 8443)
        self.reconcile_wholly(key)
        self._harvest_all(rush)
        self.delete(key)
        for _ in range(2):
            self.reconcile_wholly(key)
            self._harvest_all(1)

    @rule(first=key_of, second=key_of, rush=st.integers(0, 2))
    def delete_refused_in_a_rush(self, first: str, second: str, rush: int) -> None:
        """There are more Services than addresses; one goes, and another one just when it may get the address."""
        for key in KEYS:
            self.create(key, None, None, 8443)
        self.let_all_work()
        self.delete(first)
        self.reconcile_wholly(first)
        self._harvest_all(rush)
        self.delete(second)
        for _ in range(2):
            self.reconcile_wholly(second)
            self._harvest_all(1)

    def _harvest_all(self, rounds: int) -> None:
        for _ in range(rounds):
            for name in list(self.world.load_balancers):
                self.world.harvest(name)
            for key in self.world.services:
                self.world.lease(key)

    @precondition(lambda self: self.world.load_balancers)
    @rule(number=any_number)
    def let_harvester_work(self, number: int) -> None:
        names = sorted(self.world.load_balancers)
        self.world.harvest(names[number % len(names)])

    @precondition(lambda self: self.world.load_balancers)
    @rule(number=any_number, what=st.sampled_from(["delete", "labels", "marks", "finalizer"]))
    def meddle(self, number: int, what: str) -> None:
        """Somebody works on a load balancer in Harvester by hand."""
        name = sorted(self.world.load_balancers)[number % len(self.world.load_balancers)]
        meta = self.world.load_balancers[name]["metadata"]
        if LB_CONTROLLER_FINALIZER not in meta["finalizers"]:
            return
        if what == "delete":
            self.world.given_up.update(ip for ip, owner in self.world.booked.items() if owner == name)
            self.world.delete_balancer(name)
        elif what == "labels":
            self._edit_balancer(name, {"labels": {LB_SERVICE_NAME: EDITED.partition("/")[2]}})
        elif what == "marks":
            self._edit_balancer(name, {"annotations": {LB_OWNER: None, LB_SERVICE_UID: None}})

    def _edit_balancer(self, name: str, metadata: Document) -> None:
        self.world.harvester.change(LOAD_BALANCERS, f"{CLUSTER.namespace}/{name}", {"metadata": metadata})

    @rule(key=key_of)
    def let_kube_vip_work(self, key: str) -> None:
        if key in self.world.services:
            self.world.lease(key)

    @initialize(sharing=st.booleans(), kind=kinds, ipam=ipams)
    def begin(self, sharing: bool, kind: str | None, ipam: str | None) -> None:
        """Start with a Service that is served, and perhaps one that shares its address."""
        self.create("shop/a", kind, None, 80, ipam)
        if sharing:
            self.create("shop/b", None, "shop/a", 443)
        self.let_all_work()

    @rule()
    def let_all_work(self) -> None:
        """Everything takes its course for a while."""
        for _ in range(4):
            for key in list(self.world.services):
                self.reconcile_wholly(key)
            self.wait(6.0)

    @rule(seconds=st.sampled_from([1.0, 6.0, 31.0]))
    def wait(self, seconds: float) -> None:
        """Time passes, in which a Harvester that is alive gets its work done."""
        self._harvest_all(4)
        self.world.now += seconds

    @rule()
    def restart(self) -> None:
        self.world.restart()

    @rule(backends=st.sampled_from([(), ("vm-1",), ("vm-1", "vm-2")]))
    def change_nodes(self, backends: tuple[str, ...]) -> None:
        self.world.backends = backends

    @invariant()
    def nothing_is_announced_that_is_not_booked(self) -> None:
        for key in self.world.services:
            service = self.world.service(key)
            address = service.metadata.annotation(KUBE_VIP_ADDRESSES)
            if not address or service.metadata.annotation(KUBE_VIP_IGNORE) == "true" or address in self.world.given_up:
                continue
            if address == DHCP_ADDRESS or address in self.world.leases.values():
                continue  # a lease is nobody's booking; it is given up with the Service, not taken by another one
            assert address in self.world.booked, f"{key} announces {address}, which is free"
            holder = self.world.load_balancers[self.world.booked[address]]["metadata"]["labels"]
            name = holder[LB_SERVICE_NAME]
            rightful = {key, *primaries_of(service), EDITED}
            assert f"shop/{name}" in rightful, f"{key} announces {address}, which is booked for {name}"

    @invariant()
    def no_booking_is_lost(self) -> None:
        assert set(self.world.booked.values()) <= set(self.world.load_balancers)

    def teardown(self) -> None:
        settle(self.world)
        check_rest(self.world)
        self.world.restart()
        for key in list(self.world.services):
            write = self.world.plan(key).write
            assert write is None, f"after a restart {key} is written again: {write}"


def _labelled(service: Service) -> str:
    return (service.metadata.label(PRIMARY_SERVICE_LABEL) or "").replace(".", "/", 1)


def settle(world: ServicePlanWorld) -> None:
    """Let everything take its course until nothing changes any more."""
    quiet = 0
    for _ in range(80):
        wrote = [world.reconcile(key) for key in list(world.services) if key in world.services]
        moved = [world.harvest(name) for name in list(world.load_balancers) if name in world.load_balancers]
        moved += [world.lease(key) for key in world.services]
        world.now += 11.0
        quiet = 0 if any(wrote) or any(moved) else quiet + 1
        if quiet > 6:
            return
    raise AssertionError(f"no rest: {world.services} {world.load_balancers}")


def check_rest(world: ServicePlanWorld) -> None:
    """Check what must hold when nothing happens any more."""
    owners = [service_key(world.balancer(name)) for name in world.load_balancers]
    assert len(owners) == len(set(owners)), f"two load balancers for one Service: {owners}"
    for owner in owners:
        if owner == EDITED and any(map(_is_leaving, map(world.service, world.services))):
            continue  # a load balancer on its way out is found by its name; its labels are not set right any more
        assert owner in world.services, f"load balancer of {owner}, which does not exist"
        _check_owner(world, world.service(owner))
    _check_ports(world)
    for key in world.services:
        _check_service(world, world.service(key), has_balancer=bool(world.snapshot(key).match.claims))


def _check_ports(world: ServicePlanWorld) -> None:
    """Check that no two Services that share an address are served with one port on it."""
    secondaries = [one for one in map(world.service, world.services) if _labelled(one)]
    served = [
        (entry.ip, port) for one in secondaries for entry in one.status.load_balancer.ingress for port in entry.ports
    ]
    assert len(served) == len(set(served)), f"two Services on one port: {served}"


def _check_owner(world: ServicePlanWorld, service: Service) -> None:
    """Check that a Service that has a load balancer needs it: for itself or for those that share its address."""
    users = [one for one in map(world.service, world.services) if _labelled(one) == service.metadata.key]
    assert not _is_leaving(service) or users, f"{service.metadata.key} still has a load balancer"


def _is_leaving(service: Service) -> bool:
    return service.metadata.deleting or service.spec.type != "LoadBalancer"


def _check_service(world: ServicePlanWorld, service: Service, *, has_balancer: bool) -> None:
    key, announced = service.metadata.key, service.metadata.annotation(KUBE_VIP_ADDRESSES)
    ignored = service.metadata.annotation(KUBE_VIP_IGNORE) == "true"
    if _is_leaving(service):
        assert has_balancer or not service.metadata.finalizers, f"{key} is held for nothing"
        assert has_balancer or not announced, f"{key} announces {announced}"
        return
    snapshot = world.snapshot(key)
    if primary_reference(service) is not None:
        sharing = share(service, snapshot.primary, snapshot.secondaries_of_primary, snapshot.cluster)
        if sharing.address and not has_balancer:
            assert service.addresses == (sharing.address,)
        return
    assert has_balancer, f"{key} has no load balancer"
    balancer = snapshot.match.claims[0].load_balancer
    wanted = service.metadata.annotation(WORKLOAD_TYPE)
    assert wanted in {None, balancer.spec.workload_type}
    if balancer.allocated_ip:
        dhcp = balancer.allocated_ip == DHCP_ADDRESS
        assert service.addresses == (balancer.address if dhcp else balancer.allocated_ip,)
        hosted = balancer.spec.workload_type == "vm"
        assert (ignored, announced) == ((True, "") if hosted else (False, balancer.allocated_ip))
    else:
        assert service.addresses == ()
        assert announced == ""


def test_the_address_of_a_primary_that_was_a_secondary_is_not_shared() -> None:
    """It still shows the address, and no load balancer of its own holds it."""
    life = ServiceLife()
    life.begin(sharing=True, kind=None, ipam=None)
    life.name_primary("shop/b", None)
    life.edit_in_a_rush("shop/a", None, None, 0)
    life.create("shop/c", None, None, 80)
    life.edit_in_a_rush("shop/c", None, "shop/b", 0)
    life.nothing_is_announced_that_is_not_booked()
    life.teardown()


FEW = settings.get_profile("quick").max_examples
MANY = 2 * settings.get_profile("thorough").max_examples
TestServiceLife = ServiceLife.TestCase
TestServiceLife.settings = settings(
    max_examples=FEW if settings().max_examples == FEW else MANY,
    stateful_step_count=30,
    suppress_health_check=[HealthCheck.too_slow],
)
