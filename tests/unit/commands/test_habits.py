"""What operators expect of ``status``: one namespace, all Services, slow servers, and a sign of life."""

import asyncio
import io

import pytest

from harvester_ccm.commands import progress
from harvester_ccm.commands.progress import FIRST_SECONDS, REPEAT_SECONDS, Latency, Progress
from harvester_ccm.commands.status import status_text
from harvester_ccm.names import PRIMARY_SERVICE, PRIMARY_SERVICE_LABEL, SERVICE_FINALIZER, VM_NAME
from tests.support.clock import jumping_time
from tests.unit.commands import objects
from tests.unit.commands.conftest import ClusterServer, Json, Runner
from tests.unit.commands.test_status import INSTANCE, MARK, balancer, ready_node, served


def on_host(host: str) -> Json:
    """Return the VMI of the Node on a host of Harvester."""
    instance = objects.instance("w1", ("eth0", "default/lan", ["10.0.0.5"]))
    instance["status"]["nodeName"] = host
    return instance


def secondary() -> Json:
    """Return a Service that shares the address of the first one."""
    notes = {PRIMARY_SERVICE: "shop/web", "kube-vip.io/loadbalancerIPs": "10.0.0.7", "kube-vip.io/vipHost": "w1"}
    ports = [{"port": 81, "protocol": "TCP"}]
    one = objects.service(
        "also", uid="2", address="10.0.0.7", finalizers=[SERVICE_FINALIZER], annotations=notes, ports=ports
    )
    one["metadata"]["labels"] = {PRIMARY_SERVICE_LABEL: "shop.web"}
    return one


def of_vms() -> list[Json]:
    """Return a Service with a VM load balancer, and that."""
    service = objects.service("vm", uid="3", address="10.0.0.9", finalizers=[SERVICE_FINALIZER])
    load_balancer = objects.balancer(
        of="shop/vm",
        uid="3",
        address="10.0.0.9",
        annotations=MARK,
        workloadType="vm",
        backendServerSelector={VM_NAME: ["w1"]},
    )
    return [service, load_balancer]


def test_all_lists_the_chain_of_each_service(run: Runner, serve: ClusterServer) -> None:
    pending = objects.service("new", uid="4", namespace="other")
    documents = [
        served(),
        balancer(),
        secondary(),
        *of_vms(),
        pending,
        ready_node(),
        objects.machine(),
        on_host("host-2"),
    ]
    flags = serve(objects.home(), objects.lease(), *documents)
    rows = {row["service"]: row for row in run("status", "--all", "-o", "json", *flags).document["all"]}
    name = balancer()["metadata"]["name"]
    chain = {"pool": "lan", "loadBalancer": name, "announcedBy": "w1", "vm": "w1", "host": "host-2"}
    assert rows["shop/web"] == {"service": "shop/web", "state": "Ready", "address": "10.0.0.7", **chain}
    assert rows["shop/also"] == {"service": "shop/also", "state": "Ready", "address": "10.0.0.7", **chain}
    assert [rows["shop/vm"][key] for key in ("announcedBy", "vm", "host")] == ["Harvester", "w1", "host-2"]
    assert [rows["other/new"][key] for key in ("address", "loadBalancer", "announcedBy", "vm")] == ["", "", "", ""]
    text = run("status", "--all", *flags).out
    assert "  SERVICE    STATE" in text
    assert "  shop/web   Ready" in text


def test_namespace_limits_the_services(run: Runner, serve: ClusterServer) -> None:
    orphan = balancer(of="gone/web", uid="9", address="10.0.0.8")
    documents = [objects.service(), objects.service("x", uid="2", namespace="other"), orphan, objects.node()]
    flags = serve(objects.home(), objects.lease(), *documents)
    document = run("status", "-n", "other", "-o", "json", *flags).document
    assert document["services"] == {"Pending": 1}
    assert sorted(one["object"] for one in document["problems"]) == ["Node w1", "Service other/x"]
    everything = run("status", "-o", "json", *flags).document
    assert len(everything["problems"]) == 4


def test_slow_server_is_named_with_its_time(run: Runner, serve: ClusterServer, monkeypatch: pytest.MonkeyPatch) -> None:
    working = [served(), balancer(), ready_node(), objects.machine(), INSTANCE]
    flags = serve(objects.home(), objects.lease(), *working)
    monkeypatch.setattr(Latency, "of", lambda _self, cluster: {"harvester": 3.14}.get(cluster, 0.1))
    result = run("status", *flags)
    assert result.code == 0
    assert "  OK (3.1 s, slow)\n" in result.out
    assert "Harvester responds slowly: a request took 3.1 s." in result.out
    assert result.out.endswith("No problem found; see the notes.\n")


def test_latency_is_that_of_the_slowest_answer_to_a_read() -> None:
    latency = Latency()
    assert not latency.has_answered("harvester")
    for method, status, seconds in (("GET", 200, 1.0), ("GET", 200, 0.5), ("GET", 0, 9.0), ("POST", 201, 9.0)):
        latency.note("harvester", method, "/", status, seconds)
    assert (latency.of("harvester"), latency.is_slow("harvester")) == (1.0, False)
    latency.note("harvester", "GET", "/", 403, progress.SLOW_SECONDS)
    assert latency.is_slow("harvester")
    assert not latency.has_answered("guest")


@jumping_time
async def test_command_that_takes_long_says_what_it_waits_for() -> None:
    stream = io.StringIO()
    told = Progress(stream, lambda: "Harvester at https://h:6443, which has not responded yet")
    await asyncio.sleep(FIRST_SECONDS - 0.1)
    assert stream.getvalue() == ""
    await asyncio.sleep(0.2)
    line = "harvester-ccm: waiting for Harvester at https://h:6443, which has not responded yet (1 s)\n"
    assert stream.getvalue() == line
    await asyncio.sleep(REPEAT_SECONDS)
    assert stream.getvalue().count("\n") == 2
    told.stop()
    await asyncio.sleep(10 * REPEAT_SECONDS)
    assert stream.getvalue().count("\n") == 2


def test_problems_that_are_new_are_marked(run: Runner, serve: ClusterServer) -> None:
    flags = serve(objects.home(), objects.lease(), objects.service(), objects.node())
    document = run("status", "-o", "json", *flags).document
    known = frozenset({("Node w1", "Pending", document["problems"][0]["reason"])})
    rows = "\n".join(_plain(status_text(document, known)))
    marked = [line.split() for line in rows.splitlines() if line.startswith(("  Node", "  Service"))]
    assert [line[-1] == "new" for line in marked] == [False, True]
    assert "CHANGE" not in "\n".join(_plain(status_text(document)))


def _plain(lines: object) -> list[str]:
    from rich.console import Console, Group  # noqa: PLC0415 - only here

    console = Console(file=io.StringIO(), width=120)
    with console.capture() as captured:
        console.print(Group(*lines))  # type: ignore[misc]
    return captured.get().splitlines()
