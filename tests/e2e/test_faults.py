"""Requests and watches that fail: the final state is the same, with few Events."""

import pytest

from devenv.faults import Answer
from devenv.harvester import FAST
from devenv.stage import Stage, until
from harvester_ccm.names import Reason
from tests.e2e.observing import caught_up, completed

pytestmark = [
    pytest.mark.apiserver,
    pytest.mark.usefixtures("ccm"),
    pytest.mark.parametrize("pace", [FAST], ids=["fast"]),
]
PAGE = Answer(404, body=b"404 page not found\n", content_type="text/plain")


@pytest.mark.guarantee("Errors, timeouts, proxies and unreadable lists do not prove a deletion")
async def test_service_keeps_its_load_balancer_when_a_proxy_returns_404_pages(stage: Stage) -> None:
    await stage.create_service("web")
    before = await completed(stage, "web")
    await caught_up(stage)
    patch = stage.guest_proxy.inject(PAGE, method="PATCH", path="/services/web", times=1)
    stage.guest_proxy.inject(PAGE, method="GET", path="/services/web$", times=1)

    ports = [{"name": "http", "port": 80, "protocol": "TCP"}, {"name": "more", "port": 8080, "protocol": "TCP"}]
    await stage.change_service("web", {"spec": {"ports": ports}})

    async def followed() -> bool:
        service = await stage.service("web")
        return service is not None and [len(one.ports) for one in service.status.load_balancer.ingress] == [2]

    await until(followed, within=60, what="both ports in the status")
    assert patch.hits == 1
    await caught_up(stage)
    (after,) = await stage.load_balancers()
    assert (after.metadata.uid, after.address) == (before.metadata.uid, before.address)
    assert [told.reason for told in await stage.told("web")] == [Reason.ENSURING, Reason.ENSURED]
