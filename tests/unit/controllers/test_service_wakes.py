"""Which changes of a Service have it looked at again: not those by which kube-vip remembers what it does."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from harvester_ccm.kube_vip_names import (
    KUBE_VIP_ADDRESSES,
    KUBE_VIP_HOST,
    KUBE_VIP_IGNORE,
    KUBE_VIP_INTERFACE,
)
from harvester_ccm.model.core import SERVICES
from tests.worlds.builders import served
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
