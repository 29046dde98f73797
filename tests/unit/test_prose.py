"""Words that are not the standard terms of Kubernetes are counted; the counts only decrease."""

import ast
import io
import re
import tokenize
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).parent.parent.parent
PATTERNS: Final = re.compile(
    r"\b(?:told|tells?|telling)\b|\btake note\b|\bReturn (?:what|who|that of)\b|\b(?:somebody|nobody|whoever)\b"
    r"|\b(?:anew|for ever|by and by|seldom|of late|besides)\b|\bso (?:many|much|long)\b|\b(?:is|are) none\b"
    r"|\b(?:let|lets) (?:it |them )?go\b|\b(?:put right|mend(?:ed)?)\b|\bthe very [A-Za-z]+\b"
    r"|\b(?:book(?:ed|ing)?|wish(?:ed|es)?)\b|\bnamesakes?\b|\bstrangers?\b|\bin (?:the )?place of\b"
    r"|\b(?:this|the) program\b|^(?:Who|What|Whose|One that|Those that|The same)\b"
)
MAX_FINDINGS: Final = {
    "messages": 0,
    "pages": 0,
    "docstrings and comments of the product": 0,
    "tests and development": 0,
}


def texts_of(path: Path) -> Iterator[tuple[str, int, str]]:
    """Yield the kind, line and text of each docstring, comment, string literal and test name of a module."""
    source = path.read_text()
    tree = ast.parse(source)
    documentation: set[int] = set()
    for node in ast.walk(tree):
        for one in ast.iter_child_nodes(node):
            if isinstance(one, ast.Expr) and isinstance(one.value, ast.Constant) and isinstance(one.value.value, str):
                documentation.add(id(one.value))
                yield "comment", one.lineno, one.value.value
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and node.name.startswith("test_"):
            yield "comment", node.lineno, node.name.replace("_", " ")
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in documentation:
            yield "message", node.lineno, node.value
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type == tokenize.COMMENT:
            yield "comment", token.start[0], token.string.lstrip("# ")


def findings() -> Iterator[tuple[str, str]]:
    """Yield the group and the place of each finding."""
    for path in sorted(ROOT.glob("harvester_ccm/**/*.py")):
        for kind, line, text in texts_of(path):
            group = "messages" if kind == "message" else "docstrings and comments of the product"
            for found in PATTERNS.finditer(text):
                yield group, f"{path.relative_to(ROOT)}:{line}: {found[0]}"
    for folder in ("tests", "devenv", "benchmarks"):
        for path in sorted((ROOT / folder).glob("**/*.py")):
            for kind, line, text in texts_of(path):
                for found in PATTERNS.finditer(text) if kind == "comment" and path != Path(__file__) else ():
                    yield "tests and development", f"{path.relative_to(ROOT)}:{line}: {found[0]}"
    for path in sorted((ROOT / "docs").glob("**/*.md")):
        for found in PATTERNS.finditer(path.read_text()):
            yield "pages", f"{path.relative_to(ROOT)}: {found[0]}"


def test_terms_that_are_not_standard_only_decrease() -> None:
    found = list(findings())
    counts = Counter(group for group, _ in found)
    exceeded = {group: counts[group] for group, maximum in MAX_FINDINGS.items() if counts[group] > maximum}
    assert not exceeded, "\n".join(place for group, place in found if group in exceeded)
