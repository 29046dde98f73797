"""``explain`` without a name."""

from __future__ import annotations

from pathlib import Path

from tests.unit.commands import clusters, objects
from tests.unit.commands.conftest import ClusterServer, Runner
from tests.unit.commands.test_status import pending, well
from tests.worlds.loopback_api import LoopbackApi, two_clusters


def test_explain_without_a_name_explains_what_is_not_fine(run: Runner, serve: ClusterServer) -> None:
    flags = serve(*well(), *pending())
    result = run("explain", *flags)
    assert result.code == 1
    assert [line for line in result.out.splitlines() if line.startswith(("Service:", "Node:"))] == ["Service: team/api"]
    assert "IP pool 'tiny' has no free address" in result.out
    document = run("explain", *flags, "-o", "json").document
    assert [one["service"] for one in document["services"]] == ["team/api"]
    assert document["nodes"] == []


def test_explain_without_a_name_where_all_is_well(run: Runner, serve: ClusterServer) -> None:
    result = run("explain", *serve(*well()))
    assert (result.code, result.err) == (0, "")
    assert result.out.startswith("All Services and Nodes are well")


def test_explain_without_a_name_names_what_it_looked_at(run: Runner, serve: ClusterServer) -> None:
    flags = serve(*well(), *pending(), objects.node())
    nodes_too = run("explain", *flags)
    assert "Node: w1" in nodes_too.out
    result = run("explain", *flags, "-n", "shop")
    assert (result.code, result.err) == (0, "")
    assert result.out.startswith("All Services of namespace shop are well; ")
    only_nodes = run("explain", *serve(*well()), "--controllers=cloud-node-controller")
    assert only_nodes.out.startswith("All Nodes are well; ")
    nothing = run("explain", *flags, "-n", "shop", "--controllers=cloud-node-controller")
    assert "Nothing was looked at" in nothing.out
    assert "well" not in nothing.out


def test_explain_without_a_name_where_harvester_cannot_be_read(run: Runner, tmp_path: Path) -> None:
    harvester = clusters.harvester()
    path = "/apis/loadbalancer.harvesterhci.io/v1beta1/namespaces/vms/loadbalancers"
    harvester.refusals[f"GET {path}"] = 403, "loadbalancers is forbidden"
    guest = LoopbackApi(well()[:3], groups=clusters.GUEST_GROUPS)
    with two_clusters(guest, harvester, tmp_path, objects.VMS) as flags:
        result = run("explain", *flags)
        one = run("explain", "svc/web", "-n", "shop", *flags)
    assert "not known, because Harvester could not be read" in one.out
    assert one.code == 1
    assert (result.code, result.err) == (1, "")
    assert result.out == "Problem: Harvester's load balancers could not be read: loadbalancers is forbidden\n"
