"""Write docs/reference/annotations.md from the catalogue in ``harvester_ccm/names.py``.

``python scripts/generate_reference.py`` writes the page, ``--check`` only says whether it is as it should be.
"""

from __future__ import annotations

import ast
import inspect
import sys
from enum import StrEnum
from itertools import groupby, pairwise
from pathlib import Path

from harvester_ccm import names

SOURCES = f"`{names.__name__.replace('.', '/')}.py`"
"""The catalogue is complete when both are imported."""
PAGE = Path(__file__).parents[1] / "docs" / "reference" / "annotations.md"
KIND_ORDER = ("annotation", "label", "taint", "finalizer", "condition")
EVENTS_ON: dict[str, type[StrEnum]] = {"Services and the Lease": names.Reason, "Nodes": names.NodeReason}


def annotations_page() -> str:
    """Return the whole page."""
    lines = [
        "# Annotations, labels, taints, finalizers, Event reasons",
        "",
        f"Made from {SOURCES} by `make generate`; changes go there.",
    ]
    for thing, entries in groupby(sorted(names.CATALOGUE, key=_order), key=lambda key: key.on):
        article = "an" if thing.startswith("E") else "a"
        lines += ["", f"## On {article} {thing}", "", "| Key | Value | Meaning |", "|---|---|---|"]
        lines += [_row(key) for key in entries]
    for things, catalogue in EVENTS_ON.items():
        lines += ["", f"## Events on {things}", "", "| Reason | Type | Meaning |", "|---|---|---|"]
        lines += [f"| `{reason}` | {kind} | {meaning} |" for reason, kind, meaning in reasons(catalogue)]
    return "\n".join(lines) + "\n"


def _order(key: names.Key) -> tuple[bool, str, int]:
    return (key.on != "Service", key.on, KIND_ORDER.index(key.kind))


def _row(key: names.Key) -> str:
    others = "users" if key.on == "Service" else "others"
    sources = {"read": f"set by {others}", "written": "set by this program", "both": "set and read by this program"}
    source = f"set by {key.writer}" if key.writer else sources[key.direction]
    default = f"<br>default: `{key.default.strip('`')}`" if key.default else ""
    return f"| `{key.name}`<br>{key.kind}, {source} | {key.value}{default} | {key.meaning} |"


def reasons(catalogue: type[StrEnum]) -> list[tuple[str, str, str]]:
    """Return (reason, Event type, meaning) of every member, from the text under it."""
    tree = ast.parse(inspect.getsource(catalogue))
    body = tree.body[0].body if isinstance(tree.body[0], ast.ClassDef) else []
    found = []
    for member, text in pairwise(body):
        if isinstance(member, ast.Assign) and isinstance(text, ast.Expr) and isinstance(text.value, ast.Constant):
            value = member.value.value if isinstance(member.value, ast.Constant) else ""
            kind, _, meaning = " ".join(str(text.value.value).split()).partition(": ")
            found.append((str(value), kind, meaning))
    return found


def main() -> int:
    """Write or check the page; return the exit code."""
    page = annotations_page()
    if "--check" in sys.argv[1:]:
        return 0 if PAGE.exists() and PAGE.read_text(encoding="utf-8") == page else 1
    PAGE.write_text(page, encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
