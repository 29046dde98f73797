"""Real control planes: etcd and kube-apiserver, optionally kube-controller-manager, on loopback.

A control plane has its own certificate authority, ports and directory, so several can run at the same time. RBAC is
enabled, anonymous requests are rejected, and the administrator has a token and a client certificate in
``system:masters``. There is no kubelet and no scheduler: Nodes and Pods are only objects.

etcd listens without TLS on 127.0.0.1, does not sync to disk and is deleted with its directory.
"""

import http.client
import os
import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Self

from devenv.binaries import require
from devenv.kubeconfig import Endpoint, write_certificate_kubeconfig, write_token_kubeconfig
from devenv.process import ChildProcess, DevenvError, ReservedPort, stop_together
from devenv.restclient import Json, RefusedError, RestClient
from devenv.serverflags import (
    Identities,
    apiserver_flags,
    audit_flags,
    controller_manager_flags,
    etcd_flags,
)

SERVICE_ACCOUNT = "harvester-cloud-provider"
READY_SECONDS = 180.0
"""Longer than a start next to twenty busy processes; on an idle machine it takes three seconds."""
GUEST_KUBERNETES = "HARVESTER_CCM_GUEST_KUBERNETES"
"""Environment variable with the version of the API servers of guest clusters: ``oldest`` or ``newest``, by default the
version of all other programs. See ``devenv.kubernetes``."""
_GUEST = "guest"
_POLL_SECONDS = 0.05
_MANIFESTS = Path(__file__).parent
_RBAC = _MANIFESTS / "rbac"


def guest_server(version: str) -> str:
    """Return the name of the API server of guest clusters among ``devenv.binaries.PROGRAMS``; empty: the usual one."""
    return f"kube-apiserver-{version}" if version else "kube-apiserver"


class ControlPlane:
    """One Kubernetes control plane. Use it as a context manager, or call ``stop``.

    Attributes: ``name``; ``directory`` (logs, keys, kubeconfigs, data); ``url`` and ``ca_file`` of the API server;
    ``serving`` (its key pair for 127.0.0.1, also for proxies); ``admin`` (a client with all permissions),
    ``admin_token`` and ``admin_kubeconfig``; ``certificate_kubeconfig`` (the same user with a client certificate, which
    does not work through a proxy); ``audit_log`` (one JSON event per line, only with ``audit``).
    """

    def __init__(
        self,
        name: str,
        directory: Path,
        *,
        audit: bool = False,
        controller_manager: bool = False,
    ) -> None:
        """Prepare binaries, keys and ports. ``launch`` starts the servers.

        A plane with the name ``guest`` has the API server of ``GUEST_KUBERNETES``.
        """
        directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        self.name = name
        self.directory = directory
        self.audit_log = directory / "audit.log"
        self._data = directory / "etcd"
        self._audit = audit
        version = os.environ.get(GUEST_KUBERNETES, "")
        server = guest_server(version) if name == _GUEST else "kube-apiserver"
        programs = ["etcd", server, *(["kube-controller-manager"] if controller_manager else [])]
        self._binaries = require(*programs)
        self._binaries["kube-apiserver"] = self._binaries.pop(server)
        self._identities = Identities.create(name, directory / "pki")
        self._port, self._etcd_port, self._etcd_peer_port = ReservedPort(), ReservedPort(), ReservedPort()
        self._children: dict[str, ChildProcess] = {}
        self._stopped = threading.Event()
        self.url = f"https://127.0.0.1:{self._port.number}"
        self.ca_file = self._identities.authority.ca_file
        self.serving = self._identities.serving
        self.admin_kubeconfig = write_token_kubeconfig(
            directory / "admin.kubeconfig", self.endpoint, token=self._identities.admin_token, namespace="default"
        )
        self.certificate_kubeconfig = write_certificate_kubeconfig(
            directory / "certificate.kubeconfig", self.endpoint, client=self._identities.admin
        )
        self.admin = RestClient(self.admin_kubeconfig)
        self.admin_token = self._identities.admin_token

    @classmethod
    def start(cls, name: str, directory: Path, *, audit: bool = False, controller_manager: bool = False) -> Self:
        """Start a control plane and return once its API server is ready.

        ``name`` appears in messages. Raises DevenvError, with the end of its log, if a server does not become ready.
        """
        plane = cls(name, directory, audit=audit, controller_manager=controller_manager)
        plane.launch()
        return plane

    def launch(self) -> None:
        """Start the servers one after the other.

        Raises DevenvError if one does not become ready or ``stop`` is called meanwhile; then all are stopped.
        """
        try:
            self._start_etcd()
            self.start_apiserver()
            if "kube-controller-manager" in self._binaries:
                self._start_controller_manager()
        except BaseException:
            self.stop()
            raise

    @property
    def endpoint(self) -> Endpoint:
        """Address and authority of the API server."""
        return Endpoint(self.url, self.ca_file)

    @property
    def processes(self) -> dict[str, int]:
        """Process IDs of the running servers, by name."""
        return {name: child.pid for name, child in self._children.items() if child.exit_code() is None}

    def stop(self) -> None:
        """Stop all servers and release the ports. Files stay. Can be called again.

        Servers are killed, because their data is not used again, and a graceful shutdown of kube-apiserver takes
        seconds.
        """
        self._stopped.set()
        stop_together(list(self._children.values()), grace=0)
        for port in (self._port, self._etcd_port, self._etcd_peer_port):
            port.release()

    def stop_apiserver(self) -> None:
        """Stop the API server: connections are refused, its port and data stay."""
        self._children["kube-apiserver"].stop()

    def start_apiserver(self) -> None:
        """Start the API server again, on the same port and data, and return once it is ready.

        Raises DevenvError if it does not become ready.
        """
        self._run("kube-apiserver", self._apiserver_flags(), ready=self._apiserver_ready)

    def apply(self, *objects: Json | Path) -> None:
        """Create or replace objects as administrator. See ``RestClient.apply``."""
        self.admin.apply(*objects)

    def kubeconfig_for_service_account(
        self,
        namespace: str,
        name: str,
        *,
        context_namespace: str,
        path: Path | None = None,
        expiration_seconds: int = 86400,
    ) -> Path:
        """Write a kubeconfig with a new token of a service account and return its path.

        The account and its namespace are created if absent. The default of ``path`` is
        ``<namespace>-<name>.kubeconfig`` in the directory of the control plane.
        """
        self.apply(
            {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": namespace}},
            {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": name, "namespace": namespace}},
        )
        request = {"spec": {"expirationSeconds": expiration_seconds}}
        path_of_token = f"/api/v1/namespaces/{namespace}/serviceaccounts/{name}/token"
        token = self.admin.request("POST", path_of_token, body=request)["status"]["token"]
        return write_token_kubeconfig(
            path or self.directory / f"{namespace}-{name}.kubeconfig",
            self.endpoint,
            token=token,
            namespace=context_namespace,
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def _run(self, program: str, flags: Sequence[str], *, ready: Callable[[], bool]) -> None:
        child = ChildProcess.start(
            program, [self._binaries[program], *flags], log_file=self.directory / f"{program}.log"
        )
        self._children[program] = child
        if self._stopped.is_set():
            child.stop()
        deadline = time.monotonic() + READY_SECONDS
        while not ready():
            code = child.exit_code()
            if code is not None or time.monotonic() > deadline:
                state = f"not ready after {READY_SECONDS:g} s" if code is None else f"exited with code {code}"
                child.stop()
                raise DevenvError(
                    f"{program} of {self.name!r} {state}; the end of {child.log_file}:\n{child.log_tail()}"
                )
            time.sleep(_POLL_SECONDS)

    def _start_etcd(self) -> None:
        address = f"127.0.0.1:{self._etcd_port.number}"
        flags = etcd_flags(self._data, port=self._etcd_port.number, peer_port=self._etcd_peer_port.number)

        def healthy() -> bool:
            connection = http.client.HTTPConnection(address, timeout=1)
            try:
                connection.request("GET", "/health")
                return connection.getresponse().status == http.client.OK
            except (OSError, http.client.HTTPException):
                return False
            finally:
                connection.close()

        self._run("etcd", flags, ready=healthy)

    def _apiserver_ready(self) -> bool:
        """Return whether the server is ready and the default namespaces exist, which are created later."""
        try:
            self.admin.request("GET", "/readyz")
            namespaces = self.admin.request("GET", "/api/v1/namespaces")["items"]
        except (OSError, http.client.HTTPException, RefusedError):
            return False
        return {"default", "kube-system"} <= {one["metadata"]["name"] for one in namespaces}

    def _apiserver_flags(self) -> list[str]:
        flags = apiserver_flags(self._identities, port=self._port.number, etcd_port=self._etcd_port.number)
        if "kube-controller-manager" not in self._binaries:
            # Without the default service account of its namespace, a Pod would be rejected.
            flags.append("--disable-admission-plugins=ServiceAccount")
        if self._audit:
            flags += audit_flags(self.directory, self.audit_log)
        return flags

    def _start_controller_manager(self) -> None:
        kubeconfig = write_certificate_kubeconfig(
            self.directory / "controllers.kubeconfig", self.endpoint, client=self._identities.controllers
        )
        flags = controller_manager_flags(self._identities, kubeconfig)
        account = "/api/v1/namespaces/default/serviceaccounts/default"
        self._run("kube-controller-manager", flags, ready=lambda: self.admin.get_or_none(account) is not None)


def start_clusters(
    directory: Path,
    *,
    audit: bool = False,
    guest_additions: bool = False,
    controller_manager: bool = False,
) -> tuple[ControlPlane, ControlPlane]:
    """Start a guest and a Harvester cluster at the same time, with the permissions and types of real ones.

    The guest cluster has the service account ``kube-system/harvester-cloud-provider`` with the published ClusterRole
    and, with ``guest_additions``, the additional permissions of this project's chart. Harvester has the CRDs, its
    ClusterRole for cloud providers, and a binding for its service account in the namespace ``default`` only. Raises
    DevenvError if one does not start; then both are stopped.
    """
    guest = ControlPlane(_GUEST, directory / "guest", audit=audit)
    harvester = ControlPlane("harvester", directory / "harvester", audit=audit, controller_manager=controller_manager)

    def start_guest() -> None:
        guest.launch()
        guest.apply(_RBAC / "guest-cloud-provider.yaml")
        if guest_additions:
            guest.apply(_RBAC / "guest-additions.yaml")

    def start_harvester() -> None:
        harvester.launch()
        harvester.apply(*sorted((_MANIFESTS / "crds").glob("*.yaml")), *sorted(_RBAC.glob("harvester-*.yaml")))

    pool = ThreadPoolExecutor(2, thread_name_prefix="devenv-start")
    try:
        for result in [pool.submit(start_guest), pool.submit(start_harvester)]:
            result.result()
    except BaseException:
        # Also ends the other thread, whose server is stopped.
        guest.stop()
        harvester.stop()
        raise
    finally:
        pool.shutdown()
    return guest, harvester
