"""Services that cannot be served yet: one Event that says why, and service as soon as the cause is gone."""

from __future__ import annotations

from pathlib import Path

import pytest

from devenv.ccm import CcmProcess
from devenv.kubevip import Transition
from devenv.stage import Stage, Told
from harvester_ccm.names import IP_POOL, Reason
from tests.e2e.observing import caught_up, completed, retouched

pytestmark = pytest.mark.apiserver


@pytest.fixture
async def poolless_ccm(stage: Stage) -> CcmProcess:
    """The program, leading, with no pool at all."""
    run = stage.run(proxied=True)
    await stage.logged(run, "became leader")
    return run


async def told_once(stage: Stage, name: str, reason: str, *words: str) -> Told:
    """Return the one Event with this reason after two more looks; it is a warning with these words in it."""
    told = await stage.hears(name, reason)
    for _ in range(2):
        await retouched(stage, name)
    assert told.type == "Warning"
    for word in words:
        assert word in told.message, told.message
    assert await stage.told(name, reason) == [told]
    return told


@pytest.mark.usefixtures("poolless_ccm")
async def test_no_pool_fits(stage: Stage) -> None:
    await stage.create_service("web")

    told = await told_once(stage, "web", Reason.ADDRESS_PENDING, "No IP pool", "namespace 'default'", "cluster 'demo'")

    assert "Harvester says: no matched IPPool with requirement" in told.message
    await stage.harvester.create_pool("lan", "127.77.0.0/24")
    await stage.served("web")


async def test_pool_that_is_used_up_serves_the_next_one_when_an_address_is_free(
    stage: Stage, poolless_ccm: CcmProcess
) -> None:
    await stage.harvester.create_pool("tiny", "127.77.0.9/32")
    await stage.create_service("first")
    await stage.served("first")
    await stage.create_service("second")

    await told_once(stage, "second", Reason.ADDRESS_PENDING, "IP pool 'tiny' has no free address", "no IP addresses")

    await stage.delete_service("first")
    (second,) = await stage.served("second", within=60)
    assert second.addresses == ("127.77.0.9",)
    await caught_up(stage)
    assert stage.kube_vip.transitions == [
        Transition("announce", "127.77.0.9", "default/first"),
        Transition("withdraw", "127.77.0.9", "default/first"),
        Transition("announce", "127.77.0.9", "default/second"),
    ]


@pytest.mark.usefixtures("ccm")
async def test_pool_that_does_not_exist(stage: Stage) -> None:
    await stage.create_service("web", annotations={IP_POOL: "dmz"})

    await told_once(stage, "web", Reason.ADDRESS_PENDING, "no ready IP pool 'dmz'", "fail to get allocator dmz")

    scope = {"project": "*", "namespace": "default", "guestCluster": "*"}
    await stage.harvester.create_pool("dmz", "127.77.1.0/24", selector={"scope": [scope]})
    (service,) = await stage.served("web", within=60)
    assert service.addresses == ("127.77.1.2",)


async def test_harvester_goes_away_and_comes_back(stage: Stage, ccm: CcmProcess) -> None:
    await stage.create_service("before")
    await completed(stage, "before")
    await caught_up(stage)
    await stage.harvester_proxy.down()
    await stage.create_service("web")

    await told_once(
        stage, "web", Reason.HARVESTER_UNAVAILABLE, "cannot be reached", stage.harvester_proxy.url, "Connection refused"
    )
    assert await stage.told("before", Reason.HARVESTER_UNAVAILABLE) == []
    assert ccm.exit_code is None

    await stage.harvester_proxy.up()
    await stage.served("web", within=60)
    await stage.hears("web", Reason.ENSURED)
    assert [told.reason for told in await stage.told("web")] == [
        Reason.HARVESTER_UNAVAILABLE, Reason.ENSURING, Reason.ENSURED,
    ]  # fmt: skip


async def test_credential_for_another_namespace(stage: Stage, tmp_path: Path) -> None:
    harvester = stage.scene.harvester
    elsewhere = harvester.kubeconfig_for_service_account(
        "default", "harvester-cloud-provider", context_namespace="kube-system", path=tmp_path / "elsewhere"
    )
    stage.run(cloud_config=elsewhere)
    await stage.create_service("web")

    told = await stage.hears("web", Reason.HARVESTER_UNAVAILABLE)
    for _ in range(2):
        await retouched(stage, "web", Reason.HARVESTER_UNAVAILABLE)

    for words in (
        'in the namespace "kube-system"',
        "It is a service account of namespace default, and was used for namespace kube-system: if the context",
    ):
        assert words in told.message, told.message
    assert await stage.told("web") == [told]
