"""Reading kubeconfigs and service accounts: every way they can be wrong has its sentence."""

from __future__ import annotations

import base64
import errno
import os
import ssl
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml

from devenv.pki import Authority
from harvester_ccm.errors import CredentialError
from harvester_ccm.kube.credentials import load_in_cluster, load_kubeconfig

Document = dict[str, Any]
Change = Callable[[Document], object]

SERVER = "https://192.0.2.1:6443"
POD = {"KUBERNETES_SERVICE_HOST": "10.43.0.1", "KUBERNETES_SERVICE_PORT": "443"}


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return Authority("test authority", tmp_path_factory.mktemp("pki"))


@pytest.fixture
def document(authority: Authority) -> Document:
    """A kubeconfig that is in order."""
    ca = base64.b64encode(authority.ca_file.read_bytes()).decode()
    return {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{"name": "one", "cluster": {"server": SERVER, "certificate-authority-data": ca}}],
        "users": [{"name": "me", "user": {"token": "secret"}}],
        "contexts": [{"name": "main", "context": {"cluster": "one", "user": "me", "namespace": "vms"}}],
        "current-context": "main",
    }


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "kubeconfig"


def cluster(document: Document) -> Document:
    part: Document = document["clusters"][0]["cluster"]
    return part


def user(document: Document) -> Document:
    part: Document = document["users"][0]["user"]
    return part


def context(document: Document) -> Document:
    part: Document = document["contexts"][0]["context"]
    return part


def sentence(path: Path) -> str:
    """Return what is said about a file that cannot be used, without its name."""
    with pytest.raises(CredentialError) as caught:
        load_kubeconfig(path, {})
    message = str(caught.value)
    assert message.startswith(f"{path}: ")
    return message.removeprefix(f"{path}: ")


def test_kubeconfig_that_is_in_order(document: Document, path: Path) -> None:
    path.write_text(yaml.safe_dump(document))

    found = load_kubeconfig(path, {})

    assert (found.server, found.namespace, found.token.get(), found.origin) == (SERVER, "vms", "secret", str(path))
    assert found.tls is not None
    assert found.tls.verify_mode is ssl.CERT_REQUIRED
    assert not found.tls.verify_flags & ssl.VERIFY_X509_STRICT
    assert (found.token.renewed, found.proxy, found.tls_server_name) == (False, None, None)
    assert "secret" not in repr(found)


def test_file_that_cannot_be_read(tmp_path: Path) -> None:
    assert sentence(tmp_path / "absent") == "No such file or directory"
    assert sentence(tmp_path) == "Is a directory"


def test_file_of_another_user(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> bytes:
        raise PermissionError(errno.EACCES, os.strerror(errno.EACCES))

    path.touch()
    monkeypatch.setattr(Path, "read_bytes", refuse)

    assert sentence(path) == "Permission denied"


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        (lambda d: d.pop("current-context"), "current-context: not set; name the context to use"),
        (lambda d: d.update({"current-context": "x"}), "context 'x' not found; available: main"),
        (lambda d: d.pop("contexts"), "context 'main' not found; available: none"),
        (lambda d: context(d).update(cluster="x"), "cluster 'x' not found; available: one"),
        (lambda d: context(d).update(user="x"), "user 'x' not found; available: me"),
        (lambda d: cluster(d).pop("server"), "cluster 'one': server: '' is not https://host:port"),
        (
            lambda d: cluster(d).update({"certificate-authority-data": "%%"}),
            "cluster 'one': certificate-authority: expected a PEM certificate",
        ),
        (
            lambda d: cluster(d).update({"certificate-authority-data": "aGVsbG8="}),
            "cluster 'one': certificate-authority: expected a PEM certificate",
        ),
        (
            lambda d: cluster(d).update({"certificate-authority-data": "IA=="}),
            "cluster 'one': certificate-authority: expected a PEM certificate",
        ),
        (
            lambda d: user(d).update({"client-certificate-data": "aGVsbG8="}),
            "user 'me': client-certificate, client-key: no unencrypted PEM pair",
        ),
        (
            lambda d: user(d).update({"client-key-data": "aGVsbG8="}),
            "user 'me': client-certificate, client-key: no unencrypted PEM pair",
        ),
        (
            lambda d: user(d).update({"client-certificate-data": "aGVsbG8=", "client-key-data": "aGVsbG8="}),
            "user 'me': client-certificate, client-key: no unencrypted PEM pair",
        ),
        (
            lambda d: cluster(d).update({"proxy-url": "socks5://me:hunter2@proxy"}),
            "cluster 'one': proxy-url, or the proxy of the environment: not an http:// URL",
        ),
    ],
)
def test_part_that_cannot_be_used_is_named(document: Document, path: Path, change: Change, expected: str) -> None:
    change(document)
    path.write_text(yaml.safe_dump(document))

    assert sentence(path) == expected


@pytest.mark.parametrize(
    "server", ["192.0.2.1:6443", "https://:6443", "ftp://host", "https://host:port", "https://[::1"]
)
def test_bad_server_address_is_shown(document: Document, path: Path, server: str) -> None:
    cluster(document)["server"] = server
    path.write_text(yaml.safe_dump(document))

    assert sentence(path) == f"cluster 'one': server: {server!r} is not https://host:port"


def test_optional_parts_of_a_cluster(document: Document, path: Path) -> None:
    cluster(document).pop("certificate-authority-data")
    cluster(document).update(
        {
            "server": "HTTPS://host/k8s/clusters/local/",
            "tls-server-name": "harvester",
            "insecure-skip-tls-verify": True,
            "proxy-url": "http://proxy:3128",
        }
    )
    context(document).pop("namespace")
    path.write_text(yaml.safe_dump(document))

    found = load_kubeconfig(path, {"HTTPS_PROXY": "http://other"})

    assert (found.server, found.tls_server_name) == ("HTTPS://host/k8s/clusters/local", "harvester")
    assert (found.proxy, found.namespace) == ("http://proxy:3128", "")
    assert found.tls is not None
    assert found.tls.verify_mode is ssl.CERT_NONE


def test_proxy_of_the_environment_is_used_where_the_file_names_none(document: Document, path: Path) -> None:
    path.write_text(yaml.safe_dump(document))

    assert load_kubeconfig(path, {"HTTPS_PROXY": "proxy:3128"}).proxy == "http://proxy:3128"
    assert load_kubeconfig(path, {"HTTPS_PROXY": "proxy:3128", "NO_PROXY": "192.0.2.0/24"}).proxy is None


def test_plain_http_and_no_user(document: Document, path: Path) -> None:
    cluster(document)["server"] = "http://192.0.2.1:8080"
    context(document).pop("user")
    path.write_text(yaml.safe_dump(document))

    found = load_kubeconfig(path, {})

    assert (found.tls, found.token.get()) == (None, None)


def test_files_are_found_beside_the_kubeconfig(document: Document, path: Path, authority: Authority) -> None:
    pair = authority.issue_client("me", "me")
    for source in (authority.ca_file, pair.certificate, pair.key):
        (path.parent / source.name).write_bytes(source.read_bytes())
    cluster(document).pop("certificate-authority-data")
    cluster(document)["certificate-authority"] = "ca.crt"
    document["users"][0]["user"] = {"client-certificate": "me.crt", "client-key": "me.key"}
    path.write_text(yaml.safe_dump(document))

    assert load_kubeconfig(path, {}).token.get() is None
    (path.parent / "me.key").unlink()
    with pytest.raises(CredentialError, match=r"me\.key: No such file"):
        load_kubeconfig(path, {})


def test_token_file_is_read_for_every_request(document: Document, path: Path) -> None:
    document["users"][0]["user"] = {"token": "fixed", "tokenFile": "token"}
    path.write_text(yaml.safe_dump(document))
    token_file = path.parent / "token"
    token_file.write_text("first\n")
    found = load_kubeconfig(path, {})
    assert found.token.get() == "first"
    token_file.write_text("second\n")
    assert found.token.get() == "second"
    token_file.unlink()
    with pytest.raises(CredentialError, match="token: No such file"):
        found.token.get()


def test_service_account_of_a_pod(tmp_path: Path, authority: Authority) -> None:
    (tmp_path / "token").write_text("secret")
    (tmp_path / "ca.crt").write_bytes(authority.ca_file.read_bytes())
    without_namespace = load_in_cluster(POD, tmp_path)
    (tmp_path / "namespace").write_text("kube-system\n")

    found = load_in_cluster(POD | {"KUBERNETES_SERVICE_HOST": "fd00::1"}, tmp_path)

    assert (without_namespace.server, without_namespace.namespace) == ("https://10.43.0.1:443", "")
    assert (found.server, found.namespace, found.token.get()) == ("https://[fd00::1]:443", "kube-system", "secret")
    assert found.origin == str(tmp_path)


def test_service_account_that_cannot_be_used(tmp_path: Path) -> None:
    with pytest.raises(CredentialError, match=r"not a pod; set --kubeconfig or KUBECONFIG"):
        load_in_cluster({}, tmp_path)
    with pytest.raises(CredentialError, match="token: No such file"):
        load_in_cluster(POD, tmp_path)
    (tmp_path / "token").write_text("secret")
    with pytest.raises(CredentialError, match=r"ca\.crt: No such file"):
        load_in_cluster(POD, tmp_path)
    (tmp_path / "ca.crt").write_text("")
    with pytest.raises(CredentialError, match=r"ca\.crt: expected a PEM certificate"):
        load_in_cluster(POD, tmp_path)
    (tmp_path / "ca.crt").write_text("nonsense")
    with pytest.raises(CredentialError, match=r"ca\.crt: expected a PEM certificate"):
        load_in_cluster(POD, tmp_path)


def test_server_that_master_names_is_verified(document: Document, path: Path) -> None:
    """A kubeconfig with http:// has no TLS of its own; a token must not go to whoever answers elsewhere."""
    cluster(document)["server"] = "http://127.0.0.1:8080"
    path.write_text(yaml.safe_dump(document))

    found = load_kubeconfig(path, {}, master="https://192.0.2.9:6443/")

    assert found.server == "https://192.0.2.9:6443"
    assert found.tls is not None
    assert found.tls.verify_mode is ssl.CERT_REQUIRED


def test_file_that_every_user_can_read_is_recognized(document: Document, path: Path) -> None:
    path.write_text(yaml.safe_dump(document))
    mounted = path.with_name("mounted")
    mounted.symlink_to(path)
    for mode, readable in ((0o600, False), (0o644, True)):
        path.chmod(mode)
        assert load_kubeconfig(path, {}).readable_by_all is readable
        assert not load_kubeconfig(mounted, {}).readable_by_all
