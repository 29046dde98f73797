"""A Service that is deleted or becomes internal: which fields are cleared in which order."""

import pytest

from devenv.faults import Delay
from devenv.kubevip import Transition
from devenv.stage import Stage, until
from devenv.watch import Document
from harvester_ccm.model.core import SERVICES, Service
from harvester_ccm.names import KUBE_VIP_ADDRESSES, SERVICE_FINALIZER
from tests.e2e.observing import announced, caught_up, transitions, writes

pytestmark = [pytest.mark.apiserver, pytest.mark.usefixtures("ccm")]

BALANCERS = "/loadbalancers"
FOREIGN = "example.com/backup"
CONDITION = {
    "type": "example.com/BackedUp",
    "status": "True",
    "reason": "Done",
    "message": "",
    "lastTransitionTime": "2026-01-01T00:00:00Z",
}
"""Finalizer and condition of another controller."""


async def finalizer_removed(stage: Stage, name: str) -> Service:
    """Return the Service once it does not have this controller's finalizer."""

    async def free() -> Service | None:
        service = await stage.service(name)
        assert service is not None
        return None if service.metadata.has_finalizer(SERVICE_FINALIZER) else service

    return await until(free, within=60, what=f"{name} without its finalizer")


async def hold(stage: Stage, name: str) -> None:
    """Add the finalizer and the condition of another controller."""
    await stage.change_service(name, {"metadata": {"finalizers": [FOREIGN, SERVICE_FINALIZER]}})
    conditions = (await stage.service_document(name))["status"]["conditions"]
    status = {"status": {"conditions": [*conditions, CONDITION]}}
    await stage.guest.merge_patch(SERVICES, name, status, namespace="default", subresource="status")


@pytest.mark.guarantee("An address is withdrawn before it is released")
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
    # Long enough to distinguish a deletion after the withdrawal from one at the same time.
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
    assert CONDITION in (await stage.service_document("web"))["status"]["conditions"]
    assert len(await stage.load_balancers()) == 1

    service = await finalizer_removed(stage, "web")
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
