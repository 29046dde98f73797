"""Runs the program beside kube-vip itself and tells which addresses kube-vip puts on the node.

``python -m devenv.realkubevip`` builds the kube-vip that ``devenv/gobuild-kube-vip`` pins and runs it with the chart's
settings against a real guest API server, in a network namespace of its own with a device that leads nowhere; Harvester
is emulated. It needs Linux and root, and takes under two minutes once all is built. What the emulator in
``devenv/kubevip.py`` does is derived from what kube-vip does here.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import shutil
import subprocess
import sys
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from types import TracebackType
from typing import Final, NoReturn

from devenv.announcement import ADDRESS_ANNOTATION
from devenv.binaries import KUBE_VIP, require
from devenv.harvester.queue import FAST
from devenv.logfile import logs_to
from devenv.process import ChildProcess, DevenvError, run_directory
from devenv.stage import Scene, Stage, until
from devenv.watch import documents
from harvester_ccm.names import HEALTH_CHECK_PORT, IP_POOL, IPAM, PRIMARY_SERVICE, WORKLOAD_TYPE, Reason

NODE: Final = "node-1"
DEVICE: Final = "eth0"
NODE_ADDRESS: Final = "10.9.0.1"
POOL: Final = "10.9.100.0/24"
LATER_POOL: Final = "10.9.102.0/24"
PINNED: Final = "10.9.101.7"
OTHER: Final = "10.9.103.7"
SETTINGS: Final = {
    "vip_interface": DEVICE,
    "vip_arp": "true",
    "lb_enable": "true",
    "lb_port": "6443",
    "vip_subnet": "32",
    "cp_enable": "false",
    "svc_enable": "true",
    "svc_election": "false",
    "vip_leaderelection": "false",
    "vip_nodename": NODE,
    "prometheus_server": "127.0.0.1:2112",
}
"""Environment of kube-vip: the values of the chart, and a device and node of this place."""
UP_SECONDS: Final = 40.0
"""kube-vip looks for the address of a new Service once a second, and at one Service after the other."""
LATE_SECONDS: Final = 1.0
"""In which kube-vip has looked at the first of some waiting Services, and not yet at the others."""
STEADY_SECONDS: Final = 4.0
"""How long addresses are watched once they are as they should be: the older events are met after the address."""

_SLICES: Final = documents("discovery.k8s.io", "v1", "endpointslices", kind="EndpointSlice")
_NODES: Final = documents("", "v1", "nodes", kind="Node")

Case = Callable[["Place"], Awaitable[None]]


class Announcer:
    """kube-vip as a process. Use as an async context manager."""

    def __init__(self, scene: Scene, directory: Path) -> None:
        self._kubeconfig = scene.guest.admin_kubeconfig
        self._log = directory / "kube-vip.log"
        self._child: ChildProcess | None = None

    async def __aenter__(self) -> None:
        command: list[str | Path] = [require("kube-vip")["kube-vip"], "manager", "--k8sConfigPath", self._kubeconfig]
        self._child = ChildProcess.start("kube-vip", command, log_file=self._log, env={**os.environ, **SETTINGS})

    async def __aexit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._child is not None:
            self._child.stop()


class Place:
    """A stage with the real kube-vip, and what is asked of it."""

    def __init__(self, stage: Stage) -> None:
        self.stage = stage

    async def create(
        self, *names: str, port: int = 80, annotations: dict[str, str] | None = None, wish: str | None = None
    ) -> None:
        """Create Services at once; pods are behind them."""
        for name in names:
            await self.give_endpoints(name)
        ports = [{"name": "main", "port": port}]
        spec = {"loadBalancerIP": wish} if wish else None
        await asyncio.gather(
            *(self.stage.create_service(name, ports=ports, annotations=annotations, spec=spec) for name in names)
        )

    async def give_endpoints(self, name: str) -> None:
        """Let a ready pod be behind a Service."""
        meta = {"name": f"{name}-1", "namespace": "default", "labels": {"kubernetes.io/service-name": name}}
        endpoint = {"addresses": ["10.42.0.9"], "conditions": {"ready": True}, "nodeName": NODE}
        ports = [{"name": "main", "port": 80, "protocol": "TCP"}]
        body = {"metadata": meta, "addressType": "IPv4", "ports": ports, "endpoints": [endpoint]}
        await self.stage.guest.create(
            _SLICES, {"apiVersion": "discovery.k8s.io/v1", "kind": "EndpointSlice", **body}, namespace="default"
        )

    async def annotate(self, name: str, key: str, value: str) -> None:
        """Change an annotation of a Service."""
        await self.stage.change_service(name, {"metadata": {"annotations": {key: value}}})

    async def announces(self, *names: str) -> set[str]:
        """Return the addresses of the Services, all served and on the node for some time. Raises TimeoutError."""

        async def up() -> set[str]:
            found = {service.addresses[0] for service in await self.stage.served(*names, within=UP_SECONDS)}
            return found if found <= _on_node() else set()

        addresses = await until(up, within=UP_SECONDS, what=f"announcement of {', '.join(names)}")
        await self._stays(lambda: addresses <= _on_node(), f"{', '.join(names)} went down again")
        return addresses

    async def gone(self, *addresses: str) -> None:
        """Return when the addresses are gone from the node. Raises TimeoutError."""

        async def gone() -> bool:
            return _on_node().isdisjoint(addresses)

        await until(gone, within=UP_SECONDS, what=f"end of the announcement of {', '.join(addresses)}")

    async def silent(self, *addresses: str) -> None:
        """Return when the addresses are gone from the node for some time. Raises TimeoutError."""
        await self.gone(*addresses)
        await self._stays(lambda: _on_node().isdisjoint(addresses), f"{', '.join(addresses)} came up")

    async def _stays(self, condition: Callable[[], bool], otherwise: str) -> None:
        loop = asyncio.get_running_loop()
        end = loop.time() + STEADY_SECONDS
        while loop.time() < end:
            if not condition():
                raise TimeoutError(otherwise)
            await asyncio.sleep(0.1)


async def one_after_the_other(place: Place) -> None:
    """Three Services, one after the other"""
    for name in ("one", "two", "three"):
        await place.create(name)
        await place.announces(name)


async def many_at_once(place: Place) -> None:
    """Ten Services at once"""
    names = [f"many-{number}" for number in range(10)]
    await place.create(*names)
    await place.announces(*names)


async def late_addresses(place: Place) -> None:
    """Six Services at once whose addresses come while kube-vip looks for those of the first"""
    names = [f"late-{number}" for number in range(6)]
    await place.create(*names, annotations={IP_POOL: "later"})
    await asyncio.sleep(LATE_SECONDS)
    await place.stage.harvester.create_pool("later", LATER_POOL, selector=_only_where_named("later"))
    await place.announces(*names)


async def late_endpoints(place: Place) -> None:
    """A Service whose pods become ready later"""
    await place.stage.create_service("early", ports=[{"name": "main", "port": 80}])
    await place.stage.served("early")
    await place.give_endpoints("early")
    await place.announces("early")


async def granted_wish(place: Place) -> None:
    """An address in the specification, from a pool of that single one"""
    await place.create("pinned", annotations={IP_POOL: "pinned"}, wish=PINNED)
    if await place.announces("pinned") != {PINNED}:
        raise TimeoutError("another address than the pinned one")


async def shared_address(place: Place) -> None:
    """A primary with a secondary made before and one made after it"""
    await place.create("before", port=81, annotations={PRIMARY_SERVICE: "default/primary"})
    await place.stage.hears("before", Reason.SHARING_REJECTED)
    await place.create("primary")
    await place.create("after", port=82, annotations={PRIMARY_SERVICE: "default/primary"})
    addresses = await place.announces("before", "primary", "after")
    for name in ("before", "after", "primary"):
        await place.stage.delete_service(name)
        await place.stage.gone(name)
    await place.silent(*addresses)


async def mended_mistake(place: Place) -> None:
    """A Service that is refused first, and served once the mistake is mended"""
    await place.create("mended", annotations={IPAM: "static"})
    await place.stage.hears("mended", Reason.INVALID_ANNOTATION)
    await place.annotate("mended", IPAM, "pool")
    await place.announces("mended")


async def hosted(place: Place) -> None:
    """A VM load balancer: Harvester announces it, until it is switched to the other kind, and then again, and back"""
    await place.create("hosted", annotations={HEALTH_CHECK_PORT: "80"})
    (service,) = await place.stage.served("hosted")
    await place.silent(*service.addresses)
    await place.annotate("hosted", WORKLOAD_TYPE, "cluster")
    await place.announces("hosted")
    await place.annotate("hosted", WORKLOAD_TYPE, "vm")
    await place.stage.hears("hosted", Reason.REPLACING)
    await place.silent(*service.addresses)
    await place.annotate("hosted", WORKLOAD_TYPE, "cluster")
    await place.announces("hosted")


async def exchanged_address(place: Place) -> None:
    """An address that somebody writes over: kube-vip lets go of it, and is given it back"""
    await place.create("over")
    addresses = await place.announces("over")
    await place.annotate("over", ADDRESS_ANNOTATION, OTHER)
    await place.gone(*addresses)
    await place.announces("over")
    await place.silent(OTHER)


async def deleted(place: Place) -> None:
    """Five Services that are deleted again"""
    names = [f"gone-{number}" for number in range(5)]
    await place.create(*names)
    addresses = await place.announces(*names)
    for name in names:
        await place.stage.delete_service(name)
    await place.stage.gone(*names)
    await place.silent(*addresses)


async def other_type(place: Place) -> None:
    """A Service that is no longer of type LoadBalancer: kube-vip keeps the address, and the user is told"""
    await place.create("internal")
    (address,) = await place.announces("internal")
    await place.stage.change_service("internal", {"spec": {"type": "ClusterIP"}})
    told = await place.stage.hears("internal", Reason.STILL_ANNOUNCED)
    if address not in told.message or address not in _on_node():
        raise TimeoutError(f"kube-vip took {address} down, and the Event says: {told.message}")


CASES: Final[Sequence[Case]] = (
    one_after_the_other, many_at_once, late_addresses, late_endpoints, granted_wish, shared_address, mended_mistake,
    hosted, exchanged_address, deleted, other_type,
)  # fmt: skip


async def play(directory: Path) -> list[str]:
    """Play all cases, print how each ends, and return those that failed."""
    failed: list[str] = []
    async with _place(directory) as place:
        for case in CASES:
            title, began = (case.__doc__ or "").strip(), asyncio.get_running_loop().time()
            try:
                await case(place)
                verdict = "ok"
            except TimeoutError as error:
                verdict = f"FAILED: {error}"
                failed.append(title)
            print(f"{asyncio.get_running_loop().time() - began:5.1f} s  {title}: {verdict}", flush=True)
    return failed


@asynccontextmanager
async def _place(directory: Path) -> AsyncIterator[Place]:
    scene = Scene.start(directory)
    try:
        async with Stage(scene, directory, pace=FAST, kube_vip=Announcer(scene, directory)) as stage:
            address = {"type": "InternalIP", "address": NODE_ADDRESS}
            node = {"apiVersion": "v1", "kind": "Node", "metadata": {"name": NODE}, "status": {"addresses": [address]}}
            await stage.guest.create(_NODES, node)
            await stage.harvester.create_pool("lan", POOL)
            await stage.harvester.create_pool("pinned", f"{PINNED}/32", selector=_only_where_named("pinned"))
            await stage.logged(stage.run(), "service controller started")
            yield Place(stage)
    finally:
        scene.stop()


def _only_where_named(pool: str) -> dict[str, object]:
    return {"scope": [{"project": "*", "namespace": f"nobody-{pool}", "guestCluster": "*"}]}


def _on_node() -> set[str]:
    """Return the addresses on the device."""
    shown = _ip("-json", "address", "show", "dev", DEVICE)
    return {entry["local"] for device in json.loads(shown) for entry in device["addr_info"]}


def _ip(*arguments: str) -> str:
    program = shutil.which("ip")
    if program is None:
        raise DevenvError("ip is not on PATH: it is in Debian's package iproute2")
    done = subprocess.run([program, *arguments], check=False, capture_output=True, text=True)
    if done.returncode != 0:
        raise DevenvError(f"ip {' '.join(arguments)} failed: {done.stderr.strip()}")
    return done.stdout


def _make_network() -> None:
    for arguments in (
        "link set lo up",
        f"link add {DEVICE} type veth peer name nowhere",
        f"link set {DEVICE} up",
        "link set nowhere up",
        f"address add {NODE_ADDRESS}/16 dev {DEVICE}",
    ):
        _ip(*arguments.split())


def _start_inside() -> NoReturn:
    """Build what is missing, which needs a network, and go on in a network namespace. Raises DevenvError."""
    require("etcd", "kube-apiserver", "kube-vip")
    unshare = shutil.which("unshare")
    if sys.platform != "linux" or os.geteuid() != 0 or unshare is None:
        raise DevenvError("kube-vip puts addresses on a device: that needs Linux, root and unshare(1)")
    os.execv(unshare, [unshare, "--net", sys.executable, "-m", "devenv.realkubevip", "--inside"])  # noqa: S606


def _run() -> None:
    """Play all cases in this network namespace. Raises DevenvError when one fails."""
    _make_network()
    print(f"kube-vip {KUBE_VIP}, addresses on the node:", flush=True)
    with run_directory("kube-vip") as directory, logs_to(directory / "emulators.log"):
        failed = asyncio.run(play(directory))
        if failed:
            raise DevenvError(f"{len(failed)} of {len(CASES)} cases failed")


def main() -> int:
    """Entry point of ``python -m devenv.realkubevip``. Returns the exit code."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--inside", action="store_true", help="this process has a network namespace of its own")
    inside = parser.parse_args().inside
    try:
        if inside:
            _run()
        else:
            _start_inside()
    except DevenvError as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
