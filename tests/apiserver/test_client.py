"""Requests to a real API server: paging, decoding, error classes, limits of time."""

import asyncio
import ssl
from collections.abc import Callable
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import msgspec
import pytest

from devenv.apiserver import ControlPlane
from devenv.faults import Answer, Cut, Drop, Hang
from devenv.pki import Authority
from devenv.proxy import FaultProxy
from harvester_ccm.kube.backoff import pause_after
from harvester_ccm.kube.builtin import NAMESPACES
from harvester_ccm.kube.client import ApiClient
from harvester_ccm.kube.credentials import load_credentials
from harvester_ccm.kube.errors import (
    AlreadyExists,
    CertificateNotValid,
    Conflict,
    ConnectionRefused,
    HostUnknown,
    KubeError,
    NotFound,
    NotTrusted,
    ProxyFailed,
    Unauthorized,
    UnexpectedAnswer,
    Unreachable,
)
from harvester_ccm.kube.objects import Object, Resource, decoder
from harvester_ccm.kube.tokens import TokenSource
from harvester_ccm.model.core import CONFIG_MAPS
from tests.support.waiting import wait_for

pytestmark = pytest.mark.apiserver

Put = Callable[..., None]


class Numbers(Object, frozen=True, kw_only=True):
    """A ConfigMap whose values must be numbers."""

    data: dict[str, int]


NUMBERS = Resource("", "v1", "configmaps", "ConfigMap", decoder(Numbers))


def config_map(name: str, version: str | None = None) -> dict[str, object]:
    meta = {"name": name, **({"resourceVersion": version} if version else {})}
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": meta}


async def test_list_is_read_in_pages(
    client: ApiClient, guest_proxy: FaultProxy, namespace: str, put_config_map: Put
) -> None:
    for number in range(5):
        put_config_map(f"cm-{number}")

    client.page_objects = 2
    page = await client.list(CONFIG_MAPS, namespace=namespace)

    assert [item.metadata.name for item in page.items] == [f"cm-{number}" for number in range(5)]
    assert int(page.resource_version) > 0
    assert [record.query.partition("&")[0] for record in guest_proxy.requests] == ["limit=2"] * 3


@pytest.mark.kube("An object that cannot be decoded hides no other one of its list")
async def test_object_that_cannot_be_decoded_is_skipped(client: ApiClient, namespace: str, put_config_map: Put) -> None:
    put_config_map("bad", size="many")
    put_config_map("good", size="3")

    page = await client.list(NUMBERS, namespace=namespace)

    assert [item.data for item in page.items] == [{"size": 3}]
    (unread,) = page.unread.values()
    assert (unread.key, bool(unread.uid)) == (f"{namespace}/bad", True)
    assert "$.data[...]" in unread.fault
    with pytest.raises(UnexpectedAnswer):
        await client.get(NUMBERS, "bad", namespace=namespace)


async def test_object_is_created_replaced_patched_and_deleted(client: ApiClient, namespace: str) -> None:
    created = await client.create(CONFIG_MAPS, config_map("cm"), namespace=namespace)
    document = config_map("cm", created.metadata.resource_version) | {"data": {"a": "1"}}
    replaced = await client.replace(CONFIG_MAPS, "cm", document, namespace=namespace)
    patched = await client.merge_patch(CONFIG_MAPS, "cm", {"data": {"b": "2"}}, namespace=namespace)

    assert (created.data, replaced.data, patched.data) == (None, {"a": "1"}, {"a": "1", "b": "2"})
    assert await client.get(CONFIG_MAPS, "cm", namespace=namespace) == patched
    await client.delete(CONFIG_MAPS, "cm", namespace=namespace, uid=created.metadata.uid)
    with pytest.raises(NotFound, match='configmaps "cm" not found'):
        await client.get(CONFIG_MAPS, "cm", namespace=namespace)


@pytest.mark.parametrize(("user_agent", "manager"), [("demo/1.2", "demo"), ("", "Python")])
async def test_api_server_records_the_program_as_the_manager_of_its_fields(
    admin_kubeconfig: Path, namespace: str, user_agent: str, manager: str
) -> None:
    credentials = replace(load_credentials(admin_kubeconfig), user_agent=user_agent)
    async with ApiClient(credentials, cluster="guest") as client:
        written = await client.create(CONFIG_MAPS.whole(), config_map("cm") | {"data": {"a": "1"}}, namespace=namespace)
    fields = msgspec.convert(written["metadata"], dict[str, Any])["managedFields"]
    assert [entry["manager"] for entry in fields] == [manager]


async def test_response_to_the_removal_of_the_last_finalizer_has_the_version_before(
    client: ApiClient, namespace: str
) -> None:
    document = config_map("cm") | {"metadata": {"name": "cm", "finalizers": ["example.com/kept"]}}
    created = await client.create(CONFIG_MAPS, document, namespace=namespace)
    await client.delete(CONFIG_MAPS, "cm", namespace=namespace, uid=created.metadata.uid)
    deleting = (await client.get(CONFIG_MAPS, "cm", namespace=namespace)).metadata

    last = await client.merge_patch(CONFIG_MAPS, "cm", {"metadata": {"finalizers": None}}, namespace=namespace)

    assert deleting.finalizers
    assert last.metadata == msgspec.structs.replace(deleting, finalizers=None)
    with pytest.raises(NotFound):
        await client.get(CONFIG_MAPS, "cm", namespace=namespace)


async def test_write_with_an_old_version_or_another_uid_is_a_conflict(
    client: ApiClient, namespace: str, put_config_map: Put
) -> None:
    put_config_map("cm")

    with pytest.raises(AlreadyExists):
        await client.create(CONFIG_MAPS, config_map("cm"), namespace=namespace)
    with pytest.raises(Conflict, match="object has been modified"):
        await client.replace(CONFIG_MAPS, "cm", config_map("cm", "1"), namespace=namespace)
    with pytest.raises(Conflict, match="UID"):
        await client.delete(CONFIG_MAPS, "cm", namespace=namespace, uid="another")


@pytest.mark.guarantee("Fields of other controllers survive")
async def test_write_for_another_object_with_the_name_changes_nothing(
    client: ApiClient, namespace: str, put_config_map: Put
) -> None:
    """An object with this name in another cluster has another UID."""
    put_config_map("cm")
    stored = await client.get(CONFIG_MAPS, "cm", namespace=namespace)
    other = {"uid": "8c2d7b1e-0000-4000-8000-000000000000"}
    body = {
        **config_map("cm"),
        "metadata": {"name": "cm", "resourceVersion": stored.metadata.resource_version, **other},
    }

    with pytest.raises(Conflict, match="UID"):
        await client.replace(CONFIG_MAPS, "cm", body, namespace=namespace)
    with pytest.raises(Conflict, match=r"metadata\.uid"):
        await client.merge_patch(CONFIG_MAPS, "cm", {"metadata": other, "data": {"b": "2"}}, namespace=namespace)
    assert await client.get(CONFIG_MAPS, "cm", namespace=namespace) == stored


class WrongToken(TokenSource):
    """A token that no server takes, and how often it was refused."""

    refusals = 0

    def forget(self) -> None:
        self.refusals += 1


async def test_wrong_token_is_unauthorized_and_forgotten(client: ApiClient) -> None:
    token = WrongToken("wrong")
    wrong = replace(client.credentials, token=token)
    await client.use(wrong)

    with pytest.raises(Unauthorized) as caught:
        await client.get(NAMESPACES, "default")
    assert token.refusals == 1
    assert str(caught.value) == f"{wrong.server} does not accept the token in {wrong.origin}: Unauthorized"


@pytest.mark.parametrize("body", [b"<html>log in</html>", b"[]", b"{", b'{"metadata":1}', b"\xff", b""])
async def test_response_that_is_not_of_an_api_server_is_an_error(
    client: ApiClient, guest_proxy: FaultProxy, body: bytes
) -> None:
    guest_proxy.inject(Answer(200, body=body))
    expected = f"{guest_proxy.url}: the answer is not what a Kubernetes API server sends \\(GET /api/v1/namespaces"

    with pytest.raises(UnexpectedAnswer, match=expected):
        await client.get(NAMESPACES, "default")
    with pytest.raises(UnexpectedAnswer, match=expected):
        await client.list(NAMESPACES)


async def test_html_error_page_is_not_an_api_error(client: ApiClient, guest_proxy: FaultProxy) -> None:
    guest_proxy.inject(Answer(503, body=b"<html>down for maintenance</html>", retry_after=30))

    with pytest.raises(UnexpectedAnswer, match=f"{guest_proxy.url}: HTTP status 503, with a page") as caught:
        await client.get(NAMESPACES, "default")
    assert pause_after(caught.value, failures=1) == 30


@pytest.mark.parametrize(
    ("fault", "error", "message"),
    [
        (None, ConnectionRefused, r"connection failed: Connection refused \(GET /api/v1/namespaces/default\)"),
        (Drop(), Unreachable, "connection broken: "),
        (Cut(after=10), Unreachable, "connection broken: "),
        ("https://harvester.invalid:6443", HostUnknown, "the host name cannot be resolved"),
    ],
)
@pytest.mark.kube("A failed request raises one error class by its meaning, and never an error of the HTTP library")
async def test_connection_error_has_its_reason(
    client: ApiClient, guest_proxy: FaultProxy, fault: Drop | Cut | str | None, error: type[KubeError], message: str
) -> None:
    url = guest_proxy.url
    match fault:
        case None:
            await guest_proxy.down()
        case str(url):
            await client.use(replace(client.credentials, server=url))
        case _:
            guest_proxy.inject(fault)

    with pytest.raises(error, match=f"{url}: {message}"):
        await client.get(NAMESPACES, "default")


@pytest.mark.parametrize("request_timeout", [0.2])
async def test_request_without_a_response_times_out(client: ApiClient, guest_proxy: FaultProxy) -> None:
    guest_proxy.inject(Hang())

    with pytest.raises(Unreachable, match=r"no answer within 0\.2 s \(GET /api/v1/namespaces/default\)"):
        await client.get(NAMESPACES, "default")
    with pytest.raises(Unreachable, match=r"no answer within 0\.2 s \(WATCH /api/v1/namespaces\)"):
        await anext(client.watch(NAMESPACES, params={}, silence=60))


@pytest.mark.parametrize(
    ("hosts", "valid_for", "trusted", "message"),
    [
        (["127.0.0.1"], timedelta(days=1), False, "self-signed certificate|unable to get local issuer certificate"),
        (["192.0.2.1"], timedelta(days=1), True, "IP address mismatch, certificate is not valid for '127.0.0.1'"),
        (["127.0.0.1"], timedelta(minutes=-1), True, "certificate has expired"),
    ],
    ids=["authority", "name", "expired"],
)
async def test_untrusted_certificate_is_an_error_with_its_reason(
    guest: ControlPlane,
    admin_kubeconfig: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    hosts: list[str],
    valid_for: timedelta,
    trusted: bool,
    message: str,
) -> None:
    authority = Authority("another authority", tmp_path)
    monkeypatch.setattr("devenv.pki.VALID_FOR", valid_for)
    async with FaultProxy(guest, serving=authority.issue_server("proxy", hosts)) as proxy:
        credentials = load_credentials(proxy.kubeconfig(admin_kubeconfig, tmp_path / "kubeconfig"))
        if trusted:
            credentials = replace(credentials, tls=ssl.create_default_context(cafile=authority.ca_file))
        async with ApiClient(credentials, cluster="guest") as client:
            with pytest.raises(NotTrusted, match=f"the server's certificate is not trusted: ({message})") as caught:
                await client.get(NAMESPACES, "default")
    assert isinstance(caught.value, CertificateNotValid) == ("expired" in message)


async def test_server_without_tls_and_refusing_proxy_are_errors(client: ApiClient) -> None:
    status = 400

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read(1)
        writer.write(f"HTTP/1.1 {status} No\r\n\r\n".encode())
        writer.close()

    async with await asyncio.start_server(answer, "127.0.0.1", 0) as server:
        address = f"127.0.0.1:{server.sockets[0].getsockname()[1]}"
        await client.use(replace(client.credentials, server=f"https://{address}"))
        with pytest.raises(NotTrusted, match="connection failed: no TLS with this server: wrong version number"):
            await client.get(NAMESPACES, "default")
        await client.use(replace(client.credentials, proxy=f"http://{address}"))
        refused = f"through the proxy http://{address}: it refused the connection: HTTP status 400"
        with pytest.raises(ProxyFailed, match=refused):
            await client.get(NAMESPACES, "default")
        status = 407
        with pytest.raises(ProxyFailed, match=f"{address}: it wants a user and a password: HTTP status 407"):
            await client.get(NAMESPACES, "default")

    with pytest.raises(ProxyFailed, match=f"through the proxy http://{address}: connection to it failed: Connection r"):
        await client.get(NAMESPACES, "default")
    await client.use(replace(client.credentials, proxy="http://me:secret@proxy.invalid:3128"))
    with pytest.raises(ProxyFailed, match=r"proxy http://proxy\.invalid:3128: the host name cannot be res"):
        await client.get(NAMESPACES, "default")


async def test_proxy_with_an_untrusted_certificate_gets_no_token(client: ApiClient, tmp_path: Path) -> None:
    pair = Authority("another authority", tmp_path).issue_server("proxy", ["127.0.0.1"])
    heard: list[bytes] = []

    async def listen(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        heard.append(await reader.read(1))
        writer.close()

    async with await asyncio.start_server(listen, "127.0.0.1", 0, ssl=pair.server_context()) as server:
        proxy = f"https://127.0.0.1:{server.sockets[0].getsockname()[1]}"
        await client.use(replace(client.credentials, server="http://192.0.2.1", tls=None, proxy=proxy))
        with pytest.raises(Unreachable):
            await client.get(NAMESPACES, "default")
    assert b"".join(heard) == b""


async def test_every_request_is_observed(guest_proxy: FaultProxy, admin_kubeconfig: Path, tmp_path: Path) -> None:
    seen: list[tuple[str, str, str, int]] = []
    path = guest_proxy.kubeconfig(admin_kubeconfig, tmp_path / "kubeconfig")
    credentials = load_credentials(path)
    async with ApiClient(credentials, cluster="c", observer=lambda *call: seen.append(call[:4])) as client:
        await client.get(NAMESPACES, "default")
        with pytest.raises(NotFound):
            await client.get(NAMESPACES, "absent")
        async for _ in client.watch(NAMESPACES, params={}, silence=5):
            break
        await guest_proxy.down()
        with pytest.raises(KubeError):
            await client.get(NAMESPACES, "default")

    all_of_them = "/api/v1/namespaces"
    one = f"{all_of_them}/default"
    assert seen == [
        ("c", "GET", one, 200),
        ("c", "GET", f"{all_of_them}/absent", 404),
        ("c", "WATCH", all_of_them, 200),
        ("c", "GET", one, 0),
    ]


async def test_requests_in_flight_fail_when_credentials_change(client: ApiClient, guest_proxy: FaultProxy) -> None:
    slow = guest_proxy.inject(Hang(), path="/kube-system$")
    waiting = [asyncio.ensure_future(client.get(NAMESPACES, "kube-system")) for _ in range(5)]
    await wait_for(lambda: slow.hits == len(waiting))
    busy = [asyncio.ensure_future(client.get(NAMESPACES, "default")) for _ in range(20)]
    await asyncio.sleep(0)

    await client.use(client.credentials)

    done, pending = await asyncio.wait([*waiting, *busy], timeout=30)
    assert not pending
    assert {type(task.exception()) for task in done} <= {Unreachable, type(None)}
    assert all(isinstance(task.exception(), Unreachable) for task in waiting)
    assert (await client.get(NAMESPACES, "default")).metadata.name == "default"
