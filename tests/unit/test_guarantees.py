"""Each guarantee on the page about ownership and safety has a test with the marker ``guarantee``."""

import re
from pathlib import Path

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "concepts" / "ownership-and-safety.md"


def test_each_guarantee_has_a_test_and_a_line_on_the_page() -> None:
    page = re.findall(r"^\d+\. \*\*(.+?)[.,]\*\*", PAGE.read_text(), re.MULTILINE)
    sources = "".join(path.read_text() for path in ROOT.glob("tests/**/test_*.py") if path != Path(__file__))
    assert sorted(page) == sorted(set(re.findall(r'mark\.guarantee\("(.+?)"\)', sources)))
