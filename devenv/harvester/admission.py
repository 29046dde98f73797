"""Mutations and rejections of LoadBalancers by Harvester's webhook, with the rules of a version. Pure.

Functions take documents and raise ``Refusal`` with the text of the real webhook. The mutator runs first; if it was
skipped, the validator gets the object without its defaults.
"""

import copy
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from devenv.harvester.endpoints import Selector, backend_port_of, matches, selector_problem
from devenv.harvester.versions import ClientAnnotations, RemovalCheck, Version
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


def mutate(balancer: Document, around: Surroundings, version: Version) -> Document:
    """Return the load balancer after the mutator. Raises Refusal."""
    changed = copy.deepcopy(balancer)
    spec = changed.setdefault("spec", {})
    check = spec.get("healthCheck")
    if check:
        _check_thresholds(check)
        if version.checks_specification:
            _fill_thresholds(check)
    metadata = changed["metadata"]
    annotations = dict(metadata.get("annotations") or {})
    annotations[f"{PREFIX}/namespace"] = metadata["namespace"]
    if _is_overwritten(balancer, version):
        annotations[f"{PREFIX}/project"] = _project(metadata["namespace"], around.namespace)
        annotations[NETWORK] = find_network(annotations, around.instances, version) if is_cluster(balancer) else ""
    metadata["annotations"] = annotations
    return changed


def _is_overwritten(balancer: Document, version: Version) -> bool:
    """Whether network and project of a load balancer are written by the webhook."""
    if is_cluster(balancer):
        return True
    match version.vm_annotations:
        case ClientAnnotations.OVERWRITTEN:
            return True
        case ClientAnnotations.OVERWRITTEN_WITHOUT_TYPE:
            return not balancer["spec"].get("workloadType")
        case ClientAnnotations.KEPT:
            return False


def _check_thresholds(check: Mapping[str, Any]) -> None:
    """Raise Refusal if a threshold cannot be read."""
    for key in DEFAULT_THRESHOLDS:
        value = check.get(key) or 0
        if value < 0:
            raise Refusal(
                f"json: cannot unmarshal number {value} into Go struct field "
                f"HealthCheck.spec.healthCheck.{key} of type uint"
            )


def _fill_thresholds(check: dict[str, Any]) -> None:
    for key, default in DEFAULT_THRESHOLDS.items():
        if not check.get(key) and check.get("port"):
            check[key] = default


def _project(name: str, namespace: Document | None) -> str:
    if namespace is None:
        raise Refusal(f'get namespace {name} failed, error: namespace "{name}" not found')
    return annotations_of(namespace).get(PROJECT_ANNOTATION, "").replace(":", "/", 1)


def find_network(annotations: Mapping[str, str], instances: Sequence[Document], version: Version) -> str:
    """Return the network of a cluster load balancer; empty if there is no source for it.

    The sources are the client's annotation, the management network, and the first network of a VM of the cluster,
    identified by its label. The last one, and before Harvester 1.9 the only one, is the first network of a VM of the
    node driver whose name begins with that of the cluster. Which VM is the first is arbitrary.
    """
    cluster = annotations.get(CLUSTER)
    named = [
        instance
        for instance in instances
        if labels_of(instance).get(CREATOR_LABEL) == NODE_DRIVER
        and instance["metadata"]["name"].startswith(cluster or "")
    ]
    if not version.respects_network:
        return _first_network(named) if cluster else ""
    for key in (NETWORK, MANAGEMENT_NETWORK):
        if annotations.get(key):
            return annotations[key]
    if not cluster:
        return ""
    labelled = [i for i in instances if labels_of(i).get(GUEST_CLUSTER_LABEL) == cluster]
    return _first_network(labelled) or _first_network(named)


def _first_network(instances: Sequence[Document]) -> str:
    for instance in instances:
        for network in instance.get("spec", {}).get("networks") or ():
            name = (network.get("multus") or {}).get("networkName")
            if name:
                return str(name)
    return ""


def validate_create(balancer: Document, around: Surroundings, version: Version) -> None:
    """Raise Refusal if a new load balancer is invalid."""
    prefix = f"create loadbalancer {key_of(balancer)} failed"
    _check_parts(balancer, around, prefix, version)
    problem = _removal_problem(balancer, around.machines, version)
    if problem:
        raise Refusal(f"{prefix} with guest cluster check: {problem}")


def validate_update(balancer: Document, before: Document, around: Surroundings, version: Version) -> None:
    """Raise Refusal if a change is invalid."""
    prefix = f"update loadbalancer {key_of(balancer)} failed"
    _check_parts(balancer, around, prefix, version)
    if not version.checks_specification:
        return
    for key, name, default in (("ipam", "IPAM", "pool"), ("workloadType", "WorkloadType", "vm")):
        old, new = before["spec"].get(key) or "", balancer["spec"].get(key) or ""
        if (old or default) != (new or default):
            raise Refusal(f"{prefix}: can't change the {name} from {old} to {new}")


def _check_parts(balancer: Document, around: Surroundings, prefix: str, version: Version) -> None:
    listeners = balancer["spec"].get("listeners") or []
    if version.needs_instance:
        problem = duplicate_problem(listeners, version) or _instance_problem(balancer, around.instances)
        if problem:
            raise Refusal(f"{prefix}: {problem}")
    if is_cluster(balancer) or not version.checks_specification:
        return
    problem = listener_problem(listeners, version)
    if problem:
        raise Refusal(f"{prefix}: {problem}")
    problem = health_check_problem(balancer["spec"].get("healthCheck") or {}, listeners)
    if problem:
        raise Refusal(f"{prefix} with healthyCheck: {problem}")


def _instance_problem(balancer: Document, instances: Sequence[Document]) -> str | None:
    """Return the problem of a load balancer without a VM that runs; no selector matches every VM here."""
    selector: Selector = balancer["spec"].get("backendServerSelector") or {}
    problem = selector_problem(selector)
    if problem:
        return problem
    if not selector and instances:
        return None
    if any(matches(selector, instance) for instance in instances):
        return None
    return "no virtual machine instance matched"


def listener_problem(listeners: Sequence[Mapping[str, Any]], version: Version) -> str | None:
    """Return the problem of the listeners of a load balancer for VMs, or None."""
    if not listeners:
        return "the loadbalancer needs to have at least one listener"
    duplicate = duplicate_problem(listeners, version)
    if duplicate:
        return duplicate
    for listener in listeners:
        back = backend_port_of(listener)
        named = back if version.names_backend_port else listener["port"]
        problem = _port_problem("port", listener["port"], listener["port"])
        problem = problem or _port_problem("backend port", back, named)
        if problem:
            return problem
    return None


def duplicate_problem(listeners: Sequence[Mapping[str, Any]], version: Version) -> str | None:
    """Return what two listeners have in common and must not, or None."""
    names: set[str] = set()
    fronts: dict[str, str] = {}
    backs: dict[str, str] = {}
    for listener in listeners:
        name = listener.get("name") or ""
        protocol = f"{listener.get('protocol', '')}:" if version.listeners_by_protocol else ""
        front, back = f"{protocol}{listener['port']}", f"{protocol}{backend_port_of(listener)}"
        if name in names:
            return f"listener has duplicate name {name}"
        if front in fronts:
            return f"listener {name} has duplicate port {front} with listener {fronts[front]}"
        if back in backs:
            return f"listener {name} has duplicate backend port {back} with listener {backs[back]}"
        names.add(name)
        fronts[front] = backs[back] = name
    return None


def _port_problem(which: str, number: int, named: int) -> str | None:
    """Return the problem of a port; ``named`` is the number in the message."""
    if number > 65535:
        return f"listener {which} {named} must <= 65535"
    if number < 1:
        return f"listener {which} {named} must >= 1"
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


def _removal_problem(balancer: Document, machines: Sequence[Document], version: Version) -> str | None:
    """Return why the guest cluster of a new load balancer gets none, or None."""
    cluster = labels_of(balancer).get(CLUSTER_LABEL)
    if version.removal is RemovalCheck.NONE or not is_cluster(balancer) or cluster is None:
        return None
    of_cluster = [machine for machine in machines if _is_of_cluster(machine, cluster)]
    if version.removal is RemovalCheck.NEEDS_MACHINE:
        if not of_cluster:
            return "it has no running vm"
    elif cluster in {"", DEFAULT_CLUSTER}:
        return None
    for machine in of_cluster:
        if is_removed(machine):
            return version.words.removed.format(machine=key_of(machine), cluster=cluster)
    return None


def _is_of_cluster(machine: Document, cluster: str) -> bool:
    """Whether Rancher's node driver made a VM for a guest cluster, as the labels of the VM tell."""
    labels = labels_of(machine)
    return labels.get(CREATOR_LABEL) == NODE_DRIVER and labels.get(GUEST_CLUSTER_LABEL) == cluster


def is_removed(machine: Document) -> bool:
    """Whether a VM of a guest cluster says that Rancher removes the cluster."""
    labels = labels_of(machine)
    return (
        labels.get(CREATOR_LABEL) == NODE_DRIVER
        and GUEST_CLUSTER_LABEL in labels
        and annotations_of(machine).get(REMOVAL_ANNOTATION) == "true"
    )
