"""Looking at what the program does, and knowing when it has done all that it was going to do."""

from __future__ import annotations

import itertools
from collections.abc import Mapping
from pathlib import Path

from devenv.ccm import CcmProcess
from devenv.faults import Record
from devenv.harvester.records import SLICES
from devenv.kubevip import Transition
from devenv.proxy import FaultProxy
from devenv.restclient import wait_until
from devenv.stage import Scene, Stage, until
from harvester_ccm.model.harvester import LoadBalancer
from harvester_ccm.names import IPAM, LB_SERVICE_NAME, Reason
from tests.devenv.emulated import endpoint_slice

READING = ("GET", "HEAD")
BESIDES = r"/leases/|/events"
"""Writes that are no decision about a Service."""

SWEPT_SOON = {"plan.service.orphans.ORPHAN_GRACE": 3.0, "controllers.orphans.DELETION_PAUSE": 0.5}
"""Times of a run in which orphans are deleted soon."""

_numbers = itertools.count(1)


def outcome(
    scene: Scene,
    directory: Path,
    *,
    cloud_config: Path | None = None,
    kubeconfig: Path | None = None,
    flags: Mapping[str, str] | None = None,
) -> tuple[int | None, str]:
    """Return the exit code and the log of a run that ends by itself at its start: it needs no stage."""
    run = CcmProcess.start(
        directory,
        cloud_config=cloud_config or scene.cloud_config,
        kubeconfig=kubeconfig or scene.kubeconfig,
        flags=flags,
        fork=scene.forks,
    )
    try:
        wait_until(lambda: run.exit_code is not None, seconds=60, what="the end of the program")
    finally:
        run.stop()
    return run.exit_code, run.log


def writes(proxy: FaultProxy, path: str = "") -> list[Record]:
    """Return the writes that went through a proxy, without those of the Lease and of Events."""
    besides = {id(record) for record in proxy.matching(path=BESIDES)}
    found = proxy.matching(path=path)
    return [record for record in found if record.method not in READING and id(record) not in besides]


async def give_endpoints(stage: Stage, *names: str) -> None:
    """Let a pod be behind each Service: kube-vip looks at them again when their EndpointSlice changes."""
    for name in names:
        body = endpoint_slice("10.42.0.9", name=f"{name}-1", of=name)
        body["metadata"]["namespace"] = "default"
        await stage.guest.create(SLICES, body, namespace="default")


async def caught_up(stage: Stage, reason: str = Reason.INVALID_ANNOTATION) -> None:
    """Return when the program has seen every change of a Service made so far, and written every Event about it.

    Changes come to it in order, and so do its Events: one that it can only refuse is the mark. ``reason`` is that of
    the refusal.
    """
    name = f"mark-{next(_numbers)}"
    await stage.create_service(name, annotations={IPAM: "mark"})
    await stage.hears(name, reason)
    await stage.delete_service(name)
    await stage.gone(name)


async def retouched(stage: Stage, name: str, reason: str = Reason.INVALID_ANNOTATION) -> None:
    """Make the program look at a Service once more, by a change that means nothing, and wait until it has."""
    await stage.change_service(name, {"metadata": {"labels": {"touched": str(next(_numbers))}}})
    await caught_up(stage, reason)


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
    """Return the load balancer of a Service once Harvester and the program have done all about it."""

    async def complete() -> LoadBalancer | None:
        for one in await stage.load_balancers():
            if one.metadata.label(LB_SERVICE_NAME) == name and one.address and one.metadata.finalizers:
                return one
        return None

    return await until(complete, within=60, what=f"complete load balancer of {name}")
