"""Targets of the Makefile report a mistake in one line that helps, before they build or wait."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

CHECKOUT = Path(__file__).parents[2]
HELP = {
    "acceptance": "Set GUEST and HARVESTER to the kubeconfigs of both clusters.",
    "acceptance GUEST=/nonexistent HARVESTER=/nonexistent": "error: GUEST=/nonexistent names no kubeconfig: ",
    "alerts PROMTOOL=nonexistent": "nonexistent is missing: install it, or say PROMTOOL=where-it-is",
    "bench NODES=many": "error: argument --nodes: invalid int value: 'many'",
    "bench-hostile PARTS=none": "error: no part has the name none; the parts are functions, ",
    "e2e-cluster SPECS=[": "error: SPECS=[ is no regular expression: ",
    "e2e-harvester": "error: set HARVESTER_BIN=DIRECTORY, with Harvester's executables lb-controller and lb-webhook",
    "e2e-harvester HARVESTER_BIN=/ SCENES=none": "error: no scene has the name none; the scenes are hundred, ",
    "e2e-harvester HARVESTER_BIN=/": "error: set HARVESTER_BIN=DIRECTORY, ",
    "image ENGINE=nonexistent": "nonexistent is missing: install it, or set ENGINE to one of docker, podman, buildah",
    "image ENGINE=false": "'false info' fails: start the engine, or set ENGINE to one of docker, podman, buildah",
    "image-base ENGINE=nonexistent": "nonexistent is missing: install it, or set ENGINE to one of docker, ",
    "recordings": "error: set HARVESTER_BIN=DIRECTORY, ",
    "recordings ONLY=none HARVESTER_BIN=/": "error: no scenario has a name with none",
    "test-kubernetes KUBERNETES=v1": "error: argument version: invalid choice: 'v1' (choose from ",
}
"""Arguments of make, and the line that it prints before its own."""


@pytest.mark.parametrize("arguments", HELP)
def test_mistake_is_reported_in_one_line_before_anything_is_built(arguments: str, tmp_path: Path) -> None:
    ready = f"{sys.prefix}/.ready"
    environment = {**os.environ, "HARVESTER_CCM_CACHE": str(tmp_path / "cache"), "MAKEFLAGS": ""}
    for name in ("HARVESTER_BIN", "ENGINE", "GUEST", "HARVESTER", "MAKELEVEL"):
        environment.pop(name, None)
    make = ("make", "--no-print-directory", "-o", ready, f"VENV={sys.prefix}", *arguments.split())

    run = subprocess.run(make, cwd=CHECKOUT, env=environment, check=False, capture_output=True, text=True)

    assert run.returncode == 2
    *_, line, of_make = run.stderr.splitlines()
    assert HELP[arguments] in line
    assert of_make.startswith("make: ***")
    assert "Traceback" not in run.stderr
    assert not (tmp_path / "cache").exists()
