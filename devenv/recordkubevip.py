"""Records the real kube-vip in all scenarios of ``devenv.kubevipscenarios``, for the test of the emulator.

``make e2e-kube-vip RECORD=1`` runs it for ``KUBE_VIP``, a version or ``all``. It requires Linux, root and a network
namespace of its own, with a device whose peer has the DHCP server.
"""

import argparse
import asyncio
import json
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

from devenv.announcement import Settings, Version
from devenv.apiserver import ControlPlane
from devenv.dhcpresponder import DhcpResponder
from devenv.harvester.records import SERVICES, SLICES
from devenv.kubelets import DOCUMENTS
from devenv.kubevipplayer import Surroundings, play
from devenv.kubevipprocess import (
    NODE_ADDRESS,
    PEER,
    PROGRAMS,
    SETTINGS,
    Build,
    announced_addresses,
    build_of,
    clear_device,
    kube_vip_process,
    prepare_network,
    text_of,
    version_of,
)
from devenv.kubevipscenarios import LEASES, SCENARIOS, Scenario, is_played
from devenv.logfile import logs_to
from devenv.player import NAMESPACE, recording_in, write_recording
from devenv.process import run_directory
from harvester_ccm.kube.client import ApiClient
from harvester_ccm.kube.credentials import load_credentials

RECORDINGS: Final = Path(__file__).parent.parent / "tests" / "devenv" / "recordings"


def file_of(scenario: Scenario, version: Version) -> Path:
    """Return the file of a recording."""
    return recording_in(RECORDINGS / text_of(version), scenario.name)


async def record(build: Build, scenarios: Sequence[Scenario], directory: Path) -> None:
    """Record scenarios with one kube-vip, and write a file for each."""
    with ControlPlane.start("guest", directory / "guest") as plane:
        async with ApiClient(load_credentials(plane.admin_kubeconfig), cluster="guest") as client:
            node = {"apiVersion": "v1", "kind": "Node", "metadata": {"name": scenarios[0].settings.node}}
            node["status"] = {"addresses": [{"type": "InternalIP", "address": NODE_ADDRESS}]}
            await client.create(DOCUMENTS, node)
            for scenario in scenarios:
                began = time.monotonic()
                file = file_of(scenario, build.version)
                log_file = directory / f"{file.stem}.log"
                steps = await _record(build, scenario, client, plane, log_file)
                version = text_of(build.version)
                lines = [f"  {json.dumps(step)}" for step in steps]
                write_recording(file, ("kube-vip", version), scenario.name, "steps", lines)
                print(f"{time.monotonic() - began:5.1f} s  {version}: {scenario.name}", flush=True)


async def _record(
    build: Build, scenario: Scenario, client: ApiClient, plane: ControlPlane, log_file: Path
) -> list[dict[str, Any]]:
    """Play one scenario with a new kube-vip, and remove what it leaves."""
    with DhcpResponder(PEER, LEASES) as dhcp:

        def let_dhcp_answer(answers: bool) -> None:
            dhcp.answers = answers

        settings = {**SETTINGS, **_environment_of(scenario.settings)}
        try:
            async with kube_vip_process(build, settings, plane, log_file):
                try:
                    return await play(scenario, Surroundings(client, announced_addresses, let_dhcp_answer, LEASES))
                finally:
                    await _remove_objects(client)
        finally:
            clear_device()


def _environment_of(settings: Settings) -> dict[str, str]:
    return {
        "vip_nodename": settings.node,
        "lb_class_name": settings.load_balancer_class,
        "lb_class_only": str(settings.class_only).lower(),
        "lb_class_legacy_handling": str(settings.legacy_class_handling).lower(),
        "disable_service_updates": str(not settings.updates_services).lower(),
    }


async def _remove_objects(client: ApiClient) -> None:
    for service in (await client.list(SERVICES, namespace=NAMESPACE)).items:
        name = service["metadata"]["name"]
        if name == "kubernetes":
            continue
        await client.merge_patch(SERVICES, name, {"metadata": {"finalizers": None}}, namespace=NAMESPACE)
        if not service["metadata"].get("deletionTimestamp"):
            await client.delete(SERVICES, name, namespace=NAMESPACE)
    for document in (await client.list(SLICES, namespace=NAMESPACE)).items:
        if document["metadata"]["name"] != "kubernetes":
            await client.delete(SLICES, document["metadata"]["name"], namespace=NAMESPACE)


def main() -> None:
    """Entry point of ``python -m devenv.recordkubevip`` in a new network namespace."""
    parser = argparse.ArgumentParser(prog="python -m devenv.recordkubevip", description="Record the real kube-vip.")
    parser.add_argument("--only", default="", help="record only the scenarios whose name contains this text")
    parser.add_argument("--missing", action="store_true", help="record only scenarios without a recording")
    parser.add_argument("--version", choices=PROGRAMS, required=True)
    parser.add_argument("--program", type=Path, help="another build of this version")
    options = parser.parse_args()
    prepare_network()
    version = version_of(options.version)
    build = build_of(options.version) if options.program is None else Build(options.program, version)
    chosen = [scenario for scenario in SCENARIOS if options.only in scenario.name and is_played(scenario, version)]
    if options.missing:
        chosen = [scenario for scenario in chosen if not file_of(scenario, version).exists()]
    if not chosen:
        return
    with run_directory("record-kube-vip") as directory, logs_to(directory / "player.log"):
        asyncio.run(record(build, chosen, directory))


if __name__ == "__main__":
    main()
