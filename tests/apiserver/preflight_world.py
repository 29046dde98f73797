"""Two clusters with VMs and Nodes for ``preflight``, and accounts whose permissions a test chooses."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Final

import yaml

from devenv.apiserver import ControlPlane
from devenv.harvester.machines import Machine, instance_document, machine_document
from devenv.kubelets import UNINITIALIZED
from devenv.restclient import Json, RestClient, wait_until
from harvester_ccm.commands.clusters import GUEST, HARVESTER
from harvester_ccm.commands.permissions import Permission, permissions_of
from harvester_ccm.flags import build_settings, parse_command_line
from tests.conftest import bind

ACCOUNT: Final = "harvester-cloud-provider"
LIMITED: Final = "preflight-limited"
"""Account that has the permissions of ``grant``."""
VM_NAMESPACE: Final = "prod"
CLUSTER_NAME: Final = "demo"
_RBAC: Final = "rbac.authorization.k8s.io"
_AGENTS: Final = "v1.subresources.kubevirt.io"
_NODES: Final = "/api/v1/nodes"

SETTINGS: Final = build_settings(
    parse_command_line(["--cloud-config=cloud-config", f"--cluster-name={CLUSTER_NAME}"]), {}
)
PERMISSIONS: Final = [(cluster, one) for cluster in (HARVESTER, GUEST) for one in permissions_of(cluster, SETTINGS)]
"""Every permission that the controller uses, with its cluster."""


@dataclass
class PreflightWorld:
    """Both clusters, and the kubeconfigs of both accounts by cluster."""

    planes: dict[str, ControlPlane]
    product: dict[str, Path]
    limited: dict[str, Path]

    @property
    def cloud_config(self) -> Path:
        return self.product[HARVESTER]

    def grant(self, cluster: str, permissions: Sequence[Permission]) -> None:
        """Grant exactly these permissions to the limited account, and wait until the API server applies them."""
        rules = [_rule(one) for one in permissions]
        in_one = cluster == HARVESTER
        kind = "Role" if in_one else "ClusterRole"
        meta: Json = {"name": LIMITED, **({"namespace": VM_NAMESPACE} if in_one else {})}
        role = {"apiVersion": f"{_RBAC}/v1", "kind": kind, "metadata": meta, "rules": rules}
        binding = {
            "apiVersion": f"{_RBAC}/v1",
            "kind": f"{kind}Binding",
            "metadata": meta,
            "roleRef": {"apiGroup": _RBAC, "kind": kind, "name": LIMITED},
            "subjects": [{"kind": "ServiceAccount", "name": LIMITED, "namespace": _home(cluster)}],
        }
        self.planes[cluster].apply(role, binding)
        client = RestClient(self.limited[cluster])
        wait_until(partial(_has_rules, client, cluster, rules), seconds=30, what=f"permissions in {cluster}")

    def leave(self) -> None:
        """Delete what other tests would see."""
        guest, harvester = self.planes[GUEST].admin, self.planes[HARVESTER].admin
        guest.request("DELETE", _NODES)
        harvester.request("DELETE", f"/apis/apiregistration.k8s.io/v1/apiservices/{_AGENTS}")
        for plural in ("virtualmachines", "virtualmachineinstances"):
            harvester.request("DELETE", f"/apis/kubevirt.io/v1/namespaces/{VM_NAMESPACE}/{plural}")
        for plural in ("clusterroles", "clusterrolebindings"):
            guest.request("DELETE", f"/apis/{_RBAC}/v1/{plural}/{LIMITED}")


@contextmanager
def preflight_world(guest: ControlPlane, harvester: ControlPlane) -> Iterator[PreflightWorld]:
    """Prepare running clusters: two VMs, their Nodes, and the API that KubeVirt serves for guest agents."""
    guest.admin.request("DELETE", _NODES)
    harvester.apply({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": VM_NAMESPACE}})
    planes = {HARVESTER: harvester, GUEST: guest}
    product, limited = (
        {cluster: _kubeconfig(plane, cluster, name) for cluster, plane in planes.items()} for name in (ACCOUNT, LIMITED)
    )
    bind(harvester, "harvesterhci.io:cloudprovider", account=(VM_NAMESPACE, ACCOUNT), namespace=VM_NAMESPACE)
    for number in (1, 2):
        machine = Machine(f"demo-{number}", namespace=VM_NAMESPACE, cluster=CLUSTER_NAME)
        harvester.apply(machine_document(machine), instance_document(machine, f"10.0.0.{number}"))
        spec = {"taints": [UNINITIALIZED]}
        guest.apply({"apiVersion": "v1", "kind": "Node", "metadata": {"name": machine.name}, "spec": spec})
        status = {"status": {"nodeInfo": {"systemUUID": machine.system_uuid}}}
        guest.admin.request("PATCH", f"{_NODES}/{machine.name}/status", body=status)
    harvester.apply(
        {
            "apiVersion": "apiregistration.k8s.io/v1",
            "kind": "APIService",
            "metadata": {"name": _AGENTS},
            "spec": {
                "group": "subresources.kubevirt.io",
                "version": "v1",
                "groupPriorityMinimum": 1000,
                "versionPriority": 15,
                "insecureSkipTLSVerify": True,
                "service": {"name": "virt-api", "namespace": "kube-system"},
            },
        }
    )
    world = PreflightWorld(planes, product, limited)
    try:
        yield world
    finally:
        world.leave()


def _home(cluster: str) -> str:
    return "kube-system" if cluster == GUEST else VM_NAMESPACE


def _kubeconfig(plane: ControlPlane, cluster: str, name: str) -> Path:
    namespace = _home(cluster)
    return plane.kubeconfig_for_service_account(
        namespace, name, context_namespace=namespace, expiration_seconds=90 * 86400
    )


def _rule(permission: Permission) -> Json:
    rule = {"apiGroups": [permission.resource.group], "resources": [permission.title], "verbs": [permission.verb]}
    _, name = permission.name(SETTINGS)
    return {**rule, "resourceNames": [name]} if name else rule


def _has_rules(client: RestClient, cluster: str, rules: Sequence[Json]) -> bool:
    review = {
        "apiVersion": "authorization.k8s.io/v1",
        "kind": "SelfSubjectRulesReview",
        "spec": {"namespace": _home(cluster)},
    }
    answer = client.request("POST", "/apis/authorization.k8s.io/v1/selfsubjectrulesreviews", body=review)
    known = [_rule(one) for where, one in PERMISSIONS if where == cluster]
    listed = answer["status"]["resourceRules"]
    return all((rule in listed) == (rule in rules) for rule in known)


def edited(source: Path, target: Path, **changes: Any) -> Path:
    """Write a copy of a kubeconfig with fields of its cluster, user and context replaced; None removes a field.

    A change is named ``cluster_<field>``, ``user_<field>`` or ``context_<field>``, with ``_`` for ``-``.
    """
    document = yaml.safe_load(source.read_text())
    for name, value in changes.items():
        kind, _, key = name.partition("_")
        section = document[f"{kind}s"][0][kind]
        if value is None:
            section.pop(key.replace("_", "-"), None)
        else:
            section[key.replace("_", "-")] = value
    target.touch(mode=0o600)
    target.write_text(yaml.safe_dump(document))
    return target
