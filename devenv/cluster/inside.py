"""What happens in the capsule: ``python -m devenv.cluster.inside SETUP``. SETUP is a file of ``Setup.write``."""

import signal
import subprocess
import sys
import time
import traceback
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path

from devenv.binaries import KUBE_VIP, KUBERNETES
from devenv.cluster.cluster import Cluster
from devenv.cluster.report import EXPLAINED, FAILED, PASSED, Report
from devenv.cluster.setup import Setup
from devenv.cluster.specs import SpecResult, run_specs
from devenv.cluster.story import AFTER_SPECS, BEFORE_SPECS, Step


def take(report: Report, name: str, action: Callable[[], str]) -> bool:
    """Run an action, report it, and return whether it succeeded."""
    began = time.monotonic()
    try:
        detail = action()
    # Every failure of a step is its result, also one that nobody expected.
    except Exception as error:
        traceback.print_exc()
        report.row(name, FAILED, time.monotonic() - began, str(error) or repr(error))
        return False
    report.row(name, PASSED, time.monotonic() - began, detail)
    return True


def take_steps(report: Report, cluster: Cluster, steps: Sequence[Step]) -> None:
    """Take all steps: the failure of one shows nothing about the others."""
    for step in steps:
        take(report, str(step.__doc__), partial(take_step, cluster, step))


def take_step(cluster: Cluster, step: Step) -> str:
    """Take one step. The logs of pods that it replaces are saved before."""
    cluster.save_logs(f"before-{step.__name__}")
    return step(cluster)


def report_spec(report: Report, result: SpecResult) -> None:
    """Report a spec. A failure with an explanation does not count."""
    if result.state == "passed":
        report.row(result.title, PASSED, result.seconds, "")
    elif result.explanation:
        report.row(result.title, EXPLAINED, result.seconds, result.explanation)
    else:
        report.row(result.title, FAILED, result.seconds, f"{result.state}: {result.message}")


def start(cluster: Cluster) -> str:
    """Start the cluster and return what runs."""
    cluster.start()
    return f"{len(cluster.nodes)} Nodes are registered"


def run(setup: Setup, report: Report) -> None:
    """Start the cluster, take all steps, and print the table."""
    harvester = "Harvester's programs" if setup.harvester_bin else "the emulated Harvester"
    report.head(f"Kubernetes {KUBERNETES}, kube-vip {KUBE_VIP}, {harvester}")
    cluster = Cluster(setup)
    first, *others = BEFORE_SPECS
    # Without a cluster and an installation, every further row would be a timeout.
    if take(report, "Cluster", lambda: start(cluster)) and take(report, str(first.__doc__), lambda: first(cluster)):
        take_steps(report, cluster, others)
        for result in run_specs(cluster, setup.specs):
            report_spec(report, result)
        take_steps(report, cluster, AFTER_SPECS)
    if report.failed:
        save_state(cluster)
    report.end()
    if setup.keep:
        print("The cluster stays until you press Ctrl-C.", flush=True)
        signal.pause()


def save_state(cluster: Cluster) -> None:
    """Write what an investigation of a failure needs to files."""
    for name, words in {
        "pods": ("get", "pods", "--all-namespaces", "--output=wide"),
        "pods-described": ("describe", "pods", "--all-namespaces"),
        "services": ("get", "services", "--all-namespaces", "--output=yaml"),
        "events": ("get", "events", "--all-namespaces", "--sort-by=.lastTimestamp"),
        "nodes": ("get", "nodes", "--output=yaml"),
    }.items():
        try:
            text = cluster.kubectl(*words)
        # The state after a failure can be any.
        except Exception as error:
            text = str(error)
        (cluster.setup.out / f"{name}.txt").write_text(text)
    try:
        cluster.save_logs("failed")
    except Exception:
        traceback.print_exc()


def main() -> int:
    """Entry point. Returns the exit code."""
    setup = Setup.read(Path(sys.argv[1]))
    report = Report()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "mode=0700", "tmpfs", setup.work], check=True)
    setup.root.mkdir()
    subprocess.run(["tar", "-xf", setup.debian, f"--directory={setup.root}"], check=True)
    run(setup, report)
    return 1 if report.failed else 0


if __name__ == "__main__":
    sys.exit(main())
