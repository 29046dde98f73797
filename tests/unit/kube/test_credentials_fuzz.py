"""Kubeconfigs, files that they name, and outputs of plugins with arbitrary contents: only CredentialError is raised."""

import asyncio
import json
import random
from pathlib import Path
from typing import Any, Final

import pytest
import yaml

from devenv.pki import Authority
from harvester_ccm.kube.credentials import load_credentials
from harvester_ccm.kube.errors import CredentialError
from harvester_ccm.kube.tokens import ExecToken, Plugin

CASES: Final = 400
"""Mutated documents."""
SCALARS: Final = (
    "!!timestamp x",
    "!!int ''",
    "!!bool x",
    "!!binary '=='",
    "!unknown x",
    "!!python/object/apply:os.getpid []",
    '"a\\udfffb"',
    '"\\0"',
    "*other",
    "{<<: [1]}",
    "2024-13-45",
    "1e999",
    "9" * 5000,
    "''",
    "[]",
    "{}",
    "https://[:::]",
    "https://x:99999",
    "a/" * 3000,
    "'a: b'",
    "-----BEGIN CERTIFICATE-----",
)
"""YAML that replaces a value."""
DOCUMENT: Final = """\
kind: Config
current-context: main
clusters:
- name: one
  cluster:
    server: https://192.0.2.1:6443
    certificate-authority-data: QQ==
    certificate-authority: ca.crt
    insecure-skip-tls-verify: true
    tls-server-name: name
    proxy-url: http://proxy:3128
users:
- name: me
  user:
    token: good
    extensions: []
    tokenFile: token
    client-certificate: me.crt
    client-certificate-data: QQ==
    client-key: me.key
    client-key-data: QQ==
    exec:
      apiVersion: client.authentication.k8s.io/v1
      command: "true"
      args: [a]
      env: [{name: a, value: b}]
      provideClusterInfo: true
contexts:
- name: main
  context:
    cluster: one
    user: me
    namespace: vms
"""
OPTIONAL: Final = (
    "certificate",
    "insecure",
    "tls-server",
    "proxy",
    "token",
    "client-",
    "exec",
    "apiVersion",
    "command",
)
"""Starts of lines that some documents lack."""


def mutated(chance: random.Random) -> str:
    """Return a kubeconfig with some other values, without some lines, and with some other characters."""
    lines = []
    for line in DOCUMENT.splitlines():
        key, colon, value = line.partition(": ")
        is_optional = line.strip().startswith(OPTIONAL)
        is_certificate = "certificate" in key or "client-key" in key
        if is_optional and chance.random() < (0.95 if is_certificate else 0.3):
            continue
        if colon and chance.random() < 0.05:
            value = chance.choice(SCALARS)
        if chance.random() < 0.01:
            key = f"{key[: len(key) - len(key.lstrip())]}{chance.choice(SCALARS)}"
        lines.append(f"{key}{colon}{value}")
    text = "\n".join(lines)
    for _ in range(chance.choice((0, 0, 0, 1, 3))):
        place = chance.randrange(len(text))
        text = text[:place] + chance.choice("\0\t:-[]{}&*!|>'\"%@`\x7f\U0001f600é") + text[place + 1 :]
    return text


def error_of(path: Path, environment: dict[str, str]) -> str:
    """Load a kubeconfig and return the error; empty if there is none. Other errors than CredentialError fail."""
    try:
        load_credentials(path, environment).token.get()
    except CredentialError as error:
        return str(error)
    except Exception as error:
        raise AssertionError(path.read_bytes()) from error
    return ""


@pytest.mark.security("the error names the file, and ends no running controller")
@pytest.mark.security("Whatever a kubeconfig")
@pytest.mark.kube("Any kubeconfig is loaded, or causes a CredentialError that names its file")
def test_any_kubeconfig_is_loaded_or_causes_a_credential_error_with_its_name(tmp_path: Path) -> None:
    chance = random.Random(1)
    path = tmp_path / "kubeconfig"
    (tmp_path / "token").write_bytes(chance.choice((b"good", b"\xff\xfe", b"")))
    (tmp_path / "ca.crt").write_bytes(chance.choice((b"\xff", b"-----BEGIN CERTIFICATE-----\nQQ==\n")))
    refused = 0
    for case in range(CASES):
        text = mutated(chance)
        path.write_bytes(text.encode("utf-8", "surrogatepass"))
        error = error_of(path, {"HTTPS_PROXY": "http://proxy:1", "NO_PROXY": "10.0.0.0/8"})
        refused += error != ""
        if error:
            assert error.startswith(str(tmp_path)), (case, text)
            assert "\n" not in error, (case, text)
            assert len(error) < 10_000, (case, text)
    assert 0 < refused < CASES


@pytest.fixture(scope="module")
def pair(tmp_path_factory: pytest.TempPathFactory) -> tuple[bytes, bytes]:
    """A certificate of an authority, and a client certificate with its key."""
    authority = Authority("test", tmp_path_factory.mktemp("pki"))
    client = authority.issue_client("me", "me")
    return authority.ca_file.read_bytes(), client.certificate.read_bytes() + client.key.read_bytes()


def with_certificates(path: Path, authority: bytes, client: bytes) -> Path:
    """Write a kubeconfig with these files."""
    (path.parent / "ca.crt").write_bytes(authority)
    (path.parent / "me.pem").write_bytes(client)
    document = yaml.safe_load(DOCUMENT)
    document["clusters"][0]["cluster"] = {"server": "https://192.0.2.1", "certificate-authority": "ca.crt"}
    document["users"][0]["user"] = {"client-certificate": "me.pem", "client-key": "me.pem"}
    path.write_text(yaml.safe_dump(document))
    return path


def test_comments_of_an_authority_can_have_any_characters(tmp_path: Path, pair: tuple[bytes, bytes]) -> None:
    """As in bundles of distributions, which Go clients accept."""
    authority, client = pair
    path = with_certificates(tmp_path / "kubeconfig", "# TÜRKTRUST\n".encode() + authority, client)
    assert error_of(path, {}) == ""


class PrintingPlugin(ExecToken):
    """A plugin with a fixed output."""

    def __init__(self, path: Path, output: bytes) -> None:
        super().__init__(path, Plugin("client.authentication.k8s.io/v1", "plugin"), {}, None)
        self.output = output

    def _output(self) -> bytes:
        return self.output


TIMES: Final[tuple[object, ...]] = (
    "0001-01-01T00:00:00Z",
    "0001-01-01T00:00:00+14:00",
    "9999-12-31T23:59:59-14:00",
    "2024-11-21",
    1e308,
    [],
)
VALUES: Final[tuple[object, ...]] = (None, "", "\0", "two words", "\ud800", "good", 0, 1e999, [], "\u202e")


async def check_fetch(plugin: PrintingPlugin) -> None:
    """Get a token. Every error but CredentialError fails the test."""
    error = ""
    try:
        await plugin.fetch()
    except CredentialError as refusal:
        error = str(refusal)
    except Exception as unexpected:
        raise AssertionError(repr(plugin.output[:500])) from unexpected
    assert error == "" or error.startswith("/etc/kubeconfig: ")
    assert "\n" not in error


@pytest.mark.security("the output of a credential plugin contains, the error names the file")
async def test_any_output_of_a_plugin_causes_no_other_error() -> None:
    chance = random.Random(1)
    for _ in range(500):
        status: Any = {
            key: chance.choice(values)
            for key, values in {
                "token": VALUES,
                "clientCertificateData": VALUES,
                "clientKeyData": VALUES,
                "expirationTimestamp": TIMES,
            }.items()
            if chance.random() < 0.5
        }
        output = bytearray(json.dumps({"status": chance.choice((status, status, status, [status]))}).encode())
        for _ in range(chance.choice((0, 0, 1, 4))):
            output[chance.randrange(len(output))] = chance.randrange(256)
        await check_fetch(PrintingPlugin(Path("/etc/kubeconfig"), bytes(output)))


async def test_zero_time_of_go_means_that_the_token_does_not_expire() -> None:
    """As in client-go, whose plugins print it for a token without an expiry."""
    plugin = PrintingPlugin(
        Path("/etc/kubeconfig"), b'{"status": {"token": "first", "expirationTimestamp": "0001-01-01T00:00:00Z"}}'
    )
    assert await plugin.fetch() == "first"
    plugin.output = b'{"status": {"token": "second"}}'
    await asyncio.sleep(0)
    assert await plugin.fetch() == "first"
