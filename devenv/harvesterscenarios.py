"""What is played against Harvester's real controller and webhook and against the emulator: scenarios as data.

``devenv.recordharvester`` records the real ones, of several versions. A test compares the emulator of each version with
the recordings. A VM that belongs to no guest cluster runs beside every scenario: without one, Harvester 1.2 and 1.3
accept no load balancer.

After each step, the player waits until nothing changes any more. Steps with ``at_once`` are taken together with the
next one. A step that the API server or the webhook rejects is recorded with the answer.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Any, Final

from devenv.harvester.admission import (
    CLUSTER,
    CLUSTER_LABEL,
    MANAGEMENT_NETWORK,
    NETWORK,
    PROJECT_ANNOTATION,
    REMOVAL_ANNOTATION,
)
from devenv.harvester.ippools import RELEASE
from devenv.harvester.machines import (
    Kind,
    Machine,
    instance_document,
    interface_lists,
    interfaces_of,
    machine_document,
)
from devenv.player import NAMESPACE, Step, at_once, wait
from devenv.watch import Document

OTHER_NAMESPACE: Final = "project-vms"
"""A namespace that a step creates."""
CLUSTER_NAME: Final = "demo"
BYSTANDER: Final = "bystander"
"""The VM that belongs to no guest cluster."""
POOL_SUBNET: Final = "172.31.9.0/24"
FREE_SUBNET: Final = "172.31.10.0/24"
PORT: Final = 30080
"""Node port of the VMs."""
HOST_LEASES: Final = ("127.79.0.10", "127.79.0.99")
"""First and last address of the DHCP server in the network of Harvester's hosts."""
EVERYBODY: Final[Document] = {"scope": [{"project": "*", "namespace": "*", "guestCluster": "*"}]}
LISTENER: Final[Document] = {"name": "http", "port": 80, "protocol": "TCP", "backendPort": PORT}
CHECK: Final[Document] = {
    "port": PORT,
    "successThreshold": 2,
    "failureThreshold": 2,
    "periodSeconds": 1,
    "timeoutSeconds": 1,
}


class Interleaving(Enum):
    """What may differ between two recordings of one scenario, and why."""

    NONE = "nothing"
    MAP_ORDER = "which of several entries with one owner is taken: Go iterates over a map in any order"
    WORKERS = "which load balancer gets which address, and the bookings of the pool: two workers serve them at once"
    STALE = (
        "how often an allocation is released and made again: an attempt can begin on a copy before its own last write"
    )
    GOING = "whether a VMI that is being deleted becomes an endpoint again for a moment: its name is still in a cache"
    CACHES = "messages of moments in which a cache of Harvester lacks its own last write, and what is written meanwhile"


class Server(Enum):
    """On which API server the emulator is compared."""

    ANY = "in memory"
    BOTH = "in memory, and with the webhook as a server on a real one"
    REAL = "on a real one, whose own rules matter"


NEWEST: Final = frozenset({"v1.9"})
MAIN: Final = NEWEST | {"v0.3.0", "v0.4.4", "v1.8.2"}
"""The tags whose controllers differ."""
ADMISSION: Final = MAIN | {"v1.8.0"}
"""Those whose webhooks differ."""
RELEASING: Final = frozenset({"v1.8.2", "v1.9"})
"""Those that release an allocation that a load balancer does not know. In others, a conflict at the start of the
controller can leave one for ever."""
REMOVAL: Final = frozenset({"v1.8.0", "v1.8.2", "v1.9"})
"""Those that know of the removal of a guest cluster."""


@dataclass(frozen=True)
class Scenario:
    """A sequence of steps in an empty Harvester."""

    name: str
    steps: tuple[Step, ...]
    may_differ: Interleaving = Interleaving.NONE
    server: Server = Server.ANY
    tags: frozenset[str] = NEWEST
    """The tags of load-balancer-harvester whose programs are recorded in it."""

    @property
    def is_simulated(self) -> bool:
        """Whether the simulation has everything in it: no traffic, and no removal of a cluster."""
        if self.server is Server.REAL:
            return False
        for step in self.steps:
            if step.kind in {"VirtualMachine", "backend", "Service"}:
                return False
            is_creation = step.kind == "LoadBalancer" and step.verb == "create"
            if is_creation and step.body["spec"].get("workloadType") != "cluster":
                return False
        return True


def scenario(name: str, *steps: Step, **facts: Any) -> Scenario:
    """Return a scenario of these steps; ``facts`` are its other fields."""
    return Scenario(name, steps, **facts)


# Steps.


def pool(name: str = "lan", *ranges: Mapping[str, str] | str, **selector: Any) -> Step:
    """Create a pool, without ranges of addresses .1 to .254; ``selector`` is that of the pool."""
    entries = [{"subnet": entry} if isinstance(entry, str) else dict(entry) for entry in ranges or (POOL_SUBNET,)]
    body = {"metadata": {"name": name}, "spec": {"ranges": entries, "selector": selector or EVERYBODY}}
    return Step("create", "IPPool", name, body, namespace="")


def span(first: int, last: int, subnet: str = POOL_SUBNET, **more: str) -> dict[str, str]:
    """Return a range of a pool by the last numbers of its first and last address."""
    prefix = subnet.rpartition(".")[0]
    return {"subnet": subnet, "rangeStart": f"{prefix}.{first}", "rangeEnd": f"{prefix}.{last}", **more}


def scope(project: str = "*", namespace: str = "*", guest_cluster: str = "*") -> Document:
    """Return a tuple of a pool's selector; empty texts are omitted."""
    entries = {"project": project, "namespace": namespace, "guestCluster": guest_cluster}
    return {key: value for key, value in entries.items() if value}


def change_pool(name: str = "lan", **body: Any) -> Step:
    """Send a merge patch of a pool; ``body`` are its parts."""
    return Step("patch", "IPPool", name, body, namespace="")


def seed(history: Mapping[str, str | None], name: str = "lan") -> Step:
    """Write entries of the history of a pool."""
    return change_pool(name, status={"allocatedHistory": dict(history)})


def create(
    name: str = "web",
    *,
    namespace: str = NAMESPACE,
    annotations: Mapping[str, str] | None = None,
    labels: Mapping[str, str] | None = None,
    finalizers: Sequence[str] = (),
    **spec: Any,
) -> Step:
    """Create a load balancer of type cluster with an address from a pool, unless ``spec`` says otherwise."""
    metadata: Document = {"name": name, "annotations": {CLUSTER: CLUSTER_NAME, **(annotations or {})}}
    if labels:
        metadata["labels"] = dict(labels)
    if finalizers:
        metadata["finalizers"] = list(finalizers)
    wanted = {"ipam": "pool", "workloadType": "cluster", **spec}
    body = {"metadata": metadata, "spec": {key: value for key, value in wanted.items() if value is not None}}
    return Step("create", "LoadBalancer", name, body, namespace=namespace)


def create_vm(name: str = "web", **spec: Any) -> Step:
    """Create a load balancer for all VMs of the cluster, with one listener, unless ``spec`` says otherwise."""
    selector = {"guestcluster.harvesterhci.io/name": [CLUSTER_NAME]}
    return create(name, **{"workloadType": "vm", "listeners": [LISTENER], "backendServerSelector": selector, **spec})


def change(name: str = "web", **body: Any) -> Step:
    """Send a merge patch of a load balancer; ``body`` are its parts."""
    return Step("patch", "LoadBalancer", name, body)


def annotate(name: str = "web", **values: str | None) -> Step:
    """Change an annotation of a load balancer that means nothing to Harvester."""
    return change(name, metadata={"annotations": {f"example.com/{key}": value for key, value in values.items()}})


def with_status(step: Step, status: Document) -> Step:
    """Return the creation of a load balancer with a status: it has no status subresource."""
    return Step(step.verb, step.kind, step.name, {**step.body, "status": status}, step.namespace)


def delete(name: str = "web", *, namespace: str = NAMESPACE) -> Step:
    """Delete a load balancer."""
    return Step("delete", "LoadBalancer", name, namespace=namespace)


def delete_pool(name: str = "lan") -> Step:
    """Delete a pool."""
    return Step("delete", "IPPool", name, namespace="")


def machine(number: int, *addresses: str, network: str = "") -> Step:
    """Start a VM of the cluster; ``addresses`` are those of its guest agent."""
    return _started(_machine(number, network), *addresses)


def older_machine(name: str, network: str) -> Step:
    """Start a VM whose node driver named it after its cluster, and whose label names no cluster of the scenario."""
    return _started(Machine(name, cluster="unknown", networks=(network,)))


def _started(one: Machine, *addresses: str) -> Step:
    return Step("create", "VirtualMachineInstance", one.name, instance_document(one, *addresses))


def two_nics(kind: Kind, number: int, first: str, second: str, cluster: str = CLUSTER_NAME) -> Step:
    """Start a VM with two networks."""
    return _started(Machine.of_kind(kind, number, cluster, networks=(first, second)))


def one_nic(kind: Kind, number: int, network: str = "", cluster: str = CLUSTER_NAME) -> Step:
    """Start a VM with one network."""
    return _started(Machine.of_kind(kind, number, cluster, networks=(network,)))


def object_of(kind: Kind, number: int) -> Step:
    """Create a VM that is not started."""
    machine = Machine.of_kind(kind, number, CLUSTER_NAME)
    return Step("create", "VirtualMachine", machine.name, machine_document(machine))


def stop_vm(name: str) -> Step:
    """Delete the VMI of a VM."""
    return Step("delete", "VirtualMachineInstance", name)


def bystander(namespace: str) -> Step:
    """Start a VM of no guest cluster."""
    document = instance_document(Machine(BYSTANDER, namespace=namespace, kind=Kind.PLAIN, networks=("",)))
    return Step("create", "VirtualMachineInstance", BYSTANDER, document, namespace=namespace)


def report(number: int, *addresses: str) -> Step:
    """Let the guest agent of a VM report other addresses; none means that the agent is disconnected."""
    body = {"status": {"interfaces": interfaces_of(_machine(number), *addresses)}}
    return Step("patch", "VirtualMachineInstance", f"node-{number}", body)


def _interfaces(machine: Machine, *of_nics: Sequence[str]) -> Document:
    """Return the change of a VMI whose guest agent reports these addresses of each NIC."""
    return {"status": {"interfaces": interface_lists(machine, *of_nics)}}


def stop_machine(number: int) -> Step:
    """Delete the VMI of a VM."""
    return Step("delete", "VirtualMachineInstance", f"node-{number}")


def _machine(number: int, network: str = "") -> Machine:
    return Machine(f"node-{number}", cluster=CLUSTER_NAME, networks=(network,))


def address_of(number: int) -> str:
    """Return the address of a VM."""
    return f"192.0.2.{number}"


def listen(number: int) -> Step:
    """Let a VM accept connections on its node port."""
    return Step("listen", "backend", address_of(number))


def fail(number: int) -> Step:
    """Let a VM refuse connections on its node port."""
    return Step("fail", "backend", address_of(number))


def stop(what: str) -> Step:
    """Stop the controller or the webhook."""
    return Step("stop", what)


def start(what: str) -> Step:
    """Start the controller or the webhook again."""
    return Step("start", what)


def namespace_of_project(project: str) -> Step:
    """Create a namespace of a project."""
    body = {"metadata": {"name": OTHER_NAMESPACE, "annotations": {PROJECT_ANNOTATION: project}}}
    return Step("create", "Namespace", OTHER_NAMESPACE, body, namespace="")


def network(name: str, *, labels: Mapping[str, str] | None = None, vlan: int = 0) -> Step:
    """Create a network of VMs; its VLAN is in ``labels`` or in its configuration."""
    config = f'{{"cniVersion":"0.3.1","name":"{name}","type":"bridge","bridge":"mgmt-br","vlan":{vlan}}}'
    body = {"metadata": {"name": name, "labels": dict(labels or {})}, "spec": {"config": config}}
    return Step("create", "NetworkAttachmentDefinition", name, body)


def removed_machine(*, is_removed: bool) -> Step:
    """Create a VM of the cluster; if the cluster is removed, its annotation says so."""
    document = machine_document(_machine(1))
    if is_removed:
        document["metadata"]["annotations"] = {REMOVAL_ANNOTATION: "true"}
    return Step("create", "VirtualMachine", "node-1", document)


BACKOFF_SECONDS: Final = 12.0
"""After which Harvester has tried again."""
ATTEMPTS_SECONDS: Final = 6.0
"""After which the attempts of Harvester 1.2 and 1.3 have ended: each waits a second for the address of the host."""
START_SECONDS: Final = 10.0
"""After which a controller that was started has filled its caches, also on a busy machine."""
KEY: Final = f"{NAMESPACE}/web"
GATEWAY: Final = "172.31.9.1"
SECOND_NIC: Final = "default/vlan5"
NAMESPACE_ANNOTATION: Final = "loadbalancer.harvesterhci.io/namespace"
ONLY_BY_NAME: Final = [scope(namespace="nowhere")]
"""Scope of a pool that only ``spec.ipPool`` selects."""
TWO_LISTENERS: Final = [LISTENER, {"name": "dns", "port": 53, "protocol": "UDP", "backendPort": 30053}]
OF_CLUSTER: Final = {CLUSTER_LABEL: CLUSTER_NAME}
FIRST_NETWORK: Final = "default/vlan5"
SECOND_NETWORK: Final = "default/vlan6"
BOTH_NETWORKS: Final = (
    network("vlan5", vlan=5),
    network("vlan6", vlan=6),
    pool("five", network=FIRST_NETWORK, scope=[scope()]),
    pool("six", FREE_SUBNET, network=SECOND_NETWORK, scope=[scope(namespace=NAMESPACE)]),
)
"""Two networks of VMs, and a pool for each."""
TWO_NICS: Final = Machine("node-1", cluster=CLUSTER_NAME, networks=("", SECOND_NETWORK))
BLOCKED: Final = {"allocatedAddress": {"ipPool": "lan"}}
"""Status of a load balancer that gets no address, and whose allocations in the pool are released with it."""
NOWHERE: Final = {"guestcluster.harvesterhci.io/name": ["no-node-of-this-cluster"]}
"""Selector of a load balancer without backends."""
PROJECT: Final = "loadbalancer.harvesterhci.io/project"

SCENARIOS: Final[Sequence[Scenario]] = (
    # Addresses.
    scenario("address from a pool", pool(), create(), delete(), tags=MAIN),
    scenario(
        "finalizer of the client",
        pool(),
        create(finalizers=["wrangler.cattle.io/harvester-lb-controller"]),
        delete(),
    ),
    scenario("dhcp", create(ipam="dhcp"), delete(), tags=MAIN),
    scenario("no pool until one comes", create(), pool(), delete(), may_differ=Interleaving.CACHES, tags=MAIN),
    scenario(
        "full pool until an address is free",
        pool("lan", span(10, 10)),
        create("first"),
        create(),
        wait(delete("first"), BACKOFF_SECONDS),
        delete(),
        tags=MAIN,
    ),
    scenario(
        "full pool until a write",
        pool("lan", span(10, 10)),
        create("first"),
        # The next attempt is after 10 s.
        wait(create(), 6),
        delete("first"),
        annotate(touched="yes"),
        tags=MAIN,
    ),
    scenario(
        "named pool does not exist until it is created",
        create(ipPool="lan"),
        wait(pool(), BACKOFF_SECONDS),
        tags=MAIN,
    ),
    scenario(
        "same name gets its address again",
        pool(),
        create("first"),
        create(),
        delete(),
        create("third"),
        create(),
        tags=MAIN,
    ),
    scenario(
        "history of another load balancer does not protect an address",
        pool("lan", span(10, 10)),
        create("first"),
        delete("first"),
        create(),
        delete(),
        create("first"),
        tags=MAIN,
    ),
    scenario(
        "two ranges with a gateway inside",
        pool("lan", span(10, 11, gateway="172.31.9.11"), span(20, 21, gateway="172.31.9.20")),
        *(create(n) for n in "abc"),
    ),
    scenario("single address", pool("lan", "172.31.9.7/32"), create(), create("other")),
    scenario(
        "pool is changed",
        pool(),
        pool("dmz", FREE_SUBNET, scope=ONLY_BY_NAME),
        create(ipPool="lan"),
        change(spec={"ipPool": "dmz"}),
        delete(),
        tags=MAIN,
    ),
    scenario(
        "pool is changed to one that does not exist",
        pool(),
        create(ipPool="lan"),
        change(spec={"ipPool": "nothing"}),
        change(spec={"ipPool": "lan"}),
        tags=MAIN,
    ),
    scenario("pool is not named any more", pool(), create(ipPool="lan"), change(spec={"ipPool": None}), tags=MAIN),
    scenario(
        "five at once",
        pool(),
        *at_once(*(create(name) for name in "abcde")),
        *at_once(*(delete(name) for name in "abcde")),
        may_differ=Interleaving.WORKERS,
    ),
    # Entries that others write to a pool.
    scenario("seed gives the address", pool(), seed({"172.31.9.33": KEY}), create(), delete(), tags=MAIN),
    scenario(
        "seed of another load balancer is taken in turn",
        pool(),
        seed({"172.31.9.2": f"{NAMESPACE}/other"}),
        create(),
        create("other"),
        tags=MAIN,
    ),
    scenario(
        "seeded address is in use until it is free",
        pool(),
        create("first"),
        seed({"172.31.9.2": KEY}),
        create(),
        wait(delete("first"), BACKOFF_SECONDS),
        tags=MAIN,
    ),
    scenario(
        "seed of the gateway",
        pool(),
        seed({GATEWAY: KEY}),
        create(),
        wait(seed({GATEWAY: None}), BACKOFF_SECONDS),
        tags=MAIN,
    ),
    scenario("seed outside of the ranges", pool(), seed({"10.0.0.5": KEY}), create(), delete(), tags=MAIN),
    scenario(
        "seed that is no address",
        pool(),
        seed({"nonsense": KEY, "172.31.9.033": f"{NAMESPACE}/b"}),
        create(),
        create("b"),
        tags=MAIN,
    ),
    scenario("seed in the form of IPv6", pool(), seed({"::ffff:172.31.9.33": KEY}), create(), delete(), tags=MAIN),
    scenario(
        "two seeds with one owner",
        pool(),
        seed({"172.31.9.33": KEY, "172.31.9.44": KEY}),
        create(),
        delete(),
        may_differ=Interleaving.MAP_ORDER,
        tags=MAIN,
    ),
    scenario(
        "seed for an owner with an allocation",
        pool(),
        change_pool(status={"allocated": {"172.31.9.5": KEY}, "allocatedHistory": {"172.31.9.33": KEY}}),
        create(),
        delete(),
        may_differ=Interleaving.MAP_ORDER,
        tags=MAIN,
    ),
    scenario(
        "allocation that a load balancer of the same name left",
        pool(),
        change_pool(status={"allocated": {"172.31.9.5": KEY}}),
        create(),
        may_differ=Interleaving.STALE,
        tags=MAIN,
    ),
    scenario(
        "allocation is released by hand",
        pool(),
        create(),
        change_pool(status={"allocated": {"172.31.9.5": f"{NAMESPACE}/gone"}}),
        *(
            change_pool(metadata={"annotations": {RELEASE: order}})
            for order in (
                f"172.31.9.2: {KEY}",
                f"172.31.9.5: {NAMESPACE}/other",
                "nonsense",
                f"172.31.9.5: {NAMESPACE}/gone",
            )
        ),
        tags=MAIN,
    ),
    scenario(
        "ranges are changed",
        pool("lan", span(10, 20)),
        create(),
        seed({"172.31.9.20": f"{NAMESPACE}/a", "172.31.9.12": f"{NAMESPACE}/b", "10.0.0.5": f"{NAMESPACE}/c"}),
        change_pool(spec={"ranges": [span(10, 15)]}),
        change_pool(spec={"ranges": [span(12, 15)]}),
        tags=MAIN,
    ),
    scenario(
        "pool with an allocation is not deleted",
        pool(),
        create(),
        delete_pool(),
        delete(),
        delete_pool(),
        tags=MAIN,
    ),
    # Selection of a pool.
    scenario(
        "pool of the namespace only",
        pool(scope=[scope("", NAMESPACE, "")]),
        create(),
        create_vm("vm", backendServerSelector=None),
        tags=MAIN,
    ),
    scenario(
        "global pool before the pool of the namespace only",
        pool("close", FREE_SUBNET, scope=[scope("", NAMESPACE, "")]),
        pool("everybody"),
        create(),
        tags=MAIN,
    ),
    scenario(
        "pool of the cluster before the global pool",
        pool("close", FREE_SUBNET, scope=[scope(guest_cluster=CLUSTER_NAME)]),
        pool("everybody"),
        create(),
        tags=MAIN,
    ),
    scenario(
        "priority",
        pool("low", FREE_SUBNET, scope=[scope(namespace=NAMESPACE)], priority=1),
        pool("high", scope=[scope(namespace=NAMESPACE)], priority=9),
        create(),
        tags=MAIN,
    ),
    scenario(
        "network of the pool",
        network("vlan5", labels={"network.harvesterhci.io/vlan-id": "5"}),
        network("vlan6", vlan=6),
        pool("five", network=SECOND_NIC, scope=[scope()]),
        pool("six", FREE_SUBNET, network="default/vlan6", scope=[scope(namespace=NAMESPACE)]),
        create(annotations={NETWORK: "default/vlan6"}),
        create("other"),
        tags=MAIN,
    ),
    scenario(
        "network of the cluster's VMs",
        machine(1, address_of(1), network=SECOND_NIC),
        *at_once(
            create(),
            create("managed", annotations={MANAGEMENT_NETWORK: "default/vlan9"}),
            create("stranger", annotations={CLUSTER: ""}),
        ),
        older_machine("old-pool-1", "default/vlan8"),
        *at_once(create("old", annotations={CLUSTER: "old"}), create("nobody", annotations={CLUSTER: "nobody"})),
        change(metadata={"annotations": {NETWORK: "default/vlan7"}}),
        change(metadata={"annotations": {NETWORK: None}}),
        tags=MAIN,
    ),
    scenario(
        "project of the namespace",
        namespace_of_project("c-m:p-1"),
        pool(scope=[scope("c-m/p-1", "*", "*")]),
        create(namespace=OTHER_NAMESPACE),
        create(),
        tags=MAIN,
    ),
    # Rejections.
    scenario(
        "load balancers that are rejected",
        machine(1, address_of(1)),
        create_vm("a", listeners=[]),
        create_vm("b", listeners=[LISTENER, {**LISTENER, "port": 81, "backendPort": 1}]),
        create_vm("c", listeners=[LISTENER, {**LISTENER, "name": "x", "backendPort": 1}]),
        create_vm("d", listeners=[LISTENER, {**LISTENER, "name": "x", "port": 81}]),
        create_vm("e", listeners=[{**LISTENER, "port": 65536}]),
        create_vm("f", listeners=[{**LISTENER, "port": 0}]),
        create_vm("g", listeners=[{**LISTENER, "backendPort": 65536}]),
        create_vm("h", listeners=[{**LISTENER, "backendPort": 0}]),
        create_vm("i", healthCheck={"port": 80}),
        create_vm("j", listeners=[{**LISTENER, "protocol": "UDP"}], healthCheck={"port": PORT}),
        create_vm("k", healthCheck={"port": PORT, "successThreshold": -1}),
        server=Server.BOTH,
        tags=ADMISSION,
    ),
    scenario(
        "unusual load balancers that are accepted",
        machine(1, address_of(1)),
        *at_once(
            create_vm("a", listeners=[{**LISTENER, "protocol": "UDP"}]),
            create_vm("b", listeners=[LISTENER, {**LISTENER, "name": "dns", "protocol": "UDP"}]),
            create_vm("c", listeners=[{**LISTENER, "name": ""}]),
            create_vm("d", healthCheck={"port": PORT, "timeoutSeconds": 9}),
            create_vm("e", healthCheck={"port": 0, "successThreshold": 5}),
            create_vm("f", annotations={NETWORK: SECOND_NIC, NAMESPACE_ANNOTATION: "wrong"}),
            create("g", listeners=[], healthCheck={"port": 1}),
        ),
        tags=ADMISSION,
    ),
    scenario(
        "changes that are rejected",
        machine(1, address_of(1)),
        create_vm(),
        change(spec={"ipam": "dhcp"}),
        change(spec={"workloadType": "cluster"}),
        change(spec={"listeners": []}),
        change(spec={"listeners": [LISTENER, {**LISTENER, "port": 81, "backendPort": 1}]}),
        change(spec={"healthCheck": {"port": 80}}),
        change(spec={"ipam": None, "workloadType": None}),
        create("other", ipam="dhcp"),
        change("other", spec={"ipam": "pool"}),
        change("other", spec={"ipam": None}),
        change("other", spec={"workloadType": "vm", "listeners": [LISTENER]}),
        tags=ADMISSION,
    ),
    scenario(
        "pools that are rejected",
        pool("lan"),
        pool("near", FREE_SUBNET, scope=[scope(namespace=NAMESPACE)], priority=3),
        pool("a", POOL_SUBNET, scope=ONLY_BY_NAME),
        pool("b", "172.31.20.0/24", "172.31.20.0/25", scope=ONLY_BY_NAME),
        pool("c", "172.31.300.0/24", scope=ONLY_BY_NAME),
        pool("d", "172.31.20.0", scope=ONLY_BY_NAME),
        pool("e", {"subnet": "172.31.20.0/24", "rangeStart": "172.31.21.1"}, scope=ONLY_BY_NAME),
        pool("f", {"subnet": "172.31.20.0/24", "rangeEnd": "172.31.20.255"}, scope=ONLY_BY_NAME),
        pool("g", {"subnet": "172.31.20.0/24", "gateway": "172.31.20.0"}, scope=ONLY_BY_NAME),
        pool("h", {"subnet": "172.31.20.0/24", "gateway": "nonsense"}, scope=ONLY_BY_NAME),
        pool("i", "172.31.20.0/24"),
        pool("j", "172.31.20.0/24", scope=[scope(namespace="there")], priority=3),
        pool("k", "172.31.20.0/24", scope=[scope(namespace="there"), scope()]),
        pool("l", "172.31.20.0/24", scope=[scope(namespace="there")]),
        pool("m", "172.31.21.0/24", scope=[scope("c/p", "there", "x")]),
        pool("n", "172.31.22.0/24", network="nonsense", scope=ONLY_BY_NAME),
        pool("o", "172.31.22.0/24", network="default/nowhere", scope=ONLY_BY_NAME),
        change_pool(spec={"ranges": []}),
        create(),
        change_pool(spec={"ranges": [span(20, 30)]}),
        tags=ADMISSION,
    ),
    scenario(
        "cluster that is being removed",
        pool(),
        create(labels=OF_CLUSTER),
        create("stays"),
        removed_machine(is_removed=True),
        create("late", labels=OF_CLUSTER),
        create_vm("vm", labels=OF_CLUSTER, backendServerSelector=None),
        create("unnamed", labels={CLUSTER_LABEL: "kubernetes"}),
        Step("delete", "VirtualMachine", "node-1"),
        may_differ=Interleaving.CACHES,
        tags=REMOVAL,
    ),
    scenario(
        "VM of a cluster that stays is deleted",
        pool(),
        create(labels=OF_CLUSTER),
        removed_machine(is_removed=False),
        Step("delete", "VirtualMachine", "node-1"),
        tags=REMOVAL,
    ),
    # What differs between versions.
    scenario(
        "client asks for the second network of its VMs",
        *BOTH_NETWORKS,
        two_nics(Kind.RANCHER, 1, FIRST_NETWORK, SECOND_NETWORK),
        create(annotations={NETWORK: SECOND_NETWORK}),
        create("both", annotations={NETWORK: SECOND_NETWORK, MANAGEMENT_NETWORK: FIRST_NETWORK}),
        create("managed", annotations={MANAGEMENT_NETWORK: SECOND_NETWORK}),
        create("named", annotations={NETWORK: SECOND_NETWORK}, ipPool="six"),
        change(metadata={"annotations": {NETWORK: FIRST_NETWORK}}),
        tags=MAIN,
    ),
    scenario(
        "pool with a network for VMs that Rancher did not make",
        network("vlan5", vlan=5),
        pool(network=FIRST_NETWORK, scope=[scope()]),
        one_nic(Kind.PLAIN, 1, FIRST_NETWORK),
        create(),
        one_nic(Kind.LABELLED, 2, FIRST_NETWORK),
        create("labelled"),
        one_nic(Kind.OLDER_RANCHER, 3, FIRST_NETWORK),
        create("older"),
        create("asks", annotations={NETWORK: FIRST_NETWORK}),
        may_differ=Interleaving.CACHES,
        tags=MAIN,
    ),
    scenario(
        "clusters whose names begin alike",
        one_nic(Kind.RANCHER, 1, SECOND_NETWORK, "prod-eu"),
        create(annotations={CLUSTER: "prod"}),
        create("eu", annotations={CLUSTER: "prod-eu"}),
        tags=MAIN,
    ),
    scenario(
        "better pool comes beside an allocation",
        pool(),
        create(),
        create("named", ipPool="lan"),
        pool("close", FREE_SUBNET, scope=[scope(guest_cluster=CLUSTER_NAME)]),
        *(annotate(name, touched="yes") for name in ("web", "named")),
        delete(),
        may_differ=Interleaving.CACHES,
        tags=MAIN,
    ),
    scenario(
        "last VM of a cluster stops",
        network("vlan5", vlan=5),
        pool("everybody", FREE_SUBNET),
        pool("five", network=FIRST_NETWORK, scope=[scope()]),
        one_nic(Kind.RANCHER, 1, FIRST_NETWORK),
        create(),
        stop_vm("demo-pool-1"),
        annotate(touched="yes"),
        stop_vm(BYSTANDER),
        create("late"),
        annotate(touched="again"),
        delete(),
        may_differ=Interleaving.CACHES,
        tags=MAIN,
    ),
    scenario(
        "pool of an allocation matches no more",
        pool(scope=[scope(namespace=NAMESPACE)]),
        create(),
        change_pool(spec={"selector": {"scope": ONLY_BY_NAME}}),
        annotate(touched="yes"),
        delete(),
        may_differ=Interleaving.CACHES,
        tags=MAIN,
    ),
    scenario(
        "load balancer for VMs that do not run",
        pool(),
        create_vm("early"),
        machine(1, address_of(1)),
        create_vm(),
        change(spec={"backendServerSelector": NOWHERE}),
        stop_machine(1),
        annotate(touched="yes"),
        delete(),
        may_differ=Interleaving.CACHES,
        tags=MAIN,
    ),
    scenario(
        "network and project of a load balancer for VMs",
        *BOTH_NETWORKS,
        pool("projects", "172.31.11.0/24", scope=[scope("c/p", NAMESPACE, "")]),
        machine(1, address_of(1)),
        create_vm("of-network", annotations={NETWORK: FIRST_NETWORK}),
        create_vm("of-project", annotations={PROJECT: "c/p", CLUSTER: ""}),
        may_differ=Interleaving.CACHES,
        tags=MAIN,
    ),
    scenario(
        "backends of a load balancer for VMs that run",
        pool(),
        machine(1, address_of(1)),
        *(
            wait(step, ATTEMPTS_SECONDS)
            for step in (
                create_vm(),
                machine(2, address_of(2)),
                report(1),
                stop_machine(1),
                stop_machine(2),
            )
        ),
        delete(),
        may_differ=Interleaving.GOING,
        tags=MAIN,
    ),
    scenario(
        "lease for VMs that run",
        machine(1, address_of(1)),
        create_vm(ipam="dhcp"),
        delete(),
        may_differ=Interleaving.CACHES,
        tags=MAIN,
    ),
    scenario(
        "VM whose first interface has no IPv4 address",
        pool(),
        _started(TWO_NICS, "fd00::1", address_of(1)),
        wait(create_vm(), ATTEMPTS_SECONDS),
        Step("patch", "VirtualMachineInstance", TWO_NICS.name, _interfaces(TWO_NICS, [], ["192.0.2.9"])),
        may_differ=Interleaving.CACHES,
        tags=MAIN,
    ),
    scenario(
        "host has no address for a load balancer for VMs",
        pool(),
        machine(1, address_of(1)),
        wait(with_status(create_vm(ipPool="lan"), BLOCKED), 8),
        delete(),
        may_differ=Interleaving.CACHES,
        tags=MAIN,
    ),
    scenario(
        "allocation of the same name in the pool that the load balancer names",
        pool(),
        change_pool(status={"allocated": {"172.31.9.5": KEY}}),
        create(ipPool="lan"),
        change(status=BLOCKED),
        delete(),
        may_differ=Interleaving.STALE,
        tags=MAIN,
    ),
    scenario(
        "entry of the history whose address is allocated to the same load balancer",
        pool(),
        change_pool(status={"allocated": {"172.31.9.5": KEY}, "allocatedHistory": {"172.31.9.5": KEY}}),
        create(),
        delete(),
        may_differ=Interleaving.CACHES,
        tags=MAIN,
    ),
    scenario(
        "two allocations of one name are released",
        pool(),
        change_pool(status={"allocated": {"172.31.9.5": KEY, "172.31.9.6": KEY}}),
        stop("controller"),
        with_status(create(ipPool="lan"), {"allocatedAddress": {"ipPool": "lan", "ip": "172.31.9.5"}}),
        wait(start("controller"), START_SECONDS),
        delete(),
        may_differ=Interleaving.MAP_ORDER,
        tags=MAIN,
    ),
    scenario(
        "guest cluster of a load balancer and the labels of its VMs",
        create("none", labels=OF_CLUSTER),
        create("unnamed", labels={CLUSTER_LABEL: "kubernetes"}),
        create("without"),
        object_of(Kind.LABELLED, 1),
        one_nic(Kind.LABELLED, 1),
        create("labelled", labels=OF_CLUSTER),
        object_of(Kind.RANCHER, 2),
        create("rancher", labels=OF_CLUSTER),
        tags=ADMISSION,
    ),
    # Without a controller or a webhook.
    scenario(
        "created and deleted without a controller",
        pool(),
        create("first"),
        stop("controller"),
        create(),
        delete("first"),
        wait(start("controller"), START_SECONDS),
        may_differ=Interleaving.STALE,
        tags=RELEASING,
    ),
    scenario(
        "history is corrected at the start of a controller",
        pool(),
        seed({"10.0.0.5": KEY, "172.31.9.33": KEY}),
        stop("controller"),
        wait(start("controller"), START_SECONDS),
        create(),
        may_differ=Interleaving.CACHES,
        tags=MAIN,
    ),
    scenario(
        "created and deleted without a webhook",
        pool(),
        create("first"),
        stop("webhook"),
        create(),
        delete("first"),
        wait(start("webhook"), 20),
        may_differ=Interleaving.CACHES,
    ),
    # VM load balancers.
    scenario(
        "backends come and go",
        pool(),
        create_vm(),
        machine(1),
        report(1, address_of(1)),
        machine(2, address_of(2)),
        report(1),
        stop_machine(1),
        stop_machine(2),
        delete(),
        may_differ=Interleaving.CACHES,
        tags=MAIN,
    ),
    scenario(
        "backends are checked",
        pool(),
        machine(1, address_of(1)),
        create_vm(healthCheck={"port": PORT}),
        wait(listen(1), 5),
        wait(fail(1), 5),
        wait(change(spec={"healthCheck": None}), 3),
        wait(change(spec={"healthCheck": CHECK}), 5),
        delete(),
        may_differ=Interleaving.CACHES,
        tags=MAIN,
    ),
    scenario(
        "lease for VMs",
        create_vm(ipam="dhcp"),
        machine(1, address_of(1)),
        delete(),
        may_differ=Interleaving.CACHES,
        tags=MAIN,
    ),
    scenario(
        "listeners are changed",
        pool(),
        machine(1, address_of(1)),
        create_vm(),
        change(spec={"listeners": TWO_LISTENERS}),
        change(spec={"listeners": TWO_LISTENERS[1:]}),
        delete(),
        may_differ=Interleaving.CACHES,
    ),
    scenario(
        "pool of a load balancer for VMs is changed",
        pool(),
        pool("dmz", FREE_SUBNET, scope=ONLY_BY_NAME),
        machine(1, address_of(1)),
        create_vm(ipPool="lan"),
        change(spec={"ipPool": "dmz"}),
        delete(),
        may_differ=Interleaving.CACHES,
    ),
    scenario(
        "specifications for VMs that cannot work",
        pool(),
        create_vm("a", backendServerSelector={"key": []}),
        create_vm("key", backendServerSelector={"no key": ["value"]}),
        create_vm("value", backendServerSelector={"key": ["no value"]}),
        create_vm("b", listeners=[{**LISTENER, "protocol": "HTTP"}]),
        create_vm("c", listeners=[{**LISTENER, "name": "HTTP_1"}]),
        create_vm("1d"),
        may_differ=Interleaving.CACHES,
        server=Server.REAL,
        tags=MAIN,
    ),
    scenario(
        "generated Service is deleted and comes back with a change",
        pool(),
        machine(1, address_of(1)),
        create_vm(),
        Step("delete", "Service", "web"),
        annotate(touched="yes"),
        may_differ=Interleaving.CACHES,
    ),
)
