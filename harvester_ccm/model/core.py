"""Views of built-in types: Service, EndpointSlice, Node, ConfigMap.

Field names follow the Kubernetes API (https://kubernetes.io/docs/reference/kubernetes-api/).
"""

from ipaddress import IPv4Address, IPv4Network, IPv6Address
from typing import Final

import msgspec
from msgspec.structs import force_setattr, replace

from harvester_ccm.kube.errors import UNREADABLE
from harvester_ccm.kube.objects import Condition, Kept, Model, Object, Resource, decoder, reducing_decoder
from harvester_ccm.names import (
    FOREIGN_ANNOTATIONS,
    FOREIGN_LABEL,
    KUBE_VIP_ANNOTATIONS,
    LOAD_BALANCER_READY,
    NAD_MAPPING_KEY,
    NODE_KEYS,
    PRIMARY_SERVICE_LABEL,
    PROVIDER_NAME,
    SERVICE_ANNOTATIONS,
    SERVICE_FINALIZER,
)
from harvester_ccm.netip import address_in
from harvester_ccm.redaction import cut

_LOCAL_PROGRAMS: Final = IPv4Network("127.0.0.0/24")
"""Loopback addresses on which programs of a node listen, such as localhost and the resolver of systemd. The others
stand for a network where the demo and the tests have none."""
_BROADCAST: Final = IPv4Address("255.255.255.255")
_MAX_DEVICE: Final = 15
"""Maximum length of the name of a network device (Linux, IFNAMSIZ)."""
MAX_PORTS: Final = 3000
"""Ports that are kept of a Service. A cluster has 2,768 node ports by default."""
_MAX_DOCUMENT: Final = 16 * 1024
"""Characters that are kept of an annotation of a Node, which can be a list of several hundred addresses."""


class ServicePort(Model, frozen=True, kw_only=True):
    """Entry of a Service's ``spec.ports``; ``node_port`` is 0 until one is allocated. In a status, it has no name."""

    name: str = ""
    protocol: str = "TCP"
    port: int = 0
    node_port: int = 0


class ServiceSpec(Model, frozen=True, kw_only=True):
    """The parts of a Service's ``spec`` that decide about its load balancer."""

    type: str = "ClusterIP"
    ports: tuple[ServicePort, ...] = ()
    cluster_ips: tuple[str, ...] = msgspec.field(default=(), name="clusterIPs")
    external_ips: tuple[str, ...] = msgspec.field(default=(), name="externalIPs")
    load_balancer_class: str | None = None
    load_balancer_ip: str = msgspec.field(default="", name="loadBalancerIP")
    load_balancer_source_ranges: tuple[str, ...] = ()
    external_traffic_policy: str = ""
    session_affinity: str = ""
    ip_families: tuple[str, ...] = ()
    ip_family_policy: str = ""
    allocate_load_balancer_node_ports: bool | None = None


class Ingress(Model, frozen=True, kw_only=True):
    ip: str = ""
    hostname: str = ""
    ip_mode: str = ""
    ports: tuple[ServicePort, ...] = ()


class LoadBalancerStatus(Model, frozen=True, kw_only=True):
    ingress: tuple[Ingress, ...] = ()


class ServiceCondition(Condition, frozen=True, kw_only=True):
    reason: str = ""
    observed_generation: int = 0
    last_transition_time: str | None = None


class ServiceStatus(Model, frozen=True, kw_only=True):
    load_balancer: LoadBalancerStatus = LoadBalancerStatus()
    conditions: tuple[ServiceCondition, ...] = ()


class Service(Object, frozen=True, kw_only=True):
    spec: ServiceSpec = ServiceSpec()
    status: ServiceStatus = ServiceStatus()

    @property
    def addresses(self) -> tuple[str, ...]:
        """The addresses in the status, in order."""
        return tuple(entry.ip for entry in self.status.load_balancer.ingress if entry.ip)

    @property
    def has_finalizer(self) -> bool:
        """Whether the finalizer of this controller is on it; others have the same, and tenants can write it."""
        return self.metadata.has_finalizer(SERVICE_FINALIZER)

    @property
    def ready_condition(self) -> ServiceCondition | None:
        """The condition ``LoadBalancerReady``, which this controller sets; None while none exists."""
        for condition in self.status.conditions:
            if condition.type == LOAD_BALANCER_READY:
                return condition
        return None


class Taint(Model, frozen=True, kw_only=True):
    key: str = ""
    value: str = ""
    effect: str = ""
    time_added: str | None = None


class NodeSpec(Model, frozen=True, kw_only=True):
    provider_id: str = msgspec.field(default="", name="providerID")
    taints: tuple[Taint, ...] = ()
    pod_cidrs: tuple[str, ...] = msgspec.field(default=(), name="podCIDRs")


class NodeAddress(Model, frozen=True, kw_only=True):
    type: str = ""
    address: str = ""


class NodeSystemInfo(Model, frozen=True, kw_only=True):
    """The identity the kubelet read from its machine."""

    system_uuid: str = msgspec.field(default="", name="systemUUID")


class NodeStatus(Model, frozen=True, kw_only=True):
    addresses: tuple[NodeAddress, ...] = ()
    conditions: tuple[Condition, ...] = ()
    node_info: NodeSystemInfo = NodeSystemInfo()


class Node(Object, frozen=True, kw_only=True):
    spec: NodeSpec = NodeSpec()
    status: NodeStatus = NodeStatus()

    def has_address(self, kind: str, address: str) -> bool:
        """Return whether the Node has an address of this type, such as InternalIP or Hostname.

        The first one of each IP family counts: this controller publishes no more, and a kubelet can write any number.
        """
        first: dict[bool, str] = {}
        for entry in self.status.addresses:
            if entry.type == kind:
                first.setdefault(":" in entry.address, entry.address)
        return address in first.values()

    @property
    def internal_ips(self) -> tuple[str, ...]:
        """The InternalIPs in the status, in order; not all text there is an address."""
        return tuple(entry.address for entry in self.status.addresses if entry.type == "InternalIP")

    @property
    def ready(self) -> str:
        """Status of the Ready condition: ``True``, ``False`` or ``Unknown``; ``Unknown`` when none exists."""
        condition = self.ready_condition
        return condition.status if condition is not None else "Unknown"

    @property
    def ready_condition(self) -> Condition | None:
        """The Ready condition; None until the kubelet has reported."""
        for condition in self.status.conditions:
            if condition.type == "Ready":
                return condition
        return None


class ServiceCIDRSpec(Model, frozen=True, kw_only=True):
    cidrs: tuple[str, ...] = ()


class ServiceCIDR(Object, frozen=True, kw_only=True):
    """Ranges from which Services get their cluster IPs."""

    spec: ServiceCIDRSpec = ServiceCIDRSpec()


class ConfigMap(Object, frozen=True, kw_only=True):
    data: dict[str, str] | None = None


def published_devices(config_map: ConfigMap | None) -> dict[str, str] | None:
    """Return network name to device as the network mapping says; None when none exists or it is unreadable.

    Text that is no JSON object of strings is unreadable as a whole; no text at all is a mapping without entries.
    """
    if config_map is None:
        return None
    text = (config_map.data or {}).get(NAD_MAPPING_KEY)
    try:
        return msgspec.json.decode(text, type=dict[str, str]) if text else {}
    except UNREADABLE:
        return None


def is_device(name: str) -> bool:
    """Return whether a network device of a Linux host can have a name, which a guest agent reports.

    >>> is_device("enp1s0"), is_device("eth0:1"), is_device("a" * 16), is_device("")
    (True, False, False, False)
    """
    if not 1 <= len(name) <= _MAX_DEVICE or name in {".", ".."}:
        return False
    is_plain = name.isprintable() and not any(character.isspace() for character in name)
    return is_plain and "/" not in name and ":" not in name


class EndpointConditions(Model, frozen=True, kw_only=True):
    """``conditions`` of an endpoint; None: not known, which counts as true."""

    ready: bool | None = None
    serving: bool | None = None


class Endpoint(Model, frozen=True, kw_only=True):
    """One backend of a Service."""

    addresses: tuple[str, ...] | None = None
    conditions: EndpointConditions | None = None
    node_name: str | None = None

    @property
    def is_serving(self) -> bool:
        """Whether the endpoint takes traffic, also while it is terminating."""
        conditions = self.conditions or EndpointConditions()
        if conditions.serving is not None:
            return conditions.serving
        return conditions.ready is not False


class EndpointSlice(Object, frozen=True, kw_only=True):
    endpoints: tuple[Endpoint, ...] | None = None


def _is_noticed(key: str) -> bool:
    """Return whether the key of an annotation of a Service matters, although no value of it does.

    An unknown one of this controller, one behind another prefix of Harvester, or one of another controller.
    """
    return "harvester" in key or key.startswith(FOREIGN_ANNOTATIONS)


SERVICE_LABEL: Final = "kubernetes.io/service-name"
"""Label of an EndpointSlice: the Service whose endpoints it has."""
_OF_SERVICE: Final = Kept(
    frozenset({*SERVICE_ANNOTATIONS, *KUBE_VIP_ANNOTATIONS, PRIMARY_SERVICE_LABEL, FOREIGN_LABEL[0]}),
    _is_noticed,
    finalizers=frozenset({SERVICE_FINALIZER}),
)
_OF_NODE: Final = Kept(frozenset(NODE_KEYS), longest=_MAX_DOCUMENT)
_OF_SLICE: Final = Kept(frozenset({SERVICE_LABEL}))

_decode_service: Final = reducing_decoder(Service, _OF_SERVICE)
_decode_node: Final = reducing_decoder(Node, _OF_NODE)
_decode_slice: Final = reducing_decoder(EndpointSlice, _OF_SLICE)


def decode_service(source: bytes) -> Service:
    """Decode a Service with what is read of it. Raises msgspec.DecodeError.

    Only Services of type LoadBalancer have ports for their load balancer. A cluster has fewer node ports than are kept.
    """
    service = _decode_service(source)
    spec = service.spec
    ports = spec.ports[:MAX_PORTS] if spec.type == "LoadBalancer" else ()
    # The object is new, and nobody else has it yet.
    force_setattr(spec, "ports", ports)
    force_setattr(spec, "load_balancer_source_ranges", spec.load_balancer_source_ranges[:1])
    force_setattr(spec, "load_balancer_ip", cut(spec.load_balancer_ip))
    return service


def decode_node(source: bytes) -> Node:
    """Decode a Node with what is read of it. Raises msgspec.DecodeError."""
    node = _decode_node(source)
    ready = tuple(condition for condition in node.status.conditions if condition.type == "Ready")
    force_setattr(node.status, "conditions", ready)
    return node


def decode_endpoint_slice(source: bytes) -> EndpointSlice:
    """Decode an EndpointSlice with what is read of it: on which nodes addresses serve. Raises msgspec.DecodeError.

    What does not differ in that is kept once: thousands of endpoints are on some nodes.
    """
    endpoint_slice = _decode_slice(source)
    kept: dict[tuple[bool, bool, str | None], Endpoint] = {}
    for endpoint in endpoint_slice.endpoints or ():
        force_setattr(endpoint, "addresses", endpoint.addresses[:1] if endpoint.addresses else None)
        kept.setdefault((bool(endpoint.addresses), endpoint.is_serving, endpoint.node_name), endpoint)
    return replace(endpoint_slice, endpoints=tuple(kept.values()))


SERVICES: Final = Resource("", "v1", "services", "Service", decode_service)
NODES: Final = Resource("", "v1", "nodes", "Node", decode_node, namespaced=False)
SERVICE_CIDRS: Final = Resource(
    "networking.k8s.io", "v1", "servicecidrs", "ServiceCIDR", decoder(ServiceCIDR), namespaced=False
)
"""Served since Kubernetes 1.33."""
CONFIG_MAPS: Final = Resource("", "v1", "configmaps", "ConfigMap", decoder(ConfigMap))
ENDPOINT_SLICES: Final = Resource("discovery.k8s.io", "v1", "endpointslices", "EndpointSlice", decode_endpoint_slice)


def endpoint_slice_selector(service: Service) -> str:
    """Return the label selector of the EndpointSlices of a Service, in its namespace."""
    return f"{SERVICE_LABEL}={service.metadata.name}"


PROVIDER_SCHEME: Final = f"{PROVIDER_NAME}://"
"""Before the UID of the VM in a Node's provider ID. The form is stored on every Node and never changes."""


def is_of_other_provider(provider_id: str) -> bool:
    """Return whether a provider ID is another provider's, whatever it says; it never changes.

    >>> is_of_other_provider("k3s://w1"), is_of_other_provider("harvester://5f3c"), is_of_other_provider("")
    (True, False, False)
    """
    return bool(provider_id) and not provider_id.startswith(PROVIDER_SCHEME)


def parse_provider_id(provider_id: str) -> str | None:
    """Return the VM's UID, or None for an empty provider ID and for one of another provider.

    >>> parse_provider_id("harvester://5f3c")
    '5f3c'
    >>> parse_provider_id("k3s://w1") is None
    True
    """
    if not provider_id.startswith(PROVIDER_SCHEME):
        return None
    uid = provider_id.removeprefix(PROVIDER_SCHEME)
    return uid if uid and "/" not in uid else None


def special_use(address: str) -> str:
    """Return for what an address is reserved, so that no Service and no Node can have it; empty for any other text.

    >>> special_use("127.0.0.1"), special_use("10.0.0.7")
    ('a loopback address', '')
    """
    parsed = address_in(address)
    if parsed is None:
        return ""
    if parsed.is_unspecified:
        return "the unspecified address"
    if parsed in _LOCAL_PROGRAMS or parsed == IPv6Address("::1"):
        return "a loopback address"
    if parsed.is_link_local:
        return "a link-local address"
    if parsed.is_multicast:
        return "a multicast address"
    if parsed == _BROADCAST:
        return "the broadcast address"
    return ""


def ipv4_text(text: str) -> str:
    """Return the IPv4 address that a text is, or an empty one.

    >>> ipv4_text(" 10.0.0.7 "), ipv4_text("fd00::1")
    ('10.0.0.7', '')
    """
    try:
        return str(IPv4Address(text.strip()))
    except ValueError:
        return ""
