"""The reference page of all metrics, made from the catalogue. Pure."""

from __future__ import annotations

from harvester_ccm.model.outcome import WaitReason
from harvester_ccm.telemetry.catalogue import CATALOGUE, Group, Kind, Metric

_HEAD = """\
# Metrics

This page is made from the catalogue in `harvester_ccm/telemetry` by `python -m harvester_ccm.telemetry`.

`https://<node>:10258/metrics` serves them to callers with a bearer token that this cluster's API server accepts and
whose role grants `get` on the non-resource URL `/metrics`. Names without the prefix `harvester_ccm_` are those of the
Go framework for cloud controller managers. Values about load balancers and Services are shown by the process that holds
the Lease. Besides these there are the usual `process_` metrics.
"""
_REASONS_HEAD = """\
## Reasons

Values of the label `reason` of Services without an address. The name of an error, such as `forbidden` or `unreachable`,
means that a request for the Service keeps failing with it.

| Reason | The Service waits for |
| --- | --- |"""


def metrics_page() -> str:
    """Return the reference page of all metrics in Markdown."""
    sections = [_section(group) for group in Group]
    reasons = "\n".join([_REASONS_HEAD, *(f"| `{reason}` | {reason.meaning} |" for reason in WaitReason)])
    return "\n".join([_HEAD, *sections, reasons]) + "\n"


def _section(group: Group) -> str:
    rows = [_row(metric) for metric in CATALOGUE if metric.group is group]
    return (
        "\n".join([f"## {group}\n", "| Metric | Type | Labels | Meaning |", "| --- | --- | --- | --- |", *rows]) + "\n"
    )


def _row(metric: Metric) -> str:
    labels = ", ".join(f"`{label}`" for label in metric.labels) or "none"
    bounds = ", ".join(f"{bound:g}" for bound in metric.buckets)
    meaning = metric.help + (f" Buckets: {bounds}." if metric.kind is Kind.HISTOGRAM else "")
    return f"| `{metric.name}` | {metric.kind} | {labels} | {meaning.replace('<', '&lt;').replace('|', '&#124;')} |"
