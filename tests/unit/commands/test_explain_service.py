"""``explain service``: what is printed for a case."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from harvester_ccm.names import (
    KUBE_VIP_ADDRESSES,
    LB_CLUSTER,
    LB_OWNER,
    LB_REQUESTED_NETWORK,
    LB_SERVICE_UID,
    LOAD_BALANCER_READY,
    NETWORK,
    SERVICE_FINALIZER,
)
from harvester_ccm.plan.service.ownership import load_balancer_name
from tests.unit.commands import objects
from tests.unit.commands.conftest import ClusterServer, Json, Runner

NAME = load_balancer_name("demo", "shop", "web", objects.UID)
WEB = ("explain", "svc/web", "-n", "shop")
RENAMED = "--cluster-name=produktion"


def explain(run: Runner, flags: list[str], *words: str, of: str = "shop/web") -> Json:
    return run("explain", "svc", of, *flags, *words, "-o", "json").document


def written(document: Json, request: str) -> Json:
    """Return the fields that the only write with this request sets."""
    (found,) = [one["diff"] for one in document["nextWrites"] if one["request"].startswith(request)]
    return dict(line.removeprefix("+ ").split(": ", 1) for line in found if line.startswith("+"))


def test_a_new_service(run: Runner, serve: ClusterServer) -> None:
    result = run(*WEB, *serve(objects.service(), objects.home()), "-o", "json")
    document = result.document
    assert (result.code, result.err) == (0, "")
    assert (document["service"], document["loadBalancer"], document["expectedName"]) == ("shop/web", None, NAME)
    assert document["condition"] is None
    assert [one["request"] for one in document["nextWrites"]] == [
        "patch Service shop/web",
        f"create LoadBalancer {NAME}",
    ]
    assert written(document, "patch")["metadata.finalizers"] == f'["{SERVICE_FINALIZER}"]'
    created = written(document, "create")
    assert created["metadata.name"] == f'"{NAME}"'
    assert created[f"metadata.annotations.{LB_OWNER}"] == f'"{objects.CLUSTER_UID}"'
    assert document["dryRun"]["result"] == "ok"
    assert document["waitsFor"].startswith("Harvester's load balancer controller")


def test_an_address_is_handed_on(run: Runner, serve: ClusterServer) -> None:
    document = explain(run, serve(objects.service(), objects.balancer(address="10.0.0.7"), objects.home()))
    assert document["loadBalancer"]["name"] == NAME
    patch = written(document, "patch Service")
    assert patch[f"metadata.annotations.{KUBE_VIP_ADDRESSES}"] == '"10.0.0.7"'
    assert patch["status.conditions"] == '["LoadBalancerReady=True (EnsuredLoadBalancer)"]'
    assert written(document, "update LoadBalancer")["status.address"] == '"10.0.0.7"'
    assert (document["waitsFor"], document["dryRun"]) == ("", None)


def test_the_address_of_a_deleted_service_is_withdrawn_first(run: Runner, serve: ClusterServer) -> None:
    going = objects.service(
        address="10.0.0.7",
        deleted="2026-11-21T09:00:00Z",
        finalizers=["other/finalizer", SERVICE_FINALIZER],
        annotations={KUBE_VIP_ADDRESSES: "10.0.0.7"},
    )
    document = explain(run, serve(going, objects.balancer(address="10.0.0.7"), objects.home()))
    key = f"metadata.annotations.{KUBE_VIP_ADDRESSES}"
    assert document["nextWrites"] == [
        {"request": "patch Service shop/web", "diff": [f'- {key}: "10.0.0.7"', f'+ {key}: ""']},
        {"request": f"delete LoadBalancer {NAME}", "diff": []},
    ]


def test_a_pending_address_is_a_problem_with_its_reason(run: Runner, serve: ClusterServer) -> None:
    pending = objects.balancer(message="fail to get allocator dmz", ipPool="dmz")
    result = run(*WEB, *serve(objects.service(), pending), "-o", "json")
    assert result.code == 1
    document = result.document
    assert document["events"] == []
    assert (document["condition"]["ready"], document["condition"]["reason"]) == ("False", "NoMatchingPool")
    assert "'dmz'" in document["condition"]["message"]
    assert document["waitsFor"] == "a ready IP pool in Harvester that fits this Service"


@pytest.mark.parametrize(
    ("age", "code"), [(timedelta(), 0), (timedelta(minutes=1), 1)], ids=["just now", "a minute ago"]
)
def test_time_limits_count_from_the_creation_of_the_load_balancer(
    run: Runner, serve: ClusterServer, age: timedelta, code: int
) -> None:
    """A Warning reports after half a minute that Harvester does not reconcile a load balancer."""
    balancer = objects.balancer()
    balancer["metadata"]["creationTimestamp"] = (datetime.now(UTC) - age).isoformat()
    assert run(*WEB, *serve(objects.service(), balancer)).code == code


def test_a_renamed_cluster_keeps_its_load_balancers(run: Runner, serve: ClusterServer) -> None:
    flags = serve(objects.service(address="10.0.0.7"), objects.balancer("demo", address="10.0.0.7"), objects.home())
    document = explain(run, flags, "--former-cluster-name=demo", RENAMED)
    assert document["loadBalancer"]["name"] == NAME
    assert "its UID and cluster name 'demo'" in document["loadBalancer"]["owner"]
    assert written(document, "update")[f"metadata.annotations.{LB_SERVICE_UID}"] == f'"{objects.UID}"'


def test_of_a_renamed_or_copied_cluster_both_remedies_are_named(run: Runner, serve: ClusterServer) -> None:
    flags = serve(objects.service(address="10.0.0.7"), objects.balancer("demo", address="10.0.0.7"), objects.home())
    document = explain(run, flags, RENAMED)
    (other,) = document["otherLoadBalancers"]
    assert (other["ownership"], document["loadBalancer"]) == ("foreign", None)
    for remedy in ("--former-cluster-name=demo", "kubectl patch service -n shop"):
        assert remedy in other["reason"]
    assert document["condition"]["reason"] == "OwnershipConflict"
    assert written(document, "patch") == {"status.conditions": '["LoadBalancerReady=False (OwnershipConflict)"]'}


def test_a_load_balancer_that_nothing_proves_is_named_with_what_to_do(run: Runner, serve: ClusterServer) -> None:
    """The cluster was renamed and its Services were recreated."""
    old = objects.balancer("demo", uid=objects.OLD_UID, address="10.0.0.7")
    document = explain(run, serve(objects.service(), old, objects.home()), RENAMED)
    assert document["loadBalancer"] is None
    (other,) = document["otherLoadBalancers"]
    assert other["ownership"] == "unproven"
    assert other["reason"].endswith(f"{old['metadata']['name']} {LB_CLUSTER}=produktion")


def test_a_secondary_and_its_primary(run: Runner, serve: ClusterServer) -> None:
    primary = objects.service("main", uid="main-uid", address="10.0.0.7", finalizers=[SERVICE_FINALIZER])
    other = [{"port": 443, "protocol": "TCP", "nodePort": 30443}]
    annotations = {"cloudprovider.harvesterhci.io/primary-service": "shop/main"}
    secondary = objects.service("second", uid="second-uid", annotations=annotations, ports=other)
    given = objects.balancer(of="shop/main", uid="main-uid", address="10.0.0.7")
    document = explain(run, serve(primary, given, secondary), of="shop/second")
    assert document["requested"] == "the address of Service shop/main"
    assert written(document, "patch")[f"metadata.annotations.{KUBE_VIP_ADDRESSES}"] == '"10.0.0.7"'


def test_vm_load_balancer_with_backends(run: Runner, serve: ClusterServer) -> None:
    checked = objects.service(annotations={"cloudprovider.harvesterhci.io/healthcheck-port": "80"})
    made = objects.balancer(
        message="running backend servers are not probed as healthy total:2, healthy:0",
        workloadType="vm",
        listeners=[{"name": "tcp-80", "port": 80, "protocol": "TCP", "backendPort": 30080}],
        backendServerSelector={"harvesterhci.io/vmName": ["w1", "w2"]},
        healthCheck={"port": 30080},
    )
    made["status"]["backendServers"] = ["10.0.0.2", "10.0.0.1"]
    found = explain(run, serve(checked, made, objects.node("w1"), objects.machine("w1")))["loadBalancer"]
    assert (found["vms"], found["backends"]) == (["w1", "w2"], ["10.0.0.2", "10.0.0.1"])
    assert found["ready"] == "False: running backend servers are not probed as healthy total:2, healthy:0"


@pytest.mark.parametrize(
    ("changes", "words", "reason"),
    [
        ({"type": "ClusterIP"}, (), "its type is ClusterIP"),
        ({"loadBalancerClass": "metallb"}, (), "spec.loadBalancerClass is 'metallb'"),
        ({}, ("--load-balancer-class-only",), "--load-balancer-class-only is set"),
        ({}, ("--controllers=-service-lb-controller",), "service-lb-controller is switched off"),
        ({"annotations": {"metallb.io/address-pool": "x"}}, (), "another load balancer controller"),
    ],
)
def test_services_that_are_not_managed(
    run: Runner, serve: ClusterServer, changes: Json, words: tuple[str, ...], reason: str
) -> None:
    result = run(*WEB, *serve(objects.service(**changes)), "-o", "json", *words)
    assert result.code == 0
    assert reason in result.document["skipReason"]
    assert "nextWrites" not in result.document


def test_the_same_as_text(run: Runner, serve: ClusterServer) -> None:
    old = objects.balancer("demo", uid=objects.OLD_UID, address="10.0.0.7")
    flags = serve(objects.service(), objects.balancer(message="fail to get allocator dmz", ipPool="dmz"), old)
    result = run(*WEB, *flags)
    assert result.code == 1
    for text in (
        "Service:          shop/web\n",
        "Ports:\n  80/TCP (node port 30080)\n",
        f"Load balancer:\n  Name:           {NAME}\n",
        "  Ready:          False: fail to get allocator dmz\n",
        "Other load balancers:\n  NAME ",
        "  Message:        Harvester has no ready IP pool 'dmz'.",
        "Next writes:\n  - Request:      patch Service shop/web\n    Diff:\n      + metadata.",
        "Waits for:        a ready IP pool in Harvester that fits",
        "Notes:\n  cannot read namespaces: ",
    ):
        assert text in result.out


def test_a_warning_for_a_service_with_an_address_is_a_problem(run: Runner, serve: ClusterServer) -> None:
    asked = objects.service(address="10.0.0.7", annotations={"cloudprovider.harvesterhci.io/ipam": "dhcpp"})
    result = run(*WEB, *serve(asked, objects.balancer(address="10.0.0.7"), objects.home()), "-o", "json")
    assert result.code == 1
    document = result.document
    assert "InvalidAnnotation" in [one["reason"] for one in (*document["events"], document["condition"])]


def test_a_condition_that_no_plan_can_derive_is_a_problem(run: Runner, serve: ClusterServer) -> None:
    """Harvester rejects the creation: only the controller, which sends it, knows that."""
    shown = objects.service()
    condition = {
        "type": LOAD_BALANCER_READY,
        "status": "False",
        "reason": "SyncLoadBalancerFailed",
        "message": "Harvester refused it",
        "lastTransitionTime": "2026-01-02T03:04:05Z",
    }
    shown["status"]["conditions"] = [condition]
    result = run(*WEB, *serve(shown), "-o", "json")
    assert result.code == 1
    assert result.document["condition"]["message"] == "Harvester refused it"
    assert result.document["condition"]["since"] == "2026-01-02T03:04:05Z"


@pytest.mark.parametrize(
    ("words", "problem"),
    [
        (["explain"], "expected svc/NAME -n NAMESPACE or node/NAME, got nothing"),
        (["explain", "pod"], "expected svc/NAME -n NAMESPACE or node/NAME, got pod"),
        (["explain", "shop/web"], "expected svc/NAME -n NAMESPACE or node/NAME, got shop/web"),
        (["explain", "svc", "shop", "web"], "expected svc/NAME -n NAMESPACE or node/NAME, got svc shop web"),
        (["explain", "svc", "a/b/c"], "'a/b/c' is not the name of one Service"),
        (["explain", "svc", "shop/web", "-n", "x"], "'shop/web' is not the name of one Service"),
        (["explain", "node/a/b"], "'a/b' is not the name of one Node"),
        (["explain", "service", "--namespac=x"], "unknown flag --namespac; did you mean --namespace?"),
    ],
)
def test_usage(run: Runner, words: list[str], problem: str) -> None:
    result = run(*words, "--cloud-config=/c")
    assert (result.code, result.out) == (2, "")
    assert problem in result.err


def test_a_cloud_config_that_cannot_be_used(run: Runner, tmp_path: Path) -> None:
    result = run("explain", "service", "shop/web", f"--cloud-config={tmp_path / 'none'}")
    assert result.code == 1
    assert "cannot use --cloud-config" in result.err


@pytest.mark.parametrize(
    "words",
    [
        ("svc", "web", "-n", "shop"),
        ("service/web", "-n", "shop"),
        ("Services", "shop/web"),
        ("svc/web", "--namespace=shop"),
    ],
)
def test_a_service_is_named_as_for_kubectl(run: Runner, serve: ClusterServer, words: tuple[str, ...]) -> None:
    flags = serve(objects.service("other", namespace="lab", uid="o"), objects.service())
    assert run("explain", *words, *flags, "-o", "json").document["service"] == "shop/web"


def test_help_names_flags_and_exit_codes(run: Runner) -> None:
    result = run("explain", "--help")
    assert result.code == 0
    for text in (
        "explain svc/NAME [-n NAMESPACE]",
        "\nexamples:\n  # Why ",
        "-n string, --namespace string",
        "Exit codes: 0 ",
    ):
        assert text in result.out


def test_a_network_without_a_device(run: Runner, serve: ClusterServer) -> None:
    asked = objects.service(annotations={NETWORK: "default/lam"})
    balancer = objects.balancer(address="10.0.0.9", annotations={LB_REQUESTED_NETWORK: "default/lam"})
    text = run(*WEB, *serve(asked, balancer, objects.node())).out
    assert "no device is known for network default/lam" in " ".join(text.split())
