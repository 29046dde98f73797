"""kube-vip: announcements, written fields, and missing withdrawals."""

from contextlib import suppress
from typing import Any

import pytest

from devenv.announcement import Settings, ingress_of
from devenv.demo.requests import ask
from devenv.harvester.records import SERVICES, SLICES
from devenv.kubevip import KubeVip, KubeVipOptions
from devenv.watch import Document
from harvester_ccm.kube.client import ApiClient
from harvester_ccm.kube.errors import AlreadyExists
from tests.devenv.emulated import endpoint_slice, service, watching
from tests.support.clock import jumping_time, until
from tests.support.memory_server import MemoryClient, MemoryServer
from tests.support.waiting import wait_for

A, B = "127.79.0.10", "127.79.0.11"
ADDRESS = "kube-vip.io/loadbalancerIPs"
IGNORE = "kube-vip.io/ignore"


class Shop:
    """Services of one namespace."""

    def __init__(self, client: ApiClient, namespace: str, vip: KubeVip) -> None:
        self.client = client
        self.namespace = namespace
        self.vip = vip

    def key(self, name: str = "web") -> str:
        return f"{self.namespace}/{name}"

    async def create(self, document: Document) -> None:
        await self.write_slice("192.0.2.1", of=document["metadata"]["name"])
        placed = {**document, "metadata": {**document["metadata"], "namespace": self.namespace}}
        status = placed.pop("status", None)
        await self.client.create(SERVICES, placed, namespace=self.namespace)
        if status:
            await self.write_status(status, name=placed["metadata"]["name"])

    async def annotate(self, *, name: str = "web", **marks: str | None) -> None:
        keys = {"address": ADDRESS, "ignore": IGNORE}
        await self.patch({"metadata": {"annotations": {keys[k]: v for k, v in marks.items()}}}, name=name)

    async def patch(self, change: Document, *, name: str = "web") -> None:
        await self.client.merge_patch(SERVICES, name, change, namespace=self.namespace)

    async def write_status(self, status: Document, *, name: str = "web") -> None:
        await self.client.merge_patch(
            SERVICES, name, {"status": status}, namespace=self.namespace, subresource="status"
        )

    async def delete(self, name: str = "web") -> None:
        await self.client.delete(SERVICES, name, namespace=self.namespace)

    async def write_slice(self, *addresses: str, of: str = "web") -> None:
        document = endpoint_slice(*addresses, name=f"{of}-1", of=of)
        document["metadata"]["namespace"] = self.namespace
        with suppress(AlreadyExists):
            await self.client.create(SLICES, document, namespace=self.namespace)
            return
        await self.client.merge_patch(SLICES, f"{of}-1", document, namespace=self.namespace)

    async def get(self, name: str = "web") -> Document:
        return await self.client.get(SERVICES, name, namespace=self.namespace)

    async def address(self, name: str = "web") -> list[str]:
        ingress = (await self.get(name))["status"]["loadBalancer"].get("ingress") or []
        return [entry["ip"] for entry in ingress]

    def holders(self, address: str = A) -> set[str]:
        return {key.partition("/")[2] for key in self.vip.announced.get(address, ())}

    async def settle(self) -> None:
        """Return once kube-vip has handled every event so far, in order."""
        marker = f"marker-{len(self.vip.transitions)}"
        await self.create(service({ADDRESS: "127.79.9.9"}, name=marker))
        await wait_for(lambda: marker in self.holders("127.79.9.9"), what="kube-vip to come to the marker")
        await self.delete(marker)
        await wait_for(lambda: marker not in self.holders("127.79.9.9"))


OPTIONS = KubeVipOptions(dhcp_range=("127.79.1.10", "127.79.1.12"), serve=True, address_timeout=20.0)


@pytest.fixture
async def shop(guest_admin: ApiClient, namespace: str) -> Any:
    async with KubeVip(guest_admin, OPTIONS) as vip:
        yield Shop(guest_admin, namespace, vip)


@pytest.mark.apiserver
async def test_announces_writes_host_then_status_and_answers(shop: Shop) -> None:
    async with watching(shop.client, "web", shop.namespace, resource=SERVICES) as journal:
        await shop.create(service({ADDRESS: A}))
        await wait_for(lambda: len(journal.entries) == 3, what="host and status")
        _, second, third = journal.entries
        assert second is not None
        assert second["metadata"]["annotations"]["kube-vip.io/vipHost"] == "node-1"
        assert not second["status"]["loadBalancer"]
        assert third is not None
        # API servers since Kubernetes 1.30 add ipMode.
        (entry,) = third["status"]["loadBalancer"]["ingress"]
        assert entry["ip"] == A
        assert entry["ports"] == [{"port": 8080, "protocol": "TCP"}, {"port": 5353, "protocol": "UDP"}]
    assert shop.holders() == {"web"}
    assert await ask(A, 8080) == f"{shop.namespace}/web"


@pytest.mark.apiserver
async def test_status_in_the_right_shape_is_not_written_again(shop: Shop) -> None:
    async with watching(shop.client, "web", shop.namespace, resource=SERVICES) as journal:
        await shop.create(service({ADDRESS: ""}))
        await shop.settle()
        ingress = ingress_of(service(), (A,))
        await shop.write_status({"loadBalancer": {"ingress": ingress}})
        await shop.annotate(address=A)
        await shop.settle()
        assert journal.steps() == ["ADDED", "status", "other", "other"], "only its host is written"
    assert [t.kind for t in shop.vip.transitions if t.address == A] == ["announce"]


@pytest.mark.apiserver
@pytest.mark.parametrize(("waiting", "holders"), [({}, set()), ({"ignore": "true"}, {"web"})], ids=["empty", "ignored"])
async def test_older_events_are_handled_after_the_address(
    shop: Shop, waiting: dict[str, str | None], holders: set[str]
) -> None:
    await shop.create(service(name="first"))
    await wait_for(lambda: shop.vip.waiting_for == shop.key("first"))
    await shop.create(service())
    await shop.annotate(address="", name="web", **waiting)
    given: dict[str, str | None] = dict.fromkeys(waiting)
    await shop.annotate(address=A, name="web", **given)
    await shop.annotate(name="first", address=B)
    await wait_for(lambda: shop.holders(B) == {"first"})
    await shop.settle()
    assert shop.holders() == holders


@pytest.mark.apiserver
@pytest.mark.parametrize("emptied", [False, True])
async def test_other_type_stays_announced(shop: Shop, emptied: bool) -> None:
    await shop.create(service({ADDRESS: A}))
    await wait_for(lambda: shop.holders() == {"web"})
    await shop.patch({"spec": {"type": "ClusterIP"}})
    if emptied:
        await shop.annotate(address="")
    await shop.settle()
    assert shop.holders() == {"web"}
    assert shop.vip.announced == {A: {shop.key()}}
    await shop.delete()
    await shop.settle()
    assert shop.holders() == {"web"}
    await shop.create(service({ADDRESS: B}))
    await wait_for(lambda: shop.holders(B) == {"web"}, what="a new Service of the same name")
    assert shop.holders(A) == {"web"}


@pytest.mark.apiserver
async def test_notes_no_node_in_routing_table_mode(guest_admin: ApiClient, namespace: str) -> None:
    async with KubeVip(guest_admin, KubeVipOptions(settings=Settings(notes_node=False))) as vip:
        shop = Shop(guest_admin, namespace, vip)
        await shop.create(service({ADDRESS: A}))
        await wait_for(lambda: shop.holders() == {"web"})
        await shop.settle()
        assert await shop.address() == [A]
        assert "kube-vip.io/vipHost" not in (await shop.get())["metadata"]["annotations"]


@jumping_time
async def test_pace_of_many_services() -> None:
    server = MemoryServer()
    for number in range(3):
        name = f"web-{number}"
        server.put(SLICES, endpoint_slice("192.0.2.1", name=name, of=name))
        server.put(SERVICES, service({ADDRESS: f"127.79.0.{number}"}, name=name))
    options = KubeVipOptions(seconds_per_service=10.0)
    async with KubeVip(MemoryClient(server, cluster="guest"), options) as vip:
        assert 20 <= await until(lambda: len(vip.announced) == 3) < 21
