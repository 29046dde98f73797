"""The program with other times than those built into it."""

from __future__ import annotations

import sys
from pathlib import Path
from types import ModuleType

import pytest

from devenv import times
from devenv.ccm import CcmProcess
from devenv.loaded import LoadedProgram
from devenv.restclient import wait_until
from harvester_ccm import __version__

SECONDS = 60.0


def test_a_time_is_another_one_for_all_who_use_it(monkeypatch: pytest.MonkeyPatch) -> None:
    home, user, other = (ModuleType(f"{times.PROGRAM}.{name}") for name in ("home", "user", "other"))
    vars(home)["PAUSE"] = vars(user)["PAUSE"] = built_in = 30.0 + len(sys.argv)
    vars(other)["PAUSE"] = unlike = built_in + 1
    for module in (home, user, other):
        monkeypatch.setitem(sys.modules, module.__name__, module)

    times.put({"home.PAUSE": 3.0})

    assert [vars(module)["PAUSE"] for module in (home, user, other)] == [3.0, 3.0, unlike]
    with pytest.raises(KeyError):
        times.put({"home.PAWS": 3.0})


def ended(directory: Path, name: str, loaded: LoadedProgram | None) -> tuple[int | None, str]:
    """Return the exit code and the log of a run that only says its version, with another time of this name."""
    nowhere = directory / "kubeconfig"
    run = CcmProcess.start(
        directory,
        cloud_config=nowhere,
        kubeconfig=nowhere,
        arguments=["--version"],
        loaded=loaded,
        times={f"kube.client.{name}": 3.0},
    )
    wait_until(lambda: run.exit_code is not None, seconds=SECONDS, what="the end of the run")
    return run.exit_code, run.log


def test_a_fresh_run_gets_them(tmp_path: Path) -> None:
    assert ended(tmp_path, "REQUEST_TIMEOUT", None)[0] == 0
    code, log = ended(tmp_path, "NO_SUCH_TIME", None)
    assert (code, "KeyError: 'NO_SUCH_TIME'" in log) == (1, True)


@pytest.mark.skipif(sys.platform != "linux", reason="it forks")
def test_a_run_that_is_loaded_already_gets_them(tmp_path: Path) -> None:
    with LoadedProgram(tmp_path) as loaded:
        code, log = ended(tmp_path, "NO_SUCH_TIME", loaded)
        assert (code, "KeyError: 'NO_SUCH_TIME'" in log) == (1, True)
        # It is this run's alone.
        code, log = ended(tmp_path, "REQUEST_TIMEOUT", loaded)
        assert (code, log) == (0, f"harvester-ccm {__version__}\n")
