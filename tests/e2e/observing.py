"""The writes of the controller, and conditions to wait for."""

import itertools
from collections.abc import Mapping

from devenv.faults import Record
from devenv.kubevip import Transition
from devenv.proxy import FaultProxy
from devenv.restclient import Json
from devenv.stage import Stage, until
from harvester_ccm.model.harvester import LoadBalancer
from harvester_ccm.names import IPAM, LB_SERVICE_NAME, Reason

READING = ("GET", "HEAD")
UNRELATED = r"/leases/|/events|/selfsubjectrulesreviews"
"""Writes that are not about a Service or a Node; a review stores nothing."""

FAST_ORPHANS = {"plan.service.ownership.orphans.ORPHAN_GRACE_SECONDS": 3.0, "controllers.orphans.DELETION_PAUSE": 0.5}
"""Times of a run in which orphans are deleted soon."""

_numbers = itertools.count(1)


def ingress_of(service: Json) -> list[Json]:
    """Return the addresses in the status of a Service, without ``ipMode``, which newer API servers add."""
    entries: list[Json] = service["status"]["loadBalancer"]["ingress"]
    return [{key: value for key, value in entry.items() if key != "ipMode"} for entry in entries]


def writes(proxy: FaultProxy, path: str = "") -> list[Record]:
    """Return the writes that went through a proxy, without those of the Lease and of Events."""
    unrelated = {id(record) for record in proxy.matching(path=UNRELATED)}
    found = proxy.matching(path=path)
    return [record for record in found if record.method not in READING and id(record) not in unrelated]


async def caught_up(stage: Stage, reason: str = Reason.INVALID_ANNOTATION) -> None:
    """Return when the controller has reconciled every change of a Service made so far, and written its Events.

    Changes and Events are in order: the Event ``reason`` of a new, invalid Service is the last one.
    """
    name = f"mark-{next(_numbers)}"
    await stage.create_service(name, annotations={IPAM: "mark"})
    await stage.hears(name, reason)
    await stage.delete_service(name)
    await stage.gone(name)


async def announced(stage: Stage, addresses: Mapping[str, set[str]]) -> None:
    """Return once kube-vip announces exactly these addresses, each for the Services with these keys."""

    async def as_expected() -> bool:
        return stage.kube_vip.announced == addresses

    await until(as_expected, within=60, what=f"announcement of {addresses}")


async def transitions(stage: Stage, *expected: Transition) -> None:
    """Return once these are all transitions of kube-vip since its start."""

    async def as_expected() -> bool:
        return stage.kube_vip.transitions == list(expected)

    await until(as_expected, within=60, what=f"transitions {expected}")


async def completed(stage: Stage, name: str) -> LoadBalancer:
    """Return the load balancer of a Service once Harvester has allocated its address and set its finalizer.

    kube-vip has written the lease of a Service with DHCP then.
    """

    async def complete() -> LoadBalancer | None:
        for one in await stage.load_balancers():
            is_complete = one.address and one.metadata.finalizers and not stage.kube_vip.writing
            if one.metadata.label(LB_SERVICE_NAME) == name and is_complete:
                return one
        return None

    return await until(complete, within=60, what=f"complete load balancer of {name}")
