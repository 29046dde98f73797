"""Records the real kube-vip in all scenarios of ``devenv.kubevipscenarios``, for the test of the emulator.

``make e2e-kube-vip RECORD=1`` runs it for both pinned versions. It requires Linux, root and a network namespace of its
own, with a device whose peer has the DHCP server.
"""

import argparse
import asyncio
import json
import os
import re
import time
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, Final

from devenv.announcement import Settings, Version
from devenv.apiserver import ControlPlane
from devenv.binaries import PROGRAMS, require
from devenv.dhcpresponder import DhcpResponder
from devenv.harvester.records import SERVICES, SLICES
from devenv.kubelets import DOCUMENTS
from devenv.kubevipplayer import NAMESPACE, Surroundings, play
from devenv.kubevipscenarios import LEASES, SCENARIOS, Scenario, is_played
from devenv.logfile import logs_to
from devenv.process import ChildProcess, DevenvError, run_directory
from devenv.realkubevip import DEVICE, NODE_ADDRESS, PEER, SETTINGS, ip, prepare_network
from harvester_ccm.kube.client import ApiClient
from harvester_ccm.kube.credentials import load_credentials

RECORDINGS: Final = Path(__file__).parent.parent / "tests" / "devenv" / "recordings"
RECORDED: Final = ("kube-vip", "kube-vip-0.9")
"""Programs of ``devenv.binaries``."""
WATCHES: Final = "starting services watcher"
"""Log message of kube-vip when it begins to read Services."""
START_SECONDS: Final = 60.0
POLL_SECONDS: Final = 0.1


def file_of(scenario: Scenario, version: Version) -> Path:
    """Return the file of a recording."""
    name = re.sub(r"[^a-z0-9]+", "-", scenario.name.lower()).strip("-")
    return RECORDINGS / text_of(version) / f"{name}.json"


def text_of(version: Version) -> str:
    """Return a version as it is written."""
    return f"v{version[0]}.{version[1]}.{version[2]}"


def version_of(text: str) -> Version:
    """Return a version as numbers. Raises ValueError."""
    major, minor, patch = text.removeprefix("v").split(".")
    return int(major), int(minor), int(patch)


async def record(program: Path, version: Version, scenarios: Sequence[Scenario], directory: Path) -> None:
    """Record scenarios with one kube-vip, and write a file for each."""
    with ControlPlane.start("guest", directory / "guest") as plane:
        async with ApiClient(load_credentials(plane.admin_kubeconfig), cluster="guest") as client:
            node = {"apiVersion": "v1", "kind": "Node", "metadata": {"name": scenarios[0].settings.node}}
            node["status"] = {"addresses": [{"type": "InternalIP", "address": NODE_ADDRESS}]}
            await client.create(DOCUMENTS, node)
            for scenario in scenarios:
                began = time.monotonic()
                log_file = directory / f"{file_of(scenario, version).stem}.log"
                recording = await _record(program, scenario, client, plane, log_file)
                _write(recording, scenario, version)
                print(f"{time.monotonic() - began:5.1f} s  {text_of(version)}: {scenario.name}", flush=True)


async def _record(
    program: Path, scenario: Scenario, client: ApiClient, plane: ControlPlane, log_file: Path
) -> dict[str, Any]:
    """Play one scenario with a new kube-vip, and remove what it leaves."""
    with DhcpResponder(PEER, LEASES) as dhcp:

        def let_dhcp_answer(answers: bool) -> None:
            dhcp.answers = answers

        async with _kube_vip(program, scenario.settings, plane, log_file):
            try:
                return await play(scenario, Surroundings(client, _announced, let_dhcp_answer, LEASES))
            finally:
                await _remove_objects(client)


@asynccontextmanager
async def _kube_vip(program: Path, settings: Settings, plane: ControlPlane, log_file: Path) -> AsyncIterator[None]:
    """Run kube-vip as a process, and remove its addresses at the end."""
    command: list[str | Path] = [program, "manager", "--k8sConfigPath", plane.admin_kubeconfig]
    environment = {**os.environ, **SETTINGS, **_environment_of(settings), "HOME": str(_home_of(plane))}
    child = ChildProcess.start("kube-vip", command, log_file=log_file, env=environment)
    try:
        deadline = time.monotonic() + START_SECONDS
        while WATCHES not in child.log_tail(200):
            if child.exit_code() is not None or time.monotonic() > deadline:
                raise DevenvError(f"kube-vip does not read Services; the end of {log_file}:\n{child.log_tail()}")
            await asyncio.sleep(POLL_SECONDS)
        yield
    finally:
        child.stop()
        _clear_device()


def _home_of(plane: ControlPlane) -> Path:
    """Return a home directory with the kubeconfig: a kube-vip before 1.0 reads it from nowhere else."""
    home = plane.directory / "home"
    (home / ".kube").mkdir(parents=True, exist_ok=True)
    (home / ".kube" / "config").write_bytes(plane.admin_kubeconfig.read_bytes())
    return home


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


def _devices() -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = json.loads(ip("-json -4 address show"))
    return found


def _announced() -> set[str]:
    """Return the addresses that kube-vip has put on a device."""
    found = {entry["local"] for device in _devices() for entry in device["addr_info"] if device["ifname"] != "lo"}
    return found - {NODE_ADDRESS}


def _clear_device() -> None:
    """Remove addresses and devices that kube-vip left."""
    for device in _devices():
        if device["ifname"].startswith("vip-"):
            ip(f"link delete {device['ifname']}")
    for address in _announced():
        ip(f"address delete {address}/32 dev {DEVICE}")


def _write(recording: dict[str, Any], scenario: Scenario, version: Version) -> None:
    file = file_of(scenario, version)
    file.parent.mkdir(parents=True, exist_ok=True)
    head = {"kube-vip": text_of(version), "recorded": time.strftime("%Y-%m-%d", time.gmtime())}
    file.write_text(_as_json({**head, **recording}))


def _as_json(recording: dict[str, Any]) -> str:
    """Return a recording as JSON, with a line for each step."""
    lines = [f" {json.dumps(key)}: {json.dumps(value)}" for key, value in recording.items() if key != "steps"]
    steps = ",\n".join(f"  {json.dumps(step)}" for step in recording["steps"])
    lines.append(f' "steps": [\n{steps}\n ]')
    return "{\n" + ",\n".join(lines) + "\n}\n"


def main() -> None:
    """Entry point of ``python -m devenv.recordkubevip`` in a new network namespace."""
    parser = argparse.ArgumentParser(prog="python -m devenv.recordkubevip", description="Record the real kube-vip.")
    parser.add_argument("--only", default="", help="record only the scenarios whose name contains this text")
    parser.add_argument("--program", type=Path, help="another kube-vip than the pinned ones")
    parser.add_argument("--version", help="version of that kube-vip, for example v1.2.3")
    options = parser.parse_args()
    if (options.program is None) != (options.version is None):
        parser.error("--program and --version need each other")
    prepare_network()
    programs = {PROGRAMS[name].version: require(name)[name] for name in RECORDED if options.program is None}
    if options.program is not None:
        programs = {options.version: options.program}
    for text, program in programs.items():
        version = version_of(text)
        chosen = [one for one in SCENARIOS if options.only in one.name and is_played(one, version)]
        with run_directory("record-kube-vip") as directory, logs_to(directory / "player.log"):
            asyncio.run(record(program, version, chosen, directory))


if __name__ == "__main__":
    main()
