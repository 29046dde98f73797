"""14 faults as an operator meets them, and the line of ``status`` with the cause and the fix.

Those of the first hour, and those of one Service or Node whose text the tests of its plan have, are not repeated.

``operator_faults.txt`` has a name and a line per fault: a problem, a note or an error of ``status``.
HARVESTER_CCM_RENEW_SNAPSHOTS=1 writes the rows.

The goal is that the line is there 30 s after the fault, in a call that takes ten seconds. A busy machine takes longer,
so no time is asserted: ``pytest --thorough -rP tests/e2e/test_operator_faults.py`` prints the times.

The faults of each part are caused together where they do not disturb each other. H: Harvester, C: configuration and
credentials, O: operation.
"""

import asyncio
import json
import os
import re
import sys
from collections.abc import Awaitable, Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Any, Final

import pytest
import yaml

from devenv.apiserver import SERVICE_ACCOUNT
from devenv.ccm import CcmProcess
from devenv.demo.scenario import NETWORKS, NODES, initialized, listen
from devenv.faults import Delay, Hang
from devenv.guestnodes import GuestNodes
from devenv.harvester import FAST
from devenv.pki import Authority
from devenv.proxy import FaultProxy
from devenv.stage import Stage, until
from harvester_ccm.cli import main
from harvester_ccm.model.harvester import LOAD_BALANCERS
from harvester_ccm.names import (
    HEALTH_CHECK_PORT,
)
from tests.apiserver.preflight_world import edited
from tests.e2e.test_first_hour import VARIABLE

LINES: Final = Path(__file__).with_name("operator_faults.txt")
GIVES_UP: Final = 300.0
"""Seconds after which a line counts as missing, on the slowest machine. A part takes two minutes on a fast one."""
PORT: Final = {"name": "http", "port": 18080}
HEALTHY: Final = ("web", "portal")
BINDING: Final = "/apis/rbac.authorization.k8s.io/v1/namespaces/default/rolebindings"
ROLES: Final = "/apis/rbac.authorization.k8s.io/v1/clusterroles"
ACCESS_REVIEWS: Final = "/apis/authorization.k8s.io/v1/subjectaccessreviews"
CRD: Final = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
PRESENT: Final = (
    *VARIABLE,
    (r"\b\d+\.\d s\b", "N s"),
    (r"\b\d+[smh] ago", "Ns ago"),
    (r"port \d+:", "port PORT:"),
    (r"\d{4}-\d\d-\d\d(T| )\d\d:\d\d(:\d\d\.?\d*Z?)?", "TIME"),
    (r"harvester://[0-9a-f-]{36}", "harvester://UID"),
    (r"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}", "UID"),
    (r"/tmp/[^ ]*/", "/DIRECTORY/"),
    (r"pid=\d+", "pid=N"),
)
"""Patterns of texts that differ between runs, with their replacements."""

NAMES: Final = {
    "H3": "deleted CustomResourceDefinition",
    "H7": "frozen API of Harvester",
    "H8": "slow API of Harvester",
    "C1": "certificate authority of another cluster",
    "C2": "cloud-config with garbage",
    "C3": "deleted cloud-config",
    "C4": "wrong namespace",
    "C5": "cloud-config of the guest cluster",
    "C6": "wrong port",
    "C7": "host name that is not resolved",
    "C8": "no permission for services/status",
    "O2": "frozen API of the guest cluster",
    "O8": "clock that is wrong",
    "O10": "Service deleted while Harvester is frozen",
}


@dataclass(frozen=True)
class Search:
    """How long it took to find the line of a fault."""

    fault: str
    seconds: float
    """Since the search began, right after the fault."""
    longest: float = 0.0
    """Seconds of the slowest call of the command."""

    def __str__(self) -> str:
        return f"{self.fault}: line after {self.seconds:.1f} s, slowest call {self.longest:.1f} s"


class Operator:
    """A cluster with two Services that work, what an operator types, and the lines that were found."""

    def __init__(self, stage: Stage, guest: GuestNodes, capsys: pytest.CaptureFixture[str]) -> None:
        self.stage = stage
        self.guest = guest
        self.lines: dict[str, str] = {}
        self.searches: list[Search] = []
        self._durations: list[float] = []
        """Seconds of each call of a command since the last search began."""
        self._capsys = capsys
        directory = stage.directory
        self.cloud_config = stage.harvester_proxy.kubeconfig(stage.scene.cloud_config, directory / "own-cloud-config")
        self.kubeconfig = stage.guest_proxy.kubeconfig(stage.scene.kubeconfig, directory / "own-kubeconfig")
        admin = stage.scene.guest.admin_kubeconfig
        self.admin = stage.guest_proxy.kubeconfig(admin, directory / "own-admin-kubeconfig")

    async def start(self, **flags: str) -> CcmProcess:
        """Start the controller and return it when it leads."""
        run = self.stage.run(flags=flags, cloud_config=self.cloud_config, kubeconfig=self.kubeconfig)
        await self.stage.logged(run, "service controller started")
        return run

    async def command(self, *words: str) -> tuple[str, str]:
        """Return what a command prints to standard output and to standard error."""
        files = {"cluster-name": "demo", "cloud-config": self.cloud_config, "kubeconfig": self.admin}
        line = ["harvester-ccm", *words, *(f"--{name}={value}" for name, value in files.items())]
        self._capsys.readouterr()
        began = asyncio.get_running_loop().time()
        await asyncio.to_thread(main, line, {})
        self._durations.append(asyncio.get_running_loop().time() - began)
        captured = self._capsys.readouterr()
        return captured.out, captured.err

    async def status(self) -> list[str]:
        """Return the problems and notes of ``status``, or its errors, each as one line."""
        out, err = await self.command("status", "-o", "json")
        if not out:
            return err.splitlines()
        document = json.loads(out)
        problems = [
            f"{one['object']}: {one['state']} {one['reason']}: {one['message']}".replace(":  ", ": ")
            + (f": {one['command']}" if one["command"] else "")
            for one in document["problems"]
        ]
        return [*problems, *(f"Note: {note}" for note in document["notes"])]

    async def sees(self, fault: str, start: str, *, words: str = "") -> None:
        """Add the line of ``status`` that begins like this and contains the words, once it has it."""
        last: list[str] = []

        async def line() -> str | None:
            last[:] = await self.status()
            return next((line for line in last if line.startswith(start) and words in line), None)

        self.lines[fault] = await self._searched(fault, line) or f"NEVER {start!r} in {last}"

    async def _searched(self, fault: str, line: Callable[[], Awaitable[str | None]]) -> str | None:
        """Return the line of a fault, None if it does not come, and note the times."""
        self._durations.clear()
        clock = asyncio.get_running_loop().time
        began = clock()
        found = None
        with suppress(TimeoutError):
            found = await until(line, within=GIVES_UP, what=fault)
        self.searches.append(Search(fault, clock() - began, max(self._durations, default=0.0)))
        return found

    async def is_well(self) -> None:
        """Return once ``status`` finds nothing, after a fault was ended."""
        last: list[str] = []

        async def nothing() -> bool:
            # A busy machine is slow by itself.
            last[:] = [line for line in await self.status() if " responds slowly: " not in line]
            return not last

        try:
            await until(nothing, within=GIVES_UP, what="a status without problems and notes")
        except TimeoutError as error:
            raise AssertionError(f"after {list(self.lines)[-1]}: {last}") from error

    async def remove(self, *services: str) -> None:
        """Delete Services, and return when they are gone."""
        for name in services:
            await self.stage.delete_service(name)
        await self.stage.gone(*services)


def present(line: str) -> str:
    """Return a line without what differs between runs."""
    for pattern, replacement in PRESENT:
        line = re.sub(pattern, replacement, line)
    return line


async def of_harvester(operator: Operator, _run: CcmProcess) -> None:
    """Freeze Harvester's API, and slow it down."""
    stage = operator.stage
    rule = stage.harvester_proxy.inject(Hang())
    await operator.sees("H7", "Harvester: HarvesterUnavailable")
    await stage.delete_service("web")
    await operator.sees("O10", "Service default/web: Deleting")
    stage.harvester_proxy.heal(rule)
    await stage.gone("web")
    await stage.create_service("web", ports=[PORT])
    await stage.served("web")

    rule = stage.harvester_proxy.inject(Delay(3.0))
    await operator.sees("H8", "Note: Harvester responds slowly")
    stage.harvester_proxy.heal(rule)
    await operator.is_well()


@contextmanager
def changed_file(file: Path) -> Iterator[None]:
    """Restore a file after the block."""
    text = file.read_text()
    try:
        yield
    finally:
        file.write_text(text)


async def of_credentials(operator: Operator, run: CcmProcess) -> None:
    stage, file = operator.stage, operator.cloud_config
    document = yaml.safe_load(file.read_text())
    address = document["clusters"][0]["cluster"]["server"]
    with changed_file(file):
        file.write_text("garbage: [")
        await operator.sees("C2", "harvester-ccm: error")
        file.unlink()
        await operator.sees("C3", "harvester-ccm: error")
    await operator.is_well()
    # The controller ends when it sees another server in its file, at most 2 s later.
    with changed_file(file):
        authority = Authority("another authority", stage.directory)
        async with FaultProxy(stage.scene.harvester, serving=authority.issue_server("c1", ["127.0.0.1"])) as proxy:
            edited(file, file, cluster_server=proxy.url)
            await operator.sees("C1", "Harvester: HarvesterUnavailable")
    for fault, changes in {
        "C4": {"context_namespace": "prod-vms"},
        "C6": {"cluster_server": address.rpartition(":")[0] + ":1"},
        "C7": {"cluster_server": "https://harvester.invalid:6443"},
    }.items():
        with changed_file(file):
            edited(file, file, **changes)
            await operator.sees(fault, "Harvester: HarvesterUnavailable")
    with changed_file(file):
        file.write_text(operator.admin.read_text())
        await operator.sees("C5", "Harvester: SameCluster")
    run.kill()
    run = await operator.start()
    await operator.is_well()

    admin = stage.scene.guest.admin
    role = next(one for one in admin.request("GET", ROLES)["items"] if _grants_status(one))
    rules = [rule for rule in role["rules"] if "services/status" not in rule.get("resources", ())]
    path = f"{ROLES}/{role['metadata']['name']}"
    admin.request("PATCH", path, body={"rules": rules})
    await until(lambda: is_status_forbidden(stage), within=GIVES_UP, what="the role in the cache of the API server")
    await stage.create_service("c8", ports=[PORT])
    await operator.sees("C8", "Service default/c8: Pending SyncLoadBalancerFailed")
    admin.request("PATCH", path, body={"rules": role["rules"]})
    await operator.remove("c8")
    await operator.is_well()


async def is_status_forbidden(stage: Stage) -> bool:
    """Return whether the controller can no longer patch the status of Services."""
    attributes = {"namespace": "default", "verb": "patch", "resource": "services", "subresource": "status"}
    spec = {"user": f"system:serviceaccount:kube-system:{SERVICE_ACCOUNT}", "resourceAttributes": attributes}
    admin = stage.scene.guest.admin
    review = await asyncio.to_thread(admin.request, "POST", ACCESS_REVIEWS, body={"spec": spec})
    return not review["status"]["allowed"]


def _grants_status(role: Mapping[str, Any]) -> bool:
    is_own = not role["metadata"]["name"].startswith("system:")
    return is_own and any("services/status" in rule.get("resources", ()) for rule in role.get("rules") or ())


async def of_operation(operator: Operator, run: CcmProcess) -> None:
    stage = operator.stage
    rule = stage.guest_proxy.inject(Hang())
    await operator.sees("O2", "harvester-ccm: error: guest cluster")
    stage.guest_proxy.heal(rule)
    run.kill()
    run = await operator.start()
    await operator.is_well()

    await clock(operator)
    await crd(operator)


async def clock(operator: Operator) -> None:
    """Let Harvester have a certificate that has expired, as if a clock were wrong."""
    stage, file = operator.stage, operator.cloud_config
    authority = Authority("expired", stage.directory)
    with pytest.MonkeyPatch.context() as patch, changed_file(file):
        patch.setattr("devenv.pki.VALID_FOR", timedelta(minutes=-1))
        serving = authority.issue_server("o8", ["127.0.0.1"])
        async with FaultProxy(stage.scene.harvester, serving=serving) as proxy:
            edited(file, file, cluster_server=proxy.url, cluster_certificate_authority_data=_encoded(authority))
            await operator.sees("O8", "Harvester: HarvesterUnavailable")
    await operator.is_well()


def _encoded(authority: Authority) -> str:
    import base64  # noqa: PLC0415 - only here

    return base64.b64encode(authority.ca_file.read_bytes()).decode()


async def crd(operator: Operator) -> None:
    """Delete the CustomResourceDefinition of load balancers, and create it again."""
    admin = operator.stage.scene.harvester.admin
    path = f"{CRD}/{LOAD_BALANCERS.plural}.{LOAD_BALANCERS.group}"
    definition = admin.request("GET", path)
    admin.request("DELETE", path)
    await operator.sees("H3", "Harvester: HarvesterUnavailable: Harvester does not serve")
    definition.pop("status", None)
    definition["metadata"] = {"name": definition["metadata"]["name"]}

    async def is_created() -> bool:
        try:
            await asyncio.to_thread(admin.request, "POST", CRD, body=definition)
        except Exception:
            return False
        return True

    await until(is_created, within=GIVES_UP, what="the CustomResourceDefinition")
    await operator.is_well()


PARTS: Final[Mapping[str, Callable[[Operator, CcmProcess], Awaitable[None]]]] = {
    "harvester": of_harvester,
    "credentials": of_credentials,
    "operation": of_operation,
}


@pytest.mark.apiserver
@pytest.mark.thorough
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("pace", [FAST], ids=["fast"])
@pytest.mark.parametrize("part", PARTS)
async def test_every_fault_of_an_operator_has_its_line(
    stage: Stage, capsys: pytest.CaptureFixture[str], part: str
) -> None:
    await stage.harvester.create_pool("lan", "127.77.0.0/24")
    async with GuestNodes(stage.guest, stage.host, networks=NETWORKS) as nodes:
        operator = Operator(stage, nodes, capsys)
        run = await operator.start()
        await asyncio.gather(*map(nodes.join, NODES))
        await initialized(stage)
        await stage.create_service("web", ports=[PORT])
        await stage.create_service("portal", ports=[PORT], annotations={HEALTH_CHECK_PORT: "http"})
        await listen(stage, nodes)
        await stage.served(*HEALTHY)
        await operator.is_well()
        try:
            await PARTS[part](operator, run)
        finally:
            rows = {f"{fault} {NAMES[fault]}": present(line) for fault, line in operator.lines.items()}
            if os.environ.get("HARVESTER_CCM_RENEW_SNAPSHOTS"):
                write({**read(), **rows})
            for search in operator.searches:
                sys.stdout.write(f"{search}\n")
    assert rows == {name: line for name, line in read().items() if name in rows}
    assert not any(line.startswith("NEVER") for line in rows.values())


def read() -> dict[str, str]:
    """Return the lines of the file by the names of the faults."""
    if not LINES.exists():
        return {}
    lines = LINES.read_text(encoding="utf-8").splitlines()
    return dict(zip(lines[::2], (line.strip() for line in lines[1::2]), strict=True))


def write(rows: Mapping[str, str]) -> None:
    """Write the file, in the order of the faults."""
    order = list(NAMES)
    ordered = sorted(rows, key=lambda name: order.index(name.split()[0]))
    LINES.write_text("".join(f"{name}\n    {rows[name]}\n" for name in ordered), encoding="utf-8")


def test_file_has_every_fault() -> None:
    assert list(dict.fromkeys(name.split()[0] for name in read())) == list(NAMES)
