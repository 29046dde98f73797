"""Whether `make test` repeats tests with the Python of the system."""

import sys
import tomllib

import pytest

from devenv.systempython import CHECKOUT, TESTS, main, reason_against, supported_versions, version_of


def test_version_is_that_of_the_program() -> None:
    assert version_of(sys.executable) == sys.version_info[:3]


@pytest.mark.parametrize("path", ["/nonexistent/python3", "/dev/null", "/bin/false"])
def test_program_that_is_no_python_has_no_version(path: str) -> None:
    assert version_of(path) is None


@pytest.mark.parametrize(
    ("found", "reason"),
    [
        (None, "there is no /usr/bin/python3 with the module venv"),
        ((3, 13, 5), "/usr/bin/python3 is the same version, 3.13.5"),
        ((3, 10, 12), "/usr/bin/python3 is Python 3.10.12, which is not supported"),
        ((3, 99, 0), "/usr/bin/python3 is Python 3.99.0, which is not supported"),
        ((3, 13, 4), ""),
        ((3, 11, 2), ""),
    ],
)
def test_tests_are_repeated_with_another_supported_version(found: tuple[int, ...] | None, reason: str) -> None:
    assert reason_against("/usr/bin/python3", found, (3, 13, 5)) == reason


def test_supported_versions_begin_with_the_oldest_that_the_package_requires() -> None:
    project = tomllib.loads((CHECKOUT / "pyproject.toml").read_text())["project"]
    oldest = ".".join(str(part) for part in min(supported_versions()))
    assert project["requires-python"] == f">={oldest}"


def test_every_file_exists() -> None:
    assert [name for name in TESTS if not (CHECKOUT / name).is_file()] == []


def test_missing_python_is_reported_and_no_failure(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "argv", ["systempython", "/nonexistent/python3"])

    assert main() == 0
    assert capsys.readouterr().out == (
        "no tests with another Python: there is no /nonexistent/python3 with the module venv; SYSTEM_PYTHON=PATH "
        "names one\n"
    )
