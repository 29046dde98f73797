"""The name of the guest cluster, for commands outside the pod of the controller that were started without it.

Under a wrong name, every load balancer of the cluster would look like that of another one. The load balancers with the
UID of this cluster show the name that the controller uses.
"""

from collections.abc import Iterable
from typing import Final

from msgspec import Struct

from harvester_ccm.kube.documents import Page
from harvester_ccm.kube.errors import KubeError
from harvester_ccm.model.event import abbreviate, quoted
from harvester_ccm.model.harvester import LoadBalancer
from harvester_ccm.names import LB_CLUSTER, LB_OWNER

WHERE_TO_FIND: Final = (
    "The controller has it in its flags: kubectl -n kube-system get deployments,daemonsets -o yaml | grep cluster-name"
)


class ClusterName(Struct, frozen=True):
    """A cluster name that was not given, or why it is not known."""

    name: str = ""
    """Empty if it is not known."""
    problem: str = ""
    """Why it is not known, and the flag to add."""


def inferred_name(uid: str, load_balancers: Page[LoadBalancer] | KubeError) -> ClusterName:
    """Return the one cluster name on the load balancers with the UID of this cluster; ``uid`` is empty if unknown."""
    if isinstance(load_balancers, KubeError):
        return _unknown(f"the load balancers in Harvester, which show it, cannot be read: {load_balancers}")
    if not uid:
        return _unknown(
            "the UID of this cluster (namespace kube-system), by which its load balancers are found, cannot be read"
        )
    found = sorted(_names_on(load_balancers.items, uid))
    if not found:
        return _unknown("no load balancer in Harvester has the UID of this cluster, which would show it")
    if len(found) > 1:
        return _unknown(
            f"the load balancers of this cluster have several: {abbreviate(list(map(quoted, found)))}. If the cluster "
            "was renamed, add --former-cluster-names, too; otherwise correct the label "
            f"{LB_CLUSTER} that was changed in Harvester"
        )
    return ClusterName(found[0])


def _names_on(load_balancers: Iterable[LoadBalancer], uid: str) -> set[str]:
    names: set[str] = set()
    for load_balancer in load_balancers:
        label = load_balancer.metadata.label(LB_CLUSTER)
        if label and load_balancer.metadata.annotation(LB_OWNER) == uid:
            names.add(label)
    return names


def _unknown(reason: str) -> ClusterName:
    return ClusterName(problem=f"add --cluster-name=NAME, the name of this cluster: {reason}. {WHERE_TO_FIND}")
