"""SIGTERM: the process exits, releases its Lease, and the next leader continues."""

import asyncio
import os

import pytest

from devenv.ccm import CcmProcess
from devenv.faults import Hang
from devenv.harvester import FAST
from devenv.stage import Stage, until
from tests.e2e.observing import writes

pytestmark = [
    pytest.mark.apiserver,
    pytest.mark.parametrize("pace", [FAST], ids=["fast"]),
]

COLLECTIONS = ("/services", "/nodes", "/configmaps", "/loadbalancers", "/virtualmachines", "/virtualmachineinstances")
MANY = [f"web-{number}" for number in range(30)]


async def stopped(stage: Stage, run: CcmProcess) -> None:
    """Send SIGTERM and check how the run ends."""
    run.terminate(0)
    assert await stage.ended(run) == 0, run.log
    with pytest.raises(ProcessLookupError):
        os.killpg(run.pid, 0)
    lease = await stage.lease()
    assert lease.spec.holder_identity == ""


async def test_standby_exits_without_the_lease(stage: Stage, ccm: CcmProcess) -> None:
    waiting = stage.run(proxied=True)
    await stage.logged(waiting, "waiting for leadership")
    waiting.terminate(0)

    assert await stage.ended(waiting) == 0
    assert ccm.exit_code is None


async def test_standby_becomes_leader_without_a_list(stage: Stage, lan: None) -> None:
    leader = stage.run()
    await stage.logged(leader, "became leader")
    await asyncio.gather(*(stage.create_service(name) for name in MANY[:5]))
    await stage.served(*MANY[:5])
    waiting = stage.run(proxied=True)
    await stage.logged(waiting, "waiting for leadership")
    proxies = (stage.guest_proxy, stage.harvester_proxy)

    async def follows() -> bool:
        return [proxy.watches() for proxy in proxies] == [3, 3]

    await until(follows, within=60, what="watches of the waiting run")
    for proxy in proxies:
        proxy.forget()
    leader.terminate(0)
    await stage.logged(waiting, "became leader")
    await stage.create_service("next")
    await stage.served("next")

    read = [record.path for proxy in proxies for record in proxy.matching(method="GET")]
    assert [path for path in read if path.partition("?")[0].endswith(COLLECTIONS)] == []
    created = [record for record in writes(stage.harvester_proxy) if record.method == "POST"]
    assert len(created) == 1


async def test_next_leader_continues_with_unfinished_services(stage: Stage, ccm: CcmProcess) -> None:
    await asyncio.gather(*(stage.create_service(name) for name in MANY))
    await stage.served(MANY[0])

    await stopped(stage, ccm)

    sent = len(writes(stage.guest_proxy)) + len(writes(stage.harvester_proxy))
    created = {balancer.metadata.name for balancer in await stage.load_balancers()}
    successor = stage.run()
    # The Lease was released and does not have to expire.
    await stage.logged(successor, "became leader", within=10)
    await stage.served(*MANY, within=60)
    assert len(writes(stage.guest_proxy)) + len(writes(stage.harvester_proxy)) == sent
    balancers = await stage.load_balancers()
    assert len(balancers) == len(MANY)
    assert created <= {balancer.metadata.name for balancer in balancers}


async def test_lease_expires_when_the_last_write_gets_no_response(stage: Stage, ccm: CcmProcess) -> None:
    hung = stage.harvester_proxy.inject(Hang(), method="POST", path="/loadbalancers")
    await stage.create_service("web")

    async def sent() -> bool:
        return hung.hits == 1

    await until(sent, within=60, what="a load balancer on its way")
    ccm.terminate(0)

    assert await stage.ended(ccm, within=60) == 0
    assert "shutdown timed out" in ccm.log
    lease = await stage.lease()
    assert lease.spec.holder_identity != ""
