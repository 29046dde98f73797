"""Kubelets that report false facts: their Node is new nevertheless."""

import pytest

from harvester_ccm.names import GO_VM_ANNOTATION
from harvester_ccm.plan.node.patch import was_initialized
from tests.support.node_objects import UNINITIALIZED, node


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
