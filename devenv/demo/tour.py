"""The demo in plain lines: the acts of ``show``, nodes that join and move, and a backend that fails."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from pathlib import Path
from typing import Final

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
from devenv.demo.requests import ask_once
from devenv.demo.show import Show, crowd, leave, mistake, serve
from devenv.guestnodes import GuestNodes, address_of, name_of
from devenv.harvester.records import INSTANCES
from devenv.stage import VM_NAMESPACE, Scene, until
from harvester_ccm.model.core import SERVICES, Service
from harvester_ccm.model.harvester import LOAD_BALANCERS
from harvester_ccm.names import UNINITIALIZED_TAINT, ZONE, NodeReason, Reason

GUEST_SERVICES: Final = SERVICES.path("default")
IN_A_ROW: Final = 9
"""Answers from exactly the expected nodes."""
SHOWN: Final = 6
"""Of them, the number that is printed."""


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
        await initialize_nodes(play)
        await move_node(play)
        show = Show(stage, voice, lambda: play.run)
        async with show:
            await serve(show)
            await show_services(play)
            await mistake(show)
            await crowd(show)
            await leave(show)
        await show_vm_load_balancer(play)
        await stop_program(play)
    voice.headline("Everything was as expected")
    voice.show(show.summary)


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
        voice.say(f"{event['type']}  {event['reason']}  {event['message']}")
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


async def show_vm_load_balancer(play: Play) -> None:
    """Serve a Service with a health check, let a node fail and recover, and delete the Service."""
    voice, stage, failing = play.voice, play.stage, NODES[0]
    voice.headline("Creating a Service with a health check: Harvester itself announces it and balances over the nodes")
    await stage.create_service(PORTAL, ports=[{"name": "http", "port": PORTAL_PORT}], annotations=CHECK)
    await play.guest.answer()
    (service,) = await stage.served(PORTAL, within=SECONDS)
    voice.say("with the annotations")
    voice.show(f"  {key}: {value!r}" for key, value in CHECK.items())
    await show_services(play, PORTAL)
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


async def show_services(play: Play, name: str = "") -> None:
    """Show Services, by default all, with their Events, and the load balancers in Harvester."""
    voice, scene = play.voice, play.stage.scene
    query = f"?fieldSelector=metadata.name={name}" if name else ""
    voice.command(f"kubectl get services {name}".rstrip())
    voice.show(await table(scene.guest.admin, f"{GUEST_SERVICES}{query}"))
    voice.command("kubectl get loadbalancers.loadbalancer.harvesterhci.io        # in Harvester")
    voice.show(await table(scene.harvester.admin, LOAD_BALANCERS.path(VM_NAMESPACE)))
    event = await play.stage.hears(name or "web", Reason.ENSURED, within=SECONDS)
    voice.command(f"kubectl events --for service/{name or 'web'}")
    voice.say(f"{event.type}  {event.reason}  {event.message}")


async def _show_nodes(play: Play) -> None:
    play.voice.command("kubectl get nodes -o custom-columns=...")
    rows = [["NAME", "PROVIDER-ID", "INTERNAL-IP", "ZONE", "INITIALIZED"]]
    for name, node in sorted((await play.stage.nodes()).items()):
        addresses = ",".join(entry.address for entry in node.status.addresses if entry.type == "InternalIP")
        waits = any(taint.key == UNINITIALIZED_TAINT for taint in node.spec.taints)
        cells = (node.spec.provider_id, addresses, node.metadata.label(ZONE))
        rows.append([name, *(cell or "<none>" for cell in cells), "no" if waits else "yes"])
    play.voice.show(aligned(rows))
