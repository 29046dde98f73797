"""Runs the controller next to Harvester's own load balancer controller and webhook: the scenes that matter.

``make e2e-harvester HARVESTER_BIN=DIRECTORY`` runs all, SCENES='hundred vm' some, in a network namespace of its own.
The programs can be of any version that is recorded; a scene expects what this version can do. kube-vip is emulated, in
the guest cluster and on Harvester's hosts, as are VMs. The figures are those of docs/contributing/benchmarks.md. Exits
with 1 if a scene fails.
"""

import argparse
import asyncio
import json
import sys
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Final

from devenv.apiserver import SERVICE_ACCOUNT
from devenv.audit import AuditLog
from devenv.ccm import CcmProcess
from devenv.guestnodes import GuestNodes, address_of
from devenv.harvester.admission import CLUSTER as ANNOTATION_OF_CLUSTER
from devenv.harvester.endpoints import is_dummy
from devenv.harvester.machines import Kind, Machine, Machines, instance_document
from devenv.harvester.records import INSTANCES, LOAD_BALANCERS, POOLS, SLICES, is_ready
from devenv.harvester.versions import Duplicate, Serving, version_with_tag
from devenv.harvester.webhook import NETWORKS
from devenv.harvesterscenarios import HOST_LEASES
from devenv.kubevip import KubeVipOptions
from devenv.logfile import logs_to
from devenv.machine import NETWORK_TOOLS, require_root, require_tools
from devenv.process import DevenvError, run_directory
from devenv.realharvester import CONTROLLER, Listeners, RealHarvester, harvester_programs, prepare_network, version_of
from devenv.stage import VM_NAMESPACE, Scene, Stage, Told, until
from devenv.watch import Document, annotations_of
from harvester_ccm.kube.client import ApiClient
from harvester_ccm.kube.credentials import load_credentials
from harvester_ccm.kube.errors import AdmissionDenied
from harvester_ccm.model.core import CONFIG_MAPS
from harvester_ccm.names import (
    HEALTH_CHECK_PORT,
    IP_POOL,
    IPAM,
    LB_SELECT_NETWORK,
    LB_SERVICE_NAME,
    NAD_MAPPING_NAME,
    NAD_MAPPING_NAMESPACE,
    NETWORK,
    WORKLOAD_TYPE,
    Reason,
)

GUEST_LEASES: Final = ("127.80.0.10", "127.80.0.99")
"""First and last address of the DHCP server in the network of the guest cluster."""
STARTED: Final = "service controller started"
HUNDRED: Final = 100
WITHIN: Final = 300.0
"""Longest time in seconds for many Services."""
REST_SECONDS: Final = 4.0
"""Time until the burst of Harvester's controller is available again."""
NOTICE_SECONDS: Final = 10.0
"""Longest time until a result of probes is in the condition of a load balancer."""
CLUSTER_NAME: Final = "demo"
BYSTANDER: Final = Machine("bystander", namespace=VM_NAMESPACE, kind=Kind.PLAIN, networks=("",))
"""A VM of no guest cluster: without one, Harvester 1.2 and 1.3 accept no load balancer."""
SECOND_NETWORK: Final = f"{VM_NAMESPACE}/second"
NETWORKS_OF_VMS: Final = {f"{VM_NAMESPACE}/first": "127.77.0.0/24", SECOND_NETWORK: "127.78.0.0/24"}
"""Subnets of the pools, by network."""
EIGHT: Final = {"subnet": "127.73.0.0/24", "rangeStart": "127.73.0.10", "rangeEnd": "127.73.0.17"}
HTTP: Final = {"name": "http", "port": 8080, "protocol": "TCP"}


class Play:
    """The controller next to one Harvester, for one scene."""

    def __init__(self, stage: Stage, harvester: RealHarvester, run: CcmProcess) -> None:
        self.stage = stage
        self.harvester = harvester
        self.run = run
        self.version = version_with_tag(harvester.version)
        """The rules of this Harvester."""
        self.figures: list[str] = []
        """What the scene has measured."""
        user = f"system:serviceaccount:{VM_NAMESPACE}:{SERVICE_ACCOUNT}"
        self._audit = AuditLog(stage.scene.harvester.audit_log, user)

    async def create(self, *names: str, annotations: dict[str, str] | None = None) -> None:
        """Create Services at once."""
        await asyncio.gather(
            *(self.stage.create_service(name, ports=[HTTP], annotations=annotations) for name in names)
        )

    async def served(self, *names: str, within: float = WITHIN) -> None:
        """Return when each Service has an address, or waits for one that its Harvester has allocated and not recorded.

        Only a Harvester before 1.5.1 never ends that by itself; it is a figure.
        """
        waiting: set[str] = set()

        async def settled() -> bool:
            waiting.clear()
            waiting.update(await self._interrupted())
            found = {one.metadata.name for one in await self.stage.services() if one.addresses}
            return found | waiting >= set(names)

        await until(settled, within=within, what=f"addresses of {', '.join(names)}")
        if waiting & set(names):
            self.figures.append(f"{len(waiting & set(names))} wait for an address that this Harvester lost track of")

    async def _interrupted(self) -> set[str]:
        """Return the Services whose load balancer has an allocation that Harvester does not record, for ever."""
        if self.version.duplicate is Duplicate.RELEASED:
            return set()
        return {
            one["metadata"]["labels"][LB_SERVICE_NAME]
            for one in await self.balancers()
            if "duplicate allocation" in str((one.get("status") or {}).get("conditions"))
        }

    async def gone(self, *names: str) -> None:
        """Return when Services are gone; one with such an allocation is deleted after 300 s."""
        is_interrupted = bool(await self._interrupted())
        await self.stage.gone(*names, within=2 * WITHIN if is_interrupted else WITHIN)

    async def delete(self, *names: str) -> None:
        """Delete Services at once, and return when they are gone and nothing is left in Harvester."""
        is_interrupted = bool(await self._interrupted())
        await asyncio.gather(*map(self.stage.delete_service, names))
        await self.gone(*names)
        if is_interrupted:
            self.figures.append(f"{(await self.harvester.counts()).booked} addresses left booked")
        else:
            await self.stage.nothing_left(WITHIN)

    async def timed(self, what: str, work: Awaitable[object]) -> None:
        """Do some work, and note its seconds."""
        loop = asyncio.get_running_loop()
        began = loop.time()
        await work
        self.figures.append(f"{what} {loop.time() - began:.1f} s")

    async def counted(self, what: str, services: int, work: Awaitable[object]) -> None:
        """Do some work for Services, and note its seconds and the requests of the controller to Harvester."""
        position = self._audit.position()
        await self.timed(what, work)
        await asyncio.sleep(REST_SECONDS)
        self.figures.append(f"{self._audit.count(position) / services:.2f} requests each")

    async def balancers(self) -> list[Document]:
        """Return the load balancers."""
        return list((await self.stage.host.list(LOAD_BALANCERS, namespace=VM_NAMESPACE)).items)

    async def balancer_of(self, service: str) -> Document | None:
        """Return the load balancer of a Service."""
        found = [one for one in await self.balancers() if one["metadata"]["labels"].get(LB_SERVICE_NAME) == service]
        return found[0] if found else None

    async def books_agree(self) -> None:
        """Return when nothing is booked but addresses of load balancers, each for the load balancer that has it.

        Harvester itself releases an address that is in use if an attempt begins on a copy before its own last write;
        that happens to load balancers that had to wait, and no client can prevent it. Their number is a figure. Before
        1.5.1 an allocation that it did not record stays in the pool for ever, and the load balancer gets none.
        """
        owners: dict[str, str] = {}
        books: dict[str, str] = {}

        async def agree() -> bool:
            owners.clear()
            books.clear()
            for balancer in await self.balancers():
                owners[_booked_for(balancer)] = f"{VM_NAMESPACE}/{balancer['metadata']['name']}"
            for pool in (await self.stage.host.list(POOLS)).items:
                books.update((pool.get("status") or {}).get("allocated") or {})
            return books.items() <= owners.items()

        await until(agree, within=60, what="bookings of addresses of load balancers only")
        self.figures.append(f"{len(books)} addresses booked")
        if len(owners) > len(books):
            self.figures.append(f"{len(owners) - len(books)} in use that Harvester has released by itself")

    async def ready_backends(self, service: str) -> set[str]:
        """Return the addresses of the backends that take traffic."""
        balancer = await self.balancer_of(service)
        found = (await self.stage.host.list(SLICES, namespace=VM_NAMESPACE)).items
        return {
            endpoint["addresses"][0]
            for document in found
            if balancer is not None and document["metadata"]["name"] == balancer["metadata"]["name"]
            for endpoint in document.get("endpoints") or ()
            if endpoint["conditions"]["ready"] and not is_dummy(endpoint)
        }


def _booked_for(balancer: Document) -> str:
    """Return the address of a load balancer, or the one that Harvester says to have allocated to it already."""
    conditions = (balancer.get("status") or {}).get("conditions") or [{}]
    words = str(conditions[0].get("message", "")).partition(" has been allocated to ")
    return _address_of(balancer) or (words[0].rpartition(" ")[2] if words[1] else "")


def _address_of(balancer: Document) -> str:
    return str(((balancer.get("status") or {}).get("allocatedAddress") or {}).get("ip") or "")


async def hundred(play: Play) -> None:
    """100 Services at once, and their deletion"""
    await play.harvester.create_pool("lan", "127.77.0.0/16")
    await asyncio.sleep(REST_SECONDS)
    names = [f"h-{number}" for number in range(HUNDRED)]

    async def served() -> None:
        await play.create(*names)
        await play.served(*names)

    await play.counted("last address after", HUNDRED, served())
    await play.books_agree()
    await play.timed("deleted after", play.delete(*names))


async def quick(play: Play) -> None:
    """30 Services that are deleted at once, and 30 after a second"""
    await play.harvester.create_pool("lan", "127.77.0.0/16")
    for seconds in (0.0, 1.0):
        names = [f"q-{number}" for number in range(30)]
        await play.create(*names)
        await asyncio.sleep(seconds)
        await play.timed("nothing left after", play.delete(*names))


async def waiting(play: Play) -> None:
    """10 Services that wait for a pool, which comes, and their deletion"""
    names = [f"w-{number}" for number in range(10)]
    await play.create(*names)
    await play.stage.hears(names[-1], Reason.NO_MATCHING_POOL)
    await play.harvester.create_pool("lan", "127.77.0.0/24")
    await play.timed("served after", play.served(*names, within=60))
    await play.books_agree()
    await play.delete(*names)


async def exhausted(play: Play) -> None:
    """12 Services for a pool of 8; four go, and the others get their addresses"""
    await play.harvester.create_pool("eight", EIGHT)
    names = [f"x-{number}" for number in range(12)]
    await play.create(*names)

    async def eight_served() -> list[str]:
        found = [service.metadata.name for service in await play.stage.services() if service.addresses]
        return found if len(found) == 8 else []

    served = await until(eight_served, within=WITHIN, what="eight Services with an address")
    gone = served[:4]
    await asyncio.gather(*map(play.stage.delete_service, gone))
    rest = [name for name in names if name not in gone]
    await play.timed("the others after", play.served(*rest))
    await play.books_agree()
    await play.delete(*names)


@asynccontextmanager
async def _nodes(play: Play, *numbers: int) -> AsyncIterator[Listeners]:
    """Have nodes with VMs, and something that listens on their addresses."""
    listeners = Listeners()
    async with GuestNodes(play.stage.guest, play.stage.host) as nodes:
        await nodes.add(*numbers)
        try:
            yield listeners
        finally:
            listeners.close()


async def vm(play: Play) -> None:
    """A VM load balancer: its backends fail one by one and come back"""
    await play.harvester.create_pool("lan", "127.77.0.0/24")
    async with _nodes(play, 1, 2, 3) as listeners:
        service = await play.stage.create_service("web", ports=[HTTP], annotations={HEALTH_CHECK_PORT: "http"})
        port = service.spec.ports[0].node_port

        def let_answer(answers: bool, *numbers: int) -> None:
            for number in numbers:
                listeners.let_answer(address_of(number), port, answers)

        let_answer(True, 1, 2, 3)
        await play.stage.served("web")

        async def are(*numbers: int) -> None:
            wanted = set(map(address_of, numbers))

            async def ready() -> bool:
                return await play.ready_backends("web") == wanted

            await play.timed(f"{len(numbers)} backends after", until(ready, within=90, what=f"backends {wanted}"))

        await are(1, 2, 3)
        let_answer(False, 1)
        await are(2, 3)
        for failing, left in ((2, (3,)), (3, ())):
            # One after the other: Harvester 1.2 and 1.3 lose one of two results that come at once.
            let_answer(False, failing)
            await are(*left)
        if play.version.serving is Serving.BLOCKING:
            play.figures.append("this Harvester does not tell that no backend is healthy")
        else:
            await _let_harvester_notice(play, "web")
            await play.stage.hears("web", Reason.BACKENDS_UNHEALTHY, within=90)
        for answering in ((1,), (1, 2), (1, 2, 3)):
            let_answer(True, answering[-1])
            await are(*answering)
        await play.delete("web")


async def _let_harvester_notice(play: Play, service: str) -> None:
    """Return when Harvester's condition says that a load balancer has no healthy backend.

    Harvester reconciles a load balancer before it writes the result of a probe, and not after it. If the write takes
    longer than the start of that attempt, the condition stays as it was until the next change of the load balancer.
    No client can prevent it, so a change follows, and the scene notes it.
    """

    async def has_noticed() -> bool:
        balancer = await play.balancer_of(service)
        return balancer is not None and not is_ready(balancer)

    try:
        await until(has_noticed, within=NOTICE_SECONDS, what="condition of the load balancer")
    except TimeoutError:
        play.figures.append("Harvester did not notice the last failure by itself")
        balancer = await play.balancer_of(service)
        assert balancer is not None, "the load balancer is deleted at the end of the scene"
        name = balancer["metadata"]["name"]
        change = {"metadata": {"annotations": {"example.com/changed": "yes"}}}
        await play.stage.host.merge_patch(LOAD_BALANCERS, name, change, namespace=VM_NAMESPACE)
        await until(has_noticed, within=NOTICE_SECONDS, what="condition of the load balancer after a change")


async def switch(play: Play) -> None:
    """A load balancer that is switched to VMs, back and again: the address stays"""
    await play.harvester.create_pool("lan", "127.77.0.0/24")
    async with _nodes(play, 1, 2):
        await play.create("web")
        (service,) = await play.stage.served("web")
        for kind in ("vm", "cluster", "vm"):
            await play.stage.change_service("web", {"metadata": {"annotations": {WORKLOAD_TYPE: kind}}})

            async def is_switched(kind: str = kind) -> bool:
                balancer = await play.balancer_of("web")
                if balancer is None or balancer["spec"].get("workloadType") != kind:
                    return False
                if not (balancer.get("status") or {}).get("address"):
                    return False
                now = await play.stage.service("web")
                return now is not None and now.addresses == service.addresses

            await play.timed(f"{kind} after", until(is_switched, within=90, what=f"the switch to {kind}"))
        await play.delete("web")


async def dhcp(play: Play) -> None:
    """10 Services with addresses from DHCP"""
    names = [f"d-{number}" for number in range(10)]

    async def served() -> None:
        await play.create(*names, annotations={IPAM: "dhcp"})
        await play.stage.served(*names, within=WITHIN)

    await play.timed("last address after", served())
    await play.delete(*names)


async def by_hand(play: Play) -> None:
    """A load balancer that an administrator deletes: it comes back with its address"""
    await play.harvester.create_pool("lan", "127.77.0.0/24")
    await play.create("web")
    (service,) = await play.stage.served("web")
    before = await play.balancer_of("web")
    assert before is not None
    await play.stage.host.delete(LOAD_BALANCERS, before["metadata"]["name"], namespace=VM_NAMESPACE)

    async def is_back() -> bool:
        now = await play.balancer_of("web")
        return now is not None and now["metadata"]["uid"] != before["metadata"]["uid"] and bool(_address_of(now))

    await play.timed("back after", until(is_back, within=60, what="the new load balancer"))
    (now,) = await play.stage.served("web")
    if now.addresses != service.addresses:
        raise TimeoutError(f"the address was {service.addresses}, and is {now.addresses}")
    await play.delete("web")


async def killed(play: Play) -> None:
    """40 Services while Harvester's controller is killed three times; half of them are deleted"""
    await play.harvester.create_pool("lan", "127.77.0.0/16")
    names = [f"k-{number}" for number in range(40)]
    await play.create(*names)
    for _ in range(3):
        await asyncio.sleep(REST_SECONDS)
        await play.harvester.stop_controller()
        await play.harvester.start_controller()
    gone, rest = names[::2], names[1::2]
    await asyncio.gather(*map(play.stage.delete_service, gone))
    await play.timed("the others served after", play.served(*rest))
    await play.gone(*gone)
    # An address that a killed controller booked and never noted can stay booked: what is served must be right.
    addresses = Counter(filter(None, map(_address_of, await play.balancers())))
    if max(addresses.values()) > 1:
        raise TimeoutError(f"two load balancers have one address: {addresses.most_common(3)}")
    await asyncio.gather(*map(play.stage.delete_service, rest))
    await play.gone(*rest)

    async def no_balancer() -> bool:
        return not await play.balancers()

    await until(no_balancer, within=WITHIN, what="no load balancer left")
    play.figures.append(f"{(await play.harvester.counts()).booked} addresses left booked")


async def webhook(play: Play) -> None:
    """Services that are created and deleted without the webhook"""
    await play.harvester.create_pool("lan", "127.77.0.0/24")
    await play.create("old")
    await play.stage.served("old")
    await play.harvester.stop_webhook()
    await play.create("new")
    await play.stage.hears("new", Reason.HARVESTER_UNAVAILABLE)
    await play.stage.delete_service("old")
    await play.harvester.start_webhook()
    await play.timed("served after", play.stage.served("new", within=WITHIN))
    await play.timed("deleted after", play.stage.gone("old", within=WITHIN))
    await play.delete("new")


@asynccontextmanager
async def _two_nics(play: Play) -> AsyncIterator[None]:
    """Have a node whose VM, made by Rancher, has a NIC in each of two networks with a pool."""
    for network, subnet in NETWORKS_OF_VMS.items():
        await _create_network(play, network)
        await _create_pool_of_network(play, network.partition("/")[2], subnet, network)
    machine = Machine.of_kind(Kind.RANCHER, 1, CLUSTER_NAME, namespace=VM_NAMESPACE, networks=tuple(NETWORKS_OF_VMS))
    machines = Machines(play.stage.host)
    await machines.create(machine, "127.77.0.200", "127.78.0.200")
    await _webhook_finds_network(play, machine.networks[0])
    mapping = {"interface-nad-mapping": json.dumps(dict.fromkeys(NETWORKS_OF_VMS, "lo"))}
    config_map = {"metadata": {"name": NAD_MAPPING_NAME, "namespace": NAD_MAPPING_NAMESPACE}, "data": mapping}
    await play.stage.guest.create(CONFIG_MAPS, config_map, namespace=NAD_MAPPING_NAMESPACE)
    try:
        yield
    finally:
        await play.stage.guest.delete(CONFIG_MAPS, NAD_MAPPING_NAME, namespace=NAD_MAPPING_NAMESPACE)
        await machines.delete(machine)


async def _create_network(play: Play, network: str) -> None:
    """Create a network of VMs, ``namespace/name``."""
    namespace, _, name = network.partition("/")
    document = {
        "apiVersion": NETWORKS.api_version,
        "kind": NETWORKS.kind,
        "metadata": {"name": name, "namespace": namespace},
        "spec": {"config": "{}"},
    }
    await play.stage.host.create(NETWORKS, document, namespace=namespace)


async def _create_pool_of_network(play: Play, name: str, subnet: str, network: str) -> None:
    """Create a pool as soon as the webhook has its network in its cache."""
    scope = [{"project": "*", "namespace": "*", "guestCluster": CLUSTER_NAME}]

    async def is_created() -> bool:
        try:
            await play.harvester.create_pool(name, subnet, selector={"network": network, "scope": scope})
        except AdmissionDenied as error:
            if "not found" not in str(error):
                raise
            return False
        return True

    await until(is_created, within=60, what=f"pool {name}")


async def _webhook_finds_network(play: Play, network: str) -> None:
    """Return when the webhook has the VMs in its cache: a dry run of a load balancer gets their network."""
    trial = {
        "apiVersion": LOAD_BALANCERS.api_version,
        "kind": LOAD_BALANCERS.kind,
        "metadata": {"name": "trial", "annotations": {ANNOTATION_OF_CLUSTER: CLUSTER_NAME}},
        "spec": {"workloadType": "cluster", "ipam": "pool"},
    }
    path = LOAD_BALANCERS.path(VM_NAMESPACE)

    async def is_found() -> bool:
        answer = await play.stage.host.request("POST", path, params={"dryRun": "All"}, body=trial)
        return annotations_of(LOAD_BALANCERS.decode(answer)).get(LB_SELECT_NETWORK, "") == network

    await until(is_found, within=60, what=f"network {network} of the VMs in a dry run")


async def networks(play: Play) -> None:
    """Services for the second network of VMs: without a pool the address is one of this network, or not announced"""
    async with _two_nics(play):
        await play.create("named", annotations={NETWORK: SECOND_NETWORK, IP_POOL: "second"})
        (service,) = await play.stage.served("named")
        _expect(service.addresses[0].startswith("127.78."), f"{service.addresses} are of the named pool")
        await play.create("asks", annotations={NETWORK: SECOND_NETWORK})
        if play.version.respects_network:
            (service,) = await play.stage.served("asks")
            _expect(service.addresses[0].startswith("127.78."), f"{service.addresses} are of the requested network")
        else:
            told = await _warned(play, "asks", IP_POOL)
            found = await play.stage.service("asks")
            _expect(found is not None and not found.addresses, "no address of another network is announced")
            play.figures.append(f"{told.reason}: {told.message}")
            await play.stage.change_service("asks", {"metadata": {"annotations": {IP_POOL: "second"}}})
            (service,) = await play.stage.served("asks")
            _expect(
                service.addresses[0].startswith("127.78."), f"{service.addresses} are of the pool that is named now"
            )
        await play.delete("named", "asks")


async def udp(play: Play) -> None:
    """A VM load balancer with TCP and UDP on one port: both, or TCP and a Warning"""
    await play.harvester.create_pool("lan", "127.77.0.0/24")
    ports = [{"name": name, "port": 5353, "protocol": protocol} for name, protocol in (("dns", "TCP"), ("udp", "UDP"))]
    async with _nodes(play, 1):
        await play.stage.create_service("dns", ports=ports, annotations={WORKLOAD_TYPE: "vm"})
        await play.stage.served("dns")
        balancer = await play.balancer_of("dns")
        found = {one["protocol"] for one in (balancer or {})["spec"]["listeners"]}
        _expect(found == ({"TCP", "UDP"} if play.version.listeners_by_protocol else {"TCP"}), f"listeners {found}")
        if not play.version.listeners_by_protocol:
            told = await _warned(play, "dns", "UDP")
            play.figures.append(f"{told.reason}: {told.message}")
        await play.delete("dns")


async def better_pool(play: Play) -> None:
    """A better pool beside an allocation: the address stays, or moves once and is explained"""
    await play.harvester.create_pool("lan", "127.77.0.0/24")
    await play.create("web")
    (service,) = await play.stage.served("web")
    scope = [{"project": "*", "namespace": "*", "guestCluster": CLUSTER_NAME}]
    await play.harvester.create_pool("close", "127.78.0.0/24", selector={"scope": scope})
    await _touch(play, "web")
    if play.version.selects_again:
        told = await play.stage.hears("web", "AddressChanged")
        _expect(IP_POOL in told.message, f"the Warning tells what prevents it: {told.message}")
        play.figures.append(told.message)
        await play.stage.served("web")
    else:
        await asyncio.sleep(REST_SECONDS)
        (now,) = await play.stage.served("web")
        _expect(now.addresses == service.addresses, f"{service.addresses} stays, not {now.addresses}")
    await play.books_agree()
    await play.delete("web")


async def _touch(play: Play, service: str) -> None:
    """Change the load balancer of a Service as another client."""
    balancer = await play.balancer_of(service)
    assert balancer is not None, "the load balancer is deleted at the end of the scene"
    change = {"metadata": {"annotations": {"example.com/touched": "yes"}}}
    await play.stage.host.merge_patch(LOAD_BALANCERS, balancer["metadata"]["name"], change, namespace=VM_NAMESPACE)


async def _warned(play: Play, service: str, text: str) -> Told:
    """Return the Warning about a Service that contains a text, once there is one."""

    async def found() -> list[Told]:
        return [one for one in await play.stage.told(service) if one.type == "Warning" and text in one.message]

    return (await until(found, within=60, what=f"a Warning about {service} with {text!r}"))[-1]


def _expect(is_so: bool, what: str) -> None:
    """Raise AssertionError if the opposite of what a scene expects is so."""
    if not is_so:
        raise AssertionError(f"expected: {what}")


PlayScene = Callable[[Play], Awaitable[None]]
SCENES: Final[Sequence[PlayScene]] = (
    hundred, quick, waiting, exhausted, better_pool, networks, vm, udp, switch, dhcp, by_hand, killed, webhook,
)  # fmt: skip


@asynccontextmanager
async def _opened(scene: Scene, directory: Path, harvester: RealHarvester) -> AsyncIterator[Play]:
    """Run a new controller for one scene; delete the pools at the end."""
    await asyncio.to_thread(directory.mkdir)
    kube_vip = KubeVipOptions(dhcp_range=GUEST_LEASES)
    async with Stage(scene, directory, kube_vip=kube_vip, harvester=_running(harvester)) as stage:
        run = stage.run()
        await stage.logged(run, STARTED)
        try:
            yield Play(stage, harvester, run)
        finally:
            await _clear(stage)


@asynccontextmanager
async def _running(harvester: RealHarvester) -> AsyncIterator[RealHarvester]:
    """Use a Harvester that runs longer than one stage."""
    yield harvester


async def _clear(stage: Stage) -> None:
    """Delete Services and pools, and bookings that a failed scene left."""
    for service in await stage.services():
        if service.spec.type == "LoadBalancer":
            await stage.delete_service(service.metadata.name)

    async def empty() -> bool:
        return not (await stage.host.list(LOAD_BALANCERS)).items

    await until(empty, within=WITHIN, what="no load balancer left")
    for pool in (await stage.host.list(POOLS)).items:
        await stage.host.merge_patch(POOLS, pool["metadata"]["name"], {"status": {"allocated": None}})
        await stage.host.delete(POOLS, pool["metadata"]["name"])


async def play_all(scenes: Sequence[PlayScene], directory: Path) -> int:
    """Play scenes, print a line for each, and return the number of failed ones."""
    scene = await asyncio.to_thread(Scene.start, directory, audit=True, controller_manager=True)
    failed = 0
    try:
        client = ApiClient(load_credentials(scene.harvester.admin_kubeconfig), cluster="harvester-admin")
        async with client, RealHarvester(scene.harvester, client, directory, HOST_LEASES) as harvester:
            await client.create(INSTANCES, instance_document(BYSTANDER), namespace=VM_NAMESPACE)
            for one in scenes:
                async with _opened(scene, directory / one.__name__, harvester) as play:
                    failed += not await _played(one, play)
    finally:
        scene.stop()
    return failed


async def _played(scene: PlayScene, play: Play) -> bool:
    """Play a scene and print its line; return whether it succeeded."""
    loop = asyncio.get_running_loop()
    began, result = loop.time(), "ok"
    try:
        await scene(play)
    except (TimeoutError, AssertionError) as error:
        result = f"FAILED: {error}"
    if "Traceback" in play.run.log:
        result = "FAILED: the controller logged a traceback"
    text = "; ".join([*play.figures, result])
    print(f"{loop.time() - began:6.1f} s  {scene.__name__:10} {scene.__doc__}: {text}", flush=True)
    return result == "ok"


def main() -> None:
    """Entry point of ``python -m devenv.e2eharvester`` in a new network namespace."""
    names = [scene.__name__ for scene in SCENES]
    parser = argparse.ArgumentParser(prog="python -m devenv.e2eharvester", description="Run it next to Harvester.")
    parser.add_argument("scenes", nargs="*", help="scenes to play, by default all")
    parser.add_argument("--check", action="store_true", help="only check the arguments and the machine")
    options = parser.parse_args()
    chosen = options.scenes or names
    if unknown := sorted({*chosen} - {*names}):
        sys.exit(f"error: no scene has the name {', '.join(unknown)}; the scenes are {', '.join(names)}")
    try:
        version = version_of(harvester_programs() / CONTROLLER)
        require_root("make e2e-harvester")
        require_tools(NETWORK_TOOLS)
    except DevenvError as error:
        sys.exit(f"error: {error}")
    if options.check:
        return
    prepare_network()
    print(f"The controller next to Harvester's load balancer controller and webhook {version}:", flush=True)
    with run_directory("e2e-harvester") as directory, logs_to(directory / "emulators.log"):
        scenes = [scene for scene in SCENES if scene.__name__ in chosen]
        if failed := asyncio.run(play_all(scenes, directory)):
            sys.exit(f"error: {failed} of {len(scenes)} scenes failed")


if __name__ == "__main__":
    main()
