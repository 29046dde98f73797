"""Kubeconfigs and service accounts: what is read from them, and the error for each that is not usable."""

import base64
import copy
import os
import re
import ssl
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
import yaml
from cryptography.hazmat.primitives import serialization

from devenv.pki import Authority
from harvester_ccm.kube import credentials
from harvester_ccm.kube.client import ApiClient
from harvester_ccm.kube.connection import read_bytes
from harvester_ccm.kube.credentials import load_credentials
from harvester_ccm.kube.errors import CredentialError, NotInCluster
from tests.support.offline import json_web_token

Document = dict[str, Any]

SERVER = "https://192.0.2.1:6443"
POD = {"KUBERNETES_SERVICE_HOST": "10.43.0.1", "KUBERNETES_SERVICE_PORT": "443"}
GOOD: Document = {
    "kind": "Config",
    "clusters": [{"name": "one", "cluster": {"server": SERVER}}],
    "users": [{"name": "me", "user": {"token": "good"}}],
    "contexts": [{"name": "main", "context": {"cluster": "one", "user": "me", "namespace": "vms"}}],
    "current-context": "main",
}


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return Authority("test", tmp_path_factory.mktemp("pki"))


@pytest.fixture(scope="module")
def pair(authority: Authority) -> dict[str, str]:
    """A client certificate, its encrypted key, and the certificate of the authority, in base64."""
    client = authority.issue_client("me", "me")
    key = serialization.load_pem_private_key(client.key.read_bytes(), password=None)
    encryption = serialization.BestAvailableEncryption(b"secret")
    locked = key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, encryption)
    found = {
        "certificate": client.certificate.read_bytes(),
        "locked": locked,
        "authority": authority.ca_file.read_bytes(),
    }
    return {name: base64.b64encode(content).decode() for name, content in found.items()}


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "kubeconfig"


def written(change: Callable[[Document], object] = lambda _document: None) -> str:
    """Return a usable kubeconfig after a change, as YAML."""
    document = copy.deepcopy(GOOD)
    change(document)
    return yaml.safe_dump(document)


def cluster(**fields: object) -> Callable[[Document], object]:
    return lambda document: document["clusters"][0]["cluster"].update(kebab(fields))


def user(**fields: object) -> Callable[[Document], object]:
    """Return the change that gives the user these fields and no token."""
    return lambda document: document["users"][0].update(user=kebab(fields))


def context(**fields: object) -> Callable[[Document], object]:
    return lambda document: document["contexts"][0]["context"].update(fields)


def kebab(fields: Document) -> Document:
    return {key.replace("_", "-"): value for key, value in fields.items()}


TOKEN = "user 'me': token: expected one word of ASCII characters"
HOST = "is not https://host:port"
PEM = "cluster 'one': certificate-authority: expected a PEM certificate"
NO_PAIR = "user 'me': client-certificate, client-key: no unencrypted PEM pair"
BROKEN: dict[str, tuple[str | Callable[[Document], object], str]] = {
    "empty": ("", "empty; write the kubeconfig again"),
    "no context": (
        "kind: Config\nclusters: [{name: a, cluster: {server: https://a}}]",
        "current-context: not set; name",
    ),
    "no YAML": ("a: [1\nb: 2\n", "not valid YAML at line 2"),
    "number without digits": ("a: 0x_\n", "not valid YAML"),
    "null character": ("kind: Config\0", "not valid YAML"),
    "unknown alias": ("kind: *other", "not valid YAML"),
    "truth value of no word": ("a: !!bool x", "not valid YAML"),
    "unknown tag": ("!!python/object:os.system {}", "not valid YAML"),
    "nested too deep": ("[" * 2_000, "not valid YAML"),
    "another kind": ("kind: Secret", "kind: Invalid enum value 'Secret'"),
    "encoded twice": (base64.b64encode(written().encode()).decode(), "base64-encoded twice"),
    "unknown context": (lambda d: d.update({"current-context": "x"}), "context 'x' not found; available: main"),
    "clusters of no list": (lambda d: d.update(clusters={"one": {}}), "clusters: Expected `array | null`"),
    "user of no mapping": (lambda d: d.update(users=[{"name": "me", "user": "x"}]), "user 'me': Expected `object`"),
    "number for a namespace": (context(namespace=2024), "context 'main': namespace: Expected `str | null`"),
    "namespace that is a path": (context(namespace="../../nodes"), "namespace: Expected `str` matching"),
    "no server": (cluster(server=""), f"cluster 'one': server: '' {HOST}"),
    "server with another scheme": (cluster(server="ftp://host"), HOST),
    "server with a password": (cluster(server="https://me:hunter2@192.0.2.1"), "'https://[removed]@192.0.2.1' is not"),
    "server without host": (cluster(server="https://:6443"), HOST),
    "server with a port above the last": (cluster(server="https://192.0.2.1:65536"), HOST),
    "server with two lines": (cluster(server="https://192.0.2.1:6443\r\nHost: b"), HOST),
    "server with a query": (cluster(server="https://192.0.2.1:6443/?a#b"), HOST),
    "invalid server name": (cluster(tls_server_name="a\u202eb"), "tls-server-name: not a valid host name"),
    "proxy with another scheme": (cluster(proxy_url="socks5://me:hunter2@proxy"), "not an http:// URL"),
    "authority of no base64": (cluster(certificate_authority_data="%%"), PEM),
    "authority of a part of base64": (cluster(certificate_authority_data="A"), "authority-data: not valid base64"),
    "blank authority": (cluster(certificate_authority_data="IA=="), PEM),
    "missing authority file": (cluster(certificate_authority="ca.crt"), "No such file or directory"),
    "null character in a file name": (cluster(certificate_authority="ca\0crt"), "embedded null byte"),
    "no credential": (user(), "user 'me': no credential"),
    "blank token": (user(token=" \n"), TOKEN),
    "token beyond ASCII": (user(token="t\u00f6ken"), TOKEN),
    "missing token file": (user(tokenFile="token"), "No such file or directory"),
    "plugin without a version": (user(exec={"command": "login"}), "exec: Object missing required field `apiVersion`"),
    "password": (user(token="good", password="hunter2"), "Object contains unknown field"),
    "old plugin": (user(auth_provider={"name": "gcp"}), "Object contains unknown field `auth-provider`"),
    "impersonation": (user(token="good", **{"as": "admin"}), "Object contains unknown field `as`"),
    "certificate without key": (user(client_certificate_data="{certificate}"), NO_PAIR),
    "encrypted key": (user(client_certificate_data="{certificate}", client_key_data="{locked}"), NO_PAIR),
}
"""Text of the file, or change of a usable one, and part of the error; ``{…}`` is content of the fixture ``pair``."""


@pytest.mark.security("The controller rejects kubeconfig fields that would select another identity")
@pytest.mark.parametrize(("content", "expected"), BROKEN.values(), ids=BROKEN)
@pytest.mark.security("impersonation, passwords, `auth-provider` and empty tokens")
@pytest.mark.security("Whatever a kubeconfig contains, the error names the file")
@pytest.mark.kube("Any kubeconfig is loaded, or causes a CredentialError that names its file")
def test_error_of_an_unusable_kubeconfig_is_one_line_without_secrets(
    path: Path, pair: dict[str, str], content: str | Callable[[Document], object], expected: str
) -> None:
    text = content if isinstance(content, str) else written(content)
    for name, value in pair.items():
        text = text.replace(f"{{{name}}}", value)
    path.write_text(text)
    with pytest.raises(CredentialError) as caught:
        load_credentials(path, {}).token.get()
    assert str(caught.value).startswith(f"{path.parent}/")
    assert expected in str(caught.value)
    assert "\n" not in str(caught.value)
    assert "hunter2" not in str(caught.value)


@pytest.mark.parametrize(
    ("create", "expected"),
    [
        (lambda _path: None, "No such file or directory"),
        (Path.mkdir, "Is a directory"),
        (lambda path: path.symlink_to(path), "Too many levels of symbolic links"),
        (lambda path: path.write_bytes(bytes(1000)), "not valid YAML|one word of ASCII|a PEM certificate"),
    ],
    ids=["missing", "directory", "circular link", "zeros"],
)
@pytest.mark.parametrize("name", ["kubeconfig", "token", "ca.crt"])
def test_unusable_file_is_reported(
    path: Path, authority: Authority, name: str, create: Callable[[Path], object], expected: str
) -> None:
    path.write_text(written(lambda d: (user(tokenFile="token")(d), cluster(certificate_authority="ca.crt")(d))))
    path.with_name("token").write_text("good")
    path.with_name("ca.crt").write_bytes(authority.ca_file.read_bytes())
    path.with_name(name).unlink()
    create(path.with_name(name))
    with pytest.raises(CredentialError, match=expected):
        load_credentials(path, {})


def test_usable_kubeconfig(path: Path, pair: dict[str, str]) -> None:
    lines = "\n".join(re.findall(".{1,64}", pair["authority"]))
    change = cluster(certificate_authority_data=lines, certificate_authority="not-read", insecure_skip_tls_verify=True)
    path.write_text(written(change))

    found = load_credentials(path, {})

    assert (found.server, found.namespace, found.token.get(), found.origin) == (SERVER, "vms", "good", str(path))
    assert found.tls is not None
    assert len(found.tls.get_ca_certs()) == 1
    assert found.tls.verify_mode is ssl.CERT_REQUIRED
    assert not found.tls.verify_flags & ssl.VERIFY_X509_STRICT
    assert (found.proxy, found.tls_server_name) == (None, None)
    assert "good" not in repr(found)


def test_comments_of_an_authority_can_have_any_characters(path: Path, authority: Authority) -> None:
    """As in bundles of distributions, which Go clients accept."""
    path.with_name("ca.crt").write_bytes("# T\u00dcRKTRUST\n".encode() + authority.ca_file.read_bytes())
    path.write_text(written(cluster(certificate_authority="ca.crt")))
    assert load_credentials(path, {}).tls is not None


def test_kubeconfig_from_a_pipe() -> None:
    output, into = os.pipe()
    os.write(into, written().encode())
    os.close(into)
    try:
        assert load_credentials(Path(f"/dev/fd/{output}")).server == SERVER
    finally:
        os.close(output)


def test_optional_fields_of_a_cluster(path: Path) -> None:
    change = cluster(
        server="HTTPS://host/k8s/clusters/local/",
        tls_server_name="harvester",
        insecure_skip_tls_verify=True,
        proxy_url="http://proxy:3128",
    )
    path.write_text(written(change))

    found = load_credentials(path, {"HTTPS_PROXY": "http://other"})

    assert (found.server, found.tls_server_name) == ("HTTPS://host/k8s/clusters/local", "harvester")
    assert found.proxy == "http://proxy:3128"
    assert found.tls is not None
    assert found.tls.verify_mode is ssl.CERT_NONE


def test_proxy_of_the_environment_is_used_if_the_file_names_none(path: Path) -> None:
    path.write_text(written())

    assert load_credentials(path, {"HTTPS_PROXY": "proxy:3128"}).proxy == "http://proxy:3128"
    assert load_credentials(path, {"HTTPS_PROXY": "proxy:3128", "NO_PROXY": "192.0.2.0/24"}).proxy is None


def test_namespace_of_a_context_without_one_is_default(path: Path) -> None:
    path.write_text(written(context(namespace=None)))
    assert ApiClient(load_credentials(path), cluster="guest").namespace == "default"


def test_plain_http_without_a_user(path: Path) -> None:
    path.write_text(written(lambda d: (cluster(server="http://192.0.2.1")(d), context(user=None)(d))))
    found = load_credentials(path, {})
    assert (found.tls, found.token.get()) == (None, None)


def test_server_of_the_flag_master_is_verified(path: Path) -> None:
    """A kubeconfig with http:// has no TLS of its own, and the token must not be sent to an unverified server."""
    path.write_text(written(cluster(server="http://127.0.0.1:8080")))

    found = load_credentials(path, {}, master="https://192.0.2.9:6443/")

    assert found.server == "https://192.0.2.9:6443"
    assert found.tls is not None
    assert found.tls.verify_mode is ssl.CERT_REQUIRED


def test_certificate_files_next_to_the_kubeconfig(path: Path, authority: Authority) -> None:
    client = authority.issue_client("me", "me")
    for source in (authority.ca_file, client.certificate, client.key):
        path.with_name(source.name).write_bytes(source.read_bytes())
    change = user(client_certificate="me.crt", client_key="me.key")
    path.write_text(written(lambda d: (change(d), cluster(certificate_authority="ca.crt")(d))))

    found = load_credentials(path, {})
    assert (found.token.get(), found.expiry is None) == (None, False)
    path.with_name("me.key").unlink()
    with pytest.raises(CredentialError, match=r"me\.key: No such file"):
        load_credentials(path, {})


@pytest.mark.kube("Tokens and certificates that are replaced are used without a restart")
def test_certificate_file_is_read_once(path: Path, authority: Authority, monkeypatch: pytest.MonkeyPatch) -> None:
    """The file is compared with what was read: a second reading would hide a replacement between the two."""
    client = authority.issue_client("me", "me")
    for source in (client.certificate, client.key):
        path.with_name(source.name).write_bytes(source.read_bytes())
    path.write_text(written(user(client_certificate="me.crt", client_key="me.key")))
    read: list[str] = []

    def noted(file: Path) -> bytes:
        read.append(file.name)
        return read_bytes(file)

    monkeypatch.setattr(credentials, "read_bytes", noted)
    found = load_credentials(path, {})
    assert sorted(name for name in read if name.startswith("me.")) == ["me.crt", "me.key"]
    assert found.certificate == found.files[path.with_name("me.crt")]


@pytest.mark.kube("Tokens and certificates that are replaced are used without a restart")
def test_token_file_is_read_for_every_request(path: Path) -> None:
    path.write_text(written(user(token="fixed", tokenFile="token")))
    token_file = path.with_name("token")
    token_file.write_text("first\n")
    found = load_credentials(path, {})
    assert found.token.get() == "first"
    token_file.write_text("second\n")
    assert found.token.get() == "second"
    token_file.write_text(json_web_token({"exp": 1800000000}))
    assert found.expiry is None, "a file is rotated before its token expires"
    token_file.unlink()
    with pytest.raises(CredentialError, match="token: No such file"):
        found.token.get()


def test_service_account_of_a_pod(tmp_path: Path, authority: Authority, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(credentials, "SERVICE_ACCOUNT", tmp_path)
    with pytest.raises(NotInCluster, match="no kubeconfig was given and this is not a pod"):
        load_credentials((), {})
    with pytest.raises(CredentialError, match=r"ca\.crt: No such file"):
        load_credentials((), POD)
    (tmp_path / "ca.crt").write_text("")
    with pytest.raises(CredentialError, match=f"{tmp_path}: certificate-authority: expected a PEM certificate"):
        load_credentials((), POD)
    (tmp_path / "ca.crt").write_bytes(authority.ca_file.read_bytes())
    with pytest.raises(CredentialError, match="token: No such file"):
        load_credentials((), POD)
    (tmp_path / "token").write_text("secret")
    without_namespace = load_credentials((), POD)
    (tmp_path / "namespace").write_text("kube-system\n")

    found = load_credentials((), POD | {"KUBERNETES_SERVICE_HOST": "fd00::1"})

    assert (without_namespace.server, without_namespace.namespace) == ("https://10.43.0.1:443", "")
    assert (found.server, found.namespace, found.token.get()) == ("https://[fd00::1]:443", "kube-system", "secret")
    assert found.origin == str(tmp_path / "token")


def write(path: Path, current: str = "", **kinds: Sequence[Document]) -> Path:
    path.write_text(yaml.safe_dump({"kind": "Config", "current-context": current, **kinds}))
    return path


def server(name: str, address: str, **more: str) -> Document:
    return {"name": name, "cluster": {"server": f"https://{address}:6443", **more}}


@pytest.fixture
def first(tmp_path: Path) -> Path:
    """Has no current context; its cluster and user have other values in the second file."""
    return write(
        tmp_path / "first",
        clusters=[server("one", "192.0.2.1")],
        users=[{"name": "me", "user": {"token": "of-first"}}],
        contexts=[{"name": "main", "context": {"cluster": "one", "user": "me", "namespace": "first"}}],
    )


@pytest.fixture
def second(tmp_path: Path) -> Path:
    return write(
        tmp_path / "second",
        "other",
        clusters=[server("one", "192.0.2.2", **{"tls-server-name": "of-second"}), server("two", "192.0.2.3")],
        users=[{"name": "me", "user": {"token": "of-second"}}, {"name": "you", "user": {"token": "yours"}}],
        contexts=[
            {"name": "main", "context": {"cluster": "two", "user": "you"}},
            {"name": "other", "context": {"cluster": "two", "user": "me"}},
        ],
    )


def test_first_entry_of_a_name_wins_and_the_first_current_context(first: Path, second: Path, tmp_path: Path) -> None:
    third = write(tmp_path / "third", "main")
    found = load_credentials([first, second, third])
    assert (found.server, found.token.get(), found.origin) == ("https://192.0.2.3:6443", "of-first", str(first))

    named = load_credentials([first, second], context="main")
    assert (named.server, named.token.get(), named.namespace) == ("https://192.0.2.1:6443", "of-first", "first")
    assert named.tls_server_name is None
    assert load_credentials(second, context="main").token.get() == "yours"


def test_relative_path_starts_at_the_file_that_contains_it(tmp_path: Path, authority: Authority) -> None:
    for name in ("servers", "users"):
        (tmp_path / name).mkdir()
    servers = write(
        tmp_path / "servers" / "config",
        "main",
        clusters=[server("one", "192.0.2.1", **{"certificate-authority": "ca.crt"})],
        contexts=[{"name": "main", "context": {"cluster": "one", "user": "me"}}],
    )
    users = write(tmp_path / "users" / "config", users=[{"name": "me", "user": {"tokenFile": "token"}}])
    servers.with_name("ca.crt").write_bytes(authority.ca_file.read_bytes())
    users.with_name("token").write_text("good")

    found = load_credentials([servers, users])

    assert found.token.get() == "good"
    assert tuple(found.files) == (servers, users, servers.with_name("ca.crt"))


def test_missing_and_empty_files_of_a_list_are_skipped(first: Path, second: Path, tmp_path: Path) -> None:
    missing, empty = tmp_path / "missing", tmp_path / "empty"
    empty.touch()

    found = load_credentials([missing, empty, second])
    assert (found.token.get(), list(found.files)) == ("of-second", [missing, empty, second])
    with pytest.raises(CredentialError, match="missing: No such file"):
        load_credentials([missing, missing.with_name("other")])
    with pytest.raises(CredentialError, match="empty: empty; write"):
        load_credentials([empty, missing])
    with pytest.raises(CredentialError, match="Is a directory"):
        load_credentials([tmp_path, second])
    with pytest.raises(CredentialError, match=f"{first}:{second}: context 'gone' not found; available: main, other"):
        load_credentials([first, second], context="gone")
