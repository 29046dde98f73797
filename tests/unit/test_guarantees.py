"""Each guarantee on the page about ownership and safety has a test with the marker ``guarantee``.

A test of a sentence on the page about security names it with the marker ``security``.
"""

import re
from pathlib import Path

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "concepts" / "ownership-and-safety.md"
SECURITY_PAGE = ROOT / "docs" / "operations" / "security.md"


def sources() -> str:
    """Return the text of all tests, except this module."""
    return "".join(path.read_text() for path in ROOT.glob("tests/**/test_*.py") if path != Path(__file__))


def test_each_guarantee_has_a_test_and_a_line_on_the_page() -> None:
    page = re.findall(r"^\d+\. \*\*(.+?)[.,]\*\*", PAGE.read_text(), re.MULTILINE)
    assert sorted(page) == sorted(set(re.findall(r'mark\.guarantee\("(.+?)"\)', sources())))


def test_each_tested_sentence_is_on_the_security_page() -> None:
    without_links = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", SECURITY_PAGE.read_text())
    page = " ".join(without_links.split())
    sentences = set(re.findall(r'mark\.security\(\s*"(.+?)",?\s*\)', sources()))
    assert sentences
    assert {sentence for sentence in sentences if sentence not in page} == set()
