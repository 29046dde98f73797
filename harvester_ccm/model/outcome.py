"""Outcome of a reconcile, reason to wait, and Event.

A reconcile has three outcomes. It raises an error to be retried with backoff.
"""

from collections.abc import Sequence
from enum import StrEnum
from typing import Final, Literal, Self

from msgspec import Struct

from harvester_ccm.names import NodeReason, Reason
from harvester_ccm.redaction import MAX_MESSAGE, sanitize

COMMAND_TOO_LONG: Final = "harvester-ccm explain prints the command"
"""Stands for a command that is too long for an Event."""
QUOTED: Final = 200
"""Maximum characters of a value in a message."""
NAMED: Final = 5
"""Maximum number of objects that a message names; the others are counted."""


class WaitReason(StrEnum):
    """Why a Service waits; the value is the label ``reason`` of metrics."""

    meaning: str
    """In words; follows "waits for"."""

    def __new__(cls, value: str, meaning: str = "") -> Self:
        """Return a member with its meaning."""
        member = str.__new__(cls, value)
        member._value_ = value
        member.meaning = meaning
        return member

    QUEUED = "queued", "its reconcile; if this stays, see its Events"
    CREATION_QUEUED = (
        "creation_queued",
        "Harvester to respond to the load balancers that were created or deleted before its own",
    )
    NOT_PROCESSED = "not_processed", "Harvester's load balancer controller to reconcile the load balancer"
    ALLOCATING = "allocating", "Harvester to finish allocating an address, which takes seconds"
    ANNOUNCING = "announcing", "the kube-vip of Harvester itself to announce the address"
    NO_MATCHING_POOL = "no_matching_pool", "a ready IP pool in Harvester that fits this Service"
    POOL_EXHAUSTED = "pool_exhausted", "a free address in the IP pool"
    DHCP = "dhcp", "kube-vip in this cluster to get an address from DHCP"
    NETWORK_DEVICE = "network_device", "the device of its network in the nodes, on which the address is announced"
    ENDPOINTS = "endpoints", "the update of its endpoints, without which kube-vip does not announce it again"
    HARVESTER_UNAVAILABLE = (
        "harvester_unavailable",
        "Harvester to respond; nothing is decided while its load balancers or VMs cannot be read",
    )
    OWNERSHIP_CONFLICT = (
        "ownership_conflict",
        "the name or the address of its load balancer, which a load balancer of another cluster has",
    )
    HARVESTER_MISMATCH = (
        "harvester_mismatch",
        "the right Harvester: the one in the cloud-config has no load balancer and no VM of this cluster",
    )
    NODE_PORTS = "node_ports", "Kubernetes to allocate node ports for the Service"
    OLD_LOAD_BALANCER = "old_load_balancer", "the old load balancer to be deleted in Harvester"
    BACKENDS = "backends", "Harvester to set up the load balancer and to check its nodes"
    UNSUPPORTED = (
        "unsupported",
        "a change of the Service: as it is, no load balancer of Harvester can serve it, or it cannot share the address",
    )
    SHARED_ADDRESS = "shared_address", "another Service, with which it shares an address"
    THROTTLED = "throttled", "the rate limit of its writes; another controller probably changes the same fields"
    OTHER = "other", "Harvester to allocate an address; its message is in the Event"


class EventMessage(Struct, frozen=True, gc=False):
    """The content of an Event: what is wrong, where, what to do, and the answer of a server.

    The recorder writes an equal one on an object only once. The fields are put together only when they are printed, so
    that text of others is never taken for a command.
    """

    type: Literal["Normal", "Warning"]
    reason: Reason | NodeReason
    cause: str
    """What is wrong, or what happened: a sentence without a full stop; the rest of one if ``place`` is its subject."""
    remedy: str = ""
    """What to do, without a full stop."""
    command: str = ""
    """A command to paste, in the quoting of a shell. It is printed completely or not at all."""
    place: str = ""
    """The field, annotation or object that is concerned, if ``cause`` does not name it."""
    answer: str = ""
    """What a server said, with its name. It is cut before anything else."""
    subject: str = ""
    """Events with the same reason and subject are equal; empty if the message decides."""

    @property
    def prose(self) -> str:
        """All fields but the command as one text, cut to the length of a message."""
        return self._text(MAX_MESSAGE)

    @property
    def message(self) -> str:
        """All fields as one text of at most the length of a message."""
        if not self.command:
            return self.prose
        ending = f". Run: {self.command}"
        if len(ending) > MAX_MESSAGE // 2:
            ending = f". {COMMAND_TOO_LONG}"
        return self._text(MAX_MESSAGE - len(ending)) + ending

    def _text(self, room: int) -> str:
        """Return the text in ``room`` characters: the cause makes room for the remedy, and the answer for both."""
        remedy = f". {sanitize(self.remedy)}" if self.remedy else ""
        remedy = remedy[: room // 2]
        cause = sanitize(f"{self.place} {self.cause}".lstrip())
        text = cause[: room - len(remedy)] + remedy
        answer = f". {sanitize(self.answer)}" if self.answer else ""
        return text + answer[: room - len(text)]


def quoted(value: str) -> str:
    """Return a value of a tenant in quotes for a sentence, shortened: what follows it must fit into the message.

    >>> quoted("a" * 300)[-8:]
    "aaaa..'"
    """
    shown = value if len(value) <= QUOTED else f"{value[:QUOTED]}..."
    return repr(shown)


def some_of(names: Sequence[str]) -> str:
    """Return names for a sentence: the first ones, and how many more there are.

    >>> some_of(["a", "b", "c", "d", "e", "f", "g"])
    'a, b, c, d, e and 2 more'
    """
    more = f" and {len(names) - NAMED} more" if len(names) > NAMED else ""
    return ", ".join(names[:NAMED]) + more


class Done(Struct, frozen=True):
    """The object is in its desired state; its next change triggers a reconcile."""


class Wait(Struct, frozen=True):
    """Another object must change first, which triggers a reconcile; so does the end of ``at_most`` seconds."""

    reason: str
    """A ``WaitReason`` of a Service; any short text elsewhere."""
    at_most: float | None = None


class Refused(Struct, frozen=True):
    """The user must change the object, which triggers a reconcile."""

    reason: str
    """As of ``Wait``."""


Outcome = Done | Wait | Refused
