"""The endpoints of a Service that kube-vip counts: without one it announces no address and gets no lease.

EndpointSlices are not watched. They are read for a touch, and for what is said about an address without a receipt.
"""

from collections.abc import Iterable
from enum import StrEnum, auto
from typing import Final

from msgspec import Struct

from harvester_ccm.model.core import Endpoint, EndpointSlice, Service

READ_AGAIN_SECONDS: Final = 400.0
"""Age at which the endpoints are read again. It is shorter than the interval between two resyncs."""


class Reading(StrEnum):
    """What the EndpointSlices of a Service showed when they were read last."""

    NONE = auto()
    """They have not been read."""
    UNREADABLE = auto()
    """The API server does not permit it, or its answer cannot be decoded."""
    MISSING = auto()
    """There was no endpoint that kube-vip counts."""
    EXIST = auto()


class Endpoints(Struct, frozen=True):
    """The last reading."""

    reading: Reading = Reading.NONE
    at: float = 0.0
    """When it was made, in seconds of the monotonic clock."""

    def is_current(self, now: float) -> bool:
        """Return whether the reading still decides what is said."""
        return self.reading is not Reading.NONE and now - self.at < READ_AGAIN_SECONDS


def reading_of(slices: Iterable[EndpointSlice], service: Service, *, are_complete: bool = True) -> Reading:
    """Return what the EndpointSlices of a Service show; one that cannot be decoded may have endpoints."""
    if slice_to_touch(slices, service, "") is not None:
        return Reading.EXIST
    return Reading.MISSING if are_complete else Reading.UNREADABLE


def slice_to_touch(slices: Iterable[EndpointSlice], service: Service, node: str) -> EndpointSlice | None:
    """Return a slice with an endpoint that kube-vip counts, if possible one on ``node``; None without one.

    kube-vip takes the endpoints of the slice that changed last for all of them: it withdraws the address after a touch
    of any other slice.
    """
    counted = [(endpoint_slice, _counted(endpoint_slice, service)) for endpoint_slice in slices]
    candidates = [(endpoint_slice, endpoints) for endpoint_slice, endpoints in counted if endpoints]
    on_node = [candidate for candidate in candidates if any(endpoint.node_name == node for endpoint in candidate[1])]
    if is_local(service) and on_node:
        candidates = on_node
    return min((candidate[0] for candidate in candidates), key=lambda candidate: candidate.metadata.name, default=None)


def is_local(service: Service) -> bool:
    """Return whether only nodes with an endpoint of the Service take traffic from outside."""
    return service.spec.external_traffic_policy == "Local"


def _counted(endpoint_slice: EndpointSlice, service: Service) -> list[Endpoint]:
    """For externalTrafficPolicy Cluster, every endpoint with an address counts; for Local, a serving one."""
    endpoints = [endpoint for endpoint in endpoint_slice.endpoints or () if endpoint.addresses]
    if not is_local(service):
        return endpoints
    return [endpoint for endpoint in endpoints if endpoint.is_serving]
