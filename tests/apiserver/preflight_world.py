"""Two clusters as preflight finds them in a real installation, and accounts that lack one right each."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, Final

import yaml

from devenv.apiserver import ControlPlane
from devenv.harvester.machines import Machine, instance_document, machine_document
from devenv.restclient import Json, RestClient, wait_until
from harvester_ccm.commands.clusters import GUEST, HARVESTER
from harvester_ccm.commands.permissions import Permission, permissions_of
from harvester_ccm.config import Settings
from harvester_ccm.flags import build_settings, parse_command_line
from tests.conftest import bind

ACCOUNT: Final = "harvester-cloud-provider"
VM_NAMESPACE: Final = "prod"
CLUSTER_NAME: Final = "demo"
TOKEN_SECONDS: Final = 90 * 86400
_RBAC: Final = "rbac.authorization.k8s.io"
_AGENTS: Final = "v1.subresources.kubevirt.io"
_NODES: Final = "/api/v1/nodes"
_MADE_HERE: Final = "preflight-world"
"""Label of what grants rights here."""
_IN_ONE: Final = ("roles", "rolebindings")

_numbers = itertools.count(1)


@dataclass(frozen=True)
class MissingRight:
    """A permission that an account lacks."""

    cluster: str
    permission: Permission

    @property
    def title(self) -> str:
        """Cluster, object and verb."""
        return f"{self.cluster}-{self.permission.title.replace('/', '-')}-{self.permission.verb}"


def default_settings() -> Settings:
    """Return the settings of a run with default flags."""
    words = ["--cloud-config=cloud-config", f"--cluster-name={CLUSTER_NAME}"]
    return build_settings(parse_command_line(words), {})


def missing_rights() -> list[MissingRight]:
    """Return every right that the program uses."""
    settings = default_settings()
    return [
        MissingRight(cluster, permission)
        for cluster in (HARVESTER, GUEST)
        for permission in permissions_of(cluster, settings)
    ]


@dataclass
class PreflightWorld:
    """Both clusters with VMs and Nodes, and the kubeconfigs of the product."""

    guest: ControlPlane
    harvester: ControlPlane
    cloud_config: Path
    kubeconfig: Path
    lacking: dict[str, Path] = field(default_factory=dict)
    """Kubeconfigs of accounts that lack one right, by its title."""
    accounts: dict[str, str] = field(default_factory=dict)
    """Their names."""

    @classmethod
    def on(cls, guest: ControlPlane, harvester: ControlPlane) -> PreflightWorld:
        """Prepare clusters that run already; ``leave`` takes away what others would see."""
        _remove_nodes(guest)
        harvester.apply({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": VM_NAMESPACE}})
        cloud_config = _account(harvester, VM_NAMESPACE, ACCOUNT)
        kubeconfig = _account(guest, "kube-system", ACCOUNT)
        bind(harvester, "harvesterhci.io:cloudprovider", account=(VM_NAMESPACE, ACCOUNT), namespace=VM_NAMESPACE)
        _fill(guest, harvester)
        return cls(guest, harvester, cloud_config, kubeconfig)

    def leave(self) -> None:
        """Remove Nodes and VMs, the API without a server, and what the accounts were granted."""
        _remove_nodes(self.guest)
        self.harvester.admin.request("DELETE", f"/apis/apiregistration.k8s.io/v1/apiservices/{_AGENTS}")
        for plural in ("virtualmachines", "virtualmachineinstances"):
            self.harvester.admin.request("DELETE", f"/apis/kubevirt.io/v1/namespaces/{VM_NAMESPACE}/{plural}")
        granted = f"?labelSelector={_MADE_HERE}"
        for place in ("clusterroles", "clusterrolebindings", *(f"namespaces/kube-system/{one}" for one in _IN_ONE)):
            self.guest.admin.request("DELETE", f"/apis/{_RBAC}/v1/{place}{granted}")
        for one in _IN_ONE:
            self.harvester.admin.request("DELETE", f"/apis/{_RBAC}/v1/namespaces/{VM_NAMESPACE}/{one}{granted}")

    def plane(self, cluster: str) -> ControlPlane:
        """Return the control plane of ``guest`` or ``harvester``."""
        return self.guest if cluster == GUEST else self.harvester

    def make_lacking_accounts(self) -> None:
        """Make an account for each right, which has all others, and wait until the servers know them."""
        for missing in missing_rights():
            name = f"ccm-{next(_numbers):02}"
            self.accounts[missing.title] = name
            self.lacking[missing.title] = self._bound(missing.cluster, name, _rules(missing))
        for cluster in (GUEST, HARVESTER):
            # Roles are taken note of in the order in which they were made.
            canary = self._bound(cluster, "canary", [_SECRETS])
            client = RestClient.from_kubeconfig(canary)
            wait_until(partial(_may_read_secrets, client), seconds=30, what=f"rights in {cluster}")

    def grant_in_namespace(self, missing: MissingRight) -> None:
        """Grant a missing right of the guest in namespace kube-system only, and wait until the server says so."""
        kubeconfig = self.lacking[missing.title]
        name = self.accounts[missing.title]
        rule = _rule(missing.permission)
        self._bind("Role", name, "kube-system", [rule], GUEST)
        client = RestClient.from_kubeconfig(kubeconfig)
        wait_until(partial(_lists_rule, client, rule), seconds=30, what="the right in kube-system")

    def _bound(self, cluster: str, name: str, rules: Sequence[Json]) -> Path:
        everywhere = cluster == GUEST
        namespace = "kube-system" if everywhere else VM_NAMESPACE
        kubeconfig = _account(self.plane(cluster), namespace, name)
        self._bind("ClusterRole" if everywhere else "Role", name, namespace, rules, cluster)
        return kubeconfig

    def _bind(self, kind: str, name: str, namespace: str, rules: Sequence[Json], cluster: str) -> None:
        """Grant the rules to an account of the namespace: everywhere, or with a Role in its namespace only."""
        meta: Json = {"name": name, "labels": {_MADE_HERE: ""}}
        if kind == "Role":
            meta["namespace"] = namespace
        subject = {"kind": "ServiceAccount", "name": name, "namespace": namespace}
        self.plane(cluster).apply(
            {"apiVersion": f"{_RBAC}/v1", "kind": kind, "metadata": meta, "rules": list(rules)},
            {
                "apiVersion": f"{_RBAC}/v1",
                "kind": f"{kind}Binding",
                "metadata": meta,
                "roleRef": {"apiGroup": _RBAC, "kind": kind, "name": name},
                "subjects": [subject],
            },
        )


def _account(plane: ControlPlane, namespace: str, name: str) -> Path:
    return plane.kubeconfig_for_service_account(
        namespace, name, context_namespace=namespace, expiration_seconds=TOKEN_SECONDS
    )


def _fill(guest: ControlPlane, harvester: ControlPlane) -> None:
    """Make two running VMs and their Nodes, and the API that KubeVirt serves for guest agents."""
    for number in (1, 2):
        machine = Machine(f"demo-{number}", namespace=VM_NAMESPACE, cluster=CLUSTER_NAME)
        harvester.apply(machine_document(machine), instance_document(machine, f"10.0.0.{number}"))
        node = {"apiVersion": "v1", "kind": "Node", "metadata": {"name": machine.name}}
        guest.apply(node)
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


def _remove_nodes(guest: ControlPlane) -> None:
    """Preflight compares all Nodes of the guest with the VMs."""
    guest.admin.request("DELETE", _NODES)


def _rules(missing: MissingRight) -> list[Json]:
    return [_rule(one) for one in permissions_of(missing.cluster, default_settings()) if one != missing.permission]


def _rule(permission: Permission) -> Json:
    rule = {"apiGroups": [permission.resource.group], "resources": [permission.title], "verbs": [permission.verb]}
    _, name = permission.name(default_settings())
    return {**rule, "resourceNames": [name]} if name else rule


_SECRETS: Final = {"apiGroups": [""], "resources": ["secrets"], "verbs": ["get"]}


def _may_read_secrets(client: RestClient) -> bool:
    review = {
        "apiVersion": "authorization.k8s.io/v1",
        "kind": "SelfSubjectAccessReview",
        "spec": {"resourceAttributes": {"verb": "get", "resource": "secrets", "namespace": VM_NAMESPACE}},
    }
    answer = client.request("POST", "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews", body=review)
    return answer["status"].get("allowed") is True


def _lists_rule(client: RestClient, rule: Json) -> bool:
    review = {
        "apiVersion": "authorization.k8s.io/v1",
        "kind": "SelfSubjectRulesReview",
        "spec": {"namespace": "kube-system"},
    }
    answer = client.request("POST", "/apis/authorization.k8s.io/v1/selfsubjectrulesreviews", body=review)
    return rule in answer["status"]["resourceRules"]


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


def scenes(guest: ControlPlane, harvester: ControlPlane) -> Iterator[PreflightWorld]:
    """Yield a scene on running clusters, for a fixture."""
    scene = PreflightWorld.on(guest, harvester)
    try:
        scene.make_lacking_accounts()
        yield scene
    finally:
        scene.leave()
