"""The one family of errors, and the one place where an API answer becomes one of them.

Callers catch by class. What no class says (which kind of object is not there, what people can do) two modules of
``plan`` read from the answer: ``service.pending`` and ``node.existence``. Errors of the HTTP library are chained as
causes and do not leak. Messages are cut short and carry no request bodies, headers or credentials, so they may be
logged and shown in Events.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import ClassVar, Final

import msgspec
from msgspec import Struct, field
from msgspec.structs import replace

MAX_MESSAGE = 1024
"""Longest server message that is kept, in characters."""
LONGEST_RETRY_AFTER = 300.0
"""Longest time in seconds that a server may ask us to stay away; what it asks for beyond that is cut."""


class CCMError(Exception):
    """Base of everything that this program raises on purpose."""

    request_id: str = ""
    """``auditID`` of the failed request in the API server's audit log; empty when no single request failed. Not part of
    the message, which is compared to say the same thing only once."""
    cluster: str = ""
    """Whose API server it was, ``guest`` or ``harvester``; empty when it was none. Not part of the message either."""
    retry_after: float | None = None
    """Seconds to wait before the next try, where the one that is too busy, or down, has asked for it (429, 5xx)."""


class ConfigurationError(CCMError):
    """Raised when flags or files cannot be used. Carries every problem found, not only the first.

    >>> str(ConfigurationError(["one", "two"]))
    'one; two'
    """

    def __init__(self, problems: Sequence[str]) -> None:
        super().__init__("; ".join(problems))
        self.problems = tuple(problems)


class WriteReverted(CCMError):
    """Raised when the API server accepted a write and the object is as before, for example by an admission webhook."""


class CredentialError(CCMError):
    """Raised when a kubeconfig or a service account cannot be turned into a usable credential."""


class Unreachable(CCMError):
    """Raised when an API server gave no HTTP answer: timed out, broken, or for the reason of a class below."""

    meaning: ClassVar[str] = "cannot be reached"
    """What is the matter; goes on after the name of the server."""
    remedy: ClassVar[str] = (
        "Check firewalls and routes from the nodes to the address of Harvester's API, and that the server in the "
        "cloud-config is that address"
    )
    """What to do about it where the server is Harvester."""


class HostUnknown(Unreachable):
    """Raised when the name of an API server's host has no address."""

    meaning = "cannot be reached, because the name of its host has no address"
    remedy = "Check the name in the cloud-config and the DNS servers of the nodes, or put Harvester's VIP in its place"


class ConnectionRefused(Unreachable):
    """Raised when an API server's host says that nobody listens on that port."""

    meaning = "cannot be reached, because nobody listens at its address"
    remedy = (
        "Check that Harvester is up, and that address and port of the server in the cloud-config are those of its API "
        "(usually https://HARVESTER-VIP:6443)"
    )


class NotTrusted(Unreachable):
    """Raised when a server answered and TLS with it failed: another certificate than the credential is for."""

    meaning = "answers with a certificate that does not fit the cloud-config"
    remedy = (
        "Either the address is not Harvester's, or the cloud-config is old: make it again with generate_addon.sh "
        "--server https://HARVESTER-VIP:6443"
    )


class OutOfTime(NotTrusted):
    """Raised when an API server's certificate is over, or not valid yet, by the clock of this machine."""

    meaning = "answers with a certificate that is not valid at this time"
    remedy = (
        "Compare the clocks of this node and of Harvester's; where they agree, the certificate of Harvester's API has "
        "run out, and Harvester has to renew it"
    )


class UnexpectedAnswer(Unreachable):
    """Raised when the answer is not what a Kubernetes API server sends, a login page for example."""

    meaning = "gives an answer that is not that of a Kubernetes API server"
    remedy = (
        "Check that the server in the cloud-config is Harvester's API, and what stands in between (a proxy, a login)"
    )


class NoResponse(Unreachable):
    """Raised when an API server accepted a write and did not respond in the time that admission webhooks can take."""

    meaning = "does not respond to writes"
    remedy = "Check the load of its API servers and its admission webhooks"


class WatchSilent(Unreachable):
    """Raised when a watch delivered nothing, not even a bookmark, for longer than a live one can be silent."""


class Answer(Struct, frozen=True):
    """What an API server said when it refused a request."""

    status: int
    reason: str
    message: str
    request: str
    """Verb and path, for logs: ``PUT /apis/…``."""
    about: str = ""
    """Name of the object that it is about, by a Status; empty unless the request was for that one."""
    retry_after: float | None = None
    """Seconds the server asked us to wait (header ``Retry-After`` or ``details.retryAfterSeconds``)."""


class ApiError(CCMError):
    """Raised when an API server answered a request with an error status."""

    def __init__(self, answer: Answer) -> None:
        super().__init__(answer.message)
        self.answer = answer
        self.retry_after = answer.retry_after


class BadRequest(ApiError):
    """Raised on 400 and on client errors without a class of their own."""


def renewal(cluster: str, account: str = "") -> str:
    """Return how a credential is renewed; ``account`` is the ``namespace/name`` of its ServiceAccount, if known.

    The command leaves a token alone that is good: it may be the running program's, and what was refused an old copy.

    >>> renewal("harvester", "default/demo")[:72]
    'Get a new one (generate_addon.sh demo default, run against Harvester; on'
    """
    if cluster == "harvester":
        namespace, _, name = (account or "<namespace>/<account>").partition("/")
        return (
            f"Get a new one (generate_addon.sh {name} {namespace}, run against Harvester; only where that one is "
            "refused too, with --rotate, which ends the token of all who use it). A command takes it with "
            "--cloud-config. The running program finds it without a restart where the old one was: in Secret "
            "kube-system/cloud-config, in the file on the nodes, or, where Rancher brings that file, in the Secret of "
            "Rancher's cluster that cloud-provider-config names. Addresses that are there keep working"
        )
    return (
        'Get a new kubeconfig of this cluster (Rancher: "Download KubeConfig"; else /etc/rancher/rke2/rke2.yaml, '
        "/etc/rancher/k3s/k3s.yaml or /etc/kubernetes/admin.conf of a control plane node), or in a pod leave "
        "--kubeconfig out"
    )


class Unauthorized(ApiError):
    """Raised on 401: the credential is not accepted."""

    def __init__(self, answer: Answer, *, server: str = "", credential: str = "", remedy: str = "") -> None:
        """``credential`` describes what ``server`` rejected, and ``remedy`` how to renew it."""
        rejected = f"does not accept {credential or 'the token in the cloud-config'}"
        if server:
            answer = replace(answer, message=f"{server} {rejected}: {answer.message}")
        super().__init__(answer)
        self.meaning = f"at {server} {rejected}" if server else rejected
        """What is wrong; follows the name of the server."""
        self.remedy = remedy or renewal("harvester")
        """What to do about it."""


_LACKING = re.compile(r'User "[^"]*" cannot .* in the namespace "(?P<namespace>[^"]*)"')


class Forbidden(ApiError):
    """Raised on 403: the credential is accepted, but lacks the permission."""

    @property
    def remedy(self) -> str:
        """What to do about it if the server is Harvester; continues a sentence."""
        found = _LACKING.search(str(self))
        return binding(found["namespace"] if found else "")


def binding(namespace: str) -> str:
    """Return how a user gets the permissions of a cloud provider in a namespace of Harvester; empty if it is unknown.

    >>> binding("vms")[:72]
    'bind the ClusterRole harvesterhci.io:cloudprovider to it in namespace vm'
    """
    where = f"namespace {namespace}" if namespace else "the namespace of the VMs"
    return (
        f"bind the ClusterRole harvesterhci.io:cloudprovider to it in {where}, as generate_addon.sh does; if it was "
        "created for another server or namespace, correct the context of the cloud-config"
    )


class NotFound(ApiError):
    """Raised on 404 with a Status that names what was asked for: the object, or its namespace, is not there."""


class NotServed(ApiError):
    """Raised on every other 404: nobody serves this path, which says nothing about the object.

    It comes from a server without the resource type, and from whatever stands in front of one and has no route for a
    moment.
    """


class AlreadyExists(ApiError):
    """Raised on 409 with reason ``AlreadyExists``."""


class Conflict(ApiError):
    """Raised on 409: the object changed since it was read, or a precondition does not hold.

    A patch names the UID of what it is for; where another object has the name by now that is answered with 422.
    """


class StaleCache(Conflict):
    """Raised when a live read shows that a cached object is not current."""

    def __init__(self, key: str) -> None:
        super().__init__(Answer(409, "Conflict", "the cached object is not current", f"GET {key}"))


class Gone(ApiError):
    """Raised on 410: the resource version asked for is too old; list again."""


class Invalid(ApiError):
    """Raised on 422: the object does not satisfy its schema."""


class Throttled(ApiError):
    """Raised on 429: the server is too busy."""


class ServerError(ApiError):
    """Raised on 5xx: an error of the server, worth another try."""


class AdmissionDenied(ApiError):
    """Raised when the object was refused by an admission webhook, or by a rule of the API server's own.

    Harvester's webhook answers refusals with HTTP 500 and the words ``denied the request``; trying again without a
    change is useless. A webhook that could not be called says ``failed calling webhook`` and is a ServerError. A quota,
    or a namespace that is being deleted, answers 403 as a missing right does, which always names its user.
    """


def gist(message: str) -> str:
    """Return a message without the words that may be others at each try: those with a digit.

    >>> gist("denied at 10:04, request 5f3c: no")
    'denied at request no'
    """
    return " ".join(word for word in message.split() if not any(one.isdigit() for one in word))


_BY_A_RULE = re.compile(r'" is forbidden: (?!User ")')
_OTHER_UID = re.compile(r'^[^"]*"[^"]*" is invalid: \[?metadata\.uid: ')
"""Values of other fields may have such words too, but not in that place."""
UNREADABLE: Final = (msgspec.MsgspecError, ValueError, RecursionError)
"""What decoding JSON raises where it is none, is nested too deep, or something else than was expected."""

_BY_STATUS: dict[int, type[ApiError]] = {
    401: Unauthorized,
    403: Forbidden,
    404: NotServed,
    409: Conflict,
    410: Gone,
    422: Invalid,
    429: Throttled,
}


def error_from_answer(answer: Answer) -> ApiError:
    """Return the error whose class says what the answer means."""
    if _was_not_admitted(answer):
        return AdmissionDenied(answer)
    if answer.status == 409 and answer.reason == "AlreadyExists":
        return AlreadyExists(answer)
    if answer.status == 404 and answer.reason == "NotFound" and answer.about:
        return NotFound(answer)
    if answer.reason == "Expired":
        return Gone(answer)
    if answer.status >= 500:
        return ServerError(answer)
    is_for_another = answer.status == 422 and _OTHER_UID.match(answer.message)
    return Conflict(answer) if is_for_another else _BY_STATUS.get(answer.status, BadRequest)(answer)


def _was_not_admitted(answer: Answer) -> bool:
    by_webhook = "denied the request" in answer.message and "admission webhook" in answer.message
    return by_webhook or (answer.status == 403 and _BY_A_RULE.search(answer.message) is not None)


def is_of_something_else(status: int, body: bytes) -> bool:
    """Return whether an answer that is no success is that of something in front of a Kubernetes API server.

    Such a server sends a Status or a line of text, never a page, and leads nowhere else. A page with 404 is a
    ``NotServed`` like any other.
    """
    return 300 <= status < 400 or (body.lstrip().startswith(b"<") and (status == 403 or status >= 500))


def error_from_response(*, status: int, body: bytes, request: str, retry_after: str | None = None) -> ApiError:
    """Return the error for an HTTP response; ``body`` is a Status object or any text."""
    found = _read_status(body)
    seconds = float(retry_after) if retry_after and retry_after.isdecimal() else found.details.retry_after_seconds
    return error_from_answer(
        Answer(
            status=status,
            reason=found.reason,
            message=found.message[:MAX_MESSAGE] or f"HTTP status {status}",
            request=request,
            about=found.details.name if found.details.name in request.split("/") else "",
            # A delay of 0 s does not say when: the caller's own backoff applies.
            retry_after=min(seconds, LONGEST_RETRY_AFTER) if seconds > 0 else None,
        )
    )


class _Details(Struct, rename="camel"):
    name: str = ""
    retry_after_seconds: float = 0


class _Status(Struct):
    kind: str = ""
    reason: str = ""
    message: str = ""
    details: _Details = field(default_factory=_Details)


_decode_status = msgspec.json.Decoder(_Status).decode


def _read_status(body: bytes) -> _Status:
    try:
        status = _decode_status(body)
    except UNREADABLE:
        text = body[:MAX_MESSAGE].decode("utf-8", "replace").strip()
        # An HTML page explains nothing, and a JSON document that is no Status can contain secrets.
        return _Status(message="" if text.startswith(("<", "{", "[")) else text)
    return status if status.kind == "Status" else _Status()
