"""What has a Service looked at again: not the changes by which kube-vip remembers what it does."""

from __future__ import annotations

from typing import Any

import msgspec
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
    KUBE_VIP_HOST,
    KUBE_VIP_IGNORE,
    KUBE_VIP_INTERFACE,
    LB_REQUESTED_NETWORK,
    NAD_MAPPING_KEY,
    NAD_MAPPING_NAME,
    NAD_MAPPING_NAMESPACE,
    NETWORK,
)
from tests.worlds.builders import ADDRESS, marked, served, service
from tests.worlds.service_controller_world import ServiceControllerWorld

KEY = "shop/web"
NOTES = {KUBE_VIP_HOST: "node-a", "kube-vip.io/hwaddr": "00:00:6c:0d:17:2e", "kube-vip.io/requestedIP": "10.0.0.9"}
CHANGES: dict[str, tuple[Any, list[str]]] = {
    "its notes": (served(annotations=NOTES), []),
    "its notes and the lease": (served(annotations=NOTES, address="10.0.0.9"), [KEY]),
    "its notes and what it announces": (served(annotations={**NOTES, KUBE_VIP_ADDRESSES: ""}), [KEY]),
    "its notes and the device": (served(annotations={**NOTES, KUBE_VIP_INTERFACE: "eth1"}), [KEY]),
    "it is to ignore the Service": (served(annotations={KUBE_VIP_IGNORE: "true"}), [KEY]),
    "another one's annotation": (served(annotations={"example.com/team": "a"}), [KEY]),
}


@pytest.mark.parametrize(("changed", "woken"), CHANGES.values(), ids=CHANGES.keys())
async def test_changes_that_wake(changed: Any, woken: list[str]) -> None:
    stage = ServiceControllerWorld()
    stage.guest.put(SERVICES, served())
    await stage.start()
    stored = stage.guest.put(SERVICES, changed)
    await stage.settle()
    assert sorted(set(stage.woken)) == woken
    assert stage.caches.services.get(KEY) == SERVICES.decode(msgspec.json.encode(stored))


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
