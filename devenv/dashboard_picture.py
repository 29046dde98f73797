"""Draw docs/images/dashboard.svg from the dashboard of the chart: ``python -m devenv.dashboard_picture``.

The first three rows are drawn: rows, panels, titles, legends, units and colors come from the JSON of the dashboard. The
values are an example: 30 minutes in which 20 Services are created, one of them with an IP pool that does not exist, and
Harvester is unreachable for two minutes.
"""

import json
import math
from collections.abc import Callable, Mapping, Sequence
from html import escape
from pathlib import Path
from typing import Any, Final, NamedTuple

from devenv.helm import CHART
from harvester_ccm.names import Reason

PICTURE: Final = Path(__file__).parents[1] / "docs" / "images" / "dashboard.svg"
ROWS: Final = ("State", "Load balancers", "API servers")
WIDTH: Final = 960
COLUMNS: Final = 24
"""Columns of a dashboard."""
CELL: Final = WIDTH / COLUMNS
UNIT_HEIGHT: Final = 20
MINUTES: Final = 30
STEPS: Final = 120
GAP: Final = 3
COLORS: Final = ("#2f7d5b", "#3a6ea5", "#c07c1c", "#8a4f9e", "#b23b3b", "#5a7688")
STATUS_COLORS: Final = {"red": "#b23b3b", "orange": "#c07c1c", "green": "#2f7d5b"}
STYLE: Final = (
    ".h{font:600 14px system-ui,sans-serif;fill:#1b2733}.t{font:600 12.5px system-ui,sans-serif;fill:#33475b}"
    ".a{font:11px system-ui,sans-serif;fill:#5a6772}.v{font:600 21px system-ui,sans-serif}"
)
CREATED: Final = 6.0
"""Minute at which the Services are created."""
OUTAGE: Final = (18.0, 20.0)
"""Minutes in which Harvester is unreachable."""

Curve = Callable[[float], float]


class Series(NamedTuple):
    """An example for a query: the labels of one result, and its value at each minute."""

    labels: Mapping[str, str]
    at: Curve
    query: int = 0
    """Position of the query in the panel."""


def _during(since: float, until: float, value: float) -> Curve:
    return lambda minute: value if since <= minute < until else 0.0


def _after(since: float, value: float) -> Curve:
    return _during(since, math.inf, value)


def _rising(since: float, until: float = math.inf, factor: float = 60.0) -> Curve:
    return lambda minute: (minute - since) * factor if since <= minute < until else 0.0


def _both(*curves: Curve) -> Curve:
    return lambda minute: sum(curve(minute) for curve in curves)


NO_POOL: Final = {"reason": str(Reason.NO_MATCHING_POOL)}
UNAVAILABLE: Final = {"reason": str(Reason.HARVESTER_UNAVAILABLE)}
QUEUED: Final = {"reason": str(Reason.CREATION_QUEUED)}
STATS: Final[Mapping[str, float]] = {
    "Leader": 1,
    "Harvester": 1,
    "Credential": 1,
    "Credential expires in": 58 * 86400,
    "Pending Services": 1,
    "Longest wait": (MINUTES - CREATED) * 60,
}
"""The values at the end, by panel."""
GRAPHS: Final[Mapping[str, Sequence[Series]]] = {
    "Load balancers by state": (
        Series({"state": "ready", "workload_type": "cluster", "ipam": "pool"}, _both(_after(0, 12), _after(6.2, 19))),
        Series({"state": "pending", "workload_type": "cluster", "ipam": "pool"}, _after(CREATED, 1)),
    ),
    "Pending Services by reason": (
        Series(NO_POOL, _after(CREATED, 1)),
        Series(QUEUED, _during(CREATED, 6.3, 12)),
        Series(UNAVAILABLE, _during(*OUTAGE, 2)),
    ),
    "Longest wait, by reason": (
        Series(NO_POOL, _rising(CREATED)),
        Series(UNAVAILABLE, _rising(*OUTAGE)),
    ),
    "Time until a Service has its address": (
        Series({}, _during(CREATED, 11, 4), 0),
        Series({}, _during(CREATED, 11, 7.5), 1),
        Series({}, _during(CREATED, 11, 8), 2),
    ),
    "Updates of load balancers, by code": (
        Series({"code": "200"}, _during(CREATED, 7, 0.4)),
        Series({"code": "409"}, _during(CREATED, 6.6, 0.05)),
    ),
    "Orphans deleted": (Series({}, _during(12, 12.5, 1)),),
    "Requests by code": (
        Series({"host": "guest", "code": "200"}, _both(_after(0, 0.6), _during(CREATED, 7, 2))),
        Series({"host": "harvester", "code": "201"}, _during(CREATED, 6.6, 0.4)),
        Series({"host": "harvester", "code": "<error>"}, _during(*OUTAGE, 0.5)),
    ),
    "Requests by verb": (
        Series({"host": "guest", "method": "PUT"}, _after(0, 0.5)),
        Series({"host": "guest", "method": "PATCH"}, _during(CREATED, 7, 1.3)),
        Series({"host": "harvester", "method": "POST"}, _during(CREATED, 6.6, 0.4)),
    ),
    "Response time, 99 %": (
        Series({"host": "guest", "verb": "PATCH"}, _after(0, 0.02)),
        Series({"host": "harvester", "verb": "POST"}, _both(_after(0, 0.05), _during(CREATED, 11, 0.2))),
    ),
    "Time since the last response from Harvester": (
        Series({"instance": "10.0.0.11:10258"}, _both(_after(0, 5), _rising(*OUTAGE))),
    ),
    "Watches started": (
        Series({"host": "guest"}, _after(0, 2)),
        Series({"host": "harvester"}, _both(_after(0, 2), _after(20, 3))),
    ),
}
"""Examples of every graph, by panel."""


def drawn_panels() -> list[tuple[str, list[dict[str, Any]]]]:
    """Return the rows that are drawn, with their panels."""
    dashboard = json.loads((CHART / "files" / "dashboard.json").read_text(encoding="utf-8"))
    rows: list[tuple[str, list[dict[str, Any]]]] = []
    for panel in dashboard["panels"]:
        if panel["type"] == "row":
            rows.append((panel["title"], []))
        else:
            rows[-1][1].append(panel)
    return [row for row in rows if row[0] in ROWS]


def picture() -> str:
    """Return the picture as SVG."""
    parts: list[str] = []
    bottom = 0.0
    for title, panels in drawn_panels():
        first = min(panel["gridPos"]["y"] for panel in panels)
        bottom += 30
        parts.append(f'<text x="6" y="{bottom - 9:g}" class="h">{escape(title)}</text>')
        for panel in panels:
            place = panel["gridPos"]
            x, y = place["x"] * CELL + GAP, bottom + (place["y"] - first) * UNIT_HEIGHT
            width, height = place["w"] * CELL - 2 * GAP, place["h"] * UNIT_HEIGHT - 2 * GAP
            parts.append(_panel(panel, x, y, width, height))
        bottom += max((panel["gridPos"]["y"] - first + panel["gridPos"]["h"]) * UNIT_HEIGHT for panel in panels)
    height = bottom + 6
    description = "Panels of the dashboard: state, load balancers and API servers, with example values."
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height:g}" role="img" '
        f'aria-labelledby="title desc"><title id="title">The dashboard</title><desc id="desc">{description}</desc>'
        f'<style>{STYLE}</style><rect width="{WIDTH}" height="{height:g}" rx="6" fill="#f1f4f6"/>'
        f"{''.join(parts)}</svg>\n"
    )


def _panel(panel: dict[str, Any], x: float, y: float, width: float, height: float) -> str:
    frame = (
        f'<rect x="{x:g}" y="{y:g}" width="{width:g}" height="{height:g}" rx="4" fill="#fff" stroke="#ccd3d9"/>'
        f'<text x="{x + 9:g}" y="{y + 18:g}" class="t">{escape(_fitted(panel["title"], width - 14, 6.5))}</text>'
    )
    if panel["type"] == "stat":
        return frame + _stat(panel, x + width / 2, y + height - 20)
    return frame + _graph(panel, x, y, width, height)


def _stat(panel: dict[str, Any], center: float, baseline: float) -> str:
    defaults, value = panel["fieldConfig"]["defaults"], STATS[panel["title"]]
    text = shown(value, defaults["unit"])
    for mapping in defaults.get("mappings", ()):
        text = mapping["options"].get(f"{value:g}", {"text": text})["text"]
    color = "green"
    for step in defaults["thresholds"]["steps"]:
        if step["value"] is None or value >= step["value"]:
            color = step["color"]
    style = f'style="fill:{STATUS_COLORS[color]}"'
    return f'<text x="{center:g}" y="{baseline:g}" text-anchor="middle" class="v" {style}>{escape(text)}</text>'


def _graph(panel: dict[str, Any], x: float, y: float, width: float, height: float) -> str:
    series = GRAPHS[panel["title"]]
    unit = panel["fieldConfig"]["defaults"]["unit"]
    left, right, top, bottom = x + 44, x + width - 10, y + 30, y + height - 30
    minutes = [step * MINUTES / STEPS for step in range(STEPS + 1)]
    highest = max((entry.at(minute) for entry in series for minute in minutes), default=0.0) * 1.1 or 1.0
    parts = []
    for fraction in (0.0, 0.5, 1.0):
        level = bottom - fraction * (bottom - top)
        parts.append(f'<path d="M{left:g} {level:g}H{right:g}" stroke="#e3e8eb"/>')
        label = escape(shown(highest * fraction, unit))
        parts.append(f'<text x="{left - 5:g}" y="{level + 4:g}" text-anchor="end" class="a">{label}</text>')
    offset = left
    for entry, color in zip(series, COLORS, strict=False):
        points = " ".join(
            f"{left + minute / MINUTES * (right - left):.1f},{bottom - entry.at(minute) / highest * (bottom - top):.1f}"
            for minute in minutes
        )
        parts.append(f'<polyline points="{points}" fill="none" stroke="{color}" stroke-width="1.6"/>')
        name = legend(panel, entry)
        if offset + 14 + len(name) * 5.6 > x + width:
            continue
        parts.append(f'<path d="M{offset:g} {y + height - 13:g}h10" stroke="{color}" stroke-width="3"/>')
        parts.append(f'<text x="{offset + 14:g}" y="{y + height - 9:g}" class="a">{escape(name)}</text>')
        offset += 24 + len(name) * 5.8
    return "".join(parts)


def legend(panel: dict[str, Any], series: Series) -> str:
    """Return the legend of a series by the format of its query. Raises KeyError for a label without an example."""
    text: str = panel["targets"][series.query]["legendFormat"]
    before, mark, rest = text.partition("{{")
    while mark:
        name, _, behind = rest.partition("}}")
        before += series.labels[name]
        literal, mark, rest = behind.partition("{{")
        before += literal
    return before


def shown(value: float, unit: str) -> str:
    """Return a value as Grafana shows it with a unit."""
    if unit != "s":
        return f"{value:.2g}"
    for seconds, name in ((86400, "days"), (3600, "h"), (60, "min")):
        if value >= seconds * 1.5:
            return f"{value / seconds:.0f} {name}"
    return f"{value:.2g} s" if value else "0 s"


def _fitted(text: str, width: float, letter: float) -> str:
    most = int(width / letter)
    return text if len(text) <= most else f"{text[: most - 1]}…"


if __name__ == "__main__":
    PICTURE.write_text(picture(), encoding="utf-8")
