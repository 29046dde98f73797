"""An informer on a real API server: delivered changes, and responses to own writes."""

from collections.abc import Callable

import pytest

from devenv.proxy import FaultProxy
from harvester_ccm.kube.client import ApiClient
from harvester_ccm.model.core import CONFIG_MAPS
from tests.apiserver.follower import Follower
from tests.support.waiting import wait_for

pytestmark = pytest.mark.apiserver

Put = Callable[..., None]
Delete = Callable[[str], None]


@pytest.mark.kube("A callback sees a list as a whole, never a store that is half filled")
async def test_changes_are_delivered_after_the_complete_list(follower: Follower, put_config_map: Put) -> None:
    sizes: list[int] = []
    follower.informer.on_change(lambda _old, _new: sizes.append(len(follower.informer)))
    for number in range(3):
        put_config_map(f"cm-{number}")

    async with follower.synced():
        assert sizes == [3, 3, 3]


async def test_no_response_contradicts_the_watch(
    follower: Follower, client: ApiClient, guest_proxy: FaultProxy, put_config_map: Put
) -> None:
    """A creation, a patch with and without effect, a deletion that a finalizer holds, and the end of that."""
    informer, namespace = follower.informer, follower.namespace
    async with follower.synced():
        seen = informer.version
        body = {"metadata": {"name": "cm", "finalizers": ["example.com/held"]}}
        informer.observe_missing(await client.create(CONFIG_MAPS, body, namespace=namespace), seen)
        for data in ("1", "1"):
            known = follower.get("cm")
            assert known is not None
            patch = {"data": {"a": data}}
            informer.observe_current(known, await client.merge_patch(CONFIG_MAPS, "cm", patch, namespace=namespace))
        held = await client.delete(CONFIG_MAPS, "cm", namespace=namespace)
        assert known is not None
        assert held is not None
        informer.observe_current(known, held)
        released = {"metadata": {"finalizers": None}}
        informer.observe_current(held, await client.merge_patch(CONFIG_MAPS, "cm", released, namespace=namespace))
        assert follower.get("cm") is None
        put_config_map("later")
        await wait_for(lambda: follower.get("later") is not None)
        assert guest_proxy.count(method="GET", watch=False) == 1
