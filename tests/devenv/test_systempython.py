"""Which tests `make test` runs with the Python of the system."""

import sys
import tomllib

import pytest

from devenv import systempython
from devenv.systempython import CHECKOUT, TESTS, supported_versions


def test_supported_versions_begin_with_the_oldest_that_the_package_requires() -> None:
    project = tomllib.loads((CHECKOUT / "pyproject.toml").read_text())["project"]
    oldest = ".".join(str(part) for part in min(supported_versions()))
    assert project["requires-python"] == f">={oldest}"


def test_every_file_exists() -> None:
    assert [name for name in TESTS if not (CHECKOUT / name).is_file()] == []


def test_tests_run_once_with_a_patch_release_and_twice_with_another_version(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "argv", ["systempython", "--ignored", "python"])
    printed = []
    for found in (tuple(sys.version_info[:2]), (3, 99)):
        monkeypatch.setattr(systempython, "version_of", lambda _python, found=found: (*found, 99))
        monkeypatch.setattr(systempython, "reason_against", lambda *_: "")
        assert systempython.main() == 0
        printed.append(capsys.readouterr().out.split())
    assert printed == [[f"--ignore={path}" for path in TESTS], []]
