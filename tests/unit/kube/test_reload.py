"""When credentials are read again: what was changed, and what is refused."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import yaml
from structlog.testing import capture_logs

from devenv.pki import Authority
from harvester_ccm.kube.client import ApiClient
from harvester_ccm.kube.credentials import Credentials, load_in_cluster, load_kubeconfig
from harvester_ccm.kube.identity import ClusterReplaced
from harvester_ccm.kube.reload import CredentialReloader

Document = dict[str, Any]


class CountingClient(ApiClient):
    """Counts how often it is given other credentials."""

    reloads = 0

    async def use(self, credentials: Credentials) -> None:
        self.reloads += 1
        await super().use(credentials)


@dataclass
class Files:
    """A kubeconfig that names its certificates by file, and what they can be replaced with."""

    kubeconfig: Path
    document: Document
    authorities: tuple[Authority, Authority]

    @property
    def user(self) -> Document:
        user: Document = self.document["users"][0]["user"]
        return user

    @property
    def context(self) -> Document:
        context: Document = self.document["contexts"][0]["context"]
        return context

    def save(self) -> None:
        self.kubeconfig.write_text(yaml.safe_dump(self.document))

    def issue(self, number: int, *, certificate: bool = True) -> None:
        """Write the client's key and certificate of one authority."""
        client = self.authorities[number].issue_client("me", "me")
        (self.kubeconfig.parent / "me.key").write_bytes(client.key.read_bytes())
        if certificate:
            (self.kubeconfig.parent / "me.crt").write_bytes(client.certificate.read_bytes())

    def trust(self, number: int) -> None:
        """Write the certificate of one authority."""
        (self.kubeconfig.parent / "ca.crt").write_bytes(self.authorities[number].ca_file.read_bytes())


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


def issue_all(files: Files) -> None:
    files.trust(1)
    files.issue(1)


def issue_key_only(files: Files) -> None:
    files.issue(1, certificate=False)


def move(files: Files) -> None:
    files.context["namespace"] = "other"
    files.save()


def rewrite(files: Files) -> None:
    for path in (files.kubeconfig, files.kubeconfig.parent / "ca.crt"):
        replaced = path.with_name("replaced")
        replaced.write_bytes(path.read_bytes())
        replaced.rename(path)


def use_token(files: Files) -> None:
    files.user.clear()
    files.user["token"] = "new"
    files.save()


@pytest.mark.parametrize(
    ("change", "reloads", "problem"),
    [
        pytest.param(lambda files: None, 0, "", id="nothing"),
        pytest.param(rewrite, 0, "", id="files, not what is in them"),
        pytest.param(lambda files: files.trust(1), 1, "", id="certificate authority"),
        pytest.param(lambda files: files.issue(1), 1, "", id="client certificate and key"),
        pytest.param(issue_all, 1, "", id="all of them"),
        pytest.param(issue_key_only, 0, "no unencrypted PEM pair", id="key only, so far"),
        pytest.param(use_token, 1, "", id="kubeconfig"),
    ],
)
async def test_changed_file_is_taken_over_once(
    files: Files, change: Callable[[Files], None], reloads: int, problem: str
) -> None:
    async with CountingClient(load_kubeconfig(files.kubeconfig), cluster="guest") as client:
        reloader = CredentialReloader(client, partial(load_kubeconfig, files.kubeconfig))
        change(files)
        for _ in range(3):
            await reloader.check()
    assert client.reloads == reloads
    assert problem in reloader.problem
    assert bool(problem) == bool(reloader.problem)


def other_server(files: Files) -> None:
    files.document["clusters"][0]["cluster"]["server"] = "https://192.0.2.2"
    files.save()


@pytest.mark.parametrize(
    ("change", "message"), [(move, "vms to .* other"), (other_server, "192.0.2.1 .* to .*192.0.2.2")]
)
async def test_other_server_or_namespace_ends_the_process(
    files: Files, change: Callable[[Files], None], message: str
) -> None:
    async with CountingClient(load_kubeconfig(files.kubeconfig), cluster="harvester") as client:
        reloader = CredentialReloader(client, partial(load_kubeconfig, files.kubeconfig))
        change(files)
        with pytest.raises(ClusterReplaced, match=message):
            await reloader.check()
    assert client.reloads == 0


async def test_files_that_a_new_kubeconfig_names_are_followed(files: Files) -> None:
    user = dict(files.user)
    use_token(files)
    async with CountingClient(load_kubeconfig(files.kubeconfig), cluster="guest") as client:
        reloader = CredentialReloader(client, partial(load_kubeconfig, files.kubeconfig))
        files.user.clear()
        files.user.update(user)
        files.save()
        await reloader.check()
        files.issue(1)
        await reloader.check()
        await reloader.check()
    assert client.reloads == 2


@pytest.mark.parametrize("touched", [False, True])
async def test_file_that_is_unreadable_for_a_moment_is_not_reloaded(files: Files, touched: bool) -> None:
    away = files.kubeconfig.with_name("away")
    async with CountingClient(load_kubeconfig(files.kubeconfig), cluster="guest") as client:
        reloader = CredentialReloader(client, partial(load_kubeconfig, files.kubeconfig))
        files.kubeconfig.rename(away)
        await reloader.check()
        assert "No such file" in reloader.problem
        away.rename(files.kubeconfig)
        if touched:
            files.kubeconfig.touch()
        await reloader.check()
    assert reloader.problem == ""
    assert client.reloads == 0


async def test_file_that_is_named_now_and_changes_before_it_is_used_is_read_again(files: Files) -> None:
    user = dict(files.user)
    use_token(files)

    class SlowClient(CountingClient):
        async def use(self, credentials: Credentials) -> None:
            await super().use(credentials)
            if self.reloads == 1:
                files.issue(1)

    async with SlowClient(load_kubeconfig(files.kubeconfig), cluster="guest") as client:
        reloader = CredentialReloader(client, partial(load_kubeconfig, files.kubeconfig))
        files.user.clear()
        files.user.update(user)
        files.save()
        for _ in range(3):
            await reloader.check()
    assert client.reloads == 2


class ServiceAccount:
    """The volume of a service account as the kubelet publishes it: all files anew for each token."""

    def __init__(self, directory: Path, authority: Path) -> None:
        self.directory = directory
        self._count = 0
        self._files = {"ca.crt": authority.read_text(), "namespace": "kube-system"}
        directory.mkdir()
        self.publish()
        for name in ("ca.crt", "namespace", "token"):
            (directory / name).symlink_to(f"..data/{name}")

    def publish(self, authority: Path | None = None) -> None:
        """Write another token, and another authority where one is given."""
        self._count += 1
        if authority is not None:
            self._files["ca.crt"] = authority.read_text()
        target = self.directory / f"..{self._count}"
        target.mkdir()
        for name, text in {**self._files, "token": f"token-{self._count}"}.items():
            (target / name).write_text(text)
        link = self.directory / "..data_tmp"
        link.symlink_to(target.name)
        link.rename(self.directory / "..data")


async def test_new_token_of_a_pod_ends_no_connection(tmp_path: Path) -> None:
    first, second = (Authority(name, tmp_path / name).ca_file for name in ("first", "second"))
    account = ServiceAccount(tmp_path / "account", first)
    pod = {"KUBERNETES_SERVICE_HOST": "192.0.2.1", "KUBERNETES_SERVICE_PORT": "443"}
    load = partial(load_in_cluster, pod, account.directory)
    async with CountingClient(load(), cluster="guest") as client:
        reloader = CredentialReloader(client, load)
        for _ in range(3):
            account.publish()
            await reloader.check()
            await reloader.check()
        assert client.reloads == 0
        account.publish(second)
        await reloader.check()
        account.publish()
        await reloader.check()
    assert client.reloads == 1


async def test_what_changes_while_it_is_read_is_read_again(files: Files) -> None:
    user = dict(files.user)
    use_token(files)
    reads: list[Credentials] = []

    def load() -> Credentials:
        reads.append(load_kubeconfig(files.kubeconfig))
        if len(reads) == 1:
            files.issue(1)
        return reads[-1]

    async with CountingClient(load_kubeconfig(files.kubeconfig), cluster="guest") as client:
        reloader = CredentialReloader(client, load)
        files.user.clear()
        files.user.update(user)
        files.save()
        for _ in range(3):
            await reloader.check()
        assert client.credentials is reads[1]
    assert client.reloads == 2


async def test_a_fault_that_nobody_knows_is_told_by_its_kind(files: Files) -> None:
    def load() -> Credentials:
        raise RecursionError("so deep")

    async with CountingClient(load_kubeconfig(files.kubeconfig), cluster="guest") as client:
        reloader = CredentialReloader(client, load)
        use_token(files)
        await reloader.check()
    assert reloader.problem == f"{files.kubeconfig}: RecursionError"


@pytest.mark.parametrize("change", [lambda _files: None, rewrite], ids=["nothing", "files, not what is in them"])
async def test_files_that_stay_as_they_are_are_not_read_each_time(
    files: Files, change: Callable[[Files], None]
) -> None:
    loads: list[Credentials] = []

    def load() -> Credentials:
        loads.append(load_kubeconfig(files.kubeconfig))
        return loads[-1]

    async with CountingClient(load_kubeconfig(files.kubeconfig), cluster="guest") as client:
        reloader = CredentialReloader(client, load)
        change(files)
        await reloader.check()
        loads.clear()
        await reloader.check()
    assert loads == []


async def test_what_becomes_of_a_change_is_said_once(files: Files) -> None:
    good = files.kubeconfig.read_text()
    files.kubeconfig.chmod(0o600)
    async with CountingClient(load_kubeconfig(files.kubeconfig), cluster="guest") as client:
        reloader = CredentialReloader(client, partial(load_kubeconfig, files.kubeconfig))
        with capture_logs() as logs:
            for text in ("{", "{", "[]", good, good):
                files.kubeconfig.write_text(text)
                await reloader.check()
            files.document["clusters"][0]["cluster"] = {
                "server": "https://192.0.2.1",
                "insecure-skip-tls-verify": True,
            }
            for text in ("{", yaml.safe_dump(files.document)):
                files.kubeconfig.write_text(text)
                await reloader.check()
    assert [(one["event"], one["log_level"]) for one in logs] == [
        *[("credentials not reloaded", "warning")] * 2,
        ("credential files restored", "info"),
        ("credentials not reloaded", "warning"),
        ("credentials reloaded", "info"),
    ]
    assert "not valid YAML" in logs[0]["error"]
    assert {one["cluster"] for one in logs} == {"guest"}
    assert logs[4]["server"] == "https://192.0.2.1"
    assert reloader.problem == ""
