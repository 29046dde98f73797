"""What ``explain service`` shows is, request by request, what the program then sends."""

from __future__ import annotations

import random
from collections import Counter
from datetime import UTC, datetime
from typing import Any

import pytest

from harvester_ccm.commands.inventory import Inventory
from harvester_ccm.commands.rehearsal import AFTER_WRITE, AT_WRITE
from harvester_ccm.commands.service_report import report_service
from harvester_ccm.commands.service_view import ServiceView
from harvester_ccm.kube_vip_names import KUBE_VIP_ADDRESSES, KUBE_VIP_IGNORE, USER_IGNORE
from harvester_ccm.model.core import NODES, SERVICES, Service
from harvester_ccm.model.harvester import LOAD_BALANCERS, VIRTUAL_MACHINES, LoadBalancer
from harvester_ccm.names import (
    HEALTH_CHECK_PORT,
    IPAM,
    LB_OWNER,
    LOAD_BALANCER_CLASS,
    MOVING,
    NETWORK,
    PRIMARY_SERVICE,
    PRIMARY_SERVICE_LABEL,
    REQUESTED_ADDRESS,
    WORKLOAD_TYPE,
)
from harvester_ccm.plan.service.ownership import name_for
from harvester_ccm.plan.service.pace import Pace
from tests.worlds.builders import CLUSTER, load_balancer, marked, service
from tests.worlds.memory_server import Call
from tests.worlds.node_objects import node, vm
from tests.worlds.service_controller_world import ServiceControllerWorld

Document = dict[str, Any]
FEW, MANY = 80, 200
"""Situations."""


def ips_of(number: int) -> list[str]:
    """Return the addresses of a Service; every tenth has those of the one before it."""
    return [f"10.0.{third}.{number - (number % 10 == 9)}" for third in range(1, 6)]


def any_service(number: int, dice: random.Random, situations: int) -> Service:
    """Return some Service, as users, other controllers and an interrupted program leave them."""
    ips = ips_of(number)
    values: dict[str, list[str]] = {
        KUBE_VIP_ADDRESSES: ["", *ips],
        KUBE_VIP_IGNORE: ["true", "true", "false"],
        USER_IGNORE: ["true"],
        WORKLOAD_TYPE: ["cluster", "vm", "pod"],
        HEALTH_CHECK_PORT: ["80", "http"],
        PRIMARY_SERVICE: [f"shop/s{dice.randrange(situations)}", "shop/s1", "nonsense"],
        IPAM: ["dhcp", "pool"],
        NETWORK: ["lan"],
        REQUESTED_ADDRESS: ips,
        MOVING: ['{"name": "moving"}'],
        "metallb.io/address-pool": ["x"],
    }
    annotations = {key: dice.choice(of) for key, of in values.items() if dice.random() < 0.15}
    labels = {PRIMARY_SERVICE_LABEL: f"shop.s{dice.randrange(situations)}"} if dice.random() < 0.15 else {}
    ours, deleting = dice.random() < 0.6, dice.random() < 0.2
    spec = {"loadBalancerClass": dice.choice([LOAD_BALANCER_CLASS, "example.com/other"])} if dice.random() < 0.2 else {}
    return service(
        f"s{number}",
        uid=f"uid-{number}",
        kind="ClusterIP" if dice.random() < 0.15 else "LoadBalancer",
        ports=[{"port": dice.choice([80, 443]), "protocol": "TCP", "nodePort": 30000 + number}],
        annotations=annotations,
        labels=labels,
        ours=ours,
        finalizers=["example.com/held"] if deleting and not ours else (),
        deleting=deleting,
        address=dice.choice([None, None, *ips]),
        spec=spec,
    )


def any_load_balancers(of: Service, dice: random.Random) -> list[LoadBalancer]:
    """Return the load balancers that carry the Service's labels or name."""
    found = []
    for name in [name_for(of, CLUSTER), f"earlier-{of.metadata.name}"]:
        if dice.random() < 0.4:
            continue
        ip = dice.choice(["", *ips_of(int(of.metadata.name[1:]))])
        more: Document = {
            "uid": f"uid-of-{name}",
            "ip": ip,
            "pool": "lan" if ip else "",
            "address": dice.choice(["", ip]),
            "message": None if ip else dice.choice([None, "no match", "fail to reserve ip", "waiting for external IP"]),
            "finalizer": dice.random() < 0.8,
            "deleting": dice.random() < 0.15,
            "spec": {"workloadType": dice.choice(["cluster", "cluster", "vm"])},
        }
        if dice.random() < 0.15:
            more["annotations"] = {LB_OWNER: "another"}
        if more["deleting"]:
            more["finalizer"] = True
        found.append(load_balancer(name, **more) if dice.random() < 0.1 else marked(of, name, **more))
    return found


async def world_of(dice: random.Random, situations: int) -> ServiceControllerWorld:
    """Return a world with many Services, some of which share addresses."""
    world = ServiceControllerWorld()
    world.guest.put(NODES, node("w1"))
    world.harvester.put(VIRTUAL_MACHINES, vm("w1"))
    for number in range(situations):
        one = any_service(number, dice, situations)
        world.guest.put(SERVICES, one)
        for balancer in any_load_balancers(one, dice):
            world.harvester.put(LOAD_BALANCERS, balancer)
    # One list for both: the order counts, too.
    world.harvester.calls = world.guest.calls
    await world.start()
    world.controller.clock = lambda: AT_WRITE
    # Of turns a command knows nothing, and this Harvester never answers.
    world.controller._turns.pace = Pace(limit=situations)
    return world


def observed(world: ServiceControllerWorld) -> Inventory:
    """Return what a command reads from the clusters."""
    caches = world.caches
    return Inventory(
        services=caches.services.all(),
        nodes=caches.vms.nodes.all(),
        config_maps=caches.config_maps.all(),
        load_balancers=caches.load_balancers.all(),
        vms=caches.vms.vms.all(),
    )


def as_requests(step: Document) -> tuple[str, str, Any]:
    """Return verb, path and body of a request that is shown."""
    if patch := step.get("service"):
        path = f"/api/v1/namespaces/{patch['namespace']}/services/{patch['name']}/status"
        return ("PATCH", path, patch["patch"])
    (verb, shown), path = next(iter(step["loadBalancer"].items())), LOAD_BALANCERS.path(CLUSTER.namespace)
    if verb == "create":
        return ("POST", path, shown)
    if verb == "update":
        return ("PUT", f"{path}/{shown['metadata']['name']}", shown)
    return ("DELETE", f"{path}/{shown['name']}", {"uid": shown["uid"], "resourceVersion": shown["resourceVersion"]})


def as_sent(call: Call, shown: Any) -> tuple[str, str, Any]:
    """Return verb, path and body of a request that was sent; a version that only an answer tells is as it is shown."""
    body = call.body.get("preconditions") if call.verb == "DELETE" else call.body
    version = (shown or {}).get("metadata", {}).get("resourceVersion")
    if call.verb == "PATCH" and version == AFTER_WRITE and "resourceVersion" in body["metadata"]:
        body = {**body, "metadata": {**body["metadata"], "resourceVersion": AFTER_WRITE}}
    return (call.verb, call.path, body)


@pytest.mark.parametrize("seed", [1, pytest.param(2, marks=pytest.mark.thorough)])
async def test_what_is_shown_is_sent(seed: int, *, thorough: bool) -> None:
    dice, situations = random.Random(seed), MANY if thorough else FEW
    world = await world_of(dice, situations)
    view = ServiceView(CLUSTER, serving=True, now=datetime.min.replace(tzinfo=UTC))
    sent: Counter[str] = Counter()
    for number in range(situations):
        await world.settle()
        service = world.caches.services.get(f"shop/s{number}")
        if service is None:
            continue
        report = report_service(service, observed(world), view)
        world.guest.calls.clear()
        world.recorder.texts.clear()
        outcome = await world.reconcile(service.metadata.key)
        writes = [call for call in world.guest.calls if call.is_write]
        shown = [as_requests(step) for step in report.steps if "event" not in step]
        bodies = [body for _, _, body in shown] + [None] * len(writes)
        assert [as_sent(call, body) for call, body in zip(writes, bodies, strict=False)] == shown
        events: list[Any] = [step["event"] for step in report.steps if "event" in step]
        left = [f"This Service is left alone: {report.not_served}"]
        told = [text for text in world.recorder.texts if text not in left]
        assert [event["message"] for event in events] == told
        assert report.plan.outcome == outcome
        sent.update(call.verb for call in writes)
    assert min(sent[verb] for verb in ("PATCH", "POST", "PUT", "DELETE")) > situations / 20, sent
