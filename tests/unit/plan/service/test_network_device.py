"""The device of a network: what waits for it, and what is told where it is another one by now."""

from __future__ import annotations

from typing import Any

import pytest

from harvester_ccm.model.outcome import Done, Wait
from harvester_ccm.names import (
    KUBE_VIP_ADDRESSES,
    KUBE_VIP_IGNORE,
    KUBE_VIP_INTERFACE,
    LB_REQUESTED_NETWORK,
    NETWORK,
    Reason,
)
from harvester_ccm.plan.service.load_balancer import network_of
from harvester_ccm.plan.service.network_device import Device, device_for
from tests.unit.plan.service.plans import outline, plan, said
from tests.worlds.builders import ADDRESS, allocated, marked, served, service

PARKED = {KUBE_VIP_ADDRESSES: "", KUBE_VIP_IGNORE: "true"}


@pytest.mark.parametrize("ip", [ADDRESS, "0.0.0.0"])
@pytest.mark.parametrize(
    ("has", "read", "events", "write"),
    [
        ({"annotations": PARKED}, False, [], None),
        ({"annotations": PARKED}, True, ["Warning NetworkDeviceUnknown"], None),
        ({}, True, ["Warning NetworkDeviceUnknown"], {"annotations": PARKED}),
        # After a switch from a VM load balancer.
        ({"annotations": PARKED, "address": ADDRESS}, True, ["Warning NetworkDeviceUnknown"], None),
    ],
)
def test_an_address_is_not_announced_before_its_device_is_known(
    has: dict[str, Any], read: bool, events: list[str], write: object, ip: str
) -> None:
    asked = service(ours=True, **{**has, "annotations": {NETWORK: "infra/vlan9", **has.get("annotations", {})}})
    found = allocated(annotations={LB_REQUESTED_NETWORK: "infra/vlan9"}, ip=ip, address="")
    made = outline(asked, found, network_devices={"infra/other": "eth1"}, mapping_known=read)
    assert made == (events, write, Wait("network_device"))


def test_a_device_that_is_named_on_the_service_will_do() -> None:
    asked = service(ours=True, annotations={**PARKED, NETWORK: "infra/vlan9", KUBE_VIP_INTERFACE: "bond7"})
    found = allocated(annotations={LB_REQUESTED_NETWORK: "infra/vlan9"}, address="")
    made = plan(asked, found, network_devices=None)
    assert "on device bond7: no device is known" in said(made, Reason.NO_DEVICE)
    assert made.outcome == Done()


@pytest.mark.parametrize(("device", "words"), [("eth9", "on device eth9: "), ("", "on its default device: ")])
def test_where_an_address_is_announced_whose_network_has_no_device_any_more(device: str, words: str) -> None:
    asked = served(annotations={NETWORK: "infra/vlan9", **({KUBE_VIP_INTERFACE: device} if device else {})})
    found = allocated(annotations={LB_REQUESTED_NETWORK: "infra/vlan9"})
    made = plan(asked, found, network_devices={"infra/other": "eth1"})
    assert words in said(made, Reason.NO_DEVICE)
    assert made.outcome == Done()


def test_a_network_that_is_mistyped_is_told_with_those_that_can_be_meant() -> None:
    known = {"default/vlan1": "enp1s0", "default/vlan2": "enp2s0"}
    assert device_for("default/vlan2", known) == Device(name="enp2s0")
    assert device_for("default/vlan7", known).unknown == (
        "the nodes do not all have a device in network default/vlan7 of annotation "
        "cloudprovider.harvesterhci.io/network, or not the same one; they have one in default/vlan1, default/vlan2 "
        "(ConfigMap kube-system/harvester-nad-mapping). Correct the annotation, or give all VMs an interface in that "
        "network"
    )


def test_network_of_a_load_balancer_is_fixed_once_it_has_an_address() -> None:
    made_with = {LB_REQUESTED_NETWORK: "infra/vlan9"}
    assert network_of(allocated(annotations=made_with), "infra/vlan7") == "infra/vlan9"
    assert network_of(marked(annotations=made_with), "infra/vlan7") == "infra/vlan7"
