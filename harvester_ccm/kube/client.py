"""Requests to one API server, typed by resource.

No method retries, sleeps or hides an error: a failed call raises one of ``harvester_ccm.errors`` and the caller
decides. Every call has a time limit. ``Retry-After`` is carried in the error. A watch yields until the
server ends it, raises ``Gone`` when the version is too old and ``WatchSilent`` when nothing came for too long.

Whatever changes something passes the client's ``WriteFence``, unless the resource says that it is not fenced: only what
every process may write at any time, the Lease itself, Events, and reviews of callers.

Every request carries an identifier in the header ``Audit-ID``, which the API server keeps as ``auditID`` in its audit
log; errors carry it as ``request_id``.
"""

from __future__ import annotations

import asyncio
import itertools
import secrets
import ssl
import weakref
from collections.abc import AsyncGenerator, Callable, Mapping
from contextlib import suppress
from datetime import UTC, datetime
from functools import partial
from typing import Final, Literal, Self, TypeVar, cast
from urllib.parse import urlencode

import aiohttp
import msgspec
import structlog

from harvester_ccm.errors import (
    UNREADABLE,
    AlreadyExists,
    AnswerTooLarge,
    ApiError,
    CCMError,
    RefusedCredential,
    Unauthorized,
    UnexpectedAnswer,
    Unreachable,
    error_from_response,
    is_of_something_else,
)
from harvester_ccm.kube.collection import (
    Page,
    Unread,
    WatchEvent,
    decode_event,
    decode_kind,
    decode_list,
    decode_version,
    nested,
    watch_lines,
)
from harvester_ccm.kube.credentials import Credentials
from harvester_ccm.kube.fence import WriteFence
from harvester_ccm.kube.flowcontrol import loop_time
from harvester_ccm.kube.session import connection_fault, open_session
from harvester_ccm.kube.tokens import token_account, why_refused
from harvester_ccm.model.meta import Resource

T = TypeVar("T")
V = TypeVar("V")

REQUEST_TIMEOUT: Final = 10.0
"""Seconds for one request, connection included."""
PAGE_OBJECTS: Final = 5000
"""Objects on a page of a list: few requests for thousands of Services."""
LIST_LIMIT: Final = 32 * 1024 * 1024
"""Largest page of a list that is accepted, in bytes; a larger one is requested again with a tenth of the objects."""
OBJECT_LIMIT: Final = 8 * 1024 * 1024
"""Largest other answer; etcd holds objects of 1.5 MiB."""
SLICE: Final = 100
"""Objects of a list that are decoded, or told of, at once, before everything else has its turn."""
ERROR_LIMIT: Final = 64 * 1024
"""So much of a refusal is read, in bytes."""

MERGE_PATCH: Final = "application/merge-patch+json"
STRATEGIC_PATCH: Final = "application/strategic-merge-patch+json"

Observer = Callable[[str, str, str, int, float], None]
"""Called with (cluster, verb, path, status, seconds) after every request; status 0 means no answer."""

_PROCESS: Final = secrets.token_hex(5)
_numbers = itertools.count(1)

log = structlog.get_logger(__name__)


class ApiClient:
    """One API server, one credential. Use as an async context manager."""

    def __init__(
        self,
        credentials: Credentials,
        *,
        cluster: str,
        observer: Observer | None = None,
        fence: WriteFence | None = None,
        patience: float = REQUEST_TIMEOUT,
        page_objects: int = PAGE_OBJECTS,
    ) -> None:
        """Build it; without ``fence`` it may write at any time. ``patience`` is in seconds, for one request."""
        self.cluster = cluster
        """What logs and metrics call this server."""
        self._fence = fence if fence is not None else WriteFence()
        self._credentials = credentials
        self._observer = observer
        self._patience = patience
        self._page_objects = page_objects
        self._certificate = 0
        self._closings = 0
        self._session: aiohttp.ClientSession | None = None
        self._responses: weakref.WeakSet[aiohttp.ClientResponse] = weakref.WeakSet()

    @property
    def credentials(self) -> Credentials:
        """The credentials in use."""
        return self._credentials

    @property
    def namespace(self) -> str:
        """Namespace of the credential's context; ``default`` when it names none."""
        return self._credentials.namespace or "default"

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_error: object) -> None:
        await self.close()

    async def close(self) -> None:
        """Close all connections. Running requests fail with Unreachable."""
        self._closings += 1
        # A closed session alone leaves those waiting who read from it.
        for response in list(self._responses):
            response.close()
        session, self._session = self._session, None
        if session is not None:
            await session.close()

    async def use(self, credentials: Credentials) -> None:
        """Switch to other credentials; running watches end and their informers come back with the new ones."""
        self._certificate = 0
        self._credentials = credentials
        await self.close()

    async def get(
        self, resource: Resource[T], name: str, *, namespace: str | None = None, subresource: str | None = None
    ) -> T:
        """Return one object. Raises NotFound and the other errors of ``harvester_ccm.errors``."""
        return await self._ask(resource, "GET", resource.path(namespace, name, subresource))

    async def list(
        self, resource: Resource[T], *, namespace: str | None = None, params: Mapping[str, str] | None = None
    ) -> Page[T]:
        """Return all objects, read in pages from one consistent version; objects that do not decode are left out."""
        items: list[T] = []
        unread: set[str] = set()
        limit, query = self._page_objects, dict(params or {})
        path = resource.path(namespace)
        while True:
            try:
                answer = await self.request("GET", path, params={"limit": str(limit), **query})
            except AnswerTooLarge:
                if limit == 1:
                    raise
                limit = max(limit // 10, 1)
                continue
            page = self._read(decode_list, answer, f"GET {path}")
            for number, raw in enumerate(page.items or ()):
                if number and number % SLICE == 0:
                    await asyncio.sleep(0)
                item = self._decode(resource, raw)
                if isinstance(item, Unread):
                    unread.add(item.key)
                else:
                    items.append(item)
            if not page.metadata.continue_:
                return Page(tuple(items), page.metadata.resource_version, frozenset(unread))
            query["continue"] = page.metadata.continue_

    async def create(self, resource: Resource[T], body: Mapping[str, object], *, namespace: str | None = None) -> T:
        """Create an object and return it as stored. Raises AlreadyExists, AdmissionDenied, Invalid, …."""
        return await self._ask(resource, "POST", resource.path(namespace), body)

    async def check_creation(
        self, resource: Resource[T], body: Mapping[str, object], *, namespace: str | None = None
    ) -> None:
        """Send an object as a dry run, which creates nothing. Raises the error with which it would be rejected.

        An object of this name may exist: the API server looks for the name after the admission.
        """
        with suppress(AlreadyExists):
            await self.request("POST", resource.path(namespace), params={"dryRun": "All"}, body=body)

    async def replace(
        self, resource: Resource[T], name: str, body: Mapping[str, object], *, namespace: str | None = None
    ) -> T:
        """Write a whole object back; raises Conflict if ``metadata.resourceVersion`` in it is not the stored one."""
        return await self._ask(resource, "PUT", resource.path(namespace, name), body)

    async def merge_patch(
        self,
        resource: Resource[T],
        name: str,
        body: Mapping[str, object],
        *,
        namespace: str | None = None,
        subresource: str | None = None,
        content_type: str = MERGE_PATCH,
    ) -> T:
        """Change only the named fields (RFC 7386); a ``resourceVersion`` in the body makes it conditional.

        By a ``STRATEGIC_PATCH``, for built-in types, of lists that belong to many only the named entries are changed.
        """
        path = resource.path(namespace, name, subresource)
        return await self._ask(resource, "PATCH", path, body, content_type=content_type)

    async def delete(
        self,
        resource: Resource[T],
        name: str,
        *,
        namespace: str | None = None,
        uid: str = "",
        version: str = "",
    ) -> T | None:
        """Delete an object; return it if it stays until its finalizers are removed. Raises NotFound if it is gone.

        With ``uid`` only the object with this UID is deleted, and with ``version`` only in this version: raises
        Conflict otherwise.
        """
        preconditions = {key: value for key, value in (("uid", uid), ("resourceVersion", version)) if value}
        body = {"apiVersion": "v1", "kind": "DeleteOptions", "preconditions": preconditions} if preconditions else None
        path = resource.path(namespace, name)
        answer, request = await self.request("DELETE", path, body=body), f"DELETE {path}"
        is_gone = self._read(decode_kind, answer, request).kind == "Status"
        return None if is_gone else self._read(resource.decode, answer, request)

    async def watch(
        self, resource: Resource[T], *, namespace: str | None = None, params: Mapping[str, str], silence: float
    ) -> AsyncGenerator[WatchEvent[T], None]:
        """Yield changes after ``params["resourceVersion"]`` until the server ends the watch.

        The first element is a bookmark without a version: the server has accepted the watch.
        ``silence`` is the longest time in seconds without any line before the watch counts as dead.
        """
        query = {**params, "watch": "1", "allowWatchBookmarks": "true"}
        path, request_id, opened_in = resource.path(namespace), _next_request_id(), self._closings
        try:
            async with asyncio.timeout(self._patience):
                answer = await self._send("GET", path, query, None, request_id=request_id)
            async with answer as response:
                yield WatchEvent("BOOKMARK", None, "")
                async for line in watch_lines(response.content, silence):
                    yield self._event(resource, line)
        except (aiohttp.ClientError, ConnectionError, ssl.SSLError, TimeoutError) as error:
            # One that we have ended ourselves has ended; it is no fault of the server.
            if opened_in == self._closings:
                raise self._unreachable(f"WATCH {path}", error, request_id) from error

    async def _ask(
        self, resource: Resource[T], method: str, path: str, body: object = None, *, content_type: str = ""
    ) -> T:
        answer = await self.request(method, path, body=body, fenced=resource.fenced, content_type=content_type)
        return self._read(resource.decode, answer, f"{method} {path}")

    async def request(
        self,
        method: str,
        path: str,
        *,
        params: Mapping[str, str] | None = None,
        body: object = None,
        fenced: bool = True,
        content_type: str = "",
    ) -> bytes:
        """Send one request and return the body of a 2xx answer; a PATCH is a merge patch. Raises NotLeading, too.

        ``fenced`` is False for the few writes that need no Lease.
        """
        data = None if body is None else msgspec.json.encode(body)
        exchange = partial(self._exchange, method, path, params=params, data=data, content_type=content_type)
        if method == "GET" or not fenced:
            return await exchange()
        return await self._fence.send(exchange, f"{method} {path}")

    async def read(self, path: str, decode: Callable[[bytes], V]) -> V:
        """Return what stands under a path that is no resource's. Raises UnexpectedAnswer where it cannot be decoded."""
        body = await self.request("GET", path)
        try:
            return decode(body)
        except msgspec.MsgspecError as error:
            raise UnexpectedAnswer(f"the answer is not what a Kubernetes API server sends (GET {path})") from error

    async def _exchange(
        self, method: str, path: str, *, params: Mapping[str, str] | None, data: bytes | None, content_type: str
    ) -> bytes:
        is_list = params is not None and "limit" in params
        request_id = _next_request_id()
        try:
            async with (
                asyncio.timeout(self._patience),
                await self._send(
                    method, path, params, data, request_id=request_id, content_type=content_type
                ) as response,
            ):
                return await self._body(response, f"{method} {path}", LIST_LIMIT if is_list else OBJECT_LIMIT)
        except (aiohttp.ClientError, ConnectionError, ssl.SSLError, TimeoutError) as error:
            raise self._unreachable(f"{method} {path}", error, request_id) from error

    async def _body(self, response: aiohttp.ClientResponse, request: str, limit: int) -> bytes:
        """Return a body; what never ends must not fill the memory."""
        body = bytearray()
        async for piece in response.content.iter_any():
            body += piece
            if len(body) > limit:
                response.close()
                raise AnswerTooLarge(
                    f"{self._credentials.server}: the answer is larger than {limit // 2**20} MiB ({request}); "
                    "check the server address and what stands in between"
                )
        return bytes(body)

    async def _send(
        self,
        method: str,
        path: str,
        params: Mapping[str, str] | None,
        data: bytes | None,
        *,
        request_id: str,
        content_type: str = "",
    ) -> aiohttp.ClientResponse:
        """Return the open response of an accepted request; raise the API's error otherwise."""
        started = loop_time()
        status = 0
        try:
            credentials, headers = await self._authorize()
            headers["Audit-ID"] = request_id
            if data is not None:
                usual = MERGE_PATCH if method == "PATCH" else "application/json"
                headers["Content-Type"] = content_type or usual
            if self._session is None:
                self._session = open_session(self._credentials.tls)
            response = await self._session.request(
                method,
                credentials.server + path + (f"?{urlencode(params)}" if params else ""),
                data=data,
                headers=headers,
                server_hostname=credentials.tls_server_name,
                proxy=credentials.proxy,
                allow_redirects=False,
            )
            self._responses.add(response)
            status = response.status
            if status < 300:
                return response
            async with response:
                token = headers.get("Authorization", "").removeprefix("Bearer ")
                raise await self._refusal(response, f"{method} {path}", request_id, token)
        except Unauthorized:
            credentials.token.forget()
            raise
        finally:
            if self._observer is not None:
                verb = "WATCH" if params and "watch" in params else method
                self._observer(self.cluster, verb, path, status, loop_time() - started)

    async def _authorize(self) -> tuple[Credentials, dict[str, str]]:
        """Return the credentials in use and the headers that show them."""
        while True:
            credentials = self._credentials
            token = await credentials.token.fetch()
            before, self._certificate = self._certificate, credentials.token.certificates
            if before not in (0, self._certificate):
                # Connections that were opened with another client certificate.
                await self.close()
            # A token must not go to another server than its own when they were switched meanwhile.
            if credentials is self._credentials:
                return credentials, {"Authorization": f"Bearer {token}"} if token else {}

    def _event(self, resource: Resource[T], line: bytes) -> WatchEvent[T]:
        request = f"WATCH {resource.path()}"
        event = self._read(decode_event, line, request)
        if event.type == "ERROR":
            raise self._read(lambda status: _error_of_watch(status, request), bytes(event.object), request)
        version = self._read(decode_version, bytes(event.object), request).metadata.resource_version
        if event.type == "BOOKMARK":
            return WatchEvent("BOOKMARK", None, version)
        change = cast("Literal['ADDED', 'MODIFIED', 'DELETED']", event.type)
        item = self._decode(resource, event.object)
        if isinstance(item, Unread):
            return WatchEvent(change, None, version, item.key)
        return WatchEvent(change, item, version)

    def _read(self, decode: Callable[[bytes], V], body: bytes, request: str) -> V:
        try:
            return nested(decode, body)
        except UNREADABLE as error:
            raise self._unexpected(request, "the answer") from error

    def _unexpected(self, request: str, what: str) -> UnexpectedAnswer:
        return UnexpectedAnswer(
            f"{self._credentials.server}: {what} is not what a Kubernetes API server sends ({request}); check the "
            "server address and what stands in between"
        )

    def _decode(self, resource: Resource[T], raw: msgspec.Raw) -> T | Unread:
        try:
            return nested(resource.decode, bytes(raw))
        except UNREADABLE as error:
            # One object in a shape nobody expects must not hide the others.
            meta = self._read(decode_version, bytes(raw), f"GET {resource.path()}").metadata
            name = f"{meta.namespace}/{meta.name}".strip("/")
            say = log.debug if resource.strangers else log.warning
            say("object skipped", collection=f"{self.cluster}/{resource.plural}", name=name, error=str(error))
            return Unread(name)

    def _unreachable(self, request: str, error: Exception, request_id: str) -> Unreachable:
        kind, detail = connection_fault(error, limit=self._patience)
        log.debug("request failed", cluster=self.cluster, request=request, detail=detail, request_id=request_id)
        unreachable = kind(f"{self._credentials.server}: {detail} ({request})")
        unreachable.request_id, unreachable.cluster = request_id, self.cluster
        return unreachable

    async def _refusal(self, response: aiohttp.ClientResponse, request: str, request_id: str, token: str) -> CCMError:
        body = bytearray()
        async for piece in response.content.iter_any():
            body += piece
            if len(body) > ERROR_LIMIT:
                break
        status, retry_after = response.status, response.headers.get("Retry-After")
        log.debug("request refused", cluster=self.cluster, request=request, status=status, request_id=request_id)
        error: CCMError = error_from_response(status=status, body=bytes(body), request=request, retry_after=retry_after)
        if is_of_something_else(status, bytes(body)):
            asked_for = error.retry_after
            error = self._unexpected(request, f"HTTP status {status}, with a page or a way to one,")
            error.retry_after = asked_for
        elif isinstance(error, Unauthorized):
            error = Unauthorized(error.answer, self._refused_credential(token))
        error.request_id, error.cluster = request_id, self.cluster
        return error

    def _refused_credential(self, token: str) -> RefusedCredential:
        """Return what was shown to the server; ``token`` is empty for a client certificate."""
        return RefusedCredential(
            cluster=self.cluster,
            server=self._credentials.server,
            origin=self._credentials.origin,
            is_token=bool(token),
            account=token_account(token),
            says=why_refused(token, datetime.now(UTC)),
        )


def _next_request_id() -> str:
    """Return an identifier that is unique among all requests of all runs, at hardly any cost."""
    return f"{_PROCESS}-{next(_numbers):08x}"


class _Coded(msgspec.Struct):
    code: int = 500


def _error_of_watch(status: bytes, request: str) -> ApiError:
    code = msgspec.json.decode(status, type=_Coded).code
    return error_from_response(status=code, body=status, request=request)
