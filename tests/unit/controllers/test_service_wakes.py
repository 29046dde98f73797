"""The changes that enqueue a Service."""

from __future__ import annotations

import pytest

from harvester_ccm.model.core import CONFIG_MAPS, SERVICES
from harvester_ccm.model.harvester import (
    INSTANCES,
    LOAD_BALANCERS,
    VIRTUAL_MACHINES,
)
from harvester_ccm.model.outcome import Wait, WaitReason
from harvester_ccm.names import (
    KUBE_VIP_ADDRESSES,
    KUBE_VIP_INTERFACE,
    LB_REQUESTED_NETWORK,
    NAD_MAPPING_KEY,
    NAD_MAPPING_NAME,
    NAD_MAPPING_NAMESPACE,
    NETWORK,
)
from tests.worlds.builders import ADDRESS, marked, service
from tests.worlds.service_controller_world import ServiceControllerWorld

KEY = "shop/web"


async def test_an_address_waits_for_the_networks_of_the_cluster_to_be_read() -> None:
    stage = ServiceControllerWorld()
    mapping = {NAD_MAPPING_KEY: '{"infra/vlan9": "eth1"}'}
    metadata = {"namespace": NAD_MAPPING_NAMESPACE, "name": NAD_MAPPING_NAME}
    stage.guest.put(CONFIG_MAPS, {"metadata": metadata, "data": mapping})
    stage.guest.put(SERVICES, service(annotations={NETWORK: "infra/vlan9"}))
    network = {LB_REQUESTED_NETWORK: "infra/vlan9"}
    stage.harvester.put(LOAD_BALANCERS, marked(annotations=network, ip=ADDRESS, pool="vlan100"))
    await stage.start(CONFIG_MAPS.plural)

    assert await stage.reconcile(KEY) == Wait(WaitReason.NETWORK_DEVICE)
    held = stage.caches.services.get(KEY)
    assert held is not None
    assert (held.metadata.annotation(KUBE_VIP_ADDRESSES), held.addresses) == ("", ())
    assert stage.told() == []

    await stage.read(stage.caches.config_maps)
    assert KEY in stage.woken
    await stage.reconcile(KEY)
    shown = stage.caches.services.get(KEY)
    assert shown is not None
    assert (shown.metadata.annotation(KUBE_VIP_INTERFACE), shown.addresses) == ("eth1", (ADDRESS,))


READ_AT_LAST = [LOAD_BALANCERS.plural, VIRTUAL_MACHINES.plural, INSTANCES.plural, CONFIG_MAPS.plural]


@pytest.mark.parametrize("late", READ_AT_LAST)
async def test_what_can_be_read_at_last_wakes_although_nothing_is_there(late: str) -> None:
    stage = ServiceControllerWorld()
    stage.guest.put(SERVICES, service())
    await stage.start(late)
    caches = stage.caches
    informers = (caches.load_balancers, caches.vms.vms, caches.vms.vmis, caches.config_maps)
    (informer,) = [one for one in informers if one.resource.plural == late]
    await stage.read(informer)
    assert KEY in stage.woken


async def test_the_networks_of_the_cluster_wake_when_they_change() -> None:
    stage = ServiceControllerWorld()
    stage.guest.put(SERVICES, service())
    await stage.start()
    metadata = {"namespace": NAD_MAPPING_NAMESPACE, "name": NAD_MAPPING_NAME}
    stage.guest.put(CONFIG_MAPS, {"metadata": metadata, "data": {NAD_MAPPING_KEY: "{}"}})
    await stage.settle()
    assert stage.woken == [KEY]
