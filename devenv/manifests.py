"""Static manifests for clusters without Helm, made from the chart.

``python -m devenv.manifests`` writes ``deploy/manifests/<profile>.yaml`` for every file of values in
``deploy/manifests/values``; with ``--check`` it writes nothing and fails when one is out of date.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import Any

import yaml

from devenv.helm import CHART, render_chart

MANIFESTS = CHART.parent.parent / "manifests"
CLUSTER_NAME = "CLUSTER-NAME"
"""Placeholder. Not a DNS label, so not the name of any cluster."""
IMAGE = "registry.example.org/harvester-ccm"
"""Placeholder for the name of the image in all examples and pages; the domain cannot be registered."""

_SECRET = "kubectl -n kube-system create secret generic cloud-config --from-file=cloud-config=FILE"  # noqa: S105
_HELM_LABELS = ("helm.sh/chart", "app.kubernetes.io/managed-by")

_STEPS = {
    "kubeadm": (
        "Start every kubelet with --cloud-provider=external (kubeletExtraArgs in the kubeadm configuration).",
        f"Make the Secret with the kubeconfig for Harvester: {_SECRET}",
    ),
    "k3s": (
        "Write the kubeconfig for Harvester to /etc/kubernetes/cloud-config on every node: the cloud-init section of",
        "generate_addon.sh does it. Run K3s with --disable-cloud-controller, --disable=servicelb and",
        "--kubelet-arg=cloud-provider=external.",
    ),
    "rke1": (
        "Set cloud_provider.name to external, and name this file's URL, or a copy, in addons_include.",
        f"Make the Secret with the kubeconfig for Harvester: {_SECRET}",
        "Where the add-on of the Go provider was, remove its Deployment first (its selector is another one):",
        "kubectl -n kube-system delete deployment harvester-cloud-provider",
    ),
    "talos": (
        "Set cluster.externalCloudProvider.enabled to true in the machine configuration; this file can be one of its",
        "manifests. KubePrism must be on, on its usual port 7445.",
        f"Make the Secret with the kubeconfig for Harvester: {_SECRET}",
    ),
}


def profiles() -> list[str]:
    """The names of the manifests, in order."""
    return sorted(file.stem for file in (MANIFESTS / "values").glob("*.yaml"))


def render_manifest(profile: str) -> str:
    """The text of one manifest. Raises DevenvError when the chart cannot be rendered with its values."""
    rendered = render_chart(values=[MANIFESTS / "values" / f"{profile}.yaml"], hooks=False)
    objects = [document for document in yaml.safe_load_all(rendered) if document]
    for document in objects:
        for label in _HELM_LABELS:
            document["metadata"].get("labels", {}).pop(label, None)
    head = [f"harvester-ccm and kube-vip for {profile}. Made from the chart by devenv.manifests: do not edit.", ""]
    head += _STEPS[profile]
    head += [
        "Set the name that the cluster has in Harvester, and the name of your image:",
        f"sed 's#{CLUSTER_NAME}#my-cluster#; s#{IMAGE}#IMAGE#' {profile}.yaml | kubectl apply -f -",
    ]
    comment = "".join(f"# {line}".rstrip() + "\n" for line in head)
    return comment + "".join(f"---\n{_dump(document)}" for document in objects)


def _dump(document: dict[str, Any]) -> str:
    text: str = yaml.safe_dump(document, sort_keys=False, width=120)
    return text


def _outdated() -> list[Path]:
    files = {MANIFESTS / f"{profile}.yaml": profile for profile in profiles()}
    return [file for file, name in files.items() if not file.exists() or file.read_text() != render_manifest(name)]


def main() -> int:
    """Entry point of ``python -m devenv.manifests``. Returns the exit code."""
    parser = argparse.ArgumentParser(prog="python -m devenv.manifests", description="Make the static manifests.")
    parser.add_argument("--check", action="store_true", help="write nothing, fail when one is out of date")
    check: bool = parser.parse_args().check
    for file in _outdated():
        if check:
            print(f"{file} is out of date: run python -m devenv.manifests", file=sys.stderr)
            return 1
        file.write_text(render_manifest(file.stem))
        print(f"wrote {file}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
