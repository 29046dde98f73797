"""What the plan of each world must be: data beside the tests, in ``outcomes/``, one file for each table of worlds.

A row has the name of its world, and below it the plan: phase and verdict, then the write and the write after it.
Every changed line of these files has to be reviewed.
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
    """Return the rows of a table whose plan is not the one in its file, with both plans, and how to renew the file."""
    made = {name: description(outline(world)) for name, world in worlds.items()}
    path = _FILES / f"{table}.txt"
    if os.environ.get(_RENEW):
        path.write_text("".join(f"{name}\n{text}" for name, text in made.items()))
    expected = _rows(path.read_text())
    names = [*made, *(name for name in expected if name not in made)]
    none = f"{_INDENT}no such row\n"
    rows = [(name, made.get(name, none), expected.get(name, none)) for name in names]
    differing = [f"{name}\n{plan}instead of\n{wanted}" for name, plan, wanted in rows if plan != wanted]
    return [*differing, _HINT] if differing else []


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
    """Return a plan as indented lines; keys with the prefix of this controller are without it."""
    parts = [f"{plan.phase}: {plan.verdict}"]
    if plan.condition:
        parts.append(f"condition {plan.condition}")
    parts.extend(f"Event {event}" for event in plan.events)
    if plan.dry_run:
        parts.append("dry run")
    if plan.delay is not None:
        parts.append(f"again after {plan.delay:g} s")
    lines = ["; ".join(parts)]
    lines += [f"write {_text(plan.write)}"] if plan.write else []
    lines += [f"then {_text(plan.then)}"] if plan.then else []
    return "".join(f"{_INDENT}{line}\n" for line in lines)


def _text(write: object) -> str:
    if isinstance(write, str):
        return write
    return json.dumps(write, sort_keys=True, default=str).replace(PREFIX, "")
