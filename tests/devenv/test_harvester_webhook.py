"""The webhook for a client: texts, status codes, and writes while it is down."""

from typing import Any

import pytest

from devenv.harvester import HarvesterEmulator
from devenv.harvester.machines import Machine, Machines
from devenv.harvester.records import LOAD_BALANCERS, POOLS
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


async def test_network_comes_from_the_clusters_machines(
    emulator: HarvesterEmulator, harvester_admin: ApiClient, vm_namespace: str
) -> None:
    machine = Machine("node-1", vm_namespace, cluster="demo", networks=("default/vlan7",))
    await Machines(harvester_admin).create(machine)
    await wait_for(lambda: emulator.instances.get(f"{vm_namespace}/node-1"))

    async def network() -> str:
        path = LOAD_BALANCERS.path(vm_namespace)
        trial = await harvester_admin.request(
            "POST", path, params={"dryRun": "All"}, body=balancer("web", vm_namespace)
        )
        annotations: dict[str, str] = LOAD_BALANCERS.decode(trial)["metadata"]["annotations"]
        return annotations["loadbalancer.harvesterhci.io/network"]

    async def follows() -> bool:
        return await network() == "default/vlan7"

    await wait_for(follows, 60.0, what="the network of the VM")


async def test_pool_rules_are_enforced(emulator: HarvesterEmulator, harvester_admin: ApiClient) -> None:
    made = await emulator.create_pool("lan", LAN)
    assert made["metadata"]["labels"]["loadbalancer.harvesterhci.io/global-ip-pool"] == "true"
    with pytest.raises(AdmissionDenied, match="there is already a global IP pool: lan"):
        await emulator.create_pool("second", "127.79.0.0/24")
    await harvester_admin.merge_patch(POOLS, "lan", {"status": {"allocated": {"127.77.0.9": "x/y"}}})
    with pytest.raises(AdmissionDenied, match="can't delete pool before releasing all the allocated IP"):
        await harvester_admin.delete(POOLS, "lan")


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
