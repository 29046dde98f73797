"""The final state of Services and load balancers of one guest cluster."""

from devenv.harvester.records import is_deleting
from harvester_ccm.config import Announcer
from harvester_ccm.names import (
    IP_POOL,
    IPAM,
    LB_CONTROLLER_FINALIZER,
    LB_OWNER,
    PRIMARY_SERVICE,
    WORKLOAD_TYPE,
    Reason,
)
from harvester_ccm.plan.service.ownership.owner import load_balancer_name
from tests.simulation.facts import (
    annotation,
    condition_reasons,
    has_condition,
    has_finalizer,
    has_other_class,
    is_not_ready,
    lacks_ipv4,
    lacks_ports_for_vm,
    made_for,
    name_of,
    requires_two_families,
    served,
    shown,
    wants_one,
)
from tests.simulation.guest import NAMESPACE, Guest, cluster_of
from tests.simulation.request_oracle import RequestOracle
from tests.simulation.world import World
from tests.support.memory_server import Document


class AtRest:
    """Compares Services and load balancers of a cluster."""

    def __init__(self, world: World, guest: Guest, requests: RequestOracle) -> None:
        self._world = world
        self._requests = requests
        self._guest = guest

    def differences(self) -> list[str]:
        """Return the differences from the final state."""
        found = [] if self._guest.leader() else ["there is no leader"]
        by_name = {one["metadata"]["name"]: one for one in self._guest.services()}
        for service in by_name.values():
            if self._is_of_another_name(service):
                continue
            own = [one for one in self._lasting_balancers() if made_for(one) == service["metadata"]["name"]]
            found += self._wrong_about(service, own, by_name)
        found += [
            f"{one['metadata']['name']} has no Service"
            for one in self._lasting_balancers()
            if made_for(one) not in by_name and not self._has_lost_its_mark(one)
        ]
        return found

    def _lasting_balancers(self) -> list[Document]:
        """Return the load balancers without those that Harvester cannot finish to delete."""
        gone = self._world.pools.is_gone
        return [one for one in self._guest.balancers() if not (is_deleting(one) and gone(one))]

    @staticmethod
    def _has_lost_its_mark(balancer: Document) -> bool:
        """Return whether an administrator has removed the mark without which no orphan is deleted."""
        return not annotation(balancer, LB_OWNER)

    def _is_blocked_by_pool(self, service: Document) -> bool:
        """Return whether the Service waits for its old load balancer, whose pool is deleted, and says so."""
        old = [balancer for balancer in self._guest.balancers_of(name_of(service)) if is_deleting(balancer)]
        says_so = not {"ReplacementPending", "OldLoadBalancerTerminating"}.isdisjoint(condition_reasons(service))
        return any(map(self._world.pools.is_gone, old)) and says_so

    def _is_of_another_name(self, service: Document) -> bool:
        """Return whether a Service shows the address of a load balancer of the other copy, which leaves it as it is.

        The original says so where Harvester has nothing of what it shows, and the copy was first to ask again.
        """
        if self._guest is self._world.original and "LoadBalancerOwnershipConflict" not in condition_reasons(service):
            return False
        others = [one for one in self._world.balancers() if cluster_of(one) != self._guest.cluster]
        return not {served(one) for one in others}.isdisjoint(shown(service))

    def _wrong_about(self, service: Document, own: list[Document], services: dict[str, Document]) -> list[str]:
        if not wants_one(service) or service["metadata"].get("deletionTimestamp"):
            return self._wrong_about_leaving(service, own, services)
        primary = annotation(service, PRIMARY_SERVICE).removeprefix(f"{NAMESPACE}/")
        if primary:
            return self._wrong_about_secondary(service, own, services.get(primary))
        return self._wrong_about_own(service, own)

    def _wrong_about_leaving(self, service: Document, own: list[Document], services: dict[str, Document]) -> list[str]:
        """Return what is wrong about a Service that is deleted or asks for no load balancer of this controller."""
        meta, name = service["metadata"], name_of(service)
        if any(_shares(other, service) for other in services.values()):
            return []
        if self._guest.has_lost_its_mark(service):
            return []
        # The status of a Service of another class is that of its other controller.
        # Nor that of kube-vip, which has announced what the user specifies before this controller saw the Service.
        requested = {service["spec"].get("loadBalancerIP"), *self._guest.requested.get(name, ())}
        requested |= self._guest.requested_earlier.get(name, set())
        is_specified = set(shown(service)) <= requested and not has_condition(service)
        is_of_others = has_other_class(service) or name in self._guest.status_written or is_specified
        shows = bool(shown(service)) and not is_of_others
        is_released = not has_finalizer(service)
        is_clean = is_released and not own and not shows and not meta.get("deletionTimestamp")
        return [] if is_clean else [f"{name} is not cleaned up"]

    def _wrong_about_own(self, service: Document, own: list[Document]) -> list[str]:
        """Return what is wrong about a Service that asks for an address of its own."""
        name = name_of(service)
        if self._guest.is_in_another_harvester():
            # Nothing is decided then, and Services keep the addresses that they have in the Harvester of their cluster,
            # also those that could get no load balancer.
            return []
        if len(own) > 1 or not shown(service):
            # Without the mark of the owner, a load balancer of an earlier Service is neither used nor deleted.
            own = [one for one in own if not (self._has_lost_its_mark(one) and _is_of_earlier(one, service))]
        if lacks_ipv4(service) and own and _is_of_earlier(own[0], service):
            # The Service was created again while no controller could clean up, and uses what it found.
            return []
        if lacks_ipv4(service) or (requires_two_families(service) and not own):
            # Nothing is cleared on a Service without the finalizer, not even the lease of an earlier one of its name.
            is_unserved = not has_finalizer(service)
            is_of_kube_vip = is_unserved and service["metadata"]["uid"] in self._guest.kube_vip.status_written
            is_right = not own and (self._shows_at_most_a_request(service) or is_of_kube_vip)
            return [] if is_right else [f"{name} shows what it does not have"]
        if annotation(service, IPAM) not in {"", "pool", "dhcp"}:
            # Before the value is correct nothing is cleared, not even what kube-vip wrote for an earlier request.
            shows_earlier_request = set(shown(service)) <= self._guest.requested.get(name, set())
            is_request = shows_earlier_request or self._shows_at_most_a_request(service)
            is_right = len(own) == 1 or (not own and is_request)
            return [] if is_right else [f"{name} shows what it does not have"]
        if not own and (self._must_wait(service) or self._requests.waits_rightly(self._guest, service)):
            return []
        if len(own) != 1:
            return [f"{name} has {len(own)} load balancers"]
        return self._wrong_with(service, own[0])

    def _shows_at_most_a_request(self, service: Document) -> bool:
        """Return whether a Service shows no address but one that its user requests, until Harvester allocates one."""
        return all(self._guest.counts_as_request(name_of(service), address) for address in shown(service))

    def _must_wait(self, service: Document) -> bool:
        """Return whether no load balancer can be created for a Service."""
        return lacks_ports_for_vm(service) or self._is_blocked_by_pool(service)

    def _wrong_about_secondary(self, service: Document, own: list[Document], primary: Document | None) -> list[str]:
        name, theirs = service["metadata"]["name"], shown(primary) if primary is not None else ()
        if primary is service or self._guest.is_in_another_harvester():
            return []
        leaving = primary is not None and primary["metadata"].get("deletionTimestamp")
        sound = primary is not None and wants_one(primary) and not annotation(primary, PRIMARY_SERVICE)
        sound = sound and not leaving
        if own:
            # Harvester may have allocated the address of the primary twice.
            shares = sound and theirs and shown(service) == theirs and served(own[0]) not in theirs
            return [f"{name} shares {shown(service)} and has a load balancer"] if shares else []
        # A primary without an address can get it back if no other load balancer has it.
        found = (one for one in self._guest.balancers() if primary is None or made_for(one) != name_of(primary))
        lost = shown(service) != theirs and bool(theirs or {served(one) for one in found}.intersection(shown(service)))
        if shown(service) and lost and primary is not None and wants_one(primary) and not leaving:
            return [f"{name} shows {shown(service)} and its primary {theirs}"]
        ports = {port["port"] for port in service["spec"]["ports"]}
        if not sound or primary is None or not theirs or shown(service):
            return []
        if self._is_of_another_name(primary):
            # Only an address that Harvester has allocated to this copy of the cluster is shared.
            return []
        if self._shows_at_most_a_request(primary):
            # Nor is one that kube-vip announces because the user requests it, until Harvester has allocated it.
            return []
        needs_ipv6 = lacks_ipv4(service) or requires_two_families(service)
        if needs_ipv6 and "Unsupported" in condition_reasons(service):
            # The address of the primary is one IPv4 address, and the condition says that the Service cannot have it.
            return []
        others = [one for one in self._guest.services() if shown(one) == theirs and one is not service]
        taken = {port["port"] for one in (*others, primary) for port in one["spec"]["ports"]}
        return [] if ports & taken or annotation(primary, WORKLOAD_TYPE) else [f"{name} does not share {theirs}"]

    def _wrong_with(self, service: Document, balancer: Document) -> list[str]:
        world, name, address = self._world, service["metadata"]["name"], served(balancer)
        unexplained = self._requests.unexplained(self._guest, service, address)
        found = [unexplained] if unexplained else []
        asked, kind = annotation(service, WORKLOAD_TYPE), balancer["spec"].get("workloadType")
        is_stuck = lacks_ports_for_vm(service) or self._guest.cannot_replace(balancer)
        if asked in {"vm", "cluster"} and asked != kind and not is_stuck:
            found.append(f"{name} asks for {asked} and has {kind}")
        # A user has kube-vip ignore the Service, and the condition says so.
        is_ignored = _says(service, "makes kube-vip ignore the Service")
        shows_right_address = shown(service) == (address,) if address else self._shows_at_most_a_request(service)
        shows_right_address |= is_ignored and not shown(service)
        if not shows_right_address and not self._has_outdated_record(service, balancer):
            found.append(f"{name} shows {shown(service)} and has {address or 'no address'}")
        if LB_CONTROLLER_FINALIZER not in (balancer["metadata"].get("finalizers") or ()):
            found.append(f"{balancer['metadata']['name']} is not looked at by Harvester")
        free = world.pools.can_serve(balancer, annotation(service, IP_POOL)) and not world.controllers.let_go
        kube_vip = self._guest.kube_vip
        # kube-vip announces Services with its class and with endpoints only, and writes a lease for no other.
        announced = kind == "cluster" and kube_vip.counts_endpoint(service, here=True)
        announced = announced and kube_vip.serves_class_of(service)
        # A touch that comes while it waits for a lease or an address of another Service has no effect.
        is_touched = f"{NAMESPACE}/{name}" not in kube_vip.missed_touches
        is_answered = service["metadata"]["uid"] not in kube_vip.unanswered
        notes_lease = announced and is_touched and is_answered and kube_vip.notes_lease_of(service)
        is_leasable = kind != "cluster" or balancer["spec"].get("ipam") != "dhcp" or notes_lease
        free = free and is_leasable
        if not address and free and not is_ignored:
            found.append(f"{name} has no address, and there are free ones")
        up = service["metadata"]["name"] in {
            key.partition("/")[2] for key in self._guest.kube_vip.announced().get(address, ())
        }
        # kube-vip skips events of a Service that it ignores: another client can have it miss any of them.
        is_decided = name in self._guest.ignore_written
        # Nothing shows a controller that did not run that kube-vip has announced the address.
        is_hidden = up and name in self._guest.address_hidden
        # kube-vip has withdrawn the address, and nothing shows it to a controller that did not run.
        is_silenced = not up and (name in self._guest.unseen_changes() or not is_touched)
        # Nor does the controller touch or respell anything where another program should announce the address. kube-vip
        # before 1.2 needs another spelling after each withdrawal.
        needs_help = name in self._guest.settings_changed or not kube_vip.needs_endpoints
        is_silenced |= not up and world.announcer is Announcer.OTHER and needs_help
        # Nor what kube-vip does after the deletion of an EndpointSlice.
        is_silenced |= name in self._guest.slices_lost
        # kube-vip keeps the policy that a Service had while it waited for its address.
        may_be_up = announced or (kind == "cluster" and self._guest.has_endpoints(name))
        is_right = may_be_up if up else not announced
        # The condition has the command for the touch, which the controller is not permitted to make.
        permits_slices = world.network_of(self._guest).permits_slices
        is_silenced |= not up and not permits_slices and _says(service, "not permitted to make")
        # kube-vip counts the endpoints for the policy of before, and the Warning says that no node announces.
        is_silenced |= not up and Reason.NOT_ANNOUNCED in condition_reasons(service)
        # Without a sign that kube-vip answers at all, the condition says what is not known.
        is_silenced |= not up and (is_ignored or _says(service, "No node has noted"))
        if address and not is_right and not (is_decided or is_hidden or is_silenced):
            found.append(f"{address} of {name}, {kind}, is {'' if up else 'not '}announced by kube-vip")
        return found

    def _has_outdated_record(self, service: Document, balancer: Document) -> bool:
        """Return whether a load balancer has a lease that kube-vip lost with a restore, and no other one.

        The Service shows none then, and its condition says what kube-vip needs.
        """
        is_for_lease = balancer["spec"].get("ipam") == "dhcp" and balancer["spec"].get("workloadType") == "cluster"
        has_lease = self._guest.kube_vip.announces(service)
        return is_for_lease and not shown(service) and not has_lease and is_not_ready(service)


def _says(service: Document, text: str) -> bool:
    """Return whether the condition of a Service says something."""
    conditions = service.get("status", {}).get("conditions") or ()
    return any(text in condition.get("message", "") for condition in conditions)


def _is_of_earlier(balancer: Document, service: Document) -> bool:
    """Return whether a load balancer was created for an earlier Service of the same name."""
    meta = service["metadata"]
    name = load_balancer_name(cluster_of(balancer), meta["namespace"], meta["name"], meta["uid"])
    return bool(balancer["metadata"]["name"] != name)


def _shares(service: Document, primary: Document) -> bool:
    """Return whether a Service shares the address of another one."""
    is_named = annotation(service, PRIMARY_SERVICE) == f"{NAMESPACE}/{name_of(primary)}"
    return is_named and service is not primary and bool(shown(service))
