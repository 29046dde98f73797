"""The demo in plain lines: nodes join and move, Services get addresses, a mistake is fixed, a backend fails."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final, NamedTuple

from devenv.ccm import DEFAULT_FLAGS
from devenv.demo import byhand
from devenv.demo.play import (
    CHECK,
    DHCP_RANGE,
    NODES,
    POOL,
    POOL_NAME,
    PORTAL,
    PORTAL_PORT,
    SECONDS,
    THRESHOLD,
    Guest,
    Play,
    Voice,
    aligned,
    expect,
    machine_of,
    open_stage,
    table,
)
from devenv.demo.requests import ask, ask_once
from devenv.guestnodes import GuestNodes, address_of, name_of
from devenv.harvester.records import INSTANCES
from devenv.stage import VM_NAMESPACE, Scene, until
from harvester_ccm.model.core import SERVICES, Service
from harvester_ccm.model.harvester import LOAD_BALANCERS
from harvester_ccm.names import IP_POOL, IPAM, UNINITIALIZED_TAINT, ZONE, NodeReason, Reason

GUEST_SERVICES: Final = SERVICES.path("default")
MISSING_POOL: Final = "dmz"
IN_A_ROW: Final = 9
"""Answers from exactly the expected nodes."""
SHOWN: Final = 6
"""Of them, the number that is printed."""


class Wanted(NamedTuple):
    """A Service of the demo."""

    name: str
    ports: Sequence[tuple[str, int, str]]
    """Name, number and protocol of each port."""
    network: str
    """How its address must begin."""
    annotations: Mapping[str, str]


WANTED: Final = (
    Wanted("web", [("http", 18080, "TCP")], "127.77.", {}),
    Wanted("dns", [("dns", 15300, "UDP")], "127.77.", {}),
    Wanted("shop", [("https", 18443, "TCP"), ("http", 18080, "TCP")], "127.77.", {}),
    Wanted("wiki", [("http", 18080, "TCP")], "127.78.", {IPAM: "dhcp"}),
    Wanted("syslog", [("syslog", 15140, "UDP")], "127.78.", {IPAM: "dhcp"}),
)


async def perform(voice: Voice, scene: Scene, directory: Path, *, keep: bool, fault: str | None) -> None:
    """Start the program and show all scenes. With ``keep``, run until cancelled instead.

    Raises one of ``FAILURES``.
    """
    voice.say(f"guest      {scene.guest.url}")
    voice.say(f"Harvester  {scene.harvester.url}")
    voice.headline("Starting the emulators of Harvester's controllers and of kube-vip in the guest")
    if keep:
        scene = byhand.own_files(scene, directory)
    async with open_stage(scene, directory) as stage, GuestNodes(stage.guest, stage.host) as backends:
        voice.say(f"IP pool {POOL_NAME} with {POOL}, a DHCP server with {DHCP_RANGE[0]} to {DHCP_RANGE[1]}")
        voice.headline("Starting harvester-ccm with the service accounts that a real installation has")
        flags = {"secure-port": str(byhand.reserve_port())} if keep else {}
        play = Play(voice, stage, Guest(stage, backends), stage.run(flags=flags))
        shown = {"cloud-config": scene.cloud_config, "kubeconfig": scene.kubeconfig, **DEFAULT_FLAGS, **flags}
        voice.show(["$ harvester-ccm", *(f"    --{name}={value}" for name, value in shown.items())])
        started = voice.elapsed
        await stage.logged(play.run, "became leader")
        voice.say(f"process {play.run.pid} is the leader, {voice.elapsed - started:.2f} s after its start")
        if keep:
            await byhand.keep(play, flags, fault)
        for scene_of in (
            initialize_nodes, move_node, serve_services, fix_pending_service, delete_services, show_vm_load_balancer,
        ):  # fmt: skip
            await scene_of(play)
        await stop_program(play)
    voice.headline("Everything was as expected")


async def stop_program(play: Play) -> None:
    """End the program and check that it released the Lease."""
    play.voice.headline("Sending SIGTERM to harvester-ccm")
    started = play.voice.elapsed
    play.run.terminate(0)
    code = await play.stage.ended(play.run)
    play.voice.say(f"exit code {code} after {play.voice.elapsed - started:.2f} s, the Lease is released")
    expect(code == 0, f"the program ended with exit code {code}")
    expect("lease released" in play.run.log, "the program did not release the Lease")
    expect("Traceback" not in play.run.log, "the program logged an error of its own")


async def initialize_nodes(play: Play) -> None:
    """Let nodes join whose VMs have no addresses yet, show why they wait, and wait for their initialization."""
    voice, stage, first = play.voice, play.stage, name_of(NODES[0])
    voice.headline("Three kubelets register their nodes; their VMs run, and have no addresses yet")
    await asyncio.gather(*(play.guest.join(number, agent=False) for number in NODES))

    async def is_explained() -> bool:
        return any(event["reason"] == NodeReason.NO_ADDRESS for event in await stage.events("Node", first))

    await until(is_explained, within=SECONDS, what="Event about a waiting node")
    await _show_nodes(play)
    voice.command(f"kubectl events --for node/{first}")
    for event in await stage.events("Node", first):
        _show_event(play, event["type"], event["reason"], event["message"])
    voice.headline("The guest agents report addresses")
    started = voice.elapsed
    for number in NODES:
        await play.guest.backends.machines.report(machine_of(number), address_of(number))
    await play.guest.initialized()
    voice.say(f"all three are initialized {voice.elapsed - started:.2f} s later")
    await _show_nodes(play)
    for number in NODES:
        node = (await stage.nodes())[name_of(number)]
        addresses = {entry.address for entry in node.status.addresses if entry.type == "InternalIP"}
        expect(addresses == {address_of(number)}, f"{name_of(number)} has the internal addresses {addresses}")


async def move_node(play: Play) -> None:
    """Migrate the VM of a node to a host in another zone and wait for the label."""
    voice, stage, machine = play.voice, play.stage, machine_of(NODES[0])
    machines = play.guest.backends.machines
    voice.headline(f"{machine.name} moves to a host in another zone: a live migration of its VM")
    await machines.begin_migration(machine, "harvester-2")
    # Harvester copies the zone of the new host during the migration.
    patch = {"metadata": {"annotations": {ZONE: "rack-9"}}}
    await stage.host.merge_patch(INSTANCES, machine.name, patch, namespace=VM_NAMESPACE)
    started = voice.elapsed
    await machines.finish_migration(machine, "harvester-2")

    async def has_moved() -> bool:
        return (await stage.nodes())[machine.name].metadata.label(ZONE) == "rack-9"

    await until(has_moved, within=SECONDS, what="the new zone")
    voice.say(f"its Node has the label {ZONE}=rack-9 {voice.elapsed - started:.2f} s later")


async def serve_services(play: Play) -> None:
    """Create Services, show their addresses in both clusters, send requests, and show an Event."""
    voice, stage = play.voice, play.stage
    voice.headline("Creating five Services of type LoadBalancer: three from the IP pool, two by DHCP")
    started = voice.elapsed
    for wanted in WANTED:
        ports = [{"name": name, "port": number, "protocol": protocol} for name, number, protocol in wanted.ports]
        await stage.create_service(wanted.name, ports=ports, annotations=wanted.annotations)
    services = await stage.served(*(wanted.name for wanted in WANTED), within=SECONDS)
    voice.say(f"all five have an address {voice.elapsed - started:.2f} s later")

    async def has_addresses() -> bool:
        return all(one.address for one in await stage.load_balancers())

    await until(has_addresses, within=SECONDS, what="addresses in Harvester")
    await _show_services(play, "")
    voice.headline("Sending requests to the addresses: the answer names the Service")
    for wanted, service in zip(WANTED, services, strict=True):
        address = service.addresses[0]
        expect(address.startswith(wanted.network), f"{wanted.name} has address {address}")
        for port in service.spec.ports:
            answer = await ask(port.protocol, address, port.port)
            is_tcp = port.protocol == "TCP"
            command = f"curl http://{address}:{port.port}/" if is_tcp else f"echo hello | nc -u {address} {port.port}"
            voice.show([f"$ {command:38}{answer}"])
            expect(answer == service.metadata.key, f"{address}:{port.port} answered {answer!r}")
    voice.headline("Events of Service web")
    await stage.hears("web", Reason.ENSURED, within=SECONDS)
    await _show_events_of(play, "web")


async def fix_pending_service(play: Play) -> None:
    """Create a Service that cannot be served, show why, and do what the Event says."""
    voice, stage = play.voice, play.stage
    voice.headline(f"Creating a Service that requests IP pool {MISSING_POOL}, which does not exist")
    await stage.create_service("store", ports=[{"name": "http", "port": 18080}], annotations={IP_POOL: MISSING_POOL})
    event = await stage.hears("store", Reason.ADDRESS_PENDING, within=SECONDS)
    voice.command("kubectl events --for service/store")
    await _show_events_of(play, "store")
    expect(MISSING_POOL in event.message, f"the Event does not name the pool: {event.message}")
    voice.headline(f"Creating IP pool {MISSING_POOL} with 127.77.1.0/24")
    started = voice.elapsed
    scope = {"project": "*", "namespace": VM_NAMESPACE, "guestCluster": "*"}
    await stage.harvester.create_pool(MISSING_POOL, "127.77.1.0/24", selector={"scope": [scope]})
    (service,) = await stage.served("store", within=SECONDS)
    voice.say(f"Service store has address {service.addresses[0]} {voice.elapsed - started:.2f} s later")
    expect(service.addresses[0].startswith("127.77.1."), f"store has address {service.addresses[0]}")


async def delete_services(play: Play) -> None:
    """Delete all Services and show that nothing is left in Harvester."""
    voice, stage = play.voice, play.stage
    names = [*(wanted.name for wanted in WANTED), "store"]
    voice.headline(f"Deleting all {len(names)} Services")
    started = voice.elapsed
    await asyncio.gather(*map(stage.delete_service, names))
    await stage.gone(*names, within=SECONDS)
    await stage.nothing_left(within=SECONDS)
    counts = await stage.harvester.counts()
    voice.say(f"{counts.balancers} LBs, {counts.booked} addresses left, {voice.elapsed - started:.2f} s later")
    expect(not stage.kube_vip.announced, f"kube-vip still announces {', '.join(stage.kube_vip.announced)}")


async def show_vm_load_balancer(play: Play) -> None:
    """Serve a Service with a health check, let a node fail and recover, and delete the Service."""
    voice, stage, failing = play.voice, play.stage, NODES[0]
    voice.headline("Creating a Service with a health check: Harvester itself announces it and balances over the nodes")
    await stage.create_service(PORTAL, ports=[{"name": "http", "port": PORTAL_PORT}], annotations=CHECK)
    await play.guest.answer()
    (service,) = await stage.served(PORTAL, within=SECONDS)
    voice.say("with the annotations")
    voice.show(f"  {key}: {value!r}" for key, value in CHECK.items())
    await _show_services(play, f"?fieldSelector=metadata.name={PORTAL}")
    answered = await _ask_until(play, service, NODES)
    voice.say(f"All three nodes have passed their checks and answer {answered}")
    expect(not stage.kube_vip.announced, "kube-vip in the guest announces the address, too")
    name = name_of(failing)
    voice.headline(f"The backend on {name} stops: it gets no traffic after {THRESHOLD} failed checks, one per second")
    play.guest.backends.fail(failing)
    answered = await _ask_until(play, service, [number for number in NODES if number != failing])
    voice.say(f"{name} is left out, the others answer, {answered}")
    voice.headline(f"The backend on {name} starts again")
    await play.guest.answer()
    voice.say(f"{name} is back {await _ask_until(play, service, NODES)}")
    await stage.delete_service(PORTAL)
    await stage.gone(PORTAL, within=SECONDS)
    await stage.nothing_left(within=SECONDS)
    voice.say(f"Service {PORTAL} deleted; nothing of it is left in Harvester")


async def _ask_until(play: Play, service: Service, numbers: Sequence[int]) -> str:
    """Send requests until exactly these nodes answer a number of them in a row; return how long that took."""
    voice, address, wanted = play.voice, service.addresses[0], {name_of(number) for number in numbers}
    started, answers = voice.elapsed, list[str | None]()

    async def only_these() -> bool:
        answers.append(await ask_once("TCP", address, PORTAL_PORT))
        return len(answers) >= IN_A_ROW and set(answers[-IN_A_ROW:]) == wanted

    await until(only_these, within=SECONDS, what=f"answers from {', '.join(sorted(wanted))}")
    voice.command(f"for i in 1 2 3 4 5 6; do curl http://{address}:{PORTAL_PORT}/; done | xargs")
    voice.show([" ".join(map(str, answers[-SHOWN:]))])
    answered = len(answers) - answers.count(None)
    return f"{voice.elapsed - started:.2f} s later; until then {answered} of {len(answers)} requests were answered"


async def _show_services(play: Play, query: str) -> None:
    scene = play.stage.scene
    play.voice.command(f"kubectl get services {PORTAL if query else ''}".rstrip())
    play.voice.show(await table(scene.guest.admin, f"{GUEST_SERVICES}{query}"))
    play.voice.command("kubectl get loadbalancers.loadbalancer.harvesterhci.io        # in Harvester")
    play.voice.show(await table(scene.harvester.admin, LOAD_BALANCERS.path(VM_NAMESPACE)))


async def _show_events_of(play: Play, service: str) -> None:
    for event in await play.stage.told(service):
        _show_event(play, event.type, event.reason, event.message)


def _show_event(play: Play, kind: str, reason: str, message: str) -> None:
    head = f"{kind:9}{reason:22}"
    play.voice.say(head + message, hang=len(head))


async def _show_nodes(play: Play) -> None:
    play.voice.command("kubectl get nodes -o custom-columns=...")
    rows = [["NAME", "PROVIDER-ID", "INTERNAL-IP", "ZONE", "INITIALIZED"]]
    for name, node in sorted((await play.stage.nodes()).items()):
        addresses = ",".join(entry.address for entry in node.status.addresses if entry.type == "InternalIP")
        waits = any(taint.key == UNINITIALIZED_TAINT for taint in node.spec.taints)
        cells = (node.spec.provider_id, addresses, node.metadata.label(ZONE))
        rows.append([name, *(cell or "<none>" for cell in cells), "no" if waits else "yes"])
    play.voice.show(aligned(rows))
