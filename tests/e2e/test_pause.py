"""A leader that is stopped (SIGSTOP) for longer than its Lease writes nothing when it goes on."""

import os
import signal
from typing import Final

import pytest

from devenv.harvester import FAST
from devenv.stage import Stage
from tests.e2e.observing import caught_up, completed, writes

pytestmark = [
    pytest.mark.apiserver,
    pytest.mark.usefixtures("lan"),
    pytest.mark.parametrize("pace", [FAST], ids=["fast"]),
]

SHORT: Final = {
    "leader-elect-lease-duration": "4s",
    "leader-elect-renew-deadline": "3s",
    "leader-elect-retry-period": "500ms",
}
NAMES: Final = [f"web-{number}" for number in range(8)]


@pytest.mark.guarantee("No write is sent without the Lease")
@pytest.mark.security("Only the holder of the Lease writes")
@pytest.mark.security("two leaders that write")
async def test_suspended_leader_sends_no_write_after_its_lease_expired(stage: Stage) -> None:
    halted = stage.run(flags=SHORT, proxied=True)
    await stage.logged(halted, "became leader")
    await stage.create_service("before")
    await stage.served("before")
    successor = stage.run(flags=SHORT)
    await stage.logged(successor, "waiting for leadership")

    # Nothing is being written when it happens.
    await completed(stage, "before")
    await caught_up(stage)
    os.killpg(halted.pid, signal.SIGSTOP)
    try:
        # It finds all of these waiting in its watches when it goes on, as new ones first.
        for name in NAMES:
            await stage.create_service(name)
        await stage.logged(successor, "became leader")
        sent = [len(writes(proxy)) for proxy in (stage.guest_proxy, stage.harvester_proxy)]
    finally:
        os.killpg(halted.pid, signal.SIGCONT)

    assert await stage.ended(halted) == 1
    assert "leadership lost" in halted.log
    assert [len(writes(proxy)) for proxy in (stage.guest_proxy, stage.harvester_proxy)] == sent
    await stage.served(*NAMES)
    lease = await stage.lease()
    assert f"identity={lease.spec.holder_identity}" in successor.log
