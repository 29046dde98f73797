"""Services that ask for IPv6 on a cluster that has both families: served on IPv4 where they may be, told in words."""

from __future__ import annotations

import re

import pytest

from devenv.ccm import CcmProcess
from devenv.stage import Stage, until
from harvester_ccm.names import Reason

pytestmark = pytest.mark.apiserver


async def test_ipv6_of_services(stage: Stage, ccm: CcmProcess) -> None:
    await stage.create_service("prefers", spec={"ipFamilyPolicy": "PreferDualStack"})
    await stage.create_service("requires", spec={"ipFamilyPolicy": "RequireDualStack"})
    await stage.create_service("only6", spec={"ipFamilyPolicy": "SingleStack", "ipFamilies": ["IPv6"]})

    (service,) = await stage.served("prefers")
    assert service.spec.ip_families == ("IPv4", "IPv6")
    assert [":" in entry.ip for entry in service.status.load_balancer.ingress] == [False]
    heard = await stage.hears("prefers", Reason.IGNORED)
    assert "spec.ipFamilyPolicy PreferDualStack" in heard.message
    for name in ("requires", "only6"):
        refused = await stage.hears(name, Reason.SYNC_FAILED)
        assert re.search("Set (it|spec.ipFamilyPolicy) to PreferDualStack", refused.message)
    assert len(await stage.load_balancers()) == 1

    # What the Events say is a way out.
    await stage.change_service("requires", {"spec": {"ipFamilyPolicy": "PreferDualStack"}})
    await stage.change_service("only6", {"spec": {"ipFamilyPolicy": "PreferDualStack", "ipFamilies": ["IPv6", "IPv4"]}})
    _, mended = await stage.served("requires", "only6")
    assert mended.spec.ip_families == ("IPv6", "IPv4")

    # A Service that is served keeps its address, whatever it asks for later.
    await stage.change_service("prefers", {"spec": {"ipFamilyPolicy": "RequireDualStack"}})

    async def told() -> bool:
        return any("RequireDualStack" in one.message for one in await stage.told("prefers", Reason.IGNORED))

    await until(told, within=60, what="the Event about IPv6")
    (kept,) = await stage.served("prefers")
    assert kept.status.load_balancer.ingress == service.status.load_balancer.ingress
