"""Harvester's own load balancer controller and webhook, as processes next to an API server.

``HARVESTER_BIN`` is a directory with the executables ``lb-controller`` and ``lb-webhook``, built elsewhere;
``HARVESTER_TAG`` is their version if they do not say it. They need a network namespace of their own: the webhook
listens on port 443 of a Service's address, and the controller connects to the documentation addresses of VMs; both are
made local there. Requires Linux and root.
"""

import asyncio
import os
import re
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Final, Self

from devenv.apiserver import ControlPlane
from devenv.background import Background
from devenv.harvester.emulator import EVERYBODY, Counts, counts_of
from devenv.harvester.hosts import HostVip
from devenv.harvester.ippools import FINALIZER as POOL_FINALIZER
from devenv.harvester.queue import TokenBucket
from devenv.harvester.records import POOLS, SERVICES, Records, is_ready
from devenv.harvester.routes import DOCUMENTATION
from devenv.harvester.webhook import effects_of_webhook
from devenv.kubevipprocess import ip
from devenv.process import ChildProcess, DevenvError
from devenv.watch import Document, documents
from harvester_ccm.kube.builtin import LEASES
from harvester_ccm.kube.client import ApiClient
from harvester_ccm.kube.errors import ApiError, NotFound

CONTROLLER: Final = "lb-controller"
WEBHOOK: Final = "lb-webhook"
NAMESPACE: Final = "harvester-system"
SERVICE: Final = "harvester-load-balancer-webhook"
LOCK: Final = ("kube-system", "harvester-load-balancer")
"""Namespace and name of the Lease of the controller, and up to Harvester 1.5 of a ConfigMap."""
CONFIG_MAPS: Final = documents("", "v1", "configmaps", kind="ConfigMap")
SERVICE_NETWORK: Final = "10.43.0.0/16"
PORT: Final = 443
START_SECONDS: Final = 120.0
POLL_SECONDS: Final = 0.2
_MODULE: Final = re.compile(rb"mod\tgithub\.com/harvester/harvester-load-balancer\t(v[^\t\n]+)")
"""Where Go writes the version of a program into it."""


def harvester_programs() -> Path:
    """Return the directory of ``HARVESTER_BIN``. Raises DevenvError if a program is missing."""
    directory = Path(os.environ.get("HARVESTER_BIN", "")).absolute()
    missing = [name for name in (CONTROLLER, WEBHOOK) if not os.access(directory / name, os.X_OK)]
    if not os.environ.get("HARVESTER_BIN") or missing:
        raise DevenvError("set HARVESTER_BIN=DIRECTORY, with Harvester's executables lb-controller and lb-webhook")
    return directory


def version_of(program: Path) -> str:
    """Return the version that Go wrote into a program of Harvester, or else ``HARVESTER_TAG``.

    Go before 1.24 writes none, nor does any Go without the git directory. Raises DevenvError if there is neither.
    """
    found = _MODULE.search(program.read_bytes())
    if found is not None:
        return found[1].decode()
    if tag := os.environ.get("HARVESTER_TAG"):
        return tag
    raise DevenvError(
        f"{program} does not say from which version of harvester-load-balancer it was built: set HARVESTER_TAG"
    )


def prepare_network() -> None:
    """Make the addresses of Services and VMs local, in a new network namespace."""
    ip("link set lo up")
    for network in (SERVICE_NETWORK, *map(str, DOCUMENTATION)):
        ip(f"route replace local {network} dev lo")


class Listeners:
    """Servers on the addresses of VMs."""

    def __init__(self) -> None:
        self._servers: dict[tuple[str, int], socket.socket] = {}

    def let_answer(self, address: str, port: int, answers: bool) -> None:
        """Accept connections or refuse them."""
        if answers:
            # Harvester's probes reset their connection, so nothing has to accept it.
            self._servers[address, port] = socket.create_server((address, port), backlog=1000)
        elif (address, port) in self._servers:
            self._servers.pop((address, port)).close()

    def close(self) -> None:
        """Close all."""
        for server in self._servers.values():
            server.close()
        self._servers.clear()


@asynccontextmanager
async def _host_vip(client: ApiClient, leases: tuple[str, str]) -> AsyncIterator[None]:
    """Assign the addresses of generated Services, as the kube-vip of Harvester's hosts."""
    services = Records(client, SERVICES, bucket=TokenBucket(None, 1))
    background = Background("host-vip", [services.run, HostVip(services, leases).run])
    await background.start([services.wait_synced], within=START_SECONDS)
    try:
        yield
    finally:
        await background.stop()


class RealHarvester:
    """Controller and webhook of one Harvester, and an emulated kube-vip of its hosts. Use as an async context manager.

    The garbage collector is that of Kubernetes: the control plane needs a controller manager.
    """

    def __init__(self, plane: ControlPlane, client: ApiClient, directory: Path, leases: tuple[str, str]) -> None:
        """``client`` is an administrator's; ``directory`` gets the logs.

        ``leases``: first and last address of the DHCP server in the network of the hosts.
        """
        self._plane = plane
        self._client = client
        self._programs = harvester_programs()
        self._directory = directory
        self._children: dict[str, ChildProcess] = {}
        self._host_vip = _host_vip(client, leases)
        self._address = ""

    async def __aenter__(self) -> Self:
        try:
            await self.start()
            await self._host_vip.__aenter__()
        except BaseException:
            self.stop()
            raise
        return self

    async def __aexit__(self, *_: object) -> None:
        try:
            await self._host_vip.__aexit__(None, None, None)
        finally:
            self.stop()

    async def create_pool(self, name: str, *ranges: str | Document, selector: Document | None = None) -> None:
        """Create a pool and return once it is ready. Raises AdmissionDenied, TimeoutError.

        A range is a CIDR or an entry of ``spec.ranges``. Without a selector the pool is for all clusters.
        """
        entries = [{"subnet": entry} if isinstance(entry, str) else entry for entry in ranges]
        spec = {"ranges": entries, "selector": EVERYBODY if selector is None else selector}
        pool = {"apiVersion": POOLS.api_version, "kind": POOLS.kind, "metadata": {"name": name}, "spec": spec}
        await self._client.create(POOLS, pool)
        async with asyncio.timeout(START_SECONDS):
            while not _is_usable(await self._client.get(POOLS, name)):  # noqa: ASYNC110 - remote state
                await asyncio.sleep(POLL_SECONDS)

    async def counts(self) -> Counts:
        """Return the numbers of load balancers and of allocated addresses."""
        return await counts_of(self._client)

    @property
    def version(self) -> str:
        """The version of the controller."""
        return version_of(self._programs / CONTROLLER)

    async def start(self) -> None:
        """Start both for the first time, and return when both are in effect. Raises TimeoutError, DevenvError."""
        self._plane.apply({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": NAMESPACE}})
        service = {
            "apiVersion": "v1",
            "kind": "Service",
            "metadata": {"name": SERVICE, "namespace": NAMESPACE},
            "spec": {"ports": [{"name": "https", "port": PORT, "targetPort": PORT}]},
        }
        self._plane.apply(service)
        stored = await self._client.get(SERVICES, SERVICE, namespace=NAMESPACE)
        self._address = stored["spec"]["clusterIP"]
        await self.start_controller()
        await self.start_webhook()
        async with asyncio.timeout(START_SECONDS):
            while not await self._is_in_effect():
                self._check()
                await asyncio.sleep(POLL_SECONDS)

    async def start_controller(self) -> None:
        """Start the controller, and return when it has its Lease."""
        self._run(CONTROLLER)
        async with asyncio.timeout(START_SECONDS):
            while not await self._has_lease():
                self._check()
                await asyncio.sleep(POLL_SECONDS)

    async def stop_controller(self) -> None:
        """Kill the controller between two writes, and release its locks for the next one."""
        await asyncio.to_thread(self._children.pop(CONTROLLER).stop, 0)
        namespace, name = LOCK
        await self._client.delete(LEASES, name, namespace=namespace)
        with suppress(NotFound):
            await self._client.delete(CONFIG_MAPS, name, namespace=namespace)

    async def start_webhook(self) -> None:
        """Start the webhook, and return when it listens."""
        self._run(WEBHOOK, "--https-port", str(PORT))
        async with asyncio.timeout(START_SECONDS):
            while not self._listens():
                self._check()
                await asyncio.sleep(POLL_SECONDS)

    async def stop_webhook(self) -> None:
        """Kill the webhook; the API server still asks it."""
        await asyncio.to_thread(self._children.pop(WEBHOOK).stop, 0)

    async def switch(self, what: str, is_on: bool) -> None:
        """Stop or start ``controller`` or ``webhook``."""
        action = {
            ("controller", True): self.start_controller,
            ("controller", False): self.stop_controller,
            ("webhook", True): self.start_webhook,
            ("webhook", False): self.stop_webhook,
        }[what, is_on]
        await action()

    def stop(self) -> None:
        """Stop what runs."""
        for child in self._children.values():
            child.stop(0)
        self._children.clear()

    def log_of(self, name: str) -> Path:
        """Return the log of a program."""
        return self._directory / f"{name}.log"

    def _run(self, name: str, *flags: str) -> None:
        environment = {**os.environ, "KUBECONFIG": str(self._plane.admin_kubeconfig)}
        command: list[str | Path] = [self._programs / name, *flags]
        self._children[name] = ChildProcess.start(name, command, log_file=self.log_of(name), env=environment)

    def _check(self) -> None:
        """Raise DevenvError if a program has ended."""
        for name, child in self._children.items():
            if child.exit_code() is not None:
                raise DevenvError(f"{name} has ended; the end of {child.log_file}:\n{child.log_tail()}")

    async def _has_lease(self) -> bool:
        namespace, name = LOCK
        try:
            lease = await self._client.get(LEASES, name, namespace=namespace)
        except NotFound:
            return False
        return bool(lease.spec.holder_identity)

    def _listens(self) -> bool:
        try:
            socket.create_connection((self._address, PORT), 1).close()
        except OSError:
            return False
        return True

    async def _is_in_effect(self) -> bool:
        """Return whether a dry run is rejected, and another one changed."""
        try:
            return await effects_of_webhook(self._client) == {True}
        except ApiError:
            return False


def _is_usable(pool: Document) -> bool:
    """Whether a pool allocates addresses.

    One for which load balancers wait can do so without ever being ready: Harvester does not repeat the write of the
    condition if it conflicts with that of an allocation.
    """
    allocates = is_ready(pool) or bool((pool.get("status") or {}).get("allocated"))
    return allocates and POOL_FINALIZER in (pool["metadata"].get("finalizers") or ())
