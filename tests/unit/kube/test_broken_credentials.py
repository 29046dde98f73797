"""Credential files that cannot be used: one line each, and a running program keeps what it has."""

from __future__ import annotations

import asyncio
import base64
import copy
import os
import re
import socket
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import yaml
from cryptography.hazmat.primitives import serialization
from structlog.testing import capture_logs

from devenv.pki import Authority
from harvester_ccm.errors import CredentialError
from harvester_ccm.kube import credential_files
from harvester_ccm.kube.client import ApiClient
from harvester_ccm.kube.credentials import Credentials, load_kubeconfig
from harvester_ccm.kube.reload import CredentialReloader

Document = dict[str, Any]
GOOD: Document = {
    "kind": "Config",
    "clusters": [{"name": "one", "cluster": {"server": "https://192.0.2.1:6443"}}],
    "users": [{"name": "me", "user": {"token": "good"}}],
    "contexts": [{"name": "main", "context": {"cluster": "one", "user": "me", "namespace": "vms"}}],
    "current-context": "main",
}


def written(document: Document) -> str:
    """Return a document as YAML."""
    return str(yaml.dump(document, Dumper=getattr(yaml, "CSafeDumper", yaml.SafeDumper)))


def encoded(text: bytes) -> str:
    return base64.b64encode(text).decode()


@pytest.fixture(autouse=True)
def in_this_thread(monkeypatch: pytest.MonkeyPatch) -> None:
    """Have files read here, without the five threads that each of a hundred tests would start."""

    async def called(work: Callable[..., object], *arguments: object) -> object:
        return work(*arguments)

    monkeypatch.setattr(asyncio, "to_thread", called)


@pytest.fixture(scope="module")
def pair(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """A client certificate, its key with a password, and the certificate of its authority."""
    authority = Authority("test", tmp_path_factory.mktemp("pki"))
    client = authority.issue_client("me", "me")
    key = serialization.load_pem_private_key(client.key.read_bytes(), password=None)
    locked = key.private_bytes(
        serialization.Encoding.PEM,
        serialization.PrivateFormat.PKCS8,
        serialization.BestAvailableEncryption(b"secret"),
    )
    return {
        "certificate": encoded(client.certificate.read_bytes()),
        "locked": encoded(locked),
        "authority": encoded(authority.ca_file.read_bytes()),
    }


TEXTS: dict[str, tuple[str, str]] = {
    "empty": ("", "current-context: not set"),
    "half of it": (written(GOOD)[:40], "current-context: not set"),
    "no YAML": ("a: [1\nb: 2\n", "not valid YAML at line 2"),
    "impossible date": ("kind: Config\nupdated: 2026-02-30T10:00:00Z\n", "not valid YAML"),
    "number without digits": ("a: 0x_\n", "not valid YAML"),
    "two documents": ("kind: Config\n---\nkind: Config\n", "not valid YAML"),
    "unknown tag": ("!!python/object:os.system {}", "not valid YAML"),
    "unknown alias": ("a: *b", "not valid YAML"),
    "nested too deep": ("[" * 2_000, "not valid YAML"),
    "plain text": ("token", "not a kubeconfig"),
    "list": ("- a", "not a kubeconfig"),
    "another kind": ("kind: Secret", "kind: Invalid enum value 'Secret'"),
    "encoded once more": (encoded(written(GOOD).encode()), "base64-encoded twice"),
}
"""Text of the file, and part of the error."""


def user(**fields: object) -> Callable[[Document, dict[str, str]], None]:
    """Return the change that gives the user these fields and no token; ``{…}`` in a text is of the pair."""

    def change(document: Document, pair: dict[str, str]) -> None:
        document["users"][0]["user"] = {
            key.replace("_", "-"): value.format(**pair) if isinstance(value, str) else value
            for key, value in fields.items()
        }

    return change


def cluster(**fields: object) -> Callable[[Document, dict[str, str]], None]:
    """Return the change that gives the cluster these fields."""

    def change(document: Document, pair: dict[str, str]) -> None:
        document["clusters"][0]["cluster"] |= {
            key.replace("_", "-"): value.format(**pair) if isinstance(value, str) else value
            for key, value in fields.items()
        }

    return change


def context(**fields: object) -> Callable[[Document, dict[str, str]], None]:
    """Return the change that gives the context these fields."""
    return lambda document, _pair: document["contexts"][0]["context"].update(fields)


PARTS: dict[str, tuple[Callable[[Document, dict[str, str]], None], str]] = {
    "clusters of no list": (
        lambda d, _: d.update(clusters={"one": {}}),
        "clusters: Expected `array | null`",
    ),
    "user of no mapping": (lambda d, _: d.update(users=[{"name": "me", "user": "x"}]), "user 'me': Expected `object`"),
    "no server": (cluster(server=""), "server: '' is not https://host:port"),
    "server without scheme": (cluster(server="192.0.2.1:6443"), "is not https://host:port"),
    "server with a login": (
        cluster(server="https://me:hunter2@192.0.2.1"),
        "'https://[removed]@192.0.2.1' is not",
    ),
    "proxy that is none": (cluster(proxy_url="socks5://proxy"), "not an http:// URL"),
    "authority of no base64": (
        cluster(certificate_authority_data="%%"),
        "expected a PEM certificate",
    ),
    "authority of no PEM": (
        cluster(certificate_authority_data="aGVsbG8="),
        "expected a PEM certificate",
    ),
    "authority that is away": (cluster(certificate_authority="ca.crt"), "No such file or directory"),
    "authority, and not verified": (
        cluster(certificate_authority_data="{authority}", insecure_skip_tls_verify=True),
        "insecure-skip-tls-verify: remove it or the certificate-authority",
    ),
    "nobody": (user(), "no credential"),
    "empty token": (user(token=""), "user 'me': no credential"),
    "blank token": (user(token=" \n"), "user 'me': token: expected one word of ASCII characters"),
    "number for a token": (user(token=1234), "user 'me': token: Expected `str | null`, got `int`"),
    "number for a certificate": (
        user(**{"client-certificate-data": 12, "client-key-data": 12}),
        "client-certificate-data: Expected `str | null`",
    ),
    "number for a token file": (user(tokenFile=12), "tokenFile: Expected `str | null`"),
    "plugin of no mapping": (user(exec="/bin/login"), "exec: Expected `object | null`"),
    "plugin without a version": (
        user(exec={"command": "login"}),
        "exec: Object missing required field `apiVersion`",
    ),
    "number for a namespace": (context(namespace=2024), "context 'main': namespace: Expected `str | null`"),
    "namespace that is a path": (
        context(namespace="../../nodes"),
        "namespace: Expected `str` matching",
    ),
    "number for an authority": (
        cluster(certificate_authority_data=12),
        "certificate-authority-data: Expected `str",
    ),
    "authority of bytes": (
        cluster(certificate_authority_data=b"ca"),
        "certificate-authority-data: Expected `str",
    ),
    "number for a proxy": (cluster(proxy_url=3128), "proxy-url: Expected `str | null`"),
    "word for skipping": (cluster(insecure_skip_tls_verify="true"), "skip-tls-verify: Expected `bool"),
    "zero in a file name": (cluster(certificate_authority="ca\0crt"), "embedded null byte"),
    "zero in a token file": (user(tokenFile="to\0ken"), "embedded null byte"),
    "server of a long word": (cluster(server=f"https://{'a' * 64}.example"), "is not https://host:port"),
    "server of an empty word": (cluster(server="https://a..b:6443"), "is not https://host:port"),
    "server of two lines": (cluster(server="https://192.0.2.1:6443\r\nHost: b"), "is not https://host:port"),
    "server that is a question": (cluster(server="https://192.0.2.1:6443/?a#b"), "is not https://host:port"),
    "server name of an empty word": (cluster(tls_server_name=".b"), "tls-server-name: not a valid host name"),
    "server name turned around": (cluster(tls_server_name="a\u202eb"), "tls-server-name: not a valid host name"),
    "proxy of a long word": (
        cluster(proxy_url=f"http://{'a' * 64}.example"),
        "not an http:// URL",
    ),
    "login beyond Latin": (cluster(proxy_url="http://\u4e2d:c@proxy"), "not an http:// URL"),
    "token of two lines": (user(token="one\ntwo"), "token: expected one word of ASCII characters"),
    "token with a control character": (user(token="one\x00two"), "token: expected one word of ASCII characters"),
    "token beyond ASCII": (user(token="t\u00f6ken"), "token: expected one word of ASCII characters"),
    "token file that is away": (user(tokenFile="token"), "No such file or directory"),
    "password": (user(token="good", username="me", password="hunter2"), "Object contains unknown field"),
    "old plugin": (user(**{"auth-provider": {"name": "gcp"}}), "Object contains unknown field `auth-provider`"),
    "somebody else": (user(token="good", **{"as": "admin"}), "Object contains unknown field `as`"),
    "groups of somebody else": (
        user(token="good", **{"as-groups": ["a"]}),
        "Object contains unknown field `as-groups`",
    ),
    "certificate without key": (
        user(client_certificate_data="{certificate}"),
        "no unencrypted PEM pair",
    ),
    "key with a password": (
        user(client_certificate_data="{certificate}", client_key_data="{locked}"),
        "no unencrypted PEM pair",
    ),
    "key of another pair": (
        user(client_certificate_data="{certificate}", client_key_data="{certificate}"),
        "no unencrypted PEM pair",
    ),
}
"""Change of a file that is in order, and what is said of it."""


@pytest.fixture(params=[*TEXTS, *PARTS])
def broken(request: pytest.FixtureRequest, pair: dict[str, str]) -> tuple[str, str]:
    """A file's text and what is said of it."""
    if request.param in TEXTS:
        return TEXTS[request.param]
    change, expected = PARTS[request.param]
    document = copy.deepcopy(GOOD)
    change(document, pair)
    return written(document), expected


def test_start_is_refused_with_one_line(broken: tuple[str, str], tmp_path: Path) -> None:
    text, expected = broken
    path = tmp_path / "kubeconfig"
    path.write_text(text)
    with pytest.raises(CredentialError) as caught:
        load_kubeconfig(path).token.get()
    assert str(caught.value).startswith(f"{tmp_path}/")
    assert expected in str(caught.value)
    assert "\n" not in str(caught.value)
    assert "hunter2" not in str(caught.value)


async def test_running_program_keeps_what_it_has(broken: tuple[str, str], tmp_path: Path) -> None:
    text, expected = broken
    path = tmp_path / "kubeconfig"
    path.write_text(written(GOOD))
    async with ApiClient(load_kubeconfig(path), cluster="harvester") as client:
        reloader = CredentialReloader(client, partial(load_kubeconfig, path))
        in_use = client.credentials
        path.write_text(text)
        with capture_logs() as logs:
            for _ in range(3):
                await reloader.check()
        assert client.credentials is in_use
    (line,) = (one for one in logs if one["log_level"] == "warning")
    assert expected in line["error"]


def socket_at(path: Path) -> None:
    with socket.socket(socket.AF_UNIX) as one:
        one.bind(str(path))


PLACES: dict[str, tuple[Callable[[Path], object], str]] = {
    "gone": (lambda path: None, "No such file or directory"),
    "directory": (Path.mkdir, "Is a directory"),
    "socket": (socket_at, "No such device or address"),
    "links in a circle": (lambda path: path.symlink_to(path), "Too many levels of symbolic links"),
    "link to nothing": (lambda path: path.symlink_to(path.with_name("nothing")), "No such file or directory"),
    "no text": (lambda path: path.write_bytes(b"\xff\xfe\x00"), "not valid YAML"),
    "zeros": (lambda path: path.write_bytes(bytes(1000)), "not valid YAML"),
}
"""What is there in the place of a file, and what is said of it."""


@pytest.mark.parametrize(("put", "expected"), PLACES.values(), ids=PLACES)
@pytest.mark.parametrize("which", ["kubeconfig", "token", "ca.crt"])
async def test_what_is_no_file_is_not_waited_for(
    put: Callable[[Path], object],
    expected: str,
    which: str,
    pair: dict[str, str],
    tmp_path: Path,
) -> None:
    if which != "kubeconfig" and "YAML" in expected:
        expected = {"token": "expected one word of ASCII", "ca.crt": "expected a PEM certificate"}[which]
    path, document = tmp_path / "kubeconfig", copy.deepcopy(GOOD)
    path.write_text(written(document))
    load = partial(load_kubeconfig, path)
    async with ApiClient(load(), cluster="harvester") as client:
        reloader = CredentialReloader(client, load)
        in_use = client.credentials
        document["users"][0]["user"] = {"tokenFile": "token"}
        document["clusters"][0]["cluster"]["certificate-authority"] = "ca.crt"
        path.write_text(written(document))
        (tmp_path / "token").write_text("good")
        (tmp_path / "ca.crt").write_bytes(base64.b64decode(pair["authority"]))
        (tmp_path / which).unlink()
        put(tmp_path / which)
        with capture_logs() as logs:
            for _ in range(3):
                await reloader.check()
        assert client.credentials is in_use
    (line,) = (one for one in logs if one["log_level"] == "warning")
    assert expected in line["error"]
    with pytest.raises(CredentialError, match=re.escape(expected)):
        load()


@pytest.mark.parametrize("put", [put for put, _ in PLACES.values()], ids=PLACES)
def test_what_cannot_be_read_is_closed(put: Callable[[Path], object], tmp_path: Path) -> None:
    path = tmp_path / "token"
    put(path)
    before = os.listdir("/proc/self/fd")
    for _ in range(50):
        with suppress(CredentialError):
            credential_files.read_bytes(path)
    assert len(os.listdir("/proc/self/fd")) == len(before)


def test_kubeconfig_can_come_through_a_pipe() -> None:
    output, into = os.pipe()
    os.write(into, written(GOOD).encode())
    os.close(into)
    try:
        assert load_kubeconfig(Path(f"/dev/fd/{output}")).server == "https://192.0.2.1:6443"
    finally:
        os.close(output)


def test_base64_may_be_broken_into_lines(tmp_path: Path, pair: dict[str, str]) -> None:
    path, document = tmp_path / "kubeconfig", copy.deepcopy(GOOD)
    lines = "\n".join(re.findall(".{1,64}", pair["authority"]))
    document["clusters"][0]["cluster"]["certificate-authority-data"] = lines
    path.write_text(written(document))
    tls = load_kubeconfig(path).tls
    assert tls is not None
    assert len(tls.get_ca_certs()) == 1


async def test_fault_that_nobody_thought_of_ends_nothing(tmp_path: Path) -> None:
    path = tmp_path / "kubeconfig"
    path.write_text(written(GOOD))

    def fail() -> Credentials:
        raise ZeroDivisionError

    async with ApiClient(load_kubeconfig(path), cluster="harvester") as client:
        reloader = CredentialReloader(client, fail)
        path.write_text("")
        await reloader.check()
    assert reloader.problem == f"{path}: ZeroDivisionError"
