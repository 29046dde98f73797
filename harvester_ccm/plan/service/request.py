"""The request of a Service: its annotations and fields, read once, with a Warning for each mistake.

An annotation is absent (the default applies), valid, or invalid. The Warning about an invalid one names the annotation,
its value and the valid values, and does not affect the others. A setting that has no effect on this kind of load
balancer, or that cannot change after its creation, also leads to a Warning.
"""

import difflib
from collections.abc import Mapping
from functools import lru_cache
from typing import Final

from msgspec import Struct

from harvester_ccm import names
from harvester_ccm.model.core import ConfigMap, Service, ipv4_text, published_devices
from harvester_ccm.model.harvester import HealthCheck, LoadBalancer
from harvester_ccm.model.outcome import NAMED, EventMessage, quoted, some_of
from harvester_ccm.plan.service.kube_vip import Announcement, requested_addresses

HEALTH_CHECK_NUMBERS: Final = {
    "success_threshold": (names.HEALTH_CHECK_SUCCESS_THRESHOLD, 1),
    "failure_threshold": (names.HEALTH_CHECK_FAILURE_THRESHOLD, 3),
    "period_seconds": (names.HEALTH_CHECK_PERIOD, 5),
    "timeout_seconds": (names.HEALTH_CHECK_TIMEOUT, 3),
}
"""Annotation and documented default of each number; always written out, as Harvester's differ (2, 2, 1 s, 1 s)."""


class Request(Struct, frozen=True):
    """The request of a Service: only this module reads the user's annotations with the prefix of this controller."""

    ipam: str | None
    """``pool`` or ``dhcp``; None when the annotation is wrong: nothing can be created then."""
    workload_type: str | None
    """``cluster`` or ``vm``; None if the annotation is absent or invalid."""
    network: str
    """Namespace and name, in the form in which networks are compared."""
    ip_pool: str
    project: str
    pool_namespace: str
    description: str
    address: str
    """Address the user wants; empty when any will do."""
    primary: str | None
    """See ``primary_reference``."""
    health_check: HealthCheck | None
    had_condition: bool
    """Whether the Service had this controller's condition before; another client may have removed it."""
    present: frozenset[str]
    """Keys of all annotations with the prefix, whatever their values."""
    problems: tuple[EventMessage, ...]

    @property
    def health_check_annotations(self) -> list[str]:
        """The annotations of health checks that are there, be they valid or not."""
        numbers = (key for key, _ in HEALTH_CHECK_NUMBERS.values())
        return [key for key in (names.HEALTH_CHECK_PORT, *numbers) if key in self.present]

    @property
    def unknown(self) -> EventMessage | None:
        """The Warning about annotations that mean nothing, each with the nearest known one."""
        unknown = sorted(self.present.difference(names.SERVICE_ANNOTATIONS))
        # There may be thousands, and each comparison with the known ones takes time.
        shown = some_of([*map(_likened, unknown[:NAMED]), *unknown[NAMED:]])
        text = f"Unknown annotations have no effect: {shown}"
        return EventMessage("Warning", names.Reason.IGNORED, text) if unknown else None

    @property
    def wants_vm(self) -> bool:
        """Whether a VM load balancer is asked for, by its name or because only such ones have health checks."""
        return self.workload_type == "vm" or (self.workload_type is None and names.HEALTH_CHECK_PORT in self.present)


def read_request(service: Service, *, had_condition: bool = False) -> Request:
    """Return the request of the Service; ``had_condition`` as in the request."""
    problems: list[EventMessage] = []
    annotation = service.metadata.annotation
    ipam = _choice(service, names.IPAM, ("pool", "dhcp"), problems)
    workload_type = _choice(service, names.WORKLOAD_TYPE, ("cluster", "vm"), problems)
    health_check = _health_check(service, problems)
    return Request(
        ipam="pool" if ipam == "" else ipam,
        workload_type=workload_type or None,
        network=requested_network(service),
        ip_pool=(annotation(names.IP_POOL) or "").strip(),
        project=annotation(names.PROJECT) or "",
        pool_namespace=annotation(names.POOL_NAMESPACE) or "",
        description=annotation(names.DESCRIPTION) or "",
        address=_address(service, problems, dhcp=ipam == "dhcp", had_condition=had_condition),
        primary=primary_reference(service),
        health_check=health_check,
        had_condition=had_condition,
        present=frozenset(key for key in service.metadata.annotations or () if key.startswith(names.PREFIX)),
        problems=tuple(problems),
    )


def requested_network(service: Service) -> str:
    """Return the network that the Service requests, in normal form; empty for none."""
    return normal_network(service.metadata.annotation(names.NETWORK) or "")


def primary_reference(service: Service) -> str | None:
    """Return the ``namespace/name`` of the Service whose address is to be shared; None when this one has its own.

    An empty annotation counts as none; a malformed one is returned as it is.
    """
    return (service.metadata.annotation(names.PRIMARY_SERVICE) or "").strip() or None


def unsupported(service: Service, *, vm: bool) -> EventMessage | None:
    """Return why no load balancer can serve the Service at all, or None.

    A Service that was served before it requested both IP families goes on being served.
    """
    spec, is_new = service.spec, not (service.addresses or service.metadata.has_finalizer(names.SERVICE_FINALIZER))
    has_node_ports = spec.allocate_load_balancer_node_ports is not False or any(port.node_port for port in spec.ports)
    if spec.ip_families and "IPv4" not in spec.ip_families:
        text = (
            "Harvester's load balancers have IPv4 addresses only, and spec.ipFamilies has no IPv4. Set "
            "spec.ipFamilyPolicy to PreferDualStack if the cluster has both, or create the Service again with IPv4"
        )
    elif is_new and spec.ip_family_policy == "RequireDualStack":
        text = (
            "Harvester's load balancers have one IPv4 address, and spec.ipFamilyPolicy of this Service, "
            "RequireDualStack, asks for an IPv6 address, too. Set it to PreferDualStack, and the Service is served on "
            "IPv4"
        )
    elif vm and not has_node_ports:
        text = (
            "A VM load balancer sends traffic to node ports, but spec.allocateLoadBalancerNodePorts is false. Set it "
            f"to true, or set annotation {names.WORKLOAD_TYPE} to cluster"
        )
    else:
        return None
    return EventMessage("Warning", names.Reason.SYNC_FAILED, text)


def normal_network(name: str) -> str:
    """Return a network as ``namespace/name``; a bare name is in ``default``, as in --management-network."""
    name = name.strip()
    return name if not name or "/" in name else f"default/{name}"


def network_devices(config_map: ConfigMap | None) -> Mapping[str, str]:
    """Return the mapping in the ConfigMap, networks in normal form; empty while it is absent or unreadable."""
    mapping = published_devices(config_map) or {}
    return {normal_network(network): device for network, device in mapping.items() if device}


def invalid(key: str, value: str, expected: str) -> EventMessage:
    """Return the note about a wrong annotation."""
    place = key if key.startswith("spec.") else f"Annotation {key}"
    return EventMessage(
        "Warning", names.Reason.INVALID_ANNOTATION, f"is {quoted(value)}; expected {expected}", place=place
    )


def _choice(service: Service, key: str, choices: tuple[str, ...], problems: list[EventMessage]) -> str | None:
    """Return the value of an annotation; empty if it is absent, None if it is invalid."""
    value = (service.metadata.annotation(key) or "").strip()
    if value in {"", *choices}:
        return value
    problems.append(invalid(key, value, " or ".join(choices)))
    return None


def _address(service: Service, problems: list[EventMessage], *, dhcp: bool, had_condition: bool) -> str:
    """Return the requested address. Any other value than one address is a mistake, except kube-vip's for DHCP."""
    for key, value in requested_addresses(service, had_condition=had_condition).items():
        if value.strip() in {"", names.DHCP_ADDRESS if dhcp else ""}:
            continue
        address = ipv4_text(value)
        if address and address != names.DHCP_ADDRESS:
            return address
        expected = f"one IPv4 address; for one from DHCP, set annotation {names.IPAM} to dhcp"
        problems.append(invalid(key, value, expected))
    return ""


def _health_check(service: Service, problems: list[EventMessage]) -> HealthCheck | None:
    """Return the health check that the annotations request, or None without a usable port.

    The port is the number of a Service port, the name of one, or a node port, in this order.
    """
    value = service.metadata.annotation(names.HEALTH_CHECK_PORT)
    if value is None:
        return None
    ports = [port for port in service.spec.ports if port.protocol == "TCP" and port.node_port]
    forms = {str(getattr(one, form)): one for form in ("node_port", "name", "port") for one in reversed(ports)}
    port = forms.get(value.strip())
    if port is None or not value.strip():
        available = ", ".join(f"{one.port} ({one.name})" if one.name else str(one.port) for one in ports) or "none"
        expected = (
            f"a TCP port of this Service: its number, its name or its node port; there are {available}. Nodes are not "
            "checked until then"
        )
        problems.append(invalid(names.HEALTH_CHECK_PORT, value, expected))
        return None
    numbers = {name: _number(service, *setting, problems) for name, setting in HEALTH_CHECK_NUMBERS.items()}
    return HealthCheck(port=port.node_port, **numbers)


def _number(service: Service, key: str, default: int, problems: list[EventMessage]) -> int:
    value = service.metadata.annotation(key)
    if value is None:
        return default
    digits = value.strip()
    # ``int`` reads other texts as well, and rejects a number of thousands of digits.
    if digits.isascii() and digits.isdecimal() and len(digits) <= 5 and 1 <= int(digits) <= 86400:
        return int(digits)
    problems.append(invalid(key, value, f"a whole number from 1 to 86400; {default} is used"))
    return default


@lru_cache(maxsize=256)
def _likened(key: str) -> str:
    """Return an unknown annotation with the known one that it is most like."""
    # The common prefix would make any two keys look alike.
    known = sorted(name.removeprefix(names.PREFIX) for name in names.SERVICE_ANNOTATIONS)
    nearest = difflib.get_close_matches(key.removeprefix(names.PREFIX).lower(), known, 1, 0.7)
    return f"{key} (did you mean {names.PREFIX}{nearest[0]}?)" if nearest else key


def ignored_settings(
    service: Service, request: Request, *, vm: bool, primary: Service | None = None
) -> EventMessage | None:
    """Return one Warning about all settings of the Service that have no effect, each with the reason, or None.

    ``vm``: whether Harvester announces the address; ``primary``: the Service whose address this one shares.
    """
    spec, policy = service.spec, service.spec.ip_family_policy
    families = f"ipFamilyPolicy {policy}" if policy in {"RequireDualStack", "PreferDualStack"} else "ipFamilies"
    lacking = [port for port in spec.ports if not port.node_port and spec.allocate_load_balancer_node_ports is False]
    ports = ", ".join(f"{port.port}/{port.protocol}" for port in lacking)
    ranges, is_sticky = spec.load_balancer_source_ranges, spec.session_affinity == "ClientIP"
    of_vm = {
        "spec.loadBalancerSourceRanges (Harvester forwards from everywhere; use a NetworkPolicy or firewall)": ranges,
        "spec.sessionAffinity ClientIP (the nodes see Harvester's hosts, not the clients)": is_sticky,
        "the client address of spec.externalTrafficPolicy Local (Harvester's hosts hide it; nodes without an endpoint "
        "only drop traffic)": spec.external_traffic_policy == "Local",
        f"ports {ports} (they have no node port; set spec.allocateLoadBalancerNodePorts to true)": ports,
    }
    settings = {
        **(_ignored_on_own(request, vm=vm) if primary is None else _ignored_on_secondary(service, request, primary)),
        f"IPv6 of spec.{families} (the load balancer has one IPv4 address)": "IPv6" in spec.ip_families,
        f"annotation {names.IP_POOL} (the address comes from DHCP)": request.ipam == "dhcp" and request.ip_pool,
        **(of_vm if vm else {}),
    }
    ignored = "; ".join(text for text, is_set in settings.items() if is_set)
    text = f"Without effect on this load balancer: {ignored}"
    return EventMessage("Warning", names.Reason.IGNORED, text) if ignored else None


def _ignored_on_own(request: Request, *, vm: bool) -> dict[str, object]:
    """Return the settings by their text, with a value that is true for those that have no effect."""
    checks = request.health_check_annotations
    needed = [] if vm else [f"annotation {names.WORKLOAD_TYPE} to vm"]
    needed += [] if names.HEALTH_CHECK_PORT in checks else [f"{names.HEALTH_CHECK_PORT} to the port to check"]
    why = f"health checks need a VM load balancer and a port; set {' and '.join(needed)}"
    network = "Harvester announces the address in the network of its hosts; one of another network cannot be reached"
    return {
        f"{', '.join(checks)} ({why})": checks and needed,
        f"annotation {names.NETWORK}, beyond the choice of a pool ({network})": vm and request.network,
    }


def _ignored_on_secondary(service: Service, request: Request, primary: Service) -> dict[str, object]:
    """Return the same for a Service that shares the address of ``primary``."""
    found, key = Announcement.of(service), primary.metadata.key
    of_primary = (names.IP_POOL, names.WORKLOAD_TYPE, names.PROJECT, names.POOL_NAMESPACE)
    keys = [one for one in of_primary if one in request.present] + request.health_check_annotations
    keys += [names.IPAM] if request.ipam is None else []
    requests = {"spec.loadBalancerIP": found.specified, f"annotation {names.REQUESTED_ADDRESS}": found.requested}
    differing = [setting for setting, wanted in requests.items() if wanted and wanted not in primary.addresses]
    return {
        f"{', '.join(keys)} (set on {key}, whose address is shared)": keys,
        f"{', '.join(differing)} (the address is that of {key})": differing,
    }


def local_policy(service: Service) -> EventMessage | None:
    """Return the Warning about externalTrafficPolicy Local on a Service that kube-vip announces, or None.

    The settings of kube-vip are not visible to this controller, so the Warning does not depend on them.
    """
    if service.spec.external_traffic_policy != "Local":
        return None
    text = (
        "externalTrafficPolicy is Local: only the node that announces the address gets traffic, and it drops the "
        "traffic if it runs no pod of the Service. Unless that is set already, have kube-vip elect a node with a pod "
        'for each Service: env svc_election "true", on all nodes (chart: kube-vip.env.svc_election, kube-vip.runOn '
        "all). Otherwise set externalTrafficPolicy to Cluster"
    )
    return EventMessage("Warning", names.Reason.LOCAL_POLICY, text)


def converted(request: Request, load_balancer: LoadBalancer) -> EventMessage | None:
    """Return the Event about a load balancer of Harvester before 1.2 that stays a VM load balancer."""
    spec = load_balancer.spec
    if spec.named_workload_type or request.workload_type or request.wants_vm:
        return None
    text = (
        f"Load balancer {load_balancer.metadata.name} was made for Harvester before 1.2 and stays a VM load balancer; "
        f"new Services get a cluster load balancer. Set annotation {names.WORKLOAD_TYPE} to vm to keep it without this "
        "notice, or to cluster to have it recreated: traffic stops for some seconds, and the address is kept if "
        "Harvester allows it"
    )
    return EventMessage("Normal", names.Reason.ADOPTED, text)


def refused_changes(request: Request, load_balancer: LoadBalancer) -> tuple[EventMessage, ...]:
    """Return the Warnings about settings that were changed after the load balancer was created.

    Network and pool follow while there is no address to lose. Load balancers made by providers before 0.2.7 do not say
    which network was asked for.
    """
    spec, noted = load_balancer.spec, load_balancer.metadata.annotation(names.LB_REQUESTED_NETWORK)
    settings = [(names.IPAM, request.ipam or spec.ipam, spec.ipam)]
    if load_balancer.allocated_ip:
        network = request.network if noted is None else normal_network(noted)
        # An administrator may have changed the pool of the specification since.
        pool = (load_balancer.allocated_pool or spec.ip_pool) if spec.ipam == "pool" else ""
        settings.append((names.NETWORK, request.network, network))
        settings.append((names.IP_POOL, request.ip_pool or pool, pool or request.ip_pool))
    notes = []
    for key, wanted, present in settings:
        if wanted == present:
            continue
        wish = f"is {wanted!r}" if wanted and key in request.present else "was removed"
        made_with = f"with {present!r}" if present else "without one"
        remedy = "Set the annotation back" if present else "Remove the annotation"
        text = (
            f"Annotation {key} {wish}, but the load balancer was created {made_with} and keeps it so, because a change "
            f"would cost the address. {remedy}, or delete the Service and create it again"
        )
        notes.append(EventMessage("Warning", names.Reason.IMMUTABLE, text))
    return tuple(notes)
