"""What stands for the chart of the Go provider, as it is published."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Final

import yaml

_HERE: Final = Path(__file__).parent
_CHART: Final = {"apiVersion": "v2", "name": "harvester-cloud-provider", "version": "0.2.15", "appVersion": "v0.2.8"}


def write_published_chart(directory: Path) -> Path:
    """Write a chart like the published 0.2.15: the same object names, selectors, labels and pod templates.

    It becomes a chart only here: Rancher would offer one in the repository as a version of this chart.
    """
    chart = directory / "published_chart"
    shutil.copytree(_HERE / "published_chart", chart)
    (chart / "Chart.yaml").write_text(yaml.safe_dump(_CHART))
    return chart
