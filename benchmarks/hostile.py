"""``python -m benchmarks.hostile``: what others get while somebody tries to stop the controller.

Each part has new API servers and a new controller. It prints one table of measured values and their limits, and exits
with 1 if one is exceeded. Other load on the machine makes every time longer.
"""

import argparse
import asyncio
import contextlib
import itertools
import logging
import os
import re
import signal
import sys
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager
from typing import Any, Final

import structlog

from benchmarks import free_text
from benchmarks.observation import MAX_SECONDS, MIB, Observation, now, observe
from benchmarks.table import LIMITS_HEADING, Limited
from devenv.faults import Fault, Flood
from devenv.harvester.machines import Machine, Machines
from devenv.harvester.queue import FAST, STOCK, Pace
from devenv.harvester.records import LOAD_BALANCERS
from devenv.hostile import (
    LONG_BYTES,
    NETWORK_BYTES,
    NEW_SERVICES,
    NODE_ANNOTATIONS,
    ONE_CLUSTER,
    SERVED_SERVICES,
    broken_fields,
    foreign_load_balancer,
    tokens,
)
from devenv.kubelets import DOCUMENTS, Kubelet, node_document
from devenv.process import DevenvError, run_directory
from devenv.stage import VM_NAMESPACE, Scene, Stage
from devenv.watch import Document, documents
from harvester_ccm.kube.client import ApiClient
from harvester_ccm.kube.errors import KubeError
from harvester_ccm.kube.objects import Resource
from harvester_ccm.model.core import NODES
from harvester_ccm.names import DHCP_ADDRESS, LB_CONTROLLER_FINALIZER, PRIMARY_SERVICE, UNINITIALIZED_TAINT
from harvester_ccm.plan.service.sharing.ranking import MAX_SHARING

SERVICES: Final = documents("", "v1", "services", kind="Service")
SECONDS: Final = 300.0
"""Of the attack with texts. Each other attack takes a fifth of it."""
SHARE: Final = 5
SHARING: Final = 2000
"""Services that name one primary: more than may share its address."""
CREATED: Final = 1000
"""New Services in one namespace."""
LARGE_SERVICES: Final = 1000
LARGE_BALANCERS: Final = 100
LARGE_AT_ONCE: Final = 2
SUSPENSIONS: Final = 10
BURST: Final = 25
"""Services that are created at once."""
BURST_STEP: Final = 6
"""The leader is stopped after this many writes more in each round."""
QUIET_SECONDS: Final = 2.0
"""Time in which a new leader writes what is left from before."""
NO_NODE_PORTS: Final = {"allocateLoadBalancerNodePorts": False}
READING: Final = frozenset({"GET", "HEAD"})
UNRELATED: Final = re.compile(r"/leases/|/events|reviews$")
AT_ONCE: Final = 10
"""Concurrent requests of a tenant."""
SETTLE_SECONDS: Final = 120.0
"""Time for the Services that share an address to get it before the attack begins anyway."""

MOST_TEXT: Final = 50.0
"""ms for a function to read 256 KiB."""
MOST_SERVING: Final = 1.0
"""Seconds to serve a Service of somebody else."""
MOST_SERVING_AT_PACE: Final = 5.0
"""The same at Harvester's pace, while another namespace has many new Services."""
MOST_JOINING: Final = 5.0
"""Seconds to initialize a Node while Harvester's list of load balancers cannot be read."""
MOST_SERVING_WITH_LARGE: Final = 2.0
"""The same while the API servers read and write hundreds of megabytes."""
MOST_MEMORY_WITH_LARGE: Final = 160.0
"""MiB."""

HUGE: Final = 300 * 2**20
ANSWERS: Final[dict[str, tuple[Fault, bool]]] = {
    "body of 300 MiB": (Flood(HUGE), False),
    "error with a body of 300 MiB": (Flood(HUGE, status=500), False),
    "gzip that inflates to 300 MiB": (Flood(HUGE, compressed=True), False),
    "line of a watch of 300 MiB": (Flood(HUGE), True),
}
"""Each answer, and whether it is that to a watch."""


@asynccontextmanager
async def open_stage(pace: Pace, *, announces: bool = False) -> AsyncIterator[Stage]:
    """Yield a stage on new API servers. ``announces``: with an emulated kube-vip, whose load is in this process."""
    with run_directory("hostile") as directory:
        scene = await asyncio.to_thread(Scene.start, directory)
        try:
            announcer = None if announces else contextlib.nullcontext()
            async with Stage(scene, directory, pace=pace, kube_vip=announcer) as stage:
                yield stage
        finally:
            await asyncio.to_thread(scene.stop)


def serving(times: list[float], most: float) -> Limited:
    """Return the row of the seconds in which Services of somebody else were served."""
    return Limited(f"  Services of somebody else: slowest of {len(times)}", max(times), "s", most)


async def free_texts(_seconds: float) -> AsyncIterator[Limited]:
    """Functions that read free text, each with 256 KiB of each word that it looks for."""
    for row in free_text.measure():
        yield Limited(f"  {row.title}", row.value, row.unit, MOST_TEXT)


async def texts(seconds: float) -> AsyncIterator[Limited]:
    """Texts of tenants, of another cluster and of a kubelet, which are read again at each change of a label."""
    async with open_stage(FAST, announces=True) as stage:
        await stage.harvester.create_pool("lan", "10.77.0.0/20", selector=ONE_CLUSTER)
        async with observe(stage) as observation:
            await write_texts(stage)
            names = [*NEW_SERVICES, *SERVED_SERVICES]
            async with repeated(lambda number: touch(stage, names[number % len(names)], number), 0.5):
                times = await observation.serve_for(seconds, pause=2.0)
            yield serving(times, MOST_SERVING)
            for row in observation.rows():
                yield row


async def write_texts(stage: Stage) -> None:
    """Write all hostile texts."""
    for name in SERVED_SERVICES:
        await stage.create_service(name)
    await stage.served(*SERVED_SERVICES, within=MAX_SECONDS)
    for size in NETWORK_BYTES:
        name = f"other-{size}"
        owner, network = tokens(LONG_BYTES - size), broken_fields(size)
        foreign = foreign_load_balancer(
            name, namespace=VM_NAMESPACE, cluster="other", service=name, network=network, owner=owner
        )
        await stage.host.create(LOAD_BALANCERS, foreign, namespace=VM_NAMESPACE)
    node = node_document(Kubelet("hostile"))
    node["metadata"]["annotations"] = NODE_ANNOTATIONS
    await stage.guest.create(DOCUMENTS, node)
    for name, annotations in SERVED_SERVICES.items():
        await stage.change_service(name, {"metadata": {"annotations": annotations}})
    for name, annotations in NEW_SERVICES.items():
        await stage.create_service(name, annotations=annotations)


async def touch(stage: Stage, name: str, number: int) -> None:
    """Change a label of a Service."""
    await stage.change_service(name, {"metadata": {"labels": {"touched": str(number)}}})


@asynccontextmanager
async def repeated(action: Callable[[int], object], pause: float) -> AsyncIterator[None]:
    """Call the action with 0, 1, 2 ... during the block, with a pause between two calls."""

    async def repeat() -> None:
        for number in itertools.count():
            await asyncio.sleep(pause)
            await action(number)  # type: ignore[misc]

    async with asyncio.TaskGroup() as group:
        task = group.create_task(repeat())
        try:
            yield
        finally:
            task.cancel()


async def answers(seconds: float) -> AsyncIterator[Limited]:
    """Answers of Harvester that have no end, instead of its load balancers."""
    for title, (fault, watch) in ANSWERS.items():
        async with open_stage(FAST) as stage:
            stage.harvester_proxy.inject(fault, method="GET", path="/loadbalancers", watch=watch)
            async with observe(stage, proxied=True) as observation:
                end = now() + seconds / SHARE
                joined = await join(stage, observation)
                with contextlib.suppress(TimeoutError):
                    await stage.ended(observation.run, within=max(0.0, end - now()))
                yield Limited(f"{title}: a Node joins", joined, "s", MOST_JOINING)
                for row in observation.rows():
                    yield row
                warnings = observation.run.log.count("list or watch failed")
                yield Limited("  silent about it (1: yes)", float(warnings == 0), "", 0)


async def join(stage: Stage, observation: Observation) -> float:
    """Return the seconds until a new Node is initialized, at most ``MAX_SECONDS``."""
    machines, machine, began = Machines(stage.host), Machine("joining"), now()
    await machines.create(machine, "192.0.2.9")
    await stage.guest.create(DOCUMENTS, node_document(Kubelet(machine.name, system_uuid=machine.system_uuid)))
    while now() < began + MAX_SECONDS and observation.run.exit_code is None:
        node = await stage.guest.get(NODES, machine.name)
        if all(taint.key != UNINITIALIZED_TAINT for taint in node.spec.taints):
            return now() - began
        await asyncio.sleep(0.05)
    return MAX_SECONDS


async def sharing(seconds: float) -> AsyncIterator[Limited]:
    """Services that share one address, and a change of a label of one of them in each second."""
    async with open_stage(FAST) as stage:
        await stage.harvester.create_pool("lan", "10.77.0.0/20")
        async with observe(stage) as observation:
            await stage.create_service("main")
            await stage.served("main", within=MAX_SECONDS)
            names = [f"share-{number}" for number in range(SHARING)]
            annotations = {PRIMARY_SERVICE: "default/main"}
            await create_many(stage, names, annotations=annotations)
            shared = await settle(stage, names)
            async with repeated(lambda number: touch(stage, names[number % SHARING], number), 1.0):
                times = await observation.serve_for(seconds / SHARE, pause=1.0)
            yield Limited(f"  of {MAX_SHARING} Services, without the address", MAX_SHARING - shared, "", 0)
            yield serving(times, MOST_SERVING)
            for row in observation.rows():
                yield row


async def settle(stage: Stage, names: list[str]) -> int:
    """Return how many of the Services have an address, once all that can have one or the time is over."""
    end, expected = now() + SETTLE_SECONDS, set(names)
    while True:
        served = [one for one in await stage.services() if one.addresses and one.metadata.name in expected]
        if len(served) >= MAX_SHARING or now() > end:
            return len(served)
        await asyncio.sleep(2.0)


async def create_many(stage: Stage, names: list[str], *, annotations: dict[str, str] | None = None) -> None:
    """Create Services in the default namespace, each with a port of its own."""
    remaining = iter(enumerate(names, 1000))

    async def work() -> None:
        for port, name in remaining:
            ports = [{"name": "http", "port": port}]
            spec = {"allocateLoadBalancerNodePorts": False}
            await stage.create_service(name, ports=ports, annotations=annotations, spec=spec)

    async with asyncio.TaskGroup() as group:
        for _ in range(AT_ONCE):
            group.create_task(work())


async def creation(seconds: float) -> AsyncIterator[Limited]:
    """New Services in one namespace, at Harvester's pace."""
    async with open_stage(STOCK) as stage:
        await stage.harvester.create_pool("lan", "10.77.0.0/20")
        async with observe(stage) as observation:
            await create_many(stage, [f"new-{number}" for number in range(CREATED)])
            times = await observation.serve_for(seconds / SHARE, pause=2.0)
            yield serving(times, MOST_SERVING_AT_PACE)
            for row in observation.rows():
                yield row


async def annotations(seconds: float) -> AsyncIterator[Limited]:
    """Services of a tenant with annotations of 255 KiB, before and after a restart."""
    services: list[Document] = [
        {
            "metadata": {"name": f"large-{number}", "annotations": {"a": "x" * 255 * 1024}},
            "spec": {"ports": [{"port": 80}]},
        }
        for number in range(LARGE_SERVICES)
    ]
    async with open_stage(FAST) as stage:
        attack = create_large(stage.guest, SERVICES, "default", services)
        async for row in served_beside(stage, seconds, attack):
            yield row


async def descriptions(seconds: float) -> AsyncIterator[Limited]:
    """Load balancers of another cluster with descriptions of 1.4 MB, before and after a restart.

    They are created as Harvester leaves one with DHCP: what is measured is the controller, not the time that Harvester
    needs to write them, for which all clusters wait in its queue.
    """
    balancers = []
    for number in range(LARGE_BALANCERS):
        document = foreign_load_balancer(
            f"large-{number}", namespace=VM_NAMESPACE, cluster="other", service="large", network="", owner="other"
        )
        document["metadata"]["finalizers"] = [LB_CONTROLLER_FINALIZER]
        document["spec"] = {**document["spec"], "ipam": "dhcp", "description": "x" * 1_400_000}
        ready = {"type": "Ready", "status": "True"}
        document["status"] = {"allocatedAddress": {"ip": DHCP_ADDRESS}, "conditions": [ready]}
        balancers.append(document)
    async with open_stage(FAST) as stage:
        attack = create_large(stage.host, LOAD_BALANCERS, VM_NAMESPACE, balancers)
        async for row in served_beside(stage, seconds, attack):
            yield row


async def served_beside(stage: Stage, seconds: float, attack: Coroutine[None, None, None]) -> AsyncIterator[Limited]:
    """Serve Services of somebody else during an attack, and after a restart of the controller."""
    await stage.harvester.create_pool("lan", "10.77.0.0/20", selector=ONE_CLUSTER)
    async with observe(stage) as observation:
        async with asyncio.TaskGroup() as group:
            group.create_task(attack)
            times = await observation.serve_for(seconds / SHARE, pause=1.0)
        yield serving(times, MOST_SERVING_WITH_LARGE)
        for row in observation.rows():
            yield row
        yield Limited("  of it, with large objects", observation.run.peak_memory() / MIB, "MiB", MOST_MEMORY_WITH_LARGE)
        observation.run.stop()
        observation.run = stage.run(fresh=True)
        await stage.logged(observation.run, "became leader", within=MAX_SECONDS)
        times = await observation.serve_for(seconds / SHARE, pause=1.0)
        yield Limited(f"  after a restart: slowest of {len(times)}", max(times), "s", MOST_SERVING_WITH_LARGE)
        yield Limited(
            "  after a restart: peak memory", observation.run.peak_memory() / MIB, "MiB", MOST_MEMORY_WITH_LARGE
        )


async def create_large(client: ApiClient, resource: Resource[Any], namespace: str, bodies: list[Document]) -> None:
    """Create objects, some at a time."""
    remaining = iter(bodies)

    async def work() -> None:
        for body in remaining:
            await client.create(resource, body, namespace=namespace)

    async with asyncio.TaskGroup() as group:
        for _ in range(LARGE_AT_ONCE):
            group.create_task(work())


async def suspension(_seconds: float) -> AsyncIterator[Limited]:
    """A leader that is stopped in a burst of writes until another one leads, with the default flags."""
    async with open_stage(FAST) as stage:
        await stage.harvester.create_pool("lan", "10.77.0.0/20")
        late = [await suspend_in_a_burst(stage, number) for number in range(SUSPENSIONS)]
    yield Limited(f"  rounds of {SUSPENSIONS} with late writes", sum(writes > 0 for writes in late), "", 0)
    yield Limited("  writes after another one leads", sum(late), "", 0)


async def suspend_in_a_burst(stage: Stage, number: int) -> int:
    """Stop a leader when it has sent some writes of a burst; return the number of writes after another one leads."""
    leader = stage.run(proxied=True, fresh=True)
    await stage.logged(leader, "became leader", within=MAX_SECONDS)
    successor = stage.run(fresh=True)
    await stage.logged(successor, "waiting for leadership", within=MAX_SECONDS)
    await asyncio.sleep(QUIET_SECONDS)
    before = writes_through(stage)
    is_stopped = asyncio.Event()

    def stop_in_the_burst() -> None:
        if not is_stopped.is_set() and writes_through(stage) > before + number * BURST_STEP:
            os.killpg(leader.pid, signal.SIGSTOP)
            is_stopped.set()

    for proxy in (stage.guest_proxy, stage.harvester_proxy):
        proxy.listeners[1:] = [stop_in_the_burst]
    names = [f"burst-{number}-{one}" for one in range(BURST)]
    try:
        await asyncio.gather(*(stage.create_service(name, spec=NO_NODE_PORTS) for name in names))
        await is_stopped.wait()
        await stage.logged(successor, "became leader", within=MAX_SECONDS)
        await stage.served(*names, within=MAX_SECONDS)
        sent = writes_through(stage)
    finally:
        os.killpg(leader.pid, signal.SIGCONT)
    await stage.ended(leader, within=MAX_SECONDS)
    successor.stop()
    return writes_through(stage) - sent


def writes_through(stage: Stage) -> int:
    """Return the number of writes that went through the proxies, without those of the Lease and of Events."""
    records = [record for proxy in (stage.guest_proxy, stage.harvester_proxy) for record in proxy.requests]
    return sum(record.method not in READING and not UNRELATED.search(record.path) for record in records)


PARTS: Final[dict[str, Callable[[float], AsyncIterator[Limited]]]] = {
    "functions": free_texts,
    "texts": texts,
    "answers": answers,
    "sharing": sharing,
    "creation": creation,
    "annotations": annotations,
    "descriptions": descriptions,
    "suspension": suspension,
}


async def measure(names: list[str], seconds: float) -> bool:
    """Measure and print parts; return whether all values are within their limits."""
    print(LIMITS_HEADING, flush=True)
    holds = True
    for name in names:
        part = PARTS[name]
        print(f"{name}: {(part.__doc__ or '').partition('.')[0]}", flush=True)
        async for row in part(seconds):
            print(row.line(), flush=True)
            holds = holds and row.holds
    return holds


def main() -> int:
    """Run the attacks and return the exit code."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.hostile", description="Measure harvester-ccm under attack."
    )
    parser.add_argument("--seconds", type=float, default=SECONDS, help="duration of the attack with texts (300)")
    parser.add_argument("parts", nargs="*", default=[*PARTS], metavar="PART", help=f"some of {', '.join(PARTS)}")
    options = parser.parse_args()
    if unknown := sorted({*options.parts} - {*PARTS}):
        parser.error(f"no part has the name {', '.join(unknown)}; the parts are {', '.join(PARTS)}")
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.ERROR))
    try:
        return 0 if asyncio.run(measure(options.parts, options.seconds)) else 1
    except (KubeError, DevenvError, TimeoutError, RuntimeError) as error:
        print(f"benchmarks could not run: {error}", file=sys.stderr)
        return 2


if __name__ == "__main__":
    sys.exit(main())
