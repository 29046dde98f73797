"""Prints the reference page of all metrics: ``python -m harvester_ccm.telemetry > docs/reference/metrics.md``."""

from __future__ import annotations

import sys

from harvester_ccm.telemetry.page import metrics_page

sys.stdout.write(metrics_page())
