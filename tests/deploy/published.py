"""Charts like those that were published for the Go provider: one for each generation."""

import shutil
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

import yaml

_HERE: Final = Path(__file__).parent
_OLD_ENV: Final = {"enable_service_security": "true", "vip_cidr": "32"}
_NEW_ENV: Final = {"prometheus_server": ":2112", "svc_election": "false", "vip_subnet": "32"}
_SWITCHES: Final = ("host_network", "configmaps", "node_deletion")


@dataclass(frozen=True)
class Generation:
    """The differences of a published chart, and its successors up to the next generation."""

    chart: str
    """The first version in RKE2's catalogue."""
    program: str
    """The tag of the Go provider that it runs."""
    tag_in_values: bool = True
    """Whether ``image.tag`` was a value; later it is the chart's appVersion."""
    host_network: bool = True
    """If so, the chart has one replica instead of two, and ``--cluster-name``."""
    kube_vip: str = ""
    """The tag of kube-vip; empty if the chart does not contain it."""
    env: dict[str, str] = field(default_factory=dict)
    configmaps: bool = False
    node_deletion: bool = False


GENERATIONS: Final = (
    Generation("0.1.200", "v0.1.1", host_network=False),
    Generation("0.1.1400", "v0.1.5"),
    Generation("0.2.100", "v0.2.0", kube_vip="v0.6.0", env=_OLD_ENV),
    Generation("0.2.700", "v0.2.4", kube_vip="v0.8.7", env={**_OLD_ENV, "svc_election": "false"}),
    Generation("0.2.1100", "v0.2.5", kube_vip="v0.9.2", env={**_OLD_ENV, **_NEW_ENV}),
    Generation("0.2.1300", "v0.2.6", kube_vip="v1.1.2", env=_NEW_ENV, configmaps=True),
    Generation("0.2.1500", "v0.2.8", tag_in_values=False, kube_vip="v1.2.3", env=_NEW_ENV, configmaps=True),
    Generation(
        "0.2.1600",
        "v0.2.9",
        tag_in_values=False,
        kube_vip="v1.2.4",
        env=_NEW_ENV,
        configmaps=True,
        node_deletion=True,
    ),
)
NEWEST: Final = GENERATIONS[-1]
SAME_KUBE_VIP: Final = GENERATIONS[-2]
"""The published chart whose kube-vip has the version and the settings of this chart."""


def write_published_chart(directory: Path, generation: Generation = NEWEST) -> Path:
    """Write a chart like the published one: the same object names, selectors, labels, values and pod templates.

    It becomes a chart only here: Rancher would offer one in the repository as a version of this chart.
    """
    chart = directory / f"published-{generation.chart}"
    shutil.copytree(_HERE / "published_chart", chart)
    about = {
        "apiVersion": "v2",
        "name": "harvester-cloud-provider",
        "version": generation.chart,
        "appVersion": generation.program,
        # Read by the templates. No values, because those stay with an upgrade that reuses them.
        "annotations": {name: "yes" for name in _SWITCHES if getattr(generation, name)},
    }
    image = {"repository": "rancher/harvester-cloud-provider", "pullPolicy": "IfNotPresent"}
    values: dict[str, object] = {
        "replicasCount": 1 if generation.host_network else 2,
        "image": image | ({"tag": generation.program} if generation.tag_in_values else {}),
        "cloudConfigPath": "/var/lib/rancher/rke2/etc/config-files/cloud-provider-config",
        "extraArgs": [],
        "global": {"cattle": {"systemDefaultRegistry": "", "clusterName": ""}},
    }
    if generation.kube_vip:
        values["kube-vip"] = {
            "enabled": True,
            "image": {"repository": "rancher/mirrored-kube-vip-kube-vip-iptables", "tag": generation.kube_vip},
            "env": generation.env,
        }
    (chart / "Chart.yaml").write_text(yaml.safe_dump(about))
    (chart / "values.yaml").write_text(yaml.safe_dump(values))
    return chart
