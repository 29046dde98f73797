"""Whether `make test` repeats tests with the Python of the system."""

import tomllib

from devenv.systempython import CHECKOUT, TESTS, supported_versions


def test_supported_versions_begin_with_the_oldest_that_the_package_requires() -> None:
    project = tomllib.loads((CHECKOUT / "pyproject.toml").read_text())["project"]
    oldest = ".".join(str(part) for part in min(supported_versions()))
    assert project["requires-python"] == f">={oldest}"


def test_every_file_exists() -> None:
    assert [name for name in TESTS if not (CHECKOUT / name).is_file()] == []
