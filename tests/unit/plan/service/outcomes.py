"""What must follow in each row of a table: data beside the tests, in ``outcomes/``, one file for each table.

A row has the name of a situation, and below it what follows. For a world, that is the plan: phase and verdict, then the
write and the write after it. Every changed line of these files has to be reviewed.
"""

import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from harvester_ccm.names import PREFIX
from tests.unit.plan.service.snapshots import Plan, World, outline

_FILES: Final = Path(__file__).with_name("outcomes")
_INDENT: Final = "    "
_RENEW: Final = "HARVESTER_CCM_RENEW_SNAPSHOTS"
_HINT: Final = f"If the new plans are right: {_RENEW}=1 .venv/bin/python -m pytest -q tests/unit/plan/service"


def differences(table: str, worlds: Mapping[str, World]) -> list[str]:
    """Return the rows of a table of worlds whose plan is not the one in its file."""
    return differing(table, {name: description(outline(world)) for name, world in worlds.items()})


def differing(table: str, rows: Mapping[str, str]) -> list[str]:
    """Return the rows of a table that are not as in its file, with both texts, and how to renew the file."""
    made = {name: indented(text) for name, text in rows.items()}
    path = _FILES / f"{table}.txt"
    if os.environ.get(_RENEW):
        path.write_text("".join(f"{name}\n{text}" for name, text in made.items()))
    expected = _rows(path.read_text())
    names = [*made, *(name for name in expected if name not in made)]
    none = f"{_INDENT}no such row\n"
    pairs = [(name, made.get(name, none), expected.get(name, none)) for name in names]
    different = [f"{name}\n{text}instead of\n{wanted}" for name, text, wanted in pairs if text != wanted]
    return [*different, _HINT] if different else []


def indented(text: str) -> str:
    """Return a text as it is written below the name of its row."""
    return "".join(f"{_INDENT}{line}\n" for line in text.splitlines() or ("nothing",))


def _rows(text: str) -> dict[str, str]:
    rows: dict[str, str] = {}
    name = ""
    for line in text.splitlines(keepends=True):
        if line.startswith(_INDENT):
            rows[name] += line
        else:
            name = line.rstrip("\n")
            rows[name] = ""
    return rows


def description(plan: Plan) -> str:
    """Return a plan in lines; keys with the prefix of this controller are without it."""
    parts = [f"{plan.phase}: {plan.verdict}"]
    if plan.condition:
        parts.append(f"condition {plan.condition}")
    parts.extend(f"Event {event}" for event in plan.events)
    if plan.dry_run:
        parts.append("dry run")
    if plan.delay is not None:
        parts.append(f"again after {plan.delay:g} s")
    lines = ["; ".join(parts)]
    lines += [f"write {text_of(plan.write)}"] if plan.write else []
    lines += [f"then {text_of(plan.then)}"] if plan.then else []
    return "\n".join(lines)


def text_of(write: object) -> str:
    """Return a short write as text; empty for None."""
    if write is None:
        return ""
    if isinstance(write, str):
        return write
    return json.dumps(write, sort_keys=True, default=str).replace(PREFIX, "")
