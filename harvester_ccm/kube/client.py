"""Requests to one API server, typed by resource.

No method retries, sleeps or hides an error: a failed call raises one of ``kube.errors`` and the caller
decides. Every call has a time limit. ``Retry-After`` is carried in the error. A watch yields until the server ends it,
raises ``Gone`` if the version is too old, and ``WatchSilent`` if nothing arrived for too long.

A response, and a line of a watch, is read up to ``ANSWER_LIMIT``: a proxy or another program at the address cannot
exhaust the memory. What users write into objects never exceeds it: a page of a list with large objects is requested
again with fewer of them, and what is kept of an object is bounded by its ``decode``.

Every write passes the client's ``WriteFence``, on connections that carry nothing else, unless the resource is not
fenced: the Lease itself, Events and reviews.
"""

import asyncio
import ssl
import weakref
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Mapping
from contextlib import suppress
from datetime import UTC, datetime
from functools import partial
from typing import Any, Final, Generic, Self, TypeVar
from urllib.parse import urlencode

import aiohttp
import msgspec
import structlog
from msgspec import Struct

from harvester_ccm.kube import errors
from harvester_ccm.kube.clock import loop_time
from harvester_ccm.kube.connection import connection_fault, open_session
from harvester_ccm.kube.credentials import Credentials
from harvester_ccm.kube.documents import EventDocument, Head, ListDocument, ListMeta, Page, Unread, WatchEvent
from harvester_ccm.kube.errors import WRITE_TIMEOUT
from harvester_ccm.kube.fence import WriteFence
from harvester_ccm.kube.objects import Resource
from harvester_ccm.kube.tokens import ExecToken, credential_text, token_claims

T = TypeVar("T")

REQUEST_TIMEOUT: Final = 10.0
"""Seconds for one request, connection included."""

MIB: Final = 1024 * 1024
ANSWER_LIMIT: Final = 8 * MIB
"""Largest response or line of a watch in bytes; etcd stores objects of up to 1.5 MiB."""
_TOO_LARGE: Final = f"is larger than {ANSWER_LIMIT // MIB} MiB"
_FOREIGN: Final = "is not what a Kubernetes API server sends"
MAX_FAULT: Final = 200
"""Longest description of why an object does not decode, in characters."""
DECODED_AT_ONCE: Final = 500
"""Objects that are decoded before other tasks run; a server can send more than the limit of a page."""

_JSON: Final = "application/json"
MERGE_PATCH: Final = "application/merge-patch+json"
STRATEGIC_PATCH: Final = "application/strategic-merge-patch+json"

Observer = Callable[[str, str, str, int, float], None]
"""Called with (cluster, verb, path, status, seconds) after every request; status 0 means no response."""

_NO_RESPONSE: Final = (aiohttp.ClientError, ConnectionError, ssl.SSLError, TimeoutError)

_decode_list = msgspec.json.Decoder(ListDocument).decode
_decode_event = msgspec.json.Decoder(EventDocument).decode
_decode_head = msgspec.json.Decoder(Head).decode

log = structlog.get_logger(__name__)


class Request(Struct, frozen=True):
    """A request to an API server; the text is its verb and path."""

    method: str
    path: str
    params: Mapping[str, str] = {}
    data: bytes | None = None
    content_type: str = _JSON
    fenced: bool = False
    """Whether it is a write that only the leader sends."""

    @property
    def http_method(self) -> str:
        """The method of HTTP: a watch is a GET whose response does not end."""
        return "GET" if self.method == "WATCH" else self.method

    @property
    def target(self) -> str:
        """The path with its query."""
        return f"{self.path}?{urlencode(self.params)}" if self.params else self.path

    def __str__(self) -> str:
        return f"{self.method} {self.path}"


class ApiClient:
    """One API server, one credential. Use as an async context manager."""

    page_objects: int = 500
    """Objects on a page of a list, as in client-go. Other tasks run between two pages."""

    def __init__(
        self,
        credentials: Credentials,
        *,
        cluster: str,
        observer: Observer | None = None,
        fence: WriteFence | None = None,
        timeout: float = REQUEST_TIMEOUT,
    ) -> None:
        """Without ``fence`` it can write at any time. ``timeout`` is the time limit of a request in seconds."""
        self.cluster = cluster
        """Name of this server in logs and metrics."""
        self.credentials = credentials
        """The credentials in use."""
        self._fence = fence if fence is not None else WriteFence()
        self._observer = observer
        self._timeout = timeout
        self._session: aiohttp.ClientSession | None = None
        """For reads, and for writes that need no Lease."""
        self._fenced_session: aiohttp.ClientSession | None = None
        """For writes that need the Lease, on connections of their own."""
        self._responses: weakref.WeakSet[aiohttp.ClientResponse] = weakref.WeakSet()

    @property
    def namespace(self) -> str:
        """Namespace of the credential's context; ``default`` if it names none."""
        return self.credentials.namespace or "default"

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_error: object) -> None:
        await self.close()

    async def close(self) -> None:
        """Close all connections. Requests in flight fail with Unreachable."""
        # Readers of a response would wait forever if only the session was closed.
        for response in list(self._responses):
            response.close()
        sessions = (self._session, self._fenced_session)
        self._session = self._fenced_session = None
        for session in sessions:
            if session is not None:
                await session.close()

    async def use(self, credentials: Credentials) -> None:
        """Switch to other credentials; running watches end, and their informers open new ones."""
        self.credentials = credentials
        await self.close()

    async def get(
        self, resource: Resource[T], name: str, *, namespace: str | None = None, subresource: str | None = None
    ) -> T:
        """Return one object. Raises NotFound and the other errors of ``kube.errors``."""
        return await self._request_object(resource, "GET", resource.path(namespace, name, subresource))

    async def list(
        self, resource: Resource[T], *, namespace: str | None = None, params: Mapping[str, str] | None = None
    ) -> Page[T]:
        """Return all objects, read in pages from one consistent version; objects that do not decode are left out.

        Raises AnswerTooLarge for an object above the limit of this module.
        """
        path = resource.path(namespace)
        query = dict(params or {})
        listing = _Listing[T](self.page_objects)
        while True:
            metadata = await self._read_page(resource, path, query, listing)
            if not metadata.continue_:
                return Page(tuple(listing.items), metadata.resource_version, listing.unread)
            query["continue"] = metadata.continue_

    async def _read_page(
        self, resource: Resource[T], path: str, query: Mapping[str, str], listing: "_Listing[T]"
    ) -> ListMeta:
        """Add the objects of a page to a list; return the metadata of the page. Its body is not kept."""
        body = await self._request_page(path, query, listing)
        page = self._read(_decode_list, body, f"GET {path}")
        raws = page.items or []
        listing.choose_size(len(raws), len(body), self.page_objects)
        for number, raw in enumerate(raws, 1):
            item = self._decode(resource, raw)
            if isinstance(item, Unread):
                listing.unread[item.key] = item
            else:
                listing.items.append(item)
            if number % DECODED_AT_ONCE == 0:
                await asyncio.sleep(0)
        return page.metadata

    async def _request_page(self, path: str, query: Mapping[str, str], listing: "_Listing[T]") -> bytes:
        """Return a page of a list. A page of very large objects is requested again with fewer of them."""
        while True:
            request = Request("GET", path, {"limit": str(listing.page_objects), **query})
            try:
                return await self._exchange(request, self._timeout)
            except errors.AnswerTooLarge:
                if listing.page_objects == 1:
                    raise
                listing.page_objects = max(listing.page_objects // 10, 1)

    async def create(self, resource: Resource[T], body: Mapping[str, object], *, namespace: str | None = None) -> T:
        """Create an object and return it as stored. Raises AlreadyExists, AdmissionDenied, Invalid, …."""
        typed = {"apiVersion": resource.api_version, "kind": resource.kind, **body}
        return await self._request_object(resource, "POST", resource.path(namespace), typed)

    async def check_creation(
        self, resource: Resource[T], body: Mapping[str, object], *, namespace: str | None = None
    ) -> None:
        """Send a creation as a dry run. Raises the error of its rejection; the name is checked after the admission."""
        with suppress(errors.AlreadyExists):
            await self.request("POST", resource.path(namespace), params={"dryRun": "All"}, body=body)

    async def check_update(self, resource: Resource[T], body: Mapping[str, Any], *, namespace: str | None) -> None:
        """Send an update as a dry run. Raises the error of its rejection; a conflict is none."""
        path = resource.path(namespace, body["metadata"]["name"])
        with suppress(errors.Conflict):
            await self.request("PUT", path, params={"dryRun": "All"}, body=body)

    async def replace(
        self, resource: Resource[T], name: str, body: Mapping[str, object], *, namespace: str | None = None
    ) -> T:
        """Replace a whole object; raises Conflict if ``metadata.resourceVersion`` in it is not the stored one."""
        return await self._request_object(resource, "PUT", resource.path(namespace, name), body)

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

        A ``STRATEGIC_PATCH`` of a built-in type changes only the named entries of shared lists, such as finalizers.
        """
        path = resource.path(namespace, name, subresource)
        return await self._request_object(resource, "PATCH", path, body, content_type=content_type)

    async def delete(
        self, resource: Resource[T], name: str, *, namespace: str | None = None, uid: str = "", version: str = ""
    ) -> T | None:
        """Delete an object; return it if it stays until its finalizers are removed. Raises NotFound if it is gone.

        Raises Conflict if the object has another UID than ``uid`` or another resourceVersion than ``version``.
        """
        path = resource.path(namespace, name)
        request = f"DELETE {path}"
        answer = await self.request("DELETE", path, body=_delete_options(uid, version))
        if self._read(_decode_head, answer, request).kind == "Status":
            return None
        return self._read(resource.decode, answer, request)

    async def watch(
        self, resource: Resource[T], *, namespace: str | None = None, params: Mapping[str, str], silence: float
    ) -> AsyncGenerator[WatchEvent[T], None]:
        """Yield changes after ``params["resourceVersion"]`` until the server ends the watch.

        The first element is a bookmark without a version: the server accepted the watch. ``silence`` is the longest
        time in seconds without any line before the watch counts as dead.
        """
        query = {**params, "watch": "1", "allowWatchBookmarks": "true"}
        request = Request("WATCH", resource.path(namespace), query)
        try:
            async with asyncio.timeout(self._timeout):
                answer = await self._send(request)
            async with answer as response:
                yield WatchEvent("BOOKMARK", None, "")
                async for line in _lines(response.content, silence):
                    if len(line) > ANSWER_LIMIT:
                        raise self._unexpected(str(request), f"a line of the watch {_TOO_LARGE}", errors.AnswerTooLarge)
                    yield self._event(resource, line)
        except _NO_RESPONSE as error:
            raise self._unreachable(request, error, self._timeout) from error

    async def request(
        self,
        method: str,
        path: str,
        *,
        params: Mapping[str, str] | None = None,
        body: object = None,
        fenced: bool = True,
        content_type: str = _JSON,
    ) -> bytes:
        """Send one request and return the body of a 2xx response.

        ``fenced`` is False for the few writes that need no Lease. Raises NotLeading as well.
        """
        data = None if body is None else msgspec.json.encode(body)
        is_fenced = fenced and method != "GET"
        request = Request(method, path, params or {}, data, content_type, fenced=is_fenced)
        if not is_fenced:
            return await self._exchange(request, self._timeout)
        return await self._fence.send(partial(self._exchange, request, WRITE_TIMEOUT), str(request))

    async def read(self, path: str, decode: Callable[[bytes], T]) -> T:
        """Return the decoded response to a GET of a path without a resource type, such as of discovery."""
        return self._read(decode, await self.request("GET", path), f"GET {path}")

    async def _request_object(
        self, resource: Resource[T], method: str, path: str, body: object = None, *, content_type: str = _JSON
    ) -> T:
        answer = await self.request(method, path, body=body, fenced=resource.fenced, content_type=content_type)
        return self._read(resource.decode, answer, f"{method} {path}")

    async def _exchange(self, request: Request, limit: float) -> bytes:
        try:
            async with asyncio.timeout(limit), await self._send(request) as response:
                body = await _body_of(response)
        except _NO_RESPONSE as error:
            if request.fenced:
                # The socket may have sent nothing: that says nothing about the server.
                self._fence.check()
            raise self._unreachable(request, error, limit) from error
        if body is None:
            raise self._unexpected(str(request), f"the answer {_TOO_LARGE}", errors.AnswerTooLarge)
        return body

    async def _send(self, request: Request) -> aiohttp.ClientResponse:
        """Return the open response of an accepted request; raise the API's error otherwise."""
        credentials = self.credentials
        started = loop_time()
        status = 0
        try:
            token = await credentials.token.fetch() or ""
            response = await self._open(request, credentials, token)
            status = response.status
            if status < 300:
                return response
            async with response:
                raise await self._refusal(response, request, token)
        except errors.Unauthorized:
            credentials.token.forget()
            raise
        finally:
            if self._observer is not None:
                self._observer(self.cluster, request.method, request.path, status, loop_time() - started)

    async def _open(self, request: Request, credentials: Credentials, token: str) -> aiohttp.ClientResponse:
        """Send a request; return the response as soon as its head has arrived."""
        headers = {"Authorization": f"Bearer {token}"} if token else {}
        if request.data is not None:
            headers["Content-Type"] = request.content_type
        session = self._session_for(request, credentials)
        response = await session.request(
            request.http_method,
            f"{credentials.server}{request.target}",
            data=request.data,
            headers=headers,
            server_hostname=credentials.tls_server_name,
            proxy=credentials.proxy,
            allow_redirects=False,
        )
        self._responses.add(response)
        return response

    def _session_for(self, request: Request, credentials: Credentials) -> aiohttp.ClientSession:
        """Return the connection pool of a request, which is opened if there is none."""
        if request.fenced:
            if self._fenced_session is None:
                self._fenced_session = _open_pool(credentials, self._fence.open_socket)
            return self._fenced_session
        if self._session is None:
            self._session = _open_pool(credentials)
        return self._session

    def _event(self, resource: Resource[T], line: bytes) -> WatchEvent[T]:
        request = f"WATCH {resource.path()}"
        event = self._read(_decode_event, line, request)
        head = self._read(_decode_head, bytes(event.object), request)
        if event.type == "ERROR":
            raise errors.error_from_response(status=head.code, body=bytes(event.object), request=request)
        version = head.metadata.resource_version
        if event.type == "BOOKMARK":
            return WatchEvent("BOOKMARK", None, version)
        item = self._decode(resource, event.object)
        if isinstance(item, Unread):
            return WatchEvent(event.type, None, version, item)
        return WatchEvent(event.type, item, version)

    def _read(self, decode: Callable[[bytes], T], body: bytes, request: str) -> T:
        try:
            return decode(body)
        except errors.UNREADABLE as error:
            raise self._unexpected(request, f"the answer {_FOREIGN}") from error

    def _unexpected(
        self, request: str, what: str, kind: type[errors.UnexpectedAnswer] = errors.UnexpectedAnswer
    ) -> errors.UnexpectedAnswer:
        """Return the error about something that only another program at the address sends."""
        where = "check the server address, and proxies in front of it"
        error = kind(f"{self.credentials.server}: {what} ({request}); {where}")
        error.cluster = self.cluster
        return error

    def _decode(self, resource: Resource[T], raw: msgspec.Raw) -> T | Unread:
        """Return an object, or what is known of it if it does not decode: it must not hide the others."""
        try:
            return resource.decode(bytes(raw))
        except errors.UNREADABLE as error:
            meta = self._read(_decode_head, bytes(raw), f"GET {resource.path()}").metadata
            key = f"{meta.namespace}/{meta.name}".strip("/")
            return Unread(key, meta.uid, str(error)[:MAX_FAULT])

    def _unreachable(self, request: Request, error: Exception, limit: float) -> errors.Unreachable:
        kind, detail = connection_fault(error, limit=limit, proxy=self.credentials.proxy)
        if limit == WRITE_TIMEOUT and type(error) is TimeoutError:
            kind = errors.NoResponse
        log.debug("request failed", cluster=self.cluster, request=str(request), detail=detail)
        unreachable = kind(f"{self.credentials.server}: {detail} ({request})")
        unreachable.cluster = self.cluster
        return unreachable

    async def _refusal(self, response: aiohttp.ClientResponse, request: Request, token: str) -> errors.KubeError:
        status = response.status
        # Without a body, the status is enough.
        body = await _body_of(response) or b""
        log.debug("request refused", cluster=self.cluster, request=str(request), status=status)
        error: errors.KubeError = errors.error_from_response(
            status=status, body=body, request=str(request), retry_after=response.headers.get("Retry-After")
        )
        if errors.is_not_from_api_server(status, body):
            delay = error.retry_after
            error = self._unexpected(str(request), f"HTTP status {status}, with a page or a way to one, {_FOREIGN}")
            error.retry_after = delay
        elif isinstance(error, errors.Unauthorized):
            error = errors.Unauthorized(
                error.answer,
                server=self.credentials.server,
                credential=credential_text(
                    token, self.credentials.origin, datetime.now(UTC), self.credentials.certificate
                ),
                account=token_claims(token)[1],
            )
        error.cluster = self.cluster
        return error


class _Listing(Generic[T]):
    """A list while its pages are read."""

    def __init__(self, page_objects: int) -> None:
        self.page_objects = page_objects
        """Objects to be requested with the next page."""
        self.items: list[T] = []
        self.unread: dict[str, Unread] = {}

    def choose_size(self, objects: int, size: int, most: int) -> None:
        """Choose the next page by the bytes of the last one: as many objects as fill half of the limit.

        Pages grow twofold at most: the objects after small ones can be large, and a page above the limit is read twice.
        """
        if objects:
            fitting = objects * ANSWER_LIMIT // (2 * size)
            self.page_objects = max(1, min(fitting, 2 * self.page_objects, most))


def _open_pool(credentials: Credentials, open_socket: aiohttp.SocketFactoryType | None = None) -> aiohttp.ClientSession:
    # A connection keeps its client certificate, which a plugin renews.
    reuse = not isinstance(credentials.token, ExecToken)
    return open_session(credentials.tls, reuse=reuse, user_agent=credentials.user_agent, open_socket=open_socket)


def _delete_options(uid: str, version: str) -> Mapping[str, object] | None:
    """Return the body of a deletion; None if it has no precondition."""
    preconditions = {}
    if uid:
        preconditions["uid"] = uid
    if version:
        preconditions["resourceVersion"] = version
    if not preconditions:
        return None
    return {"apiVersion": "v1", "kind": "DeleteOptions", "preconditions": preconditions}


async def _body_of(response: aiohttp.ClientResponse) -> bytes | None:
    """Return the body of a response; None if it is larger than ANSWER_LIMIT; the rest is not read."""
    if (response.content_length or 0) > ANSWER_LIMIT:
        return None
    body = bytearray()
    while chunk := await response.content.readany():
        body += chunk
        if len(body) > ANSWER_LIMIT:
            return None
    return bytes(body)


async def _lines(stream: aiohttp.StreamReader, silence: float) -> AsyncIterator[bytes]:
    """Yield the lines of a watch; of a line that is larger than ANSWER_LIMIT only the start.

    Raises WatchSilent after ``silence`` seconds without a whole line.
    """
    pending = bytearray()
    last_line = loop_time()
    while True:
        chunk = await _chunk_before(stream, last_line + silence, silence)
        if not chunk:
            return
        first, *others = chunk.split(b"\n")
        # Only what is new is searched and copied, however long the line becomes.
        pending += first
        for following in others:
            if pending.strip():
                yield bytes(pending)
            pending = bytearray(following)
        if len(pending) > ANSWER_LIMIT:
            yield bytes(pending)
        if others:
            last_line = loop_time()


async def _chunk_before(stream: aiohttp.StreamReader, deadline: float, silence: float) -> bytes:
    """Return the next bytes of a watch, none at its end. Raises WatchSilent if they arrive after the deadline."""
    try:
        async with asyncio.timeout_at(deadline):
            return await stream.readany()
    except TimeoutError:
        raise errors.WatchSilent(f"watch silent for {silence:g} s") from None
