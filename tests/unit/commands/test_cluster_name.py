"""Commands outside the pod of the controller: its flags are on its Lease, among them the name of the cluster."""

from pathlib import Path

import pytest

from harvester_ccm.names import LB_OWNER, SERVICE_FINALIZER
from tests.unit.commands import objects
from tests.unit.commands.conftest import ClusterServer, Json, Runner
from tests.unit.commands.test_runner import PROGRAM, process_1

NOTE = {"kube-vip.io/loadbalancerIPs": "10.0.0.7", "kube-vip.io/vipHost": "w1"}
WEB = objects.service(address="10.0.0.7", finalizers=[SERVICE_FINALIZER], annotations=NOTE)
"""A Service with its address."""
PROD = "--cluster-name=prod"


def balancer(cluster: str) -> Json:
    """Return the load balancer of the Service, with this cluster name in its label."""
    return objects.balancer(cluster, address="10.0.0.7", annotations={LB_OWNER: objects.CLUSTER_UID})


def unnamed(flags: list[str]) -> list[str]:
    return [flag for flag in flags if not flag.startswith("--cluster-name")]


def test_healthy_cluster_is_healthy_without_the_flag(run: Runner, serve: ClusterServer) -> None:
    flags = serve(objects.home(), objects.lease(flags=PROD), WEB, balancer("prod"))
    result = run("status", *unnamed(flags))
    assert (result.code, result.err) == (0, "")
    assert "Cluster:          prod (Harvester namespace vms)\n" in result.out
    assert result.out.endswith("All is well.\n")
    explained = run("explain", "svc/web", "-n", "shop", *unnamed(flags))
    assert explained.code == 0


def test_flag_that_is_given_precedes_that_of_the_leader(run: Runner, serve: ClusterServer) -> None:
    flags = serve(objects.home(), objects.lease(flags=PROD), WEB, balancer("prod"))
    result = run("status", *unnamed(flags), "--cluster-name=demo")
    assert "Cluster:          demo (Harvester namespace vms)\n" in result.out
    assert "LoadBalancerOwnershipConflict" in result.out


FLAGS = {
    "controller that is off": ("--controllers=-service-lb-controller,*", "is switched off by --controllers"),
    "class that is required": ("--require-load-balancer-class", "--require-load-balancer-class is set"),
    "network without a VM": ("--management-network=default/mgnt", "no interface in --management-network default/mgnt"),
    "range without an address": ("--node-ip-cidr=192.0.2.0/24", "is inside --node-ip-cidr 192.0.2.0/24"),
}


@pytest.mark.parametrize(("flag", "text"), FLAGS.values(), ids=FLAGS.keys())
def test_flag_of_the_leader_is_the_cause(run: Runner, serve: ClusterServer, flag: str, text: str) -> None:
    new = [objects.service(), objects.node(), *objects.working_node()[1:]]
    result = run("status", *unnamed(serve(objects.home(), objects.lease(flags=f"{PROD} {flag}"), *new)))
    assert text in " ".join(result.out.split())


def test_flags_that_lead_elsewhere_or_are_not_known_are_left_out(run: Runner, serve: ClusterServer) -> None:
    noted = f"{PROD} --cloud-config=/other --kubeconfig=/other --of-a-later-version=1"
    result = run("status", *unnamed(serve(objects.home(), objects.lease(flags=noted), WEB, balancer("prod"))))
    assert (result.code, result.err) == (0, "")


@pytest.mark.parametrize("words", [("status",), ("explain", "svc/web", "-n", "shop"), ("explain", "node/w1")])
@pytest.mark.parametrize("flags", [None, "'"], ids=["none", "no command line"])
def test_name_that_is_not_known_has_to_be_given(
    run: Runner, serve: ClusterServer, words: tuple[str, ...], flags: str | None
) -> None:
    result = run(*words, *unnamed(serve(objects.home(), objects.lease(flags=flags), WEB)))
    assert (result.code, result.out) == (2, "")
    problem = "no controller has noted its flags on Lease cloud-controller-manager"
    assert f"error: add --cluster-name=NAME, the name of this cluster: {problem}" in result.err


def test_outage_of_harvester_hides_no_name(run: Runner, serve: ClusterServer) -> None:
    flags = serve(objects.home(), objects.lease(flags=PROD), WEB)
    (file,) = [Path(flag.partition("=")[2]) for flag in flags if flag.startswith("--cloud-config")]
    file.write_text(file.read_text().replace("127.0.0.1:", "127.0.0.2:"))
    result = run("status", *unnamed(flags))
    assert result.code == 1
    assert "Cluster:          prod (Harvester namespace vms)\n" in result.out
    assert "OwnershipConflict" not in result.out
    assert "HarvesterUnavailable" in result.out
    assert "Set a unique name" not in result.out


def test_leases_that_cannot_be_read_are_the_reason(run: Runner, serve: ClusterServer) -> None:
    refused = {"GET /apis/coordination.k8s.io/v1/namespaces/kube-system/leases": (403, "forbidden")}
    result = run("status", *unnamed(serve(objects.home(), WEB, refused=refused)))
    assert result.code == 2
    assert "the Leases, one of which has the flags of the controller, cannot be read" in result.err


def test_default_name_of_the_controller_is_certain_in_its_container(
    run: Runner, serve: ClusterServer, tmp_path: Path
) -> None:
    """The Lease can have the flags of another replica."""
    served = serve(objects.home(), objects.lease(flags=PROD), WEB, balancer("kubernetes"))
    result = run("status", proc=process_1(tmp_path, (*PROGRAM, *unnamed(served))))
    assert (result.code, result.err) == (0, "")
    assert "kubernetes (Harvester namespace vms)\n" in result.out
