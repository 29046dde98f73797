"""The life of Services: served, asked, waiting and cured, deleted."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from typing import Final

from devenv.demo.play import Play, expect
from devenv.demo.requests import ask
from devenv.stage import VM_NAMESPACE, until
from harvester_ccm.model.core import SERVICES
from harvester_ccm.model.harvester import LOAD_BALANCERS
from harvester_ccm.names import IP_POOL, IPAM, Reason

SERVED_SECONDS: Final = 60.0
TOLD_SECONDS: Final = 60.0
GUEST_SERVICES: Final = SERVICES.path("default")
HARVESTER_BALANCERS: Final = LOAD_BALANCERS.path("default")
MISSING_POOL: Final = "dmz"


@dataclass(frozen=True)
class Wish:
    """A Service that the demo creates."""

    name: str
    ports: tuple[tuple[str, int, str], ...]
    """Name, number and protocol of each port."""
    network: str
    """How its address must begin."""
    annotations: dict[str, str] = field(default_factory=dict)


WISHES: Final = (
    Wish("web", (("http", 18080, "TCP"),), "127.77."),
    Wish("dns", (("dns", 15300, "UDP"),), "127.77."),
    Wish("shop", (("https", 18443, "TCP"), ("http", 18080, "TCP")), "127.77."),
    Wish("wiki", (("http", 18080, "TCP"),), "127.78.", {IPAM: "dhcp"}),
    Wish("syslog", (("syslog", 15140, "UDP"),), "127.78.", {IPAM: "dhcp"}),
)


async def serve_services(play: Play) -> None:
    """Create five Services at once and show their addresses in both clusters."""
    voice = play.voice
    voice.headline("Creating five Services of type LoadBalancer: three from the IP pool, two by DHCP")
    started = voice.elapsed
    await asyncio.gather(*(_create(play, wish) for wish in WISHES))
    services = await play.stage.served(*(wish.name for wish in WISHES), within=SERVED_SECONDS)
    voice.say(f"all five have an address {voice.elapsed - started:.2f} s later")
    for wish, service in zip(WISHES, services, strict=True):
        expect(service.addresses[0].startswith(wish.network), f"{wish.name} has address {service.addresses[0]}")
    voice.command("kubectl get services")
    voice.show(await play.guest.lines(GUEST_SERVICES))
    await until(lambda: _addresses_known_in_harvester(play), within=SERVED_SECONDS, what="addresses in Harvester")
    voice.command("kubectl get loadbalancers.loadbalancer.harvesterhci.io        # in Harvester")
    voice.show(await play.harvester.lines(HARVESTER_BALANCERS))


async def _create(play: Play, wish: Wish) -> None:
    ports = [{"name": name, "port": number, "protocol": protocol} for name, number, protocol in wish.ports]
    await play.stage.create_service(wish.name, ports=ports, annotations=wish.annotations)


async def _addresses_known_in_harvester(play: Play) -> bool:
    return all(one.address for one in await play.stage.load_balancers())


async def send_requests(play: Play) -> None:
    """Ask every port of every Service through its address."""
    voice = play.voice
    voice.headline("Sending requests to the addresses: who answers says which Service it is")
    for service in await play.stage.served(*(wish.name for wish in WISHES)):
        address = service.addresses[0]
        for port in service.spec.ports:
            answer = await ask(port.protocol, address, port.port)
            command = f"curl http://{address}:{port.port}/"
            if port.protocol == "UDP":
                command = f"echo hello | nc -u {address} {port.port}"
            voice.show([f"$ {command:38}{answer}"])
            expect(answer == service.metadata.key, f"{address}:{port.port} answered {answer!r}")


async def show_events(play: Play) -> None:
    """Show what a user is told about a Service that works."""
    play.voice.headline("What the Events of Service web say")
    told = await play.stage.hears("web", Reason.ENSURED, within=TOLD_SECONDS)
    await _show_events(play, "web")
    expect(told.type == "Normal", f"the Event {told.reason} has type {told.type}")


async def _show_events(play: Play, name: str) -> None:
    for told in await play.stage.told(name):
        head = f"{told.type:9}{told.reason:22}"
        play.voice.say(head + told.message, hang=len(head))


async def cure_pending_service(play: Play) -> None:
    """Create a Service that cannot be served, show why, do what the Event says and see it served."""
    voice, stage = play.voice, play.stage
    voice.headline(f"Creating a Service that asks for IP pool {MISSING_POOL}, which does not exist")
    await stage.create_service("store", ports=[{"name": "http", "port": 18080}], annotations={IP_POOL: MISSING_POOL})
    told = await stage.hears("store", Reason.ADDRESS_PENDING, within=TOLD_SECONDS)
    voice.command("kubectl get service store")
    voice.show(await play.guest.lines(f"{GUEST_SERVICES}?fieldSelector=metadata.name=store"))
    voice.command("kubectl events --for service/store")
    await _show_events(play, "store")
    expect(MISSING_POOL in told.message, f"the Event does not name the pool: {told.message}")

    voice.headline(f"Creating IP pool {MISSING_POOL} with 127.77.1.0/24")
    started = voice.elapsed
    scope = {"project": "*", "namespace": VM_NAMESPACE, "guestCluster": "*"}
    await stage.harvester.create_pool(MISSING_POOL, "127.77.1.0/24", selector={"scope": [scope]})
    (service,) = await stage.served("store", within=SERVED_SECONDS)
    voice.say(f"Service store has address {service.addresses[0]} {voice.elapsed - started:.2f} s later")
    expect(service.addresses[0].startswith("127.77.1."), f"store has address {service.addresses[0]}")


async def delete_everything(play: Play) -> None:
    """Delete all Services and show that nothing is left in Harvester."""
    voice, stage = play.voice, play.stage
    names = [*(wish.name for wish in WISHES), "store"]
    voice.headline(f"Deleting all {len(names)} Services")
    started = voice.elapsed
    await asyncio.gather(*(stage.delete_service(name) for name in names))
    await stage.gone(*names, within=SERVED_SECONDS)
    await stage.nothing_left(within=SERVED_SECONDS)
    counts = await stage.harvester.counts()
    voice.say(f"{counts.balancers} LBs, {counts.booked} addresses left, {voice.elapsed - started:.2f} s later")
    expect(not stage.kube_vip.announced, f"kube-vip still announces {', '.join(stage.kube_vip.announced)}")
