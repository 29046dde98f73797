"""The request of a Service: its annotations and fields, read once, and what is wrong with them.

A wrong value never blocks what does not depend on it: it becomes a Warning, and the default applies. Only a wrong
``ipam`` keeps a Service from getting an address, because another source would give it an address that it must not have.
"""

import difflib
from collections.abc import Mapping, Sequence
from enum import StrEnum
from functools import lru_cache
from typing import Final

from msgspec import Struct

from harvester_ccm import names
from harvester_ccm.model.core import ConfigMap, Service, ServicePort, ipv4_text, is_device, published_devices
from harvester_ccm.model.event import NAMED, EventMessage, abbreviate, quoted
from harvester_ccm.names import Reason
from harvester_ccm.plan.service.announcing.seen import ADDRESS_ANNOTATION, Seen, read_seen


class Ipam(StrEnum):
    """Where the address comes from."""

    POOL = "pool"
    DHCP = "dhcp"
    INVALID = "invalid"
    """The annotation has another value: nothing can be created."""


class WorkloadType(StrEnum):
    """Who announces the address."""

    CLUSTER = "cluster"
    VM = "vm"
    ANY = ""
    """The annotation is absent or invalid: an existing load balancer keeps its type."""


class HealthCheckSetting(Struct, frozen=True):
    """A number of the health check."""

    field: str
    """Field of Harvester's ``spec.healthCheck``."""
    annotation: str
    default: int


HEALTH_CHECK_SETTINGS: Final = (
    HealthCheckSetting("successThreshold", names.HEALTH_CHECK_SUCCESS_THRESHOLD, 1),
    HealthCheckSetting("failureThreshold", names.HEALTH_CHECK_FAILURE_THRESHOLD, 3),
    HealthCheckSetting("periodSeconds", names.HEALTH_CHECK_PERIOD, 5),
    HealthCheckSetting("timeoutSeconds", names.HEALTH_CHECK_TIMEOUT, 3),
)
ADDRESS_FIELD: Final = "spec.loadBalancerIP"
_MAX_SECONDS: Final = 86_400


class Request(Struct, frozen=True):
    """The request of a Service."""

    ipam: Ipam
    workload_type: WorkloadType
    network: str
    """``namespace/name``; empty for none."""
    network_as_written: str
    """The value of the annotation, which is copied to the load balancer."""
    ip_pool: str
    project: str
    pool_namespace: str
    description: str
    address: str
    """The requested IPv4 address; empty if any will do."""
    address_setting: str
    """The field or annotation with this address; empty without one."""
    primary: str
    """The Service whose address is to be shared, as written; empty if this one has its own."""
    health_check: Mapping[str, int]
    """Harvester's ``spec.healthCheck``; empty without a usable port."""
    present: frozenset[str]
    """Keys of all annotations with the prefix of this controller, whatever their values."""
    misplaced: frozenset[str]
    """Keys of annotations with another prefix of Harvester and the name of one of this controller."""
    problems: tuple[EventMessage, ...]
    """Warnings about wrong values."""

    @property
    def wants_vm(self) -> bool:
        """Whether a new load balancer is one for VMs, by its name or because only such ones have health checks."""
        if self.workload_type is WorkloadType.ANY:
            return names.HEALTH_CHECK_PORT in self.present
        return self.workload_type is WorkloadType.VM

    @property
    def health_check_annotations(self) -> list[str]:
        """The annotations of health checks that are present, whether they are valid or not."""
        keys = [names.HEALTH_CHECK_PORT, *(setting.annotation for setting in HEALTH_CHECK_SETTINGS)]
        return [key for key in keys if key in self.present]

    @property
    def unknown_annotations(self) -> EventMessage | None:
        """The Warning about annotations that mean nothing, each with the nearest known one."""
        unknown = sorted((self.present | self.misplaced).difference(names.SERVICE_ANNOTATIONS))
        if not unknown:
            return None
        # There may be thousands, and each comparison with the known ones takes time.
        named = [_with_suggestion(key) for key in unknown[:NAMED]]
        cause = f"Unknown annotations have no effect: {abbreviate([*named, *unknown[NAMED:]])}"
        return EventMessage("Warning", Reason.IGNORED, cause)


def read_request(service: Service, seen: Seen) -> Request:
    """Return the request of the Service. ``seen`` is what kube-vip reads on it."""
    problems: list[EventMessage] = []
    annotation = service.metadata.annotation
    ipam = _choice(service, names.IPAM, ("pool", "dhcp"), problems)
    workload_type = _choice(service, names.WORKLOAD_TYPE, ("cluster", "vm"), problems)
    health_check = _health_check(service, problems)
    addresses = requested_addresses(service, seen)
    setting, address = _requested_address(addresses, problems, is_dhcp=ipam == "dhcp")
    return Request(
        ipam=_ipam(ipam),
        workload_type=WorkloadType(workload_type or ""),
        network=requested_network(service),
        network_as_written=annotation(names.NETWORK) or "",
        ip_pool=(annotation(names.IP_POOL) or "").strip(),
        project=annotation(names.PROJECT) or "",
        pool_namespace=annotation(names.POOL_NAMESPACE) or "",
        description=annotation(names.DESCRIPTION) or "",
        address=address,
        address_setting=setting,
        primary=primary_reference(service),
        health_check=health_check,
        present=frozenset(key for key in service.metadata.annotations or () if key.startswith(names.PREFIX)),
        misplaced=frozenset(key for key in service.metadata.annotations or () if _is_misplaced(key)),
        problems=tuple(problems),
    )


_NAMES: Final = frozenset(key.removeprefix(names.PREFIX) for key in names.SERVICE_ANNOTATIONS)


def _is_misplaced(key: str) -> bool:
    """Return whether a key has the name of an annotation of this controller behind another prefix of Harvester.

    >>> _is_misplaced("harvesterhci.io/ip-pool"), _is_misplaced("example.com/ip-pool")
    (True, False)
    """
    prefix, _, name = key.rpartition("/")
    return name in _NAMES and "harvester" in prefix and f"{prefix}/" != names.PREFIX


def requested_network(service: Service) -> str:
    """Return the network that the Service requests, in normal form; empty for none."""
    return normal_network(service.metadata.annotation(names.NETWORK) or "")


def primary_reference(service: Service) -> str:
    """Return the ``namespace/name`` of the Service whose address is to be shared; empty if this one has its own.

    A malformed reference is returned as it is.
    """
    return (service.metadata.annotation(names.PRIMARY_SERVICE) or "").strip()


def normal_network(name: str) -> str:
    """Return a network as ``namespace/name``; a bare name is in ``default``, as in --management-network."""
    name = name.strip()
    return name if not name or "/" in name else f"default/{name}"


def is_in_network(requested: str | None, offered: str | None) -> bool:
    """Return whether an address of one network is in the requested one, or none is requested; both as annotated."""
    return normal_network(requested or "") in {"", normal_network(offered or "")}


def network_devices(config_map: ConfigMap | None) -> Mapping[str, str]:
    """Return the mapping in the ConfigMap, networks in normal form; empty while it is absent or unreadable."""
    mapping = published_devices(config_map) or {}
    return {normal_network(network): device for network, device in mapping.items() if is_device(device)}


def invalid_value(setting: str, value: str, expected: str) -> EventMessage:
    """Return the Warning about an annotation or a field with a wrong value."""
    place = setting if setting.startswith("spec.") else f"Annotation {setting}"
    return EventMessage("Warning", Reason.INVALID_ANNOTATION, f"is {quoted(value)}; expected {expected}", place=place)


def _choice(service: Service, key: str, choices: tuple[str, ...], problems: list[EventMessage]) -> str | None:
    """Return the value of an annotation; empty if it is absent, None if it is invalid."""
    value = (service.metadata.annotation(key) or "").strip()
    if value in {"", *choices}:
        return value
    problems.append(invalid_value(key, value, " or ".join(choices)))
    return None


def requested_addresses(service: Service, seen: Seen) -> dict[str, str]:
    """Return the addresses that the Service requests, by the field or annotation, in order of precedence.

    kube-vip's annotation is the user's on a new Service alone: this controller, or another provider, has written it on
    any other one and on a copy of that, which has the finalizer or a record.
    """
    annotation = service.metadata.annotation
    is_handled = service.has_finalizer or annotation(names.ANNOUNCED_AS) is not None
    annotated_by_user = "" if is_handled else seen.address_annotation or ""
    return {
        ADDRESS_FIELD: seen.specified,
        names.REQUESTED_ADDRESS: kept_address(service),
        ADDRESS_ANNOTATION: annotated_by_user,
    }


def kept_address(service: Service) -> str:
    """Return the address in the annotation for the requested one; empty on a copy of the Service that it is for.

    This controller writes the UID of the Service after the address, a user writes the address alone.
    """
    address, _, uid = (service.metadata.annotation(names.REQUESTED_ADDRESS) or "").strip().partition(" ")
    return address if uid in {"", service.metadata.uid} else ""


def requests_address(service: Service) -> bool:
    """Return whether the Service requests a certain address."""
    return any(requested_addresses(service, read_seen(service)).values())


def _requested_address(addresses: Mapping[str, str], problems: list[EventMessage], *, is_dhcp: bool) -> tuple[str, str]:
    """Return the setting that requests an address, and the address; both are empty without a request.

    Any other value than one address is a mistake, except kube-vip's for DHCP.
    """
    for setting, value in addresses.items():
        if value.strip() == "" or (is_dhcp and value.strip() == names.DHCP_ADDRESS):
            continue
        address = ipv4_text(value)
        if address and address != names.DHCP_ADDRESS:
            return setting, address
        expected = f"one IPv4 address; for one from DHCP, set annotation {names.IPAM} to dhcp"
        problems.append(invalid_value(setting, value, expected))
    return "", ""


def _ipam(choice: str | None) -> Ipam:
    """Return the IPAM of a valid value, of none (empty), or of an invalid one (None)."""
    if choice is None:
        return Ipam.INVALID
    return Ipam(choice or "pool")


def _named_port(port: ServicePort) -> str:
    if port.name:
        return f"{port.port} ({port.name})"
    return str(port.port)


def _health_check(service: Service, problems: list[EventMessage]) -> Mapping[str, int]:
    """Return the health check that the annotations request; empty without a usable port."""
    value = service.metadata.annotation(names.HEALTH_CHECK_PORT)
    if value is None:
        return {}
    ports = [port for port in service.spec.ports if port.protocol == "TCP" and port.node_port]
    port = _checked_port(value.strip(), ports)
    if port is None:
        problems.append(_no_checked_port(service, value, ports))
        return {}
    numbers = {setting.field: _number(service, setting, problems) for setting in HEALTH_CHECK_SETTINGS}
    return {"port": port.node_port, **numbers}


def _no_checked_port(service: Service, value: str, ports: Sequence[ServicePort]) -> EventMessage:
    """Return the Warning about a health check of a port that is not among ``ports``, which can be checked."""
    if ports:
        available = abbreviate([_named_port(port) for port in ports])
        expected = (
            f"a TCP port of this Service: its number, its name or its node port; there are {available}. Nodes are not "
            "checked until then"
        )
        return invalid_value(names.HEALTH_CHECK_PORT, value, expected)
    lack = "this Service has no TCP port"
    remedy = "Remove the annotation, or add a TCP port"
    if any(port.protocol == "TCP" for port in service.spec.ports):
        lack = "no TCP port of this Service has a node port"
        remedy = "Remove the annotation, or set spec.allocateLoadBalancerNodePorts to true"
    return EventMessage(
        "Warning",
        Reason.INVALID_ANNOTATION,
        f"is {quoted(value)}, but {lack}, so Nodes are not checked",
        remedy,
        place=f"Annotation {names.HEALTH_CHECK_PORT}",
    )


def _checked_port(value: str, ports: list[ServicePort]) -> ServicePort | None:
    """Return the port with this number, with this name, or with this node port, in this order."""
    if not value:
        return None
    for form in ("port", "name", "node_port"):
        for port in ports:
            if str(getattr(port, form)) == value:
                return port
    return None


def _number(service: Service, setting: HealthCheckSetting, problems: list[EventMessage]) -> int:
    value = service.metadata.annotation(setting.annotation)
    if value is None:
        return setting.default
    digits = value.strip()
    # ``int`` also reads other texts, and rejects numbers with thousands of digits.
    is_number = digits.isascii() and digits.isdecimal() and len(digits) <= 5
    if is_number and 1 <= int(digits) <= _MAX_SECONDS:
        return int(digits)
    expected = f"a whole number from 1 to {_MAX_SECONDS}; {setting.default} is used"
    problems.append(invalid_value(setting.annotation, value, expected))
    return setting.default


@lru_cache(maxsize=256)
def _with_suggestion(key: str) -> str:
    """Return an unknown annotation with the known one that it is most like."""
    # The common prefix would make any two keys look alike.
    known = sorted(name.removeprefix(names.PREFIX) for name in names.SERVICE_ANNOTATIONS)
    nearest = difflib.get_close_matches(key.rpartition("/")[2].lower(), known, 1, 0.7)
    return f"{key} (did you mean {names.PREFIX}{nearest[0]}?)" if nearest else key
