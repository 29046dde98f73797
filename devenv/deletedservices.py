"""What the real kube-vip does when many Services are deleted while it elects a node for each of them (svc_election).

``unshare --net python -m devenv.deletedservices PROGRAM`` runs kube-vip as on two nodes, creates Services with
addresses and endpoints, and removes them as the controller does: the addresses are withdrawn, then the Services are
deleted. It prints how many kube-vips ended, and how many addresses are left. Requires Linux and root.
"""

import argparse
import asyncio
import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from devenv.apiserver import ControlPlane
from devenv.harvester.records import SERVICES, SLICES
from devenv.kubelets import DOCUMENTS
from devenv.kubevipprocess import DEVICE, NODE_ADDRESS, PEER, SETTINGS, announced_addresses, prepare_network
from devenv.process import ChildProcess, run_directory, stop_together
from devenv.realkubevip import ENDPOINT, NODE
from devenv.stage import until
from devenv.watch import Document, annotations_of
from harvester_ccm.kube.client import ApiClient
from harvester_ccm.kube.credentials import load_credentials

NODES: Final = {NODE: DEVICE, "another-node": PEER}
"""Nodes and their devices."""
ADDRESSES: Final = [{"type": "InternalIP", "address": NODE_ADDRESS}]
COUNT: Final = 100
ROUNDS: Final = 3
WITHIN: Final = 300.0
"""Seconds for all announcements."""
REST: Final = 20.0
"""Seconds without a change after which nothing more is removed."""


def objects_of(number: int) -> tuple[Document, Document]:
    """Return a Service with an address, and an EndpointSlice of it."""
    name = f"s{number}"
    annotations = {"kube-vip.io/loadbalancerIPs": f"10.9.107.{number}"}
    ports = [{"name": "main", "port": 80, "protocol": "TCP"}]
    service = {"metadata": {"name": name, "annotations": annotations}, "spec": {"type": "LoadBalancer", "ports": ports}}
    meta = {"name": f"{name}-1", "labels": {"kubernetes.io/service-name": name}}
    return service, {"metadata": meta, "addressType": "IPv4", "ports": ports, "endpoints": [ENDPOINT]}


async def _create(client: ApiClient, number: int) -> None:
    service, slice_ = objects_of(number)
    await client.create(SERVICES, service, namespace="default")
    await client.create(SLICES, slice_, namespace="default")


async def _delete(client: ApiClient, number: int) -> None:
    withdrawn = {"metadata": {"annotations": {"kube-vip.io/loadbalancerIPs": ""}}}
    await client.merge_patch(SERVICES, f"s{number}", withdrawn, namespace="default")
    await client.delete(SERVICES, f"s{number}", namespace="default")
    await client.delete(SLICES, f"s{number}-1", namespace="default")


async def play(client: ApiClient, children: Sequence[ChildProcess]) -> str:
    """Create and delete Services; return what the kube-vips did."""

    async def announced() -> bool:
        services = (await client.list(SERVICES, namespace="default")).items
        noted = [service for service in services if annotations_of(service).get("kube-vip.io/vipHost")]
        return len(noted) == COUNT or any(child.exit_code() is not None for child in children)

    before = announced_addresses()
    numbers = range(1, COUNT + 1)
    await asyncio.gather(*(_create(client, number) for number in numbers))
    await until(announced, within=WITHIN, what="all Services announced")
    await asyncio.gather(*(_delete(client, number) for number in numbers))
    left = announced_addresses() - before
    while left:
        await asyncio.sleep(REST)
        remaining = announced_addresses() - before
        if remaining == left:
            break
        left = remaining
    ended = sum(child.exit_code() is not None for child in children)
    return f"{ended} of {len(children)} kube-vips ended; {len(left)} of {COUNT} addresses are left"


async def run(program: Path, directory: Path) -> None:
    """Play some rounds, each with new kube-vips."""
    with ControlPlane.start("guest", directory / "guest") as plane:
        async with ApiClient(load_credentials(plane.admin_kubeconfig), cluster="guest") as client:
            for node in NODES:
                meta = {"apiVersion": "v1", "kind": "Node", "metadata": {"name": node}}
                await client.create(DOCUMENTS, {**meta, "status": {"addresses": ADDRESSES}})
            command: list[str | Path] = [program, "manager", "--k8sConfigPath", plane.admin_kubeconfig]
            for number in range(1, ROUNDS + 1):
                children = []
                for port, node in enumerate(NODES, 2112):
                    own = {
                        "svc_election": "true",
                        "vip_nodename": node,
                        "vip_interface": NODES[node],
                        "prometheus_server": f"127.0.0.1:{port}",
                    }
                    log_file = directory / f"{node}-{number}.log"
                    environment = {**os.environ, **SETTINGS, **own}
                    children.append(ChildProcess.start("kube-vip", command, log_file=log_file, env=environment))
                try:
                    print(f"round {number}: {await play(client, children)}", flush=True)
                finally:
                    stop_together(children)
                for child in children:
                    lines = child.log_file.read_text().splitlines()
                    print(
                        "".join(f"{child.log_file.stem}: {line}\n" for line in lines if "panic:" in line),
                        end="",
                        flush=True,
                    )


def main() -> int:
    """Entry point. Returns the exit code."""
    parser = argparse.ArgumentParser(
        prog="python -m devenv.deletedservices", description=(__doc__ or "").splitlines()[0]
    )
    parser.add_argument("program", type=Path, help="path of kube-vip")
    options = parser.parse_args()
    prepare_network()
    with run_directory("deleted-services") as directory:
        asyncio.run(run(options.program.absolute(), directory))
    return 0


if __name__ == "__main__":
    sys.exit(main())
