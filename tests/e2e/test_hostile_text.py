"""Texts that others write: the controller keeps its Lease, responds to health checks and serves everybody else."""

import asyncio
from dataclasses import dataclass

import aiohttp
import pytest

from devenv.ccm import CcmProcess
from devenv.harvester import FAST
from devenv.harvester.records import LOAD_BALANCERS
from devenv.hostile import (
    LONG_BYTES,
    NETWORK_BYTES,
    NEW_SERVICES,
    ONE_CLUSTER,
    SERVED_SERVICES,
    SHOWN_BYTES,
    broken_fields,
    foreign_load_balancer,
    is_shown,
    tokens,
)
from devenv.process import ReservedPort
from devenv.restclient import Json
from devenv.stage import VM_NAMESPACE, Stage, until
from harvester_ccm.kube.builtin import Lease
from harvester_ccm.names import (
    IP_POOL,
    NETWORK,
    PRIMARY_SERVICE,
)

pytestmark = [pytest.mark.apiserver, pytest.mark.parametrize("pace", [FAST], ids=["fast"])]

WITHIN = 45.0
"""Seconds. Everything here takes less than one, but a machine can be busy."""
FREQUENT = {"leader-elect-retry-period": "500ms", "node-monitor-period": "500ms"}
"""Flags. A problem of a Node is reported once it has held for the second period."""


@dataclass(frozen=True)
class Victim:
    """The controller that others try to stop."""

    stage: Stage
    run: CcmProcess
    port: int
    lease: Lease
    """As it was before."""

    async def attacked(self, condition: str, *names: str) -> None:
        """Return once each of the Services has an Event that matches nothing but that it was reconciled."""

        async def all_told() -> bool:
            self._is_alive()
            return all([await self.stage.told(name) for name in names])

        await until(all_told, within=WITHIN, what=condition)

    async def is_unharmed(self) -> None:
        """Return once the controller has proved that nothing stops it. Raises AssertionError."""
        await self.stage.create_service("somebody-else")
        await self._serves("somebody-else")
        assert await self._health() == (200, "ok")
        await until(self._renewed, within=WITHIN, what="a renewal of the Lease")
        now, before = (await self.stage.lease()).spec, self.lease.spec
        assert (now.holder_identity, now.lease_transitions) == (before.holder_identity, before.lease_transitions)
        self._is_alive()
        assert not is_shown(self.run.log)
        assert max(map(len, self.run.log.splitlines())) < 2 * SHOWN_BYTES

    async def said_about(self, name: str) -> str:
        """Return all that the controller has written for users about a Service: Events and conditions."""
        status: Json = (await self.stage.service_document(name))["status"]
        told = [event.message for event in await self.stage.told(name)]
        return "\n".join([*told, *(one.get("message", "") for one in status.get("conditions") or ())])

    def _is_alive(self) -> None:
        assert self.run.exit_code is None, f"exit code {self.run.exit_code}: {self.run.log[-SHOWN_BYTES:]}"

    async def _serves(self, name: str) -> None:
        async def served() -> bool:
            self._is_alive()
            service = await self.stage.service(name)
            return service is not None and bool(service.addresses)

        await until(served, within=WITHIN, what=f"an address of {name}")

    async def _renewed(self) -> bool:
        self._is_alive()
        return (await self.stage.lease()).spec.renew_time != self.lease.spec.renew_time

    async def _health(self) -> tuple[int, str]:
        url = f"https://127.0.0.1:{self.port}/healthz"
        async with (
            asyncio.timeout(WITHIN),
            aiohttp.ClientSession() as session,
            session.get(url, ssl=False) as response,
        ):
            return response.status, await response.text()


@pytest.fixture
async def victim(stage: Stage) -> Victim:
    """The leader, with a pool for this cluster and a port for health checks."""
    await stage.harvester.create_pool("lan", "127.77.0.0/24", selector=ONE_CLUSTER)
    port = ReservedPort()
    port.release()
    run = stage.run(flags={"secure-port": str(port.number), **FREQUENT})
    await stage.logged(run, "service controller started")
    return Victim(stage, run, port.number, await stage.lease())


async def test_annotations_of_services_and_load_balancers(stage: Stage, victim: Victim) -> None:
    served = [*SERVED_SERVICES, "main"]
    for name in served:
        await stage.create_service(name)
    await stage.served(*served, within=WITHIN)
    # The load balancers of another cluster, and one with the name of a Service of this one.
    for size in NETWORK_BYTES:
        await create_foreign(stage, f"other-{size}", cluster="other", network=broken_fields(size))
    await create_foreign(stage, "taken", cluster="demo")

    for name, annotations in NEW_SERVICES.items():
        await stage.create_service(name, annotations=annotations)
    await stage.create_service("taken")
    annotations = {PRIMARY_SERVICE: "default/main", NETWORK: tokens(LONG_BYTES)}
    await stage.create_service("tenant", ports=[{"name": "http", "port": 81}], annotations=annotations)
    before = {name: len(await stage.told(name)) for name in SERVED_SERVICES}
    for name, annotations in SERVED_SERVICES.items():
        await stage.change_service(name, {"metadata": {"annotations": annotations}})

    async def told() -> bool:
        return all([len(await stage.told(name)) > count for name, count in before.items()])

    attacking = [*NEW_SERVICES, "taken", "tenant"]
    await victim.attacked("word about new Services", *attacking)
    await until(told, within=WITHIN, what="word about Services that are served")
    await until(lambda: are_refused(stage), within=WITHIN, what="conditions of Harvester")
    await victim.is_unharmed()
    for name in (*attacking, *SERVED_SERVICES):
        assert not is_shown(await victim.said_about(name))


async def create_foreign(stage: Stage, name: str, *, cluster: str, network: str = "") -> None:
    """Create a load balancer of another cluster, whose owner is a long text."""
    document = foreign_load_balancer(
        name,
        namespace=VM_NAMESPACE,
        cluster=cluster,
        service=name,
        network=network,
        owner=tokens(LONG_BYTES - len(network)),
    )
    await stage.host.create(LOAD_BALANCERS, document, namespace=VM_NAMESPACE)


async def are_refused(stage: Stage) -> bool:
    """Return whether Harvester has answered all load balancers of the other cluster with their networks."""
    found = await stage.host_objects(LOAD_BALANCERS.path(VM_NAMESPACE))
    foreign = [one for one in found if one["metadata"]["name"].startswith("other-")]
    messages = [condition.get("message", "") for one in foreign for condition in conditions_of(one)]
    return len(messages) == len(NETWORK_BYTES) and all("no matched IPPool" in message for message in messages)


def conditions_of(load_balancer: Json) -> list[Json]:
    """Return the conditions as Harvester wrote them."""
    found: list[Json] = load_balancer.get("status", {}).get("conditions") or []
    return found


async def test_sentence_of_harvester_in_an_annotation_leaves_nothing_behind(stage: Stage, victim: Victim) -> None:
    """Harvester quotes the pool that does not exist, and never deletes a load balancer that names one in its status."""
    pool = "x fail to reserve 127.77.0.1 into nowhere"
    await stage.create_service("quoting", annotations={IP_POOL: pool})

    async def is_refused() -> bool:
        found = await stage.load_balancers()
        return any(one.ready is not None and pool in one.ready.message for one in found)

    await until(is_refused, within=WITHIN, what="a message of Harvester that quotes the pool")
    await stage.delete_service("quoting")

    async def is_gone() -> bool:
        return await stage.service("quoting") is None and not await stage.load_balancers()

    await until(is_gone, within=WITHIN, what="the end of the Service and its load balancer")
