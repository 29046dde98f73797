"""The errors of requests, and the one place that turns an API response into one of them.

Callers catch by class. Errors of the HTTP library are chained as causes and do not leak. Messages are cut and contain
no request bodies, headers or credentials, so they can be logged and shown in Events.
"""

from typing import Final

import msgspec
from msgspec import Struct, field
from msgspec.structs import replace

from harvester_ccm.redaction import MAX_FOREIGN_TEXT, cut

WRITE_TIMEOUT: Final = 35.0
"""Seconds for a write: an admission webhook can take 30, and only the API server's response names the webhook."""
MAX_RETRY_AFTER: Final = 300.0
"""Longest delay in seconds that a server can request; a longer one is cut."""


class KubeError(Exception):
    """Base of all errors that are raised on purpose."""

    cluster: str = ""
    """Name of the API server, as its client has it; empty if there was none."""
    retry_after: float | None = None
    """Seconds to wait before the next attempt, if the server requested a delay."""


class WriteReverted(KubeError):
    """Raised when the API server accepted a write without effect, for example because of an admission webhook."""


class CredentialError(KubeError):
    """Raised when a kubeconfig or a service account is not a usable credential."""


class NotInCluster(CredentialError):
    """Raised when there is no kubeconfig, and the process does not run in a pod, which has a service account."""


class ClusterReplaced(KubeError):
    """Raised when a credential leads to another cluster, server or namespace than at the start. It ends the process."""


class Unreachable(KubeError):
    """Raised when an API server sent no HTTP response: timed out, broken, or for the reason of a class below."""


class TimedOut(Unreachable):
    """Raised when an API server did not answer a read, or did not accept a connection, in time."""


class HostUnknown(Unreachable):
    """Raised when the host name of an API server cannot be resolved."""


class ConnectionRefused(Unreachable):
    """Raised when the host of an API server refuses the connection."""


class ProxyFailed(Unreachable):
    """Raised when the proxy on the way to an API server cannot be reached, or does not connect to the server."""


class NotTrusted(Unreachable):
    """Raised when TLS with a server failed: the credential does not trust its certificate."""


class CertificateNotValid(NotTrusted):
    """Raised when an API server's certificate has expired or is not valid yet."""


class UnexpectedAnswer(Unreachable):
    """Raised when a response is not from a Kubernetes API server, for example a login page."""


class AnswerTooLarge(UnexpectedAnswer):
    """Raised when a response is larger than an API server's can be; the rest of it was not read."""


class NoResponse(Unreachable):
    """Raised when an API server accepted a write and did not respond in ``WRITE_TIMEOUT``."""


class WatchSilent(TimedOut):
    """Raised when a watch delivered nothing, not even a bookmark, for too long."""


class Answer(Struct, frozen=True):
    """Error response of an API server."""

    status: int
    reason: str
    message: str
    about: str = ""
    """Name of the object in the Status; empty if the request was for another one."""
    retry_after: float | None = None
    """Requested delay in seconds (header ``Retry-After`` or ``details.retryAfterSeconds``)."""


class ApiError(KubeError):
    """Raised when an API server responded with an error status."""

    def __init__(self, answer: Answer) -> None:
        super().__init__(answer.message)
        self.answer = answer
        self.retry_after = answer.retry_after


class BadRequest(ApiError):
    """Raised on 400 and on client errors without a class of their own."""


class PlainText(ApiError):
    """Raised if the URL of a server begins with http, and the server expects TLS."""


class Unauthorized(ApiError):
    """Raised on 401: the credential is rejected."""

    def __init__(self, answer: Answer, *, server: str = "", credential: str = "", account: str = "") -> None:
        """``credential`` describes what ``server`` rejected."""
        if server:
            answer = replace(answer, message=f"{server} does not accept {credential}: {answer.message}")
        super().__init__(answer)
        self.server = server
        """URL of the server; empty if it is not known, like the two others."""
        self.credential = credential
        """What was rejected, in words."""
        self.account = account
        """``namespace/name`` of the ServiceAccount whose token it is."""


class Forbidden(ApiError):
    """Raised on 403: the credential is accepted, but lacks the permission."""

    @property
    def namespace(self) -> str:
        """Namespace in which the permission is missing; empty if the server does not say that."""
        return _namespace_without_permission(self.answer.message)

    @property
    def is_of_server_path(self) -> bool:
        """Whether the server knows no such path: the URL in the kubeconfig has one that is of another server."""
        _, _, path = self.answer.message.partition(' path "/')
        return bool(path) and not path.startswith(_PATHS)

    @property
    def is_of_account(self) -> bool:
        """Whether a ServiceAccount lacks the permission."""
        return bool(_namespace_of_account(self.answer.message))

    @property
    def account_namespace(self) -> str:
        """Namespace of the ServiceAccount that lacks a permission in a namespace; empty for another user."""
        return _namespace_of_account(self.answer.message) if self.namespace else ""


class NotFound(ApiError):
    """Raised on 404 with a Status that names the requested object or its namespace: it does not exist."""


class NotServed(ApiError):
    """Raised on every other 404: nothing serves this path, which says nothing about the object.

    A server without the resource type responds like this, or a proxy that has no route at the moment.
    """


class AlreadyExists(ApiError):
    """Raised on 409 with reason ``AlreadyExists``."""


class Conflict(ApiError):
    """Raised on 409: the object changed since it was read, or a precondition does not hold.

    Also raised on 422 for a patch whose UID is not the one of the object that has the name now.
    """


class StaleCache(Conflict):
    """Raised when a live read shows that a cached object is not current."""

    def __init__(self, key: str) -> None:
        super().__init__(Answer(409, "Conflict", f"the cached object {key} is not current"))


class Gone(ApiError):
    """Raised on 410: the requested resource version is too old."""


class Invalid(ApiError):
    """Raised on 422: the object does not match its schema."""


class Throttled(ApiError):
    """Raised on 429: the server is too busy."""


class ServerError(ApiError):
    """Raised on 5xx: an error of the server that a retry can solve."""


class WebhookFailed(ServerError):
    """Raised when the API server could not call an admission webhook, or got no response from it."""

    @property
    def webhook(self) -> str:
        """Name of the webhook; empty if the server does not tell it."""
        return str(self).partition('calling webhook "')[2].partition('"')[0]


class AdmissionDenied(ApiError):
    """Raised when an admission webhook or an admission rule of the API server denied the request.

    Some webhooks deny with HTTP 500; all have the text ``denied the request``. A quota, or a namespace that is being
    deleted, results in 403 like a missing permission, whose message always names the user.
    """


def normalized_message(message: str) -> str:
    """Return a message without the words that can change with each attempt: those with a digit.

    >>> normalized_message("denied at 10:04, request 5f3c: no")
    'denied at request no'
    """
    words = [word for word in message.split() if not any(character.isdigit() for character in word)]
    return " ".join(words)


def _namespace_without_permission(message: str) -> str:
    """Return the namespace in ``User "u" cannot VERB ... in the namespace "n"`` of RBAC; empty if it names none."""
    subject, verb, rest = message.partition('" cannot ')
    _, literal, quoted = rest.partition(' in the namespace "')
    is_from_rbac = 'User "' in subject and verb and literal
    return quoted.partition('"')[0] if is_from_rbac else ""


_PATHS: Final = ("api", "version", "healthz", "livez", "readyz", "metrics", "openapi")
"""How the paths of an API server begin."""


def _namespace_of_account(message: str) -> str:
    """Return the namespace in ``User "system:serviceaccount:NAMESPACE:NAME"`` of RBAC; empty for another user."""
    _, _, account = message.partition('User "system:serviceaccount:')
    return account.partition('"')[0].partition(":")[0]


def _is_admission_rule(message: str) -> bool:
    """Return whether a 403 comes from an admission rule, such as a quota: RBAC always names the user."""
    _, literal, reason = message.partition('" is forbidden: ')
    return bool(literal) and not reason.startswith('User "')


def _is_about_uid(message: str) -> bool:
    """Return whether a 422 says that the object has another UID than the request.

    Only the text behind the quoted name counts, because the value of another field can contain the same words.
    """
    _, _, behind_name = message.partition('"')[2].partition('"')
    return behind_name.startswith((" is invalid: metadata.uid: ", " is invalid: [metadata.uid: "))


UNREADABLE: Final = (msgspec.MsgspecError, ValueError, RecursionError)
"""Errors of decoding a document that is not JSON, is nested too deep, or has another type than expected."""

_BY_STATUS: Final[dict[int, type[ApiError]]] = {
    401: Unauthorized,
    403: Forbidden,
    404: NotServed,
    409: Conflict,
    410: Gone,
    422: Invalid,
    429: Throttled,
}


def error_from_answer(answer: Answer) -> ApiError:
    """Return the error whose class matches the response."""
    return _class_of(answer)(answer)


def _class_of(answer: Answer) -> type[ApiError]:
    if _is_denied(answer):
        return AdmissionDenied
    if answer.status == 409 and answer.reason == "AlreadyExists":
        return AlreadyExists
    if answer.status == 404 and answer.reason == "NotFound" and answer.about:
        return NotFound
    if answer.status == 422 and _is_about_uid(answer.message):
        return Conflict
    if answer.reason == "Expired":
        return Gone
    if "HTTP request to an HTTPS server" in answer.message:
        return PlainText
    if answer.status < 500:
        return _BY_STATUS.get(answer.status, BadRequest)
    if "failed calling webhook" in answer.message:
        return WebhookFailed
    return ServerError


def _is_denied(answer: Answer) -> bool:
    """Return whether an admission webhook or an admission rule denied the request."""
    if "denied the request" in answer.message and "admission webhook" in answer.message:
        return True
    return answer.status == 403 and _is_admission_rule(answer.message)


def is_not_from_api_server(status: int, body: bytes) -> bool:
    """Return whether an error response is from something in front of a Kubernetes API server, such as a proxy.

    An API server sends a Status or a line of text, never an HTML page or a redirect. A page with 404 is ``NotServed``.
    """
    if 300 <= status < 400:
        return True
    is_page = body.lstrip().startswith(b"<")
    return is_page and (status == 403 or status >= 500)


def error_from_response(*, status: int, body: bytes, request: str, retry_after: str | None = None) -> ApiError:
    """Return the error for an HTTP response.

    ``body`` is a Status object or any text, ``request`` the verb and path, and ``retry_after`` the header.
    """
    document = _read_status(body)
    about = document.details.name
    if about not in request.split("/"):
        about = ""
    answer = Answer(
        status=status,
        reason=document.reason,
        message=cut(document.message) or f"HTTP status {status}",
        about=about,
        retry_after=_requested_delay(document, retry_after or ""),
    )
    return error_from_answer(answer)


class _Details(Struct, rename="camel"):
    name: str = ""
    retry_after_seconds: float = 0


class _Status(Struct):
    kind: str = ""
    reason: str = ""
    message: str = ""
    details: _Details = field(default_factory=_Details)


_decode_status: Final = msgspec.json.Decoder(_Status).decode


def _requested_delay(document: _Status, header: str) -> float | None:
    """Return the delay in seconds that a server requests by the header or the Status; None if it requests none."""
    seconds = document.details.retry_after_seconds
    if header.isdecimal():
        seconds = float(header)
    # A delay of 0 s does not say when: the caller's own backoff applies.
    return min(seconds, MAX_RETRY_AFTER) if seconds > 0 else None


def _read_status(body: bytes) -> _Status:
    try:
        status = _decode_status(body)
    except UNREADABLE:
        text = body[:MAX_FOREIGN_TEXT].decode("utf-8", "replace").strip()
        # An HTML page explains nothing, and a JSON document that is no Status can contain secrets.
        if text.startswith(("<", "{", "[")):
            return _Status()
        return _Status(message=text)
    return status if status.kind == "Status" else _Status()
