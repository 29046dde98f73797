"""What keeps a load balancer that is being deleted."""

import pytest
from msgspec.structs import replace

from harvester_ccm.names import LB_CONTROLLER_FINALIZER
from harvester_ccm.plan.service.allocation.deletion import deletion_remedy
from tests.support.builders import LB_NAME, allocated

OURS = LB_CONTROLLER_FINALIZER
FOREIGN = "example.com/backup"


@pytest.mark.parametrize(
    ("finalizers", "text"),
    [
        pytest.param((OURS,), "Check that harvester-load-balancer and its webhook run", id="only Harvester's"),
        pytest.param((), "Check that harvester-load-balancer and its webhook run", id="none"),
        pytest.param((OURS, FOREIGN), f"It waits for finalizers in Harvester: {FOREIGN}. ", id="both"),
        pytest.param((FOREIGN,), f"It waits for finalizers in Harvester: {FOREIGN}. ", id="another program's"),
    ],
)
def test_remedy_is_about_the_finalizers_that_are_left(finalizers: tuple[str, ...], text: str) -> None:
    deleted = allocated(deleting=True)
    found = deletion_remedy(replace(deleted, metadata=replace(deleted.metadata, finalizers=finalizers)))
    assert found.startswith(text)
    command = f"kubectl edit loadbalancers.loadbalancer.harvesterhci.io -n vms {LB_NAME}, with the kubeconfig"
    assert (command in found) is (FOREIGN in finalizers), found
    assert ("IP pool 'vlan100' does not exist" in found) is (FOREIGN not in finalizers)
