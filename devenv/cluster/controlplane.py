"""etcd, kube-apiserver, kube-controller-manager and kube-scheduler of one cluster, on addresses of the router.

They differ from ``devenv.apiserver``: kubelets and pods use them, so all controllers run, and the API server listens on
an address of the nodes' network.
"""

import json
import secrets
from dataclasses import dataclass
from http import HTTPStatus
from pathlib import Path

from devenv.cluster.setup import Setup
from devenv.kubeconfig import Endpoint, write_certificate_kubeconfig, write_token_kubeconfig
from devenv.pki import Authority
from devenv.process import ChildProcess, require_running
from devenv.restclient import RefusedError, RestClient, wait_until
from devenv.serverflags import etcd_flags

READY_SECONDS = 180.0
ADMINISTRATORS = "system:masters"
POLICY = {
    "apiVersion": "audit.k8s.io/v1",
    "kind": "Policy",
    "omitStages": ["RequestReceived"],
    "rules": [{"level": "Metadata"}],
}


@dataclass(frozen=True)
class ServerPlace:
    """What distinguishes the control planes."""

    name: str
    address: str
    services: str
    """Range of the addresses of Services."""
    first_service: str
    etcd_port: int


class ControlPlane:
    """The control plane of one cluster."""

    def __init__(self, place: ServerPlace, setup: Setup) -> None:
        """Create keys and kubeconfigs."""
        self.place = place
        self.directory = setup.work / place.name
        self.url = f"https://{place.address}:6443"
        self.audit_log = setup.out / f"{place.name}-audit.log"
        self._programs = setup.programs
        self._logs = setup.out
        self._children: list[ChildProcess] = []
        self.authority = Authority(f"{place.name} authority", self.directory / "pki")
        hosts = ("kubernetes", "kubernetes.default", "kubernetes.default.svc", "kubernetes.default.svc.cluster.local")
        self._serving = self.authority.issue_server(
            "apiserver", (*hosts, "localhost", "127.0.0.1", place.address, place.first_service)
        )
        self._kubelet_client = self.authority.issue_client("kubelet-client", "kubelets", groups=(ADMINISTRATORS,))
        self._token_key = self.authority.write_signing_key("service-account")
        token = secrets.token_hex(16)
        self._token_file = self.directory / "tokens.csv"
        self._token_file.touch(mode=0o600)
        self._token_file.write_text(f"{token},admin,admin,{ADMINISTRATORS}\n")
        self.kubeconfig = write_token_kubeconfig(
            self.directory / "admin.kubeconfig", self.endpoint, token=token, namespace="default"
        )
        self.admin = RestClient(self.kubeconfig)

    @property
    def endpoint(self) -> Endpoint:
        """Address and authority of the API server."""
        return Endpoint(self.url, self.authority.ca_file)

    def client_kubeconfig(self, file_name: str, user: str, *, groups: tuple[str, ...] = ()) -> Path:
        """Return a kubeconfig with a new client certificate of a user. Each call needs another ``file_name``."""
        pair = self.authority.issue_client(file_name, user, groups=groups)
        return write_certificate_kubeconfig(self.directory / f"{file_name}.kubeconfig", self.endpoint, client=pair)

    def refused(self, users: tuple[str, ...]) -> list[str]:
        """Return the messages about requests without permission, of users whose names begin with one of these."""
        with self.audit_log.open() as log:
            # The server can be writing the last line.
            events = [json.loads(line) for line in log if line.endswith("\n")]
        return [
            event["responseStatus"]["message"]
            for event in events
            if event["user"].get("username", "").startswith(users)
            and event.get("responseStatus", {}).get("code") == HTTPStatus.FORBIDDEN
        ]

    def start(self, *, schedules: bool = False) -> None:
        """Start the servers and return once the API server is ready. ``schedules``: also start a scheduler."""
        ports = {"port": self.place.etcd_port, "peer_port": self.place.etcd_port + 1}
        self._run("etcd", etcd_flags(self.directory / "etcd", **ports))
        self._run("kube-apiserver", self._apiserver_flags())
        wait_until(self._is_ready, seconds=READY_SECONDS, what=f"the API server of {self.place.name}")
        self._run("kube-controller-manager", self._controller_flags())
        if schedules:
            kubeconfig = self.client_kubeconfig("kube-scheduler", "system:kube-scheduler")
            self._run("kube-scheduler", [*_served_nowhere(kubeconfig), f"--kubeconfig={kubeconfig}"])
        account = "/api/v1/namespaces/kube-system/serviceaccounts/default"
        wait_until(
            lambda: self.admin.get_or_none(account) is not None,
            seconds=READY_SECONDS,
            what=f"the controllers of {self.place.name}",
        )

    def _run(self, program: str, flags: list[str]) -> None:
        name = f"{self.place.name}-{program}"
        log_file = self._logs / f"{name}.log"
        self._children.append(ChildProcess.start(name, [self._programs[program], *flags], log_file=log_file))

    def _is_ready(self) -> bool:
        require_running(self._children)
        try:
            self.admin.request("GET", "/readyz")
            self.admin.request("GET", "/api/v1/namespaces/kube-system")
        except (OSError, RefusedError):
            return False
        return True

    def _apiserver_flags(self) -> list[str]:
        policy = self.directory / "audit-policy.json"
        policy.write_text(json.dumps(POLICY))
        return [
            f"--etcd-servers=http://127.0.0.1:{self.place.etcd_port}",
            f"--bind-address={self.place.address}",
            f"--advertise-address={self.place.address}",
            "--secure-port=6443",
            f"--cert-dir={self.authority.directory}",
            f"--tls-cert-file={self._serving.certificate}",
            f"--tls-private-key-file={self._serving.key}",
            f"--client-ca-file={self.authority.ca_file}",
            f"--token-auth-file={self._token_file}",
            "--service-account-issuer=https://kubernetes.default.svc.cluster.local",
            f"--service-account-key-file={self._token_key}",
            f"--service-account-signing-key-file={self._token_key}",
            f"--service-cluster-ip-range={self.place.services}",
            "--authorization-mode=Node,RBAC",
            "--enable-admission-plugins=NodeRestriction",
            "--allow-privileged=true",
            "--anonymous-auth=false",
            f"--kubelet-client-certificate={self._kubelet_client.certificate}",
            f"--kubelet-client-key={self._kubelet_client.key}",
            # The name of a node is in no DNS here.
            "--kubelet-preferred-address-types=InternalIP,ExternalIP,Hostname",
            f"--audit-policy-file={policy}",
            f"--audit-log-path={self.audit_log}",
            "--profiling=false",
        ]

    def _controller_flags(self) -> list[str]:
        kubeconfig = self.client_kubeconfig("kube-controller-manager", "system:kube-controller-manager")
        return [
            *_served_nowhere(kubeconfig),
            f"--kubeconfig={kubeconfig}",
            "--cloud-provider=external",
            "--use-service-account-credentials",
            f"--root-ca-file={self.authority.ca_file}",
            f"--service-account-private-key-file={self._token_key}",
            f"--service-cluster-ip-range={self.place.services}",
            "--allocate-node-cidrs=false",
        ]


def _served_nowhere(kubeconfig: Path) -> list[str]:
    """Return the flags of a controller that serves no metrics and needs no Lease."""
    return [
        "--secure-port=0",
        "--leader-elect=false",
        "--profiling=false",
        f"--authentication-kubeconfig={kubeconfig}",
        f"--authorization-kubeconfig={kubeconfig}",
    ]
