"""What a tenant, another cluster or a kubelet can write to stop a careless controller, for tests and benchmarks. Pure.

Each text is built from words that the controller or Harvester's messages contain, because a pattern fails slowly only
on text that almost matches it.
"""

from typing import Final

from devenv.harvester.admission import CLUSTER, CLUSTER_LABEL, NETWORK
from devenv.harvester.records import LOAD_BALANCERS
from devenv.watch import Document
from harvester_ccm.names import LB_OWNER, LB_SERVICE_NAME, LB_SERVICE_NAMESPACE

ANNOTATIONS_BYTES: Final = 256 * 1024
"""Limit of Kubernetes for all annotations of an object together."""
LONG_BYTES: Final = 240 * 1000
"""Almost all of it."""
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


def foreign_load_balancer(
    name: str, *, namespace: str, cluster: str, service: str, network: str, owner: str
) -> Document:
    """Return a load balancer of another guest cluster, whose administrator has written it by hand.

    ``network``: Harvester prints it into the condition if no IP pool matches. ``owner``: the UID of the cluster.
    """
    labels = {CLUSTER_LABEL: cluster, LB_SERVICE_NAMESPACE: "default", LB_SERVICE_NAME: service}
    annotations = {CLUSTER: cluster, NETWORK: network, LB_OWNER: owner}
    return {
        "apiVersion": LOAD_BALANCERS.api_version,
        "kind": LOAD_BALANCERS.kind,
        "metadata": {"name": name, "namespace": namespace, "labels": labels, "annotations": annotations},
        "spec": {"ipam": "pool", "workloadType": "cluster"},
    }
