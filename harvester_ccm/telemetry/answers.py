"""The texts of health answers, as Kubernetes components give them. Pure."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from http import HTTPStatus
from typing import Final

from msgspec import Struct

from harvester_ccm.telemetry.health import CheckResult

PLAIN: Final = "text/plain; charset=utf-8"


class HttpAnswer(Struct, frozen=True):
    """A whole HTTP answer."""

    status: HTTPStatus
    body: bytes
    content_type: str = PLAIN


def say(status: HTTPStatus, sentence: str) -> HttpAnswer:
    """Return an answer of one sentence."""
    return HttpAnswer(status, f"{sentence}\n".encode())


def summary(
    endpoint: str, results: Sequence[CheckResult], *, verbose: bool, exclude: Collection[str] = ()
) -> HttpAnswer:
    """Return the answer about all checks of an endpoint, without those to be excluded.

    What is wrong is not said here: the caller may be anybody.
    """
    failed = any(one.problem is not None and one.name not in exclude for one in results)
    if not failed and not verbose:
        return HttpAnswer(HTTPStatus.OK, b"ok")
    lines = [_line(one, excluded=one.name in exclude) for one in results]
    lines += _unknown(results, exclude)
    lines.append(f"{endpoint} check {'failed' if failed else 'passed'}")
    return say(HTTPStatus.INTERNAL_SERVER_ERROR if failed else HTTPStatus.OK, "\n".join(lines))


def single(result: CheckResult, *, explain: bool) -> HttpAnswer:
    """Return the answer about one check; what is wrong is said only to callers who proved who they are."""
    if result.problem is None:
        return HttpAnswer(HTTPStatus.OK, b"ok")
    problem = result.problem if explain else "reason withheld"
    return say(HTTPStatus.INTERNAL_SERVER_ERROR, f"internal server error: {problem}")


def _line(result: CheckResult, *, excluded: bool) -> str:
    if excluded:
        return f"[+]{result.name} excluded: ok"
    return f"[+]{result.name} ok" if result.problem is None else f"[-]{result.name} failed: reason withheld"


def _unknown(results: Sequence[CheckResult], exclude: Collection[str]) -> Iterator[str]:
    unknown = sorted(set(exclude) - {one.name for one in results})
    if unknown:
        names = ", ".join(f'"{name}"' for name in unknown)
        yield f"warn: some health checks cannot be excluded: no matches for {names}"
