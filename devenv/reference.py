"""The reference pages of flags and metrics, made from the tables in the program: ``python -m devenv.reference``."""

from __future__ import annotations

from pathlib import Path
from typing import Final

from harvester_ccm.flags import Flag, Group
from harvester_ccm.flags.help import ACCEPTED_NOTE, capital, of_group
from harvester_ccm.model.outcome import WaitReason
from harvester_ccm.telemetry.catalogue import CATALOGUE, Metric, MetricGroup, MetricType

DIRECTORY: Final = Path(__file__).parents[1] / "docs" / "reference"

_FLAGS_HEAD = """\
# Flags

This page is made from the table in `harvester_ccm/flags` by `make generate`.

Values are written as for the Go provider: `--flag=value` or `--flag value`, a bare boolean flag means true, durations
are like `1h2m3.5s`, lists are comma separated and grow with each occurrence. The last occurrence of any other flag
counts. All problems are reported together, one on a line, and the exit code is 1; it is 255 when the file of
`--cloud-config` cannot be used.
"""
_METRICS_HEAD = """\
# Metrics

This page is made from the catalogue in `harvester_ccm/telemetry` by `make generate`.

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


def flags_page() -> str:
    """Return the reference page of all flags in Markdown."""
    return "\n".join([_FLAGS_HEAD, *(_flags_section(group) for group in Group)]).rstrip() + "\n"


def _flags_section(group: Group) -> str:
    if group is Group.ACCEPTED:
        head = f"## {group}\n\n{ACCEPTED_NOTE} Setting one to another value than its default is reported once at start."
        table = "| Flag | Kind | Default | Why it has no effect |"
    else:
        head, table = f"## {group}", "| Flag | Kind | Default | Meaning |"
    rows = [_flag_row(flag) for flag in of_group(group)]
    return "\n".join([f"{head}\n", table, "| --- | --- | --- | --- |", *rows, ""])


def _flag_row(flag: Flag) -> str:
    names = f"`-{flag.shorthand}`, `--{flag.name}`" if flag.shorthand else f"`--{flag.name}`"
    default = f"`{flag.default}`" if flag.default else "empty"
    meaning = flag.meaning if flag.effect is None else f"{capital(flag.effect)}."
    return f"| {names} | {flag.kind} | {default} | {meaning.replace('|', '&#124;').replace('*', chr(92) + '*')} |"


def metrics_page() -> str:
    """Return the reference page of all metrics in Markdown."""
    sections = [_metrics_section(group) for group in MetricGroup]
    reasons = "\n".join([_REASONS_HEAD, *(f"| `{reason}` | {reason.meaning} |" for reason in WaitReason)])
    return "\n".join([_METRICS_HEAD, *sections, reasons]) + "\n"


def _metrics_section(group: MetricGroup) -> str:
    rows = [_metric_row(metric) for metric in CATALOGUE if metric.group is group]
    return (
        "\n".join([f"## {group}\n", "| Metric | Type | Labels | Meaning |", "| --- | --- | --- | --- |", *rows]) + "\n"
    )


def _metric_row(metric: Metric) -> str:
    labels = ", ".join(f"`{label}`" for label in metric.labels) or "none"
    bounds = ", ".join(f"{bound:g}" for bound in metric.buckets)
    meaning = metric.help + (f" Buckets: {bounds}." if metric.type is MetricType.HISTOGRAM else "")
    return f"| `{metric.name}` | {metric.type} | {labels} | {meaning.replace('<', '&lt;').replace('|', '&#124;')} |"


def write_pages() -> None:
    """Write both pages where they belong."""
    for name, page in (("flags.md", flags_page()), ("metrics.md", metrics_page())):
        (DIRECTORY / name).write_text(page, encoding="utf-8")


if __name__ == "__main__":
    write_pages()
