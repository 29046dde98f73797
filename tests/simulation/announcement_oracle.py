"""Announced or explained: what conditions and Events say about announcements, compared with the state of kube-vip.

Three rules. What is said is true: it was at most some seconds ago when it is written, and does not stay for long after
it has become wrong. A published address that kube-vip has not announced is explained in time. A further announcement is
followed by a touch of the EndpointSlices, or by ``AddressNotAnnounced``.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from math import inf
from typing import Final

from devenv.announcement import HOST_ANNOTATION, is_ignored, wanted_addresses
from harvester_ccm.config import Announcer
from harvester_ccm.kube.errors import KubeError
from harvester_ccm.model.core import ENDPOINT_SLICES, SERVICE_LABEL, SERVICES
from harvester_ccm.names import DHCP_ADDRESS, LOAD_BALANCER_READY
from harvester_ccm.plan.service.announcement import NOTE_SECONDS
from harvester_ccm.plan.service.endpoints import CONFIRM_SECONDS, READ_AGAIN_SECONDS
from tests.simulation.facts import annotation, has_finalizer, name_of, shown, wants_one
from tests.simulation.guest import NAMESPACE, Guest
from tests.simulation.world import EVENTS, World
from tests.support.memory_server import Call, Document, placed
from tests.support.memory_server import name_of as collection_of

CACHE_DELAY: Final = 5.0
"""Seconds after which everything that the controller writes takes a change into account, while all works."""
FAULT_DELAY: Final = 400.0
"""The same around faults: a watch can be silent, and the next list can fail."""
EXPLAINED_WITHIN: Final = NOTE_SECONDS + CONFIRM_SECONDS + 10.0
"""Seconds after which an address must be explained: from the publication, from the last note on any Service, or from
the time when the condition became True. While that was False for another reason, such as a touch that is not permitted,
nothing was judged, and the endpoints are read twice then."""
TOUCHED_WITHIN: Final = 10.0
"""Seconds from the publication within which the endpoints must be touched."""
RESYNC_SECONDS: Final = 660.0
"""Longest interval between two looks at a Service of which nothing changes."""


class Claim(StrEnum):
    """What can be said about an announcement, as a part of the message."""

    NO_ENDPOINT = "The Service has no endpoint"
    NO_LOCAL_ENDPOINT = "No endpoint of the Service takes traffic"
    NO_PERMISSION = "this controller cannot read the EndpointSlices"
    NO_NOTES = "nor that of any other Service"
    IGNORED = "makes kube-vip ignore the Service, so no node announces"
    ENDS_WITH_RESTART = "because annotation kube-vip.io/ignore was set after the announcement"
    ELSEWHERE = "where kube-vip has announced nothing so far"
    SKIPPED_CLASS = "announced only Services without a class so far"
    NO_CAUSE = "although the Service has an endpoint"
    NOT_TOUCHED = "which this controller is not permitted to make"
    NO_LEASE = "kube-vip has not got an address from DHCP yet"


OF_ENDPOINTS: Final = frozenset(
    {Claim.NO_ENDPOINT, Claim.NO_LOCAL_ENDPOINT, Claim.NO_PERMISSION, Claim.ELSEWHERE, Claim.NO_CAUSE, Claim.NO_LEASE}
)
"""Claims for which EndpointSlices are read, which happens now and then only."""
OF_OTHERS: Final = frozenset({Claim.NO_NOTES, Claim.SKIPPED_CLASS})
"""Claims about the notes on other Services."""


def claims_in(message: str) -> set[Claim]:
    """Return what a message says about an announcement."""
    return {claim for claim in Claim if claim in message}


@dataclass
class Known:
    """What the oracle has seen of one Service."""

    published: str = ""
    """The published address that kube-vip is to announce; empty for none."""
    published_at: float = 0.0
    """When it was published, or when the address was announced last."""
    was_up: bool = False
    """Whether kube-vip has announced any address of the Service."""
    is_further: bool = False
    """Whether it had done so before this address was published."""
    is_ready: bool = False
    """Whether the condition is True."""
    ready_at: float = -inf
    """When it became True."""
    touched_at: float = -inf
    """When the controller last changed an EndpointSlice of the Service."""


@dataclass(frozen=True)
class Facts:
    """The state of one Service in the cluster and in kube-vip."""

    has_endpoint: bool
    """Whether it has an endpoint that kube-vip counts on any node."""
    has_endpoint_here: bool
    """Whether it has one that kube-vip counts on its node."""
    is_up: bool
    """Whether kube-vip announces the address in the status."""
    has_lease: bool
    """Whether it announces any address for the Service, and notes the address if it is from DHCP."""
    is_noted: bool
    is_ignored: bool
    is_served: bool
    """Whether kube-vip serves the class."""


class AnnouncementOracle:
    """Checks what is said about the announcement of every Service."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._known: dict[tuple[str, str], Known] = {}
        """By cluster and UID."""
        self._true_at: dict[tuple[str, str, Claim], float] = {}
        """When a claim about a Service (cluster, UID) was last true."""
        self._true_now: set[tuple[str, str, Claim]] = set()
        self._noted: dict[str, set[str]] = {}
        """UIDs of the Services with a note, by cluster."""
        self._noted_at: dict[str, float] = {}
        """When kube-vip last noted a node on a Service that had no note, by cluster."""

    def look(self) -> None:
        """Record what is true now, after a change."""
        now = self._world.loop.time()
        true_now: set[tuple[str, str, Claim]] = set()
        for guest in self._world.guests:
            services = guest.services()
            noted = {uid_of(service) for service in services if annotation(service, HOST_ANNOTATION)}
            if noted - self._noted.get(guest.cluster, set()):
                self._noted_at[guest.cluster] = now
            self._noted[guest.cluster] = noted
            for service in services:
                facts = self._facts(guest, service)
                self._note(self._of(guest, service), service, facts)
                true = self._true_claims(guest, service, facts)
                true_now |= {(guest.cluster, uid_of(service), claim) for claim in true}
        self._true_at |= dict.fromkeys(true_now | self._true_now, now)
        self._true_now = true_now

    def sent(self, call: Call) -> None:
        """Check what a request is to say."""
        if call.is_write and (problem := self._lie(call, self._world.guest_of(call.by))):
            self._world.wrong.append(problem)

    def answered(self, call: Call, error: KubeError | None) -> None:
        """Record a touch of the endpoints that an API server has processed."""
        is_touch = call.is_write and placed(call.path).collection == collection_of(ENDPOINT_SLICES)
        if is_touch and error is None:
            self._note_touch(self._world.guest_of(call.by), placed(call.path).name)

    def late(self) -> list[str]:
        """Return Services whose condition is wrong, or does not say enough, for too long."""
        if self._world.may_be_blind:
            return []
        found = []
        for guest in self._world.guests:
            for service in guest.services():
                found += [f"{name_of(service)} of {guest.cluster} {problem}" for problem in self._late(guest, service)]
        return found

    # What is recorded.

    def _of(self, guest: Guest, service: Document) -> Known:
        return self._known.setdefault((guest.cluster, uid_of(service)), Known())

    def _note(self, known: Known, service: Document, facts: Facts) -> None:
        now = self._world.loop.time()
        known.was_up |= facts.is_up
        is_ready = condition_of(service).get("status") == "True"
        if is_ready and not known.is_ready:
            known.ready_at = now
        known.is_ready = is_ready
        published = published_address(service)
        if published != known.published:
            known.published = published
            known.published_at = now
            known.is_further = known.was_up
        if facts.is_up:
            known.is_further = False
            known.published_at = now

    def _note_touch(self, guest: Guest, name: str) -> None:
        labels = guest.server.of(ENDPOINT_SLICES).get(f"{NAMESPACE}/{name}", {}).get("metadata", {}).get("labels", {})
        service = guest.service(labels.get(SERVICE_LABEL, ""))
        if service is not None:
            self._of(guest, service).touched_at = self._world.loop.time()

    @staticmethod
    def _facts(guest: Guest, service: Document) -> Facts:
        key = f"{NAMESPACE}/{name_of(service)}"
        announced = guest.kube_vip.announced()
        return Facts(
            has_endpoint=guest.kube_vip.counts_endpoint(service, here=False),
            has_endpoint_here=guest.kube_vip.counts_endpoint(service, here=True),
            is_up=any(key in announced.get(address, ()) for address in shown(service)),
            # Until kube-vip handles a deletion, it announces the address of the deleted Service of this name.
            has_lease=guest.kube_vip.announces(service) and guest.kube_vip.notes_lease_of(service),
            is_noted=bool(annotation(service, HOST_ANNOTATION)),
            is_ignored=is_ignored(service),
            is_served=guest.kube_vip.serves_class_of(service),
        )

    def _true_claims(self, guest: Guest, service: Document, facts: Facts) -> set[Claim]:
        """Return what may be said about a Service now."""
        is_announced = facts.is_up and facts.is_noted
        permits_slices = self._world.network_of(guest).permits_slices
        has_class = service["spec"].get("loadBalancerClass") is not None
        truth = {
            Claim.NO_ENDPOINT: not facts.has_endpoint,
            Claim.NO_LOCAL_ENDPOINT: not facts.has_endpoint,
            Claim.NO_PERMISSION: not permits_slices,
            Claim.NO_NOTES: not self._has_note_of_a_managed_service(guest),
            Claim.IGNORED: facts.is_ignored and not is_announced,
            Claim.ENDS_WITH_RESTART: facts.is_ignored and facts.is_noted,
            Claim.ELSEWHERE: not facts.has_endpoint_here and not is_announced,
            Claim.SKIPPED_CLASS: has_class and not is_announced,
            Claim.NO_CAUSE: facts.has_endpoint and not is_announced,
            # Without the permission, the controller does not see whether the user has made the change.
            Claim.NOT_TOUCHED: not facts.is_up or not permits_slices,
            Claim.NO_LEASE: not facts.has_lease,
        }
        return {claim for claim, is_true in truth.items() if is_true}

    @staticmethod
    def _has_note_of_a_managed_service(guest: Guest) -> bool:
        return any(annotation(service, HOST_ANNOTATION) for service in guest.services() if is_managed(service))

    # What is said.

    def _lie(self, call: Call, guest: Guest) -> str:
        """Return what is wrong about a condition or an Event that is written; empty for nothing."""
        if self._world.may_be_blind:
            return ""
        delay = FAULT_DELAY if call.at < self._world.disturbed_until else CACHE_DELAY
        for service, message in said(call, guest):
            before = message_of(service)
            for claim in claims_in(message) - claims_in(before):
                self._world.met[f"said: {claim}"] += 1
                if self._world.loop.time() - self._last_true(guest, service, claim) > delay:
                    return f"{call.by} says about {name_of(service)}, which is not true: {message}"
        return ""

    def _last_true(self, guest: Guest, service: Document, claim: Claim) -> float:
        if (guest.cluster, uid_of(service), claim) in self._true_now:
            return inf
        last = self._true_at.get((guest.cluster, uid_of(service), claim), -inf)
        if claim in {Claim.NO_PERMISSION, Claim.NOT_TOUCHED}:
            return max(last, self._world.network_of(guest).slices_forbidden_at)
        return last

    # What should be said.

    def _late(self, guest: Guest, service: Document) -> list[str]:
        condition, now = condition_of(service), self._world.loop.time()
        if not is_managed(service) or not condition:
            return []
        if guest.is_in_another_harvester():
            # The Event says HarvesterMismatch. Nothing else is judged before that is solved.
            return []
        calm_since = max(self._world.disturbed_until, guest.last_action.get(name_of(service), -inf))
        noted_at = self._noted_at.get(guest.cluster, -inf)
        found = []
        for claim in claims_in(message_of(service)):
            stays = CACHE_DELAY
            since = max(self._last_true(guest, service, claim), calm_since)
            if claim is Claim.IGNORED and not self._is_announced(guest, service):
                # The endpoints decide what is said instead, and they are read twice.
                stays = CACHE_DELAY + CONFIRM_SECONDS
            if claim in OF_ENDPOINTS and not self._is_announced(guest, service):
                stays = RESYNC_SECONDS + READ_AGAIN_SECONDS
            if claim in OF_OTHERS and not self._is_announced(guest, service):
                stays = RESYNC_SECONDS
                since = max(since, noted_at)
            if now - since > stays:
                found.append(f"goes on saying, which is not true: {message_of(service)}")
        known = self._of(guest, service)
        if condition["status"] != "True" or not known.published or self._is_announced(guest, service):
            return found
        return found + self._unexplained(guest, service, known, max(calm_since, known.published_at))

    def _unexplained(self, guest: Guest, service: Document, known: Known, since: float) -> list[str]:
        """Return what is missing about a published address that kube-vip has not announced."""
        now, facts = self._world.loop.time(), self._facts(guest, service)
        if self._world.announcer is Announcer.OTHER:
            # The controller leaves the announcement to another program, also if kube-vip runs.
            return []
        if known.is_further:
            is_expected = facts.has_endpoint_here and facts.is_served and not facts.is_ignored
            # Nothing shows a controller that it missed these changes, at which kube-vip withdraws the address.
            is_unseen = name_of(service) in guest.slices_lost | guest.unseen_changes()
            is_expected = is_expected and not is_unseen
            # A touch that came before kube-vip had handled the withdrawal has no effect.
            has_missed_touch = f"{NAMESPACE}/{name_of(service)}" in guest.kube_vip.missed_touches
            is_expected = is_expected and not (has_missed_touch and known.touched_at > -inf)
            is_late = is_expected and now - since > TOUCHED_WITHIN and known.touched_at < known.published_at
            return ["is to be announced again, and the endpoints are not touched"] if is_late else []
        if facts.is_noted:
            return []
        since = max(since, self._noted_at.get(guest.cluster, -inf))
        is_due = now - since > EXPLAINED_WITHIN and now - known.ready_at > EXPLAINED_WITHIN
        if not is_due or claims_in(message_of(service)):
            return []
        return [f"is not announced, and nothing explains it: {message_of(service)}"]

    def _is_announced(self, guest: Guest, service: Document) -> bool:
        facts = self._facts(guest, service)
        return facts.is_up and facts.is_noted


def uid_of(service: Document) -> str:
    """Return the UID of an object."""
    return str(service["metadata"]["uid"])


def is_managed(service: Document) -> bool:
    """Return whether a Service asks this controller for a load balancer and has its finalizer."""
    return has_finalizer(service) and wants_one(service) and not service["metadata"].get("deletionTimestamp")


def condition_of(service: Document) -> Mapping[str, str]:
    """Return the condition of this controller; empty for none."""
    conditions = (service.get("status") or {}).get("conditions") or ()
    return next((condition for condition in conditions if condition["type"] == LOAD_BALANCER_READY), {})


def message_of(service: Document) -> str:
    """Return the message of this condition; empty for none."""
    return condition_of(service).get("message") or ""


def published_address(service: Document) -> str:
    """Return the address that the status shows and that kube-vip is to announce; empty for none."""
    addresses = shown(service)
    wanted = wanted_addresses(service)
    if not addresses or not wanted:
        return ""
    is_shown = wanted[0] == DHCP_ADDRESS or wanted[0] in addresses
    return addresses[0] if is_shown else ""


def said(call: Call, guest: Guest) -> list[tuple[Document, str]]:
    """Return the Service and the message of a condition or an Event that is written."""
    body = call.body or {}
    if EVENTS in call.path:
        uid = (body.get("involvedObject") or {}).get("uid")
        return [(service, body["message"]) for service in guest.services() if uid_of(service) == uid]
    service = guest.service(placed(call.path).name) if placed(call.path).collection == collection_of(SERVICES) else None
    conditions = (body.get("status") or {}).get("conditions") or ()
    messages = [condition.get("message") or "" for condition in conditions if condition["type"] == LOAD_BALANCER_READY]
    return [(service, message) for message in messages if service is not None]
