"""The verdict of a plan: whether clients of a Service can reach it, and if not, why.

It is computed once. Condition, Event, metric, ``status`` and ``explain`` print it; nothing else infers it.
"""

from msgspec import Struct

from harvester_ccm.model.event import EventMessage
from harvester_ccm.names import Reason


class Ready(Struct, frozen=True):
    """The Service has its load balancer and its address."""

    addresses: tuple[str, ...]
    message: str


class NotReady(Struct, frozen=True):
    """The Service has no load balancer, or clients cannot reach it."""

    reason: Reason
    message: EventMessage
    """Cause and remedy, in the form of an Event."""
    changes_condition: bool = True
    """Whether the condition becomes False. It stays as it is in an outage that does not concern a Service with an
    address, and in most cases while the usual time has not passed."""
    emits_event: bool = True
    """Whether the message is emitted as an Event. It is not while the usual time has not passed."""


class NotManaged(Struct, frozen=True):
    """This controller does not manage the Service, or not any more: it has no condition of this controller."""

    message: str = ""
    """Why; empty if nothing is left to do."""


Verdict = Ready | NotReady | NotManaged
