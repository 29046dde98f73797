"""The network between the controller and an API server, with faults."""

import random
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Final

from harvester_ccm.kube.errors import Forbidden, KubeError, Unreachable
from tests.support.memory_server import Call, MemoryServer, Watch, page, refused

SECONDS: Final = (0.001, 0.02)
"""Usual latency of one direction in seconds."""
SLOW: Final = (0.2, 6.0)
"""Latency during the fault ``slow``."""


ERRORS: Final[Mapping[str, Callable[[], KubeError]]] = {
    "404 pages": page,
    "500s": lambda: refused(500, "InternalError", "etcdserver: leader changed"),
    "503s": lambda: refused(503, "ServiceUnavailable", "apiserver is shutting down"),
    "429s": lambda: refused(429, "TooManyRequests", "please try again later"),
    "409s": lambda: refused(409, "Conflict", "the object has been modified"),
    "403s": lambda: refused(403, "Forbidden", "the cluster role is being replaced"),
    "connections refused": lambda: Unreachable("connection refused"),
}
"""Errors of requests that the server does not process."""
IDENTITY_PATH: Final = "/api/v1/namespaces/kube-system"
SLICES_PATH: Final = "/endpointslices"


@dataclass(frozen=True)
class NetworkFault:
    """A fault that lasts for a while."""

    kind: str
    """One of ERRORS, or ``lost answers``, ``slow``, ``late events``, ``dropped events``, ``dropped deletions``."""
    until: float
    share: float
    """Share of the requests that it affects."""
    of: str = ""
    """``reads``, ``writes`` or ``lease`` for requests about the Lease; empty for all."""
    by: str = ""
    """The process that it affects; empty for all."""

    def affects(self, call: Call, dice: random.Random) -> bool:
        if self.by not in {"", call.by} or not self._is_about(call):
            return False
        return dice.random() < self.share

    def _is_about(self, call: Call) -> bool:
        if self.of == "lease":
            return "/leases" in call.path
        return not self.of or (self.of == "writes") is call.is_write


class Network:
    """All requests to one server."""

    def __init__(self, server: MemoryServer, now: Callable[[], float], seed: str, met: Counter[str]) -> None:
        """``met`` counts the faults of requests and events."""
        self._met = met
        self._dice = random.Random(f"{seed} network")
        self._now = now
        self.active: list[NetworkFault] = []
        self.permits_slices = True
        """Whether the controller may read and patch EndpointSlices. It is a setting, and no fault that ends."""
        server.fault = self._fault
        server.lost = self._lost
        server.delay = server.way_back = self._seconds
        server.watch_lag = self._lag
        server.watch_drops = self._drops

    def clear(self) -> None:
        """End all faults."""
        self.active.clear()

    def _present(self, *kinds: str) -> list[NetworkFault]:
        if not self.active:
            return []
        self.active = [one for one in self.active if one.until > self._now()]
        return [one for one in self.active if one.kind in kinds]

    def _fault(self, call: Call) -> KubeError | None:
        error = self._injected(call)
        is_forbidden = isinstance(error, Forbidden) or not self.permits_slices
        if SLICES_PATH in call.path and is_forbidden:
            self._met["EndpointSlices forbidden"] += not self.permits_slices
            return refused(403, "Forbidden", "not permitted")
        return error

    def _injected(self, call: Call) -> KubeError | None:
        for one in self._present(*ERRORS):
            # A process that is forbidden to read the cluster's identity deletes no orphan until it is restarted.
            if one.affects(call, self._dice) and (one.kind, call.path) != ("403s", IDENTITY_PATH):
                self._met[one.kind + (" to the Lease" if one.of == "lease" else "")] += 1
                return ERRORS[one.kind]()
        return None

    def _lost(self, call: Call) -> KubeError | None:
        if any(one.affects(call, self._dice) for one in self._present("lost answers")):
            self._met["lost answers" + (" to writes" if call.is_write else "")] += 1
            return Unreachable("connection broken")
        return None

    def _seconds(self, call: Call) -> float:
        slow = any(one.affects(call, self._dice) for one in self._present("slow"))
        self._met["slow ways"] += slow
        return self._dice.uniform(*(SLOW if slow else SECONDS))

    def _lag(self, watch: Watch) -> float:
        late = any(one.by in {"", watch.by} for one in self._present("late events"))
        self._met["late events"] += late
        return self._dice.uniform(*(SLOW if late else SECONDS))

    def _drops(self, _watch: Watch, event: str) -> bool:
        dropped = any(self._dice.random() < one.share for one in self._present("dropped events"))
        self._met["dropped events"] += dropped
        if event != "DELETED":
            return dropped
        is_lost = any(self._dice.random() < fault.share for fault in self._present("dropped deletions"))
        self._met["dropped deletions"] += is_lost
        return dropped or is_lost
