"""``explain`` without a name, from files."""

from __future__ import annotations

from pathlib import Path

from tests.unit.commands import clusters, objects
from tests.unit.commands.conftest import Runner, Writer
from tests.unit.commands.test_status import DEMO, pending, well
from tests.worlds.loopback_api import LoopbackApi, two_clusters


def test_explain_without_a_name_explains_what_is_not_fine(run: Runner, case: Writer) -> None:
    file = case(*well(), *pending())
    result = run("explain", "-f", file, DEMO)
    assert result.code == 1
    assert [line for line in result.out.splitlines() if line.startswith(("Service:", "Node:"))] == ["Service: team/api"]
    assert "IP pool 'tiny' has no free address" in result.out
    document = run("explain", "-f", file, DEMO, "-o", "json").document
    assert [one["service"] for one in document["services"]] == ["team/api"]
    assert document["nodes"] == []


def test_explain_without_a_name_where_all_is_well(run: Runner, case: Writer) -> None:
    result = run("explain", "-f", case(*well()), DEMO)
    assert (result.code, result.err) == (0, "")
    assert result.out.startswith("All Services and Nodes are well")


def test_explain_without_a_name_names_what_it_looked_at(run: Runner, case: Writer) -> None:
    file = case(*well(), *pending(), objects.node())
    nodes_too = run("explain", "-f", file, DEMO)
    assert "Node: w1" in nodes_too.out
    result = run("explain", "-f", file, DEMO, "-n", "shop")
    assert (result.code, result.err) == (0, "")
    assert result.out.startswith("All Services of namespace shop are well; ")
    only_nodes = run("explain", "-f", case(*well()), DEMO, "--controllers=cloud-node-controller")
    assert only_nodes.out.startswith("All Nodes are well; ")
    nothing = run("explain", "-f", file, DEMO, "-n", "shop", "--controllers=cloud-node-controller")
    assert "Nothing was looked at" in nothing.out
    assert "well" not in nothing.out


def test_explain_without_a_name_says_what_it_assumed(run: Runner, case: Writer) -> None:
    other = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p", "namespace": "shop"}}
    result = run("explain", "-f", case(*well(), other), DEMO)
    assert result.out.startswith("Note: not looked at: Pod shop/p\nAll Services and Nodes are well; ")
    document = run("explain", "-f", case(*well(), other), DEMO, "-o", "json").document
    assert document == {"services": [], "nodes": [], "problems": [], "assumptions": ["not looked at: Pod shop/p"]}


def test_explain_without_a_name_where_harvester_cannot_be_read(run: Runner, tmp_path: Path) -> None:
    harvester = clusters.harvester()
    path = "/apis/loadbalancer.harvesterhci.io/v1beta1/namespaces/vms/loadbalancers"
    harvester.refusals[f"GET {path}"] = 403, "loadbalancers is forbidden"
    guest = LoopbackApi(well()[:2], groups=clusters.GUEST_GROUPS)
    with two_clusters(guest, harvester, tmp_path, objects.VMS) as flags:
        result = run("explain", *flags)
        one = run("explain", "svc/web", "-n", "shop", *flags)
    assert "not known, because Harvester could not be read" in one.out
    assert one.code == 1
    assert (result.code, result.err) == (1, "")
    assert result.out == "Problem: Harvester's load balancers could not be read: loadbalancers is forbidden\n"
