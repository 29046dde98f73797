"""Services that ask for IPv6 on a cluster that has both families: served on IPv4 where they may be, told in words."""

from __future__ import annotations

from typing import Final

import pytest

from devenv.ccm import CcmProcess
from devenv.stage import Stage
from harvester_ccm.names import Reason

pytestmark = pytest.mark.apiserver

SERVED: Final = {
    "prefers": ("PreferDualStack", "spec.ipFamilyPolicy PreferDualStack"),
    "requires": ("RequireDualStack", "spec.ipFamilyPolicy RequireDualStack"),
}


async def test_ipv6_of_services(stage: Stage, ccm: CcmProcess) -> None:
    for name, (policy, _) in SERVED.items():
        await stage.create_service(name, spec={"ipFamilyPolicy": policy})
    await stage.create_service("only6", spec={"ipFamilyPolicy": "SingleStack", "ipFamilies": ["IPv6"]})

    for service in await stage.served(*SERVED):
        assert service.spec.ip_families == ("IPv4", "IPv6")
        assert [":" in entry.ip for entry in service.status.load_balancer.ingress] == [False]
        heard = await stage.hears(service.metadata.name, Reason.IGNORED)
        assert SERVED[service.metadata.name][1] in heard.message
    refused = await stage.hears("only6", Reason.SYNC_FAILED)
    assert "Set spec.ipFamilyPolicy to PreferDualStack" in refused.message
    assert len(await stage.load_balancers()) == len(SERVED)

    # What the Event says is a way out.
    await stage.change_service("only6", {"spec": {"ipFamilyPolicy": "PreferDualStack", "ipFamilies": ["IPv6", "IPv4"]}})
    (mended,) = await stage.served("only6")
    assert mended.spec.ip_families == ("IPv6", "IPv4")
