"""Command line of ``make e2e-cluster``: builds what is missing, runs the cluster in a capsule, and keeps its logs."""

import argparse
import fcntl
import os
import re
import shutil
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from devenv.binaries import cache_directory
from devenv.cluster.builds import CHECKOUT, build, check_machine, say
from devenv.cluster.capsule import capsule_command
from devenv.cluster.cgroups import control_groups
from devenv.cluster.harvester import REAL_PROGRAMS
from devenv.cluster.report import INTERRUPTED, exit_code_of
from devenv.cluster.setup import Setup
from devenv.cluster.specs import chosen_specs
from devenv.process import ChildProcess, DevenvError, run_directory

STOP_SECONDS: Final = 10.0
POLL_SECONDS: Final = 0.2
# Without the proxies of the machine's network, which cannot be reached from the capsule.
ENVIRONMENT: Final = ("PATH", "HOME", "TMPDIR", "HARVESTER_CCM_CACHE", "XDG_CACHE_HOME", "KUBEBUILDER_ASSETS")
"""Variables that the capsule gets."""


@contextmanager
def only_one() -> Iterator[None]:
    """Raise DevenvError if another cluster of this machine runs: names of control groups are fixed."""
    cache = cache_directory()
    cache.mkdir(parents=True, exist_ok=True)
    with (cache / "cluster.lock").open("w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            raise DevenvError("another make e2e-cluster runs on this machine") from error
        yield


def real_programs(name: str) -> str:
    """Return the absolute path of a directory with Harvester's programs. Raises DevenvError if one is missing."""
    directory = Path(name).absolute()
    missing = [program for program in REAL_PROGRAMS if not os.access(directory / program, os.X_OK)]
    if missing:
        raise DevenvError(f"{directory} has no executable file {', '.join(missing)}")
    return str(directory)


def follow(child: ChildProcess) -> int:
    """Print the output of a process until it ends, and return its exit code."""
    with child.log_file.open() as output:
        while not child.wait(POLL_SECONDS):
            print(output.read(), end="", flush=True)
        print(output.read(), end="", flush=True)
    code = child.exit_code()
    assert code is not None, "the process has ended"
    return code


def run(options: argparse.Namespace, directory: Path) -> int:
    """Build, run the capsule, and return its exit code."""
    began = time.monotonic()
    builds = build(directory)
    specs = chosen_specs(builds.programs["e2e.test"], options.specs, directory)
    say(f"everything is built after {time.monotonic() - began:.0f} s")
    out: Path = options.out.absolute()
    shutil.rmtree(out, ignore_errors=True)
    out.mkdir(parents=True)
    work = directory / "work"
    work.mkdir()
    setup = Setup(
        programs={name: str(path) for name, path in builds.programs.items()},
        debian=builds.debian,
        archives={path.name: str(path) for path in builds.archives},
        agnhost=builds.agnhost,
        work=work,
        out=out,
        specs=specs,
        values=options.set,
        parallel=options.parallel,
        harvester_bin=options.harvester_bin,
        keep=options.keep,
    )
    file = directory / "setup.json"
    setup.write(file)
    command = capsule_command([sys.executable, "-m", "devenv.cluster.inside", file])
    environment = {name: os.environ[name] for name in ENVIRONMENT if name in os.environ}
    with control_groups():
        child = ChildProcess.start("capsule", command, log_file=out / "report.md", cwd=CHECKOUT, env=environment)
        if options.keep:
            kubectl = f"env KUBECONFIG={work}/guest/admin.kubeconfig {setup.programs['kubectl']}"
            say(f"to use it: nsenter --target {child.pid} --mount --net {kubectl} get pods --all-namespaces")
        try:
            code = follow(child)
        except KeyboardInterrupt:
            # With --keep it is the normal end.
            code = exit_code_of(child.log_file.read_text())
        finally:
            child.stop(grace=STOP_SECONDS)
    say(f"logs and results are in {out}")
    return code


def main() -> int:
    """Entry point of ``python -m devenv.cluster``. Returns the exit code."""
    parser = argparse.ArgumentParser(prog="python -m devenv.cluster", description=__doc__)
    parser.add_argument("--specs", default="quick", help="Kubernetes' specs: quick, all, none or a regular expression")
    parser.add_argument("--set", action="append", default=[], metavar="NAME=VALUE", help="value of the chart")
    parser.add_argument("--parallel", type=int, default=4, help="number of specs at a time")
    parser.add_argument("--harvester-bin", default="", help="directory with Harvester's lb-controller and lb-webhook")
    parser.add_argument("--out", type=Path, default=Path("build/e2e-cluster"), help="directory for logs and results")
    parser.add_argument("--keep", action="store_true", help="keep the cluster until Ctrl-C")
    options = parser.parse_args()
    try:
        re.compile(options.specs)
    except re.error as error:
        say(f"error: SPECS={options.specs} is no regular expression: {error}")
        return 1
    try:
        check_machine()
        if options.harvester_bin:
            options.harvester_bin = real_programs(options.harvester_bin)
        with only_one(), run_directory("e2e-cluster") as directory:
            try:
                return run(options, directory)
            except KeyboardInterrupt:
                return INTERRUPTED
    except DevenvError as error:
        say(f"error: {error}")
        return 1


if __name__ == "__main__":
    sys.exit(main())
