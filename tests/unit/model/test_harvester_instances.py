"""VM instances as they are followed: without what comes and goes in a guest and is read by nobody."""

from __future__ import annotations

import msgspec
import pytest

from devenv.watch import Document
from harvester_ccm.model.harvester import INSTANCES, WATCHED_INSTANCES, VirtualMachineInstance

NIC: Document = {"name": "nic-1", "interfaceName": "enp1s0", "ipAddresses": ["10.0.0.1", "fd00::1"]}
POD: Document = {"interfaceName": "cali0123456789a", "ipAddress": "fe80::ecee:eeff:feee:eeee"}
BRIDGE: Document = {"name": "", "interfaceName": "cni0", "ipAddresses": ["10.42.0.1"]}


def source(*interfaces: Document, networks: tuple[str, ...] = ("nic-1",)) -> bytes:
    spec = {"networks": [{"name": name, "multus": {"networkName": "default/vlan1"}} for name in networks]}
    status = {"phase": "Running", "interfaces": list(interfaces), "conditions": [{"type": "AgentConnected"}]}
    return msgspec.json.encode({"metadata": {"name": "w1"}, "spec": spec, "status": status})


@pytest.mark.parametrize("devices", [[POD], [BRIDGE, POD], [POD] * 60], ids=["a pod", "a bridge", "many"])
def test_devices_in_no_network_of_the_vm_are_not_kept(devices: list[Document]) -> None:
    without = WATCHED_INSTANCES.decode(source(NIC))
    assert WATCHED_INSTANCES.decode(source(*devices, NIC)) == without == INSTANCES.decode(source(NIC))


def test_commands_see_every_device() -> None:
    assert [entry.interface_name for entry in INSTANCES.decode(source(NIC, POD)).interfaces] == [
        "enp1s0",
        "cali0123456789a",
    ]


@pytest.mark.parametrize("text", [b"{}", b'{"status":{}}', b'{"status":{"interfaces":null}}'])
def test_instance_that_reports_nothing(text: bytes) -> None:
    assert isinstance(WATCHED_INSTANCES.decode(text), VirtualMachineInstance)
    assert WATCHED_INSTANCES.decode(text).interfaces == ()
