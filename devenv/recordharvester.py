"""Records Harvester's real controller and webhook in the scenarios of ``devenv.harvesterscenarios``, three times each.

``make recordings HARVESTER_BIN=DIRECTORY`` runs it; ONLY=--times measures times and rates instead. The programs say
from which tag they were built; the recordings are in the folder of the tag. The three runs are beside each other.
"""

import argparse
import asyncio
import json
import shutil
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

from devenv.apiserver import ControlPlane
from devenv.harvester.versions import V1_9, Version, version_with_tag
from devenv.harvesterplayer import Surroundings, clear, play, write
from devenv.harvesterrecording import comparable
from devenv.harvesterscenarios import (
    HOST_LEASES,
    SCENARIOS,
    Interleaving,
    Scenario,
    address_of,
    create_vm,
    delete,
    machine,
    pool,
)
from devenv.harvestertimes import measure
from devenv.logfile import logs_to
from devenv.machine import NETWORK_TOOLS, require_root, require_tools
from devenv.player import recording_in, write_recording
from devenv.process import ChildProcess, DevenvError, run_directory, stop_together
from devenv.realharvester import CONTROLLER, Listeners, RealHarvester, harvester_programs, prepare_network, version_of
from harvester_ccm.kube.client import ApiClient
from harvester_ccm.kube.credentials import load_credentials

RECORDINGS: Final = Path(__file__).parent.parent / "tests" / "devenv" / "recordings" / "harvester"
TIMES_OF: Final = RECORDINGS.parent / "harvester-times"
"""A file for each tag, with the times that were measured."""
CRDS: Final = Path(__file__).parent / "crds"
_TIMES: Final = "times.json"
TIMES: Final = 3
"""Recordings of each scenario."""
POLL_SECONDS: Final = 0.5
FIRST: Final = Scenario("before the first", (pool(), machine(1, address_of(1)), create_vm(), delete()))
"""Shows that controller, webhook and garbage collector work."""


def file_of(scenario: Scenario, version: Version = V1_9) -> Path:
    """Return the file with the recordings of a scenario."""
    return recording_in(RECORDINGS / version.tag, scenario.name)


async def play_all(scenarios: Sequence[Scenario], directory: Path, results: Path) -> None:
    """Play scenarios one after the other next to the real Harvester, and write the steps of each to ``results``."""
    with ControlPlane.start("harvester", directory / "harvester", controller_manager=True) as plane:
        plane.apply(*sorted(CRDS.glob("*.yaml")))
        client = ApiClient(load_credentials(plane.admin_kubeconfig), cluster="harvester")
        async with client, RealHarvester(plane, client, directory, HOST_LEASES) as harvester:
            await _play(FIRST, client, harvester)
            for scenario in scenarios:
                steps = await _play(scenario, client, harvester)
                (results / file_of(scenario).name).write_text(json.dumps(steps))


async def measure_all(directory: Path, results: Path) -> None:
    """Measure the times of the real Harvester, and write them to ``results``."""
    with ControlPlane.start("harvester", directory / "harvester", controller_manager=True) as plane:
        plane.apply(*sorted(CRDS.glob("*.yaml")))
        client = ApiClient(load_credentials(plane.admin_kubeconfig), cluster="harvester")
        async with client, RealHarvester(plane, client, directory, HOST_LEASES):
            (results / _TIMES).write_text(json.dumps(await measure(client, write)))


async def _play(scenario: Scenario, client: ApiClient, harvester: RealHarvester) -> list[dict[str, Any]]:
    """Play a scenario, and remove what it leaves."""
    listeners = Listeners()
    try:
        return await play(scenario, Surroundings(client, harvester.switch, listeners.let_answer))
    finally:
        listeners.close()
        await clear(client)


def record(scenarios: Sequence[Scenario], directory: Path) -> int:
    """Record scenarios several times beside each other; return how many differ without a reason.

    Each run is a process in a network namespace of its own. Ctrl-C ends them: the scenarios that all have finished are
    written.
    """
    lanes = _run_lanes([scenario.name for scenario in scenarios], directory)
    built = version_of(harvester_programs() / CONTROLLER)
    return sum(_merge(scenario, lanes, built) for scenario in scenarios)


def record_times(directory: Path) -> None:
    """Measure times several times beside each other, and write what was measured to the file of the tag."""
    lanes = _run_lanes(["--times"], directory)
    found = [json.loads((lane / _TIMES).read_text()) for lane in lanes]
    built = version_of(harvester_programs() / CONTROLLER)
    measured = {name: [round(one[name], 1) for one in found] for name in found[0]}
    document = {"harvester": built, "recorded": time.strftime("%Y-%m-%d", time.gmtime()), "seconds": measured}
    TIMES_OF.mkdir(exist_ok=True)
    (TIMES_OF / f"{version_with_tag(built).tag}.json").write_text(json.dumps(document, indent=1) + "\n")


def _run_lanes(words: Sequence[str], directory: Path) -> list[Path]:
    """Start the runs, each with these arguments, and return the directories of their results when all have ended."""
    lanes = [directory / f"run-{number}" for number in range(TIMES)]
    children: list[ChildProcess] = []
    try:
        for lane in lanes:
            lane.mkdir()
            children.append(_start(words, lane))
        for child in children:
            while child.exit_code() is None:
                time.sleep(POLL_SECONDS)
            if child.exit_code() != 0:
                print(f"error: a run has failed; the end of {child.log_file}:\n{child.log_tail()}", flush=True)
    except KeyboardInterrupt:
        print("interrupted", flush=True)
    finally:
        stop_together(children)
    return lanes


def _start(words: Sequence[str], lane: Path) -> ChildProcess:
    """Start a run whose results go to a directory."""
    unshare = shutil.which("unshare")
    if unshare is None:
        raise DevenvError("unshare(1) of util-linux is missing")
    command: list[str | Path] = [
        unshare,
        "--net",
        sys.executable,
        "-m",
        "devenv.recordharvester",
        "--run",
        lane,
        *words,
    ]
    return ChildProcess.start(lane.name, command, log_file=lane / "run.log")


def _merge(scenario: Scenario, lanes: Sequence[Path], built: str) -> bool:
    """Write the file of a scenario; return whether they differ without a reason or are not finished."""
    files = [lane / file_of(scenario).name for lane in lanes]
    if not all(file.exists() for file in files):
        print(f"{scenario.name}: not finished", flush=True)
        return True
    found = [json.loads(file.read_text()) for file in files]
    variants: list[dict[str, Any]] = []
    for steps in found:
        same = next((variant for variant in variants if variant["steps"] == steps), None)
        if same is None:
            variants.append({"times": 1, "steps": steps})
        else:
            same["times"] += 1
    file = file_of(scenario, version_with_tag(built))
    write_recording(file, ("harvester", built), scenario.name, "recordings", map(_as_json, variants))
    compared = [comparable(variant["steps"], scenario.may_differ) for variant in variants]
    is_explained = scenario.may_differ is Interleaving.MAP_ORDER or all(one == compared[0] for one in compared)
    verdict = f"{len(variants)} different" if len(variants) > 1 else "same"
    print(f"{scenario.name}: {verdict}{'' if is_explained else ' WITHOUT A REASON'}", flush=True)
    return not is_explained


def _as_json(variant: dict[str, Any]) -> str:
    """Return a recording as JSON, with a line for each state."""
    steps = ",\n".join(_step_as_json(step) for step in variant["steps"])
    return f'  {{"times": {variant["times"]}, "steps": [\n{steps}\n  ]}}'


def _step_as_json(step: dict[str, Any]) -> str:
    lines = [f'   {{"step": {json.dumps(step["step"])}']
    if "refusals" in step:
        texts = ",\n".join(f"     {json.dumps(text)}" for text in step["refusals"])
        lines.append(f'    "refusals": [\n{texts}\n    ]')
    objects = ",\n".join(
        f"     {json.dumps(name)}: [\n" + ",\n".join(f"      {json.dumps(state)}" for state in states) + "\n     ]"
        for name, states in step["objects"].items()
    )
    lines.append(f'    "objects": {{\n{objects}\n    }}' if objects else '    "objects": {}')
    return ",\n".join(lines) + "}"


def main() -> None:
    """Entry point of ``python -m devenv.recordharvester``."""
    parser = argparse.ArgumentParser(prog="python -m devenv.recordharvester", description="Record the real Harvester.")
    parser.add_argument("only", nargs="*", help="record only the scenarios whose name contains one of these texts")
    parser.add_argument("--missing", action="store_true", help="record only the scenarios without a recording")
    parser.add_argument("--check", action="store_true", help="only check the arguments and the machine")
    parser.add_argument("--times", action="store_true", help="measure times and rates, and play no scenario")
    parser.add_argument("--run", type=Path, help="one run in this network namespace, with the results in a directory")
    options = parser.parse_args()
    named = [scenario for scenario in SCENARIOS if any(text in scenario.name for text in options.only)]
    if options.only and not named:
        sys.exit(f"error: no scenario has a name with {' or '.join(options.only)}")
    try:
        version = version_with_tag(version_of(harvester_programs() / CONTROLLER))
    except DevenvError as error:
        sys.exit(f"error: {error}")
    chosen = [
        scenario
        for scenario in SCENARIOS
        if version.tag in scenario.tags
        and (not options.only or any(text in scenario.name for text in options.only))
        and not (options.missing and file_of(scenario, version).exists())
    ]
    if not chosen:
        sys.exit(f"error: no scenario of {version.tag} is to be recorded")
    try:
        require_root("make recordings")
        require_tools(NETWORK_TOOLS)
    except DevenvError as error:
        sys.exit(f"error: {error}")
    if options.check:
        return
    if options.run is not None:
        prepare_network()
        with logs_to(options.run / "player.log"):
            if options.times:
                asyncio.run(measure_all(options.run, options.run))
            else:
                asyncio.run(play_all([one for one in chosen if one.name in options.only], options.run, options.run))
        return
    with run_directory("record-harvester") as directory:
        if options.times:
            record_times(directory)
            return
        if differ := record(chosen, directory):
            sys.exit(f"error: {differ} scenarios are not recorded, or differ between two recordings without a reason")


if __name__ == "__main__":
    main()
