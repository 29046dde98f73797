"""From an HTTP answer to an error class, and what of a body may be shown."""

from __future__ import annotations

import json

import pytest

from harvester_ccm.errors import (
    MAX_MESSAGE,
    MAX_RETRY_AFTER,
    AdmissionDenied,
    AlreadyExists,
    Answer,
    ApiError,
    BadRequest,
    CCMError,
    ConfigurationError,
    Conflict,
    Forbidden,
    Gone,
    Invalid,
    NotFound,
    NotServed,
    ServerError,
    Throttled,
    Unauthorized,
    UnexpectedAnswer,
    Unreachable,
    WatchSilent,
    error_from_response,
    is_not_from_api_server,
)

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
def test_class_follows_from_status_and_reason(status: int, reason: str, expected: type[ApiError]) -> None:
    found = error(status, reason=reason)

    assert type(found) is expected
    assert str(found) == "words"
    assert (found.answer.status, found.answer.reason) == (status, reason)


def test_patch_for_another_object_of_the_name_is_a_conflict() -> None:
    message = 'nodes "w1" is invalid: metadata.uid: Invalid value: "uid-2": field is immutable'
    assert type(error(422, reason="Invalid", message=message)) is Conflict
    several = f'Node "w1" is invalid: [{message.partition("invalid: ")[2]}, spec: Forbidden: no]'
    assert type(error(422, reason="Invalid", message=several)) is Conflict
    assert type(error(422, reason="Invalid", message="metadata.ownerReferences[0].uid: Invalid value")) is Invalid
    quoted = 'Service "web" is invalid: spec.ports[0].name: Invalid value: "metadata.uid: Invalid value": must be one'
    assert type(error(422, reason="Invalid", message=quoted)) is Invalid


@pytest.mark.parametrize(
    ("about", "reason", "expected"),
    [
        pytest.param("web", "NotFound", NotFound, id="the object"),
        pytest.param("shop", "NotFound", NotFound, id="its namespace"),
        pytest.param("another", "NotFound", NotServed, id="another object"),
        pytest.param("", "NotFound", NotServed, id="no object"),
        pytest.param(None, "NotFound", NotServed, id="no name"),
        pytest.param(["web"], "NotFound", NotServed, id="no text"),
        pytest.param("web", "", NotServed, id="no reason"),
    ],
)
def test_only_a_status_that_names_the_object_says_that_it_is_not_there(
    about: object, reason: str, expected: type[ApiError]
) -> None:
    assert type(error(404, reason=reason, about=about)) is expected


def test_page_says_nothing_about_the_object() -> None:
    found = error_from_response(status=404, body=b"404 page not found\n", request=REQUEST)

    assert type(found) is NotServed
    assert str(found) == "404 page not found"


@pytest.mark.parametrize(
    ("message", "expected"),
    [
        ('admission webhook "validator.harvesterhci.io" denied the request: pool not found', AdmissionDenied),
        ('Internal error occurred: failed calling webhook "validator.harvesterhci.io": EOF', ServerError),
        ("the operator denied the request", ServerError),
    ],
)
def test_refusal_of_a_webhook_is_told_from_a_webhook_that_does_not_work(message: str, expected: type[ApiError]) -> None:
    assert type(error(500, message=message)) is expected


@pytest.mark.parametrize(
    ("message", "expected"),
    [
        pytest.param(
            'loadbalancers is forbidden: User "system:serviceaccount:vms:demo" cannot create resource "loadbalancers" '
            'in API group "loadbalancer.harvesterhci.io" in the namespace "vms"',
            Forbidden,
            id="no right",
        ),
        pytest.param('services "web" is forbidden: User "u" cannot patch resource', Forbidden, id="no right on it"),
        pytest.param('forbidden: User "system:anonymous" cannot get path "/apis"', Forbidden, id="no right on a path"),
        pytest.param('loadbalancers "web" is forbidden: exceeded quota: team', AdmissionDenied, id="quota"),
        pytest.param(
            'loadbalancers "web" is forbidden: unable to create new content in namespace vms because it is being '
            "terminated",
            AdmissionDenied,
            id="namespace that goes",
        ),
    ],
)
def test_refusal_by_a_rule_is_told_from_a_right_that_is_missing(message: str, expected: type[ApiError]) -> None:
    assert type(error(403, reason="Forbidden", message=message)) is expected


ANSWERS = [
    pytest.param(502, b"<html>502 Bad Gateway</html>", True, id="page of a proxy"),
    pytest.param(403, b" \n<!DOCTYPE html>", True, id="page of a proxy that forbids"),
    pytest.param(302, b"", True, id="way to a login"),
    pytest.param(503, b"service unavailable\n", False, id="text, as an aggregating API server answers"),
    pytest.param(500, b"", False, id="nothing"),
    pytest.param(403, b'{"kind": "Status", "message": "words"}', False, id="Status"),
    pytest.param(404, b"<html>", False, id="no such page, which says enough"),
]


@pytest.mark.parametrize(("status", "body", "expected"), ANSWERS)
def test_page_is_the_answer_of_something_in_between(status: int, body: bytes, expected: bool) -> None:
    assert is_not_from_api_server(status, body) is expected


@pytest.mark.parametrize(
    ("message", "expected"),
    [
        ('User "u" cannot list resource "x" in API group "y" in the namespace "vms"', "to it in namespace vms, as"),
        ("no", "to it in the namespace of the VMs, as"),
    ],
)
def test_a_missing_permission_has_a_remedy(message: str, expected: str) -> None:
    found = error(403, reason="Forbidden", message=message)
    assert isinstance(found, Forbidden)
    assert expected in found.remedy


@pytest.mark.parametrize(
    ("header", "seconds", "expected"),
    [
        ("7", None, 7),
        (None, 3, 3),
        ("7", 3, 7),
        ("0", None, None),
        (None, 0, None),
        (None, "3", None),
        ("Wed, 21 Oct 2026 07:28:00 GMT", None, None),
        ("²", None, None),
        ("86400", None, MAX_RETRY_AFTER),
    ],
)
def test_time_to_come_back_is_read_from_header_or_body(
    header: str | None, seconds: object, expected: float | None
) -> None:
    assert error(429, seconds=seconds, retry_after=header).answer.retry_after == expected


@pytest.mark.parametrize(
    "body",
    [
        pytest.param(b"[" * 60_000, id="nested"),
        pytest.param(b'{"kind":"Status","message":' + b'{"a":' * 5_000 + b"1" + b"}" * 5_001, id="nested Status"),
        pytest.param(b'{"kind":"Status","message":"\\ud800"}', id="half a character"),
    ],
)
def test_body_that_nobody_can_read_says_nothing(body: bytes) -> None:
    read = error_from_response(status=500, body=body, request=REQUEST)
    assert (type(read), str(read)) == (ServerError, "HTTP status 500")


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        (b'{"kind":"Secret","data":{"password":"aHVudGVyMg=="}}', "HTTP status 500"),
        (b'{"kind":"Secret","data":{"password":"aHVudGVyMg', "HTTP status 500"),
        (b'["hunter2"]', "HTTP status 500"),
        (b"<html><body>log in</body></html>", "HTTP status 500"),
        (b"", "HTTP status 500"),
        (b"\xff\xfe", "\ufffd\ufffd"),
        (b"upstream connect error\n", "upstream connect error"),
        (b'{"kind":"Status","message":null,"reason":null,"details":[1]}', "HTTP status 500"),
    ],
)
def test_body_that_is_no_status_is_shown_only_when_it_is_plain_text(body: bytes, expected: str) -> None:
    assert str(error_from_response(status=500, body=body, request=REQUEST)) == expected


def test_long_message_is_cut() -> None:
    assert len(str(error(500, message="x" * 5000))) == MAX_MESSAGE
    assert len(str(error_from_response(status=500, body=b"x" * 5000, request=REQUEST))) == MAX_MESSAGE


def test_configuration_error_carries_every_problem() -> None:
    found = ConfigurationError(["one", "two"])

    assert found.problems == ("one", "two")
    assert isinstance(found, CCMError)


def test_no_usable_answer_is_one_family() -> None:
    assert issubclass(WatchSilent, Unreachable)
    assert issubclass(UnexpectedAnswer, Unreachable)


def test_a_rejected_credential_is_named_with_its_remedy() -> None:
    answer = Answer(401, "Unauthorized", "Unauthorized")
    named = Unauthorized(answer, server="https://h", credential="the token in /cc", remedy="Get a new one")
    assert str(named) == named.answer.message == "https://h does not accept the token in /cc: Unauthorized"
    assert (named.summary, named.remedy) == ("at https://h does not accept the token in /cc", "Get a new one")
    assert Unauthorized(answer).summary == "does not accept the token in the cloud-config"
