"""Reasons for a load balancer without an address, and the next step of its controller."""

from enum import Enum


class Then(Enum):
    """The next step after a failed reconcile."""

    BACK_OFF = "retry with backoff"
    SECOND = "retry after one second"
    EVENT = "wait for a change"


class Problem(Exception):
    """Raised if a load balancer cannot be reconciled; the text is the message of its Ready condition."""

    def __init__(self, message: str, then: Then = Then.BACK_OFF) -> None:
        super().__init__(message)
        self.message = message
        self.then = then
