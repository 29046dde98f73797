"""The networks of the cluster: a router with one bridge for the nodes and one for the clients.

The router is the network namespace of the capsule itself, where the control planes and the DHCP server run.
"""

import subprocess
from pathlib import Path

from devenv.cluster import layout
from devenv.process import DevenvError

NODES_BRIDGE = "nodes"
CLIENTS_BRIDGE = "clients"


def run_tool(*command: str | Path, stdin: str | None = None) -> str:
    """Run a program and return its output. Raises DevenvError with its error output if it fails."""
    done = subprocess.run(command, check=False, capture_output=True, text=True, input=stdin)
    if done.returncode != 0:
        reason = done.stderr.strip() or done.stdout.strip()
        raise DevenvError(f"{' '.join(str(word) for word in command)} failed: {reason}")
    return done.stdout


def set_kernel(name: str, value: str) -> None:
    """Set a parameter of this network namespace, if the kernel has it."""
    file = Path("/proc/sys/net", name)
    if file.exists():
        file.write_text(value)


def make_router() -> None:
    """Create the bridges and the addresses of the control planes in the network namespace of this process."""
    run_tool("ip", "link", "set", "lo", "up")
    bridges = {
        NODES_BRIDGE: (layout.ROUTER, layout.GUEST, layout.HARVESTER),
        CLIENTS_BRIDGE: (layout.CLIENT_ROUTER,),
    }
    for bridge, addresses in bridges.items():
        run_tool("ip", "link", "add", bridge, "type", "bridge")
        for address in addresses:
            run_tool("ip", "address", "add", f"{address}/24", "dev", bridge)
        run_tool("ip", "link", "set", bridge, "up")
    # Harvester's API server connects to the Service of Harvester's webhook, which runs here.
    run_tool("ip", "route", "add", "local", layout.HARVESTER_SERVICE_NETWORK, "dev", "lo")
    set_kernel("ipv4/ip_forward", "1")
    # Otherwise, packets between two nodes would pass the packet filter of the router.
    set_kernel("bridge/bridge-nf-call-iptables", "0")


def connect(pid: int, name: str, address: str, *, bridge: str, gateway: str) -> None:
    """Connect the network namespace of a process to a bridge, by its device ``eth0``."""
    peer = f"to-{name}"
    run_tool("ip", "link", "add", peer, "type", "veth", "peer", "name", "eth0", "netns", str(pid))
    run_tool("ip", "link", "set", peer, "master", bridge, "up")
    for words in (
        ("link", "set", "lo", "up"),
        ("address", "add", f"{address}/24", "dev", "eth0"),
        ("link", "set", "eth0", "up"),
        ("route", "add", "default", "via", gateway),
    ):
        run_tool("nsenter", f"--target={pid}", "--net", "ip", *words)


def route_pods(pid: int | None, place: layout.NodePlace) -> None:
    """Route the pods of a node from the network namespace of a process; None means the router."""
    entering = () if pid is None else ("nsenter", f"--target={pid}", "--net")
    run_tool(*entering, "ip", "route", "add", place.pods, "via", place.address)
