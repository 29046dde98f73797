"""What the pages name exists: reasons, chart values, commands with their flags, keys, metrics."""

from pathlib import Path

import pytest

from devenv.helm import CHART
from tests.deploy.documented_names import CHECKS, ROOT

DOCS = ROOT / "docs"
# The changelog also names what was removed.
PAGES = sorted(page for page in DOCS.rglob("*.md") if page.name != "changelog.md")
PAGES += [ROOT / "README.md", ROOT / "CONTRIBUTING.md", CHART / "README.md"]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_names_exist(page: Path) -> None:
    text = page.read_text(encoding="utf-8")
    assert {kind: check(text) for kind, check in CHECKS.items() if check(text)} == {}
