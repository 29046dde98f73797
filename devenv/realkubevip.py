"""Runs the controller next to kube-vip and verifies which addresses kube-vip puts on the node.

``make e2e-kube-vip`` builds the kube-vip that ``devenv/gobuild-kube-vip`` pins, or ``KUBE_VIP``, and runs it with the
settings of the chart against a real guest API server, in a network namespace of its own. Harvester is emulated.
Requires Linux, root and unshare(1). The emulator in ``devenv/kubevip.py`` is derived from the results.
"""

import argparse
import asyncio
import sys
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Final

from devenv.announcement import ADDRESS_ANNOTATION, DDNS_ANNOTATION, IGNORE_ANNOTATION, NEWEST, Settings, Version
from devenv.background import Background
from devenv.binaries import KUBE_VIP
from devenv.dhcpresponder import DhcpResponder
from devenv.harvester.queue import FAST
from devenv.harvester.records import SERVICES, SLICES
from devenv.kubelets import DOCUMENTS
from devenv.kubevipprocess import (
    NODE_ADDRESS,
    PEER,
    PROGRAMS,
    SETTINGS,
    announced_addresses,
    build_of,
    kube_vip_process,
    prepare_network,
    version_of,
)
from devenv.logfile import logs_to
from devenv.process import run_directory
from devenv.stage import Scene, Stage, until
from devenv.watch import Document, Mirror, annotations_of
from harvester_ccm.kube.client import ApiClient
from harvester_ccm.kube.credentials import load_credentials
from harvester_ccm.names import (
    HEALTH_CHECK_PORT,
    IP_POOL,
    IPAM,
    KUBE_VIP_HOST,
    LOAD_BALANCER_CLASS,
    LOAD_BALANCER_READY,
    PRIMARY_SERVICE,
    WORKLOAD_TYPE,
    Reason,
)

NODE: Final = Settings().node
POOL: Final = "10.9.100.0/24"
LATER_POOL: Final = "10.9.102.0/24"
EXPLAINED_POOL: Final = "10.9.105.0/24"
LEASES: Final = ("10.9.106.10", "10.9.106.11")
"""Addresses of the DHCP server."""
ANNOUNCER: Final = {"announcer": "kube-vip"}
"""Flag that the chart sets."""
CHANGES: Final[Mapping[str, Mapping[str, object]]] = {
    "policy-changes": {"spec": {"externalTrafficPolicy": "Local"}},
    "families-change": {"spec": {"ipFamilyPolicy": "PreferDualStack"}},
    "router-changes": {"metadata": {"annotations": {"kube-vip.io/forwardUPNP": "true"}}},
    "unknown-changes": {"metadata": {"annotations": {"kube-vip.io/unknown": "1"}}},
}
"""Patches of users that let a Service stay ready, by the name of the Service."""
EXPECTED_WARNINGS: Final = {Reason.IGNORED}
"""Warnings about the changes themselves."""
ENDPOINT: Final = {"addresses": ["10.42.0.9"], "conditions": {"ready": True}, "nodeName": NODE}
"""A ready Pod."""
UP_SECONDS: Final = 60.0
"""kube-vip reads the address of a new Service once per second, one Service after the other. v1.1.2 may announce one
that another client had overwritten only after the respelling, which follows the last touch after 45 s."""
LATE_SECONDS: Final = 1.0
"""After this time kube-vip has read the first of some waiting Services, but not the others."""
EXPLAINED_SECONDS: Final = 75.0
"""Time in which the condition says why an address is not announced."""
RIGHT_SECONDS: Final = 5.0
"""Time in which it is right after kube-vip has noted the node."""
TOUCHED_SECONDS: Final = 50.0
"""Time in which a change has had all of its effects: the controller touches the endpoints for 45 s."""
STEADY_SECONDS: Final = 4.0
"""For which addresses are watched once they are correct, because kube-vip handles older events later."""


class Cluster:
    """A stage with the real kube-vip."""

    def __init__(self, stage: Stage, version: Version) -> None:
        self.stage = stage
        self.version = version

    async def create(self, *names: str, port: int = 80, annotations: dict[str, str] | None = None) -> None:
        """Create Services at once, each with an endpoint."""
        ports = [{"name": "main", "port": port}]
        await asyncio.gather(*(self.stage.create_service(name, ports=ports, annotations=annotations) for name in names))

    async def add_endpoint(self, name: str) -> None:
        """Create an EndpointSlice with a ready Pod for a Service without a selector."""
        meta = {"name": f"{name}-1", "namespace": "default", "labels": {"kubernetes.io/service-name": name}}
        ports = [{"name": "main", "port": 80, "protocol": "TCP"}]
        body = {"metadata": meta, "addressType": "IPv4", "ports": ports, "endpoints": [ENDPOINT]}
        await self.stage.guest.create(
            SLICES, {"apiVersion": "discovery.k8s.io/v1", "kind": "EndpointSlice", **body}, namespace="default"
        )

    async def annotate(self, name: str, key: str, value: str) -> None:
        """Change an annotation of a Service."""
        await self.stage.change_service(name, {"metadata": {"annotations": {key: value}}})

    async def announces(self, *names: str) -> set[str]:
        """Return the addresses of the Services once they are ready, on the node and stay there. Raises TimeoutError.

        Before a Service is ready, kube-vip may announce its address, and withdraw it once more.
        """

        async def up() -> set[str]:
            services = await self.stage.served(*names, within=UP_SECONDS)
            conditions = [service.ready_condition for service in services]
            if not all(condition is not None and condition.status == "True" for condition in conditions):
                return set()
            found = {service.addresses[0] for service in services}
            return found if found <= announced_addresses() else set()

        addresses = await until(up, within=UP_SECONDS, what=f"announcement of {', '.join(names)}")
        await _steady(lambda: addresses <= announced_addresses(), f"the addresses of {', '.join(names)} were removed")
        return addresses

    async def withdraws(self, *addresses: str) -> None:
        """Return once the addresses are not on the node and stay away. Raises TimeoutError."""
        await self.removed(*addresses)
        await _steady(
            lambda: announced_addresses().isdisjoint(addresses), f"{', '.join(addresses)} are announced again"
        )

    async def removed(self, *addresses: str) -> None:
        """Return once the addresses are not on the node. Raises TimeoutError."""

        async def absent() -> bool:
            return announced_addresses().isdisjoint(addresses)

        await until(absent, within=UP_SECONDS, what=f"removal of {', '.join(addresses)}")

    async def create_without_endpoints(self, name: str, *, dhcp: bool = False, has_slice: bool = True) -> None:
        """Create a Service with an empty EndpointSlice, or without one."""
        annotations = {IPAM: "dhcp"} if dhcp else {}
        selector = {"app": name} if has_slice else None
        ports = [{"name": "main", "port": 80}]
        await self.stage.create_service(name, ports=ports, annotations=annotations, spec={"selector": selector}, pods=0)

    async def explains(self, name: str, status: str, text: str, event: str) -> None:
        """Return once the condition has a status and a text, and an Event with its message. Raises TimeoutError.

        ``event`` is the type and the reason of the Event.
        """

        async def explained() -> bool:
            shown, message = await self._condition(name)
            return shown == status and text in message

        await until(explained, within=EXPLAINED_SECONDS, what=f"the condition of {name}: {status}, {text!r}")
        _, message = await self._condition(name)
        kind, _, reason = event.partition(" ")
        told = await self.stage.hears(name, reason, within=RIGHT_SECONDS)
        if told.type != kind or told.message not in message:
            raise TimeoutError(f"the condition is {message!r}, and the {told.type} Event {told.message!r}")

    async def is_right(self, name: str) -> None:
        """Return once kube-vip announces a Service and the condition says so. Raises TimeoutError."""

        async def noted() -> bool:
            service = await self.stage.service(name)
            return service is not None and service.metadata.annotation(KUBE_VIP_HOST) == NODE

        await until(noted, within=UP_SECONDS, what=f"the node of {name}")

        async def right() -> bool:
            service = await self.stage.service(name)
            usual = f"The load balancer has address {service.addresses[0]}" if service and service.addresses else ""
            return await self._condition(name) == ("True", usual)

        await until(right, within=RIGHT_SECONDS, what=f"the condition of {name}: True")

    async def _condition(self, name: str) -> tuple[str, str]:
        """Return status and message of the condition of a Service."""
        service = await self.stage.service(name)
        condition = None if service is None else service.ready_condition
        return ("", "") if condition is None else (condition.status, condition.message)


async def _steady(condition: Callable[[], bool], otherwise: str) -> None:
    for _ in range(int(STEADY_SECONDS / 0.1)):
        if not condition():
            raise TimeoutError(otherwise)
        await asyncio.sleep(0.1)


async def late_addresses(cluster: Cluster) -> None:
    """Six Services at once, whose addresses come while kube-vip waits for the first"""
    names = [f"late-{number}" for number in range(6)]
    await cluster.create(*names, annotations={IP_POOL: "later"})
    await asyncio.sleep(LATE_SECONDS)
    only_by_name = {"scope": [{"project": "*", "namespace": "none", "guestCluster": "*"}]}
    await cluster.stage.harvester.create_pool("later", LATER_POOL, selector=only_by_name)
    await cluster.announces(*names)


async def shared_address(cluster: Cluster) -> None:
    """A primary Service with one secondary created before and one after it"""
    await cluster.create("before", port=81, annotations={PRIMARY_SERVICE: "default/primary"})
    await cluster.stage.hears("before", Reason.SHARING_REJECTED)
    await cluster.create("primary")
    await cluster.create("after", port=82, annotations={PRIMARY_SERVICE: "default/primary"})
    addresses = await cluster.announces("before", "primary", "after")
    for name in ("before", "after", "primary"):
        await cluster.stage.delete_service(name)
        await cluster.stage.gone(name)
    await cluster.withdraws(*addresses)


async def switched_type(cluster: Cluster) -> None:
    """A VM load balancer, announced by Harvester, that is switched to a cluster load balancer, back and again"""
    await cluster.create("switched", annotations={HEALTH_CHECK_PORT: "80"})
    (service,) = await cluster.stage.served("switched")
    await cluster.withdraws(*service.addresses)
    await cluster.annotate("switched", WORKLOAD_TYPE, "cluster")
    await cluster.announces("switched")
    await cluster.annotate("switched", WORKLOAD_TYPE, "vm")
    await cluster.stage.hears("switched", Reason.CHANGING_WORKLOAD_TYPE)
    await cluster.withdraws(*service.addresses)
    await cluster.annotate("switched", WORKLOAD_TYPE, "cluster")
    await cluster.announces("switched")


async def second_lease(cluster: Cluster) -> None:
    """An address from DHCP whose Service is switched to a VM load balancer and back"""
    with DhcpResponder(PEER, LEASES):
        await cluster.create("leased", annotations={IPAM: "dhcp"})
        addresses = await cluster.announces("leased")
        await cluster.annotate("leased", WORKLOAD_TYPE, "vm")
        await cluster.withdraws(*addresses)
        await cluster.stage.served("leased")
        await cluster.annotate("leased", WORKLOAD_TYPE, "cluster")
        await cluster.stage.hears("leased", Reason.CHANGING_WORKLOAD_TYPE)
        if not await cluster.announces("leased") <= set(LEASES):
            raise TimeoutError("the address of the Service is no lease of kube-vip")
        await cluster.is_right("leased")
        await cluster.stage.delete_service("leased")
        await cluster.stage.gone("leased")


async def other_type(cluster: Cluster) -> None:
    """A Service that is no longer of type LoadBalancer: kube-vip up to 1.2.3 keeps the address, as an Event says"""
    await cluster.create("internal")
    (address,) = await cluster.announces("internal")
    await cluster.stage.change_service("internal", {"spec": {"type": "ClusterIP"}})
    event = await cluster.stage.hears("internal", Reason.STILL_ANNOUNCED)
    if address not in event.message or "up to 1.2.3" not in event.message:
        raise TimeoutError(f"the Event is: {event.message}")
    if cluster.version >= NEWEST:
        await cluster.withdraws(address)
    elif address not in announced_addresses():
        raise TimeoutError(f"kube-vip removed {address}")


async def harmless_changes(cluster: Cluster) -> None:
    """Services with another policy, families or annotation of kube-vip: they stay ready, and nothing is withdrawn"""
    await cluster.create(*CHANGES)
    await cluster.announces(*CHANGES)
    for name in CHANGES:
        await cluster.is_right(name)
    written: dict[str, set[tuple[str | None, ...]]] = {}
    services = Mirror(cluster.stage.guest, SERVICES, namespace="default")
    services.subscribe(lambda _before, after: _note_written(written, after))
    background = Background("services", [services.run])
    await background.start([services.wait_synced], within=UP_SECONDS)
    for name, patch in CHANGES.items():
        await cluster.stage.change_service(name, patch)
    await asyncio.sleep(TOUCHED_SECONDS)
    await background.stop()
    for name in CHANGES:
        warnings = {told.reason for told in await cluster.stage.told(name) if told.type == "Warning"}
        if len(written[name]) > 1 or warnings - EXPECTED_WARNINGS:
            raise TimeoutError(f"{name} had conditions and annotations {written[name]} and Warnings {warnings}")


def _note_written(written: dict[str, set[tuple[str | None, ...]]], service: Document | None) -> None:
    """Note the condition of a Service, and the annotations with which the controller withdraws and announces."""
    if service is None:
        return
    conditions = (service.get("status") or {}).get("conditions") or ()
    ready = [one["status"] for one in conditions if one["type"] == LOAD_BALANCER_READY]
    keys = (ADDRESS_ANNOTATION, IGNORE_ANNOTATION, DDNS_ANNOTATION)
    values = (annotations_of(service).get(key) for key in keys)
    written.setdefault(service["metadata"]["name"], set()).add((*ready, *values))


async def skipped_class(cluster: Cluster) -> None:
    """A Service of this controller's class, which kube-vip does not serve, and one without a class"""
    await cluster.create("plain")
    spec = {"loadBalancerClass": LOAD_BALANCER_CLASS}
    await cluster.stage.create_service("classed", ports=[{"name": "main", "port": 80}], spec=spec)
    await cluster.is_right("plain")
    await cluster.explains("classed", "False", "lb_class_name", f"Warning {Reason.NOT_ANNOUNCED}")


async def no_endpoints(cluster: Cluster) -> None:
    """A Service without an EndpointSlice, and one with an empty slice, whose Pods start after a minute"""
    await cluster.create_without_endpoints("without", has_slice=False)
    await cluster.create_without_endpoints("emptied")
    for name in ("without", "emptied"):
        await cluster.explains(name, "True", "has no endpoint", f"Normal {Reason.NO_ENDPOINTS}")
    await cluster.add_endpoint("without")
    cluster.stage.endpoints.scale("emptied", 1)
    for name in ("without", "emptied"):
        await cluster.is_right(name)


async def blocked_queue(cluster: Cluster) -> None:
    """A Service behind one without an endpoint, for which kube-vip asks for an address from DHCP in vain"""
    # This is the last case: kube-vip handles no other Service for more than four minutes.
    await cluster.create_without_endpoints("leasing", dhcp=True)
    await asyncio.sleep(LATE_SECONDS)
    await cluster.create("behind")
    await cluster.explains("leasing", "False", "has no endpoint", f"Normal {Reason.DHCP_LEASE_PENDING}")
    await cluster.explains(
        "behind", "False", "until a DHCP server answers for one Service", f"Warning {Reason.NOT_ANNOUNCED}"
    )


Case = Callable[[Cluster], Awaitable[None]]
CASES: Final[tuple[Case, ...]] = (
    late_addresses, shared_address, switched_type, second_lease, harmless_changes, other_type,
)  # fmt: skip
EXPLAINED_CASES: Final[tuple[Case, ...]] = (skipped_class, no_endpoints, blocked_queue)
"""Cases of versions that read endpoints."""


async def run(directory: Path, version: str) -> int:
    """Run all cases with a version of kube-vip, print the result of each, and return the number of failed ones."""
    failed = await _run_cases(directory / "default", CASES, version, POOL)
    # Another pool: kube-vip can leave addresses of the first cluster on the device when it is stopped.
    return failed + await _run_cases(directory / "explained", EXPLAINED_CASES, version, EXPLAINED_POOL)


async def _run_cases(directory: Path, cases: tuple[Case, ...], version: str, pool: str) -> int:
    """Run cases in a new cluster with an IP pool."""
    await asyncio.to_thread(directory.mkdir)
    failed = 0
    async with open_stage(directory, version, SETTINGS) as stage:
        await stage.harvester.create_pool("lan", pool)
        await stage.logged(stage.run(flags=ANNOUNCER), "service controller started")
        cluster = Cluster(stage, version_of(version))
        for case in cases:
            if not _is_played(case, cluster.version):
                continue
            began, result = asyncio.get_running_loop().time(), "ok"
            try:
                await case(cluster)
            except TimeoutError as error:
                failed, result = failed + 1, f"FAILED: {error}"
            print(f"{asyncio.get_running_loop().time() - began:5.1f} s  {case.__doc__}: {result}", flush=True)
    return failed


def _is_played(case: Case, version: Version) -> bool:
    """Return whether a version of kube-vip does what a case expects."""
    if case in EXPLAINED_CASES:
        return version >= (1, 2, 0)
    if case is second_lease:
        # Those before 1.0 note the second lease and do not announce it, and those after it announce none.
        return version >= (1, 1, 2)
    # Those between stay silent about an address that was withdrawn, and an Event says so.
    return case is not switched_type or version < (1, 0, 1) or version >= (1, 1, 2)


@asynccontextmanager
async def open_stage(directory: Path, version: str, settings: dict[str, str]) -> AsyncIterator[Stage]:
    """Run a stage whose kube-vip is a process with the settings as its environment. No controller runs."""
    scene = Scene.start(directory)
    try:
        async with Stage(scene, directory, pace=FAST, kube_vip=_kube_vip(scene, directory, version, settings)) as stage:
            yield stage
    finally:
        scene.stop()


@asynccontextmanager
async def _kube_vip(scene: Scene, directory: Path, version: str, settings: dict[str, str]) -> AsyncIterator[None]:
    """Create the Node of kube-vip, and run it until it has begun to read Services."""
    address = {"type": "InternalIP", "address": NODE_ADDRESS}
    node = {"apiVersion": "v1", "kind": "Node", "metadata": {"name": settings["vip_nodename"]}}
    async with ApiClient(load_credentials(scene.guest.admin_kubeconfig), cluster="guest") as client:
        await client.create(DOCUMENTS, {**node, "status": {"addresses": [address]}})
    log_file = directory / "kube-vip.log"
    async with kube_vip_process(build_of(version), settings, scene.guest, log_file):
        yield


def main() -> None:
    """Entry point of ``python -m devenv.realkubevip`` in a new network namespace. Exits with 1 if a case fails."""
    parser = argparse.ArgumentParser(prog="python -m devenv.realkubevip", description="Run next to the real kube-vip.")
    parser.add_argument("--version", choices=PROGRAMS, default=KUBE_VIP)
    version = parser.parse_args().version
    prepare_network()
    print(f"kube-vip {version}, addresses on the node:", flush=True)
    with run_directory("kube-vip") as directory, logs_to(directory / "emulators.log"):
        if failed := asyncio.run(run(directory, version)):
            sys.exit(f"error: {failed} cases failed")


if __name__ == "__main__":
    main()
