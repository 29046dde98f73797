"""Generate tables of the documentation from the code: ``python -m devenv.contributor_tables``.

The page for contributors has the rules of what wakes what, the phases, and the steps of announcing, described by their
docstrings. The page about Nodes has the rules for Nodes in the order in which the code tests them.
"""

import ast
import inspect
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from enum import StrEnum
from pathlib import Path
from typing import Final

from harvester_ccm.controllers.wake import (
    RULES,
    Effect,
    Enqueue,
    EnqueueFamilies,
    EnqueueMapping,
    Lane,
    RefreshBackends,
)
from harvester_ccm.names import Reason
from harvester_ccm.plan.node.interface import InterfaceRule
from harvester_ccm.plan.node.internal_ip import InternalIPRule
from harvester_ccm.plan.node.lifecycle import Obstacle
from harvester_ccm.plan.node.match import MatchedBy
from harvester_ccm.plan.node.power import VMState
from harvester_ccm.plan.service.announcing.sequence import Step
from harvester_ccm.plan.service.phase import Phase
from harvester_ccm.plan.service.plan import PLANS

_ROOT: Final = Path(__file__).parents[1]
PAGE: Final = _ROOT / "docs" / "contributing" / "architecture.md"
NODES_PAGE: Final = _ROOT / "docs" / "concepts" / "nodes.md"
_REASONS: Final = frozenset(str(reason) for reason in Reason)


def with_section(page: str, name: str, table: str) -> str:
    """Return a page in which the generated section of this name has the table. Raises ValueError without the marks."""
    begin, end = f"<!-- generated: {name} -->\n", "<!-- end -->\n"
    before, mark, rest = page.partition(begin)
    _, closing, after = rest.partition(end)
    if not mark or not closing:
        raise ValueError(f"the page has no section {name!r}")
    return f"{before}{begin}\n{table}\n{end}{after}"


def sections() -> dict[str, str]:
    """Return the tables by the name of their section."""
    return {
        "wakes": wakes_table(),
        "phases": phases_table(),
        "steps": steps_table(),
    }


def node_sections() -> dict[str, str]:
    """Return the tables of the page about Nodes by the name of their section."""
    return {
        "identities": rules_table("Identity", MatchedBy, ("VM",)),
        "interfaces": rules_table("Rule", InterfaceRule, ("Interface",)),
        "internal-ips": rules_table("Rule", InternalIPRule, ("If", "Then")),
        "states": rules_table("VM", VMState, ("State", "Taint")),
        "obstacles": rules_table("Obstacle", Obstacle, ("If",), named=False),
    }


def rules_table(title: str, rules: type[StrEnum], parts: Sequence[str], *, named: bool = True) -> str:
    """Return the table of the members of an enum, numbered in their order.

    Each docstring has as many ``parts`` as the table has further columns. Without ``named``, the table omits the values
    of the members, which are no names for readers.
    """
    rows = []
    for number, (name, text) in enumerate(member_docs(rules).items(), start=1):
        cells = [text]
        for part in parts[1:]:
            *before, last = cells
            cells = [*before, *last.split(f" {part}: ")]
        names = [str(rules[name].value)] if named else []
        rows.append((str(number), *names, *map(_sentence, cells)))
    heads = [title, *parts] if named else list(parts)
    return table(("", *heads), rows)


def wakes_table() -> str:
    """Return the table of what wakes what."""
    rows = []
    for rule in RULES:
        signals = ", ".join(rule.signals)
        first, _, _ = inspect.cleandoc(rule.keys.__doc__ or "").partition("\n\n")
        objects = _sentence(_markdown(first).removeprefix("Return "))
        effects = "; ".join(map(_effect, rule.effects))
        rows.append((signals, objects.removesuffix("."), effects))
    return table(("Change", "Objects", "Queue"), rows)


def _effect(effect: Effect) -> str:
    """Return what a rule does, in the words of the page."""
    match effect:
        case Enqueue(queue=queue, lane=Lane.BACKGROUND):
            return f"`{queue}`, in the background"
        case Enqueue(queue=queue):
            return f"`{queue}`"
        case EnqueueFamilies(queue=queue):
            return f"`{queue}`: they and the Services that share their addresses, in the background"
        case EnqueueMapping(queue=queue, after_seconds=seconds):
            return f"`{queue}`{_delay(seconds)}"
        case RefreshBackends(after_seconds=seconds):
            return f"the nodes that get traffic are determined again{_delay(seconds)}"


def _delay(seconds: float) -> str:
    return f" after {seconds:g} s" if seconds else ""


def phases_table() -> str:
    """Return the table of the phases of a Service, with the module of the plan of each."""
    texts = member_docs(Phase)
    rows = []
    for phase in Phase:
        state, rest = texts[phase.name].split(" Ends: ")
        ends, user = rest.split(" User: ")
        module = PLANS[phase].__module__.rpartition(".")[2]
        rows.append((f"`{phase}`", state, _sentence(ends), _with_reasons(_sentence(user)), f"`{module}.py`"))
    return table(("Phase", "State", "Ends", "What the user sees", "Plan in"), rows)


def steps_table() -> str:
    """Return the table of the steps of announcing."""
    rows = []
    for step, text in zip(Step, member_docs(Step).values(), strict=True):
        state, following = text.split(" Next: ")
        rows.append((f"`{step}`", state, _sentence(following)))
    return table(("Step", "What was written", "Next"), rows)


def member_docs(enum: type[StrEnum]) -> dict[str, str]:
    """Return the docstring of each member as one line, in the order of their definition."""
    (definition,) = ast.parse(inspect.getsource(enum)).body
    if not isinstance(definition, ast.ClassDef):
        raise TypeError(f"{enum} is not a class")
    texts = {}
    name = ""
    for statement in definition.body:
        match statement:
            case ast.Assign(targets=[ast.Name(id=name)]):
                pass
            case ast.Expr(value=ast.Constant(value=str(text))) if name:
                texts[name] = _markdown(text)
    if list(texts) != [member.name for member in enum]:
        raise ValueError(f"a member of {enum.__name__} has no docstring")
    return texts


def table(head: Iterable[str], rows: Iterable[Iterable[str]]) -> str:
    """Return a table in Markdown."""
    names = list(head)
    lines = [_row(names), _row(["---"] * len(names)), *map(_row, rows)]
    return "\n".join(lines) + "\n"


def _row(cells: Iterable[str]) -> str:
    return f"| {' | '.join(cells)} |"


def _markdown(text: str) -> str:
    """Return a docstring as one line of Markdown."""
    return re.sub(r"``(.+?)``", r"`\1`", " ".join(text.split()))


def _sentence(text: str) -> str:
    """Return the text with a capital letter, but for names of programs."""
    return text if text.startswith("kube-vip") else text[0].upper() + text[1:]


def _with_reasons(text: str) -> str:
    """Return the text with the reasons as code."""
    return re.sub(r"\w+", lambda word: f"`{word[0]}`" if word[0] in _REASONS else word[0], text)


PAGES: Final[Mapping[Path, Callable[[], dict[str, str]]]] = {PAGE: sections, NODES_PAGE: node_sections}


def current_page(path: Path) -> str:
    """Return a page with its tables as the code is now."""
    page = path.read_text(encoding="utf-8")
    for name, content in PAGES[path]().items():
        page = with_section(page, name, content)
    return page


if __name__ == "__main__":
    for path in PAGES:
        path.write_text(current_page(path), encoding="utf-8")
