"""``explain node``: the VM, and addresses with the reason for each."""

from __future__ import annotations

import pytest

from harvester_ccm.names import ADDITIONAL_INTERNAL_IPS, KUBE_VIP_ADDRESSES, PROVIDED_NODE_IP, SERVICE_FINALIZER
from tests.unit.commands import objects
from tests.unit.commands.conftest import ClusterServer, Json, Runner

LAN, STORAGE = "default/lan", "default/storage"
NAMED = f"named by annotation {PROVIDED_NODE_IP}"


def addresses(document: Json) -> list[tuple[str, str, str]]:
    return [(one["address"], one["type"], one["reason"]) for one in document["addresses"]]


def explain(run: Runner, flags: list[str], *words: str) -> Json:
    return run("explain", "node/w1", *flags, "--output=json", *words).document


def test_every_address_has_a_reason(run: Runner, serve: ClusterServer) -> None:
    reported = ["10.0.0.5", "10.0.0.9", "fe80::1", "fd00::5", "10.0.0.5", "10.0.0.100", "bad"]
    vmi = objects.instance("w1", ("eth0", LAN, reported), ("eth1", STORAGE, ["10.9.0.5"]))
    announced = objects.service(annotations={KUBE_VIP_ADDRESSES: "10.0.0.100"}, finalizers=[SERVICE_FINALIZER])
    document = explain(run, serve(objects.node(), objects.machine(), vmi, announced))
    assert addresses(document) == [
        ("10.0.0.5", "InternalIP", "first IPv4 address of the interface"),
        ("10.0.0.9", "ExternalIP", "another address of interface nic-0"),
        ("fd00::5", "InternalIP", "first IPv6 address of the interface"),
        ("w1", "Hostname", "name of the Node"),
        ("fe80::1", "dropped", "link-local"),
        ("bad", "dropped", "not an IP address"),
        ("10.0.0.100", "dropped", "virtual IP of Service shop/web"),
        ("10.9.0.5", "dropped", "on interface nic-1, and not on nic-0"),
    ]
    assert document["vm"]["foundBy"] == "name"


@pytest.mark.parametrize(
    ("words", "annotations", "expected"),
    [
        (
            ("--node-ip-cidr=10.0.0.8/29",),
            {},
            [
                ("10.0.0.5", "ExternalIP", "another address of interface nic-0"),
                ("10.0.0.9", "InternalIP", "first IPv4 address inside --node-ip-cidr 10.0.0.8/29"),
            ],
        ),
        (
            ("--node-exclude-ip-ranges=10.0.0.5",),
            {},
            [
                ("10.0.0.9", "InternalIP", "first IPv4 address of the interface"),
                ("10.0.0.5", "dropped", "excluded by --node-exclude-ip-ranges"),
            ],
        ),
        (
            (),
            {PROVIDED_NODE_IP: "10.0.0.9"},
            [
                ("10.0.0.9", "InternalIP", NAMED),
                ("10.0.0.5", "ExternalIP", "another address of interface nic-0"),
            ],
        ),
        (
            (),
            {ADDITIONAL_INTERNAL_IPS: '["10.0.0.9"]'},
            [
                ("10.0.0.5", "InternalIP", "first IPv4 address of the interface"),
                ("10.0.0.9", "dropped", f"named by annotation {ADDITIONAL_INTERNAL_IPS}"),
            ],
        ),
        (
            ("--management-network=default/storage",),
            {},
            [
                ("10.9.0.5", "InternalIP", "first IPv4 address of the interface"),
                ("10.0.0.5", "dropped", "on interface nic-0, and not on nic-1"),
                ("10.0.0.9", "dropped", "on interface nic-0, and not on nic-1"),
            ],
        ),
    ],
)
def test_rules(
    run: Runner,
    serve: ClusterServer,
    words: tuple[str, ...],
    annotations: dict[str, str],
    expected: list[tuple[str, str, str]],
) -> None:
    vmi = objects.instance("w1", ("eth0", LAN, ["10.0.0.5", "10.0.0.9"]), ("eth1", STORAGE, ["10.9.0.5"]))
    document = explain(run, serve(objects.node(annotations=annotations), objects.machine(), vmi), *words)
    assert set(expected) <= set(addresses(document))


def test_a_known_address_that_is_not_reported_is_kept(run: Runner, serve: ClusterServer) -> None:
    node = objects.node(taints=[], providerID="harvester://uid-of-vm-w1")
    node["status"]["addresses"] = [{"type": "InternalIP", "address": "10.0.0.5"}, {"type": "Hostname", "address": "w1"}]
    vmi = objects.instance("w1", ("eth0", LAN, ["fd00::5"]))
    document = explain(run, serve(node, objects.machine(), vmi))
    kept = ("10.0.0.5", "InternalIP", "present InternalIP, which the VM does not report now")
    assert kept in addresses(document)


def test_next_write(run: Runner, serve: ClusterServer) -> None:
    vmi = objects.instance("w1", ("eth0", LAN, ["10.0.0.5"]))
    node = objects.node()
    new = run("explain", "node/w1", *serve(node, objects.machine(), vmi), "--output=json")
    node["status"]["addresses"] = [{"type": "InternalIP", "address": "10.0.0.5"}, {"type": "Hostname", "address": "w1"}]
    addressed = run("explain", "node/w1", *serve(node, objects.machine(), vmi), "--output=json")
    assert (new.code, addressed.code) == (0, 0)
    (first,) = new.document["nextWrites"]
    assert first["request"] == "patch Node w1"
    (line,) = first["diff"]
    assert line.startswith('+ status.addresses: [{"type": "InternalIP", "address": "10.0.0.5"}')
    (second,) = addressed.document["nextWrites"]
    assert '+ spec.providerID: "harvester://uid-of-vm-w1"' in second["diff"]
    assert any(line.startswith("- spec.taints: ") for line in second["diff"])
    assert [one["reason"] for one in addressed.document["events"]] == ["Synced"]


def test_what_a_node_waits_for(run: Runner, serve: ClusterServer) -> None:
    silent = objects.instance("w1", ("eth0", LAN, []))
    silent["status"]["conditions"] = []
    flags = serve(objects.node(), objects.machine(), silent)
    result = run("explain", "node/w1", *flags, "--output=json")
    assert result.code == 1
    (event,) = result.document["events"]
    assert event["reason"] == "NoAddress"
    assert "Warning  NoAddress  VM vms/w1 has no" in run("explain", "node/w1", *flags).out


def test_a_node_without_a_vm(run: Runner, serve: ClusterServer) -> None:
    result = run("explain", "node/w1", *serve(objects.node(), objects.machine("other")))
    assert result.code == 1
    assert "No VM in namespace vms of Harvester" in result.out


def test_nodes_that_are_left_as_they_are(run: Runner, serve: ClusterServer) -> None:
    vmi = objects.instance("w1", ("eth0", LAN, ["10.0.0.5"]))
    flags = serve(objects.node(), objects.machine(), vmi)
    document = explain(run, flags, "--controllers=-cloud-node-controller,-cloud-node-lifecycle-controller")
    assert document["skipReason"] == "cloud-node-controller is switched off by --controllers"
    assert document["nextWrites"] == []
