"""Warnings about settings of a Service that have no effect, cannot change, or need something that is not visible."""

from collections.abc import Iterator

from msgspec import Struct

from harvester_ccm import names
from harvester_ccm.model.core import Service
from harvester_ccm.model.event import EventMessage, quoted
from harvester_ccm.model.harvester import LoadBalancer
from harvester_ccm.names import Reason
from harvester_ccm.plan.service.request import Ipam, Request, WorkloadType, kept_address, normal_network


class Ignored(Struct, frozen=True):
    """A setting without effect."""

    setting: str
    reason: str


def ignored_on_load_balancer(
    service: Service, request: Request, load_balancer: LoadBalancer | None, *, is_vm: bool
) -> EventMessage | None:
    """Return the Warning about settings without effect on a load balancer of this type, or None.

    ``load_balancer`` is None before it is created.
    """
    ignored = [
        *_health_checks(request, is_vm=is_vm),
        *_project(request, load_balancer),
        *_pool_namespace(request, load_balancer),
        *_ipv6(service),
        *_pool_with_dhcp(request, load_balancer),
    ]
    if is_vm:
        ignored += _network_of_vm(request, load_balancer)
        ignored += _hidden_by_harvester(service, is_checked=bool(request.health_check))
    return _warning(ignored)


def ignored_on_secondary(service: Service, request: Request, primary: Service, *, is_vm: bool) -> EventMessage | None:
    """Return the Warning about settings without effect on a Service that shares the address of ``primary``.

    ``is_vm`` is whether Harvester announces that address.
    """
    ignored = [*_set_on_primary(request, primary), *_other_address(service, primary), *_ipv6(service)]
    if is_vm:
        ignored += _hidden_by_harvester(service, is_checked=False)
    return _warning(ignored)


def _warning(ignored: list[Ignored]) -> EventMessage | None:
    if not ignored:
        return None
    listed = "; ".join(f"{entry.setting} ({entry.reason})" for entry in ignored)
    return EventMessage("Warning", Reason.IGNORED, f"Without effect on this load balancer: {listed}")


def _health_checks(request: Request, *, is_vm: bool) -> Iterator[Ignored]:
    checks = request.health_check_annotations
    has_port = names.HEALTH_CHECK_PORT in checks
    if not checks or (is_vm and has_port):
        return
    missing = []
    if not is_vm and request.workload_type is not WorkloadType.VM:
        missing.append(f"annotation {names.WORKLOAD_TYPE} to vm")
    if not has_port:
        missing.append(f"{names.HEALTH_CHECK_PORT} to the port to check")
    reason = "health checks need a VM load balancer and a port"
    if missing:
        reason = f"{reason}; set {' and '.join(missing)}"
    yield Ignored(", ".join(checks), reason)


def _stored(load_balancer: LoadBalancer | None, annotation: str) -> str | None:
    """Return what Harvester has stored of an annotation; None before that."""
    return None if load_balancer is None else load_balancer.metadata.annotation(annotation)


def _network_of_vm(request: Request, load_balancer: LoadBalancer | None) -> Iterator[Ignored]:
    """Yield the annotation of the network; Harvester before 1.7 drops it from the load balancer."""
    if not request.network:
        return
    stored = _stored(load_balancer, names.LB_SELECT_NETWORK)
    if stored == "":
        yield Ignored(
            f"annotation {names.NETWORK}",
            "Harvester searched the pools without a network, and announces the address in the network of its hosts",
        )
    else:
        yield Ignored(
            f"annotation {names.NETWORK}, beyond the choice of a pool",
            "Harvester announces the address in the network of its hosts; one of another network cannot be reached",
        )


def _project(request: Request, load_balancer: LoadBalancer | None) -> Iterator[Ignored]:
    """Yield the annotation of the project, if Harvester replaced it: for VM load balancers only before 1.7."""
    stored = _stored(load_balancer, names.LB_SELECT_PROJECT)
    if request.project and stored is not None and stored != request.project:
        searched = f"for project {quoted(stored)}" if stored else "without a project"
        yield Ignored(f"annotation {names.PROJECT}", f"Harvester searched the pools {searched}")


def _pool_namespace(request: Request, load_balancer: LoadBalancer | None) -> Iterator[Ignored]:
    """Yield the annotation of the namespace, which Harvester replaces with that of the load balancer."""
    stored = _stored(load_balancer, names.LB_SELECT_NAMESPACE)
    if request.pool_namespace and stored is not None and stored != request.pool_namespace:
        yield Ignored(
            f"annotation {names.POOL_NAMESPACE}", f"Harvester searched the pools for namespace {quoted(stored)}"
        )


def _set_on_primary(request: Request, primary: Service) -> Iterator[Ignored]:
    of_primary = (
        names.IPAM,
        names.IP_POOL,
        names.WORKLOAD_TYPE,
        names.PROJECT,
        names.POOL_NAMESPACE,
        names.DESCRIPTION,
    )
    keys = [key for key in of_primary if key in request.present]
    keys += request.health_check_annotations
    if keys:
        yield Ignored(", ".join(keys), f"effective only on {primary.metadata.key}, whose address is shared")


def _other_address(service: Service, primary: Service) -> Iterator[Ignored]:
    requests = {
        "spec.loadBalancerIP": service.spec.load_balancer_ip,
        f"annotation {names.REQUESTED_ADDRESS}": kept_address(service),
    }
    settings = [setting for setting, address in requests.items() if address and address not in primary.addresses]
    if settings:
        yield Ignored(", ".join(settings), f"the address is that of {primary.metadata.key}")


def _ipv6(service: Service) -> Iterator[Ignored]:
    spec = service.spec
    policy = service.spec.ip_family_policy
    if "IPv6" in spec.ip_families:
        has_policy = policy in {"RequireDualStack", "PreferDualStack"}
        families = f"ipFamilyPolicy {policy}" if has_policy else "ipFamilies"
        yield Ignored(f"IPv6 of spec.{families}", "the load balancer has one IPv4 address")


def _pool_with_dhcp(request: Request, load_balancer: LoadBalancer | None) -> Iterator[Ignored]:
    ipam = load_balancer.spec.ipam if load_balancer else request.ipam
    if ipam == "dhcp" and request.ip_pool:
        yield Ignored(f"annotation {names.IP_POOL}", "the address comes from DHCP")


def _hidden_by_harvester(service: Service, *, is_checked: bool) -> Iterator[Ignored]:
    """Yield the settings that have no effect if Harvester announces the address.

    With a health check, externalTrafficPolicy Local has an effect: only nodes with an endpoint get traffic.
    """
    spec = service.spec
    if spec.load_balancer_source_ranges:
        # A NetworkPolicy in the cluster is no way out: the pods see the addresses of Harvester's hosts.
        reason = (
            "Harvester forwards from everywhere, and pods do not see the addresses of clients: filter in a firewall in "
            f"front of the address, or set annotation {names.WORKLOAD_TYPE} to cluster, with which the nodes filter"
        )
        yield Ignored("spec.loadBalancerSourceRanges", reason)
    if spec.session_affinity == "ClientIP":
        yield Ignored("spec.sessionAffinity ClientIP", "the nodes see Harvester's hosts, not the clients")
    if spec.external_traffic_policy == "Local" and not is_checked:
        reason = (
            "Harvester's hosts hide it; nodes without an endpoint only drop traffic: set spec.externalTrafficPolicy to "
            f"Cluster, or set annotation {names.HEALTH_CHECK_PORT}"
        )
        yield Ignored("the client address of spec.externalTrafficPolicy Local", reason)
    if spec.allocate_load_balancer_node_ports is False:
        without = [f"{port.port}/{port.protocol}" for port in spec.ports if not port.node_port]
        if without:
            reason = "they have no node port; set spec.allocateLoadBalancerNodePorts to true"
            yield Ignored(f"ports {', '.join(without)}", reason)


def local_policy(service: Service) -> EventMessage | None:
    """Return the Event about externalTrafficPolicy Local on a Service that kube-vip announces, or None.

    Whether anything is wrong is not known: the settings of kube-vip are not visible to this controller.
    """
    if service.spec.external_traffic_policy != "Local":
        return None
    cause = (
        "externalTrafficPolicy is Local: only the node that announces the address gets traffic, and it drops the "
        "traffic if it runs no pod of the Service"
    )
    remedy = (
        "Unless that is set already, have a kube-vip other than v1.2.0 to v1.2.3 elect a node with a pod for each "
        'Service: env svc_election "true", on all nodes (chart: kube-vip.env.svc_election, kube-vip.runOn all). '
        "Otherwise set externalTrafficPolicy to Cluster"
    )
    return EventMessage("Normal", Reason.LOCAL_POLICY, cause, remedy)


class _Fixed(Struct, frozen=True):
    """A setting that is fixed once the load balancer exists."""

    annotation: str
    requested: str
    present: str


def rejected_changes(request: Request, load_balancer: LoadBalancer, *, has_address: bool) -> Iterator[EventMessage]:
    """Yield the Warnings about settings that were changed after the load balancer was created."""
    for setting in _fixed_settings(request, load_balancer, has_address=has_address):
        if setting.requested == setting.present:
            continue
        is_set = setting.requested and setting.annotation in request.present
        change = f"is {setting.requested!r}" if is_set else "was removed"
        kept = f"keeps {setting.present!r}" if setting.present else "has none"
        cause = f"{change}, but the load balancer {kept}: it is fixed"
        first = "Set the annotation back" if setting.present else "Remove the annotation"
        remedy = f"{first}, or delete the Service and create it again"
        place = f"Annotation {setting.annotation}"
        yield EventMessage("Warning", Reason.IMMUTABLE, cause, remedy, place=place)


def _fixed_settings(request: Request, load_balancer: LoadBalancer, *, has_address: bool) -> Iterator[_Fixed]:
    """Network and pool follow the Service while there is no address to lose.

    Load balancers made by providers before 0.2.7 do not name the network that was requested.
    """
    spec = load_balancer.spec
    ipam = spec.ipam if request.ipam is Ipam.INVALID else str(request.ipam)
    yield _Fixed(names.IPAM, ipam, spec.ipam)
    if not has_address:
        return
    created_with = load_balancer.metadata.annotation(names.LB_REQUESTED_NETWORK)
    network = request.network if created_with is None else normal_network(created_with)
    yield _Fixed(names.NETWORK, request.network, network)
    # An administrator may have changed the pool of the specification since.
    pool = (load_balancer.allocated_pool or spec.ip_pool) if spec.ipam == "pool" else ""
    yield _Fixed(names.IP_POOL, request.ip_pool or pool, pool or request.ip_pool)
