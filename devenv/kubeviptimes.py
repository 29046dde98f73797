"""How long the real kube-vip keeps other Services waiting: for an address, and for a lease that never comes.

``unshare --net python -m devenv.kubeviptimes PROGRAM VERSION`` measures both, and writes them to the file with which
a test compares the times of the emulator. Requires Linux and root.
"""

import argparse
import asyncio
import json
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Final

from devenv.apiserver import ControlPlane
from devenv.dhcpresponder import DhcpResponder
from devenv.harvester.records import SERVICES, SLICES
from devenv.kubelets import DOCUMENTS
from devenv.kubevipprocess import NODE_ADDRESS, PEER, SETTINGS, announced_addresses, prepare_network
from devenv.process import ChildProcess, run_directory
from devenv.realkubevip import ENDPOINT, LEASES, NODE
from devenv.stage import until
from harvester_ccm.kube.client import ApiClient
from harvester_ccm.kube.credentials import load_credentials

TIMES: Final = Path(__file__).parents[1] / "tests" / "devenv" / "recordings" / "kube-vip-times.json"
FIRST: Final = {"address_timeout": {}, "dhcp_timeout": {"kube-vip.io/loadbalancerIPs": "0.0.0.0"}}  # noqa: S104 - DHCP
"""The annotations of the Service for which the others wait, by the name of the emulator's setting."""
WITHIN: Final = 300.0
READY: Final = "10.9.108.1"


async def create(client: ApiClient, name: str, annotations: dict[str, str]) -> None:
    """Create a Service with an endpoint."""
    ports = [{"name": "main", "port": 80, "protocol": "TCP"}]
    spec = {"type": "LoadBalancer", "ports": ports}
    meta = {"name": f"{name}-1", "labels": {"kubernetes.io/service-name": name}}
    slice_ = {"metadata": meta, "addressType": "IPv4", "ports": ports, "endpoints": [ENDPOINT]}
    await client.create(SLICES, slice_, namespace="default")
    service = {"metadata": {"name": name, "annotations": annotations}, "spec": spec}
    await client.create(SERVICES, service, namespace="default")


async def announced(client: ApiClient, name: str, address: str) -> None:
    """Create a Service with an address, and wait until it is on the node."""
    await create(client, name, {"kube-vip.io/loadbalancerIPs": address})

    async def is_up() -> bool:
        return address in announced_addresses()

    await until(is_up, within=WITHIN, what=f"{address} on the node")


async def measure(client: ApiClient, annotations: dict[str, str]) -> float:
    """Return the seconds for which a Service waits after another one with these annotations."""
    # kube-vip follows the Services from here on.
    await announced(client, "ready", READY)
    loop = asyncio.get_running_loop()
    began = loop.time()
    await create(client, "first", annotations)
    await announced(client, "second", "10.9.108.2")
    return loop.time() - began


async def run(program: Path, directory: Path) -> dict[str, float]:
    """Measure each time with a new API server and a new kube-vip."""
    seconds: dict[str, float] = {}
    for name, annotations in FIRST.items():
        async with AsyncExitStack() as stack:
            plane = stack.enter_context(ControlPlane.start("guest", directory / name))
            dhcp = stack.enter_context(DhcpResponder(PEER, LEASES))
            dhcp.answers = False
            client = await stack.enter_async_context(
                ApiClient(load_credentials(plane.admin_kubeconfig), cluster="guest")
            )
            node = {"apiVersion": "v1", "kind": "Node", "metadata": {"name": NODE}}
            address = {"type": "InternalIP", "address": NODE_ADDRESS}
            await client.create(DOCUMENTS, {**node, "status": {"addresses": [address]}})
            command: list[str | Path] = [program, "manager", "--k8sConfigPath", plane.admin_kubeconfig]
            child = ChildProcess.start("kube-vip", command, log_file=directory / f"{name}.log", env=dict(SETTINGS))
            stack.callback(child.stop)
            seconds[name] = round(await measure(client, annotations), 1)
    return seconds


def main() -> None:
    """Entry point."""
    parser = argparse.ArgumentParser(prog="python -m devenv.kubeviptimes", description="Measure kube-vip's times.")
    parser.add_argument("program", type=Path, help="path of kube-vip")
    parser.add_argument("version", help="its version, for example v1.2.3")
    options = parser.parse_args()
    prepare_network()
    with run_directory("kube-vip-times") as directory:
        seconds = asyncio.run(run(options.program.absolute(), directory))
    known = json.loads(TIMES.read_text()) if TIMES.exists() else {}
    TIMES.write_text(json.dumps({**known, options.version: seconds}, indent=2, sort_keys=True) + "\n")
    print(f"{options.version}: {seconds}")


if __name__ == "__main__":
    main()
