"""Kubernetes' own tests of LoadBalancer Services: ``[sig-network] LoadBalancers`` of its program ``e2e.test``."""

import json
import re
import subprocess
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from devenv.cluster.cluster import Cluster
from devenv.process import ChildProcess, DevenvError
from devenv.restclient import RestClient

GROUP: Final = "[sig-network] LoadBalancers"
SPEC_SECONDS: Final = 1500.0
"""The two rolling updates take ten minutes each."""
RBAC: Final = "rbac.authorization.k8s.io"
USER: Final = "specs"
OF_CLUSTER: Final = ["namespaces", "nodes", "nodes/proxy", "persistentvolumes", "serviceaccounts/token"]
OTHER_GROUPS: Final = [RBAC, "apiextensions.k8s.io", "apps", "discovery.k8s.io", "scheduling.k8s.io", "storage.k8s.io"]
RULES: Final = [
    {"apiGroups": [""], "resources": OF_CLUSTER, "verbs": ["*"]},
    {"apiGroups": OTHER_GROUPS, "resources": ["*"], "verbs": ["*"]},
    {"nonResourceURLs": ["*"], "verbs": ["*"]},
]
"""What the specs need besides the ClusterRole ``admin`` of Kubernetes."""
SLOW: Final = (
    "should not have connectivity disruption during rolling update with externalTrafficPolicy=Cluster",
    "should not have connectivity disruption during rolling update with externalTrafficPolicy=Local",
    "should be able to switch session affinity for LoadBalancer service with Local traffic policy",
)
"""Parts of the names of the specs that take ten minutes. Only ``all`` runs them."""
EXPLAINED: Final = {
    "should be able to switch session affinity for LoadBalancer service with Local traffic policy": (
        "With kube-vip, one node gets all traffic of a Service. If it has only one of the three pods, all requests get "
        "the same answer, and the spec does not see the end of the affinity."
    ),
}
"""Specs that can fail, by parts of their names, with the reasons."""


@dataclass(frozen=True)
class SpecResult:
    """The result of one spec."""

    name: str
    state: str
    """As the program says it: ``passed``, ``failed``, ``timedout`` and others."""
    seconds: float
    message: str

    @property
    def title(self) -> str:
        """The name without the group and marks such as [Slow]."""
        return " ".join(re.sub(r"\[[^]]*\]", "", self.name.removeprefix(GROUP)).split())

    @property
    def explanation(self) -> str:
        """Why this spec can fail, or an empty text."""
        return next((reason for part, reason in EXPLAINED.items() if part in self.name), "")


def chosen_specs(program: Path, chosen: str, directory: Path) -> list[str]:
    """Return the names of some specs; ``chosen`` is ``quick``, ``all``, ``none`` or a regular expression.

    ``directory`` is for a file. Raises DevenvError if no spec has such a name.
    """
    if chosen == "none":
        return []
    names = choose(_names(program, directory), chosen)
    if not names:
        raise DevenvError(f"no spec of {GROUP} matches {chosen!r}")
    return names


def run_specs(cluster: Cluster, names: Sequence[str]) -> Iterator[SpecResult]:
    """Run specs, several at a time, and yield the result of each at its end."""
    grant_permissions(cluster.guest.admin)
    kubeconfig = cluster.guest.client_kubeconfig("specs", USER)
    directory = cluster.setup.out / "specs"
    directory.mkdir()
    with ThreadPoolExecutor(cluster.setup.parallel) as pool:
        runs = [
            pool.submit(_run, cluster, kubeconfig, directory / f"{number:02}", name)
            for number, name in enumerate(names, 1)
        ]
        for run in as_completed(runs):
            yield run.result()


def choose(names: list[str], chosen: str) -> list[str]:
    """Return the names that ``Setup.specs`` selects."""
    if chosen == "all":
        return names
    if chosen == "quick":
        return [name for name in names if not any(part in name for part in SLOW)]
    return [name for name in names if re.search(chosen, name)]


def grant_permissions(admin: RestClient) -> None:
    """Give the user of the specs all permissions but that for ``services/status``, as a tenant of the cluster has."""
    role = {"apiGroup": RBAC, "kind": "ClusterRole"}
    for name, rules in (("admin", []), (USER, RULES)):
        bound = {"roleRef": {**role, "name": name}, "subjects": [{"apiGroup": RBAC, "kind": "User", "name": USER}]}
        meta = {"name": f"{USER}-{name}"}
        objects = [{"kind": "ClusterRoleBinding", "metadata": meta, **bound}]
        if rules:
            objects.append({"kind": "ClusterRole", "metadata": {"name": name}, "rules": rules})
        admin.apply(*({"apiVersion": f"{RBAC}/v1", **one} for one in objects))


def _command(cluster: Cluster, kubeconfig: Path) -> list[str | Path]:
    return [
        *cluster.entering_client(),
        cluster.setup.programs["e2e.test"],
        f"--kubeconfig={kubeconfig}",
        f"--kubectl-path={cluster.setup.programs['kubectl']}",
        "--provider=skeleton",
        f"--num-nodes={len(cluster.nodes)}",
        "--disable-log-dump",
        "--ginkgo.no-color",
    ]


def _names(program: Path, directory: Path) -> list[str]:
    """Return the names of all specs of the group, without those that disturb others."""
    report = directory / "names.json"
    options = ("--ginkgo.dry-run", f"--ginkgo.focus={re.escape(GROUP)}", r"--ginkgo.skip=\[Disruptive\]")
    command = (program, "--provider=skeleton", *options, f"--ginkgo.json-report={report}")
    done = subprocess.run(command, check=False, capture_output=True, text=True)
    if done.returncode != 0:
        raise DevenvError(f"e2e.test cannot list its specs: {done.stdout[-2000:]}{done.stderr[-2000:]}")
    return [_name(spec) for spec in _specs(report) if spec["State"] == "passed"]


def _specs(report: Path) -> list[dict[str, object]]:
    """Return the specs of a report, which has 11 MB because it names every spec of Kubernetes, and delete it."""
    suites = json.loads(report.read_text())
    report.unlink()
    return [spec for suite in suites for spec in suite["SpecReports"] if spec["LeafNodeType"] == "It"]


def _name(spec: dict[str, object]) -> str:
    texts = spec["ContainerHierarchyTexts"]
    assert isinstance(texts, list), f"unexpected texts of a spec: {texts}"
    return " ".join([*texts, str(spec["LeafNodeText"])])


def _run(cluster: Cluster, kubeconfig: Path, files: Path, name: str) -> SpecResult:
    """Run one spec. Its output is ``files`` with the ending ``.log``."""
    # Some names have several blanks where the program expects one.
    pattern = r"\s+".join(re.escape(word) for word in name.split())
    report = files.with_suffix(".json")
    options = ["--ginkgo.v", f"--ginkgo.focus=^.*{pattern}", f"--ginkgo.json-report={report}"]
    began = time.monotonic()
    child = ChildProcess.start(
        "e2e.test", [*_command(cluster, kubeconfig), *options], log_file=files.with_suffix(".log")
    )
    try:
        is_ended = child.wait(SPEC_SECONDS)
    finally:
        child.stop()
    seconds = time.monotonic() - began
    if not is_ended:
        return SpecResult(name, "too slow", seconds, f"not within {SPEC_SECONDS:.0f} s")
    if not report.exists():
        return SpecResult(name, "broken", seconds, child.log_tail(5))
    ran = [spec for spec in _specs(report) if spec["State"] != "skipped"]
    states = {str(spec["State"]) for spec in ran} or {"skipped"}
    failures = [spec["Failure"] for spec in ran if "Failure" in spec]
    messages = [str(failure["Message"]) for failure in failures if isinstance(failure, dict)]
    return SpecResult(name, ", ".join(sorted(states)), seconds, " ".join(messages))
