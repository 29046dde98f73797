"""Write docs/reference/annotations.md and events.md from the names in ``harvester_ccm/names.py`` and their texts.

``python scripts/generate_reference.py`` writes the pages; ``--check`` returns 1 if one of them differs.
"""

import ast
import inspect
import re
import sys
from collections.abc import Iterator
from enum import StrEnum
from itertools import groupby, pairwise
from pathlib import Path

from harvester_ccm import names

DIRECTORY = Path(__file__).parents[1] / "docs" / "reference"
KINDS = ("annotation", "label", "taint", "finalizer", "condition")
EVENTS_ON: dict[str, type[StrEnum]] = {"Services and the Lease": names.Reason, "Nodes": names.NodeReason}
TEXT = re.compile(
    rf"(?P<on>\w+) (?P<kind>{'|'.join(KINDS)}), (?P<source>set [^:.]*?)"
    r"(?:: (?P<value>.*?)(?: \(default: (?P<default>.*?)\))?)?\. (?P<meaning>.*)"
)
"""Text under a key."""


def annotations_page() -> str:
    """Return the page of annotations, labels, taints and finalizers."""
    lines = ["# Annotations and labels", "", "Generated from `harvester_ccm/names.py` by `make generate`."]
    entries = sorted(keys(), key=lambda key: (key[1]["on"] != "Service", key[1]["on"], KINDS.index(key[1]["kind"])))
    for thing, rows in groupby(entries, key=lambda key: key[1]["on"]):
        article = "an" if thing.startswith("E") else "a"
        lines += ["", f"## On {article} {thing}", "", "| Key | Value | Meaning |", "|---|---|---|"]
        lines += [_row(name, text) for name, text in rows]
    return "\n".join(lines) + "\n"


def events_page() -> str:
    """Return the page of Event reasons, by object and type."""
    lines = ["# Events", "", "Generated from `harvester_ccm/names.py` by `make generate`."]
    for things, catalogue in EVENTS_ON.items():
        for kind in ("Warning", "Normal"):
            lines += ["", f"## {kind} Events on {things}", "", "| Reason | Meaning |", "|---|---|"]
            lines += [f"| `{reason}` | {meaning} |" for reason, type_, meaning in reasons(catalogue) if type_ == kind]
    return "\n".join(lines) + "\n"


def keys() -> Iterator[tuple[str, dict[str, str]]]:
    """Yield every key with the parts of its text."""
    for constant, text in pairwise(ast.parse(inspect.getsource(names)).body):
        if isinstance(constant, ast.AnnAssign) and isinstance(text, ast.Expr) and isinstance(text.value, ast.Constant):
            found = TEXT.fullmatch(" ".join(str(text.value.value).split()))
            if found:
                yield vars(names)[ast.unparse(constant.target)], found.groupdict("")


def _row(name: str, text: dict[str, str]) -> str:
    default = f"<br>default: {text['default']}" if text["default"] else ""
    setter = text["source"].removeprefix("set ").removeprefix("and read ").removeprefix("by ").removeprefix("this ")
    return f"| `{name}`<br>{text['kind']}, {setter} | {text['value']}{default} | {text['meaning']} |"


def reasons(catalogue: type[StrEnum]) -> list[tuple[str, str, str]]:
    """Return (reason, Event type, meaning) of every member, from the text under it."""
    tree = ast.parse(inspect.getsource(catalogue))
    body = tree.body[0].body if isinstance(tree.body[0], ast.ClassDef) else []
    found = []
    for member, text in pairwise(body):
        if isinstance(member, ast.Assign) and isinstance(text, ast.Expr) and isinstance(text.value, ast.Constant):
            reason = catalogue[ast.unparse(member.targets[0])]
            kind, _, meaning = " ".join(str(text.value.value).split()).partition(": ")
            found.append((reason.value, kind, meaning))
    return found


def main() -> int:
    """Write or check the pages; return the exit code."""
    for name, page in {"annotations.md": annotations_page(), "events.md": events_page()}.items():
        path = DIRECTORY / name
        if "--check" not in sys.argv[1:]:
            path.write_text(page, encoding="utf-8")
        elif not path.exists() or path.read_text(encoding="utf-8") != page:
            return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
