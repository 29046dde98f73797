"""A Service that is deleted or becomes internal: which fields are cleared in which order."""

import pytest

from devenv.faults import Delay
from devenv.kubevip import Transition
from devenv.stage import Stage, until
from devenv.watch import Document, annotations_of
from harvester_ccm.model.core import SERVICES, Service
from harvester_ccm.names import IPAM, KUBE_VIP_ADDRESSES, KUBE_VIP_HOST, SERVICE_FINALIZER, Reason
from tests.e2e.observing import announced, caught_up, completed, transitions, writes

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


@pytest.mark.parametrize("ipam", ["pool", "dhcp"])
async def test_service_that_becomes_internal_keeps_nothing_of_this_controller(stage: Stage, ipam: str) -> None:
    await stage.create_service("web", annotations={IPAM: ipam, "example.com/mine": "kept"})
    await until(lambda: is_announced(stage, "web"), within=60, what="announcement of web")
    await stage.served("web")
    await hold(stage, "web")

    await stage.change_service("web", {"spec": {"type": "ClusterIP"}})

    service = await finalizer_removed(stage, "web")
    await stage.nothing_left()
    assert service.metadata.finalizers == (FOREIGN,)
    assert service.addresses == ()
    assert service.metadata.annotation(KUBE_VIP_ADDRESSES) is None
    assert annotations_of(await stage.service_document("web"))["example.com/mine"] == "kept"
    assert (await stage.service_document("web"))["status"]["conditions"] == [CONDITION]
    # kube-vip ignores a Service of this type and withdraws its address at its restart only.
    assert [one.kind for one in stage.kube_vip.transitions] == ["announce"]
    await caught_up(stage)
    # The address is reported as soon as it is clear that it stays announced.
    assert [told.reason for told in await stage.told("web")] == [
        Reason.ENSURING, Reason.ENSURED, Reason.STILL_ANNOUNCED, Reason.DELETING, Reason.DELETED,
    ]  # fmt: skip


async def is_announced(stage: Stage, name: str) -> bool:
    """Return whether kube-vip announces a Service and has annotated it."""
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


async def test_deletion_of_a_service_takes_three_writes(stage: Stage) -> None:
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
