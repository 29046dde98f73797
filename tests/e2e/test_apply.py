"""Clients that apply or replace a whole Service that has a load balancer, as GitOps tools and kubectl do."""

import asyncio

import pytest

from devenv.restclient import APPLY, Json
from devenv.stage import Stage, until
from harvester_ccm.model.core import SERVICES
from harvester_ccm.names import KUBE_VIP_ADDRESSES, LOAD_BALANCER_READY, SERVICE_FINALIZER
from tests.e2e.observing import announced, completed

pytestmark = [pytest.mark.apiserver, pytest.mark.usefixtures("ccm")]

PATH = f"{SERVICES.path('default')}/web"
PORTS = [{"name": "http", "port": 80, "protocol": "TCP"}]
MANIFEST: Json = {
    "apiVersion": "v1",
    "kind": "Service",
    "metadata": {"name": "web", "namespace": "default"},
    "spec": {"type": "LoadBalancer", "selector": {"app": "web"}, "ports": PORTS},
}


async def test_service_is_applied_and_replaced_by_other_clients(stage: Stage) -> None:
    await stage.create_service("web", ports=PORTS)
    before = await completed(stage, "web")
    (address,) = (await stage.served("web"))[0].addresses
    admin = stage.scene.guest.admin

    # Without force: the API server refuses it if a field of the manifest belongs to this controller.
    await asyncio.to_thread(admin.request, "PATCH", f"{PATH}?fieldManager=gitops", body=MANIFEST, patch=APPLY)
    stored = await stage.service_document("web")
    assert stored["metadata"]["annotations"][KUBE_VIP_ADDRESSES] == address
    assert stored["metadata"]["finalizers"] == [SERVICE_FINALIZER]

    # A replacement removes every annotation and the finalizer.
    version = {"resourceVersion": stored["metadata"]["resourceVersion"]}
    replacement = {**stored, "metadata": {**MANIFEST["metadata"], **version}}
    await asyncio.to_thread(admin.request, "PUT", PATH, body=replacement)

    async def restored() -> bool:
        document = await stage.service_document("web")
        ready = [one["status"] for one in document["status"]["conditions"] if one["type"] == LOAD_BALANCER_READY]
        has_address = (document["metadata"].get("annotations") or {}).get(KUBE_VIP_ADDRESSES) == address
        return has_address and document["metadata"].get("finalizers") == [SERVICE_FINALIZER] and ready == ["True"]

    await until(restored, within=60, what="annotation, finalizer and condition")
    assert (await completed(stage, "web")).metadata.uid == before.metadata.uid
    await announced(stage, {address: {"default/web"}})
    assert [told for told in await stage.told("web") if told.type == "Warning"] == []
