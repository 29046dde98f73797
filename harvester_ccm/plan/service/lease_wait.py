"""The wait for an address from DHCP that kube-vip has to get once more: what is done, and when.

kube-vip reads a change of the endpoints at once, and then announces the address if it has the lease by then. So they
are touched several times, until a DHCP server must have answered. A request of its own is made rarely: while no server
answers, kube-vip handles no other Service for about 130 s after each change of this one.
"""

from enum import StrEnum, auto
from typing import Final

from msgspec import Struct
from msgspec.structs import replace

TOUCHED_AFTER_SECONDS: Final = (5.0, 15.0, 45.0, 135.0)
"""Times of the touches after a request. Most DHCP servers answer at once, and kube-vip gives up after about 130 s."""
FIRST_REQUEST_SECONDS: Final = 10.0
"""Time that kube-vip gets to note the lease by itself. It does, unless it has been running since the withdrawal."""
NEXT_REQUEST_SECONDS: Final = 600.0
"""Time from the first request to the second one; each further one takes twice as long."""


class Action(StrEnum):
    """What is due while kube-vip has to get a lease again."""

    WAIT = auto()
    TOUCH = auto()
    """An EndpointSlice is patched: kube-vip may have the lease by now, and announces it only then."""
    REQUEST = auto()
    """The Service is changed in a way that makes kube-vip request the lease from scratch."""


class Step(Struct, frozen=True):
    """What is due, and the seconds until something is due."""

    action: Action
    seconds: float | None = None
    """None: nothing is due any more."""


class LeaseWait(Struct, frozen=True):
    """What was done so far. A restart loses it, and everything is done again."""

    since: float
    """When kube-vip was made to request the lease, in seconds of the monotonic clock."""
    requests: int = 0
    """How often the Service was changed only for that."""
    touches: int = 0
    """How often the endpoints were touched since the last time."""
    is_doubtful: bool = False
    """Whether the Service shows a lease that may be the one from before. kube-vip may get another address now, which
    it notes only if it requests it again."""

    def requested(self, now: float) -> "LeaseWait":
        """Return the wait after another request at the monotonic time ``now``."""
        return LeaseWait(now, self.requests + 1, is_doubtful=self.is_doubtful)

    def touched(self) -> "LeaseWait":
        """Return the wait after another touch."""
        return replace(self, touches=self.touches + 1)

    def doubted(self) -> "LeaseWait":
        """Return the wait if the Service shows a lease before the first request. After one, kube-vip notes another."""
        return self if self.requests else replace(self, is_doubtful=True)

    @property
    def needs_request(self) -> bool:
        """Whether kube-vip must be made to request a lease that it may already have noted."""
        return self.is_doubtful and not self.requests

    @property
    def needs_touch(self) -> bool:
        """Whether kube-vip cannot have announced that lease yet."""
        return self.is_doubtful and not self.touches

    def step(self, now: float, *, may_request: bool) -> Step:
        """Return what is due at the monotonic time ``now``."""
        due: list[tuple[float, Action]] = []
        if self.touches < len(TOUCHED_AFTER_SECONDS):
            due.append((self.since + TOUCHED_AFTER_SECONDS[self.touches], Action.TOUCH))
        if may_request:
            due.append((self.since + self._seconds_to_request(), Action.REQUEST))
        if not due:
            return Step(Action.WAIT)
        at, action = min(due)
        return Step(action) if at <= now else Step(Action.WAIT, at - now)

    def _seconds_to_request(self) -> float:
        if not self.requests:
            return FIRST_REQUEST_SECONDS
        # A much larger exponent would overflow a float.
        return NEXT_REQUEST_SECONDS * 2.0 ** min(self.requests - 1, 64)
