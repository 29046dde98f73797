"""From any state: whatever was on the Service and in kube-vip before, after two minutes at rest all is well.

A state is made as in life: a Service with a load balancer, to which others write what they like while no controller
runs. So kube-vip has announced, withdrawn or ignored what it has read on the way. Then a record is put on it: none, one
of this controller at any step, one of another Service, or one that nobody can read.
"""

import asyncio
import json
import os
import random
from typing import Any, Final, cast

import pytest

from devenv.announcement import Settings, Version
from harvester_ccm.model.core import SERVICES
from harvester_ccm.model.harvester import LOAD_BALANCERS
from harvester_ccm.names import (
    ANNOUNCED_AS,
    DHCP_ADDRESS,
    IPAM,
    KUBE_VIP_ADDRESSES,
    KUBE_VIP_DDNS,
    KUBE_VIP_HOST,
    KUBE_VIP_IGNORE,
    LOAD_BALANCER_READY,
)
from harvester_ccm.plan.service.announcing.record import Record, Step, written_record
from tests.simulation.kubevip import LEASES, NODE, VERSIONS, KubeVip
from tests.simulation.loop import SeededLoop
from tests.simulation.seeds import first_unseen
from tests.support.builders import ADDRESS, UID, allocated, service
from tests.support.clock import jumping_time
from tests.support.memory_server import Document, document_of
from tests.support.program_world import Harvester, Program, guest_server

FOREIGN: Final = "192.168.100.99"
"""An address that no load balancer has."""
ADDRESSES: Final = (ADDRESS, FOREIGN, "", None, DHCP_ADDRESS)
WRITES: Final = ("address", "address", "ignore", "policy", "spec", "status", "type", "slice", "note", "both")
AT_REST: Final = 120.0
FEW, MANY = 2, 25
"""States of each version."""
COUNT: Final = int(os.environ.get("HARVESTER_CCM_STATES", "0"))


class State(Program):
    """A cluster in which nobody but users and kube-vip has written to the Service so far."""

    def __init__(self, seed: str, version: Version) -> None:
        self.dice = random.Random(seed)
        announcer = self.dice.choice(["--announcer=kube-vip", "--announcer=auto"])
        super().__init__(guest_server(), Harvester(), "demo", announcer)
        self.is_dhcp = self.dice.random() < 0.25
        settings = Settings(version=version, node=NODE)
        loop = cast("SeededLoop", asyncio.get_running_loop())
        self.kube_vip = KubeVip(self.guest, loop, seed, settings=settings)
        annotations = {IPAM: "dhcp"} if self.is_dhcp else {}
        item = service(annotations=annotations, ours=self.dice.random() < 0.8)
        self.harvester.put(LOAD_BALANCERS, document_of(self._load_balancer()))
        self.put(item)
        self.put_slice(is_filled=self.dice.random() < 0.9)

    def _load_balancer(self) -> Any:
        if self.is_dhcp:
            return allocated(ip=DHCP_ADDRESS, pool="", address="", spec={"ipam": "dhcp"})
        return allocated()

    def disturb(self) -> None:
        """Let a user, another client or another controller write something."""
        dice = self.dice
        match dice.choice(WRITES):
            case "address":
                self.change(metadata={"annotations": {KUBE_VIP_ADDRESSES: dice.choice(ADDRESSES)}})
            case "ignore":
                self.change(metadata={"annotations": {KUBE_VIP_IGNORE: dice.choice(["true", None])}})
            case "both":
                held = {KUBE_VIP_ADDRESSES: dice.choice(["", ADDRESS]), KUBE_VIP_IGNORE: dice.choice(["true", None])}
                self.change(metadata={"annotations": held})
            case "policy":
                self.change(spec={"externalTrafficPolicy": dice.choice(["Local", "Cluster"])})
            case "spec":
                self.change(spec={"loadBalancerIP": dice.choice([ADDRESS, FOREIGN, None])})
            case "status":
                address = dice.choice([ADDRESS, FOREIGN, None])
                ingress = [{"ip": address, "ipMode": "VIP"}] if address else None
                self.change(status={"loadBalancer": {"ingress": ingress}})
            case "type":
                self.change(spec={"type": "ClusterIP"}, status={"loadBalancer": None})
                self.change(spec={"type": "LoadBalancer"})
            case "slice":
                self.put_slice(is_filled=dice.random() < 0.5)
            case "note":
                key, value = dice.choice([(KUBE_VIP_HOST, None), (KUBE_VIP_HOST, "node-9"), (KUBE_VIP_DDNS, "False")])
                self.change(metadata={"annotations": {key: value}})

    def write_record(self) -> None:
        """Put a record and a condition on the Service."""
        dice = self.dice
        record = Record(
            dice.choice([UID, UID, UID, "another"]),
            dice.choice(list(Step)),
            dice.choice([ADDRESS, FOREIGN, "", DHCP_ADDRESS]),
            dice.choice(["Cluster IPv4 SingleStack", "Local IPv4 SingleStack", ""]),
            again=dice.random() < 0.7,
            needs_respelling=dice.random() < 0.3,
            answers=dice.random() < 0.5,
        )
        text = dice.choice([written_record(record), written_record(record), None, "x" * 2000, '{"uid": 1}'])
        self.change(metadata={"annotations": {ANNOUNCED_AS: text}})
        status = dice.choice(["True", "False", None])
        condition = {"type": LOAD_BALANCER_READY, "status": status, "reason": "Announcing", "message": "of before"}
        self.change(status={"conditions": [condition] if status else None})

    def clean_up(self) -> None:
        """Let the Service have a Pod, and no ``ignore`` of a user."""
        self.put_slice()
        if self.annotations().get(KUBE_VIP_ADDRESSES) != "":
            self.change(metadata={"annotations": {KUBE_VIP_IGNORE: None}})
        self.change(spec={"loadBalancerIP": None, "externalTrafficPolicy": "Cluster"})

    @property
    def wanted(self) -> str:
        """What kube-vip's annotation has to have."""
        return DHCP_ADDRESS if self.is_dhcp else ADDRESS

    @property
    def looks_healthy(self) -> bool:
        """Whether nothing on the Service tells it from one that is announced, or from one that kube-vip has never read.

        Only kube-vip's memory can differ.
        """
        annotations = self.annotations()
        record = self.record
        if record is not None and record["step"] in {"held", "delegated"} and not record.get("again", True):
            # The controller writes such a record only before kube-vip has read an annotation of the Service.
            return KUBE_VIP_HOST not in annotations
        if annotations.get(KUBE_VIP_ADDRESSES) != self.wanted or not self.address():
            return False
        if KUBE_VIP_IGNORE in annotations:
            return False
        if self.record is None or self.record["step"] in {"adopted", "shown"}:
            return True
        # After these steps the endpoints are touched, which kube-vip before 1.2 does not read.
        if self.record["step"] in {"announced", "published", "respelled"} and not self.kube_vip.needs_endpoints:
            return KUBE_VIP_HOST in annotations
        # kube-vip has noted the first address of a Service, and a process starts before it has read that.
        is_first = self.record["step"] == "published" and not self.record.get("again", True)
        return is_first and KUBE_VIP_HOST in annotations

    @property
    def record(self) -> Document | None:
        """The record of the Service; None without a valid one."""
        try:
            record = json.loads(self.annotations().get(ANNOUNCED_AS, ""))
        except ValueError:
            return None
        is_own = isinstance(record, dict) and record.get("uid") == UID
        return cast("Document", record) if is_own else None

    @property
    def is_announced(self) -> bool:
        """Whether kube-vip announces the address in the status for the Service, and nothing else."""
        return self.announced == [self.address()] and (self.is_dhcp or self.address() == ADDRESS)

    @property
    def announced(self) -> list[str]:
        """The addresses that kube-vip announces for the Service."""
        return [address for address, keys in self.kube_vip.announced().items() if "shop/web" in keys]

    @property
    def has_hidden_lease(self) -> bool:
        """Whether kube-vip has got another lease than the one that it noted, and tells nobody (1.2).

        That is so if the DHCP server gives another address after older events of the Service that it handles late.
        """
        return self.is_dhcp and len(self.announced) == 1 and self.announced[0] in LEASES

    @property
    def is_right(self) -> bool:
        """Whether the Service is announced, and the condition says so or was never written for one of others."""
        return self.is_announced and self.condition().get("status", "True") == "True"

    @property
    def is_explained(self) -> bool:
        """Whether the condition says what is not as it should be, or is not known."""
        message = self.condition().get("message", "")
        is_reported = self.condition().get("reason") in {"AddressNotAnnounced", "DHCPLeasePending"}
        return is_reported or "No node has noted" in message


async def play(seed: str, version: Version) -> str:
    """Return what is wrong at the end of a state; empty for nothing."""
    state = State(seed, version)
    for _ in range(state.dice.randrange(7)):
        await asyncio.sleep(state.dice.choice([0.0, 0.05, 0.5, 5.0]))
        state.disturb()
    state.write_record()
    state.clean_up()
    await asyncio.sleep(state.dice.choice([0.0, 10.0]))
    is_hidden = state.looks_healthy
    async with state.live():
        await asyncio.sleep(AT_REST)
        is_hidden |= state.has_hidden_lease and state.condition().get("status") == "True"
        if not (state.is_right or is_hidden or (state.is_explained and not state.is_announced)):
            return f"{state.annotations()} {state.address()!r} {state.condition()} {state.kube_vip.announced()}"
        state.guest.delete(SERVICES, "shop/web")
        await asyncio.sleep(AT_REST)
        if state.guest.of(SERVICES) or state.harvester.of(LOAD_BALANCERS):
            return f"left after the deletion: {state.guest.of(SERVICES)} {state.harvester.of(LOAD_BALANCERS)}"
        return f"still announced: {state.kube_vip.announced()}" if state.kube_vip.announced() else ""


@pytest.mark.parametrize("version", VERSIONS, ids=str)
@pytest.mark.guarantee("Every address is announced, or an Event reports the reason")
def test_service_is_announced_from_any_state(version: Version, *, thorough: bool) -> None:
    first = first_unseen()
    for number in range(COUNT or (MANY if thorough else FEW)):
        wrong: list[str] = []

        @jumping_time
        async def scene(seed: str, wrong: list[str]) -> None:
            wrong.append(await play(seed, version))

        scene(f"state {first + number}", wrong)
        assert wrong == [""], f"state {first + number}"
