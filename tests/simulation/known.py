"""Stories that once ended wrong, as short as they could be made, with what was wrong in them.

A seed is another story as soon as anything is added to those that there may be; these stay.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from harvester_ccm.names import HEALTH_CHECK_PORT, IPAM, KUBE_VIP_ADDRESSES, PRIMARY_SERVICE, WORKLOAD_TYPE
from tests.simulation.acts import Act, Story

ONE_PORT: Final[list[dict[str, Any]]] = [{"name": "main", "port": 80, "protocol": "TCP", "nodePort": 30000}]
OTHER_PORT: Final[list[dict[str, Any]]] = [{"name": "main", "port": 81, "protocol": "TCP", "nodePort": 30010}]
TWO_PORTS: Final = [*ONE_PORT, {"name": "more", "port": 443, "protocol": "TCP", "nodePort": 30001}]


def _create(ports: list[dict[str, Any]], annotations: Mapping[str, str] | None = None) -> dict[str, Any]:
    return {"name": "a", "ports": ports, "annotations": dict(annotations or {})}


KNOWN: Final[Mapping[str, Story]] = {
    # A load balancer was deleted right after it was closed, and an address that was being booked meanwhile stayed so.
    "one is refused and goes while harvester books for it": Story(
        "1696",
        pool=1,
        nodes=0,
        acts=(
            Act(0.0, "create", _create(ONE_PORT, {WORKLOAD_TYPE: "clutser"})),
            Act(0.014, "stop_controllers", {"seconds": 60}),
            Act(0.002, "resize_pool", {"by": 1}),
            Act(0.03, "retype", {"name": "a", "type": "ClusterIP"}),
        ),
    ),
    # kube-vip was to ignore the Service for ever.
    "the empty annotation is taken off one that is held while the program is away": Story(
        "3379",
        pool=5,
        nodes=3,
        acts=(
            Act(0.0, "create", _create(TWO_PORTS)),
            Act(0.08, "kill", {"after_steps": 14}),
            Act(0.003, "annotate", {"name": "a", "annotations": {KUBE_VIP_ADDRESSES: None}}),
        ),
    ),
    # It was not deleted, and kept its address.
    "one is deleted and comes back with a backup of harvester under another leader": Story(
        "1",
        pool=3,
        nodes=0,
        acts=(
            Act(0.0, "create", _create(ONE_PORT)),
            Act(20.0, "delete", {"name": "a"}),
            Act(20.0, "stop", {}),
            Act(150.0, "restore", {"side": "harvester", "back": 180.0, "away": 5.0}),
        ),
    ),
    # The kube-vip of the schedules withdrew an address for an event that was older than it.
    "one is made again and changed before kube-vip has looked at it": Story(
        "484",
        pool=3,
        nodes=3,
        acts=(
            Act(0.0, "create", _create(ONE_PORT)),
            Act(24.238, "delete", {"name": "a"}),
            Act(0.0, "cut_watches", {"side": "harvester", "how": "silent"}),
            Act(3.32, "compact", {"side": "guest"}),
            Act(0.141, "create", _create(ONE_PORT)),
            Act(0.072, "change_ports", {"name": "a", "ports": TWO_PORTS}),
        ),
    ),
    # It was adopted while its deletion waited for the Lease, which was sent beside what took it over.
    "a backup of the guest is restored, and one is made again before the lease is renewed": Story(
        "mini 1",
        pool=5,
        nodes=2,
        acts=(
            Act(0.0, "create", _create(ONE_PORT)),
            Act(1.23, "restore", {"side": "guest", "back": 20.0, "away": 1.0}),
            Act(1.486, "create", _create(ONE_PORT, {IPAM: "pool"})),
        ),
    ),
    # The copy asked for a load balancer under the name of the original's, time after time.
    "a copy is made while one moves to harvester, and its status is cleared there": Story(
        "c100",
        pool=5,
        nodes=0,
        acts=(
            Act(0.0, "create", _create(ONE_PORT)),
            Act(5.0, "annotate", {"name": "a", "annotations": {WORKLOAD_TYPE: "vm"}}),
            Act(0.1, "clone", {}),
            Act(5.0, "in_clone", {"verb": "clear_status", "name": "a"}),
        ),
    ),
    # An address that kube-vip had left up with the change of the type was taken for one that it minds.
    "the type is changed there and back, and the service goes": Story(
        "20305",
        pool=3,
        nodes=0,
        acts=(
            Act(0.0, "create", _create(ONE_PORT)),
            Act(2.965, "retype", {"name": "a", "type": "NodePort"}),
            Act(2.689, "retype", {"name": "a", "type": "LoadBalancer"}),
            Act(0.061, "delete", {"name": "a"}),
        ),
    ),
    # kube-vip had noted nothing yet of the address that it was told to let go of, and was silent about the next one.
    "one from DHCP is deleted by hand before kube-vip has its lease": Story(
        "50394",
        pool=1,
        nodes=3,
        acts=(
            Act(0.0, "create", _create(ONE_PORT)),
            Act(0.022, "delete", {"name": "a"}),
            Act(0.177, "create", _create(TWO_PORTS, {IPAM: "dhcp"})),
            Act(0.273, "annotate", {"name": "a", "annotations": {WORKLOAD_TYPE: "cluster"}}),
            Act(0.036, "agent_back", {"name": "w3"}),
            Act(0.0, "delete_balancer", {"name": "a"}),
        ),
    ),
    # kube-vip had a lease that it had shown once, nobody had recorded it, and both sides waited for the other.
    "a lease is taken out of the status while the program is suspended": Story(
        "808",
        pool=3,
        nodes=0,
        acts=(
            Act(0.233, "create", _create(ONE_PORT, {IPAM: "dhcp"})),
            Act(0.09, "halt", {"seconds": 100}),
            Act(19.798, "clear_status", {"name": "a"}),
        ),
    ),
    # kube-vip was to ignore the Service before it was told to let go of its lease, which it kept, shown to nobody.
    "a lease and the annotation are taken off and one is deleted by hand while nobody leads": Story(
        "1114",
        pool=1,
        nodes=0,
        acts=(
            Act(0.0, "create", _create(ONE_PORT, {IPAM: "dhcp"})),
            Act(30.0, "kill", {"after_steps": 0}),
            Act(0.1, "clear_status", {"name": "a"}),
            Act(0.0, "annotate", {"name": "a", "annotations": {KUBE_VIP_ADDRESSES: None}}),
            Act(0.1, "delete_balancer", {"name": "a"}),
        ),
    ),
    # It was written once more, for nothing, whenever something else called for a look at it: once minutes later.
    "one that was made again is refused the address that another one has got": Story(
        "892",
        pool=2,
        nodes=3,
        acts=(
            Act(0.0, "create", _create(ONE_PORT, {WORKLOAD_TYPE: "vm"})),
            Act(8.148, "open_pool", {"to_everybody": False}),
            Act(0.0, "create", {**_create(TWO_PORTS), "name": "c"}),
            Act(0.027, "halt", {"seconds": 20}),
            Act(0.0, "delete_balancer", {"name": "a"}),
            Act(3.737, "create", {**_create(ONE_PORT), "name": "d"}),
            Act(35.466, "open_pool", {"to_everybody": True}),
            Act(0.334, "delete_balancer", {"name": "a"}),
        ),
    ),
    # It was expected to make one again, whose address the copy has by then: either would lose it for the other.
    "one is deleted by hand, and a copy is first to ask for its address": Story(
        "9293",
        pool=1,
        nodes=0,
        acts=(
            Act(0.0, "create", _create(TWO_PORTS, {HEALTH_CHECK_PORT: "80"})),
            Act(38.493, "clone", {}),
            Act(90.0, "wait", {}),
            Act(0.004, "delete_balancer", {"name": "a"}),
        ),
    ),
    # What the watch had not told of stayed in the cache after the backup: that was taken for an older list.
    "harvester goes back to a backup without what was just created": Story(
        "52256",
        pool=3,
        nodes=1,
        acts=(
            Act(4.18, "cut_watches", {"side": "harvester", "how": "silent"}),
            Act(0.0, "create", _create(ONE_PORT)),
            Act(15.781, "restore", {"side": "harvester", "back": 20.0, "away": 60.0}),
        ),
    ),
    # The secondary kept the address, although no load balancer held it any more.
    "the primary of a secondary is no load balancer any more in the original of a clone": Story(
        "x1",
        pool=5,
        nodes=0,
        acts=(
            Act(0.0, "create", _create(ONE_PORT, {IPAM: "dhcp"})),
            Act(2.4, "clone", {}),
            Act(30.0, "wait", {}),
            Act(15.0, "in_clone", {"verb": "clear_status", "name": "a"}),
            Act(1.0, "create", {**_create(OTHER_PORT, {PRIMARY_SERVICE: "shop/a"}), "name": "b"}),
            Act(20.0, "retype", {"name": "a", "type": "ClusterIP"}),
            Act(10.0, "delete_balancer", {"name": "a"}),
        ),
    ),
}
