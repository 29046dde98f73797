"""Commands outside the pod of the controller that were started without the name of the cluster."""

from pathlib import Path

import pytest

from harvester_ccm.names import LB_OWNER, SERVICE_FINALIZER
from tests.unit.commands import objects
from tests.unit.commands.conftest import ClusterServer, Json, Runner
from tests.unit.commands.test_runner import PROGRAM, process_1

MARK = {LB_OWNER: objects.CLUSTER_UID}
NOTE = {"kube-vip.io/loadbalancerIPs": "10.0.0.7", "kube-vip.io/vipHost": "w1"}
WEB = objects.service(address="10.0.0.7", finalizers=[SERVICE_FINALIZER], annotations=NOTE)
"""A Service with its address."""


def balancer(cluster: str, of: str = "shop/web", uid: str = objects.UID, owner: str = objects.CLUSTER_UID) -> Json:
    """Return a load balancer with this cluster name in its label."""
    address = "10.0.0.7" if of == "shop/web" else "10.0.0.8"
    return objects.balancer(cluster, of=of, uid=uid, address=address, annotations={LB_OWNER: owner})


def unnamed(flags: list[str]) -> list[str]:
    return [flag for flag in flags if not flag.startswith("--cluster-name")]


def test_healthy_cluster_is_healthy_without_the_flag(run: Runner, serve: ClusterServer) -> None:
    foreign = balancer("other", of="shop/other", uid="9", owner="another")
    flags = serve(objects.home(), objects.lease(), WEB, balancer("prod"), foreign)
    result = run("status", *unnamed(flags))
    assert (result.code, result.err) == (0, "")
    assert "Cluster:          prod (Harvester namespace vms)\n" in result.out
    assert result.out.endswith("All is well.\n")
    explained = run("explain", "svc/web", "-n", "shop", *unnamed(flags))
    assert explained.code == 0


@pytest.mark.parametrize("words", [("status",), ("explain", "svc/web", "-n", "shop"), ("explain", "node/w1")])
@pytest.mark.parametrize(
    ("found", "problem"),
    [
        ((), "no load balancer in Harvester has the UID of this cluster"),
        ((balancer("demo", owner="another"),), "no load balancer in Harvester has the UID of this cluster"),
        (
            (balancer("prod"), balancer("demo", of="shop/other", uid="9")),
            "the load balancers of this cluster have several: 'demo', 'prod'",
        ),
    ],
    ids=["none", "of another cluster", "several"],
)
def test_name_that_is_not_known_has_to_be_given(
    run: Runner, serve: ClusterServer, words: tuple[str, ...], found: tuple[Json, ...], problem: str
) -> None:
    result = run(*words, *unnamed(serve(objects.home(), objects.lease(), WEB, *found)))
    assert (result.code, result.out) == (2, "")
    assert f"error: add --cluster-name=NAME, the name of this cluster: {problem}" in result.err


def test_outage_of_harvester_is_shown_without_the_name(run: Runner, serve: ClusterServer, tmp_path: Path) -> None:
    flags = unnamed(serve(objects.home(), objects.lease(), WEB))
    (file,) = [Path(flag.partition("=")[2]) for flag in flags if flag.startswith("--cloud-config")]
    file.write_text(file.read_text().replace("127.0.0.1:", "127.0.0.2:"))
    result = run("status", *flags)
    assert result.code == 1
    assert "OwnershipConflict" not in result.out
    assert "HarvesterUnavailable" in result.out
    assert "add --cluster-name=NAME, the name of this cluster: the load balancers" in " ".join(result.out.split())


def test_default_name_of_the_controller_is_certain_in_its_container(
    run: Runner, serve: ClusterServer, tmp_path: Path
) -> None:
    proc = process_1(
        tmp_path, (*PROGRAM, *unnamed(serve(objects.home(), objects.lease(), WEB, balancer("kubernetes"))))
    )
    result = run("status", proc=proc)
    assert (result.code, result.err) == (0, "")
    assert "kubernetes (Harvester namespace vms)\n" in result.out
