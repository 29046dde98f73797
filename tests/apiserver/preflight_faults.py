"""Kubeconfigs for Harvester that do not work, and the row of ``preflight`` that reports each."""

import base64
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import Final, NamedTuple

import yaml

from devenv.kubeconfig import Endpoint, write_token_kubeconfig
from harvester_ccm.commands.clusters import GUEST, HARVESTER
from tests.apiserver.odd_servers import closed_port, web_server
from tests.apiserver.preflight_world import PreflightWorld, edited

LOGIN_PAGE: Final = b"<html><body>Please log in</body></html>"


class Bench(NamedTuple):
    """Where a broken kubeconfig is written."""

    world: PreflightWorld
    target: Path

    def edit(self, **changes: object) -> None:
        """Write the cloud-config of the product with some fields changed."""
        edited(self.world.cloud_config, self.target, **changes)


Breaking = Callable[[Bench], AbstractContextManager[None]]


def _change(**changes: object) -> Breaking:
    @contextmanager
    def breaking(bench: Bench) -> Iterator[None]:
        bench.edit(**changes)
        yield

    return breaking


@contextmanager
def _encoded(bench: Bench) -> Iterator[None]:
    bench.target.write_text(base64.b64encode(bench.world.cloud_config.read_bytes()).decode())
    yield


@contextmanager
def _closed_port(bench: Bench) -> Iterator[None]:
    with closed_port() as url:
        bench.edit(cluster_server=url)
        yield


@contextmanager
def _login_page(bench: Bench) -> Iterator[None]:
    """Lead to another server with the certificate of Harvester."""
    serving = bench.world.planes[HARVESTER].serving
    with web_server(body=LOGIN_PAGE, headers={"Content-Type": "text/html"}, tls=serving) as url:
        bench.edit(cluster_server=url)
        yield


@contextmanager
def _other_authority(bench: Bench) -> Iterator[None]:
    authority = bench.world.planes[GUEST].ca_file.read_bytes()
    bench.edit(cluster_certificate_authority_data=base64.b64encode(authority).decode())
    yield


@contextmanager
def _guest_cluster(bench: Bench) -> Iterator[None]:
    """The kubeconfig of a Node of the guest cluster, as an installation script that runs there would write it."""
    guest = bench.world.planes[GUEST]
    token = yaml.safe_load(bench.world.product[GUEST].read_text())["users"][0]["user"]["token"]
    write_token_kubeconfig(bench.target, Endpoint(guest.url, guest.ca_file), token=token, namespace="default")
    yield


@contextmanager
def _path_of_rancher(bench: Bench) -> Iterator[None]:
    bench.edit(cluster_server=f"{bench.world.planes[HARVESTER].url}/k8s/clusters/c-m-abc")
    yield


_PLUGIN: Final = {"apiVersion": "client.authentication.k8s.io/v1", "command": "no-such-plugin", "args": []}
FAULTS: Final[dict[str, tuple[Breaking, str, str]]] = {
    "base64": (_encoded, "cloud-config", "base64-encoded twice"),
    "plugin": (_change(user_token=None, user_exec=_PLUGIN), "credential", "no-such-plugin"),
    "closed port": (_closed_port, "server", "Connection refused"),
    "other authority": (_other_authority, "TLS", "not trusted"),
    "login page": (_login_page, "server", "not what a Kubernetes API server sends"),
    "path of another server": (_path_of_rancher, "server", 'cannot get path "/k8s/clusters/c-m-abc/'),
    "rejected token": (
        _change(user_token="0123456789"),
        "credential",
        "does not accept the token in cloud-config: Unauthorized",
    ),
    "guest cluster": (_guest_cluster, "API versions", "not served"),
    "wrong namespace": (_change(context_namespace="default"), "loadbalancers", "cannot get: "),
}
"""How each cloud-config is broken, the row that fails, and a part of its detail: one for each row.

``tests/unit/kube/test_credentials.py`` has the other kubeconfigs, ``test_client.py`` the other connections.
"""
_UNVERIFIED: Final = {"cluster_insecure_skip_tls_verify": True, "cluster_certificate_authority_data": None}
WARNINGS: Final[dict[str, tuple[Breaking, str, str]]] = {
    "no namespace": (_change(context_namespace=None), "cloud-config", "names no namespace"),
    "no verification": (_change(**_UNVERIFIED), "TLS", "not verified"),
}
"""Questionable cloud-configs, as in ``FAULTS``."""
