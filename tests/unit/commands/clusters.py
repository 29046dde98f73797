"""Both clusters of a small case on loopback."""

from harvester_ccm.names import IP_POOL, LB_OWNER
from tests.support.loopback_api import LoopbackApi
from tests.unit.commands import objects

GUEST_GROUPS = {"coordination.k8s.io": ["v1"]}
HARVESTER_GROUPS: dict[str, list[str]] = {
    "loadbalancer.harvesterhci.io/v1beta1": ["loadbalancers"],
    "kubevirt.io/v1": ["virtualmachines", "virtualmachineinstances"],
}


def guest() -> LoopbackApi:
    """Return the guest cluster: a Service that waits for a pool, one that is new, and a Node."""
    waiting = objects.service(annotations={IP_POOL: "dmz"})
    new = objects.service("new", uid="new-uid")
    return LoopbackApi([waiting, new, objects.node(), objects.home()], groups=GUEST_GROUPS)


def harvester() -> LoopbackApi:
    """Return the Harvester: the load balancer of the first Service, and the VM of the Node."""
    marked = objects.balancer(
        message="fail to get allocator dmz", ipPool="dmz", annotations={LB_OWNER: objects.CLUSTER_UID}
    )
    vm = objects.machine("w1")
    instance = objects.instance("w1", ("eth0", "default/lan", ["10.0.0.5"]))
    return LoopbackApi([marked, vm, instance], groups=HARVESTER_GROUPS)
