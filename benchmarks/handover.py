"""``python -m benchmarks.handover``: the leader is ended again and again; who writes meanwhile, and how long is nobody?

Two runs of the program on one pair of API servers, each with its own service accounts, while Services come and go. Most
rounds end the leader with SIGTERM under the default timings of the Lease, the last tenth with SIGKILL under short ones.
Only a leader that the signal ended counts: on a busy machine one may lose its Lease first and stop by itself; that is
counted apart and the round is done again. The audit logs of both servers are the witness: every write of a run has to
lie inside the time for which it held the Lease. Exit code 0 when that held, the times were met and nothing was lost or
left, 1 otherwise.
"""

from __future__ import annotations

import argparse
import asyncio
import logging
import sys
import time
from collections import Counter, deque
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

import structlog

from benchmarks.load import NAMESPACE, service_body
from benchmarks.result import Measurement, Section, missed, percentile
from benchmarks.tenures import (
    Handover,
    Write,
    handover_seconds,
    intruders,
    late_writes,
    read_writes,
    tenures_of,
    work_of,
)
from devenv.apiserver import ControlPlane
from devenv.background import Background
from devenv.ccm import CcmProcess
from devenv.process import ChildProcess, DevenvError, run_directory
from devenv.restclient import Json
from devenv.stage import VM_NAMESPACE, Scene, until
from harvester_ccm.errors import CCMError, NotFound
from harvester_ccm.kube.client import ApiClient
from harvester_ccm.kube.credentials import load_kubeconfig
from harvester_ccm.model.core import SERVICES
from harvester_ccm.model.harvester import LOAD_BALANCERS

ROUNDS: Final = 200
KILLED: Final = 10
"""One round of so many is a SIGKILL."""
LONG: Final = 15.0
"""Seconds: the default duration of a Lease."""
SHORT: Final = 3.0
SHORT_FLAGS: Final[Mapping[str, str]] = {
    "leader-elect-lease-duration": "3s",
    "leader-elect-renew-deadline": "2s",
    "leader-elect-retry-period": "500ms",
}
TERM_TARGET: Final = 3.0
KILL_TARGET: Final = SHORT + 2.5
PATIENCE: Final = 60.0
EXIT_CODES: Final[Mapping[str, int]] = {"SIGTERM": 0, "SIGKILL": -9}
"""How a run ends that was ended by the signal."""
LOST: Final = "leadership lost"
MOST_LOSSES: Final = 50
ALIVE: Final = 30
"""So many Services at a time; the oldest is deleted for every new one."""
EVERY_SECONDS: Final = 0.25

_RBAC: Final = "rbac.authorization.k8s.io"


@dataclass
class Candidate:
    """One of the two that take turns, with an identity of its own on both servers."""

    name: str
    cloud_config: Path
    kubeconfig: Path
    directory: Path
    flags: Mapping[str, str] = field(default_factory=dict)
    run: CcmProcess | None = None

    @classmethod
    def create(cls, scene: Scene, name: str, directory: Path) -> Candidate:
        """Make its service accounts, with the rights of the chart."""
        roles = ("harvester-cloud-provider", "harvester-cloud-provider-additions")
        account = {"kind": "ServiceAccount", "namespace": "kube-system", "name": name}
        kubeconfig = scene.guest.kubeconfig_for_service_account("kube-system", name, context_namespace="kube-system")
        scene.guest.apply(*(_binding("ClusterRole", role, account) for role in roles))
        account = {**account, "namespace": VM_NAMESPACE}
        cloud_config = scene.harvester.kubeconfig_for_service_account(
            VM_NAMESPACE, name, context_namespace=VM_NAMESPACE
        )
        scene.harvester.apply(_binding("ClusterRole", "harvesterhci.io:cloudprovider", account, namespace=VM_NAMESPACE))
        return cls(name, cloud_config, kubeconfig, directory)

    @property
    def users(self) -> tuple[str, str]:
        """User names in the guest and in Harvester."""
        prefix = "system:serviceaccount"
        return f"{prefix}:kube-system:{self.name}", f"{prefix}:{VM_NAMESPACE}:{self.name}"

    @property
    def running(self) -> CcmProcess:
        """The run. Raises RuntimeError when there is none."""
        if self.run is None:
            raise RuntimeError(f"{self.name} does not run")
        return self.run

    def start(self) -> None:
        """Start the program."""
        self.run = CcmProcess.start(
            self.directory,
            cloud_config=self.cloud_config,
            kubeconfig=self.kubeconfig,
            flags={"cluster-name": "relay", "v": "2", **self.flags},
            name=self.name,
        )

    async def logged(self, text: str) -> None:
        """Return once the run has logged this text."""
        run = self.running

        async def there() -> bool:
            code = run.exit_code
            if text in run.log:
                return True
            if code is not None:
                raise RuntimeError(f"{self.name} ended with code {code}: {run.log[-500:]}")
            return False

        await until(there, within=PATIENCE, what=f"{text!r} in the log of {self.name}")

    async def ended(self) -> int:
        """Return the exit code of the run, which was asked to end."""
        run = self.running

        async def over() -> bool:
            return run.exit_code is not None

        await until(over, within=PATIENCE, what=f"end of {self.name}")
        return run.exit_code or 0


def _binding(kind: str, role: str, account: Mapping[str, str], *, namespace: str | None = None) -> Json:
    metadata = {"name": f"{role}-{account['name']}".replace(":", "-")}
    return {
        "apiVersion": f"{_RBAC}/v1",
        "kind": "RoleBinding" if namespace else "ClusterRoleBinding",
        "metadata": {**metadata, "namespace": namespace} if namespace else metadata,
        "roleRef": {"apiGroup": _RBAC, "kind": kind, "name": role},
        "subjects": [dict(account)],
    }


class Traffic:
    """Services that come and go all the time."""

    def __init__(self, guest: ApiClient) -> None:
        self._guest = guest
        self._names: deque[str] = deque()
        self.created = 0

    async def run(self) -> None:
        """Create and delete until cancelled."""
        while True:
            name = f"relay-{self.created:05}"
            self._names.append(name)
            await self._guest.create(SERVICES, service_body(name), namespace=NAMESPACE)
            self.created += 1
            if len(self._names) > ALIVE:
                await self._delete(self._names.popleft())
            await asyncio.sleep(EVERY_SECONDS)

    async def _delete(self, name: str) -> None:
        try:
            await self._guest.delete(SERVICES, name, namespace=NAMESPACE)
        except NotFound:
            return

    async def finish(self, harvester: ApiClient) -> None:
        """Return once all Services are served, and then, with all of them deleted, nothing is left in Harvester."""

        async def all_served() -> bool:
            found = {one.metadata.name: one for one in (await self._guest.list(SERVICES, namespace=NAMESPACE)).items}
            return all(name in found and found[name].addresses for name in self._names)

        await until(all_served, within=PATIENCE, what="an address for every Service")
        while self._names:
            await self._delete(self._names.popleft())

        async def nothing_left() -> bool:
            return not (await harvester.list(LOAD_BALANCERS, namespace=VM_NAMESPACE)).items

        await until(nothing_left, within=PATIENCE, what="no load balancer left")


class Relay:
    """Two candidates and the record of what was done to them."""

    def __init__(self, scene: Scene, directory: Path, *, guest: ApiClient, harvester: ApiClient) -> None:
        self._scene = scene
        self._guest = guest
        self._harvester = harvester
        self.candidates = [Candidate.create(scene, name, directory) for name in ("ccm-a", "ccm-b")]
        self.traffic = Traffic(guest)
        self.handovers: list[Handover] = []
        self.codes: Counter[tuple[str, int]] = Counter()
        """How often a run ended with which code, by signal."""
        self.losses = 0
        """How often a leader had lost its Lease, and stopped, before the signal came."""

    async def run(self, *, terminated: int, killed: int) -> None:
        """Do the rounds while Services come and go."""
        background = Background("services", [self.traffic.run])
        await background.start([], within=PATIENCE)
        try:
            await self._rounds("SIGTERM", terminated, {})
            await self._rounds("SIGKILL", killed, SHORT_FLAGS)
        finally:
            await background.stop()
        for one in self.candidates:
            one.start()
        await self.traffic.finish(self._harvester)
        for one in self.candidates:
            one.running.terminate(0)
            await one.ended()

    async def _rounds(self, name: str, count: int, flags: Mapping[str, str]) -> None:
        if not count:
            return
        leader, standby = self.candidates
        for one in self.candidates:
            one.flags = flags
        leader.start()
        await leader.logged("became leader")
        standby.start()
        await standby.logged("waiting for leadership")
        done = 0
        while done < count:
            if await self._end(leader, name, SHORT if flags else LONG):
                done += 1
                if done % 20 == 0:
                    print(f"  {name}: {done} of {count} rounds", file=sys.stderr, flush=True)
            await standby.logged("became leader")
            # Not before: it might take the Lease again itself.
            leader.start()
            await leader.logged("waiting for leadership")
            leader, standby = standby, leader
        # The standby first: it must not take over once more.
        for one in (standby, leader):
            one.running.terminate(0)
            await one.ended()

    async def _end(self, leader: Candidate, name: str, lease_duration: float) -> bool:
        """End the leader; tell whether it was the signal that ended it."""
        at = time.time()
        if name == "SIGTERM":
            leader.running.terminate(0)
        else:
            leader.running.kill()
        code = await leader.ended()
        if code != EXIT_CODES[name] and LOST in leader.running.log:
            self.losses += 1
            if self.losses > MOST_LOSSES:
                raise RuntimeError(f"{self.losses} leaders lost their Lease by themselves: the machine is too busy")
            return False
        self.codes[name, code] += 1
        self.handovers.append(Handover(leader.name, at, name, lease_duration))
        return True

    def end(self) -> None:
        """End what still runs."""
        for one in self.candidates:
            if one.run is not None:
                one.run.stop()

    def report(self) -> tuple[Section, list[str]]:
        """Return the numbers, and a sentence for everything that must not have been."""
        guest = self._writes(self._scene.guest, 0)
        harvester = self._writes(self._scene.harvester, 1)
        tenures = tenures_of(guest)
        work = work_of([*guest, *harvester])
        strangers = intruders(work, tenures)
        late = late_writes(work, tenures, self.handovers)
        measured = [
            Measurement("hand-overs", len(self.handovers)),
            Measurement("leaders that lost the Lease by themselves", self.losses),
            Measurement("Services created meanwhile", self.traffic.created),
            Measurement("changes of the holder", len(tenures) - 1),
            Measurement("writes in the guest", len(work_of(guest))),
            Measurement("writes in Harvester", len(work_of(harvester))),
            Measurement("writes by who did not hold the Lease", len(strangers), target=0),
            Measurement("writes after the own Lease was over", len(late), target=0),
        ]
        for name, target in (("SIGTERM", TERM_TARGET), ("SIGKILL", KILL_TARGET)):
            times = [handover_seconds(tenures, one) for one in self.handovers if one.signal == name]
            if times:
                measured.append(Measurement(f"{name}, median", percentile(times, 0.5), "s"))
                measured.append(Measurement(f"{name}, 99th percentile", percentile(times, 0.99), "s"))
                measured.append(Measurement(f"{name}, longest", max(times), "s", target=target))
        codes = ", ".join(f"{name} {code}: {count}" for (name, code), count in sorted(self.codes.items()))
        wrong = [
            f"{count} runs ended with code {code} after {name}, expected {EXIT_CODES[name]}"
            for (name, code), count in sorted(self.codes.items())
            if code != EXIT_CODES[name]
        ]
        problems = [*strangers, *late, *wrong]
        return Section("Hand-over", measured, [f"exit codes: {codes}"]), problems

    def _writes(self, plane: ControlPlane, place: int) -> list[Write]:
        users = {one.users[place]: one.name for one in self.candidates}
        with plane.audit_log.open("rb") as lines:
            return read_writes(lines, users)


def _settle(plane: ControlPlane) -> None:
    """Return when load balancers are made at once: a request to make one waits while its kind is new to the server."""
    kind = {"apiVersion": LOAD_BALANCERS.api_version, "kind": LOAD_BALANCERS.kind}
    balancer = {**kind, "metadata": {"name": "trial"}, "spec": {"ipam": "pool", "workloadType": "cluster"}}
    plane.admin.request("POST", f"{LOAD_BALANCERS.path(VM_NAMESPACE)}?dryRun=All", body=balancer)


@asynccontextmanager
async def open_relay(scene: Scene, directory: Path) -> AsyncIterator[Relay]:
    """Yield a relay on a running scene that has audit logs; end all that was started in it."""
    admin = scene.harvester.admin_kubeconfig
    allocator = ChildProcess.start(
        "allocator",
        [sys.executable, "-m", "benchmarks.allocator", admin, VM_NAMESPACE],
        log_file=directory / "allocator.log",
    )
    try:
        async with (
            ApiClient(load_kubeconfig(scene.guest.admin_kubeconfig), cluster="guest-admin") as guest,
            ApiClient(load_kubeconfig(admin), cluster="harvester-admin") as harvester,
        ):
            await asyncio.to_thread(_settle, scene.harvester)
            relay = Relay(scene, directory, guest=guest, harvester=harvester)
            try:
                yield relay
            finally:
                relay.end()
    finally:
        allocator.stop()


async def _measure(directory: Path, rounds: int) -> bool:
    scene = Scene.start(directory, audit=True)
    try:
        async with open_relay(scene, directory) as relay:
            killed = rounds // KILLED
            await relay.run(terminated=rounds - killed, killed=killed)
            section, problems = relay.report()
    finally:
        scene.stop()
    print(section.text())
    failures = [*problems, *missed([section])]
    for line in failures or ["PASS"]:
        print(line if line == "PASS" else f"FAIL: {line}")
    return not failures


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the rounds and return the exit code."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.handover", description="End the leader, many times.")
    parser.add_argument("--rounds", type=int, default=ROUNDS, help=f"hand-overs, by default {ROUNDS}")
    parser.add_argument("--keep", action="store_true", help="keep logs and data")
    options = parser.parse_args(arguments)
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.WARNING))
    try:
        with run_directory("handover", keep=options.keep) as directory:
            return 0 if asyncio.run(_measure(directory, options.rounds)) else 1
    except (CCMError, DevenvError, TimeoutError, RuntimeError) as error:
        sys.stderr.write(f"the hand-overs could not run: {error}\n")
        return 1


if __name__ == "__main__":
    sys.exit(main())
