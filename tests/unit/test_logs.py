"""Log output: form of lines, levels, logs of libraries, removed credentials."""

import base64
import errno
import io
import json
import logging
import re
import warnings
from types import MappingProxyType

import pytest
import structlog

from harvester_ccm.config import LogFormat, LoggingSettings
from harvester_ccm.logs import configure_logging, report, wants_colours
from harvester_ccm.redaction import (
    MAX_FOREIGN_TEXT,
    MAX_LOG_ENTRIES,
    MAX_LOG_FIELD,
    MAX_MESSAGE,
    MAX_TRACEBACK,
    cut,
    end_of,
    redact,
    redact_text,
    sanitize,
)

JWT = "eyJhbGciOiJSUzI1NiJ9.eyJpc3MiOiJrdWJlcm5ldGVzIn0.c2lnbmF0dXJl-_"
PEM = "-----BEGIN EC PRIVATE KEY-----\nMHcCAQEEIA==\n-----END EC PRIVATE KEY-----"
PEM_BASE64 = base64.b64encode(PEM.encode()).decode()
TIME = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{6}Z")


class Terminal(io.StringIO):
    """A stream that is a terminal."""

    def isatty(self) -> bool:
        return True


def configure(
    log_format: LogFormat = LogFormat.TEXT, *, verbosity: int = 0, stream: io.StringIO | None = None
) -> io.StringIO:
    """Configure logging into a buffer."""
    output = stream if stream is not None else io.StringIO()
    configure_logging(LoggingSettings(log_format, verbosity), output)
    return output


NASTY = "a\x1b[31mb\rc\x07d\x00e\x7ff\x85g\x9bh\u2028i\u202ej\u2066k\u200bl\nm"
"""Characters that move a cursor, end a line or reverse text."""


@pytest.mark.parametrize("log_format", LogFormat)
@pytest.mark.security("Control characters from other objects are escaped")
def test_text_of_other_programs_is_escaped(log_format: LogFormat) -> None:
    output = configure(log_format)
    log = structlog.get_logger()
    log.info(NASTY, text=NASTY, words=[NASTY], named={"a": NASTY})
    try:
        fail(ValueError(NASTY))
    except ValueError:
        log.exception("failed")

    written = output.getvalue()
    assert all(character == "\n" or character.isprintable() for character in written)
    first, second, *traceback = written.splitlines()
    assert "failed" in second
    assert first.count(r"\u202e") == 4
    assert all(line.startswith("  ") for line in traceback)
    if log_format is LogFormat.JSON:
        assert json.loads(first)["text"] == NASTY


def lines(output: io.StringIO) -> list[str]:
    written = []
    for line in output.getvalue().splitlines():
        time, _, rest = line.partition(" ")
        if TIME.fullmatch(time):
            written.append(rest)
        else:
            written.append(line)
    return written


def fail(error: Exception) -> None:
    raise error


def test_text_lines() -> None:
    output = configure()
    log = structlog.get_logger()
    log.info("load balancer created", service="default/web", ports=[80, 443], note="two words", empty="", none=None)
    log.warning("late", seconds=1.5, text='a="b"')
    log.error("first\nsecond", key="tab\there")
    log.critical("end")
    assert output.getvalue().startswith("20")
    assert lines(output) == [
        "[info     ] load balancer created service=default/web ports=[80, 443] note='two words' empty= none=None",
        """[warning  ] late seconds=1.5 text='a="b"'""",
        "[error    ] first\\nsecond key=tab\\there",
        "[critical ] end",
    ]


def test_json_lines() -> None:
    output = configure(LogFormat.JSON)
    structlog.get_logger().warning("late", seconds=1.5, node="w1", who={"a": [1, None]})
    (line,) = output.getvalue().splitlines()
    document = json.loads(line)
    assert TIME.fullmatch(document.pop("time"))
    assert document == {
        "level": "warning",
        "message": "late",
        "seconds": 1.5,
        "node": "w1",
        "who": {"a": [1, None]},
    }


@pytest.mark.parametrize(
    ("verbosity", "shown"),
    [(0, ["info"]), (3, ["info"]), (4, ["debug", "info"])],
)
def test_levels(verbosity: int, shown: list[str]) -> None:
    output = configure(verbosity=verbosity)
    structlog.get_logger().debug("debug")
    structlog.get_logger().info("info")
    assert [line.split()[-1] for line in lines(output)] == shown


def test_colours_only_on_a_terminal() -> None:
    output = configure(stream=Terminal())
    structlog.get_logger().warning("late")
    structlog.get_logger().info("done")
    assert output.getvalue().count("\x1b[33m") == 1


@pytest.mark.parametrize(
    ("environment", "expected"),
    [({}, True), ({"NO_COLOR": "1"}, False), ({"NO_COLOR": ""}, True), ({"TERM": "dumb"}, False)],
)
def test_environment_can_forbid_colours(environment: dict[str, str], *, expected: bool) -> None:
    assert wants_colours(Terminal(), environment) is expected


def test_errors_of_a_command_line_are_lines_without_credentials(capsys: pytest.CaptureFixture[str]) -> None:
    report(["a\nb Bearer abc"], "try x")
    assert capsys.readouterr().err == "harvester-ccm: error: a b Bearer [removed]\nharvester-ccm: hint: try x\n"


def test_exception_that_a_library_logs_has_its_traceback(monkeypatch: pytest.MonkeyPatch) -> None:
    output = configure()
    try:
        fail(ValueError("boom"))
    except ValueError:
        logging.getLogger("asyncio").exception("failed")
    assert lines(output)[-1] == "  ValueError: boom"
    monkeypatch.setattr(logging, "raiseExceptions", False)
    # A record with wrong arguments cannot be written, and raises nothing.
    logging.getLogger("asyncio").error("%d", "x")


def test_exceptions_follow_the_line_without_credentials() -> None:
    output = configure()
    try:
        fail(ValueError(f"server said Bearer {JWT}"))
    except ValueError:
        structlog.get_logger().exception("failed", service="default/web")
    first, *rest = lines(output)
    assert first == "[error    ] failed service=default/web"
    assert rest[0] == "  Traceback (most recent call last):"
    assert rest[-1] == "  ValueError: server said Bearer [removed]"
    assert JWT not in output.getvalue()


@pytest.mark.parametrize("log_format", list(LogFormat))
def test_no_credential_is_logged(log_format: LogFormat) -> None:
    output = configure(log_format)
    structlog.get_logger().info(
        f"message {JWT}",
        error=RuntimeError(f"Authorization: Bearer {JWT}"),
        headers={"Authorization": "Basic dXNlcjpwYXNz"},
        kubeconfig=[f"token: kubeconfig-user-x7:{'q' * 20}", {"client-key-data": PEM_BASE64}],
        raw=PEM.encode(),
        password="hunter2",
    )
    written = output.getvalue()
    for secret in ("eyJ", "dXNlcjpwYXNz", "kubeconfig-user", "LS0tLS1", "MHcCAQEEIA", "hunter2"):
        assert secret not in written
    assert written.count("[removed]") == 6


def test_field_with_thousands_of_entries_of_others_is_cut() -> None:
    output = configure(LogFormat.JSON)
    texts = [f"text {number}" for number in range(50 * MAX_LOG_ENTRIES)]
    structlog.get_logger().info(
        "node addresses selected",
        text="x" * (2 * MAX_LOG_FIELD),
        entries=texts,
        by_name=dict.fromkeys(texts, "reason"),
        inside={"entries": tuple(texts)},
    )
    document = json.loads(output.getvalue())
    assert len(document["text"]) == MAX_LOG_FIELD
    assert document["entries"] == document["inside"]["entries"] == texts[:MAX_LOG_ENTRIES]
    assert list(document["by_name"]) == texts[:MAX_LOG_ENTRIES]


SECRETS = (
    *("access-token", "api-key", "authorization", "client-key", "client-key-data", "client-secret", "id-token"),
    *("kubeconfig", "passwd", "password", "private-key", "refresh-token", "secret", "secret-key", "token"),
)


@pytest.mark.parametrize("name", SECRETS)
def test_value_of_a_secret_field_is_removed(name: str) -> None:
    assert redact("abc", name) == redact("abc", name.replace("-", "_").upper()) == "[removed]"
    assert redact([MappingProxyType({name: "abc"})]) == [{name: "[removed]"}]


def test_long_text_of_others_is_one_line_of_limited_length() -> None:
    assert sanitize("\n" * 5000) == r"\n" * (MAX_MESSAGE // 2)


def test_limits_of_a_log_line() -> None:
    assert (MAX_LOG_FIELD, MAX_LOG_ENTRIES, MAX_TRACEBACK) == (4096, 100, 16_384)
    assert redact({"a"}) == ["a"]


def test_long_traceback_is_cut_at_its_start() -> None:
    output = configure(LogFormat.JSON)
    try:
        fail(ValueError("x " * MAX_TRACEBACK + " the end"))
    except ValueError:
        structlog.get_logger().exception("failed")
    traceback = json.loads(output.getvalue())["exception"]
    assert MAX_TRACEBACK - 2 <= len(traceback) <= MAX_TRACEBACK
    assert traceback.endswith(" the end")


@pytest.mark.security("known forms of credentials are removed")
def test_part_of_a_credential_at_the_limit_is_left_out() -> None:
    """An earlier credential makes the text shorter, so that more of it is shown than a message has."""
    token = "eyJ" + "a" * 900
    for length in range(MAX_FOREIGN_TEXT - 40, MAX_FOREIGN_TEXT + 40):
        text = f"Get with Bearer {token} ".ljust(length - 20, ".") + " https://user:hunter2hunter2@host"
        assert "hunter2" not in sanitize(text)
        assert "hunter2" not in sanitize(cut(text))
    for limit in range(1, 60):
        assert "hunter2" not in redact_text(end_of("at https://user:hunter2hunter2@host it failed", limit))
        words = "." * (MAX_LOG_FIELD - limit)
        assert "hunter2" not in str(redact(f"{words} https://user:hunter2hunter2@host"))


def test_library_logs_and_warnings_have_the_same_form() -> None:
    output = configure()
    configure(stream=output)  # a second set-up must not double the lines
    logging.getLogger("aiohttp.access").info("not shown")
    logging.getLogger("asyncio").warning("slow callback %s", "x")
    with warnings.catch_warnings():
        warnings.simplefilter("always")
        logging.captureWarnings(True)
        warnings.warn("old call", DeprecationWarning, stacklevel=1)
    shown = lines(output)
    assert shown[0] == "[warning  ] slow callback x [asyncio]"
    assert "DeprecationWarning: old call" in shown[1]
    assert shown[1].startswith("[warning  ]")
    assert shown[1].endswith("[py.warnings]")
    assert len(shown) == 2


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        pytest.param("Authorization: Bearer abc", "Authorization: Bearer [removed]", id="header"),
        pytest.param("curl -H 'Bearer abc'", "curl -H 'Bearer [removed]'", id="header in quotes"),
        pytest.param("bearer k10abcdef::server:x", "bearer [removed]", id="lower case"),
        pytest.param("BEARER k10abcdef", "BEARER [removed]", id="capitals"),
        pytest.param(f"bearer {'a' * 100}1", "bearer [removed]", id="long token"),
        pytest.param("Authorization: Negotiate YII=", "Authorization: Negotiate [removed]", id="Kerberos"),
        pytest.param(f"kubeconfig-{'u' * 60}:xyz", "[removed]", id="token of Rancher for a long name"),
        pytest.param(f"got {JWT}, then", "got [removed], then", id="web token"),
        pytest.param(f"key:\n{PEM}\nend", "key:\n[removed]\nend", id="private key"),
        pytest.param(PEM[:50], "[removed]", id="cut private key"),
        pytest.param(repr(PEM), "'[removed]'", id="private key in one line"),
        pytest.param(f"data={PEM_BASE64}", "data=[removed]", id="private key in base64"),
        pytest.param("token: abc123def456", "token: [removed]", id="YAML field"),
        pytest.param('{"token":"abc123def456","x":1}', '{"token":"[removed]","x":1}', id="JSON field"),
        pytest.param("{'client_secret': 's3cr3t-value'}", "{'client_secret': '[removed]'}", id="dict"),
        pytest.param("Authorization: Basic dXNlcjpw", "Authorization: Basic [removed]", id="login in a header"),
        pytest.param("{'Authorization': 'Basic dXNlcg=='}", "{'Authorization': 'Basic [removed]'}", id="and in a dict"),
        pytest.param('{"token": "kubeconfig-user-abc:xyz"}', '{"token": "[removed]"}', id="token without a digit"),
        pytest.param('{"client-secret": "a b"}', '{"client-secret": "[removed]"}', id="JSON field with a blank"),
        pytest.param("token: kubeconfig-user-abc:xyz", "token: [removed]", id="token of Rancher"),
        pytest.param("got token-x7kqz:abc, then", "got [removed], then", id="token of Rancher in a sentence"),
        pytest.param("password: hunter", "password: [removed]", id="password"),
        pytest.param("passwd=hunter", "passwd=[removed]", id="short password"),
        pytest.param("access_token=abc123def456", "access_token=[removed]", id="access token"),
        pytest.param("secret: abc123def456", "secret: [removed]", id="secret"),
        pytest.param('{"apiKey": "abc"}', '{"apiKey": "[removed]"}', id="API key"),
        pytest.param(r"{\"token\": \"abc\"}", r"{\"token\": \"[removed]\"}", id="JSON in JSON"),
        pytest.param("Kubeconfig-User-ABC:XYZ1", "[removed]", id="token of Rancher in capitals"),
        pytest.param("PASSWORD=hunter; x", "PASSWORD=[removed]; x", id="password in an environment"),
        pytest.param("http://user:p@ss@host/a@b", "http://[removed]@host/a@b", id="login with an @"),
        pytest.param("http://host/path?to=a@b", "http://host/path?to=a@b", id="address with an @"),
        pytest.param("http://host?to=a@b", "http://host?to=a@b", id="query with an @"),
        pytest.param("Authorization: denied", "Authorization: denied", id="message about authorization"),
        pytest.param("token: expired", "token: expired", id="message about a token"),
        pytest.param("bearer authentication is used", "bearer authentication is used", id="sentence"),
        pytest.param("-----BEGIN CERTIFICATE-----\nMIIB", "-----BEGIN CERTIFICATE-----\nMIIB", id="certificate"),
        pytest.param("harvester://0f3c-1", "harvester://0f3c-1", id="provider ID"),
    ],
)
def test_redacted_texts(text: str, expected: str) -> None:
    assert redact_text(text) == expected


def test_json_begins_with_time_level_and_message() -> None:
    output = configure(LogFormat.JSON)
    structlog.get_logger().warning("event emitted", service="shop/web", detail="x")
    assert list(json.loads(output.getvalue())) == ["time", "level", "message", "service", "detail"]


class FullDisk(io.StringIO):
    """A stream on a disk without space."""

    refused = 0

    def write(self, _text: str, /) -> int:
        self.refused += 1
        raise OSError(errno.ENOSPC, "No space left on device")

    def flush(self) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")


def test_log_that_cannot_be_written_does_not_end_the_program() -> None:
    stream = FullDisk()
    configure(stream=stream)
    for _ in range(3):
        structlog.get_logger().info("starting")
    assert stream.refused == 3
