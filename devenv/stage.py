"""The whole scene in one object: two clusters, Harvester's and kube-vip's behaviour, and the program on it.

What the demo, the benchmarks and the end-to-end tests stand on. ``Scene`` holds the two API servers (slow to start,
shared); ``Stage`` adds the emulators, a fault-injecting proxy in front of each server, and starts the program as a
process of its own.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, AsyncExitStack, suppress
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Final, Self, TypeVar

import msgspec

from devenv.apiserver import ControlPlane, start_clusters
from devenv.ccm import CcmProcess
from devenv.eyes import Eyes, Unseen, addresses_in, compare
from devenv.harvester.emulator import DataPath, HarvesterEmulator
from devenv.harvester.queue import STOCK, Pace
from devenv.kubevip import KubeVip, KubeVipOptions
from devenv.proxy import FaultProxy
from devenv.watch import Document
from harvester_ccm.errors import NotFound
from harvester_ccm.kube.client import ApiClient
from harvester_ccm.kube.credentials import load_kubeconfig
from harvester_ccm.model.core import EVENTS, LEASES, NAMESPACES, NODES, SERVICES, Lease, Node, Service
from harvester_ccm.model.harvester import LOAD_BALANCERS, LoadBalancer
from harvester_ccm.model.meta import Resource

VM_NAMESPACE: Final = "default"
SERVICE_ACCOUNT: Final = "harvester-cloud-provider"
LEASE: Final = ("kube-system", "cloud-controller-manager")
"""Namespace and name of the Lease that a leader holds."""
TOKEN_SECONDS: Final = 60 * 86400
"""For which the program's tokens are good: one that ends soon would be the first thing that ``status`` finds wrong."""
ADDRESS_REPAIR: Final = "ipallocator-repair-controller"
"""Part of the API server that looks after cluster IPs now and then and tells what it finds."""
POLL_SECONDS: Final = 0.02
LOOKING_COSTS: Final = 3.0
"""The pause between two looks is at least so many times as long as a look takes."""
LATE: Final = 0.1
"""What is waited for is seen so late at most, as a part of the time that it took."""
HOST_DHCP_RANGE: Final = ("127.79.0.10", "127.79.0.99")
"""Addresses that the DHCP server in the network of Harvester's hosts leases to VM load balancers."""
END_SECONDS: Final = 3.0
"""Time that runs of the program get to end by themselves when the stage closes."""

T = TypeVar("T")
V = TypeVar("V", Service, Node, Lease, LoadBalancer)


async def until(condition: Callable[[], Awaitable[T | None]], *, within: float, what: str) -> T:
    """Return the condition's value once it is true; raise TimeoutError that says ``what`` was waited for."""
    loop = asyncio.get_running_loop()
    start = loop.time()
    try:
        async with asyncio.timeout(within):
            while True:
                began = loop.time()
                value = await condition()
                if value:
                    return value
                # Looks that cost much are rare, so that looking does not slow down what is waited for.
                now = loop.time()
                await asyncio.sleep(max(POLL_SECONDS, LOOKING_COSTS * (now - began), LATE * (now - start)))
    except TimeoutError:
        raise TimeoutError(f"not within {within:g} s: {what}") from None


@dataclass(frozen=True)
class Scene:
    """Two running API servers and the credentials that the real installation would have."""

    guest: ControlPlane
    harvester: ControlPlane
    cloud_config: Path
    kubeconfig: Path
    forks: bool = False
    """Whether runs of the program are forks. See ``devenv.preloaded``."""

    @classmethod
    def start(
        cls,
        directory: Path,
        *,
        guest_additions: bool = True,
        audit: bool = False,
        controller_manager: bool = False,
    ) -> Scene:
        """Start both; ``guest_additions`` are the rights of this project's chart over the published one.

        ``controller_manager`` runs one in Harvester, which fills Secrets with tokens.
        """
        clusters = start_clusters(
            directory,
            guest_additions=guest_additions,
            audit=audit,
            harvester_controller_manager=controller_manager,
        )
        return cls.on(*clusters)

    @classmethod
    def on(cls, guest: ControlPlane, harvester: ControlPlane, *, forks: bool = False) -> Scene:
        """Return the scene on clusters that run already, as ``devenv.apiserver.start_clusters`` prepared them."""

        def kubeconfig(plane: ControlPlane, namespace: str) -> Path:
            return plane.kubeconfig_for_service_account(
                namespace, SERVICE_ACCOUNT, context_namespace=namespace, expiration_seconds=TOKEN_SECONDS
            )

        return cls(guest, harvester, kubeconfig(harvester, VM_NAMESPACE), kubeconfig(guest, "kube-system"), forks)

    def stop(self) -> None:
        """End both API servers."""
        self.guest.stop()
        self.harvester.stop()


@dataclass(frozen=True)
class Told:
    """An Event, as people read it."""

    type: str
    reason: str
    message: str
    count: int


class Stage:
    """A scene with emulators and clients; starts and ends runs of the program. Use as an async context manager."""

    def __init__(
        self,
        scene: Scene,
        directory: Path,
        *,
        pace: Pace = STOCK,
        kube_vip: KubeVipOptions | AbstractAsyncContextManager[object] | None = None,
    ) -> None:
        """``pace`` is that of Harvester's controllers: as they are installed, unless something else is asked for.

        ``kube_vip`` says how the emulated one is set up, or is what runs in its place.
        """
        self.scene = scene
        self.directory = directory
        self.guest = ApiClient(load_kubeconfig(scene.guest.admin_kubeconfig), cluster="guest-admin")
        self.host = ApiClient(load_kubeconfig(scene.harvester.admin_kubeconfig), cluster="harvester-admin")
        self.guest_eyes = Eyes(scene.guest.admin_kubeconfig)
        self.host_eyes = Eyes(scene.harvester.admin_kubeconfig)
        self.guest_proxy = FaultProxy(scene.guest)
        self.harvester_proxy = FaultProxy(scene.harvester)
        self.harvester = HarvesterEmulator(self.host, pace=pace, data_path=DataPath(dhcp_range=HOST_DHCP_RANGE))
        self._sent = asyncio.Event()
        for proxy in (self.guest_proxy, self.harvester_proxy):
            proxy.listeners.append(self._note_sent)
        options, other = (kube_vip, None) if isinstance(kube_vip, KubeVipOptions) else (None, kube_vip)
        self.kube_vip = KubeVip(self.guest, options)
        self._announcer = other or self.kube_vip
        self.runs: list[CcmProcess] = []
        self._stack = AsyncExitStack()

    async def __aenter__(self) -> Self:
        async with AsyncExitStack() as stack:
            for part in (
                *(self.guest, self.host, self.guest_eyes, self.host_eyes, self.guest_proxy, self.harvester_proxy),
                *(self.harvester, self._announcer),
            ):
                await stack.enter_async_context(part)
            stack.push_async_callback(self._end_runs)
            self._stack = stack.pop_all()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._stack.__aexit__(kind, value, trace)

    def run(  # noqa: PLR0913 - one row of a process table
        self,
        *,
        flags: Mapping[str, str] | None = None,
        arguments: Sequence[str] = (),
        cloud_config: Path | None = None,
        kubeconfig: Path | None = None,
        proxied: bool = False,
        fresh: bool = False,
        times: Mapping[str, float] | None = None,
    ) -> CcmProcess:
        """Start the program on this scene; ``proxied`` lets all that it sends go through the two proxies.

        ``fresh``: in an interpreter of its own even if runs are forks. ``times`` as of ``devenv.preloaded``.
        """
        cloud_config = cloud_config or self.scene.cloud_config
        kubeconfig = kubeconfig or self.scene.kubeconfig
        if proxied:
            cloud_config = self.harvester_proxy.kubeconfig(cloud_config, self.directory / "cloud-config")
            kubeconfig = self.guest_proxy.kubeconfig(kubeconfig, self.directory / "kubeconfig")
        run = CcmProcess.start(
            self.directory,
            cloud_config=cloud_config,
            kubeconfig=kubeconfig,
            flags=flags,
            arguments=arguments,
            fork=self.scene.forks and not fresh,
            times=times,
        )
        self.runs.append(run)
        return run

    async def _end_runs(self) -> None:
        """Ask what still runs to end, while its servers and proxies answer; after a moment make it end."""
        try:
            for run in self.runs:
                run.terminate(0)
            with suppress(TimeoutError):
                async with asyncio.timeout(END_SECONDS):
                    while any(run.exit_code is None for run in self.runs):  # noqa: ASYNC110 - processes
                        await asyncio.sleep(POLL_SECONDS)
        finally:
            for run in self.runs:
                run.stop()

    async def ended(self, run: CcmProcess, *, within: float = 60) -> int:
        """Return the exit code of a run that ends by itself or was asked to, while everything else goes on."""

        async def code() -> tuple[int] | None:
            return None if run.exit_code is None else (run.exit_code,)

        return (await until(code, within=within, what="end of the program"))[0]

    async def logged(self, run: CcmProcess, text: str, *, within: float = 60) -> None:
        """Return once the run has logged ``text``. Raises AssertionError when it ends without."""

        async def found() -> bool:
            assert run.exit_code is None or text in run.log, f"exit code {run.exit_code}: {run.log}"
            return text in run.log

        await until(found, within=within, what=f"{text!r} in the log")

    def _note_sent(self) -> None:
        self._sent.set()
        self._sent = asyncio.Event()

    async def next_request(self, *, within: float = 60) -> None:
        """Return once the next request of a run goes through one of the proxies."""
        try:
            async with asyncio.timeout(within):
                await self._sent.wait()
        except TimeoutError:
            raise TimeoutError(f"not within {within:g} s: a request of the program") from None

    async def create_service(
        self,
        name: str,
        *,
        namespace: str = "default",
        ports: Sequence[Mapping[str, object]] = ({"name": "http", "port": 80},),
        annotations: Mapping[str, str] | None = None,
        spec: Mapping[str, object] | None = None,
    ) -> Service:
        """Create a Service of type LoadBalancer in the guest."""
        body = {
            "apiVersion": "v1",
            "kind": "Service",
            "metadata": {"name": name, "namespace": namespace, "annotations": dict(annotations or {})},
            "spec": {"type": "LoadBalancer", "ports": list(ports), **(spec or {})},
        }
        return await self.guest.create(SERVICES, body, namespace=namespace)

    async def service(self, name: str, namespace: str = "default") -> Service | None:
        """Return a Service as stored, or None."""
        document = await self.guest_eyes.one(f"{SERVICES.path(namespace)}/{name}")
        return None if document is None else _view(SERVICES, document)

    async def service_document(self, name: str, namespace: str = "default") -> Document:
        """Return a Service as it is on the wire. Raises Unseen when there is none."""
        document = await self.guest_eyes.one(f"{SERVICES.path(namespace)}/{name}")
        if document is None:
            raise Unseen(f"no Service {namespace}/{name}")
        return document

    async def change_service(self, name: str, patch: Mapping[str, object], namespace: str = "default") -> Service:
        """Change a Service as a user would: ``patch`` is a JSON merge patch. Raises NotFound."""
        return await self.guest.merge_patch(SERVICES, name, patch, namespace=namespace)

    async def delete_service(self, name: str, namespace: str = "default") -> None:
        """Ask for the deletion of a Service; one that is gone is fine."""
        try:
            await self.guest.delete(SERVICES, name, namespace=namespace)
        except NotFound:
            return

    async def gone(self, *names: str, namespace: str = "default", within: float = 60) -> None:
        """Return once none of the Services exists any more."""

        async def absent() -> bool:
            found = {one["metadata"]["name"] for one in await self.guest_eyes.all(SERVICES.path(namespace))}
            return found.isdisjoint(names)

        await until(absent, within=within, what=f"end of {', '.join(names)}")

    async def served(self, *names: str, namespace: str = "default", within: float = 60) -> list[Service]:
        """Return the Services once each has an address."""

        async def all_served() -> list[Service]:
            found = {one["metadata"]["name"]: one for one in await self.guest_eyes.all(SERVICES.path(namespace))}
            chosen = [found[name] for name in names if name in found and addresses_in(found[name])]
            return [_view(SERVICES, one) for one in chosen] if len(chosen) == len(names) else []

        return await until(all_served, within=within, what=f"addresses of {', '.join(names)}")

    async def services(self, namespace: str | None = "default") -> tuple[Service, ...]:
        """Return the Services as stored; ``namespace`` None means all namespaces."""
        return tuple(_view(SERVICES, one) for one in await self.guest_eyes.all(SERVICES.path(namespace)))

    async def nodes(self) -> dict[str, Node]:
        """Return the Nodes by name, as stored."""
        return {one["metadata"]["name"]: _view(NODES, one) for one in await self.guest_eyes.all(NODES.path())}

    async def lease(self) -> Lease:
        """Return the Lease as stored. Raises Unseen when there is none."""
        path = LEASES.path(*LEASE)
        document = await self.guest_eyes.one(path)
        if document is None:
            raise Unseen(f"no {path}")
        return _view(LEASES, document)

    async def cluster_uid(self) -> str:
        """Return what the guest is known by: the UID of its namespace ``kube-system``."""
        document = await self.guest_eyes.one(NAMESPACES.path(None, "kube-system"))
        if document is None:
            raise Unseen("no namespace kube-system")
        return str(document["metadata"]["uid"])

    async def load_balancers(self) -> tuple[LoadBalancer, ...]:
        """Return the load balancers as stored in Harvester."""
        found = await self.host_eyes.all(LOAD_BALANCERS.path(VM_NAMESPACE))
        return tuple(_view(LOAD_BALANCERS, one) for one in found)

    async def nothing_left(self, within: float = 60) -> None:
        """Return once there is neither a load balancer nor a booked address."""

        async def empty() -> bool:
            counts = await self.harvester.counts()
            return counts.balancers == 0 and counts.booked == 0

        await until(empty, within=within, what="no load balancer and no booked address left")

    async def events(self, kind: str, name: str, namespace: str = "default") -> list[Document]:
        """Return the Events about an object, oldest first; those of the API server itself are left out."""
        selector = f"involvedObject.kind={kind},involvedObject.name={name}"
        found = await self.guest_eyes.all(EVENTS.path(namespace), fieldSelector=selector)
        items = [item for item in found if item.get("reportingComponent") != ADDRESS_REPAIR]
        return sorted(items, key=lambda event: str(event.get("lastTimestamp") or ""))

    async def told(self, name: str, reason: str | None = None, namespace: str = "default") -> list[Told]:
        """Return what users were told about a Service, oldest first; with ``reason`` only that."""
        found = [
            Told(one["type"], one["reason"], one["message"], one.get("count", 1))
            for one in await self.events("Service", name, namespace)
        ]
        return [one for one in found if reason in (None, one.reason)]

    async def hears(self, name: str, reason: str, *, namespace: str = "default", within: float = 60) -> Told:
        """Return the newest Event with this reason about a Service, once there is one."""

        async def heard() -> list[Told]:
            return await self.told(name, reason, namespace)

        return (await until(heard, within=within, what=f"Event {reason} on {namespace}/{name}"))[-1]


def _view(resource: Resource[V], document: Document) -> V:
    """Return what the program reads in the document, when it is what is there."""
    view = resource.decode(msgspec.json.encode(document))
    compare(view, document)
    if isinstance(view, Service):
        assert view.addresses == addresses_in(document), f"{view.addresses} of {document}"
    return view
