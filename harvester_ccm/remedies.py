"""What an error of an API server means for a user, and what to do about it.

``kube`` reports what happened. Only here, an error is put into words that know Harvester, Rancher, and the files and
flags of this program. The texts are in Events and in the output of commands.
"""

from typing import Final

from harvester_ccm.kube.errors import (
    WRITE_TIMEOUT,
    AnswerTooLarge,
    CertificateNotValid,
    ConnectionRefused,
    Forbidden,
    HostUnknown,
    KubeError,
    NoResponse,
    NotTrusted,
    ProxyFailed,
    TimedOut,
    Unauthorized,
    UnexpectedAnswer,
    Unreachable,
)

PROXY_REMEDY: Final = (
    "Check the proxy, which proxy-url in the kubeconfig (or else the environment variable HTTPS_PROXY) names: that it "
    "runs, lets this machine connect to the server, and has user:password@ in its URL if it wants them. If no proxy "
    "is needed, remove proxy-url, or add the server to NO_PROXY"
)
"""The remedy for a proxy that fails, whichever server is behind it."""
GUEST_WEBHOOK_AWAY: Final = (
    "Check that the pods behind the webhook that it names run. If their program was removed, delete its webhook "
    "configuration"
)
"""The remedy for a webhook that the API server of the guest cluster cannot call."""
_PATH_OF_RANCHER: Final = "/k8s/clusters/"
"""In the URL of a cluster behind Rancher."""

_PROBLEMS: Final[dict[type[KubeError], str]] = {
    Unreachable: "cannot be reached",
    TimedOut: "does not answer",
    HostUnknown: "cannot be reached, because its host name cannot be resolved",
    ConnectionRefused: "cannot be reached, because nothing listens at its address",
    ProxyFailed: "cannot be reached, because the proxy on the way to it does not connect",
    NotTrusted: "answers with a certificate that does not fit the cloud-config",
    CertificateNotValid: "answers with a certificate that is not valid at this time",
    UnexpectedAnswer: "did not respond like a Kubernetes API server",
    AnswerTooLarge: "responded with more than an API server sends",
    NoResponse: f"did not respond to a write within {WRITE_TIMEOUT:.0f} s",
}
"""The problem by the class of the error; a class without an entry has the problem of its base."""

_REMEDIES: Final[dict[type[KubeError], str]] = {
    Unreachable: (
        "Check that Harvester's API servers respond, firewalls and routes from the nodes to them, and the server in "
        "the cloud-config"
    ),
    TimedOut: (
        "On each management node of Harvester, run kubectl get --raw /readyz. Where that hangs as well, end the "
        "container kube-apiserver with crictl, and the kubelet starts it again. If all say ok, check firewalls and "
        "routes from the nodes of this cluster, and the server in the cloud-config"
    ),
    HostUnknown: "Check DNS on the nodes, or use Harvester's VIP in the cloud-config",
    ConnectionRefused: (
        "Check that Harvester is up, and that address and port of the server in the cloud-config are those of its API "
        "(usually https://HARVESTER-VIP:6443)"
    ),
    ProxyFailed: PROXY_REMEDY,
    NotTrusted: (
        "Either the address is not Harvester's, or the cloud-config is old: make it again with generate_addon.sh "
        "--server https://HARVESTER-VIP:6443"
    ),
    CertificateNotValid: (
        "Compare the clocks of this node and of Harvester. If they agree, the certificate of Harvester's API has "
        "expired: renew it"
    ),
    UnexpectedAnswer: "Check the server in the cloud-config, and any proxy or login page in front of it",
    NoResponse: (
        "If kubectl get --raw /readyz says ok on its management nodes, its admission webhook probably hangs: check "
        "that the pods of harvester-load-balancer-webhook in namespace harvester-system of Harvester run, and that its "
        "API servers reach them. Where that hangs as well, end the container kube-apiserver with crictl, and the "
        "kubelet starts it again"
    ),
}
"""The remedy by the class of the error, if the server is Harvester; without an entry, the remedy of its base."""


_GUEST_REMEDIES: Final[dict[type[KubeError], str]] = {
    Unreachable: "Check the API servers of this cluster, the server in the kubeconfig, and firewalls",
    TimedOut: (
        "On each control plane node of this cluster, run kubectl get --raw /readyz --server https://127.0.0.1:6443. "
        "Where that hangs as well, end the container kube-apiserver with crictl, and the kubelet starts it again (K3s: "
        "systemctl restart k3s). If all say ok, check the server in the kubeconfig, and firewalls"
    ),
    ProxyFailed: PROXY_REMEDY,
    NotTrusted: "Check address, certificate-authority-data and tls-server-name in the kubeconfig",
    CertificateNotValid: (
        "Compare the clocks of this machine and of the API server. If they agree, its certificate has expired: renew it"
    ),
}
"""The remedy by the class of the error, if the server is that of the guest cluster."""


def problem_of(error: Unreachable | Unauthorized) -> str:
    """Return the problem; it follows the name of the server in a message."""
    if isinstance(error, Unreachable):
        return _by_class(_PROBLEMS, error)
    rejected = f"does not accept {error.credential or 'the token in the cloud-config'}"
    return f"at {error.server} {rejected}" if error.server else rejected


def remedy_of(error: Unreachable | Unauthorized | Forbidden) -> str:
    """Return the remedy. An error that does not know its cluster is of Harvester.

    >>> remedy_of(HostUnknown())[:22]
    'Check DNS on the nodes'
    """
    if isinstance(error, Unauthorized):
        return _of_credential(error)
    if isinstance(error, Unreachable) and error.cluster == "guest":
        return _by_class(_GUEST_REMEDIES, error)
    if isinstance(error, Forbidden):
        if error.is_of_server_path:
            return (
                "Correct the server: https://HARVESTER-VIP:6443 without a path; one such as /k8s/clusters is Rancher's"
            )
        hint = rbac_hint(error.namespace, error.account_namespace)
        return f"{hint[0].upper()}{hint[1:]}"
    return _by_class(_REMEDIES, error)


def _of_credential(error: Unauthorized) -> str:
    if _PATH_OF_RANCHER in error.server and error.cluster != "guest":
        return (
            "This server is Rancher, whose tokens expire: make a cloud-config of Harvester itself, with "
            "generate_addon.sh --server https://HARVESTER-VIP:6443"
        )
    return credential_hint(error.cluster or "harvester", error.account)


def _by_class(texts: dict[type[KubeError], str], error: KubeError) -> str:
    """Return the text of the error's class, or of the nearest base class that has one."""
    return next(texts[kind] for kind in type(error).__mro__ if kind in texts)


def _other_namespace(of_account: str, of_context: str) -> str:
    """Return what to do if the account and the context have different namespaces: usually one of them is wrong."""
    return (
        f"the credential is an account of namespace {of_account}, and the context of the cloud-config names namespace "
        f"{of_context}. If the VMs of this cluster are in {of_account}, set the namespace of the context to "
        f"{of_account}. If they are in {of_context}, make the cloud-config again with generate_addon.sh CLUSTER "
        f"{of_context}"
    )


def _slow_remedy(where: str) -> str:
    """Return what to do about a server that responds slowly; ``where`` is a node on which it runs."""
    return (
        f"On {where}, measure kubectl get --raw /readyz. If it is slow there as well, the API servers or the disk of "
        "etcd are overloaded; if not, check the network on the way to it"
    )


SLOW_REMEDIES: Final = {
    "guest": _slow_remedy("a control plane node of this cluster"),
    "harvester": _slow_remedy("a node of Harvester"),
}
"""The remedy for a slow server, by the name of its cluster."""


def credential_hint(cluster: str, account: str = "") -> str:
    """Return how to renew a credential; ``account`` is the ``namespace/name`` of its ServiceAccount, if known.

    >>> credential_hint("harvester", "default/demo")[:72]
    'Create a new token: run generate_addon.sh demo default against Harvester'
    """
    if cluster == "harvester":
        namespace, _, name = (account or "<namespace>/<account>").partition("/")
        return (
            f"Create a new token: run generate_addon.sh {name} {namespace} against Harvester, which also creates the "
            "ServiceAccount if it was deleted (with --rotate only if the new token is rejected, too: it ends the "
            "token of all its users). Store it as before: in Secret kube-system/cloud-config, in the file "
            "on the nodes (cp, not mv), or with Rancher in the Secret that cloud-provider-config names. The controller "
            "reloads it; a command takes it with --cloud-config. Existing addresses keep working"
        )
    return (
        'Get a new kubeconfig of this cluster (Rancher: "Download KubeConfig"; else /etc/rancher/rke2/rke2.yaml, '
        "/etc/rancher/k3s/k3s.yaml or /etc/kubernetes/admin.conf of a control plane node), or in a pod leave "
        "--kubeconfig out"
    )


_ROLES: Final = {"leases": "leader-election", "configmaps": "network-mapping"}
"""Ends of the names of Roles, which grant the permissions on one object of kube-system."""


def guest_rbac_hint(resource: str = "") -> str:
    """Return how to grant the controller its permissions in the guest cluster on a resource, such as ``leases``."""
    roles = "ClusterRole and ClusterRoleBinding harvester-cloud-provider"
    if resource in _ROLES:
        roles = f"Role and RoleBinding harvester-cloud-provider-{_ROLES[resource]} of namespace kube-system"
    return (
        f"{roles} grant it: check that both exist, and that the binding names the account. The manifest and the chart "
        "(values rbac.create, rbac.nodeDeletion, rbac.endpointSlices) contain them: apply that of this version again"
    )


def rbac_hint(namespace: str, of_account: str = "") -> str:
    """Return how to grant the permissions of a cloud provider in a namespace of Harvester; empty if it is unknown.

    ``of_account`` is the namespace of the ServiceAccount, if it is one.

    >>> rbac_hint("vms")[:72]
    'bind the ClusterRole harvesterhci.io:cloudprovider to it in namespace vm'
    """
    if of_account not in ("", namespace):
        return _other_namespace(of_account, namespace)
    where = f"namespace {namespace}" if namespace else "the namespace of the VMs"
    return (
        f"bind the ClusterRole harvesterhci.io:cloudprovider to it in {where}, as generate_addon.sh does. If it is "
        "bound, add the verb to that ClusterRole: kubectl edit clusterrole harvesterhci.io:cloudprovider. If the "
        "account was created for another server or namespace, correct the context of the cloud-config"
    )
