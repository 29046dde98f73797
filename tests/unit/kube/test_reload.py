"""Reload of credentials whose files changed."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import yaml
from structlog.testing import capture_logs

from devenv.pki import Authority
from harvester_ccm.kube import credentials
from harvester_ccm.kube.client import ApiClient
from harvester_ccm.kube.credentials import Credentials, load_credentials
from harvester_ccm.kube.errors import ClusterReplaced
from harvester_ccm.kube.reload import CredentialReloader

Document = dict[str, Any]


class CountingClient(ApiClient):
    """Counts how often it gets other credentials."""

    reloads = 0

    async def use(self, credentials: Credentials) -> None:
        self.reloads += 1
        await super().use(credentials)


@dataclass
class Files:
    """A kubeconfig that names its certificates by file, and the authorities of their replacements."""

    kubeconfig: Path
    document: Document
    authorities: tuple[Authority, Authority]

    def save(self) -> None:
        self.kubeconfig.write_text(yaml.safe_dump(self.document))

    def load(self) -> Credentials:
        return load_credentials(self.kubeconfig)

    def issue(self, number: int, *, certificate: bool = True) -> None:
        """Write the client's key and certificate of one authority."""
        client = self.authorities[number].issue_client("me", "me")
        (self.kubeconfig.parent / "me.key").write_bytes(client.key.read_bytes())
        if certificate:
            (self.kubeconfig.parent / "me.crt").write_bytes(client.certificate.read_bytes())

    def trust(self, number: int) -> None:
        (self.kubeconfig.parent / "ca.crt").write_bytes(self.authorities[number].ca_file.read_bytes())

    def use_token(self) -> None:
        """Replace the certificate of the user by a token."""
        self.document["users"][0]["user"] = {"token": "new"}
        self.save()


@pytest.fixture
def files(tmp_path: Path) -> Files:
    authorities = (Authority("first", tmp_path / "first"), Authority("second", tmp_path / "second"))
    document: Document = {
        "clusters": [{"name": "one", "cluster": {"server": "https://192.0.2.1", "certificate-authority": "ca.crt"}}],
        "users": [{"name": "me", "user": {"client-certificate": "me.crt", "client-key": "me.key"}}],
        "contexts": [{"name": "main", "context": {"cluster": "one", "user": "me", "namespace": "vms"}}],
        "current-context": "main",
    }
    files = Files(tmp_path / "kubeconfig", document, authorities)
    files.trust(0)
    files.issue(0)
    files.save()
    return files


def rewrite(files: Files) -> None:
    """Replace the files by copies with the same contents."""
    for path in (files.kubeconfig, files.kubeconfig.parent / "ca.crt"):
        replaced = path.with_name("replaced")
        replaced.write_bytes(path.read_bytes())
        replaced.rename(path)


@pytest.mark.parametrize(
    ("change", "loads", "reloads", "problem"),
    [
        pytest.param(lambda _files: None, 0, 0, "", id="nothing"),
        pytest.param(rewrite, 0, 0, "", id="files with the same contents"),
        pytest.param(lambda files: files.trust(1), 1, 1, "", id="certificate authority"),
        pytest.param(lambda files: files.issue(1), 1, 1, "", id="client certificate and key"),
        pytest.param(
            lambda files: files.issue(1, certificate=False),
            3,
            0,
            "no unencrypted PEM pair",
            id="key only",
        ),
        pytest.param(Files.use_token, 1, 1, "", id="kubeconfig"),
    ],
)
@pytest.mark.kube("Tokens and certificates that are replaced are used without a restart")
async def test_changed_contents_are_loaded_once(
    files: Files, change: Callable[[Files], object], loads: int, reloads: int, problem: str
) -> None:
    loaded = []

    def load() -> Credentials:
        loaded.append(True)
        return files.load()

    async with CountingClient(files.load(), cluster="guest") as client:
        reloader = CredentialReloader(client, load)
        change(files)
        for _ in range(3):
            await reloader.check()
    assert (len(loaded), client.reloads) == (loads, reloads)
    assert problem in reloader.problem
    assert bool(problem) == bool(reloader.problem)


@pytest.mark.parametrize(
    ("kind", "fields", "message"),
    [
        ("context", {"namespace": "other"}, "vms to .* other"),
        ("cluster", {"server": "https://192.0.2.2"}, "192.0.2.1 .* to .*192.0.2.2"),
    ],
)
@pytest.mark.kube("A credential that leads to another server, namespace or cluster raises ClusterReplaced")
async def test_other_server_or_namespace_ends_the_process(
    files: Files, kind: str, fields: Document, message: str
) -> None:
    async with CountingClient(files.load(), cluster="harvester") as client:
        reloader = CredentialReloader(client, files.load)
        files.document[f"{kind}s"][0][kind] |= fields
        files.save()
        with pytest.raises(ClusterReplaced, match=message):
            await reloader.check()
    assert client.reloads == 0


class ServiceAccount:
    """The volume of a service account as the kubelet publishes it: new files for each token."""

    def __init__(self, directory: Path, authority: Path) -> None:
        self.directory = directory
        self._count = 0
        directory.mkdir()
        self.publish(authority)
        for name in ("ca.crt", "namespace", "token"):
            (directory / name).symlink_to(f"..data/{name}")

    def publish(self, authority: Path) -> None:
        """Write another token."""
        self._count += 1
        target = self.directory / f"..{self._count}"
        target.mkdir()
        for name, text in {"ca.crt": authority.read_text(), "namespace": "a", "token": f"token-{self._count}"}.items():
            (target / name).write_text(text)
        link = self.directory / "..data_tmp"
        link.symlink_to(target.name)
        link.rename(self.directory / "..data")


async def test_new_token_of_a_pod_closes_no_connection_and_a_new_authority_does(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first, second = (Authority(name, tmp_path / name).ca_file for name in ("first", "second"))
    account = ServiceAccount(tmp_path / "account", first)
    pod = {"KUBERNETES_SERVICE_HOST": "192.0.2.1", "KUBERNETES_SERVICE_PORT": "443"}
    monkeypatch.setattr(credentials, "SERVICE_ACCOUNT", account.directory)
    load = partial(load_credentials, (), pod)
    async with CountingClient(load(), cluster="guest") as client:
        reloader = CredentialReloader(client, load)
        for authority, reloads in ((first, 0), (first, 0), (second, 1), (second, 1)):
            account.publish(authority)
            await reloader.check()
            assert client.reloads == reloads
        trusted = client.credentials.tls
    assert trusted is not None
    assert [one["subject"] for one in trusted.get_ca_certs()] == [((("commonName", "second"),),)]


@pytest.mark.security("when such a kubeconfig is loaded later")
async def test_new_kubeconfig_without_verification_of_the_server_is_warned_about(files: Files) -> None:
    async with CountingClient(files.load(), cluster="harvester") as client:
        reloader = CredentialReloader(client, files.load)
        cluster = files.document["clusters"][0]["cluster"]
        del cluster["certificate-authority"]
        cluster["insecure-skip-tls-verify"] = True
        files.save()
        with capture_logs() as logs:
            await reloader.check()
            await reloader.check()
    warnings = [one for one in logs if one["log_level"] == "warning"]
    assert [(one["event"], one["cluster"]) for one in warnings] == [("connection is not secure", "harvester")]


@pytest.mark.security("ends no running controller")
async def test_unexpected_error_is_a_problem_and_ends_nothing(files: Files) -> None:
    def load() -> Credentials:
        raise RecursionError("nested")

    async with CountingClient(files.load(), cluster="guest") as client:
        reloader = CredentialReloader(client, load)
        files.use_token()
        await reloader.check()
    assert reloader.problem == f"{files.kubeconfig}: RecursionError"


async def test_result_of_a_change_is_logged_once(files: Files) -> None:
    good = files.kubeconfig.read_text()
    async with CountingClient(files.load(), cluster="guest") as client:
        reloader = CredentialReloader(client, files.load)
        with capture_logs() as logs:
            files.kubeconfig.unlink()
            await reloader.check()
            for text in ("{", "{", "[]", good, good, "{"):
                files.kubeconfig.write_text(text)
                await reloader.check()
            files.use_token()
            await reloader.check()
    assert [(one["event"], one["log_level"]) for one in logs] == [
        *[("credentials not reloaded", "warning")] * 3,
        ("credential files restored", "info"),
        ("credentials not reloaded", "warning"),
        ("credentials reloaded", "info"),
    ]
    assert "No such file" in logs[0]["error"]
    assert "not valid YAML" in logs[1]["error"]
    assert {one["cluster"] for one in logs} == {"guest"}
    assert reloader.problem == ""
