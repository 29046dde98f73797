"""Credential plugins that are shell scripts."""

import json
from pathlib import Path
from typing import Final

from harvester_ccm.kube.tokens import ExecToken, Plugin

API_VERSION: Final = "client.authentication.k8s.io/v1"


def printing(status: object) -> str:
    """Return a script that prints an ExecCredential."""
    document = {"apiVersion": API_VERSION, "kind": "ExecCredential", "status": status}
    return f"cat <<'END'\n{json.dumps(document)}\nEND"


def running(command: str, tmp_path: Path) -> ExecToken:
    """Return the tokens of a plugin that is a shell script."""
    plugin = Plugin(API_VERSION, "sh", ["-c", command])
    return ExecToken(tmp_path / "kubeconfig", plugin, {}, None)
