"""What is seen with the official client, and that a view which says something else is noticed."""

from __future__ import annotations

from functools import partial

import msgspec
import pytest

from devenv.apiserver import ControlPlane
from devenv.background import Background
from devenv.eyes import Eyes, SeenCopy, Unseen, addresses_in, compare
from devenv.stage import until
from devenv.watch import Document
from harvester_ccm.model.core import SERVICES

SERVICE: Document = {
    "apiVersion": "v1",
    "kind": "Service",
    "metadata": {"name": "web", "namespace": "shop", "uid": "u", "annotations": {"a": "1"}, "finalizers": ["f"]},
    "spec": {"type": "LoadBalancer", "ports": [{"name": "http", "port": 80, "protocol": "TCP", "nodePort": 30080}]},
    "status": {"loadBalancer": {"ingress": [{"ip": "192.0.2.1"}, {"hostname": "example.com"}]}},
}


@pytest.mark.apiserver
async def test_objects_are_seen_as_they_are(guest: ControlPlane, namespace: str) -> None:
    config_map = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "one", "namespace": namespace}}
    guest.apply({**config_map, "data": {"key": "value"}})
    collection = f"/api/v1/namespaces/{namespace}/configmaps"
    async with Eyes(guest.admin_kubeconfig) as eyes:
        seen = await eyes.one(f"{collection}/one")
        assert seen is not None
        assert seen["data"] == {"key": "value"}
        assert await eyes.one(f"{collection}/other") is None
        assert [one["data"] for one in await eyes.all(collection, fieldSelector="metadata.name=one")] == [seen["data"]]
        assert await eyes.all(collection, labelSelector="no=such") == []
        with pytest.raises(Unseen, match="no collection"):
            await eyes.all("/apis/example.com/v1/nothings")
        with pytest.raises(Unseen, match="400"):
            await eyes.all(collection, fieldSelector="spec.wrong=1")
    async with Eyes(guest.admin_kubeconfig):
        """Nobody looks."""


@pytest.mark.apiserver
async def test_what_changes_is_seen_as_it_happens(guest: ControlPlane, namespace: str) -> None:
    path = f"/api/v1/namespaces/{namespace}/configmaps"
    document = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "one", "namespace": namespace}}
    guest.apply({**document, "data": {"step": "first"}})
    seen: list[tuple[str, str]] = []

    def note(before: Document | None, after: Document | None) -> None:
        shown = [one and one["data"]["step"] for one in (before, after)]
        seen.append((str(shown[0]), str(shown[1])))

    async def told(*steps: tuple[str, str]) -> bool:
        return seen == list(steps)

    async with Eyes(guest.admin_kubeconfig) as eyes:
        copy = SeenCopy(eyes, path)
        copy.subscribe(note)
        background = Background("seen", [copy.run])
        await background.start([copy.wait_synced], within=60)
        try:
            guest.apply({**document, "data": {"step": "second"}})
            await until(partial(told, ("None", "first"), ("first", "second")), within=60, what="change")
            assert copy.get(f"{namespace}/one") == await eyes.one(f"{path}/one")
            guest.admin.request("DELETE", f"{path}/one")
            await until(lambda: told(*seen[:2], ("second", "None")), within=60, what="deletion")
            assert copy.all() == []
        finally:
            await background.stop()
        with pytest.raises(Unseen, match="404"):
            await anext(eyes.changes("/apis/example.com/v1/nothings", "1"))


def test_addresses_are_those_of_the_status() -> None:
    assert addresses_in(SERVICE) == ("192.0.2.1",)
    assert addresses_in({**SERVICE, "status": {}}) == ()


def test_view_that_says_what_is_there_is_right() -> None:
    compare(SERVICES.decode(msgspec.json.encode(SERVICE)), SERVICE)


@pytest.mark.parametrize(
    "changed",
    [
        {"metadata": {**SERVICE["metadata"], "annotations": {"a": "2"}}},
        {"metadata": {**SERVICE["metadata"], "finalizers": ["f", "g"]}},
        {"metadata": {**SERVICE["metadata"], "labels": {"a": "1"}}},
        {"metadata": {key: value for key, value in SERVICE["metadata"].items() if key != "uid"}},
        {"spec": {**SERVICE["spec"], "ports": [{**SERVICE["spec"]["ports"][0], "nodePort": 30081}]}},
        {"spec": {**SERVICE["spec"], "type": "NodePort"}},
        {"status": {"loadBalancer": {"ingress": [{"ip": "192.0.2.2"}, {"hostname": "example.com"}]}}},
    ],
    ids=["annotation", "finalizers", "none of the labels", "uid", "node port", "type", "address"],
)
def test_view_that_says_something_else_is_noticed(changed: Document) -> None:
    view = SERVICES.decode(msgspec.json.encode(SERVICE))
    with pytest.raises(AssertionError):
        compare(view, {**SERVICE, **changed})
