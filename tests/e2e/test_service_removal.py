"""A Service on its way out: what is taken back, in which order, and what of others stays."""

from __future__ import annotations

import pytest

from devenv.faults import Delay
from devenv.kubevip import Transition
from devenv.stage import Stage, until
from devenv.watch import Document
from harvester_ccm.model.core import Service
from harvester_ccm.model.harvester import LOAD_BALANCERS
from harvester_ccm.names import IPAM, KUBE_VIP_ADDRESSES, KUBE_VIP_HOST, SERVICE_FINALIZER, Reason
from tests.e2e.observing import announced, caught_up, completed, give_endpoints, transitions, writes

pytestmark = [pytest.mark.apiserver, pytest.mark.usefixtures("ccm")]

BALANCERS = "/loadbalancers"
FOREIGN = "example.com/backup"
"""A finalizer of somebody else."""


async def let_go(stage: Stage, name: str) -> Service:
    """Return the Service once the program's finalizer is off it."""

    async def free() -> Service | None:
        service = await stage.service(name)
        assert service is not None
        return None if service.metadata.has_finalizer(SERVICE_FINALIZER) else service

    return await until(free, within=60, what=f"{name} without the program's finalizer")


async def hold(stage: Stage, name: str) -> None:
    """Put a foreign finalizer on the Service, in front of the program's."""
    await stage.change_service(name, {"metadata": {"finalizers": [FOREIGN, SERVICE_FINALIZER]}})


@pytest.mark.parametrize("ipam", ["pool", "dhcp"])
async def test_service_that_becomes_internal_loses_all_that_was_put_on_it(stage: Stage, ipam: str) -> None:
    await stage.create_service("web", annotations={IPAM: ipam, "example.com/mine": "kept"})
    await until(lambda: is_announced(stage, "web"), within=60, what="announcement of web")
    await stage.served("web")
    await hold(stage, "web")

    await stage.change_service("web", {"spec": {"type": "ClusterIP"}})

    service = await let_go(stage, "web")
    await stage.nothing_left()
    assert service.metadata.finalizers == (FOREIGN,)
    assert service.addresses == ()
    assert service.metadata.annotation(KUBE_VIP_ADDRESSES) is None
    assert service.metadata.annotation("example.com/mine") == "kept"
    # kube-vip does not look at a Service of this type, and nobody but its restart takes the address down.
    assert [one.kind for one in stage.kube_vip.transitions] == ["announce"]
    await caught_up(stage)
    assert [told.reason for told in await stage.told("web")] == [
        Reason.ENSURING, Reason.ENSURED, Reason.DELETING, Reason.DELETED, Reason.STILL_ANNOUNCED,
    ]  # fmt: skip


async def test_service_that_is_to_be_reached_again_gets_its_old_address_back(stage: Stage) -> None:
    await give_endpoints(stage, "web")
    await stage.create_service("web")
    await stage.create_service("other")
    services = await stage.served("web", "other")
    await until(lambda: is_announced(stage, "web"), within=60, what="announcement of web")
    await stage.change_service("web", {"spec": {"type": "ClusterIP"}})
    await let_go(stage, "web")

    await stage.change_service("web", {"spec": {"type": "LoadBalancer"}})

    assert [one.addresses for one in await stage.served("web", "other")] == [one.addresses for one in services]
    # kube-vip has let go of it, and comes back only when its endpoints change: they are touched.
    await until(lambda: is_announced(stage, "web"), within=60, what="announcement of web")


async def is_announced(stage: Stage, name: str) -> bool:
    """Return whether kube-vip announces a Service and has said so on it."""
    service = await stage.service(name)
    keys = {key for keys in stage.kube_vip.announced.values() for key in keys}
    return f"default/{name}" in keys and service is not None and service.metadata.annotation(KUBE_VIP_HOST) is not None


@pytest.mark.guarantee("An announced address is never released")
async def test_address_is_withdrawn_before_the_load_balancer_is_deleted(stage: Stage) -> None:
    announced_at_the_end: list[bool] = []

    def changed(_before: Document | None, after: Document | None) -> None:
        if after is None:
            announced_at_the_end.append("127.77.0.2" in stage.kube_vip.announced)

    stage.harvester.balancers.subscribe(changed)
    await stage.create_service("web")
    await stage.served("web")
    await hold(stage, "web")
    await caught_up(stage)
    await announced(stage, {"127.77.0.2": {"default/web"}})
    # Long enough to see that the deletion is asked for after the withdrawal, not beside it.
    deletion = stage.harvester_proxy.inject(Delay(0.5), method="DELETE", path=BALANCERS)
    stage.guest_proxy.forget()

    await stage.delete_service("web")

    async def asked() -> int:
        return deletion.hits

    await until(asked, within=60, what="deletion of the load balancer")
    (withdrawal,) = writes(stage.guest_proxy, "/services/web")
    assert withdrawal.status == 200
    held = await stage.service("web")
    assert held is not None
    assert held.metadata.annotation(KUBE_VIP_ADDRESSES) == ""
    assert len(await stage.load_balancers()) == 1

    service = await let_go(stage, "web")
    assert service.metadata.finalizers == (FOREIGN,)
    assert service.addresses == ()
    await stage.nothing_left()
    assert announced_at_the_end == [False]
    await transitions(
        stage,
        Transition("announce", "127.77.0.2", "default/web"),
        Transition("withdraw", "127.77.0.2", "default/web"),
    )
    await stage.change_service("web", {"metadata": {"finalizers": None}})
    await stage.gone("web")


async def test_deleted_service_makes_no_more_requests_than_steps(stage: Stage) -> None:
    await stage.create_service("web")
    await completed(stage, "web")
    await caught_up(stage)
    stage.guest_proxy.forget()
    stage.harvester_proxy.forget()

    await stage.delete_service("web")
    await stage.gone("web")
    await stage.nothing_left()
    await caught_up(stage)

    # Withdraw; then, after the deletion in Harvester, status and finalizer in one.
    assert len(writes(stage.guest_proxy, "/services/web")) == 2
    assert [record.method for record in writes(stage.harvester_proxy)] == ["DELETE"]


async def test_load_balancer_that_is_gone_already_holds_nothing_up(stage: Stage) -> None:
    await stage.create_service("web")
    await stage.create_service("wiki", annotations={IPAM: "dhcp"})
    for name in ("web", "wiki"):
        await completed(stage, name)
    await caught_up(stage)
    # Nobody tells the program what happens meanwhile: it learns of it by a 404.
    stage.harvester_proxy.silence_watches(BALANCERS)
    for balancer in await stage.load_balancers():
        await stage.host.delete(LOAD_BALANCERS, balancer.metadata.name, namespace="default")
    await stage.nothing_left()

    await stage.delete_service("web")
    await stage.delete_service("wiki")

    await stage.gone("web", "wiki")
    await announced(stage, {})
