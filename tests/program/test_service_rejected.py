"""Writes to a Service that the guest cluster rejects: what Events and condition report, and that they are retried."""

import asyncio
import json
from collections.abc import Callable

import pytest
from structlog.testing import capture_logs

from harvester_ccm.kube.errors import KubeError, Unreachable
from harvester_ccm.model.core import SERVICES
from harvester_ccm.model.harvester import LOAD_BALANCERS
from harvester_ccm.names import SERVICE_FINALIZER
from tests.support.clock import jumping_time
from tests.support.memory_server import Call, refused
from tests.support.program_world import demo_program

POLICY = refused(
    422, "Invalid", "services \"web\" is forbidden: ValidatingAdmissionPolicy 'no-vips' denied request: not here"
)
FORBIDDEN = refused(
    403,
    "Forbidden",
    'services "web" is forbidden: User "system:serviceaccount:kube-system:ccm" cannot patch resource "services/status" '
    'in API group "" in the namespace "shop"',
)
WEBHOOK = refused(400, "", 'admission webhook "x.example" denied the request: no')
AWAY = refused(500, "InternalError", 'failed calling webhook "x.example": connection refused')
REJECTIONS = {"policy": POLICY, "missing permission": FORBIDDEN, "webhook": WEBHOOK, "webhook unreachable": AWAY}


def on_patches(error: Callable[[], KubeError]) -> Callable[[Call], KubeError | None]:
    """Return a fault that fails each patch of a Service."""
    return lambda call: error() if call.verb == "PATCH" and "/services/" in call.path else None


@pytest.mark.parametrize("name", REJECTIONS)
@jumping_time
async def test_rejected_patch_is_reported_once_and_retried(name: str) -> None:
    guest, _, program = demo_program()
    guest.fault = on_patches(lambda: REJECTIONS[name])
    with capture_logs() as logs:
        async with program.live():
            program.create("web")
            await asyncio.sleep(0.1)
            assert program.reasons() == [], "the first error could pass"
            await asyncio.sleep(900)
            assert program.reasons() == ["web: SyncLoadBalancerFailed"]
            (message,) = program.warnings("web")
            assert str(REJECTIONS[name]) in message
            assert "The API server of this cluster rejected the update" in message
            assert ("Add the verb patch on services/status" in message) == (name == "missing permission")
            guest.fault = None
            await asyncio.sleep(120)
            assert program.address("web")
    assert [one["event"] for one in logs].count("reconcile failed") == 1
    assert [one.get("reason") for one in logs].count("SyncLoadBalancerFailed") == 1


@jumping_time
async def test_rejection_that_blocks_a_deletion_is_reported() -> None:
    guest, harvester, program = demo_program()
    async with program.live():
        program.create("web")
        await asyncio.sleep(1)
        guest.fault = on_patches(lambda: POLICY)
        guest.delete(SERVICES, "shop/web")
        await asyncio.sleep(900)
        (message,) = program.warnings("web")
        assert "denied request: not here" in message
        assert "its deletion cannot finish" in message
        assert len(harvester.of(LOAD_BALANCERS)) == 1, "the address is still announced"
        guest.fault = None
        await asyncio.sleep(120)
        assert "shop/web" not in guest.of(SERVICES)
        assert not harvester.of(LOAD_BALANCERS)


@jumping_time
async def test_error_whose_text_changes_each_time_is_reported_once() -> None:
    guest, _, program = demo_program()
    tries = iter(range(1_000_000))
    guest.fault = on_patches(
        lambda: refused(403, "Forbidden", f'admission webhook "x" denied the request: no at 10:{next(tries)}')
    )
    with capture_logs() as logs:
        async with program.live():
            program.create("web")
            await asyncio.sleep(900)
            assert len(program.warnings("web")) == 1
            guest.fault = on_patches(lambda: POLICY)
            await asyncio.sleep(900)
            assert len(program.warnings("web")) == 2, "another reason"
    assert [one["event"] for one in logs].count("reconcile failed") == 2


@pytest.mark.parametrize("listed", [True, False], ids=["after a start", "before a list"])
@jumping_time
async def test_deletion_during_an_outage_reports_how_to_release_the_service(listed: bool) -> None:
    guest, harvester, program = demo_program()
    async with program.live():
        program.create("web")
        await asyncio.sleep(1)
    guest.change(SERVICES, "shop/web", {"metadata": {"finalizers": [SERVICE_FINALIZER, "example.com/keep"]}})
    async with program.live():
        await asyncio.sleep(1 if listed else 0)
        harvester.fault = lambda _call: Unreachable("no route")
        harvester.break_watches()
        guest.delete(SERVICES, "shop/web")
        await asyncio.sleep(900)
        (message,) = program.warnings("web")
        assert "no route" in message
        command = message.partition("If that Harvester no longer exists, release the Service")[2].partition(". Run: ")[
            2
        ]
        assert command.startswith("kubectl patch service -n shop web --type=merge -p '")
        patch = json.loads(command.split("'")[1])
        guest.change(SERVICES, "shop/web", patch)
        assert guest.get(SERVICES, "shop/web")["metadata"]["finalizers"] == ["example.com/keep"]
