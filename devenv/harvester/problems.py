"""Why a load balancer is not served, and what its controller does next."""

from __future__ import annotations

from enum import Enum


class Then(Enum):
    """What follows a failed attempt."""

    BACK_OFF = "try again after a growing pause"
    SECOND = "try again after one second"
    EVENT = "wait for something to change"


class Problem(Exception):
    """Raised when a load balancer cannot be served; the text is the message of its Ready condition."""

    def __init__(self, message: str, then: Then = Then.BACK_OFF) -> None:
        super().__init__(message)
        self.message = message
        self.then = then
