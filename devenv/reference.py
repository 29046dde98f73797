"""Generate the reference pages of flags, metrics and permissions, and the chart's list of flags, from the code.

``python -m devenv.reference`` writes them.
"""

from itertools import groupby
from pathlib import Path
from typing import Final, NamedTuple

from prometheus_client import CollectorRegistry
from prometheus_client.metrics import MetricWrapperBase

from harvester_ccm.commands.clusters import GUEST, HARVESTER
from harvester_ccm.commands.preflight import Permission, permissions_of
from harvester_ccm.config import Settings
from harvester_ccm.flags import FLAGS, Flag, Group, build_settings, parse_command_line
from harvester_ccm.names import Reason
from harvester_ccm.telemetry.metrics import Metrics, ReadMetric

ROOT: Final = Path(__file__).parents[1]
DIRECTORY: Final = ROOT / "docs" / "reference"
CHART_FLAGS: Final = ROOT / "deploy" / "charts" / "harvester-cloud-provider" / "files" / "flags.txt"
"""The flags that the chart accepts in ``extraArgs``."""

_FLAGS_HEAD = """\
# Flags

Generated from `harvester_ccm/flags` by `make generate`.

Flags have the form `--flag=value` or `--flag value`. A `bool` flag without a value is true. Durations have the form
`1h2m3.5s`, lists are comma-separated. If a flag is repeated, the last value counts; lists are appended. All errors are
printed, and the exit code is 1. It is 255 if the file of `--cloud-config` cannot be used.
"""
_METRICS_HEAD = """\
# Metrics

Generated from `harvester_ccm/telemetry/metrics.py` by `make generate`.

`https://<node>:10258/metrics` requires a bearer token whose role grants `get` on the non-resource URL `/metrics`. Names
without the prefix `harvester_ccm_` are those of the Go framework. Only the leader reports load balancers and Services.
"""
_REASONS_HEAD = """\
## Reasons

Values of the label `reason` for Services; the condition and the Event have the same reason. An error, such as
`Forbidden`, is also a value if a request for the Service repeatedly fails. For Nodes, the label is the reason of an
Event, such as `VMNotFound`.

| Reason | The Service waits for |
| --- | --- |"""

_RBAC_HEAD = """\
# Permissions

Generated from `harvester_ccm/commands/preflight.py` by `make generate`.

The controller uses these permissions with its default flags. Verbs in bold are required. `preflight` verifies each verb
and prints the effect if it is missing. In Harvester, they apply to the namespace of the cloud-config. Without `watch`,
the controller lists every minute.
"""


def flags_page() -> str:
    """Return the reference page of all flags in Markdown."""
    return "\n".join([_FLAGS_HEAD, *(_flags_section(group) for group in Group)]).rstrip() + "\n"


def _flags_section(group: Group) -> str:
    flags = [flag for flag in FLAGS if flag.group is group]
    if group is Group.ACCEPTED:
        head = (
            "These flags of the Go provider are accepted. If a value differs from the default, the controller logs a "
            "warning."
        )
        reasons = {flag.meaning: [one for one in flags if one.meaning == flag.meaning] for flag in flags}
        table = ["| Flags and their defaults | Reason |", "| --- | --- |"]
        rows = [
            f"| {' '.join(f'`--{flag.name}={flag.default}`' for flag in same)} | {reason} |"
            for reason, same in reasons.items()
        ]
        return "\n".join([f"## {group}\n", f"{head}\n", *table, *rows, ""])
    table = ["| Flag | Default | Meaning |", "| --- | --- | --- |"]
    return "\n".join([f"## {group}\n", *table, *map(_flag_row, flags), ""])


def _flag_row(flag: Flag) -> str:
    names = f"`-{flag.shorthand}`, `--{flag.name}`" if flag.shorthand else f"`--{flag.name}`"
    default = f"`{flag.default}`" if flag.default else flag.kind.name
    meaning = flag.meaning.replace("|", "&#124;").replace("*", "\\*")
    return f"| {names} | {default} | {meaning} |"


def chart_flags() -> str:
    """Return all flags with their dashes, one per line."""
    names = [f"--{flag.name}" for flag in FLAGS]
    shorthands = [f"-{flag.shorthand}" for flag in FLAGS if flag.shorthand]
    return "\n".join(sorted([*names, *shorthands])) + "\n"


class DescribedMetric(NamedTuple):
    """The fields of a metric on the reference page."""

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
        if isinstance(metric, ReadMetric):
            found.append(DescribedMetric(metric.name, metric.type, metric.help, metric.labels, ()))
            continue
        if not isinstance(metric, MetricWrapperBase):
            continue
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
    reasons = (f"| `{reason}` | {reason.meaning} |" for reason in Reason if reason.meaning)
    return "\n".join([_METRICS_HEAD, *table, "", _REASONS_HEAD, *reasons]) + "\n"


def _metric_row(metric: DescribedMetric) -> str:
    labels = ", ".join(f"`{label}`" for label in metric.labels) or "none"
    bounds = ", ".join(f"{bound:g}" for bound in metric.buckets)
    meaning = metric.help + (f" Buckets: {bounds}." if bounds else "")
    return f"| `{metric.name}` | {metric.type} | {labels} | {meaning.replace('<', '&lt;').replace('|', '&#124;')} |"


def rbac_page() -> str:
    """Return the reference page of all permissions in Markdown."""
    settings = build_settings(parse_command_line(["--cloud-config=x", "--cluster-name=demo"]), {})
    lines = [_RBAC_HEAD]
    for cluster in (HARVESTER, GUEST):
        table = ["| Resource | Verbs | Effect if a verb is missing |", "| --- | --- | --- |"]
        lines += [f"## {'Harvester' if cluster == HARVESTER else 'Guest cluster'}", "", *table]
        for title, permissions in groupby(permissions_of(cluster, settings), key=lambda one: one.title):
            lines.append(_rbac_row(title, [*permissions], settings))
        lines.append("")
    return "\n".join(lines).rstrip() + "\n"


def _rbac_row(title: str, permissions: list[Permission], settings: Settings) -> str:
    group = permissions[0].resource.group
    name = next((f" `{one.name(settings)[1]}`" for one in permissions if one.name(settings)[1]), "")
    verbs = ", ".join(f"**{one.verb}**" if one.required else one.verb for one in permissions)
    # The text above the tables explains watch.
    effects = "; ".join(dict.fromkeys(one.effect for one in permissions if one.verb != "watch"))
    return f"| `{title}`{f' ({group})' if group else ''}{name} | {verbs} | {effects} |"


def write_pages() -> None:
    """Write all pages, and the list of flags for the chart."""
    pages = {"flags.md": flags_page(), "metrics.md": metrics_page(), "rbac.md": rbac_page()}
    for name, page in pages.items():
        (DIRECTORY / name).write_text(page, encoding="utf-8")
    CHART_FLAGS.write_text(chart_flags(), encoding="utf-8")


if __name__ == "__main__":
    write_pages()
