"""Mutations and rejections of LoadBalancers by Harvester's webhook. Pure.

Functions take documents and raise ``Refusal`` with the text of the real webhook. The mutator runs first; if it was
skipped, the validator gets the object without its defaults.
"""

import copy
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from devenv.harvester.endpoints import backend_port_of
from devenv.watch import Document, annotations_of, key_of, labels_of

PREFIX: Final = "loadbalancer.harvesterhci.io"
NETWORK: Final = f"{PREFIX}/network"
CLUSTER: Final = f"{PREFIX}/cluster"
MANAGEMENT_NETWORK: Final = "cloudprovider.harvesterhci.io/managementNetwork"
CLUSTER_LABEL: Final = "cloudprovider.harvesterhci.io/cluster"
GUEST_CLUSTER_LABEL: Final = "guestcluster.harvesterhci.io/name"
CREATOR_LABEL: Final = "harvesterhci.io/creator"
NODE_DRIVER: Final = "docker-machine-driver-harvester"
REMOVAL_ANNOTATION: Final = "harvesterhci.io/removeAllPersistentVolumeClaims"
PROJECT_ANNOTATION: Final = "field.cattle.io/projectId"
DEFAULT_CLUSTER: Final = "kubernetes"
"""Default cluster name of providers, which does not identify a cluster."""

DEFAULT_THRESHOLDS: Final[Mapping[str, int]] = {
    "successThreshold": 2,
    "failureThreshold": 2,
    "periodSeconds": 1,
    "timeoutSeconds": 1,
}


class Refusal(Exception):
    """Raised if an object is rejected; the client gets the text after the webhook's name."""


@dataclass(frozen=True)
class Surroundings:
    """Other objects that the rules read."""

    namespace: Document | None = None
    instances: Sequence[Document] = ()
    """VMIs of the load balancer's namespace."""
    machines: Sequence[Document] = ()
    """VMs of the load balancer's namespace."""


def is_cluster(balancer: Document) -> bool:
    """Whether the load balancer is of type ``cluster``; an absent type means ``vm``."""
    return bool(balancer.get("spec", {}).get("workloadType") == "cluster")


def mutate(balancer: Document, around: Surroundings) -> Document:
    """Return the load balancer after the mutator. Raises Refusal."""
    changed = copy.deepcopy(balancer)
    spec = changed.setdefault("spec", {})
    check = spec.get("healthCheck")
    if check:
        _fill_thresholds(check)
    metadata = changed["metadata"]
    annotations = dict(metadata.get("annotations") or {})
    annotations[f"{PREFIX}/namespace"] = metadata["namespace"]
    if is_cluster(balancer):
        annotations[f"{PREFIX}/project"] = _project(metadata["namespace"], around.namespace)
        annotations[NETWORK] = find_network(annotations, around.instances)
    metadata["annotations"] = annotations
    return changed


def _fill_thresholds(check: dict[str, Any]) -> None:
    for key, default in DEFAULT_THRESHOLDS.items():
        value = check.get(key) or 0
        if value < 0:
            raise Refusal(
                f"json: cannot unmarshal number {value} into Go struct field "
                f"HealthCheck.spec.healthCheck.{key} of type uint"
            )
        if value == 0 and check.get("port"):
            check[key] = default


def _project(name: str, namespace: Document | None) -> str:
    if namespace is None:
        raise Refusal(f'get namespace {name} failed, error: namespace "{name}" not found')
    return annotations_of(namespace).get(PROJECT_ANNOTATION, "").replace(":", "/", 1)


def find_network(annotations: Mapping[str, str], instances: Sequence[Document]) -> str:
    """Return the network of a cluster load balancer; empty if there is no source for it.

    The sources are the client's annotation, the management network, and the first network of a VM of the cluster,
    identified by its label or, with older node drivers, by the prefix of its name.
    """
    for key in (NETWORK, MANAGEMENT_NETWORK):
        if annotations.get(key):
            return annotations[key]
    cluster = annotations.get(CLUSTER)
    if not cluster:
        return ""
    labelled = [i for i in instances if labels_of(i).get(GUEST_CLUSTER_LABEL) == cluster]
    named = [
        instance
        for instance in instances
        if labels_of(instance).get(CREATOR_LABEL) == NODE_DRIVER and instance["metadata"]["name"].startswith(cluster)
    ]
    return _first_network(labelled) or _first_network(named)


def _first_network(instances: Sequence[Document]) -> str:
    for instance in instances:
        for network in instance.get("spec", {}).get("networks") or ():
            name = (network.get("multus") or {}).get("networkName")
            if name:
                return str(name)
    return ""


def validate_create(balancer: Document, around: Surroundings) -> None:
    """Raise Refusal if a new load balancer is invalid."""
    prefix = f"create loadbalancer {key_of(balancer)} failed"
    _check_parts(balancer, prefix)
    machine = _removed_machine(balancer, around.machines)
    if machine:
        cluster = labels_of(balancer)[CLUSTER_LABEL]
        raise Refusal(
            f"{prefix} with guest cluster check: the vm {machine} shows guest cluster {cluster} is being removed"
        )


def validate_update(balancer: Document, before: Document) -> None:
    """Raise Refusal if a change is invalid."""
    prefix = f"update loadbalancer {key_of(balancer)} failed"
    _check_parts(balancer, prefix)
    for key, name, default in (("ipam", "IPAM", "pool"), ("workloadType", "WorkloadType", "vm")):
        old, new = before["spec"].get(key) or "", balancer["spec"].get(key) or ""
        if (old or default) != (new or default):
            raise Refusal(f"{prefix}: can't change the {name} from {old} to {new}")


def _check_parts(balancer: Document, prefix: str) -> None:
    if is_cluster(balancer):
        return
    listeners = balancer["spec"].get("listeners") or []
    problem = listener_problem(listeners)
    if problem:
        raise Refusal(f"{prefix}: {problem}")
    problem = health_check_problem(balancer["spec"].get("healthCheck") or {}, listeners)
    if problem:
        raise Refusal(f"{prefix} with healthyCheck: {problem}")


def listener_problem(listeners: Sequence[Mapping[str, Any]]) -> str | None:
    """Return the problem of the listeners, or None."""
    if not listeners:
        return "the loadbalancer needs to have at least one listener"
    names: set[str] = set()
    fronts: dict[str, str] = {}
    backs: dict[str, str] = {}
    for listener in listeners:
        name = listener.get("name") or ""
        front = f"{listener.get('protocol', '')}:{listener['port']}"
        back = f"{listener.get('protocol', '')}:{backend_port_of(listener)}"
        if name in names:
            return f"listener has duplicate name {name}"
        if front in fronts:
            return f"listener {name} has duplicate port {front} with listener {fronts[front]}"
        if back in backs:
            return f"listener {name} has duplicate backend port {back} with listener {backs[back]}"
        names.add(name)
        fronts[front] = backs[back] = name
    problems = (
        _port_problem("port", one["port"]) or _port_problem("backend port", backend_port_of(one)) for one in listeners
    )
    return next((problem for problem in problems if problem), None)


def _port_problem(which: str, number: int) -> str | None:
    if number > 65535:
        return f"listener {which} {number} must <= 65535"
    if number < 1:
        return f"listener {which} {number} must >= 1"
    return None


def health_check_problem(check: Mapping[str, Any], listeners: Sequence[Mapping[str, Any]]) -> str | None:
    """Return the problem of the health check, or None; port 0 means no health check."""
    port = check.get("port") or 0
    if port == 0:
        return None
    protocols = {listener.get("protocol") for listener in listeners if backend_port_of(listener) == port}
    if not protocols:
        return f"healthcheck port {port} is not in listener backend port list"
    if "TCP" not in protocols:
        return f"healthcheck port {port} can only be a TCP backend port"
    for key in DEFAULT_THRESHOLDS:
        if not check.get(key):
            return f"healthcheck {key[0].upper()}{key[1:]} should > 0"
    return None


def _removed_machine(balancer: Document, machines: Sequence[Document]) -> str | None:
    """Return a VM whose annotation states that its cluster is being removed, or None."""
    cluster = labels_of(balancer).get(CLUSTER_LABEL)
    if not is_cluster(balancer) or not cluster or cluster == DEFAULT_CLUSTER:
        return None
    for machine in machines:
        if is_removed(machine) and labels_of(machine)[GUEST_CLUSTER_LABEL] == cluster:
            return key_of(machine)
    return None


def is_removed(machine: Document) -> bool:
    """Whether a VM of a guest cluster says that Rancher removes the cluster."""
    labels = labels_of(machine)
    return (
        labels.get(CREATOR_LABEL) == NODE_DRIVER
        and GUEST_CLUSTER_LABEL in labels
        and annotations_of(machine).get(REMOVAL_ANNOTATION) == "true"
    )
