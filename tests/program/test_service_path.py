"""The modules that a plain Service passes through, from its creation to its announced address."""

import asyncio
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

from tests.worlds.clock import jumping_time
from tests.worlds.program_world import Harvester, Program, guest_server

MAX_MODULES = 12
"""Of the Service controller and its plans."""
BELOW_PLANS = ("kube.", "model.", "names", "errors", "netip", "redaction")
OTHER_READERS = (
    "controllers.orphans",
    "controllers.virtual_addresses",
    "plan.service.orphans",
    "plan.service.virtual_ips",
    "telemetry.",
)
"""They see each change of a Service as well, for orphans, Node addresses and metrics."""


@contextmanager
def modules_called() -> Iterator[set[str]]:
    """Collect the modules of the product whose functions are called in the block."""
    modules: set[str] = set()

    def collect(frame: FrameType, event: str, _argument: object) -> None:
        module = frame.f_globals.get("__name__", "")
        if event == "call" and module.startswith("harvester_ccm."):
            modules.add(module.removeprefix("harvester_ccm."))

    sys.setprofile(collect)
    try:
        yield modules
    finally:
        sys.setprofile(None)


@jumping_time
async def test_plain_service_passes_through_few_modules() -> None:
    program = Program(guest_server(), Harvester(), "demo")
    async with program.live():
        await asyncio.sleep(5)
        with modules_called() as modules:
            program.create("web")
            await asyncio.sleep(1)
        assert program.address()
    decided = sorted(module for module in modules if not module.startswith((*BELOW_PLANS, *OTHER_READERS)))
    assert len(decided) <= MAX_MODULES, decided
