"""Every match of a Node and a VM rests on a common identity."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from harvester_ccm.model.cluster import ClusterIdentity
from harvester_ccm.names import VM_CLUSTER
from harvester_ccm.plan.node.match import find_vm
from harvester_ccm.plan.node.vms import Membership, join_one, node_identities, vm_identities
from tests.worlds.node_objects import OWN, index, node, vm

NAMES = st.sampled_from(["w1", "w2", "w1.example.com", "w2.example.com"])
UUIDS = st.sampled_from(["", "AA-1", "bb-2"])


@given(
    name=NAMES,
    uuid=UUIDS,
    provider=st.sampled_from(["", "harvester://uid-w1", "harvester://uid-w2", "k3s://w1"]),
    machines=st.lists(st.tuples(NAMES, UUIDS, NAMES), max_size=3, unique_by=lambda entry: entry[0]),
)
def test_matched_means_woken(name: str, uuid: str, provider: str, machines: list[tuple[str, str, str]]) -> None:
    vms = [vm(own, firmware=firmware, labels=OWN) for own, firmware, _ in machines]
    target = node(name, system_uuid=uuid, provider_id=provider)
    match = find_vm(target, index(vms, hostnames={own: hostname for own, _, hostname in machines}))
    if match.vm is not None:
        assert not vm_identities(match.vm).isdisjoint(node_identities(target))


@pytest.mark.parametrize(
    ("label", "expected"),
    [
        ("new", Membership.OWN),
        ("old", Membership.OWN),
        ("other", Membership.FOREIGN),
        ("", Membership.UNMARKED),
    ],
)
def test_vms_under_a_former_name_are_this_clusters(label: str, expected: Membership) -> None:
    cluster = ClusterIdentity("new", "default", former_names=("old",))
    one = vm("w1", labels={VM_CLUSTER: label} if label else {})
    assert join_one(one, None, "", cluster=cluster).membership is expected
