"""Whatever happens in whatever order: in the end there is exactly what the Services ask for, and nothing else."""

from __future__ import annotations

import asyncio
import os
import random
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager, suppress

import pytest

from devenv.background import Background
from devenv.eyes import SeenCopy
from devenv.harvester import FAST
from devenv.stage import Stage, until
from devenv.watch import Document, key_of
from harvester_ccm.errors import Conflict, NotFound
from harvester_ccm.kube_vip_names import KUBE_VIP_ADDRESSES
from harvester_ccm.model.core import SERVICES, Service
from harvester_ccm.model.harvester import LOAD_BALANCERS, LoadBalancer
from harvester_ccm.names import (
    HEALTH_CHECK_PORT,
    IP_POOL,
    IPAM,
    LB_CONTROLLER_FINALIZER,
    LB_SERVICE_NAME,
    PRIMARY_SERVICE,
    SERVICE_FINALIZER,
    WORKLOAD_TYPE,
)
from tests.e2e.disturbances import Disturbances

pytestmark = [
    pytest.mark.apiserver,
    pytest.mark.usefixtures("lan"),
    pytest.mark.parametrize("pace", [FAST], ids=["fast"]),
]

SEED_VARIABLE = "SEQUENCES_SEED"
"""Environment variable with the seed of a run that is to be repeated."""
SEQUENCES = 24
"""A few on real servers; ``tests/simulation`` has them by the thousand."""
AT_ONCE = 12
STEPS = (2, 6)
"""Fewest and most changes of one Service."""
LONGEST_PAUSE = 2.0
PRIMARIES = [f"primary-{number}" for number in range(5)]
FOREIGN_ADDRESS = "127.77.0.250"
"""What users write for kube-vip; Harvester gives it to nobody."""
WISHES: tuple[Mapping[str, str | None], ...] = (
    {WORKLOAD_TYPE: "vm"},
    {WORKLOAD_TYPE: "cluster"},
    {WORKLOAD_TYPE: None},
    {HEALTH_CHECK_PORT: "main"},
    {HEALTH_CHECK_PORT: "nonsense"},
    {IPAM: "mark"},
    {IPAM: None},
    {IP_POOL: "no-such-pool"},
    {IP_POOL: None},
    {PRIMARY_SERVICE: None},
    {KUBE_VIP_ADDRESSES: None},
    {KUBE_VIP_ADDRESSES: FOREIGN_ADDRESS},
)


class Sequence:
    """One Service and what users and administrators do to it."""

    def __init__(self, stage: Stage, number: int, seed: int) -> None:
        self._stage = stage
        self._number = number
        self._dice = random.Random(f"{seed} {number}")
        self.name = PRIMARIES[number] if number < len(PRIMARIES) else f"service-{number}"

    async def play(self) -> None:
        """Take some steps, with pauses between them."""
        await self._create()
        for _ in range(self._dice.randint(*STEPS)):
            await asyncio.sleep(self._dice.choice([0.0, self._dice.uniform(0, LONGEST_PAUSE)]))
            step = self._dice.choice(self._steps)
            with suppress(NotFound, Conflict):
                await step()

    @property
    def _steps(self) -> tuple[Callable[[], Awaitable[None]], ...]:
        return (
            self._create, self._create, self._delete, self._wish, self._wish, self._share, self._change_ports,
            self._change_type, self._change_type, self._clear_status, self._delete_balancer,
        )  # fmt: skip

    async def _patch(self, patch: Mapping[str, object]) -> None:
        await self._stage.change_service(self.name, patch)

    async def _create(self) -> None:
        if await self._stage.service(self.name) is None:
            annotations = {key: value for key, value in self._dice.choice(WISHES).items() if value is not None}
            await self._stage.create_service(self.name, ports=self._ports(), annotations=annotations)

    async def _delete(self) -> None:
        await self._stage.delete_service(self.name)

    def _ports(self) -> list[dict[str, object]]:
        # No two Services want the same port: who shares with whom does not depend on chance.
        number = self._dice.choice([20000, 30000]) + self._number
        return [{"name": "main", "port": number, "protocol": self._dice.choice(["TCP", "UDP"])}]

    async def _wish(self) -> None:
        await self._patch({"metadata": {"annotations": dict(self._dice.choice(WISHES))}})

    async def _share(self) -> None:
        if self.name not in PRIMARIES:
            primary = f"default/{self._dice.choice(PRIMARIES)}"
            await self._patch({"metadata": {"annotations": {PRIMARY_SERVICE: primary}}})

    async def _change_ports(self) -> None:
        await self._patch({"spec": {"ports": self._ports()}})

    async def _change_type(self) -> None:
        await self._patch({"spec": {"type": self._dice.choice(["ClusterIP", "LoadBalancer", "NodePort"])}})

    async def _clear_status(self) -> None:
        body = {"status": {"loadBalancer": None}}
        await self._stage.guest.merge_patch(SERVICES, self.name, body, namespace="default", subresource="status")

    async def _delete_balancer(self) -> None:
        for one in await self._stage.load_balancers():
            # Before it has both, Harvester itself would lose the address.
            booked = one.allocated_ip and one.metadata.has_finalizer(LB_CONTROLLER_FINALIZER)
            if booked and one.metadata.label(LB_SERVICE_NAME) == self.name:
                # One that was made again meanwhile has neither yet.
                await self._stage.host.delete(
                    LOAD_BALANCERS, one.metadata.name, namespace="default", uid=one.metadata.uid
                )


class Witness:
    """Which Services came and went without the program ever having put its finalizer on them.

    What kube-vip still announces for such a one is between it and its user.
    """

    def __init__(self) -> None:
        self.unserved: set[str] = set()
        """Their keys."""
        self._prepared: set[str] = set()

    def note(self, before: Document | None, after: Document | None) -> None:
        """Take note of a change of a Service."""
        found = after or before
        if found is None:
            return
        uid = found["metadata"]["uid"]
        if SERVICE_FINALIZER in found["metadata"].get("finalizers", ()):
            self._prepared.add(uid)
        elif after is None and uid not in self._prepared:
            self.unserved.add(key_of(found))


@asynccontextmanager
async def witnessed(stage: Stage) -> AsyncIterator[Witness]:
    """Follow the Services."""
    witness, mirror = Witness(), SeenCopy(stage.guest_eyes, SERVICES.path())
    mirror.subscribe(witness.note)
    background = Background("witness", [mirror.run])
    await background.start([mirror.wait_synced], within=60)
    try:
        yield witness
    finally:
        await background.stop()


async def test_any_sequence_ends_in_what_is_asked_for(stage: Stage) -> None:
    async with witnessed(stage) as witness:
        names = await play_all(stage)
        await make_primaries_sound(stage)
        await settled(stage, witness)

        await asyncio.gather(*(stage.delete_service(name) for name in names))
        await stage.gone(*names, within=60)
        await stage.nothing_left()
    left = {key for keys in stage.kube_vip.minded.values() for key in keys}
    assert set(stage.kube_vip.minded) <= {FOREIGN_ADDRESS}
    assert left <= witness.unserved


async def play_all(stage: Stage) -> list[str]:
    """Play all sequences, disturbed, and return the names of their Services; nothing is broken any more then."""
    seed = int(os.environ.get(SEED_VARIABLE) or random.SystemRandom().randrange(2**32))
    print(f"seed {seed}: set {SEED_VARIABLE}={seed} to repeat")  # noqa: T201 - shown when the test fails
    disturbances = Disturbances(stage, random.Random(seed))
    places = asyncio.Semaphore(AT_ONCE)

    async def play(sequence: Sequence) -> None:
        async with places:
            await sequence.play()

    sequences = [Sequence(stage, number, seed) for number in range(SEQUENCES)]
    disturbing = asyncio.create_task(disturbances.go_on(), name="disturbances")
    try:
        await asyncio.gather(*(play(sequence) for sequence in sequences))
    finally:
        disturbances.end()
        await disturbing
    print(f"disturbed by {dict(disturbances.counts)}")  # noqa: T201 - shown when the test fails
    return [sequence.name for sequence in sequences]


async def make_primaries_sound(stage: Stage) -> None:
    """Have every primary there and served, so that it is certain what its secondaries get."""
    for number, name in enumerate(PRIMARIES):
        while True:
            service = await stage.service(name)
            if service is None:
                ports = [{"name": "main", "port": 20000 + number}]
                await stage.create_service(name, ports=ports)
            elif service.metadata.deleting:
                await leave(stage, name)
                await stage.gone(name, within=60)
                continue
            patch = {IPAM: None, IP_POOL: None}
            await stage.change_service(name, {"metadata": {"annotations": patch}, "spec": {"type": "LoadBalancer"}})
            break


async def leave(stage: Stage, primary: str) -> None:
    """Let no Service name a primary any more: it is not deleted while others have its address."""
    for service in await stage.services():
        if service.metadata.annotation(PRIMARY_SERVICE) == f"default/{primary}":
            with suppress(NotFound):
                await stage.change_service(
                    service.metadata.name, {"metadata": {"annotations": {PRIMARY_SERVICE: None}}}
                )


async def settled(stage: Stage, witness: Witness) -> None:
    """Return when everything is as the Services ask for; raise AssertionError that says what is not."""
    differences = ["not looked yet"]

    async def nothing_wrong() -> bool:
        differences[:] = await find_differences(stage, witness)
        return not differences

    try:
        await until(nothing_wrong, within=90, what="what the Services ask for")
    except TimeoutError:
        raise AssertionError("\n".join(differences)) from None


async def find_differences(stage: Stage, witness: Witness) -> list[str]:
    """Return what is not as it should be."""
    services = {one.metadata.name: one for one in await stage.services()}
    services.pop("kubernetes", None)
    balancers = await stage.load_balancers()
    found: list[str] = []
    for service in services.values():
        own = [one for one in balancers if one.metadata.label(LB_SERVICE_NAME) == service.metadata.name]
        found += wrong_about(service, own, services)
    found += [
        f"{one.metadata.name} without Service"
        for one in balancers
        if one.metadata.label(LB_SERVICE_NAME) not in services
    ]
    foreign = {one.metadata.key for one in services.values() if not one.metadata.has_finalizer(SERVICE_FINALIZER)}
    announcements = wrong_announcements(stage, balancers, foreign | witness.unserved)
    return [*found, *await wrong_books(stage, balancers), *announcements]


def is_refused(service: Service) -> bool:
    """Return whether the program does not serve a Service that it never served: what kube-vip does is the user's."""
    meta = service.metadata
    return meta.annotation(IPAM) not in (None, "pool") and not meta.has_finalizer(SERVICE_FINALIZER)


def wrong_about(service: Service, own: list[LoadBalancer], services: Mapping[str, Service]) -> list[str]:
    """Return what is wrong about one Service, which has these load balancers."""
    meta = service.metadata
    primary = (meta.annotation(PRIMARY_SERVICE) or "").removeprefix("default/")
    if service.spec.type != "LoadBalancer" or meta.deleting:
        clean = not own and not service.addresses and not meta.has_finalizer(SERVICE_FINALIZER) and not meta.deleting
        return [] if clean else [f"{meta.name} not cleaned up: {len(own)} load balancers, {service.addresses}"]
    if is_refused(service) and not own:
        return []
    if meta.annotation(IPAM) not in (None, "pool") and not own and not primary:
        return [f"{meta.name} has an address without a load balancer"] if service.addresses else []
    if primary:
        shared = services[primary].addresses
        right = not own and shared and service.addresses == shared
        return [] if right else [f"{meta.name}: {len(own)}, {service.addresses}, of {primary}, {shared}"]
    if len(own) != 1:
        return [f"{meta.name} has {len(own)} load balancers"]
    return wrong_with(own[0], service)


def wrong_with(balancer: LoadBalancer, service: Service) -> list[str]:
    """Return what is wrong between a Service and its only load balancer."""
    address, kind, pool = balancer.allocated_ip, balancer.spec.workload_type, balancer.spec.ip_pool
    # Harvester itself writes this field of a VM load balancer, and leaves an old address in it.
    written = balancer.address == address or (kind == "vm" and not address)
    served = service.addresses == ((address,) if address else ()) and written
    if served and bool(address) == (pool != "no-such-pool") and not balancer.metadata.deleting:
        return []
    return [f"{service.metadata.name}: {service.addresses}, {kind}, {address}, {pool}, {balancer.address}"]


async def wrong_books(stage: Stage, balancers: tuple[LoadBalancer, ...]) -> list[str]:
    """Return addresses that two have, and addresses that are booked for nobody."""
    held = {one.allocated_ip: one.metadata.key for one in balancers if one.allocated_ip}
    addresses = [one.allocated_ip for one in balancers if one.allocated_ip]
    twice = [f"{address} twice" for address in held if addresses.count(address) > 1]
    booked = (await stage.harvester.bookings()).items()
    return twice + [f"{address} is booked for {owner}" for address, owner in booked if held.get(address) != owner]


def wrong_announcements(stage: Stage, balancers: tuple[LoadBalancer, ...], foreign: set[str]) -> list[str]:
    """Return addresses that kube-vip announces and that are not those of cluster load balancers.

    ``foreign``: Services that the program does not serve, and so may have an address that their users chose.
    """
    rightful = {one.allocated_ip for one in balancers if one.spec.workload_type == "cluster"}
    found = {
        address: sorted(keys - foreign if address == FOREIGN_ADDRESS else keys)
        for address, keys in stage.kube_vip.minded.items()
        if address not in rightful
    }
    return [f"{address} announced for {', '.join(keys)}" for address, keys in found.items() if keys]


async def test_differences_are_found(stage: Stage) -> None:
    # The judge is not blind: while the program does not run, nothing is as it should be.
    await stage.create_service("web")
    assert await find_differences(stage, Witness()) == ["web has 0 load balancers"]
