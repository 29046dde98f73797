"""Generate static manifests for clusters without Helm from the chart.

``python -m devenv.manifests`` writes ``deploy/manifests/<profile>.yaml`` for each file in ``deploy/manifests/values``.
"""

import yaml

from devenv.helm import CHART, render_chart

MANIFESTS = CHART.parent.parent / "manifests"
CLUSTER_NAME = "CLUSTER-NAME"
"""Placeholder. Not a DNS label, so not the name of any cluster."""
_VALID_NAME = "cluster-name"
"""What the chart is rendered with, because it rejects the placeholder."""
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
    values = MANIFESTS / "values" / f"{profile}.yaml"
    name = f"global.cattle.clusterName={_VALID_NAME}"
    rendered = render_chart(values=[values], settings=[name], hooks=False)
    rendered = rendered.replace(f"--cluster-name={_VALID_NAME}", f"--cluster-name={CLUSTER_NAME}")
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
    return comment + "".join(f"---\n{yaml.safe_dump(document, sort_keys=False, width=120)}" for document in objects)


def main() -> None:
    """Entry point of ``python -m devenv.manifests``."""
    for profile in profiles():
        (MANIFESTS / f"{profile}.yaml").write_text(render_manifest(profile))


if __name__ == "__main__":
    main()
