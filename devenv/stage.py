"""Two clusters, the emulators of Harvester and kube-vip, and the controller, for tests, the demo and benchmarks.

``Scene`` has the two API servers, which start slowly and are shared. ``Stage`` adds the emulators and a fault-injecting
proxy in front of each server, and starts the controller as a process.
"""

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, AsyncExitStack, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Self, TypeVar

import msgspec

from devenv.apiserver import SERVICE_ACCOUNT, ControlPlane, start_clusters
from devenv.ccm import CcmProcess
from devenv.endpointslices import EndpointSlices
from devenv.harvester.emulator import HarvesterEmulator, counts_of
from devenv.harvester.queue import STOCK, Pace
from devenv.kubevip import KubeVip, KubeVipOptions
from devenv.proxy import FaultProxy
from devenv.watch import Document, addresses_in
from harvester_ccm.kube.builtin import EVENTS, LEASES, NAMESPACES, Lease
from harvester_ccm.kube.client import ApiClient
from harvester_ccm.kube.credentials import load_credentials
from harvester_ccm.kube.errors import NotFound
from harvester_ccm.kube.objects import Resource
from harvester_ccm.model.core import NODES, SERVICES, Node, Service
from harvester_ccm.model.harvester import LOAD_BALANCERS, WHOLE_LOAD_BALANCERS, LoadBalancer
from harvester_ccm.redaction import MAX_FOREIGN_TEXT

VM_NAMESPACE: Final = "default"
LEASE: Final = ("kube-system", "cloud-controller-manager")
"""Namespace and name of the Lease."""
TOKEN_SECONDS: Final = 60 * 86400
"""Validity of the controller's tokens: ``status`` warns about a token that expires soon."""
ADDRESS_REPAIR: Final = "ipallocator-repair-controller"
"""Component of the API server that emits Events about cluster IPs."""
POLL_SECONDS: Final = 0.02
MIN_PAUSE: Final = 3.0
"""Minimum pause between two polls, as a multiple of the duration of one."""
MAX_DELAY: Final = 0.1
"""Pause between two polls as a fraction of the time waited so far."""
HOST_DHCP_RANGE: Final = ("127.79.0.10", "127.79.0.99")
"""Addresses of the DHCP server in the network of Harvester's hosts, for VM load balancers."""
END_SECONDS: Final = 3.0
"""Time for controllers to exit after SIGTERM when the stage closes."""

T = TypeVar("T")
V = TypeVar("V", Service, Node, Lease, LoadBalancer)


async def until(condition: Callable[[], Awaitable[T | None]], *, within: float, what: str) -> T:
    """Return the condition's value once it is true; raise TimeoutError that names ``what``."""
    loop = asyncio.get_running_loop()
    start = loop.time()
    try:
        async with asyncio.timeout(within):
            while True:
                began = loop.time()
                value = await condition()
                if value:
                    return value
                # Expensive polls are rare, so that they do not slow down the controller.
                now = loop.time()
                await asyncio.sleep(max(POLL_SECONDS, MIN_PAUSE * (now - began), MAX_DELAY * (now - start)))
    except TimeoutError:
        raise TimeoutError(f"not within {within:g} s: {what}") from None


@dataclass(frozen=True)
class Scene:
    """Two running API servers and the credentials of a real installation."""

    guest: ControlPlane
    harvester: ControlPlane
    cloud_config: Path
    kubeconfig: Path
    forks: bool = False
    """Whether controllers are forks. See ``devenv.preloaded``."""

    @classmethod
    def start(
        cls,
        directory: Path,
        *,
        guest_additions: bool = True,
        audit: bool = False,
        controller_manager: bool = False,
    ) -> "Scene":
        """Start both. ``guest_additions``: with the additional permissions of this project's chart.

        ``controller_manager``: run one in Harvester, which writes tokens into Secrets.
        """
        clusters = start_clusters(
            directory, guest_additions=guest_additions, audit=audit, controller_manager=controller_manager
        )
        return cls.on(*clusters)

    @classmethod
    def on(cls, guest: ControlPlane, harvester: ControlPlane, *, forks: bool = False) -> "Scene":
        """Return the scene on clusters that ``devenv.apiserver.start_clusters`` started."""

        def kubeconfig(plane: ControlPlane, namespace: str) -> Path:
            return plane.kubeconfig_for_service_account(
                namespace, SERVICE_ACCOUNT, context_namespace=namespace, expiration_seconds=TOKEN_SECONDS
            )

        return cls(guest, harvester, kubeconfig(harvester, VM_NAMESPACE), kubeconfig(guest, "kube-system"), forks)

    def stop(self) -> None:
        """Stop both API servers."""
        self.guest.stop()
        self.harvester.stop()


@dataclass(frozen=True)
class Told:
    """The fields of an Event that a user reads."""

    type: str
    reason: str
    message: str
    count: int


class Stage:
    """A scene with emulators and clients; starts and stops controllers. Use as an async context manager."""

    def __init__(
        self,
        scene: Scene,
        directory: Path,
        *,
        pace: Pace = STOCK,
        kube_vip: KubeVipOptions | AbstractAsyncContextManager[object] | None = None,
        harvester: AbstractAsyncContextManager[object] | None = None,
    ) -> None:
        """``pace``: of Harvester's controllers, by default the pace of an installed Harvester.

        ``kube_vip``: options of the emulated kube-vip, or another one. ``harvester``: another one than the emulated.
        """
        self.scene = scene
        self.directory = directory
        self.guest = ApiClient(load_credentials(scene.guest.admin_kubeconfig), cluster="guest-admin")
        self.host = ApiClient(load_credentials(scene.harvester.admin_kubeconfig), cluster="harvester-admin")
        self.guest_proxy = FaultProxy(scene.guest)
        self.harvester_proxy = FaultProxy(scene.harvester)
        self.harvester = HarvesterEmulator(self.host, pace=pace, dhcp_range=HOST_DHCP_RANGE)
        self._host = harvester or self.harvester
        self._sent = asyncio.Event()
        for proxy in (self.guest_proxy, self.harvester_proxy):
            proxy.listeners.append(self._note_sent)
        options, other = (kube_vip, None) if isinstance(kube_vip, KubeVipOptions) else (None, kube_vip)
        self.kube_vip = KubeVip(self.guest, options)
        self._announcer = other or self.kube_vip
        self.endpoints = EndpointSlices(self.guest, node=(options or KubeVipOptions()).settings.node)
        self.runs: list[CcmProcess] = []
        self._stack = AsyncExitStack()

    async def __aenter__(self) -> Self:
        async with AsyncExitStack() as stack:
            for part in (
                self.guest,
                self.host,
                self.guest_proxy,
                self.harvester_proxy,
                self._host,
                self.endpoints,
                self._announcer,
            ):
                await stack.enter_async_context(part)
            stack.push_async_callback(self._end_runs)
            self._stack = stack.pop_all()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._stack.aclose()

    def run(
        self,
        *,
        flags: Mapping[str, str] | None = None,
        cloud_config: Path | None = None,
        kubeconfig: Path | None = None,
        proxied: bool = False,
        fresh: bool = False,
        times: Mapping[str, float] | None = None,
    ) -> CcmProcess:
        """Start a controller; ``proxied``: send all its requests through the two proxies.

        ``fresh``: in a new interpreter even if controllers are forks. ``times``: see ``devenv.preloaded``.
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
            fork=self.scene.forks and not fresh,
            times=times,
        )
        self.runs.append(run)
        return run

    async def _end_runs(self) -> None:
        """Stop the controllers that still run, while their servers and proxies respond; kill them after a timeout."""
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
        """Return the exit code of a controller once it has exited."""

        async def code() -> tuple[int] | None:
            return None if run.exit_code is None else (run.exit_code,)

        return (await until(code, within=within, what="exit of the controller"))[0]

    async def logged(self, run: CcmProcess, text: str, *, within: float = 60) -> None:
        """Return once the controller has logged ``text``. Raises AssertionError if it exits before."""

        async def found() -> bool:
            assert run.exit_code is None or text in run.log, f"exit code {run.exit_code}: {run.log}"
            return text in run.log

        await until(found, within=within, what=f"{text!r} in the log")

    def _note_sent(self) -> None:
        self._sent.set()
        self._sent = asyncio.Event()

    async def next_request(self, *, within: float = 60) -> None:
        """Return once the next request has arrived at one of the proxies."""
        try:
            async with asyncio.timeout(within):
                await self._sent.wait()
        except TimeoutError:
            raise TimeoutError(f"not within {within:g} s: a request of the controller") from None

    async def create_service(
        self,
        name: str,
        *,
        namespace: str = "default",
        ports: Sequence[Mapping[str, object]] = ({"name": "http", "port": 80},),
        annotations: Mapping[str, str] | None = None,
        spec: Mapping[str, object] | None = None,
        pods: int | None = None,
    ) -> Service:
        """Create a Service of type LoadBalancer in the guest cluster, with one ready Pod.

        ``pods``: another number of Pods.
        """
        await self.endpoints.collected(name, namespace=namespace)
        if pods is not None:
            self.endpoints.scale(name, pods, namespace=namespace)
        body = {
            "apiVersion": "v1",
            "kind": "Service",
            "metadata": {"name": name, "namespace": namespace, "annotations": dict(annotations or {})},
            "spec": {"type": "LoadBalancer", "ports": list(ports), "selector": {"app": name}, **(spec or {})},
        }
        return await self.guest.create(SERVICES, body, namespace=namespace)

    async def service(self, name: str, namespace: str = "default") -> Service | None:
        """Return a Service as stored, or None."""
        document = await self.guest_object(f"{SERVICES.path(namespace)}/{name}")
        return None if document is None else _view(SERVICES, document)

    async def service_document(self, name: str, namespace: str = "default") -> Document:
        """Return a Service in JSON. Raises AssertionError if it does not exist."""
        return await self._existing(f"{SERVICES.path(namespace)}/{name}")

    async def change_service(self, name: str, patch: Mapping[str, object], namespace: str = "default") -> Service:
        """Send a JSON merge patch of a Service. Raises NotFound."""
        return await self.guest.merge_patch(SERVICES, name, patch, namespace=namespace)

    async def delete_service(self, name: str, namespace: str = "default") -> None:
        """Delete a Service, if it exists."""
        try:
            await self.guest.delete(SERVICES, name, namespace=namespace)
        except NotFound:
            return

    async def gone(self, *names: str, namespace: str = "default", within: float = 60) -> None:
        """Return once all of the Services are deleted."""

        async def absent() -> bool:
            found = {one["metadata"]["name"] for one in await self.guest_objects(SERVICES.path(namespace))}
            return found.isdisjoint(names)

        await until(absent, within=within, what=f"deletion of {', '.join(names)}")

    async def served(self, *names: str, namespace: str = "default", within: float = 60) -> list[Service]:
        """Return the Services once each has an address."""

        async def all_served() -> list[Service]:
            found = {one["metadata"]["name"]: one for one in await self.guest_objects(SERVICES.path(namespace))}
            chosen = [found[name] for name in names if name in found and addresses_in(found[name])]
            return [_view(SERVICES, one) for one in chosen] if len(chosen) == len(names) else []

        return await until(all_served, within=within, what=f"addresses of {', '.join(names)}")

    async def services(self, namespace: str | None = "default") -> tuple[Service, ...]:
        """Return the Services as stored; ``namespace`` None means all namespaces."""
        return tuple(_view(SERVICES, one) for one in await self.guest_objects(SERVICES.path(namespace)))

    async def nodes(self) -> dict[str, Node]:
        """Return the Nodes by name, as stored."""
        return {one["metadata"]["name"]: _view(NODES, one) for one in await self.guest_objects(NODES.path())}

    async def lease(self) -> Lease:
        """Return the Lease as stored. Raises AssertionError if it does not exist."""
        return _view(LEASES, await self._existing(LEASES.path(*LEASE)))

    async def cluster_uid(self) -> str:
        """Return the identity of the guest cluster: the UID of its namespace ``kube-system``."""
        return str((await self._existing(NAMESPACES.path(None, "kube-system")))["metadata"]["uid"])

    async def load_balancers(self) -> tuple[LoadBalancer, ...]:
        """Return the load balancers as stored in Harvester."""
        found = await self.host_objects(LOAD_BALANCERS.path(VM_NAMESPACE))
        return tuple(_view(WHOLE_LOAD_BALANCERS, one) for one in found)

    async def nothing_left(self, within: float = 60) -> None:
        """Return once there is neither a load balancer nor an allocated address."""

        async def empty() -> bool:
            counts = await counts_of(self.host)
            return counts.balancers == 0 and counts.booked == 0

        await until(empty, within=within, what="no load balancer and no allocated address left")

    async def events(self, kind: str, name: str, namespace: str = "default") -> list[Document]:
        """Return the Events about an object, oldest first, without those of the API server."""
        selector = f"fieldSelector=involvedObject.kind%3D{kind},involvedObject.name%3D{name}"
        found = await self.guest_objects(f"{EVENTS.path(namespace)}?{selector}")
        items = [item for item in found if item.get("reportingComponent") != ADDRESS_REPAIR]
        return sorted(items, key=lambda event: str(event.get("lastTimestamp") or ""))

    async def told(self, name: str, reason: str | None = None, namespace: str = "default") -> list[Told]:
        """Return the Events about a Service, oldest first; with ``reason`` only those."""
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

    async def guest_object(self, path: str) -> Document | None:
        """Return an object of the guest cluster in JSON, or None."""
        return await asyncio.to_thread(self.scene.guest.admin.get_or_none, path)

    async def guest_objects(self, path: str) -> list[Document]:
        """Return the objects of a collection of the guest cluster in JSON."""
        return await asyncio.to_thread(_list, self.scene.guest, path)

    async def host_objects(self, path: str) -> list[Document]:
        """Return the objects of a collection of Harvester in JSON."""
        return await asyncio.to_thread(_list, self.scene.harvester, path)

    async def _existing(self, path: str) -> Document:
        document = await self.guest_object(path)
        assert document is not None, f"{path} does not exist"
        return document


def _list(plane: ControlPlane, path: str) -> list[Document]:
    items: list[Document] = plane.admin.request("GET", path)["items"]
    return items


def _view(resource: Resource[V], document: Document) -> V:
    """Return the controller's view of a document. Raises AssertionError if their fields differ."""
    view = resource.decode(msgspec.json.encode(document))
    assert _agrees(msgspec.to_builtins(view), document), f"{view} of {document}"
    if isinstance(view, Service):
        assert view.addresses == addresses_in(document), f"{view.addresses} of {document}"
    return view


def _agrees(value: object, shown: object) -> bool:
    """Return whether a decoded value equals what the document has: a text its beginning, a list some of its entries."""
    if isinstance(value, dict) and isinstance(shown, dict):
        return all(_agrees(one, shown[key]) for key, one in value.items() if shown.get(key) is not None)
    if isinstance(value, list | tuple) and isinstance(shown, list):
        return all(any(_agrees(one, entry) for entry in shown) for one in value)
    if isinstance(value, str) and isinstance(shown, str) and len(value) >= MAX_FOREIGN_TEXT:
        return shown.startswith(value)
    if value == "" and isinstance(shown, str):
        # The controller keeps only the key of an annotation that it does not know.
        return True
    return value == shown
