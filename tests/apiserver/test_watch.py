"""Watches on a real API server: their events, and how they end."""

from collections.abc import Callable
from contextlib import aclosing

import pytest

from devenv.faults import Answer
from devenv.proxy import FaultProxy
from harvester_ccm.kube.builtin import NAMESPACES
from harvester_ccm.kube.client import ApiClient
from harvester_ccm.kube.documents import WatchEvent
from harvester_ccm.kube.errors import UnexpectedAnswer
from harvester_ccm.kube.objects import Object
from harvester_ccm.model.core import CONFIG_MAPS

pytestmark = pytest.mark.apiserver

Put = Callable[..., None]
Delete = Callable[[str], None]


async def consume(client: ApiClient) -> list[WatchEvent[Object]]:
    return [event async for event in client.watch(NAMESPACES, params={"timeoutSeconds": "1"}, silence=5)]


async def test_watch_yields_a_bookmark_and_then_every_change(
    client: ApiClient, namespace: str, put_config_map: Put, delete_config_map: Delete
) -> None:
    page = await client.list(CONFIG_MAPS, namespace=namespace)
    watch = client.watch(
        CONFIG_MAPS, namespace=namespace, params={"resourceVersion": page.resource_version}, silence=30
    )
    async with aclosing(watch) as events:
        first = await anext(events)
        put_config_map("cm", a="1")
        put_config_map("cm", a="2")
        delete_config_map("cm")
        rest = [await anext(events) for _ in range(3)]

    assert first == WatchEvent("BOOKMARK", None, "")
    assert [(e.type, e.object and e.object.data) for e in rest] == [
        ("ADDED", {"a": "1"}),
        ("MODIFIED", {"a": "2"}),
        ("DELETED", {"a": "2"}),
    ]
    versions = [int(e.resource_version) for e in rest]
    assert versions == sorted(set(versions))


@pytest.mark.parametrize(
    "body",
    [b"<html>log in</html>\n", b'{"type":"ADDED","object":[]}\n', b'{"type":"ERROR","object":"no"}\n', b"\xff\n"],
)
async def test_line_that_is_not_an_event_is_an_error(client: ApiClient, guest_proxy: FaultProxy, body: bytes) -> None:
    guest_proxy.inject(Answer(200, body=body), watch=True)

    with pytest.raises(UnexpectedAnswer):
        await consume(client)
