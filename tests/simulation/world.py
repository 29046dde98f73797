"""Both clusters and their components."""

import hashlib
import random
from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any, Final

from devenv.harvester.records import POOLS
from harvester_ccm.config import Announcer
from harvester_ccm.kube.builtin import NAMESPACES
from harvester_ccm.kube.errors import KubeError
from harvester_ccm.kube.objects import Resource
from harvester_ccm.model.core import CONFIG_MAPS, ENDPOINT_SLICES, NODES, SERVICES
from harvester_ccm.model.harvester import INSTANCES, LOAD_BALANCERS, VIRTUAL_MACHINES
from tests.simulation.actions import LAN
from tests.simulation.clocks import time_of_day
from tests.simulation.guest import Guest
from tests.simulation.harvester import HarvesterControllers
from tests.simulation.kubevip import KubeVip
from tests.simulation.loop import SeededLoop
from tests.simulation.machines import MACHINES, Machines
from tests.simulation.network import Network, NetworkFault
from tests.simulation.pools import Pools
from tests.simulation.process import Process
from tests.support.builders import CLUSTER
from tests.support.memory_server import Call, Document, MemoryServer, refused

FLAGS: Final = (
    "--cloud-config=/none",
    "--secure-port=0",
    "--leader-elect-lease-duration=60s",
    "--leader-elect-renew-deadline=45s",
    "--leader-elect-retry-period=20s",
)
CLONE_NAME: Final = "drill"
"""Cluster name of the copy of the guest."""
LEASE: Final = "/apis/coordination.k8s.io/v1/namespaces/kube-system/leases"
EVENTS: Final = "/events"
RECOVERY_SECONDS: Final = 150.0
"""Time after a fault in which the controller gets its Lease, its lists and its writes again."""
MARK: Final = "example.com/touched"
"""Annotation that nothing reads."""
OF_GUEST: Final[Sequence[Resource[Any]]] = (SERVICES, ENDPOINT_SLICES, NODES, CONFIG_MAPS)
OF_HARVESTER: Final[Sequence[Resource[Any]]] = (LOAD_BALANCERS, VIRTUAL_MACHINES, INSTANCES, POOLS)
"""The collections of each side that the controller, kube-vip or Harvester watches."""


class World:
    """One guest cluster, its controllers, and Harvester."""

    def __init__(self, loop: SeededLoop, seed: str, *, pool: int, nodes: int = 0) -> None:
        """``pool`` is the number of addresses that there are, ``nodes`` that of the Nodes."""
        self.loop = loop
        self.seed = seed
        self.dice = random.Random(f"{seed} world")
        self.wrong: list[str] = []
        """Failures of oracles; the schedule ends with the first."""
        self.met: Counter[str] = Counter()
        """Faults, and how often they occurred."""
        self.guest, self.harvester = MemoryServer(uids="guest"), MemoryServer(uids="harvester")
        for server in (self.guest, self.harvester):
            server.clock = lambda: time_of_day(loop)
        self.announcer = Announcer.AUTO
        """Flag ``--announcer`` of all processes."""
        self.actions = 0
        """Number of actions so far."""
        self.disturbed_until = RECOVERY_SECONDS
        """Loop time until which a fault can keep the controller from reading or writing."""
        self.restoring_until = 0.0
        """Time until which an API server is away because its backup is being restored."""
        self.networks = {
            "guest": Network(self.guest, loop.time, f"{seed} guest", self.met),
            "harvester": Network(self.harvester, loop.time, f"{seed} harvester", self.met),
        }
        group = "/apis/loadbalancer.harvesterhci.io"
        self.harvester.answers[group] = {"versions": [{"version": "v1beta1"}]}
        self.harvester.answers[f"{group}/v1beta1"] = {"resources": [{"name": "loadbalancers"}, {"name": "ippools"}]}
        self.guest.put(NAMESPACES, {"metadata": {"name": "kube-system", "uid": CLUSTER.uid}})
        self.controllers = HarvesterControllers(self.harvester, loop, seed, lambda: time_of_day(loop))
        self.pools = Pools(self.harvester, pool)
        self.kube_vip = KubeVip(self.guest, loop, seed)
        self.machines = Machines(self.guest, self.harvester, loop)
        for name in MACHINES[:nodes]:
            self.machines.boot(name)
        flags = self._flags(CLUSTER.name)
        processes = [Process(name, loop, self.guest, self.harvester, flags, self.wrong.append) for name in ("p", "q")]
        self.original = Guest(CLUSTER.name, self.guest, self.harvester, self.kube_vip, *processes)
        self.guests = [self.original]
        self.servers: dict[str, MemoryServer] = {"guest": self.guest, "harvester": self.harvester}
        self._requesting: dict[str, float] = {}
        """Names of the clusters that may request addresses of pool ``lan``, and since when."""
        self.requests_changed_at = 0.0
        """When that last changed."""
        self.harvester.permissions.rules = self._rules_of
        self.harvester.permissions.denies = self._denial_of
        self.on_clone: list[Callable[[Guest], None]] = []
        """Called with a copy of the guest before it runs."""
        self.on_restore: list[Callable[[str], None]] = []
        """Called with the side that has gone back to older data."""
        self._versions = {side: [(0.0, server.version)] for side, server in self.servers.items()}
        for side, server in self.servers.items():
            server.on_change.append(self._noting_versions(side))

    def _flags(self, cluster: str) -> tuple[str, ...]:
        return (*FLAGS, f"--cluster-name={cluster}", f"--announcer={self.announcer}")

    def set_announcer(self, announcer: Announcer) -> None:
        """Set the flag for all processes that start from now on."""
        self.announcer = announcer
        for guest in self.guests:
            for process in guest.processes.values():
                process.flags = self._flags(guest.cluster)

    def network_of(self, guest: Guest) -> Network:
        """Return the network between the processes of a guest cluster and its API server."""
        return self.networks["guest" if guest is self.original else "clone"]

    def disturb(self, seconds: float = 0.0) -> None:
        """Record that a fault lasts for ``seconds`` from now on."""
        self.disturbed_until = max(self.disturbed_until, self.loop.time() + seconds + RECOVERY_SECONDS)

    def permit_requests(self, guest: Guest, *, permitted: bool) -> None:
        """Permit a cluster to request addresses of pool ``lan``, or forbid it."""
        if permitted != bool(self.permitted_pools(guest)):
            self.requests_changed_at = self.loop.time()
        if permitted:
            self._requesting.setdefault(guest.cluster, self.loop.time())
        else:
            self._requesting.pop(guest.cluster, None)

    def permitted_pools(self, guest: Guest) -> frozenset[str]:
        return frozenset({LAN} if guest.cluster in self._requesting else ())

    def _rules_of(self, run: str) -> list[Document]:
        names = sorted(self.permitted_pools(self.guest_of(run)))
        if not names:
            return []
        resource = {"apiGroups": [POOLS.group], "resources": [POOLS.plural], "resourceNames": names}
        return [{**resource, "verbs": ["get", "patch"]}]

    def _denial_of(self, call: Call) -> KubeError | None:
        """Return the error of a request to a pool without the permission."""
        if f"/{POOLS.plural}/" not in call.path:
            return None
        pool = call.path.rpartition("/")[2]
        is_permitted = pool in self.permitted_pools(self.guest_of(call.by))
        return None if is_permitted else refused(403, "Forbidden", f'ippools "{pool}" is forbidden')

    # Faults of servers.

    def clone(self) -> None:
        """Start a clone of the guest cluster under another name, with the same UIDs of cluster and Services.

        Its kubelets are on other machines, which have not joined it yet.
        """
        loop, seed = self.loop, f"{self.seed} clone"
        self.disturb()
        server = self.servers["clone"] = MemoryServer(uids="clone")
        server.clock = self.guest.clock
        server.objects = {name: dict(stored) for name, stored in self.guest.objects.items()}
        server.version = server.compacted = self.guest.version
        for name in server.of(NODES):
            server.change(NODES, name, {"status": {"conditions": [{"type": "Ready", "status": "Unknown"}]}})
        self.networks["clone"] = Network(server, loop.time, seed, self.met)
        flags = self._flags(CLONE_NAME)
        process = Process("c", loop, server, self.harvester, flags, self.wrong.append)
        guest = Guest(CLONE_NAME, server, self.harvester, KubeVip(server, loop, seed), process)
        self.guests.append(guest)
        for callback in self.on_clone:
            callback(guest)
        guest.kube_vip.restart()
        process.start()

    def restore(self, side: str, back: float, away: float) -> bool:
        """Restore the backup of an API server that is ``back`` seconds old; return whether anything was different."""
        server, now, versions = self.servers[side], self.loop.time(), self._versions[side]
        while len(versions) > 1 and versions[-1][0] > now - back:
            versions.pop()
        if versions[-1][1] == server.version:
            return False
        server.rewind(versions[-1][1])
        # Before all other faults: who is not there cannot say that it is busy, either.
        self.networks[side].active.insert(0, NetworkFault("connections refused", now + away, 1.0))
        self.restoring_until = now + away
        self.disturb(away)
        if side == "guest":
            self.kube_vip.restart()
        else:
            self.controllers.stop()
            self.loop.call_later(away, self.controllers.start)
        self.machines.rejoin()
        for callback in self.on_restore:
            callback(side)
        return True

    def _noting_versions(self, side: str) -> Callable[[str, str, Document], None]:
        def note(_collection: str, _kind: str, _document: Document) -> None:
            self._versions[side].append((self.loop.time(), self.servers[side].version))

        return note

    def touch_everything(self, side: str) -> None:
        """Write all objects of a side without a change of anything that is read."""
        server, mark = self.servers[side], f"{self.loop.time():.6f}"
        for collection in OF_HARVESTER if side == "harvester" else OF_GUEST:
            for key in list(server.of(collection)):
                server.change(collection, key, {"metadata": {"annotations": {MARK: mark}}})
        self.met[f"all objects of the {side} touched"] += 1

    # Objects.

    def balancers(self) -> list[Document]:
        return list(self.harvester.of(LOAD_BALANCERS).values())

    @property
    def processes(self) -> dict[str, Process]:
        """All Pods of the controller."""
        return {name: one for guest in self.guests for name, one in guest.processes.items()}

    @property
    def clone_of_guest(self) -> Guest | None:
        """The copy that runs beside the guest."""
        return next((one for one in self.guests if one is not self.original), None)

    @property
    def may_be_blind(self) -> bool:
        """Whether a watch can have lost a change, which only the next list shows, up to an hour later."""
        lost = ("dropped events", "dropped deletions", "restored while the program was suspended")
        return any(self.met[event] for event in lost)

    def guest_of(self, run: str) -> Guest:
        return next(one for one in self.guests if run.partition(".")[0] in one.processes)

    def writes(self) -> list[Call]:
        """Return all writes except those of the Lease."""
        every = (call for server in self.servers.values() for call in server.calls)
        return [call for call in every if call.is_write and not call.path.startswith(LEASE)]

    def digest(self) -> str:
        """Return a hash of all requests."""
        found = hashlib.sha256()
        for server in self.servers.values():
            for call in server.calls:
                found.update(f"{call.at:.6f} {call.by} {call.verb} {call.path} {call.body}\n".encode())
        return found.hexdigest()
