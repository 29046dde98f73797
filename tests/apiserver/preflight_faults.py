"""Kubeconfigs for Harvester that do not work, and the row of ``preflight`` that reports each."""

import base64
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import Any, Final, NamedTuple

import yaml

from devenv.kubeconfig import Endpoint, write_token_kubeconfig
from devenv.pki import KeyPair
from harvester_ccm.commands.clusters import GUEST, HARVESTER
from tests.apiserver.odd_servers import closed_port, silent_server, web_server
from tests.apiserver.preflight_world import PreflightWorld, edited
from tests.support.offline import json_web_token

LOGIN_PAGE: Final = b"<html><body>Please log in</body></html>"


class Bench(NamedTuple):
    """Where a broken kubeconfig is written."""

    world: PreflightWorld
    target: Path

    def edit(self, **changes: object) -> None:
        """Write the cloud-config of the product with some fields changed."""
        edited(self.world.cloud_config, self.target, **changes)

    @property
    def document(self) -> Any:
        """The cloud-config of the product."""
        return yaml.safe_load(self.world.cloud_config.read_text())


Breaking = Callable[[Bench], AbstractContextManager[None]]


def _write(content: str | Callable[[Bench], str]) -> Breaking:
    @contextmanager
    def breaking(bench: Bench) -> Iterator[None]:
        bench.target.write_text(content if isinstance(content, str) else content(bench))
        yield

    return breaking


def _change(**changes: object) -> Breaking:
    @contextmanager
    def breaking(bench: Bench) -> Iterator[None]:
        bench.edit(**changes)
        yield

    return breaking


def _server(start: Callable[[KeyPair], AbstractContextManager[str]], scheme: str = "https") -> Breaking:
    """Lead to another server, which can have the certificate of Harvester."""

    @contextmanager
    def breaking(bench: Bench) -> Iterator[None]:
        with start(bench.world.planes[HARVESTER].serving) as url:
            bench.edit(cluster_server=f"{scheme}:{url.partition(':')[2]}")
            yield

    return breaking


@contextmanager
def _directory(bench: Bench) -> Iterator[None]:
    bench.target.mkdir()
    yield
    bench.target.rmdir()


@contextmanager
def _other_authority(bench: Bench) -> Iterator[None]:
    authority = bench.world.planes[GUEST].ca_file.read_bytes()
    bench.edit(cluster_certificate_authority_data=base64.b64encode(authority).decode())
    yield


@contextmanager
def _other_host(bench: Bench) -> Iterator[None]:
    authority = bench.world.planes[HARVESTER]._identities.authority
    with web_server(tls=authority.issue_server("elsewhere", ["harvester.example"])) as url:
        bench.edit(cluster_server=url)
        yield


@contextmanager
def _clear_text(bench: Bench) -> Iterator[None]:
    bench.edit(cluster_server=bench.world.planes[HARVESTER].url.replace("https:", "http:"))
    yield


@contextmanager
def _guest_cluster(bench: Bench) -> Iterator[None]:
    """The kubeconfig of a Node of the guest cluster, as an installation script that runs there would write it."""
    guest = bench.world.planes[GUEST]
    token = yaml.safe_load(bench.world.product[GUEST].read_text())["users"][0]["user"]["token"]
    write_token_kubeconfig(bench.target, Endpoint(guest.url, guest.ca_file), token=token, namespace="default")
    yield


def _without_context(bench: Bench) -> str:
    return yaml.safe_dump({key: value for key, value in bench.document.items() if key != "current-context"})


def _encoded(bench: Bench) -> str:
    return base64.b64encode(bench.world.cloud_config.read_bytes()).decode()


_NOT_PEM: Final = base64.b64encode(b"nonsense").decode()
_PLUGIN: Final = {"apiVersion": "client.authentication.k8s.io/v1", "command": "no-such-plugin", "args": []}
_HTML: Final = {"Content-Type": "text/html"}
FAULTS: Final[dict[str, tuple[Breaking, str, str]]] = {
    "directory": (_directory, "cloud-config", "Is a directory"),
    "empty file": (_write(""), "cloud-config", "current-context: not set"),
    "invalid YAML": (_write("a: b: c"), "cloud-config", "not valid YAML"),
    "base64": (_write(_encoded), "cloud-config", "base64-encoded twice"),
    "Secret": (_write("kind: Secret\napiVersion: v1\n"), "cloud-config", "value 'Secret'"),
    "no context": (_write(_without_context), "cloud-config", "current-context: not set"),
    "unknown cluster": (_change(context_cluster="other"), "cloud-config", "cluster 'other' not found"),
    "no scheme": (_change(cluster_server="10.0.0.5:6443"), "cloud-config", "10.0.0.5:6443"),
    "invalid authority": (
        _change(cluster_certificate_authority_data=_NOT_PEM),
        "cloud-config",
        "expected a PEM certificate",
    ),
    "plugin": (_change(user_token=None, user_exec=_PLUGIN), "credential", "no-such-plugin"),
    "token file": (_change(user_token=None, user_tokenFile="token"), "cloud-config", "No such file"),
    "no token": (_change(user_token=None), "cloud-config", "no credential"),
    "closed port": (_server(lambda _pair: closed_port()), "server", "Connection refused"),
    "host name": (_change(cluster_server="https://harvester.invalid:6443"), "server", "cannot be resolved"),
    "silent server": (_server(lambda _pair: silent_server()), "server", "no answer within 8 s"),
    "other authority": (_other_authority, "TLS", "not trusted"),
    "other host": (_other_host, "TLS", "not trusted"),
    "no TLS": (_server(lambda _pair: web_server(body=LOGIN_PAGE)), "TLS", "no TLS"),
    "clear text": (_clear_text, "server", "HTTP status 400"),
    "login page": (
        _server(lambda pair: web_server(body=LOGIN_PAGE, headers=_HTML, tls=pair)),
        "server",
        "not what a Kubernetes API server sends",
    ),
    "redirect": (
        _server(lambda pair: web_server(status=302, headers={"Location": "/login"}, tls=pair)),
        "server",
        "HTTP status 302",
    ),
    "rejected token": (
        _change(user_token="0123456789"),
        "credential",
        "does not accept the token in cloud-config: Unauthorized",
    ),
    "expired token": (
        _change(user_token=json_web_token({"exp": 1700000000})),
        "credential",
        "which expired on",
    ),
    "guest cluster": (_guest_cluster, "API versions", "not served"),
    "wrong namespace": (_change(context_namespace="default"), "loadbalancers", "cannot get: "),
}
"""How each cloud-config is broken, the row that fails, and a part of its detail."""
_UNVERIFIED: Final = {"cluster_insecure_skip_tls_verify": True, "cluster_certificate_authority_data": None}
WARNINGS: Final[dict[str, tuple[Breaking, str, str]]] = {
    "no namespace": (_change(context_namespace=None), "cloud-config", "names no namespace"),
    "no verification": (_change(**_UNVERIFIED), "TLS", "not verified"),
}
"""Questionable cloud-configs, as in ``FAULTS``."""
