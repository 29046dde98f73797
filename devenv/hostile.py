"""What a tenant, another cluster or a kubelet can write to stop a careless controller, for tests and benchmarks. Pure.

Each text is built from words that the controller or Harvester's messages contain, because a pattern fails slowly only
on text that almost matches it.
"""

from collections.abc import Mapping
from typing import Final

from devenv.harvester.admission import CLUSTER, CLUSTER_LABEL
from devenv.harvester.admission import NETWORK as NETWORK_OF_POOL
from devenv.harvester.records import LOAD_BALANCERS
from devenv.watch import Document
from harvester_ccm.names import (
    ADDITIONAL_INTERNAL_IPS,
    IP_POOL,
    KUBE_VIP_ADDRESSES,
    LB_OWNER,
    LB_SERVICE_NAME,
    LB_SERVICE_NAMESPACE,
    NETWORK,
    PRIMARY_SERVICE,
    PROVIDED_NODE_IP,
)

LONG_BYTES: Final = 240 * 1000
"""A little less than the 256 KiB that Kubernetes allows for all annotations of an object together."""
NETWORK_BYTES: Final = (2_700, 4_300, 11_000)
"""Sizes of the annotation ``network``. A pattern with four repetitions needs 20 s, 2 minutes and hours for them."""
SHOWN_BYTES: Final = 5000
"""More than any message, condition or log field may show of such a text."""

_FIELDS: Final = " Project: Namespace: Cluster:"
"""Between the fields of the requirement that Harvester prints if no IP pool matches."""
_TOKEN: Final = "token:"  # noqa: S105 - the word before a credential, without one


def broken_fields(size: int) -> str:
    """Return a network with the fields of Harvester's requirement, over and over, and a line end.

    Harvester prints the network as it is, with ``%+v`` of Go, so that its message contains these fields as well.
    """
    return f"a{_FIELDS * (size // len(_FIELDS))}\na"


def tokens(size: int, *, after: str = "") -> str:
    """Return a text that looks like a credential at each of its words; ``after`` is its beginning."""
    return after + _TOKEN * ((size - len(after)) // len(_TOKEN))


def is_shown(text: str) -> bool:
    """Return whether a text of the controller repeats more of a hostile text than it may."""
    return tokens(SHOWN_BYTES) in text or _FIELDS * (SHOWN_BYTES // len(_FIELDS)) in text


NEW_SERVICES: Final[Mapping[str, Mapping[str, str]]] = {
    **{f"network-{size}": {NETWORK: broken_fields(size)} for size in NETWORK_BYTES},
    "primary-service": {PRIMARY_SERVICE: tokens(LONG_BYTES, after="a/")},
    "ip-pool": {IP_POOL: tokens(LONG_BYTES)},
}
"""Annotations of new Services of a tenant, by name."""
SERVED_SERVICES: Final[Mapping[str, Mapping[str, str]]] = {
    "served-addresses": {KUBE_VIP_ADDRESSES: tokens(LONG_BYTES)},
    "served-ip-pool": {IP_POOL: tokens(LONG_BYTES)},
    "served-network": {NETWORK: tokens(LONG_BYTES)},
}
"""Annotations that a tenant adds to Services with an address."""
NODE_ANNOTATIONS: Final = dict.fromkeys((PROVIDED_NODE_IP, ADDITIONAL_INTERNAL_IPS), tokens(LONG_BYTES // 2))
"""Annotations that a kubelet writes on its Node."""
ONE_CLUSTER: Final[Document] = {"scope": [{"project": "*", "namespace": "*", "guestCluster": "demo"}]}
"""Selector of a pool that is not for everybody: no pool has a network that does not exist."""


def foreign_load_balancer(
    name: str, *, namespace: str, cluster: str, service: str, network: str, owner: str
) -> Document:
    """Return a load balancer of another guest cluster, whose administrator has written it by hand.

    ``network``: Harvester prints it into the condition if no IP pool matches. ``owner``: the UID of the cluster.
    """
    labels = {CLUSTER_LABEL: cluster, LB_SERVICE_NAMESPACE: "default", LB_SERVICE_NAME: service}
    annotations = {CLUSTER: cluster, NETWORK_OF_POOL: network, LB_OWNER: owner}
    return {
        "apiVersion": LOAD_BALANCERS.api_version,
        "kind": LOAD_BALANCERS.kind,
        "metadata": {"name": name, "namespace": namespace, "labels": labels, "annotations": annotations},
        "spec": {"ipam": "pool", "workloadType": "cluster"},
    }
