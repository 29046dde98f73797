"""Kubeconfigs that do not work, each broken in one way, and what preflight must find."""

from __future__ import annotations

import base64
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import msgspec
import yaml

from devenv.kubeconfig import Endpoint, write_token_kubeconfig
from tests.apiserver.odd_servers import closed_port, silent_server, web_server
from tests.apiserver.preflight_world import PreflightWorld, edited

LOGIN_PAGE: Final = b"<html><body>Please log in</body></html>"


@dataclass(frozen=True)
class Bench:
    """Where a broken kubeconfig is made."""

    scene: PreflightWorld
    target: Path
    """File to write."""

    def edit(self, **changes: object) -> None:
        """Write the product's cloud-config with some fields changed."""
        edited(self.scene.cloud_config, self.target, **changes)

    @contextmanager
    def leading_to(self, url: str) -> Iterator[None]:
        """Write the product's cloud-config with another server address."""
        self.edit(cluster_server=url)
        yield


@dataclass(frozen=True)
class Fault:
    """One way to break the cloud-config."""

    title: str
    breaking: Callable[[Bench], Iterator[None]]
    row: str
    """The check that finds it."""
    says: str
    """Part of what it says."""
    result: str = "failed"
    code: int = 1


def _text(text: str) -> Callable[[Bench], Iterator[None]]:
    def breaking(bench: Bench) -> Iterator[None]:
        bench.target.write_text(text)
        yield

    return breaking


def _changed(**changes: object) -> Callable[[Bench], Iterator[None]]:
    def breaking(bench: Bench) -> Iterator[None]:
        bench.edit(**changes)
        yield

    return breaking


def _missing_file(_bench: Bench) -> Iterator[None]:
    yield


def _directory(bench: Bench) -> Iterator[None]:
    bench.target.mkdir()
    yield
    bench.target.rmdir()


def _encoded_twice(bench: Bench) -> Iterator[None]:
    bench.target.write_text(base64.b64encode(bench.scene.cloud_config.read_bytes()).decode())
    yield


def _no_current_context(bench: Bench) -> Iterator[None]:
    document = yaml.safe_load(bench.scene.cloud_config.read_text())
    del document["current-context"]
    bench.target.write_text(yaml.safe_dump(document))
    yield


def _foreign_authority(bench: Bench) -> Iterator[None]:
    authority = base64.b64encode(bench.scene.guest.ca_file.read_bytes()).decode()
    bench.edit(cluster_certificate_authority_data=authority)
    yield


def _wrong_name(bench: Bench) -> Iterator[None]:
    authority = bench.scene.harvester._identities.authority
    pair = authority.issue_server("elsewhere", ["harvester.example"])
    with web_server(tls=pair) as url, bench.leading_to(url):
        yield


def _plain_server(bench: Bench) -> Iterator[None]:
    with web_server(body=LOGIN_PAGE) as url, bench.leading_to(url.replace("http:", "https:")):
        yield


def _login_page(bench: Bench) -> Iterator[None]:
    pair = bench.scene.harvester.serving
    with web_server(body=LOGIN_PAGE, headers={"Content-Type": "text/html"}, tls=pair) as url, bench.leading_to(url):
        yield


def _redirect(bench: Bench) -> Iterator[None]:
    pair = bench.scene.harvester.serving
    with web_server(status=302, headers={"Location": "/login"}, tls=pair) as url, bench.leading_to(url):
        yield


def _refused(bench: Bench) -> Iterator[None]:
    with closed_port() as url, bench.leading_to(url):
        yield


def _silent(bench: Bench) -> Iterator[None]:
    with silent_server() as url, bench.leading_to(url):
        yield


def _clear_text(bench: Bench) -> Iterator[None]:
    with bench.leading_to(bench.scene.harvester.url.replace("https:", "http:")):
        yield


def _other_cluster(bench: Bench) -> Iterator[None]:
    """The kubeconfig of a node of the guest, as an installation script run there would make it."""
    guest = bench.scene.guest
    token = yaml.safe_load(bench.scene.kubeconfig.read_text())["users"][0]["user"]["token"]
    endpoint = Endpoint(guest.url, guest.ca_file)
    write_token_kubeconfig(bench.target, endpoint, token=token, namespace="default")
    yield


def expired_token() -> str:
    """Return a web token that ended long ago; nobody has signed it."""
    parts: tuple[dict[str, object], ...] = ({"alg": "none"}, {"exp": 1700000000}, {})
    return ".".join(base64.urlsafe_b64encode(msgspec.json.encode(part)).decode().rstrip("=") for part in parts)


FAULTS: Final = (
    Fault("The file does not exist", _missing_file, "cloud-config", "No such file"),
    Fault("The path is a directory", _directory, "cloud-config", "Is a directory"),
    Fault("The file is empty", _text(""), "cloud-config", "current-context: not set"),
    Fault("The file is no YAML", _text("a: b: c"), "cloud-config", "not valid YAML"),
    Fault("The file was base64-encoded once too often", _encoded_twice, "cloud-config", "base64-encoded twice"),
    Fault(
        "The file holds something else",
        _text("kind: Secret\napiVersion: v1\n"),
        "cloud-config",
        "value 'Secret'",
    ),
    Fault("There is no current context", _no_current_context, "cloud-config", "current-context: not set"),
    Fault(
        "The context names a cluster that is not in the file",
        _changed(context_cluster="other"),
        "cloud-config",
        "cluster 'other' not found",
    ),
    Fault(
        "The server address has no scheme", _changed(cluster_server="10.0.0.5:6443"), "cloud-config", "10.0.0.5:6443"
    ),
    Fault(
        "The certificate authority is no certificate",
        _changed(cluster_certificate_authority_data=base64.b64encode(b"nonsense").decode()),
        "cloud-config",
        "expected a PEM certificate",
    ),
    Fault(
        "A credential plugin that is not installed",
        _changed(
            user_token=None,
            user_exec={"apiVersion": "client.authentication.k8s.io/v1", "command": "no-such-plugin", "args": []},
        ),
        "credential",
        "no-such-plugin",
    ),
    Fault(
        "A token file that does not exist",
        _changed(user_token=None, user_tokenFile="token"),
        "cloud-config",
        "No such file",
    ),
    Fault("Nobody listens at the address", _refused, "server", "Connection refused"),
    Fault(
        "The host name cannot be resolved",
        _changed(cluster_server="https://harvester.invalid:6443"),
        "server",
        "cannot be resolved",
    ),
    Fault("The server takes the connection and never answers", _silent, "server", "no answer within 10 s"),
    Fault("The certificate is of another authority", _foreign_authority, "TLS", "not trusted"),
    Fault("The certificate is for another host", _wrong_name, "TLS", "not trusted"),
    Fault("The server speaks no TLS", _plain_server, "TLS", "no TLS"),
    Fault("Not encrypted, and the server wants TLS", _clear_text, "server", "HTTP status 400"),
    Fault("A login page answers", _login_page, "server", "not what a Kubernetes API server sends"),
    Fault("A login page is where it redirects to", _redirect, "server", "HTTP status 302"),
    Fault(
        "The token is not accepted",
        _changed(user_token="0123456789"),
        "credential",
        "does not accept the token in cloud-config: Unauthorized",
    ),
    Fault("The token has expired", _changed(user_token=expired_token()), "credential", "which expired on"),
    Fault("There is no token", _changed(user_token=None), "cloud-config", "no credential"),
    Fault("It leads to the guest cluster itself", _other_cluster, "API versions", "not served"),
    Fault(
        "It leads to the right server, in the wrong namespace",
        _changed(context_namespace="default"),
        "loadbalancers",
        "may not do anything",
    ),
    Fault(
        "The context names no namespace",
        _changed(context_namespace=None),
        "cloud-config",
        "names no namespace",
        "warning",
    ),
    Fault(
        "The certificate is not verified",
        _changed(cluster_insecure_skip_tls_verify=True, cluster_certificate_authority_data=None),
        "TLS",
        "not verified",
        "warning",
        code=0,
    ),
)
