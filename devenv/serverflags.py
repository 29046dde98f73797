"""The command lines of the servers of a control plane, and the files that they name."""

import json
import secrets
from dataclasses import dataclass
from pathlib import Path
from typing import Self

from devenv.pki import Authority, KeyPair

SERVICE_NETWORK = "10.43.0.0/16,fd00:43::/112"
_FIRST_SERVICE_ADDRESS = "10.43.0.1"
_ADMIN = "admin"
_ADMINISTRATORS = "system:masters"

_CONTROLLERS = (
    "garbagecollector",
    "namespace",
    "root-ca-cert-publisher",
    "serviceaccount",
    "serviceaccount-token",
)
"""Required by tests. Without kubelets, the node controllers would set every Node to Unknown.

These are the names up to Kubernetes 1.26, which later versions accept as aliases.
"""


@dataclass(frozen=True)
class Identities:
    """The keys and certificates of one control plane."""

    authority: Authority
    serving: KeyPair
    admin: KeyPair
    admin_token: str
    """Of the same user as the certificate."""
    controllers: KeyPair
    token_key: Path
    token_file: Path
    """File of the token for kube-apiserver."""

    @classmethod
    def create(cls, name: str, directory: Path) -> Self:
        """Create all of them as files in ``directory``."""
        authority = Authority(f"{name} development authority", directory)
        token, token_file = secrets.token_hex(16), directory / "tokens.csv"
        token_file.touch(mode=0o600)
        token_file.write_text(f"{token},{_ADMIN},{_ADMIN},{_ADMINISTRATORS}\n")
        hosts = ("127.0.0.1", "localhost", "kubernetes", "kubernetes.default.svc", _FIRST_SERVICE_ADDRESS)
        return cls(
            authority=authority,
            serving=authority.issue_server("apiserver", hosts),
            admin=authority.issue_client("admin", _ADMIN, groups=(_ADMINISTRATORS,)),
            admin_token=token,
            controllers=authority.issue_client("controllers", "system:kube-controller-manager"),
            token_key=authority.write_signing_key("service-account"),
            token_file=token_file,
        )


def etcd_flags(data: Path, *, port: int, peer_port: int) -> list[str]:
    """Flags of a single etcd that keeps its files in ``data`` and serves plain HTTP on loopback."""
    client, peer = f"http://127.0.0.1:{port}", f"http://127.0.0.1:{peer_port}"
    return [
        "--name=devenv",
        f"--data-dir={data}",
        f"--listen-client-urls={client}",
        f"--advertise-client-urls={client}",
        f"--listen-peer-urls={peer}",
        f"--initial-advertise-peer-urls={peer}",
        f"--initial-cluster=devenv={peer}",
        "--unsafe-no-fsync",
        "--socket-reuse-port",
        "--log-level=warn",
        # Servers of a test run are idle most of the time, and there are up to sixteen.
        "--heartbeat-interval=500",
        "--election-timeout=2500",
    ]


def apiserver_flags(identities: Identities, *, port: int, etcd_port: int) -> list[str]:
    """Flags of a kube-apiserver on loopback: RBAC, no anonymous requests, tokens signed by the own key."""
    return [
        "--bind-address=127.0.0.1",
        "--advertise-address=127.0.0.1",
        f"--secure-port={port}",
        "--permit-port-sharing",
        f"--etcd-servers=http://127.0.0.1:{etcd_port}",
        f"--cert-dir={identities.authority.directory}",
        f"--tls-cert-file={identities.serving.certificate}",
        f"--tls-private-key-file={identities.serving.key}",
        f"--client-ca-file={identities.authority.ca_file}",
        "--authorization-mode=RBAC",
        "--anonymous-auth=false",
        f"--token-auth-file={identities.token_file}",
        "--service-account-issuer=https://kubernetes.default.svc",
        f"--service-account-key-file={identities.token_key}",
        f"--service-account-signing-key-file={identities.token_key}",
        f"--service-cluster-ip-range={SERVICE_NETWORK}",
        # Endpoints on loopback addresses are rejected, and the kubernetes Service is not used.
        "--endpoint-reconciler-type=none",
        "--profiling=false",
        # Nobody reads the metrics about etcd.
        "--etcd-count-metric-poll-period=0",
        "--etcd-db-metric-poll-interval=0",
    ]


def audit_flags(directory: Path, audit_log: Path) -> list[str]:
    """Flags of an audit log: one JSON event per response."""
    policy = {
        "apiVersion": "audit.k8s.io/v1",
        "kind": "Policy",
        "omitStages": ["RequestReceived"],
        "rules": [{"level": "Metadata"}],
    }
    path = directory / "audit-policy.json"
    path.write_text(json.dumps(policy))
    return [f"--audit-policy-file={path}", f"--audit-log-path={audit_log}"]


def controller_manager_flags(identities: Identities, kubeconfig: Path) -> list[str]:
    """Flags of a kube-controller-manager with only the controllers that tests need."""
    return [
        f"--kubeconfig={kubeconfig}",
        f"--controllers={','.join(_CONTROLLERS)}",
        "--leader-elect=false",
        "--use-service-account-credentials",
        "--secure-port=0",
        f"--root-ca-file={identities.authority.ca_file}",
        f"--service-account-private-key-file={identities.token_key}",
    ]
