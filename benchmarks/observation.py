"""A controller under attack, and what everybody else gets from it meanwhile: health checks, the Lease, an address."""

import asyncio
import itertools
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Final

from benchmarks.prober import TIMEOUT
from benchmarks.table import Limited
from devenv.background import Background
from devenv.ccm import CcmProcess
from devenv.process import ChildProcess, ReservedPort
from devenv.stage import LEASE, Stage, until
from devenv.watch import Document, Mirror, addresses_in, documents

BYSTANDER: Final = "bystander"
"""Namespace of somebody else, whose Services the controller must serve."""
MAX_SECONDS: Final = 90.0
"""Seconds after which a Service counts as never served."""
START_SECONDS: Final = 120.0
MIB: Final = 2**20

MOST_HEALTH: Final = 0.5
"""Seconds for a health check."""
MOST_MEMORY: Final = 256.0
"""MiB of the container in the chart."""
MOST_GAP: Final = 10.0
"""Seconds between two renewals of the Lease: the renew deadline."""

_SERVICES: Final = documents("", "v1", "services", kind="Service")
_NAMESPACES: Final = documents("", "v1", "namespaces", kind="Namespace", namespaced=False)
_LEASES: Final = documents("coordination.k8s.io", "v1", "leases", kind="Lease")


def now() -> float:
    """Return the loop time in seconds."""
    return asyncio.get_running_loop().time()


@dataclass
class Observation:
    """Created by ``observe``."""

    stage: Stage
    run: CcmProcess
    probes: Path
    """Output of the prober."""
    served_at: dict[str, float] = field(default_factory=dict)
    """Loop time of the first address of each Service of somebody else, by name."""
    renewals: list[float] = field(default_factory=list)
    """Loop times of the changes of the Lease."""
    holders: set[str] = field(default_factory=set)
    numbers: int = 0

    def service_changed(self, _before: Document | None, after: Document | None) -> None:
        """Note the time of an address."""
        if after is not None and addresses_in(after):
            self.served_at.setdefault(after["metadata"]["name"], now())

    def lease_changed(self, _before: Document | None, after: Document | None) -> None:
        """Note the time of a renewal, and the holder with the number of transitions."""
        if after is not None and after["metadata"]["name"] == LEASE[1]:
            spec = after["spec"]
            self.renewals.append(now())
            self.holders.add(f"{spec.get('holderIdentity')} {spec.get('leaseTransitions')}")

    async def serve(self) -> float:
        """Create a Service of somebody else; return the seconds until it has an address, at most ``MAX_SECONDS``."""
        self.numbers += 1
        name, began = f"web-{self.numbers}", now()
        spec = {"allocateLoadBalancerNodePorts": False}
        await self.stage.create_service(name, namespace=BYSTANDER, spec=spec)
        with suppress(TimeoutError):
            await until(partial(self._is_decided, name), within=MAX_SECONDS, what="")
        seconds = self.served_at.get(name, began + MAX_SECONDS) - began
        await self.stage.delete_service(name, BYSTANDER)
        return seconds

    async def _is_decided(self, name: str) -> bool:
        return name in self.served_at or self.run.exit_code is not None

    async def serve_for(self, seconds: float, pause: float) -> list[float]:
        """Serve Services for a time, with a pause between two; return the seconds of each."""
        end, times = now() + seconds, [await self.serve()]
        while now() < end and self.run.exit_code is None:
            await asyncio.sleep(pause)
            times.append(await self.serve())
        return times

    def rows(self) -> list[Limited]:
        """Return what was measured until now."""
        ends = [*self.renewals, now()]
        gaps = [after - before for before, after in itertools.pairwise(ends)]
        return [
            Limited("  exits of the controller", float(self.run.exit_code is not None), "", 0),
            Limited("  other holders of the Lease, or transitions", len(self.holders) - 1, "", 0),
            Limited(f"  longest time between {len(gaps)} renewals", max(gaps, default=MAX_SECONDS), "s", MOST_GAP),
            self._health(),
            *self._memory(),
        ]

    def _health(self) -> Limited:
        times = [float(line) for line in self.probes.read_text().split()]
        # No output at all: the first response has not arrived.
        slowest = max(times, default=TIMEOUT)
        return Limited(f"  health checks: slowest of {len(times)}", slowest, "s", MOST_HEALTH)

    def _memory(self) -> list[Limited]:
        if self.run.exit_code is not None:
            return []
        return [Limited("  peak memory", self.run.peak_memory() / MIB, "MiB", MOST_MEMORY)]


@asynccontextmanager
async def observe(stage: Stage, *, proxied: bool = False) -> AsyncIterator[Observation]:
    """Start a controller in a new interpreter and observe it; stop it at the end."""
    port = ReservedPort()
    port.release()
    await stage.guest.create(_NAMESPACES, {"metadata": {"name": BYSTANDER}})
    run = stage.run(flags={"secure-port": str(port.number), "v": "2"}, proxied=proxied, fresh=True)
    await stage.logged(run, "became leader", within=START_SECONDS)
    probes = stage.directory / "probes.log"
    observation = Observation(stage, run, probes)
    services = Mirror(stage.guest, _SERVICES, namespace=BYSTANDER)
    leases = Mirror(stage.guest, _LEASES, namespace=LEASE[0])
    services.subscribe(observation.service_changed)
    leases.subscribe(observation.lease_changed)
    watches = Background("observation", [services.run, leases.run])
    await watches.start([services.wait_synced, leases.wait_synced], within=START_SECONDS)
    command = [sys.executable, "-m", "benchmarks.prober", f"https://127.0.0.1:{port.number}/healthz"]
    prober = ChildProcess.start("prober", command, log_file=probes)
    try:
        yield observation
    finally:
        prober.stop()
        await watches.stop()
        run.stop()
