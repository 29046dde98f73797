"""The endpoints of a Service that kube-vip counts: without one, it announces no address and gets no lease.

EndpointSlices are not watched. They are read when a Service is not announced although it should be, and read again
after some minutes.
"""

from collections.abc import Callable, Iterable
from enum import StrEnum, auto
from math import inf
from typing import Final

from msgspec import Struct
from msgspec.structs import replace

from harvester_ccm.kube.documents import Page
from harvester_ccm.model.core import Endpoint, EndpointSlice, Service
from harvester_ccm.model.event import abbreviate, quoted

READ_AGAIN_SECONDS: Final = 400.0
"""Age at which the endpoints are read again. It is shorter than the interval between two resyncs."""
CONFIRM_SECONDS: Final = 5.0
"""Time between the two readings that must find an endpoint before a Warning: the first endpoint can be new, and
kube-vip needs a moment."""
CURRENT_SECONDS: Final = 1.0
"""Age up to which a reading is enough for something that the condition does not say yet. Pods and the permission can
have changed since an older one."""


class Reading(StrEnum):
    """Whether the EndpointSlices of a Service were read."""

    NONE = auto()
    """They have not been read."""
    UNREADABLE = auto()
    """The API server does not permit it, or its answer cannot be decoded."""
    DONE = auto()


class Use(StrEnum):
    """What a reading is good for."""

    READ_FIRST = auto()
    """There is none, or it is too old for what is to be said: the EndpointSlices must be read."""
    CONFIRM_LATER = auto()
    """It has found an endpoint that can be new: a second reading is due in some seconds."""
    DECIDES = auto()
    """It decides what is said."""


class Endpoints(Struct, frozen=True):
    """What the EndpointSlices of a Service showed when they were read last."""

    reading: Reading = Reading.NONE
    is_local: bool = False
    """Whether the endpoints were counted for externalTrafficPolicy Local."""
    exist: bool = False
    """Whether there was an endpoint that kube-vip counts."""
    nodes: str = ""
    """Names of the nodes with such an endpoint, for a sentence."""
    is_on_announcing_node: bool = False
    """Whether one of them is on a node on which kube-vip has announced an address."""
    at: float = 0.0
    """When they were read, in seconds of the monotonic clock."""
    exist_since: float = 0.0
    """When the first of the last readings that all found an endpoint was made."""

    def use(self, service: Service, now: float, *, is_said: bool) -> Use:
        """Return what the reading is good for at the monotonic time ``now``.

        ``is_said`` is whether the condition already says what follows from the reading.
        """
        if self.reading is Reading.NONE or self.is_local != is_local(service):
            return Use.READ_FIRST
        is_confirmed = self.at - self.exist_since >= CONFIRM_SECONDS
        if self.exist and not is_confirmed:
            return Use.CONFIRM_LATER if self.seconds_to_confirmation(now) > 0 else Use.READ_FIRST
        longest = READ_AGAIN_SECONDS if is_said else CURRENT_SECONDS
        return Use.DECIDES if now - self.at < longest else Use.READ_FIRST

    def seconds_to_confirmation(self, now: float) -> float:
        """Return the seconds until a second reading can confirm that there is an endpoint."""
        return self.exist_since + CONFIRM_SECONDS - now

    def followed_by(self, newer: "Endpoints", now: float) -> "Endpoints":
        """Return a newer reading, made at the monotonic time ``now``, with the time since which there are endpoints."""
        exist_since = now
        if self.exist and self.is_local == newer.is_local:
            exist_since = self.exist_since
        return replace(newer, at=now, exist_since=exist_since)

    def as_confirmed(self) -> "Endpoints":
        """Return the reading of a command, which is made once and decides."""
        return replace(self, at=inf, exist_since=-inf)


def is_local(service: Service) -> bool:
    """Return whether only nodes with an endpoint of the Service take traffic from outside."""
    return service.spec.external_traffic_policy == "Local"


def count_endpoints(
    slices: Iterable[EndpointSlice], service: Service, is_announcing: Callable[[str], bool]
) -> Endpoints:
    """Return what the EndpointSlices of a Service show, without the times.

    kube-vip counts every address, ready or not, for externalTrafficPolicy Cluster. For Local it counts the serving ones
    on its own node. ``is_announcing`` returns whether kube-vip has announced an address on a node.
    """
    local = is_local(service)
    nodes: set[str] = set()
    exist = False
    for endpoint in _endpoints_in(slices):
        if local and not endpoint.is_serving:
            continue
        exist = True
        nodes.add(endpoint.node_name or "")
    names = sorted(nodes - {""})
    return Endpoints(
        Reading.DONE,
        is_local=local,
        exist=exist,
        nodes=abbreviate(list(map(quoted, names))),
        is_on_announcing_node=any(map(is_announcing, names)),
    )


def endpoints_in(page: Page[EndpointSlice], service: Service, is_announcing: Callable[[str], bool]) -> Endpoints:
    """Return what a list of the EndpointSlices of a Service shows; one that cannot be decoded may have endpoints."""
    endpoints = count_endpoints(page.items, service, is_announcing)
    return unreadable_endpoints(service) if page.unread and not endpoints.exist else endpoints


def unreadable_endpoints(service: Service) -> Endpoints:
    """Return the result of a reading that is not permitted, or that cannot be decoded."""
    return Endpoints(Reading.UNREADABLE, is_local=is_local(service))


def _endpoints_in(slices: Iterable[EndpointSlice]) -> Iterable[Endpoint]:
    for endpoint_slice in slices:
        for endpoint in endpoint_slice.endpoints or ():
            if endpoint.addresses:
                yield endpoint
