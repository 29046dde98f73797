"""Running a command in this process, against two API servers on loopback."""

import json
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from harvester_ccm.cli import main
from harvester_ccm.names import KUBE_VIP_HOST
from tests.support.loopback_api import LoopbackApi, two_clusters
from tests.unit.commands import clusters, objects

Json = dict[str, Any]

OF_HARVESTER = ("IPPool", "LoadBalancer", "VirtualMachine", "VirtualMachineInstance")
"""Kinds of the objects in Harvester."""


@dataclass(frozen=True)
class Run:
    """A run of a command."""

    code: int
    out: str
    err: str

    @property
    def document(self) -> Json:
        document = json.loads(self.out)
        assert isinstance(document, dict)
        return document


Runner = Callable[..., Run]
ClusterServer = Callable[..., list[str]]


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Runner:
    """A function that runs ``harvester-ccm`` with the given words; ``proc`` shows the processes of its container."""
    monkeypatch.setenv("COLUMNS", "120")
    # A machine that is busy would add lines to standard error.
    monkeypatch.setattr("harvester_ccm.commands.clusters.FIRST_SECONDS", 600.0)

    def start(*words: str, proc: Path = Path("/proc")) -> Run:
        code = main(["harvester-ccm", *words], {}, proc=proc)
        captured = capsys.readouterr()
        return Run(code, captured.out, captured.err)

    return start


def pool_rule(name: str) -> Json:
    """Return the rule that permits the request of addresses of an IP pool."""
    group, verbs = "loadbalancer.harvesterhci.io", ["get", "patch"]
    return {"apiGroups": [group], "resources": ["ippools"], "resourceNames": [name], "verbs": verbs}


def _is_noted(document: Json) -> bool:
    return KUBE_VIP_HOST in (document["metadata"].get("annotations") or {})


@pytest.fixture
def serve(tmp_path: Path) -> Iterator[ClusterServer]:
    """A function that serves objects from a guest cluster and a Harvester, and returns a command's flags for both.

    Where kube-vip has noted its node on a Service, that Node and an endpoint of the Service exist, unless the objects
    have Nodes or EndpointSlices of their own. ``refused`` are requests that the guest cluster refuses.
    """
    with ExitStack() as stack:

        def start(*documents: Json, refused: Mapping[str, tuple[int, str]] | None = None) -> list[str]:
            directory = tmp_path / f"clusters-{len(list(tmp_path.iterdir()))}"
            directory.mkdir()
            kinds = {one["kind"] for one in documents}
            noted = [one for one in documents if _is_noted(one)]
            if noted and "Node" not in kinds:
                documents = (*documents, *objects.working_node())
            if "EndpointSlice" not in kinds:
                documents = (*documents, *(objects.endpoint_slice(one["metadata"]["name"]) for one in noted))
            harvester = [one for one in documents if one["kind"] in OF_HARVESTER]
            guest = [one for one in documents if one["kind"] not in OF_HARVESTER]
            of_pools = [pool_rule(one["metadata"]["name"]) for one in harvester if one["kind"] == "IPPool"]
            servers = (
                LoopbackApi(guest, clusters.GUEST_GROUPS, refusals=dict(refused or {})),
                LoopbackApi(harvester, clusters.HARVESTER_GROUPS, rules=of_pools),
            )
            return stack.enter_context(two_clusters(*servers, directory, objects.VMS))

        yield start
