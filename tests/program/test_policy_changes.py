"""A field that kube-vip compares is changed on a Service whose address it announces.

kube-vip 1.2 withdraws the address then, and announces it again only after another event of the Service and then a touch
of its endpoints. The emulated kube-vip does the same, as recorded.
"""

import asyncio
from collections.abc import Mapping
from typing import Any, Final, cast

import pytest

from devenv.announcement import Settings, Version
from harvester_ccm.model.core import Service
from harvester_ccm.names import (
    ANNOUNCED_AS,
    KUBE_VIP_ADDRESSES,
    KUBE_VIP_DDNS,
    Reason,
)
from tests.simulation.kubevip import NODE, KubeVip
from tests.simulation.loop import SeededLoop
from tests.support.builders import CLUSTER, service
from tests.support.clock import jumping_time
from tests.support.program_world import Harvester, Program, guest_server

LOCAL: Final = {"externalTrafficPolicy": "Local"}
DUAL_STACK: Final = {"ipFamilies": ["IPv4", "IPv6"], "ipFamilyPolicy": "PreferDualStack"}
CHANGES: Final[Mapping[str, Mapping[str, Any]]] = {
    "policy": {"spec": LOCAL},
    "families": {"spec": DUAL_STACK},
    "dynamic DNS": {"metadata": {"annotations": {KUBE_VIP_DDNS: "true"}}},
}
VERSIONS: Final = [(1, 2, 3), (1, 2, 2), (1, 1, 2), (1, 0, 4), (0, 9, 2)]
SETTLED: Final = 30.0
"""Time after which the address is announced again."""


class World(Program):
    """A cluster with kube-vip, whose Services have an endpoint."""

    harvester: Harvester

    def __init__(self, *flags: str, version: Version = (1, 2, 3)) -> None:
        super().__init__(guest_server(), Harvester(), CLUSTER.name, "--announcer=auto", *flags)
        loop = cast("SeededLoop", asyncio.get_running_loop())
        self.kube_vip = KubeVip(self.guest, loop, "policy", settings=Settings(version=version, node=NODE))

    def start(self, item: Service) -> None:
        self.put_slice(item.metadata.name)
        self.put(item)

    def is_announced(self, name: str = "web") -> bool:
        """Return whether the address of a Service is on the node."""
        return f"shop/{name}" in self.kube_vip.announced().get(self.address(name), [])

    def is_right(self, name: str = "web") -> bool:
        """Return whether a Service is announced, and its condition says so."""
        return self.is_announced(name) and self.condition(name)["status"] == "True"

    def problems(self) -> list[str]:
        """Return the Warnings, without those about the change itself."""
        return [reason for reason in self.reasons() if reason != f"web: {Reason.IGNORED}"]


@pytest.mark.parametrize("version", VERSIONS, ids=lambda version: ".".join(map(str, version)))
@pytest.mark.parametrize("change", CHANGES.values(), ids=CHANGES.keys())
@pytest.mark.guarantee("Every address is announced, or an Event reports the reason")
@jumping_time
async def test_address_is_announced_again_after_a_change_that_kube_vip_withdraws_for(
    change: Mapping[str, Any], version: Version
) -> None:
    world = World(version=version)
    world.start(service())
    withdrawn: list[object] = []
    async with world.live():
        await asyncio.sleep(SETTLED)
        assert world.is_right()
        noted = world.annotations()[ANNOUNCED_AS]
        world.guest.on_change.append(lambda *_: withdrawn.append(world.annotations().get(KUBE_VIP_ADDRESSES) == ""))
        world.change(**change)
        await asyncio.sleep(SETTLED)
        assert world.is_right()
        assert world.annotations()[ANNOUNCED_AS] != noted
        assert not any(withdrawn), "kube-vip before 1.0 would stay silent until it restarts"
        assert world.problems() == []
        sent = len(world.guest.writes("services/"))
        await asyncio.sleep(3600)
        assert len(world.guest.writes("services/")) == sent + 1, "the record that all touches were made"
