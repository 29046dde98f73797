"""Runs the controller next to kube-vip on Services in every prior state, and verifies that all of them are announced.

``make e2e-kube-vip SCENE=any-state`` brings one Service into each state of ``devenv.priorstates``, all at once, while
no controller runs, and starts the controller. Requires Linux, root and unshare(1).
"""

import argparse
import asyncio
import sys
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import zip_longest
from pathlib import Path
from typing import Final

from devenv.announcement import HOST_ANNOTATION, IGNORE_ANNOTATION, REQUESTED_ANNOTATION, is_ignored
from devenv.background import Background
from devenv.binaries import KUBE_VIP
from devenv.dhcpresponder import DhcpResponder
from devenv.harvester.records import SERVICES
from devenv.kubevipplayer import Surroundings, take
from devenv.kubevipprocess import PEER, PROGRAMS, SETTINGS, announced_addresses, prepare_network, version_of
from devenv.kubevipscenarios import LEASES, NODE, A, B, C
from devenv.logfile import logs_to
from devenv.player import NAMESPACE, Step, groups_of
from devenv.priorstates import PRIOR_STATES, PriorState
from devenv.process import run_directory
from devenv.realkubevip import ANNOUNCER, open_stage
from devenv.stage import Stage
from devenv.watch import Document, Mirror, addresses_in, annotations_of
from harvester_ccm.names import IP_POOL, IPAM, LOAD_BALANCER_READY, Reason

QUIET_SECONDS: Final = 1.5
"""Without any change, after which the next steps follow."""
LOOK_SECONDS: Final = 0.1
HEALED_SECONDS: Final = 180.0
"""Time in which every Service must be right."""
STEADY_SECONDS: Final = 20.0
"""Time for which all of them must stay right."""
HEALS_SINCE: Final = (1, 1, 2)
"""The first kube-vip that announces a Service again from any state; an older one may have to be restarted."""
ASKS_FOR_RESTART: Final = frozenset({Reason.NOT_ANNOUNCED, Reason.DHCP_LEASE_PENDING})
"""Reasons of the Warnings that say so."""


@dataclass(frozen=True, eq=False)
class Subject:
    """A Service that begins in a state."""

    number: int
    state: PriorState

    @property
    def name(self) -> str:
        """Name of the Service."""
        return f"state{self.number:02}"

    @property
    def addresses(self) -> dict[str, str]:
        """Addresses of this Service, by the address in the steps of its state."""
        return {A: f"10.9.110.{self.number}", B: f"10.9.111.{self.number}", C: f"10.9.112.{self.number}"}

    @property
    def steps(self) -> Iterator[list[Step]]:
        """The steps of its state, with its pool or DHCP."""
        annotations = {IPAM: "dhcp"} if self.state.is_leased else {IP_POOL: self.name}
        for group in groups_of(self.state.steps_for(self.name, self.addresses)):
            yield [_with_annotations(step, annotations) for step in group]

    def problem(self, service: Document, on_node: set[str]) -> str:
        """Return what is wrong with the Service; empty if nothing is."""
        condition = _ready_condition(service)
        if self.state.is_ignored:
            return _problem_of_ignored(service, condition, self.addresses[A] in on_node)
        shown = addresses_in(service)
        wanted = self._leases(service) if self.state.is_leased else {self.addresses[A]}
        up = on_node & {*self.addresses.values(), *wanted}
        status, message = condition.get("status"), condition.get("message")
        checks = {
            f"{', '.join(shown) or 'nothing'} is in the status": set(shown) == wanted and len(shown) == 1,
            f"{', '.join(sorted(up)) or 'nothing'} is on the node": up == wanted,
            "kube-vip has not noted its node": annotations_of(service).get(HOST_ANNOTATION) == NODE,
            f"the condition is {status}, {message}": status == "True",
        }
        return "; ".join(text for text, is_right in checks.items() if not is_right)

    def _leases(self, service: Document) -> set[str]:
        requested = annotations_of(service).get(REQUESTED_ANNOTATION, "")
        return {requested} & set(LEASES)


def _with_annotations(step: Step, annotations: dict[str, str]) -> Step:
    """Return a step; a created Service gets the annotations."""
    if (step.verb, step.kind) == ("create", "Service"):
        step.body["metadata"]["annotations"].update(annotations)
    return step


def _problem_of_ignored(service: Document, condition: Document, is_up: bool) -> str:
    """Return what is wrong with a Service that the user has kube-vip ignore; empty if nothing is.

    kube-vip goes on with an address that it announced before, so the condition can be True.
    """
    if not is_ignored(service):
        return "the user's annotation is removed"
    message = condition.get("message", "")
    if IGNORE_ANNOTATION not in message:
        return f"the user's annotation is not told: {message}"
    is_ready = condition.get("status") == "True"
    return "" if is_up or not is_ready else "the condition is True, and nothing is on the node"


def _ready_condition(service: Document) -> Document:
    conditions: list[Document] = (service.get("status") or {}).get("conditions") or []
    return next((one for one in conditions if one["type"] == LOAD_BALANCER_READY), {})


class Watcher:
    """The Services and the addresses on the node. Use as an async context manager."""

    def __init__(self, stage: Stage) -> None:
        self._services = Mirror(stage.guest, SERVICES, namespace=NAMESPACE)
        self._services.subscribe(self._note)
        self._background = Background("watcher", [self._services.run])
        self.on_node: set[str] = set()
        self._changed_at = asyncio.get_running_loop().time()

    async def __aenter__(self) -> "Watcher":
        await self._background.start([self._services.wait_synced], within=30)
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._background.stop()

    def _note(self, *_: object) -> None:
        self._changed_at = asyncio.get_running_loop().time()

    async def look(self) -> None:
        """Read the addresses on the node."""
        await asyncio.sleep(LOOK_SECONDS)
        found = await asyncio.to_thread(announced_addresses)
        if found != self.on_node:
            self.on_node = found
            self._note()

    async def settle(self) -> None:
        """Return when nothing has changed for a while."""
        self._note()
        while asyncio.get_running_loop().time() - self._changed_at < QUIET_SECONDS:
            await self.look()

    def problems(self, subjects: Sequence[Subject]) -> dict[Subject, str]:
        """Return what is wrong with each Service, as far as anything is."""
        found: dict[Subject, str] = {}
        for subject in subjects:
            service = self._services.get(f"{NAMESPACE}/{subject.name}")
            problem = "it does not exist" if service is None else subject.problem(service, self.on_node)
            if problem:
                found[subject] = problem
        return found


async def run(directory: Path, version: str, only: str) -> int:
    """Bring Services into all states, start the controller, print the result of each, return the number of failed."""
    subjects = [Subject(number, state) for number, state in enumerate(PRIOR_STATES, start=1) if only in state.name]
    settings = {**SETTINGS, "vip_nodename": NODE}
    with DhcpResponder(PEER, LEASES):
        async with open_stage(directory, version, settings) as stage, Watcher(stage) as watcher:
            await _prepare(stage, watcher, subjects)
            began = asyncio.get_running_loop().time()
            await stage.logged(stage.run(flags=ANNOUNCER), "service controller started")
            healed_at = await _heal(watcher, subjects)
            left = watcher.problems(subjects)
            return await _report(stage, version, subjects, left, {one: at - began for one, at in healed_at.items()})


async def _prepare(stage: Stage, watcher: Watcher, subjects: Sequence[Subject]) -> None:
    """Create the pools, and take the steps of all states: the first of each, then the second of each, and so on."""
    around = Surroundings(stage.guest, lambda: watcher.on_node, lambda _: None, LEASES)
    for subject in subjects:
        if not subject.state.is_leased:
            address = subject.addresses[A]
            only = {"subnet": "10.9.0.0/16", "rangeStart": address, "rangeEnd": address, "gateway": "10.9.0.2"}
            # Only Services that name it use a pool of a namespace that does not exist.
            nobody = {"scope": [{"project": "*", "namespace": subject.name, "guestCluster": "*"}]}
            await stage.harvester.create_pool(subject.name, only, selector=nobody)
    for groups in zip_longest(*(subject.steps for subject in subjects), fillvalue=[]):
        await asyncio.gather(*(_take_all(group, around) for group in groups))
        await watcher.settle()


async def _take_all(steps: Sequence[Step], around: Surroundings) -> None:
    for step in steps:
        await take(step, around)


async def _heal(watcher: Watcher, subjects: Sequence[Subject]) -> dict[Subject, float]:
    """Wait until all Services are right and stay right. Return the time since when each is."""
    loop = asyncio.get_running_loop()
    right_since: dict[Subject, float] = {}
    deadline = loop.time() + HEALED_SECONDS
    while loop.time() < deadline:
        await watcher.look()
        problems = watcher.problems(subjects)
        for subject in subjects:
            if subject in problems:
                right_since.pop(subject, None)
            else:
                right_since.setdefault(subject, loop.time())
        if not problems and loop.time() - max(right_since.values()) > STEADY_SECONDS:
            break
    return right_since


async def _report(
    stage: Stage, version: str, subjects: Sequence[Subject], left: dict[Subject, str], seconds: dict[Subject, float]
) -> int:
    """Print the result of each Service and their numbers, and return the number of failed ones."""
    verdicts: Counter[str] = Counter()
    for subject in subjects:
        verdict, result = "ok", f"after {seconds.get(subject, 0):.1f} s"
        if subject in left:
            warnings = sorted({event.reason for event in await stage.told(subject.name) if event.type == "Warning"})
            verdict = _verdict(subject.state, version, warnings)
            result = f"{left[subject]}. Warnings: {', '.join(warnings) or 'none'}"
        verdicts[verdict] += 1
        print(f"{subject.name}  {subject.state.name}: {verdict}: {result}", flush=True)
    print(", ".join(f"{number} {verdict}" for verdict, number in verdicts.items()), flush=True)
    return verdicts["FAILED"]


def _verdict(state: PriorState, version: str, warnings: Sequence[str]) -> str:
    """Return what it means that a Service is not right."""
    if version_of(version) < HEALS_SINCE and not ASKS_FOR_RESTART.isdisjoint(warnings):
        return "told"
    return "looks healthy" if state.is_hidden else "FAILED"


def main() -> None:
    """Entry point of ``python -m devenv.anystate`` in a new network namespace. Exits with 1 if a Service fails."""
    parser = argparse.ArgumentParser(prog="python -m devenv.anystate", description="Heal Services from any state.")
    parser.add_argument("--version", choices=PROGRAMS, default=KUBE_VIP)
    parser.add_argument("--only", default="", help="only the states whose name contains this text")
    options = parser.parse_args()
    prepare_network()
    print(f"kube-vip {options.version}, from {len(PRIOR_STATES)} prior states:", flush=True)
    with run_directory("any-state") as directory, logs_to(directory / "emulators.log"):
        if failed := asyncio.run(run(directory, options.version, options.only)):
            sys.exit(f"error: {failed} Services failed; the logs are in {directory}")


if __name__ == "__main__":
    main()
