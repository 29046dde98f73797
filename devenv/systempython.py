"""The tests that depend most on the version of Python, with the Python of the system.

The standard library changes within a version: what works on the newest patch release of Python 3.11 may not work on
that of a distribution, which the image has. ``python -m devenv.systempython PYTHON`` runs the tests of connections,
credentials, watches, the Lease and the end of the process with it. With ``--prepare`` it only installs the packages,
and with ``--ignored`` it prints the options of pytest that leave these tests out of a run with another patch release.
Where nothing would be learned, it says why, and the exit code is 0.
"""

import argparse
import hashlib
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Final, TypeAlias

from devenv import progress

CHECKOUT: Final = Path(__file__).parents[1]
ENVIRONMENT: Final = CHECKOUT / ".venv-system"
REQUIREMENTS: Final = CHECKOUT / "requirements-dev.txt"
TESTS: Final = (
    *(f"tests/unit/kube/test_{name}.py" for name in ("client_limits", "connection", "credentials", "fence")),
    *(f"tests/unit/kube/test_{name}.py" for name in ("informer", "reload", "workqueue")),
    *("tests/unit/test_tls_buffers.py", "tests/unit/telemetry/test_server.py"),
    *(f"tests/program/test_{name}.py" for name in ("credential_files", "ends", "leases")),
    *(f"tests/apiserver/test_{name}.py" for name in ("client", "credentials", "informer", "lease", "server", "watch")),
    *(f"tests/e2e/test_{name}.py" for name in ("credentials", "pause", "stop")),
)
"""Files of tests."""

Version: TypeAlias = tuple[int, ...]


def version_of(python: str) -> Version | None:
    """Return the version of a Python; None if it does not run or has no module ``venv``."""
    script = "import sys, venv; print(*sys.version_info[:3])"
    try:
        run = subprocess.run([python, "-c", script], check=True, capture_output=True, text=True)
    except (OSError, subprocess.CalledProcessError):
        return None
    return tuple(int(part) for part in run.stdout.split())


def supported_versions() -> set[Version]:
    """Return the versions of Python that the package names, without patch releases."""
    project = tomllib.loads((CHECKOUT / "pyproject.toml").read_text())["project"]
    numbers = [
        classifier.rpartition(" :: ")[2] for classifier in project["classifiers"] if "Python :: 3." in classifier
    ]
    return {tuple(int(part) for part in number.split(".")) for number in numbers}


def reason_against(python: str, found: Version | None, present: Version) -> str:
    """Return why the tests are not run again with a Python of the version ``found``; empty if they are."""
    if found is None:
        return f"there is no {python} with the module venv"
    text = ".".join(str(part) for part in found)
    if found == present:
        return f"{python} is the same version, {text}"
    if found[:2] not in supported_versions():
        return f"{python} is Python {text}, which is not supported"
    return ""


def prepare(python: str, found: Version) -> int:
    """Install the pinned packages for a Python, unless they are. Returns the exit code of what failed, or 0."""
    interpreter = ENVIRONMENT / "bin" / "python"
    state = f"{python} {found} {hashlib.sha256(REQUIREMENTS.read_bytes()).hexdigest()}"
    ready = ENVIRONMENT / ".ready"
    if ready.exists() and ready.read_text() == state:
        return 0
    # Debian's Python makes no pip without another package. The one that runs this works on the other environment.
    pip = (sys.executable, "-m", "pip", "--python", str(interpreter), "--disable-pip-version-check")
    requirements = ("--require-hashes", "-r", str(REQUIREMENTS))
    code = progress.run(
        f"Making {ENVIRONMENT.name} with {python}", (python, "-m", "venv", "--clear", "--without-pip", str(ENVIRONMENT))
    ) or progress.run(
        f"Installing the development packages in {ENVIRONMENT.name}, about a minute",
        (*pip, "install", "--quiet", "--no-compile", *requirements),
    )
    if code == 0:
        ready.write_text(state)
    return code


def main() -> int:
    """Entry point. Returns the exit code of the tests, or of the installation if it failed."""
    parser = argparse.ArgumentParser(prog="python -m devenv.systempython", description=__doc__.partition("\n")[0])
    parser.add_argument("--prepare", action="store_true", help="only install the packages")
    parser.add_argument("--ignored", action="store_true", help="only print options of pytest that ignore these tests")
    parser.add_argument("python", help="path of the Python")
    arguments = parser.parse_args()
    found = version_of(arguments.python)
    reason = reason_against(arguments.python, found, sys.version_info[:3])
    if found is None or reason:
        if not (arguments.prepare or arguments.ignored):
            print(f"no tests with another Python: {reason}; SYSTEM_PYTHON=PATH names one")
        return 0
    if arguments.ignored:
        # Another minor version than that of the other run is tested with both.
        if found[:2] == sys.version_info[:2]:
            print(*(f"--ignore={path}" for path in TESTS))
        return 0
    code = prepare(arguments.python, found)
    if code != 0 or arguments.prepare:
        return code
    text = ".".join(str(part) for part in found)
    print(f"tests of connections, credentials, watches, Lease and stop with Python {text} of {arguments.python}:")
    sys.stdout.flush()
    # More workers would take longer: each starts two clusters of its own.
    workers = ("-n", "auto", "--maxprocesses", "2", "--dist", "loadfile")
    pytest = (str(ENVIRONMENT / "bin" / "python"), "-m", "pytest", "-q", *workers)
    return subprocess.run([*pytest, *TESTS], check=False, cwd=CHECKOUT).returncode


if __name__ == "__main__":
    sys.exit(main())
