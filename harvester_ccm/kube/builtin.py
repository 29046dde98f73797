"""Built-in types that this package itself reads and writes: Namespace, Event, Lease.

Field names follow the Kubernetes API (https://kubernetes.io/docs/reference/kubernetes-api/).
"""

from typing import Final

from harvester_ccm.kube.objects import Model, Object, Resource, decoder


class LeaseSpec(Model, frozen=True, kw_only=True):
    """``spec`` of a Lease; times are RFC 3339 with microseconds."""

    holder_identity: str | None = None
    lease_duration_seconds: int | None = None
    acquire_time: str | None = None
    renew_time: str | None = None
    lease_transitions: int | None = None


class Lease(Object, frozen=True, kw_only=True):
    """The lock object of leader election."""

    spec: LeaseSpec = LeaseSpec()


NAMESPACES: Final = Resource("", "v1", "namespaces", "Namespace", decoder(Object), namespaced=False)
EVENTS: Final = Resource("", "v1", "events", "Event", decoder(Object), fenced=False)
LEASES: Final = Resource("coordination.k8s.io", "v1", "leases", "Lease", decoder(Lease), fenced=False)
