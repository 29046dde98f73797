"""The choice of the version of Harvester's load balancer API, and the cache that follows it, on a server in memory."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import Any, Final, TypeVar

from structlog.testing import capture_logs

from harvester_ccm.controllers.lb_api import follow_load_balancers
from harvester_ccm.errors import CCMError, Unreachable
from harvester_ccm.kube.collection import WatchEvent
from harvester_ccm.kube.informer import SECOND_CHOICE_SECONDS, WATCH_MINUTES, Informer, Selection
from harvester_ccm.model.harvester import BEFORE_1_2, LOAD_BALANCERS, LOAD_BALANCERS_V1ALPHA1, LoadBalancer
from harvester_ccm.model.meta import Resource
from tests.worlds.builders import ADDRESS
from tests.worlds.clock import jumping_time
from tests.worlds.memory_server import Call, Document, MemoryClient, MemoryServer, refused

T = TypeVar("T")

GROUP: Final = "/apis/loadbalancer.harvesterhci.io"
LISTS: Final = {version: f"{GROUP}/{version}/namespaces/vms/loadbalancers" for version in ("v1beta1", "v1alpha1")}
OLD, NEW = (f"loadbalancer.harvesterhci.io/{version}/loadbalancers" for version in ("v1alpha1", "v1beta1"))
CHOSEN: Final = "harvester load balancer API"


class Harvester(MemoryServer):
    """Serves load balancers in some versions only, says which, and has the group's versions for other things too."""

    def __init__(self, *served: str) -> None:
        super().__init__()
        self.served = served
        self.discovery_fault: CCMError | None = None

    async def serve(
        self, verb: str, path: str, body: Any, params: Mapping[str, str] | None = None, *, by: str = ""
    ) -> Document:
        """Answer discovery, and 404 without a Status for versions that are not served."""
        if path.count("/") < 5:
            self.calls.append(Call(verb, path, asyncio.get_running_loop().time()))
            if self.discovery_fault is not None:
                raise self.discovery_fault
            return self._discovery(path)
        if not any(f"/{version}/" in path for version in self.served):
            self.calls.append(Call(verb, path, asyncio.get_running_loop().time()))
            raise refused(404, "", "404 page not found")
        return await super().serve(verb, path, body, params, by=by)

    def _discovery(self, path: str) -> Document:
        if path == GROUP:
            return {"versions": [{"version": version} for version in dict.fromkeys([*self.served, "v1beta1"])]}
        version = path.rpartition("/")[2]
        return {"resources": [{"name": "loadbalancers"}] if version in self.served else [{"name": "ippools"}]}

    @property
    def asked(self) -> list[str]:
        """What was listed and asked for so far, in order, without watches."""
        return [call.path.removeprefix(GROUP) or "/" for call in self.calls if call.verb != "WATCH"]


def document(version: str, **more: Any) -> Document:
    """Return a load balancer."""
    spec = {"ipam": "pool", **({"backendServers": ["10.1.0.1"]} if version == "v1alpha1" else {})}
    return {
        "apiVersion": f"loadbalancer.harvesterhci.io/{version}",
        "metadata": {"name": "web", "namespace": "vms", "uid": "lb-uid", **more},
        "spec": spec,
        "status": {"address": ADDRESS},
    }


class Client(MemoryClient):
    """Has every watch end when it asked for it."""

    def __init__(self, server: MemoryServer) -> None:
        super().__init__(server, cluster="harvester", namespace="vms")
        self.watches: list[float] = []
        """How long each watch was asked to last, in seconds."""

    async def watch(
        self, resource: Resource[T], *, namespace: str | None = None, params: Mapping[str, str], silence: float
    ) -> AsyncGenerator[WatchEvent[T], None]:
        """Yield changes until the time is over."""
        self.watches.append(float(params["timeoutSeconds"]))
        end = asyncio.get_running_loop().call_later(self.watches[-1], self.server.break_watches)
        try:
            async for event in super().watch(resource, namespace=namespace, params=params, silence=silence):
                yield event
        finally:
            end.cancel()


def _is_old(load_balancer: LoadBalancer) -> bool:
    return load_balancer.capabilities == BEFORE_1_2


class LoadBalancerCacheWorld:
    """A server and the cache of its load balancers."""

    def __init__(self, *served: str) -> None:
        self.server = Harvester(*served)
        self.client = Client(self.server)
        self.informer: Informer[LoadBalancer] = follow_load_balancers(self.client, Selection("vms"), indexes={})
        self.changes: list[tuple[bool | None, bool | None]] = []
        self.states = 0
        self.informer.on_change(self._changed)
        self.informer.on_state(self._state_changed)

    def _changed(self, old: LoadBalancer | None, new: LoadBalancer | None) -> None:
        self.changes.append((_is_old(old) if old else None, _is_old(new) if new else None))

    def _state_changed(self) -> None:
        self.states += 1

    def upgrade(self) -> None:
        """Serve the new version too, with the same objects in the same versions of theirs, and end all watches."""
        self.server.served = ("v1beta1", "v1alpha1")
        for key, stored in self.server.objects.get(OLD, {}).items():
            meta = stored["metadata"]
            self.server.objects.setdefault(NEW, {})[key] = {**document("v1beta1"), "metadata": meta}
        self.server.break_watches()

    @asynccontextmanager
    async def live(self) -> AsyncIterator[None]:
        """Run the cache for the block."""
        task = asyncio.create_task(self.informer.run())
        try:
            yield
        finally:
            task.cancel()
            await asyncio.wait({task})

    @property
    def problem(self) -> str:
        """Name of the error for which the cache cannot be read; empty while it can."""
        return type(self.informer.problem).__name__ if self.informer.problem else ""

    @property
    def found(self) -> LoadBalancer:
        """The load balancer in the cache."""
        (one,) = self.informer.all()
        return one


def chosen(logs: list[Any]) -> list[str]:
    """Return the versions that the log says were chosen."""
    return [entry["version"] for entry in logs if entry["event"] == CHOSEN]


def problems(logs: list[Any]) -> list[str]:
    """Return the warnings."""
    return [entry["event"] for entry in logs if entry["log_level"] == "warning"]


@jumping_time
async def test_todays_harvester_costs_no_question() -> None:
    scene = LoadBalancerCacheWorld("v1beta1", "v1alpha1")
    scene.server.put(NEW, document("v1beta1"))
    with capture_logs() as logs:
        async with scene.live():
            # Not yet the time at which every collection is listed anew.
            await asyncio.sleep(1700)
    assert scene.server.asked == ["/v1beta1/namespaces/vms/loadbalancers"]
    assert chosen(logs) == ["v1beta1"]
    assert not _is_old(scene.found)
    assert scene.informer.resource == LOAD_BALANCERS


@jumping_time
async def test_harvester_before_1_2_is_no_problem_and_told_once() -> None:
    scene = LoadBalancerCacheWorld("v1alpha1")
    scene.server.put(OLD, document("v1alpha1"))
    with capture_logs() as logs:
        async with scene.live():
            await scene.informer.wait_synced()
            assert scene.server.asked[:5] == [
                "/v1beta1/namespaces/vms/loadbalancers",
                "/",
                "/v1alpha1",
                "/v1beta1",
                "/v1alpha1/namespaces/vms/loadbalancers",
            ]
            await asyncio.sleep(600)
    assert not scene.problem
    assert chosen(logs) == ["v1alpha1"]
    assert problems(logs) == []
    assert scene.found.backends == ("10.1.0.1",)
    assert scene.informer.resource == LOAD_BALANCERS_V1ALPHA1
    assert scene.server.asked.count("/v1alpha1/namespaces/vms/loadbalancers") == 1
    assert scene.server.asked.count("/") <= 1 + 600 / 20


@jumping_time
async def test_upgrade_is_noticed_and_every_object_taken_anew() -> None:
    scene = LoadBalancerCacheWorld("v1alpha1")
    scene.server.put(OLD, document("v1alpha1"))
    with capture_logs() as logs:
        async with scene.live():
            await asyncio.sleep(100)
            scene.changes.clear()
            before, states = scene.found, scene.states
            scene.upgrade()
            await asyncio.sleep(25)
            after = scene.found
            assert scene.changes == [(True, False)]
            assert scene.states == states + 1
            await asyncio.sleep(3600)
    assert chosen(logs) == ["v1alpha1", "v1beta1"]
    assert after.metadata == before.metadata
    assert scene.informer.resource == LOAD_BALANCERS
    assert scene.server.asked[-1] == "/v1beta1/namespaces/vms/loadbalancers"


@jumping_time
async def test_upgrade_that_ends_no_watch_is_noticed_within_seconds() -> None:
    scene = LoadBalancerCacheWorld("v1alpha1")
    async with scene.live():
        await asyncio.sleep(100)
        scene.server.served = ("v1beta1", "v1alpha1")
        await asyncio.sleep(SECOND_CHOICE_SECONDS + 1)
        assert scene.informer.resource == LOAD_BALANCERS
        await asyncio.sleep(3600)
    first, *_, last = scene.client.watches
    assert (first, last >= 60 * WATCH_MINUTES[0]) == (SECOND_CHOICE_SECONDS, True)


@jumping_time
async def test_upgrade_that_shows_a_moment_after_the_watches_ended_is_noticed_soon() -> None:
    scene = LoadBalancerCacheWorld("v1alpha1")
    async with scene.live():
        await asyncio.sleep(105)
        scene.server.break_watches()
        await asyncio.sleep(1.5)
        scene.server.served = ("v1beta1", "v1alpha1")
        await asyncio.sleep(1.5)
        assert scene.informer.resource == LOAD_BALANCERS


@jumping_time
async def test_change_after_the_switch_is_followed_in_the_new_version() -> None:
    scene = LoadBalancerCacheWorld("v1alpha1")
    scene.server.put(OLD, document("v1alpha1"))
    async with scene.live():
        await asyncio.sleep(100)
        scene.upgrade()
        await asyncio.sleep(25)
        scene.server.change(NEW, "vms/web", {"status": {"address": "192.168.100.77"}})
        await asyncio.sleep(1)
        assert (_is_old(scene.found), scene.found.address) == (False, "192.168.100.77")
        scene.server.remove(NEW, "vms/web")
        await asyncio.sleep(1)
    assert scene.informer.all() == ()


@jumping_time
async def test_without_any_version_the_newest_is_waited_for() -> None:
    scene = LoadBalancerCacheWorld()
    with capture_logs() as logs:
        async with scene.live():
            await asyncio.sleep(120)
            assert scene.problem == "NotServed"
            assert chosen(logs) == []
            scene.server.served = ("v1beta1", "v1alpha1")
            await asyncio.sleep(60)
            assert scene.informer.synced
    assert chosen(logs) == ["v1beta1"]
    assert problems(logs) == ["collection cannot be read"]


@jumping_time
async def test_refused_question_is_told_once_and_asked_again() -> None:
    scene = LoadBalancerCacheWorld("v1alpha1")
    scene.server.discovery_fault = refused(403, "Forbidden", "no discovery")
    with capture_logs() as logs:
        async with scene.live():
            await asyncio.sleep(120)
            assert scene.problem == "NotServed"
            scene.server.discovery_fault = None
            await asyncio.sleep(60)
            assert not scene.problem
    assert problems(logs) == ["harvester not asked for its load balancer API", "collection cannot be read"]
    assert chosen(logs) == ["v1alpha1"]


@jumping_time
async def test_harvester_that_comes_late_is_read_in_its_version() -> None:
    scene = LoadBalancerCacheWorld("v1alpha1")
    scene.server.fault, scene.server.served = lambda _call: Unreachable("down"), ("v1beta1", "v1alpha1")
    async with scene.live():
        await asyncio.sleep(60)
        assert scene.problem == "Unreachable"
        assert "/" not in scene.server.asked
        scene.server.fault, scene.server.served = None, ("v1alpha1",)
        await asyncio.sleep(60)
    assert not scene.problem
    assert scene.informer.resource == LOAD_BALANCERS_V1ALPHA1


@jumping_time
async def test_question_that_fails_in_an_outage_changes_nothing() -> None:
    scene = LoadBalancerCacheWorld("v1alpha1")
    scene.server.put(OLD, document("v1alpha1"))
    async with scene.live():
        await asyncio.sleep(100)
        scene.server.discovery_fault = Unreachable("down")
        scene.server.fault = lambda _call: Unreachable("down")
        scene.server.break_watches()
        await asyncio.sleep(300)
        scene.server.discovery_fault = scene.server.fault = None
        await asyncio.sleep(60)
    assert not scene.problem
    assert scene.informer.resource == LOAD_BALANCERS_V1ALPHA1
    assert scene.found.address == ADDRESS
