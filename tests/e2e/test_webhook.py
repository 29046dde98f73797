"""Harvester's admission webhook refuses, or is away: told once with what to do, tried again, served in the end."""

from __future__ import annotations

import pytest

from devenv.ccm import CcmProcess
from devenv.guestnodes import GuestNodes
from devenv.harvester.admission import REMOVAL_ANNOTATION
from devenv.harvester.records import MACHINES
from devenv.stage import Stage, until
from devenv.watch import annotations_of
from harvester_ccm.names import Reason
from tests.e2e.observing import writes

pytestmark = pytest.mark.apiserver

BALANCERS = "/loadbalancers"
MANY = [f"web-{number}" for number in range(5)]


@pytest.mark.usefixtures("ccm")
async def test_cluster_that_is_being_removed_gets_no_load_balancer(stage: Stage) -> None:
    async with GuestNodes(stage.guest, stage.host) as nodes:
        await nodes.add(1)
        await nodes.machines.announce_removal(nodes.machine(1))
        await known_to_webhook(stage, "default/node-1", REMOVAL_ANNOTATION)
        await stage.create_service("web")

        told = await stage.hears("web", Reason.SYNC_FAILED)
        assert told.type == "Warning"
        for words in (
            "Harvester refused the load balancer",
            "Rancher is removing this cluster",
            "the vm default/node-1 shows guest cluster demo is being removed",
        ):
            assert words in told.message, told.message
        assert await stage.load_balancers() == ()

        keeps = {"metadata": {"annotations": {REMOVAL_ANNOTATION: None}}}
        await stage.host.merge_patch(MACHINES, "node-1", keeps, namespace="default")
        await stage.served("web", within=60)
        assert await stage.told("web", Reason.SYNC_FAILED) == [told]
        await stage.delete_service("web")
        await stage.gone("web")


async def known_to_webhook(stage: Stage, machine: str, annotation: str) -> None:
    """Return when the webhook, whose copies lag, has seen this annotation on the VM."""
    webhook = stage.harvester.webhook
    assert webhook is not None

    async def seen() -> bool:
        return annotation in annotations_of(webhook.machines.get(machine) or {"metadata": {}})

    await until(seen, within=60, what=f"{annotation} on {machine} in the webhook")


async def test_services_wait_for_a_webhook_that_is_down(stage: Stage, ccm: CcmProcess) -> None:
    webhook = stage.harvester.webhook
    assert webhook is not None
    await stage.create_service("before")
    (before,) = await stage.served("before")

    async def settled() -> bool:
        return [one.address for one in await stage.load_balancers()] == list(before.addresses)

    await until(settled, within=60, what="address in the load balancer's status")
    await webhook.stop()
    stage.harvester_proxy.forget()
    for name in MANY:
        await stage.create_service(name)

    for name in MANY:
        told = await stage.hears(name, Reason.HARVESTER_UNAVAILABLE)
        assert told.type == "Warning"
        assert "failed calling webhook" in told.message
    tried = len(writes(stage.harvester_proxy, BALANCERS))
    await webhook.start()
    await stage.served(*MANY, within=60)

    # Pauses between tries grow: 0.5 s, 1 s, 2 s and so on.
    assert tried <= 4 * len(MANY)
    for name in MANY:
        reasons = [told.reason for told in await stage.told(name)]
        assert reasons.count(Reason.HARVESTER_UNAVAILABLE) == 1
    assert await stage.told("before", Reason.HARVESTER_UNAVAILABLE) == []
    assert ccm.exit_code is None
