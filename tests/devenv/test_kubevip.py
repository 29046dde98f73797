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

    async def create(self, document: Document, *, has_endpoint: bool = True) -> None:
        if has_endpoint:
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

    async def touch_slice(self) -> None:
        change = {"metadata": {"annotations": {"example.com/touched": "true"}}}
        await self.client.merge_patch(SLICES, "web-1", change, namespace=self.namespace)

    async def delete_slice(self) -> None:
        await self.client.delete(SLICES, "web-1", namespace=self.namespace)

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
        assert second["metadata"]["annotations"]["kube-vip.io/vipHost"] == "devenv-node"
        assert not second["status"]["loadBalancer"]
        assert third is not None
        expected = [
            {"ip": A, "ipMode": "VIP", "ports": [{"port": 8080, "protocol": "TCP"}, {"port": 5353, "protocol": "UDP"}]}
        ]
        assert third["status"]["loadBalancer"]["ingress"] == expected
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
async def test_service_without_an_address_delays_others(shop: Shop) -> None:
    await shop.create(service(name="slow"))
    await shop.create(service({ADDRESS: A}))
    await wait_for(lambda: shop.vip.waiting_for == shop.key("slow"))
    assert not shop.holders()
    await shop.annotate(name="slow", address="")
    await wait_for(lambda: shop.holders() == {"web"})


@pytest.mark.apiserver
async def test_changed_address_is_withdrawn_and_not_announced_again(shop: Shop) -> None:
    await shop.create(service({ADDRESS: A}))
    await wait_for(lambda: shop.holders() == {"web"})
    await shop.settle()
    await shop.annotate(address=B)
    await shop.settle()
    assert not shop.holders(A)
    assert not shop.holders(B)
    await shop.touch_slice()
    await shop.settle()
    assert not shop.holders(B), "it has not read the Service since"
    await shop.patch({"metadata": {"labels": {"any": "change"}}})
    await shop.settle()
    assert not shop.holders(B)
    await shop.write_slice("192.0.2.2")
    await wait_for(lambda: shop.holders(B) == {"web"}, what="announcement after the slice was touched")


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
async def test_finalizer_keeps_it_up_until_the_annotation_is_emptied(shop: Shop) -> None:
    document = service({ADDRESS: A})
    document["metadata"]["finalizers"] = ["example.test/hold"]
    await shop.create(document)
    await wait_for(lambda: shop.holders() == {"web"})
    await shop.delete()
    await shop.settle()
    assert shop.holders() == {"web"}
    await shop.annotate(address="")
    await wait_for(lambda: not shop.holders())


@pytest.mark.apiserver
@pytest.mark.parametrize("is_emptied", [False, True], ids=["ignored too late", "emptied"])
async def test_ignored_service_that_is_waited_for(shop: Shop, is_emptied: bool) -> None:
    await shop.create(service())
    await wait_for(lambda: shop.vip.waiting_for == shop.key())
    marks = {"address": ""} if is_emptied else {}
    await shop.annotate(name="web", ignore="true", **marks)
    await shop.write_status({"loadBalancer": {"ingress": [{"ip": A}]}})
    await shop.settle()
    await shop.delete()
    await shop.settle()
    assert shop.holders() == (set() if is_emptied else {"web"})


@pytest.mark.apiserver
async def test_dhcp_leases_marks_and_reports(shop: Shop) -> None:
    async with watching(shop.client, "web", shop.namespace, resource=SERVICES) as journal:
        await shop.create(service({ADDRESS: "0.0.0.0"}))
        await wait_for(lambda: len(journal.entries) == 3, what="marks and status")
        marks = (journal.entries[1] or {})["metadata"]["annotations"]
        assert marks["kube-vip.io/requestedIP"] == "127.79.1.10"
        assert marks["kube-vip.io/hwaddr"].startswith("02:")
        assert marks["kube-vip.io/vipHost"] == "devenv-node"
    assert await shop.address() == ["127.79.1.10"]
    await shop.write_status({"loadBalancer": {"ingress": [{"ip": B}]}})
    await shop.settle()
    assert await shop.address() == [B], "an overwritten status is not corrected"


@pytest.mark.apiserver
async def test_shared_address_comes_back_after_one_is_deleted(shop: Shop) -> None:
    await shop.create(service({ADDRESS: A}))
    await shop.create({**service({ADDRESS: A}, name="two"), "spec": {"type": "LoadBalancer", "ports": [{"port": 81}]}})
    await wait_for(lambda: shop.holders() == {"web", "two"})
    await shop.delete()
    await wait_for(lambda: not shop.holders(), what="the gap")
    await wait_for(lambda: shop.holders() == {"two"}, what="the other one")


@pytest.mark.apiserver
async def test_endpoints_decide_and_the_node_stays_noted(shop: Shop) -> None:
    await shop.create(service({ADDRESS: A}), has_endpoint=False)
    await shop.settle()
    assert not shop.holders()
    await shop.write_slice()
    await shop.settle()
    assert not shop.holders(), "an empty slice"
    await shop.write_slice("192.0.2.1")
    await wait_for(lambda: shop.holders() == {"web"})
    await shop.settle()
    await shop.write_slice()
    await wait_for(lambda: not shop.holders(), what="the withdrawal without endpoints")
    assert (await shop.get())["metadata"]["annotations"]["kube-vip.io/vipHost"] == "devenv-node"
    await shop.write_slice("192.0.2.1")
    await wait_for(lambda: shop.holders() == {"web"}, what="another endpoint")
    await shop.delete_slice()
    await wait_for(lambda: not shop.holders(), what="the withdrawal without slices")


@pytest.mark.apiserver
async def test_lease_is_written_only_with_an_endpoint(shop: Shop) -> None:
    await shop.create(service({ADDRESS: "0.0.0.0"}), has_endpoint=False)
    await shop.settle()
    assert await shop.address() == []
    assert "kube-vip.io/requestedIP" not in (await shop.get())["metadata"]["annotations"]
    await shop.write_slice("192.0.2.1")
    await wait_for(lambda: shop.holders("127.79.1.10") == {"web"})


@pytest.mark.apiserver
async def test_lease_that_is_not_given_delays_others(guest_admin: ApiClient, namespace: str) -> None:
    async with KubeVip(guest_admin, KubeVipOptions(dhcp_timeout=20.0)) as vip:
        shop = Shop(guest_admin, namespace, vip)
        await shop.create(service({ADDRESS: "0.0.0.0"}, name="slow"))
        await wait_for(lambda: vip.waiting_for == shop.key("slow"))
        await shop.create(service({ADDRESS: A}))
        assert not shop.holders()


@pytest.mark.apiserver
async def test_notes_no_node_in_routing_table_mode(guest_admin: ApiClient, namespace: str) -> None:
    async with KubeVip(guest_admin, KubeVipOptions(settings=Settings(notes_node=False))) as vip:
        shop = Shop(guest_admin, namespace, vip)
        await shop.create(service({ADDRESS: A}))
        await wait_for(lambda: shop.holders() == {"web"})
        await shop.settle()
        assert await shop.address() == [A]
        assert "kube-vip.io/vipHost" not in (await shop.get())["metadata"]["annotations"]


@pytest.mark.apiserver
async def test_other_class_is_not_announced(shop: Shop) -> None:
    document = service({ADDRESS: A})
    document["spec"]["loadBalancerClass"] = "cloudprovider.harvesterhci.io/harvester"
    await shop.create(document)
    await shop.settle()
    assert not shop.holders()


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
