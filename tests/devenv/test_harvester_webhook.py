"""The webhook as a server: its status code, and writes while it is down."""

from typing import Any

import pytest

from devenv.harvester import HarvesterEmulator
from devenv.harvester.records import LOAD_BALANCERS
from harvester_ccm.kube.client import ApiClient
from harvester_ccm.kube.errors import AdmissionDenied, ServerError
from tests.devenv.emulated import balancer, vm_balancer
from tests.support.waiting import wait_for

pytestmark = pytest.mark.apiserver

VALIDATOR = 'admission webhook "validator.harvester-system.harvester-load-balancer-webhook" denied the request'
LAN = "127.77.0.0/24"


async def denied(client: ApiClient, document: Any, namespace: str) -> AdmissionDenied:
    with pytest.raises(AdmissionDenied) as caught:
        await client.create(LOAD_BALANCERS, document, namespace=namespace)
    return caught.value


async def test_refusal_reaches_the_client_as_500(
    emulator: HarvesterEmulator, harvester_admin: ApiClient, vm_namespace: str
) -> None:
    assert emulator.webhook is not None
    error = await denied(harvester_admin, vm_balancer("web", vm_namespace, listeners=[]), vm_namespace)
    assert (error.answer.status, error.answer.reason) == (500, "InternalError")
    assert str(error) == (
        f"{VALIDATOR}: Internal error occurred: create loadbalancer {vm_namespace}/web failed: "
        "the loadbalancer needs to have at least one listener"
    )


async def test_while_it_is_down_writes_fail_and_deletion_waits(
    emulator: HarvesterEmulator, harvester_admin: ApiClient, vm_namespace: str
) -> None:
    assert emulator.webhook is not None
    await emulator.create_pool("lan", LAN)
    await harvester_admin.create(LOAD_BALANCERS, balancer("old", vm_namespace), namespace=vm_namespace)
    key = f"{vm_namespace}/old"
    await wait_for(lambda: (emulator.balancers.get(key) or {}).get("metadata", {}).get("finalizers"))
    await emulator.webhook.stop()
    with pytest.raises(ServerError) as caught:
        await harvester_admin.create(LOAD_BALANCERS, balancer("new", vm_namespace), namespace=vm_namespace)
    text = 'failed calling webhook "validator.harvester-system.harvester-load-balancer-webhook": failed to call webhook'
    assert text in str(caught.value)
    await harvester_admin.delete(LOAD_BALANCERS, "old", namespace=vm_namespace)
    await wait_for(lambda: emulator.failures(key) >= 3, what="failed removals of the finalizer")
    assert (await harvester_admin.get(LOAD_BALANCERS, "old", namespace=vm_namespace))["metadata"]["deletionTimestamp"]
    await emulator.webhook.start()
    await wait_for(lambda: emulator.balancers.get(key) is None, 30.0, what="the end of the deletion")
