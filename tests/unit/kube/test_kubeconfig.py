"""Several kubeconfigs read as one, as kubectl reads them, and the context that is asked for."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import yaml

from devenv.pki import Authority
from harvester_ccm.errors import CredentialError
from harvester_ccm.kube.client import ApiClient
from harvester_ccm.kube.credentials import load_in_cluster, load_kubeconfig
from harvester_ccm.kube.reload import CredentialReloader

Document = dict[str, Any]


def server(name: str, address: str, **more: str) -> Document:
    return {"name": name, "cluster": {"server": f"https://{address}:6443", **more}}


def user(name: str, token: str = "", **more: str) -> Document:
    return {"name": name, "user": ({"token": token} if token else {}) | more}


def context(name: str, cluster: str, user: str, **more: str) -> Document:
    return {"name": name, "context": {"cluster": cluster, "user": user, **more}}


def write(path: Path, current: str = "", **kinds: Sequence[Document]) -> Path:
    path.parent.mkdir(exist_ok=True)
    path.write_text(yaml.safe_dump({"kind": "Config", "current-context": current, **kinds}))
    return path


@pytest.fixture
def first(tmp_path: Path) -> Path:
    """Sets no current context, and knows the server and user that the second one knows otherwise."""
    return write(
        tmp_path / "first",
        clusters=[server("one", "192.0.2.1")],
        users=[user("me", "of-first")],
        contexts=[context("main", "one", "me", namespace="first")],
    )


@pytest.fixture
def second(tmp_path: Path) -> Path:
    return write(
        tmp_path / "second",
        "other",
        clusters=[server("one", "192.0.2.2", **{"tls-server-name": "of-second"}), server("two", "192.0.2.3")],
        users=[user("me", "of-second"), user("you", "yours")],
        contexts=[context("main", "two", "you"), context("other", "two", "me")],
    )


def test_first_file_with_a_name_holds_and_the_first_current_context(first: Path, second: Path, tmp_path: Path) -> None:
    third = write(tmp_path / "third", "main")

    found = load_kubeconfig([first, second, third])

    assert (found.server, found.token.get()) == ("https://192.0.2.3:6443", "of-first")
    assert found.origin == str(first)


def test_entry_of_the_first_file_holds_whole(first: Path, second: Path) -> None:
    found = load_kubeconfig([first, second], context="main")

    assert (found.server, found.token.get(), found.namespace) == ("https://192.0.2.1:6443", "of-first", "first")
    assert found.tls_server_name is None


def test_context_that_is_asked_for_goes_before_the_current_one(second: Path) -> None:
    assert load_kubeconfig(second).token.get() == "of-second"
    assert load_kubeconfig(second, context="main").token.get() == "yours"
    assert load_kubeconfig([second], context="main").server == "https://192.0.2.3:6443"


def test_files_are_looked_for_beside_the_one_that_names_them(tmp_path: Path) -> None:
    authority = Authority("test", tmp_path / "pki")
    servers = write(
        tmp_path / "servers" / "config",
        "main",
        clusters=[server("one", "192.0.2.1", **{"certificate-authority": "ca.crt"})],
        contexts=[context("main", "one", "me")],
    )
    users = write(tmp_path / "users" / "config", users=[user("me", tokenFile="token")])
    (servers.parent / "ca.crt").write_bytes(authority.ca_file.read_bytes())
    (users.parent / "token").write_text("beside")

    found = load_kubeconfig([servers, users])

    assert found.token.get() == "beside"
    assert tuple(found.files) == (servers, users, servers.parent / "ca.crt")


def test_files_that_are_missing_or_empty_are_left_out_unless_all_are(second: Path, tmp_path: Path) -> None:
    missing, empty = tmp_path / "missing", tmp_path / "empty"
    empty.touch()

    assert load_kubeconfig([missing, empty, second]).token.get() == "of-second"
    with pytest.raises(CredentialError, match="missing: No such file"):
        load_kubeconfig([missing, missing.with_name("other")])
    with pytest.raises(CredentialError, match="empty: current-context: not set"):
        load_kubeconfig([empty, missing])
    with pytest.raises(CredentialError, match="Is a directory"):
        load_kubeconfig([tmp_path, second])


def test_refusals_name_the_files(first: Path, second: Path) -> None:
    both = f"{first}:{second}"
    with pytest.raises(CredentialError) as caught:
        load_kubeconfig([first, second], context="gone")
    assert str(caught.value) == f"{both}: context 'gone' not found; available: main, other"
    with pytest.raises(CredentialError) as caught:
        load_kubeconfig([first, first])
    assert str(caught.value).startswith(f"{first}:{first}: current-context: not set")
    write(second, users=[user("you", username="me", password="hunter2")], contexts=[context("login", "one", "you")])
    with pytest.raises(CredentialError) as caught:
        load_kubeconfig([first, second], context="login")
    assert str(caught.value).startswith(f"{second}: user 'you': Object contains unknown field")


async def test_each_file_of_a_list_is_followed(first: Path, second: Path, tmp_path: Path) -> None:
    late = tmp_path / "late"
    load = partial(load_kubeconfig, [late, first, second])
    async with ApiClient(load(), cluster="guest") as client:
        reloader = CredentialReloader(client, load)
        write(first, users=[user("me", "changed")])
        await reloader.check()
        assert client.credentials.token.get() == "changed"
        write(late, users=[user("me", "late")])
        await reloader.check()
        assert client.credentials.token.get() == "late"


async def test_authority_of_a_pod_is_followed(tmp_path: Path) -> None:
    """The kubelet swaps a link when the authority is rotated, and leaves the token as it is."""
    authorities = [Authority(name, tmp_path / name) for name in ("old", "new")]
    mounted = tmp_path / "serviceaccount"
    mounted.mkdir()
    (mounted / "token").write_text("secret")
    (mounted / "ca.crt").symlink_to(authorities[0].ca_file)
    load = partial(load_in_cluster, {"KUBERNETES_SERVICE_HOST": "192.0.2.1", "KUBERNETES_SERVICE_PORT": "443"}, mounted)
    async with ApiClient(load(), cluster="guest") as client:
        reloader = CredentialReloader(client, load)
        before = client.credentials
        await reloader.check()
        assert client.credentials is before
        (mounted / "ca.crt").unlink()
        (mounted / "ca.crt").symlink_to(authorities[1].ca_file)
        await reloader.check()
        trusted = client.credentials.tls
    assert trusted is not None
    assert [one["subject"] for one in trusted.get_ca_certs()] == [((("commonName", "new"),),)]
