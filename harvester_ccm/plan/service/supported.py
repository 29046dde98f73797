"""What no load balancer of Harvester can do for a Service."""

from harvester_ccm import names
from harvester_ccm.model.core import Service
from harvester_ccm.model.event import EventMessage
from harvester_ccm.names import Reason


def unsupported_reason(service: Service, *, is_vm: bool) -> EventMessage | None:
    """Return why no load balancer can serve the Service at all, or None.

    ``is_vm`` is whether the load balancer is one for VMs. A Service that was served before it requested both IP
    families goes on being served.
    """
    spec = service.spec
    if spec.ip_families and "IPv4" not in spec.ip_families:
        return _unsupported(
            "Harvester's load balancers have IPv4 addresses only, and spec.ipFamilies has no IPv4",
            "Set spec.ipFamilyPolicy to PreferDualStack if the cluster has both, or create the Service again with IPv4",
        )
    is_unserved = not service.addresses and not service.has_finalizer
    if is_unserved and spec.ip_family_policy == "RequireDualStack":
        return _unsupported(
            "Harvester's load balancers have one IPv4 address, and spec.ipFamilyPolicy of this Service, "
            "RequireDualStack, asks for an IPv6 address, too",
            "Set it to PreferDualStack, and the Service is served on IPv4",
        )
    if is_vm and not any(port.node_port for port in spec.ports):
        # Kubernetes allocates node ports in the request that creates or changes a Service.
        return _unsupported(
            "A VM load balancer sends traffic to node ports, but spec.allocateLoadBalancerNodePorts is false",
            f"Set it to true, or set annotation {names.WORKLOAD_TYPE} to cluster",
        )
    return None


def _unsupported(cause: str, remedy: str) -> EventMessage:
    return EventMessage("Warning", Reason.UNSUPPORTED, cause, remedy)
