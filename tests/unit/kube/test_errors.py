"""Error classes of HTTP responses, and the parts of a body in messages."""

import json

import pytest

from harvester_ccm.kube.errors import (
    MAX_RETRY_AFTER,
    WRITE_TIMEOUT,
    AdmissionDenied,
    AlreadyExists,
    Answer,
    ApiError,
    BadRequest,
    Conflict,
    Forbidden,
    Gone,
    Invalid,
    NotFound,
    NotServed,
    PlainText,
    ServerError,
    Throttled,
    Unauthorized,
    WebhookFailed,
    error_from_response,
    is_not_from_api_server,
)
from harvester_ccm.redaction import MAX_FOREIGN_TEXT

REQUEST = "PUT /api/v1/namespaces/shop/services/web"


def error(
    status: int,
    *,
    reason: str = "",
    message: str = "words",
    about: object = None,
    seconds: object = None,
    retry_after: str | None = None,
) -> ApiError:
    given = {"name": about, "retryAfterSeconds": seconds}
    details = {key: value for key, value in given.items() if value is not None}
    body = {"kind": "Status", "reason": reason, "message": message, "details": details}
    return error_from_response(status=status, body=json.dumps(body).encode(), request=REQUEST, retry_after=retry_after)


@pytest.mark.parametrize(
    ("status", "reason", "expected"),
    [
        (302, "", BadRequest),
        (400, "BadRequest", BadRequest),
        (401, "Unauthorized", Unauthorized),
        (403, "Forbidden", Forbidden),
        (404, "NotFound", NotServed),
        (404, "", NotServed),
        (405, "MethodNotAllowed", BadRequest),
        (409, "AlreadyExists", AlreadyExists),
        (409, "Conflict", Conflict),
        (410, "Gone", Gone),
        (410, "Expired", Gone),
        (400, "Expired", Gone),
        (422, "Invalid", Invalid),
        (429, "TooManyRequests", Throttled),
        (500, "InternalError", ServerError),
        (503, "", ServerError),
        (504, "Timeout", ServerError),
    ],
)
@pytest.mark.kube("A failed request raises one error class by its meaning, and never an error of the HTTP library")
def test_class_follows_from_status_and_reason(status: int, reason: str, expected: type[ApiError]) -> None:
    found = error(status, reason=reason)

    assert type(found) is expected
    assert str(found) == "words"
    assert (found.answer.status, found.answer.reason) == (status, reason)


RULE = 'loadbalancers "web" is forbidden: '
NO_PERMISSION = (
    'loadbalancers is forbidden: User "system:serviceaccount:vms:demo" cannot create resource "loadbalancers" in API '
    'group "loadbalancer.harvesterhci.io" in the namespace "vms"'
)
OTHER_UID = 'nodes "w1" is invalid: metadata.uid: Invalid value: "uid-2": field is immutable'
QUOTED = 'Service "web" is invalid: spec.ports[0].name: Invalid value: "metadata.uid: Invalid value": must be one'


@pytest.mark.parametrize(
    ("status", "message", "expected"),
    [
        (500, 'admission webhook "validator.harvesterhci.io" denied the request: pool not found', AdmissionDenied),
        (500, 'Internal error occurred: failed calling webhook "validator.harvesterhci.io": EOF', WebhookFailed),
        (500, "the operator denied the request", ServerError),
        (400, "Client sent an HTTP request to an HTTPS server.", PlainText),
        (403, NO_PERMISSION, Forbidden),
        (403, 'services "web" is forbidden: User "u" cannot patch resource', Forbidden),
        (403, 'forbidden: User "system:anonymous" cannot get path "/apis"', Forbidden),
        (403, f"{RULE}exceeded quota: team", AdmissionDenied),
        (403, f"{RULE}unable to create new content in namespace vms because it is being terminated", AdmissionDenied),
        (422, OTHER_UID, Conflict),
        (422, f'Node "w1" is invalid: [{OTHER_UID.partition("invalid: ")[2]}, spec: Forbidden: no]', Conflict),
        (422, "metadata.ownerReferences[0].uid: Invalid value", Invalid),
        (422, QUOTED, Invalid),
    ],
)
def test_class_follows_from_the_message(status: int, message: str, expected: type[ApiError]) -> None:
    assert type(error(status, message=message)) is expected


def test_missing_permission_names_the_namespace() -> None:
    for message, namespace in ((NO_PERMISSION, "vms"), (NO_PERMISSION.partition(" in the ")[0], ""), ("no", "")):
        found = error(403, message=message)
        assert isinstance(found, Forbidden)
        assert found.namespace == found.account_namespace == namespace


@pytest.mark.parametrize(
    ("path", "is_of_server"), [("/k8s/clusters/c-m-abc/version", True), ("/version", False), ("/apis/apps", False)]
)
def test_path_that_no_api_server_has_is_that_of_the_kubeconfig(path: str, *, is_of_server: bool) -> None:
    found = error(403, message=f'forbidden: User "u" cannot get path "{path}"')
    assert isinstance(found, Forbidden)
    assert found.is_of_server_path == is_of_server


@pytest.mark.parametrize(
    ("about", "reason", "expected"),
    [
        pytest.param("web", "NotFound", NotFound, id="the object"),
        pytest.param("shop", "NotFound", NotFound, id="its namespace"),
        pytest.param("another", "NotFound", NotServed, id="another object"),
        pytest.param(None, "NotFound", NotServed, id="no name"),
        pytest.param(["web"], "NotFound", NotServed, id="no text"),
        pytest.param("web", "", NotServed, id="no reason"),
    ],
)
@pytest.mark.kube(
    "A 404 counts as the absence of an object only if it is a Status that names the object or its namespace"
)
def test_only_a_status_that_names_the_object_is_not_found(about: object, reason: str, expected: type[ApiError]) -> None:
    assert type(error(404, reason=reason, about=about)) is expected


@pytest.mark.parametrize(
    ("status", "body", "expected"),
    [
        pytest.param(502, b"<html>502 Bad Gateway</html>", True, id="HTML of a proxy"),
        pytest.param(403, b" \n<!DOCTYPE html>", True, id="HTML of a proxy that forbids"),
        pytest.param(302, b"", True, id="redirect to a login"),
        pytest.param(503, b"service unavailable\n", False, id="text, as of an aggregating API server"),
        pytest.param(403, b'{"kind": "Status", "message": "words"}', False, id="Status"),
        pytest.param(404, b"<html>", False, id="HTML with 404, which is NotServed"),
    ],
)
def test_html_and_redirects_are_not_from_an_api_server(status: int, body: bytes, expected: bool) -> None:
    assert is_not_from_api_server(status, body) is expected


@pytest.mark.parametrize(
    ("header", "seconds", "expected"),
    [
        ("7", 3, 7),
        (None, 3, 3),
        ("0", 0, None),
        (None, "3", None),
        ("Wed, 21 Oct 2026 07:28:00 GMT", None, None),
        ("²", None, None),
        ("86400", None, MAX_RETRY_AFTER),
    ],
)
def test_requested_delay_is_read_from_header_or_body(
    header: str | None, seconds: object, expected: float | None
) -> None:
    assert error(429, seconds=seconds, retry_after=header).answer.retry_after == expected


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        (b'{"kind":"Secret","data":{"password":"aHVudGVyMg', ""),
        (b'["hunter2"]', ""),
        (b"<html><body>log in</body></html>", ""),
        (b"", ""),
        (b"[" * 60_000, ""),
        (b'{"kind":"Status","message":' + b'{"a":' * 5_000 + b"1" + b"}" * 5_001, ""),
        (b'{"kind":"Status","message":"\\ud800"}', ""),
        (b'{"kind":"Status","message":null,"reason":null,"details":[1]}', ""),
        (b"\xff\xfe", "\ufffd\ufffd"),
        (b"upstream connect error\n", "upstream connect error"),
        (b"x" * 5000, "x" * MAX_FOREIGN_TEXT),
    ],
)
def test_only_plain_text_of_another_body_is_part_of_the_message(body: bytes, expected: str) -> None:
    found = error_from_response(status=500, body=body, request=REQUEST)
    assert (type(found), str(found)) == (ServerError, expected or "HTTP status 500")


def test_write_waits_longer_than_a_webhook_may_take() -> None:
    """Only the response names the webhook, and API servers wait for one 30 s at most."""
    assert WRITE_TIMEOUT > 30


def test_message_of_a_status_is_cut() -> None:
    assert len(str(error(500, message="x" * 5000))) == MAX_FOREIGN_TEXT


def test_rejected_credential_is_named() -> None:
    answer = Answer(401, "Unauthorized", "Unauthorized")
    named = Unauthorized(answer, server="https://h", credential="the token in /cc")
    assert str(named) == named.answer.message == "https://h does not accept the token in /cc: Unauthorized"
    assert str(Unauthorized(answer)) == "Unauthorized"
