"""The reference pages of flags and metrics, made from the tables in the program: ``python -m devenv.reference``."""

from __future__ import annotations

from pathlib import Path
from typing import Final, NamedTuple

from prometheus_client import CollectorRegistry

from harvester_ccm.flags import FLAGS, Flag, Group
from harvester_ccm.model.outcome import WaitReason
from harvester_ccm.telemetry.metrics import Metrics

DIRECTORY: Final = Path(__file__).parents[1] / "docs" / "reference"

_FLAGS_HEAD = """\
# Flags

This page is made from the table in `harvester_ccm/flags` by `make generate`.

Flags have the form of the Go provider: `--flag=value` or `--flag value`; a `bool` flag without a value means true, and
another value follows `=`. Durations look like `1h2m3.5s`. Lists are comma-separated, and a repeated flag appends to
them; for the other flags, the last value counts. Names cannot be abbreviated. All errors are printed together, one in a
line, and the exit code is 1. It is 255 if the file of `--cloud-config` cannot be used.
"""
_METRICS_HEAD = """\
# Metrics

This page is made from `harvester_ccm/telemetry/metrics.py` by `make generate`.

`https://<node>:10258/metrics` serves them to callers with a bearer token that this cluster's API server accepts and
whose role grants `get` on the non-resource URL `/metrics`. Names without the prefix `harvester_ccm_` are those of the
Go framework for cloud controller managers. Values about load balancers and Services are shown by the process that holds
the Lease. Besides these there are the usual `process_` metrics.
"""
_REASONS_HEAD = """\
## Reasons

Values of the label `reason` of Services that wait. The name of an error, such as `forbidden` or `unreachable`, means
that a request for the Service keeps failing with it. For Nodes, the label is the reason of an Event, such as
`vm_not_found`.

| Reason | The Service waits for |
| --- | --- |"""


def flags_page() -> str:
    """Return the reference page of all flags in Markdown."""
    return "\n".join([_FLAGS_HEAD, *(_flags_section(group) for group in Group)]).rstrip() + "\n"


def _flags_section(group: Group) -> str:
    flags = [flag for flag in FLAGS if flag.group is group]
    if group is Group.ACCEPTED:
        head = (
            "These flags of the Go provider are accepted, so that its command lines keep working. If a value differs "
            "from the\ndefault, the controller logs a warning at start."
        )
        reasons = {flag.meaning: [one for one in flags if one.meaning == flag.meaning] for flag in flags}
        table = ["| Flags and their defaults | Reason |", "| --- | --- |"]
        rows = [
            f"| {' '.join(f'`--{flag.name}={flag.default}`' for flag in same)} | {reason} |"
            for reason, same in reasons.items()
        ]
        return "\n".join([f"## {group}\n", f"{head}\n", *table, *rows, ""])
    table = ["| Flag | Type | Default | Meaning |", "| --- | --- | --- | --- |"]
    return "\n".join([f"## {group}\n", *table, *map(_flag_row, flags), ""])


def _flag_row(flag: Flag) -> str:
    names = f"`-{flag.shorthand}`, `--{flag.name}`" if flag.shorthand else f"`--{flag.name}`"
    default = f"`{flag.default}`" if flag.default else "empty"
    meaning = flag.meaning.replace("|", "&#124;").replace("*", "\\*")
    return f"| {names} | {flag.kind.name} | {default} | {meaning} |"


class DescribedMetric(NamedTuple):
    """What a scrape and the reference page show of a metric."""

    name: str
    type: str
    help: str
    labels: tuple[str, ...]
    buckets: tuple[float, ...]
    """Upper bounds; empty unless it is a histogram."""


def described_metrics() -> list[DescribedMetric]:
    """Return all metrics but those of the process collector, in the order of their definition."""
    found = []
    for metric in vars(Metrics(CollectorRegistry())).values():
        (family,) = metric.describe()
        name = family.name + "_total" * (family.type == "counter")
        buckets = tuple(metric._kwargs.get("buckets", ())) if family.type == "histogram" else ()  # noqa: SLF001
        found.append(DescribedMetric(name, family.type, family.documentation, metric._labelnames, buckets))  # noqa: SLF001
    return found


def metrics_page() -> str:
    """Return the reference page of all metrics in Markdown."""
    table = [
        "| Metric | Type | Labels | Meaning |",
        "| --- | --- | --- | --- |",
        *map(_metric_row, described_metrics()),
    ]
    reasons = (f"| `{reason}` | {reason.meaning} |" for reason in WaitReason)
    return "\n".join([_METRICS_HEAD, *table, "", _REASONS_HEAD, *reasons]) + "\n"


def _metric_row(metric: DescribedMetric) -> str:
    labels = ", ".join(f"`{label}`" for label in metric.labels) or "none"
    bounds = ", ".join(f"{bound:g}" for bound in metric.buckets)
    meaning = metric.help + (f" Buckets: {bounds}." if bounds else "")
    return f"| `{metric.name}` | {metric.type} | {labels} | {meaning.replace('<', '&lt;').replace('|', '&#124;')} |"


def write_pages() -> None:
    """Write both pages where they belong."""
    for name, page in (("flags.md", flags_page()), ("metrics.md", metrics_page())):
        (DIRECTORY / name).write_text(page, encoding="utf-8")


if __name__ == "__main__":
    write_pages()
