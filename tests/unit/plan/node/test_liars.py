"""Guests and kubelets that report false facts: no other machine becomes their Node, and no Node is lost by them.

``tests/trust.md`` lists every such place, with its test.
"""

import pytest

from harvester_ccm.model.core import ConfigMap, Node
from harvester_ccm.model.harvester import VirtualMachine, VirtualMachineInstance
from harvester_ccm.names import GO_VM_ANNOTATION, VM_ANNOTATION
from harvester_ccm.plan.node.device_mapping import plan_device_mapping
from harvester_ccm.plan.node.lifecycle import observe_lifecycle, plan_lifecycle
from harvester_ccm.plan.node.match import find_vm
from harvester_ccm.plan.node.patch import was_initialized
from tests.support.node_objects import DEFAULTS, FOREIGN, OWN, UNINITIALIZED, instance, node, store, vm

HONEST_UUID = "5f3c0000-0000-4000-8000-00000000000a"
LIAR_UUID = "5f3c0000-0000-4000-8000-00000000000b"
HONEST = vm("honest", labels=OWN, firmware=HONEST_UUID)
LIARS = {
    "of this cluster": vm("liar", labels=OWN, firmware=LIAR_UUID),
    "without a label": vm("liar", firmware=LIAR_UUID),
    "of another cluster": vm("liar", labels=FOREIGN, firmware=LIAR_UUID),
}


@pytest.mark.parametrize("liar", LIARS.values(), ids=LIARS.keys())
@pytest.mark.parametrize(("vms", "expected"), [((HONEST,), "honest"), ((), "")], ids=["VM listed", "VM not listed yet"])
def test_guest_with_the_host_name_of_a_node_is_not_its_machine(
    vms: tuple[VirtualMachine, ...], expected: str, liar: VirtualMachine
) -> None:
    new = node("w1", system_uuid=HONEST_UUID, taints=[UNINITIALIZED])
    match = find_vm(store([*vms, liar], hostnames={"honest": "w1", "liar": "w1"}, nodes=[new]), new)
    assert (match.vm.name if match.vm else "") == expected


def test_guest_cannot_choose_the_device_of_the_other_nodes() -> None:
    def reporting(name: str, device: str) -> VirtualMachineInstance:
        return instance(name, interfaces=[{"name": "nic-1", "interfaceName": device}])

    honest = [reporting(f"vm{number}", "enp1s0") for number in range(2)]
    published = ConfigMap(data={"interface-nad-mapping": '{"prod/mgmt":"enp1s0"}'})
    # kube-vip uses one device on all nodes, so a network with two of them has none.
    assert plan_device_mapping([*honest, reporting("liar", "eth9")], published) == ""
    assert plan_device_mapping([*honest, reporting("liar", "")], published) is None


RECORDS = {
    "VM of another namespace": {VM_ANNOTATION: "other/gone"},
    "no name of a VM": {VM_ANNOTATION: "prod/../gone"},
    "no record": {},
}


@pytest.mark.parametrize("annotations", RECORDS.values(), ids=RECORDS.keys())
def test_record_that_a_kubelet_wrote_names_no_vm_to_ask_for(annotations: dict[str, str]) -> None:
    lost = node(provider_id="harvester://uid-w1", ready="Unknown", annotations=annotations)
    plan = plan_lifecycle(observe_lifecycle(store([], nodes=[lost]), lost, DEFAULTS, absences=9))
    assert not plan.deletes
    assert plan.event is not None
    assert plan.event.subject == "name"


def test_ready_kubelet_without_a_vm_deletes_no_node_and_keeps_no_taint() -> None:
    liar: Node = node(provider_id="harvester://uid-gone", ready="True", annotations={VM_ANNOTATION: "prod/gone"})
    plan = plan_lifecycle(observe_lifecycle(store([], nodes=[liar]), liar, DEFAULTS, absences=9))
    assert (plan.write, plan.event) == (None, None)


@pytest.mark.parametrize(
    ("addresses", "annotations", "expected"),
    [
        (["10.0.0.1"], {GO_VM_ANNOTATION: "w1"}, True),
        (["10.0.0.1"], {}, False),
        ([], {GO_VM_ANNOTATION: "w1"}, False),
    ],
    ids=["recorded by the Go provider", "by its kubelet only", "no address"],
)
def test_node_with_the_taint_was_initialized_if_it_has_an_address_and_a_record(
    addresses: list[str], annotations: dict[str, str], *, expected: bool
) -> None:
    kept = node(
        provider_id="harvester://uid-w1",
        taints=[UNINITIALIZED],
        addresses=[("InternalIP", address) for address in addresses],
        annotations=annotations,
    )
    assert was_initialized(kept) is expected


@pytest.mark.parametrize(("provider_id", "expected"), [("harvester://uid-w1", True), ("", False)])
def test_taint_of_the_go_provider_and_an_address_make_no_initialized_node(provider_id: str, *, expected: bool) -> None:
    """Anybody can set the taint with another effect than the kubelet, which reports an InternalIP itself."""
    taint = {**UNINITIALIZED, "effect": "NoExecute"}
    reported = node(provider_id=provider_id, taints=[taint], addresses=[("InternalIP", "10.0.0.1")])
    assert was_initialized(reported) is expected
