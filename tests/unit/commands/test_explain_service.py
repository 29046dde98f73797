"""``explain service``: what is printed for a case."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from harvester_ccm.commands.inventory import Inventory
from harvester_ccm.commands.one_service import NOT_ASKED
from harvester_ccm.commands.service_report import ServiceReport, report_from_guest, report_service
from harvester_ccm.commands.service_view import ServiceView
from harvester_ccm.errors import ConnectionRefused
from harvester_ccm.kube_vip_names import KUBE_VIP_ADDRESSES
from harvester_ccm.model.cluster import ClusterIdentity
from harvester_ccm.model.core import SERVICES
from harvester_ccm.model.harvester import LOAD_BALANCERS
from harvester_ccm.names import (
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
LATER = datetime.fromisoformat(objects.CREATED) + timedelta(minutes=1)


def explain(run: Runner, flags: list[str], *words: str, of: str = "shop/web") -> Json:
    return run("explain", "svc", of, *flags, *words, "-o", "json").document


def body(document: Json, verb: str, kind: str) -> Json:
    """Return the body of the only write of that kind."""
    (found,) = [one["body"] for one in document["steps"] if (one.get("verb"), one.get("kind")) == (verb, kind)]
    assert isinstance(found, dict)
    return found


def test_a_new_service(run: Runner, serve: ClusterServer) -> None:
    result = run(*WEB, *serve(objects.service(), objects.home()), "-o", "json")
    document = result.document
    assert (result.code, result.err) == (0, "")
    assert list(document) == [
        "service",
        "notServed",
        "expectedName",
        "claimed",
        "loadBalancers",
        "backends",
        "steps",
        "admission",
        "told",
        "outcome",
        "waited",
        "assumptions",
    ]
    assert (document["service"], document["claimed"], document["expectedName"]) == ("shop/web", None, NAME)
    prepared = document["steps"][1]
    assert (prepared["verb"], prepared["kind"], prepared["name"]) == ("patch", "Service", "shop/web")
    assert prepared["body"]["metadata"]["finalizers"] == [SERVICE_FINALIZER]
    created = body(document, "create", "LoadBalancer")
    assert created["metadata"]["name"] == NAME
    assert created["metadata"]["annotations"][LB_OWNER] == objects.CLUSTER_UID
    assert document["outcome"]["result"] == "wait"
    assert document["outcome"]["reason"] == "not_processed"
    assert document["outcome"]["atMost"] == 30.0


def test_an_address_is_handed_on(run: Runner, serve: ClusterServer) -> None:
    document = explain(run, serve(objects.service(), objects.balancer(address="10.0.0.7"), objects.home()))
    assert document["claimed"]["name"] == NAME
    patch = body(document, "patch", "Service")
    assert patch["metadata"]["annotations"][KUBE_VIP_ADDRESSES] == "10.0.0.7"
    assert patch["status"]["loadBalancer"]["ingress"] == [
        {"ip": "10.0.0.7", "ipMode": "VIP", "ports": [{"port": 80, "protocol": "TCP"}]}
    ]
    assert body(document, "update", "LoadBalancer")["address"] == "10.0.0.7"
    assert document["outcome"] == {"result": "done"}


def test_the_address_of_a_deleted_service_is_withdrawn_first(run: Runner, serve: ClusterServer) -> None:
    going = objects.service(
        address="10.0.0.7",
        deleted="2026-11-21T09:00:00Z",
        finalizers=["other/finalizer", SERVICE_FINALIZER],
        annotations={KUBE_VIP_ADDRESSES: "10.0.0.7"},
    )
    document = explain(run, serve(going, objects.balancer(address="10.0.0.7"), objects.home()))
    first, deletion = (one for one in document["steps"] if "event" not in one)
    assert first["body"] == {"metadata": {"annotations": {KUBE_VIP_ADDRESSES: ""}}}
    assert (deletion["verb"], deletion["kind"], deletion["name"]) == ("delete", "LoadBalancer", NAME)


def test_a_pending_address_is_a_problem_with_its_reason(run: Runner, serve: ClusterServer) -> None:
    pending = objects.balancer(message="fail to get allocator dmz", ipPool="dmz")
    result = run(*WEB, *serve(objects.service(), pending), "-o", "json")
    assert result.code == 1
    told = [one["event"] for one in result.document["steps"] if "event" in one]
    assert [(one["type"], one["reason"]) for one in told] == [("Warning", "AddressPending")]
    assert "'dmz'" in told[0]["message"]
    assert result.document["outcome"]["meaning"] == "the IP pool that the load balancer names to be there and ready"


@pytest.mark.parametrize(
    ("age", "code"), [(timedelta(), 0), (timedelta(minutes=1), 1)], ids=["just now", "a minute ago"]
)
def test_time_limits_count_from_the_creation_of_the_load_balancer(
    run: Runner, serve: ClusterServer, age: timedelta, code: int
) -> None:
    """A load balancer that Harvester does not look at is told about after half a minute."""
    balancer = objects.balancer()
    balancer["metadata"]["creationTimestamp"] = (datetime.now(UTC) - age).isoformat()
    assert run(*WEB, *serve(objects.service(), balancer)).code == code


def test_a_renamed_cluster_keeps_its_load_balancers(run: Runner, serve: ClusterServer) -> None:
    flags = serve(objects.service(address="10.0.0.7"), objects.balancer("demo", address="10.0.0.7"), objects.home())
    document = explain(run, flags, "--former-cluster-name=demo", RENAMED)
    assert document["claimed"]["name"] == NAME
    assert "its UID and cluster name 'demo'" in document["claimed"]["because"]
    assert body(document, "update", "LoadBalancer")["annotations"][LB_SERVICE_UID] == objects.UID


def test_of_a_renamed_or_copied_cluster_both_remedies_are_named(run: Runner, serve: ClusterServer) -> None:
    flags = serve(objects.service(address="10.0.0.7"), objects.balancer("demo", address="10.0.0.7"), objects.home())
    document = explain(run, flags, RENAMED)
    (judged,) = document["loadBalancers"]
    assert (judged["owner"], document["claimed"]) == ("foreign", None)
    for remedy in ("--former-cluster-name=demo", "kubectl patch service -n shop"):
        assert remedy in judged["because"]
    told, shown = document["steps"]
    assert told["event"]["reason"] == "ForeignLoadBalancer"
    assert list(shown["body"]) == ["status"], "nothing else of it is touched"
    (condition,) = shown["body"]["status"]["conditions"]
    assert (condition["status"], condition["reason"]) == ("False", "ForeignLoadBalancer")
    assert document["outcome"]["reason"] == "foreign_load_balancer"


def test_a_load_balancer_that_nothing_proves_is_named_with_what_to_do(run: Runner, serve: ClusterServer) -> None:
    """The cluster was renamed and its Services were created anew."""
    old = objects.balancer("demo", uid=objects.OLD_UID, address="10.0.0.7")
    document = explain(run, serve(objects.service(), old, objects.home()), RENAMED)
    assert document["claimed"] is None
    (judged,) = document["loadBalancers"]
    assert judged["owner"] == "unproven"
    assert judged["because"].endswith(f"{old['metadata']['name']} {LB_CLUSTER}=produktion")


def test_another_clusters_load_balancer_is_named(run: Runner, serve: ClusterServer) -> None:
    foreign = objects.balancer("demo", annotations={LB_OWNER: "somebody"}, address="10.0.0.7")
    result = run(*WEB, *serve(objects.service(), foreign, objects.home()), "-o", "json")
    (judged,) = result.document["loadBalancers"]
    assert (judged["owner"], result.document["claimed"]) == ("foreign", None)
    assert "somebody" in judged["because"]
    assert result.code == 1


def test_a_secondary_and_its_primary(run: Runner, serve: ClusterServer) -> None:
    primary = objects.service("main", uid="main-uid", address="10.0.0.7", finalizers=[SERVICE_FINALIZER])
    other = [{"port": 443, "protocol": "TCP", "nodePort": 30443}]
    annotations = {"cloudprovider.harvesterhci.io/primary-service": "shop/main"}
    secondary = objects.service("second", uid="second-uid", annotations=annotations, ports=other)
    given = objects.balancer(of="shop/main", uid="main-uid", address="10.0.0.7")
    document = explain(run, serve(primary, given, secondary), of="shop/second")
    patch = body(document, "patch", "Service")
    assert patch["metadata"]["annotations"][KUBE_VIP_ADDRESSES] == "10.0.0.7"


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
    vmi = objects.instance("w1", ("eth0", "default/lan", ["10.0.0.1"]))
    vmi["status"]["interfaces"][0]["ipAddress"] = "10.0.0.1"
    machines = objects.node("w1"), objects.machine("w1"), vmi
    document = explain(run, serve(checked, made, *machines))
    problem = document["backends"].pop("problem")
    assert problem.startswith("Harvester sends no traffic to the nodes")
    assert document["backends"] == {
        "selected": ["w1", "w2"],
        "healthChecked": True,
        "found": [
            {"address": "10.0.0.1", "vm": "w1", "ready": None},
            {"address": "10.0.0.2", "vm": "", "ready": None},
        ],
        "healthUnknown": "because Harvester has not made an EndpointSlice for the load balancer yet",
    }
    endpoints = [
        {"addresses": ["10.0.0.1"], "conditions": {"ready": False}, "targetRef": {"name": "w1", "uid": "1"}},
        {"addresses": ["10.0.0.2"], "conditions": {"ready": True}, "targetRef": {"name": "w2", "uid": "2"}},
        {"addresses": ["10.52.0.255"], "conditions": {"ready": True}, "targetRef": {"uid": "dummy347-546a"}},
    ]
    known = {
        "apiVersion": "discovery.k8s.io/v1",
        "kind": "EndpointSlice",
        "metadata": {"name": made["metadata"]["name"], "namespace": objects.VMS},
        "endpoints": endpoints,
    }
    document = explain(run, serve(checked, made, *machines, known))
    assert document["backends"]["found"] == [
        {"address": "10.0.0.1", "vm": "w1", "ready": False},
        {"address": "10.0.0.2", "vm": "w2", "ready": True},
    ]
    assert document["backends"]["healthUnknown"] is None


@pytest.mark.parametrize(
    ("changes", "words", "because"),
    [
        ({"type": "ClusterIP"}, (), "its type is ClusterIP"),
        ({"loadBalancerClass": "metallb"}, (), "spec.loadBalancerClass is 'metallb'"),
        ({}, ("--load-balancer-class-only",), "--load-balancer-class-only is set"),
        ({}, ("--controllers=-service-lb-controller",), "service-lb-controller is switched off"),
        ({"annotations": {"metallb.io/address-pool": "x"}}, (), "another load balancer controller"),
    ],
)
def test_services_that_are_left_alone(
    run: Runner, serve: ClusterServer, changes: Json, words: tuple[str, ...], because: str
) -> None:
    result = run(*WEB, *serve(objects.service(**changes)), "-o", "json", *words)
    assert result.code == 0
    assert because in result.document["notServed"]
    assert result.document["steps"] == []


def test_the_same_for_people(run: Runner, serve: ClusterServer) -> None:
    old = objects.balancer("demo", uid=objects.OLD_UID, address="10.0.0.7")
    flags = serve(objects.service(), objects.balancer(message="fail to get allocator dmz", ipPool="dmz"), old)
    result = run(*WEB, *flags)
    assert result.code == 1
    for text in (
        "Service: shop/web\n",
        "type LoadBalancer, ports 80/TCP (node port 30080), address none",
        "Load balancer in namespace vms of Harvester:\n",
        "pool dmz, address none yet, not ready: fail to get allocator",
        "Not this Service's, though its labels or its name say so:\n",
        "Problem: AddressPending: Harvester has no ready IP pool 'dmz'.",
        "What would be done now:\n  - patch ",
        "Then it waits for: the IP pool that the load balancer names",
        "Assumed:\n  - ",
    ):
        assert text in result.out


def words(run: Runner, flags: list[str]) -> str:
    """Return the explanation for people, in one line."""
    text = run(*WEB, *flags).out
    return " ".join(text.split())


def test_under_a_warning_nothing_is_as_it_should_be(run: Runner, serve: ClusterServer) -> None:
    asked = objects.service(address="10.0.0.7", annotations={"cloudprovider.harvesterhci.io/ipam": "dhcpp"})
    text = words(run, serve(asked, objects.balancer(address="10.0.0.7"), objects.home()))
    assert "Problem: InvalidAnnotation: " in text
    assert "It is served (10.0.0.7), but not as asked: see the problem above. Nothing more will happen" in text
    assert "All is as it should be" not in text


def test_a_secondary_that_is_refused_waits_for_a_correction(run: Runner, serve: ClusterServer) -> None:
    asked = objects.service(annotations={"cloudprovider.harvesterhci.io/primary-service": "no-namespace"})
    text = words(run, serve(asked, objects.home()))
    assert "Refused until there is: a change of one of the Services: as they are, this one cannot share" in text


def test_a_service_of_another_type_wants_nothing(run: Runner, serve: ClusterServer) -> None:
    text = words(run, serve(objects.service(type="ClusterIP")))
    assert "Left alone: " in text
    assert "wants" not in text
    assert "would be called" not in text


def test_one_diagnosis_for_a_cluster_without_nodes(run: Runner, serve: ClusterServer) -> None:
    spec: Json = {
        "backendServerSelector": {"harvesterhci.io/vmName": ["no-node-of-this-cluster"]},
        "workloadType": "vm",
    }
    balancer = objects.balancer(address="10.0.0.7", **spec)
    balancer["status"]["address"] = "10.0.0.7"
    text = words(run, serve(objects.service(address="10.0.0.7"), balancer))
    assert "Problem: BackendsUnhealthy: This cluster has no Node yet" in text
    assert "Backends: - none: This cluster has no Node yet" in text
    assert "no-node-of-this-cluster" not in text.partition("What would")[0]


def test_what_harvester_did_not_show_is_not_none() -> None:
    item = SERVICES.decode(json.dumps(objects.service()).encode())
    found = Inventory(
        services=(item,), taken=LATER, problems={LOAD_BALANCERS.plural: ConnectionRefused("refused by 10.0.0.9")}
    )
    view = ServiceView(found, ClusterIdentity("demo", objects.VMS), serving=True)
    text = json.dumps(report_service(item, view).text())
    assert "not known, because Harvester could not be read" in text
    assert text.count("refused by 10.0.0.9") == 1
    assert "none. One for" not in text
    assert text.count("HarvesterUnavailable") == 1
    assert text.count("nobody listens at its address") == 1
    assert "Nothing is decided while Harvester's load balancers cannot be read." in text


@pytest.mark.parametrize(
    ("status", "code", "told"),
    [
        ("True", 0, f"since 2026-01-02T03:04:05Z, by the condition {LOAD_BALANCER_READY}: Because: It said so"),
        ("False", 1, f"since 2026-01-02T03:04:05Z, by the condition {LOAD_BALANCER_READY}: Because: It said so"),
        ("", 1, f"nothing: the Service has no condition {LOAD_BALANCER_READY}"),
    ],
    ids=["served", "not served", "nothing said"],
)
def test_of_a_harvester_that_was_not_asked_nothing_is_told(status: str, code: int, told: str) -> None:
    shown = objects.service(address="10.0.0.7" if status == "True" else None)
    said = {"reason": "Because", "message": "It said so", "lastTransitionTime": "2026-01-02T03:04:05Z"}
    if status:
        shown["status"]["conditions"] = [{"type": LOAD_BALANCER_READY, "status": status, **said}]
    report = not_asked(shown)
    text, document = report.text(), report.document()
    assert report.exit_code == code
    assert "Then" not in text
    assert "Problem" not in text
    assert text["Told"] == told
    assert "could not be read" not in json.dumps(text)
    assert (document["expectedName"], document["outcome"], document["steps"]) == (None, None, [])
    assert document["assumptions"] == text["Assumed"]
    assert "Harvester was not asked, because no --cloud-config was given" in json.dumps(text["Assumed"])


@pytest.mark.parametrize(("status", "code"), [("False", 1), ("True", 0)])
def test_what_only_who_tried_can_know_is_a_problem(status: str, code: int) -> None:
    """Harvester refuses the creation: a plan would make it again, and does not say why there is none."""
    shown = objects.service()
    said = {
        "reason": "SyncLoadBalancerFailed",
        "message": "Harvester refused it",
        "lastTransitionTime": "2026-01-02T03:04:05Z",
    }
    shown["status"]["conditions"] = [{"type": LOAD_BALANCER_READY, "status": status, **said}]
    item = SERVICES.decode(json.dumps(shown).encode())
    found = Inventory(services=(item,), taken=LATER)
    report = report_service(item, ServiceView(found, ClusterIdentity("demo", objects.VMS), serving=True))
    assert report.exit_code == code
    assert report.text()["Problem"] == ("SyncLoadBalancerFailed: Harvester refused it" if code else "")
    assert str(report.text()["Told"]).endswith("and an Event") is bool(code)


def test_a_service_that_is_left_alone_is_no_problem_where_harvester_was_not_asked() -> None:
    report = not_asked(objects.service(type="ClusterIP"))
    assert report.exit_code == 0
    assert report.text()["Left alone"]
    assert "Told" not in report.text()


def not_asked(shown: Json) -> ServiceReport:
    """Return the explanation of a Service without a cloud-config."""
    item = SERVICES.decode(json.dumps(shown).encode())
    found = Inventory(services=(item,), taken=LATER, problems={LOAD_BALANCERS.plural: NOT_ASKED})
    return report_from_guest(item, ServiceView(found, ClusterIdentity("", ""), serving=True))


@pytest.mark.parametrize(
    ("words", "problem"),
    [
        (["explain"], "no Service or Node is named: explain svc/NAME -n NAMESPACE, or explain node/NAME"),
        (["explain", "pod"], "'pod' is nothing to explain. Expected one of: service, node"),
        (["explain", "srvice/web"], "'srvice/web' is nothing to explain; did you mean service?"),
        (["explain", "shop/web"], "did you mean svc shop/web?"),
        (["explain", "node", "w1"], "--cloud-config is required"),
        (["explain", "service", "shop/web"], "guest cluster: no kubeconfig was given and this is not a pod"),
        (
            ["explain", "svc", "a/b/c", "--cloud-config=/c"],
            "the Service is 'a/b/c'; expected its name, or namespace/name",
        ),
        (["explain", "svc", "--cloud-config=/c"], "no Service is named: explain svc/NAME -n NAMESPACE"),
        (
            ["explain", "svc", "shop/web", "-n", "x", "--cloud-config=/c"],
            "'shop/web' and --namespace is 'x': these are two namespaces",
        ),
        (["explain", "svc", "shop", "web", "--cloud-config=/c"], "did you mean service web -n shop?"),
        (["explain", "node/a/b", "--cloud-config=/c"], "the Node is 'a/b'; expected its name"),
        (["explain", "no", "--cloud-config=/c"], "no Node is named: explain node/NAME"),
        (["explain", "service", "--namespac=x"], "unknown flag --namespac; did you mean --namespace?"),
    ],
)
def test_usage(run: Runner, words: list[str], problem: str) -> None:
    result = run(*words)
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


@pytest.mark.parametrize(
    ("more", "words"),
    [
        ((), "no VM of this cluster's nodes is in network default/lam of annotation"),
        ((objects.node("w2"),), "no device is known for network default/lam"),
        ((objects.node("w2"), objects.machine("w2")), "no device is known for network default/lam"),
    ],
    ids=["every VM shows its networks", "a Node without a VM", "a VM that does not run"],
)
def test_a_network_that_no_vm_is_in(run: Runner, serve: ClusterServer, more: tuple[Any, ...], words: str) -> None:
    asked = objects.service(annotations={NETWORK: "default/lam"})
    balancer = objects.balancer(address="10.0.0.9", annotations={LB_REQUESTED_NETWORK: "default/lam"})
    machines = objects.node(), objects.machine(), objects.instance("w1", ("eth0", "default/lan", ["10.0.0.5"]))
    text = run(*WEB, *serve(asked, balancer, *machines, *more)).out
    assert words in " ".join(text.split())
    assert ("they are in default/lan; did you mean default/lan?" in " ".join(text.split())) is not bool(more)
