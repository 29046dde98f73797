"""What a status says of one Service, Node or load balancer, and how the whole is put together. Pure."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import msgspec
import pytest

from harvester_ccm.commands.inventory import Inventory
from harvester_ccm.commands.service_view import ServiceView
from harvester_ccm.commands.status_report import (
    NodeLine,
    Server,
    ServiceLine,
    State,
    Status,
    report,
    server_problems,
)
from harvester_ccm.config import SERVICE_CONTROLLER
from harvester_ccm.errors import Unreachable, credential_hint
from harvester_ccm.flags import build_settings, parse_command_line
from harvester_ccm.model.core import SERVICES, Service
from harvester_ccm.names import HEALTH_CHECK_PORT, IP_POOL, LB_OWNER, LOAD_BALANCER_READY, NETWORK, PRIMARY_SERVICE
from harvester_ccm.plan.service.decision import plan_service
from harvester_ccm.plan.service.messages import harvester_unavailable
from harvester_ccm.plan.service.snapshot import observe
from harvester_ccm.plan.service.writes import ChangeService
from tests.worlds import node_objects
from tests.worlds.builders import ADDRESS, CLUSTER, allocated, load_balancer, marked, served, service
from tests.worlds.memory_server import refused

EXHAUSTED = "fail to get ip from pool lan, error: no IP addresses available in range set: 10.0.0.1-10.0.0.2"
FLAGS = ("--cloud-config=x", "--cluster-name=demo")
NOW = datetime(2026, 11, 22, tzinfo=UTC)
FRAME = Status(observed="2026-11-21T08:00:00Z", cluster="demo", namespace="vms")


def seen(*flags: str, **contents: Any) -> Status:
    """Return the status of an inventory."""
    settings = build_settings(parse_command_line((*FLAGS, *flags)), {})
    inventory = Inventory(namespace=node_objects.CLUSTER.namespace, **contents)
    view = ServiceView(inventory, CLUSTER, SERVICE_CONTROLLER in settings.controllers)
    return report(FRAME, view, settings)


def service_in(status: Status) -> ServiceLine:
    (line,) = status.services
    return line


def node_in(status: Status) -> NodeLine:
    (line,) = status.nodes
    return line


def test_a_served_service() -> None:
    one = served(annotations={"kube-vip.io/vipHost": "w1"}, created="2026-11-21T07:00:00Z")
    status = seen(services=(one,), load_balancers=(allocated(),))
    line = service_in(status)
    assert (line.key, line.state, status.problems) == ("shop/web", State.READY, ())
    assert (line.addresses, line.workload_type, line.ipam, line.pool) == ((ADDRESS,), "cluster", "pool", "vlan100")
    assert (line.announced_by, line.created, line.load_balancer) == (
        "w1",
        one.metadata.creation_timestamp,
        "demo-shop-web-df804e86",
    )


@pytest.mark.parametrize(
    ("message", "reason", "says"),
    [
        (EXHAUSTED, "PoolExhausted", "has no free address"),
        (
            "no matched IPPool with requirement &{Network:default/vlan1 Project: Namespace:vms Cluster:demo}",
            "NoMatchingPool",
            "fits network 'default/vlan1'",
        ),
        ("fail to get allocator nope, error: not found", "NoMatchingPool", "no ready IP pool"),
    ],
)
def test_a_pending_service_says_what_its_event_and_its_condition_say(message: str, reason: str, says: str) -> None:
    one, balancer = service(ours=True, annotations={IP_POOL: "nope"}), marked(message=message, spec={"ipPool": "nope"})
    status = seen(services=(one,), load_balancers=(balancer,))
    line, (problem,) = service_in(status), status.problems
    assert (line.state, line.reason) == (State.PENDING, reason)
    assert says in line.message
    plan = plan_of(one, load_balancers=(balancer,))
    assert [event.message for event in plan.events if event.type == "Warning"] == [line.message]
    assert isinstance(plan.write, ChangeService)
    assert (line.message, line.reason) == (plan.condition.message, plan.condition.reason)
    assert (problem.object, problem.reason, problem.message) == ("Service shop/web", line.reason, line.message)


def plan_of(one: Service, **contents: Any) -> Any:
    return plan_service(observe(Inventory(services=(one,), **contents).service_store(CLUSTER), one, CLUSTER))


def test_what_no_plan_can_know_is_taken_from_the_condition() -> None:
    """A write that a webhook refuses is told by the program that tried; to look does not try."""
    condition = {
        "type": LOAD_BALANCER_READY,
        "status": "False",
        "reason": "SyncLoadBalancerFailed",
        "message": "Harvester refused the load balancer.",
        "lastTransitionTime": "2026-11-21T07:30:00Z",
    }
    one = service(ours=True)
    refused = replace_status(one, conditions=[condition])
    line = service_in(seen(services=(refused,)))
    assert (line.state, line.reason, line.since) == (State.PENDING, "SyncLoadBalancerFailed", "2026-11-21T07:30:00Z")


def replace_status(one: Service, **status: Any) -> Service:
    return SERVICES.decode(msgspec.json.encode({**msgspec.to_builtins(one), "status": status}))


def test_a_new_service_says_what_it_waits_for() -> None:
    line = service_in(seen(services=(service(),)))
    assert (line.state, line.addresses) == (State.PENDING, ())
    assert line.message.startswith("waits for ")


def test_a_served_service_with_a_wrong_annotation() -> None:
    one = served(annotations={"cloudprovider.harvesterhci.io/ipamm": "dhcp"})
    status = seen(services=(one,), load_balancers=(allocated(),))
    assert service_in(status).state is State.WARNING
    assert [problem.reason for problem in status.problems] == ["SettingsIgnored"]


def test_an_outage_of_harvester_makes_no_served_service_wrong() -> None:
    problem = {"loadbalancers": Unreachable("https://harvester:6443: no answer")}
    assert service_in(seen(services=(served(),), problems=problem)).state is State.READY
    waiting = service_in(seen(services=(service(ours=True),), problems=problem))
    assert (waiting.state, waiting.reason) == (State.PENDING, "HarvesterUnavailable")


def test_a_service_that_is_let_go() -> None:
    status = seen(services=(served(deleting=True),), load_balancers=(allocated(deleting=True),))
    assert (service_in(status).state, status.problems) == (State.DELETING, ())


@pytest.mark.parametrize(
    ("one", "shown"),
    [
        (service(spec={"loadBalancerClass": "metallb"}), True),
        (service(kind="ClusterIP"), False),
        (service(deleting=True, finalizers=["other"]), False),
    ],
)
def test_a_service_of_somebody_else(one: Service, shown: bool) -> None:
    status = seen(services=(one,))
    assert [line.state for line in status.services] == ([State.OTHER] if shown else [])
    assert status.problems == ()


def test_an_address_that_is_shared() -> None:
    primary, secondary = served(), service("api", uid="2", annotations={PRIMARY_SERVICE: "shop/web"})
    lines = {line.name: line for line in seen(services=(primary, secondary), load_balancers=(allocated(),)).services}
    line = lines["api"]
    assert (line.workload_type, line.primary, line.pool, line.load_balancer) == ("", "shop/web", "", "")


def test_a_vm_load_balancer_is_announced_by_harvester() -> None:
    balancer = allocated(spec={"workloadType": "vm", "ipam": "pool"})
    assert service_in(seen(services=(served(),), load_balancers=(balancer,))).announced_by == "Harvester"


@pytest.mark.parametrize(("annotations", "kind"), [({}, "cluster"), ({HEALTH_CHECK_PORT: "80"}, "vm")])
def test_the_kind_is_the_wish_while_no_load_balancer_is_known(annotations: dict[str, str], kind: str) -> None:
    assert service_in(seen(services=(served(annotations=annotations),))).workload_type == kind


@pytest.mark.parametrize(
    ("expires", "says"),
    [
        ("", None),
        ("2027-01-21T00:00:00Z", None),
        ("2026-11-30T00:00:00Z", "The token for harvester expires on 2026-11-30. "),
        ("2026-11-20T00:00:00Z", "The token for harvester expired on 2026-11-20. "),
    ],
)
def test_a_token_that_ends_soon_or_has_ended(expires: str, says: str | None) -> None:
    server = Server(cluster="harvester", url="https://h", token_expires=expires, account="default/demo")
    said = [f"{says}{credential_hint('harvester', 'default/demo')}"] if says else []
    assert [problem.message for problem in server_problems(None, [server], NOW)] == said


def test_the_end_of_a_token_is_not_told_twice() -> None:
    servers = [
        Server(cluster=name, url="https://h", token_expires="2026-11-20T00:00:00Z") for name in ("guest", "harvester")
    ]
    refusal = refused(401, "Unauthorized", "Unauthorized")
    told, other = (problem.message for problem in server_problems(refusal, servers, NOW))
    assert told == harvester_unavailable(refusal).message
    assert other.startswith("The token for guest expired on 2026-11-20. Get a new kubeconfig")


def test_what_others_wrote_cannot_move_a_cursor_and_shows_no_credential() -> None:
    one = served(annotations={NETWORK: "x\x1b[2J\u202e", "kube-vip.io/vipHost": "Authorization: Bearer abc123def456"})
    line = service_in(seen(services=(one,), load_balancers=(allocated(),)))
    assert line.network == "default/x\\u001b[2J\\u202e"
    assert "abc123def456" not in msgspec.json.encode(seen(services=(one,))).decode()


@pytest.mark.parametrize(
    ("flags", "message"),
    [((), "made by this cluster"), (("--orphan-lbs=off",), "made by this cluster")],
)
def test_a_load_balancer_without_a_service(flags: tuple[str, ...], message: str) -> None:
    status = seen(*flags, load_balancers=(allocated(),))
    (line,), (problem,) = status.orphans, status.problems
    assert (line.service, line.address) == ("shop/web", ADDRESS)
    assert line.message.startswith(message)
    assert problem.message.startswith("Service shop/web does not exist. ")


def test_a_load_balancer_of_another_cluster_is_no_business_of_ours() -> None:
    other = allocated(annotations={LB_OWNER: "another"})
    assert seen(load_balancers=(other, load_balancer("theirs"))).orphans == ()


def test_nodes() -> None:
    mine = node_objects.node("w1", provider_id="harvester://uid-w1", addresses=[("InternalIP", "10.0.0.5")])
    vmi = node_objects.instance("w1", ips=["10.0.0.5"])
    status = seen(nodes=(mine,), vms=(node_objects.vm("w1"),), vmis=(vmi,))
    line = node_in(status)
    assert (line.state, line.vm, line.addresses) == (State.READY, "prod/w1", ("10.0.0.5",))
    assert status.problems == ()


def test_a_node_without_vm_is_wrong_also_where_no_event_says_so() -> None:
    node = node_objects.node("w1", addresses=[("InternalIP", "10.0.0.5")])
    status = seen(nodes=(node,))
    assert (node_in(status).state, node_in(status).vm) == (State.WARNING, "")
    assert [problem.reason for problem in status.problems] == ["VMNotFound"]


def test_a_node_that_waits() -> None:
    node = node_objects.node("w1", taints=[node_objects.UNINITIALIZED])
    line = node_in(seen(nodes=(node,)))
    assert (line.state, line.reason) == (State.PENDING, "VMNotFound")
    assert "No VM in namespace" in line.message


def test_what_is_switched_off_is_not_shown() -> None:
    contents: dict[str, Any] = {
        "services": (service(),),
        "nodes": (node_objects.node(),),
        "load_balancers": (allocated(),),
    }
    only_nodes = seen("--controllers=cloud-node-controller", **contents)
    assert (only_nodes.services, only_nodes.orphans, len(only_nodes.nodes)) == ((), (), 1)
    only_services = seen("--controllers=service-lb-controller", **contents)
    assert (len(only_services.services), only_services.nodes) == (1, ())


def test_the_document_is_versioned() -> None:
    status = seen(services=(served(),), load_balancers=(allocated(),), nodes=(node_objects.node(),))
    written = msgspec.json.encode(status)
    assert b'"apiVersion":"harvester-ccm/v1","kind":"Status"' in written
    assert b'"orphans":[]' in written
