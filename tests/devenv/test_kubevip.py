"""kube-vip: announcements, written fields, and missing withdrawals."""

from typing import Any

import pytest

from devenv.demo.requests import ask
from devenv.harvester.records import SERVICES, SLICES
from devenv.kubevip import KubeVip, KubeVipOptions
from devenv.watch import Document
from harvester_ccm.kube.client import ApiClient
from tests.devenv.emulated import endpoint_slice, service, watching
from tests.support.waiting import wait_for

A = "127.79.0.10"
ADDRESS = "kube-vip.io/loadbalancerIPs"


class Shop:
    """Services of one namespace."""

    def __init__(self, client: ApiClient, namespace: str, vip: KubeVip) -> None:
        self.client = client
        self.namespace = namespace
        self.vip = vip

    async def create(self, document: Document) -> None:
        name = document["metadata"]["name"]
        with_endpoint = endpoint_slice("192.0.2.1", name=f"{name}-1", of=name)
        for resource, created in ((SLICES, with_endpoint), (SERVICES, document)):
            placed = {**created, "metadata": {**created["metadata"], "namespace": self.namespace}}
            await self.client.create(resource, placed, namespace=self.namespace)

    async def get(self) -> Document:
        return await self.client.get(SERVICES, "web", namespace=self.namespace)

    def holders(self) -> set[str]:
        return {key.partition("/")[2] for key in self.vip.announced.get(A, ())}


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
