"""What the pages name exists: search texts, reasons, chart values, commands with their flags, keys, metrics."""

from pathlib import Path

import pytest

from devenv.helm import CHART
from tests.deploy.documented_names import CHECKS, ROOT

DOCS = ROOT / "docs"
# The changelog also names what was removed.
PAGES = sorted(page for page in DOCS.rglob("*.md") if page.name != "changelog.md")
PAGES += [ROOT / "README.md", ROOT / "CONTRIBUTING.md", CHART / "README.md"]
PLANTED = {
    "search texts": "| Message contains | Fix |\n|---|---|\n| `failed to get allocator` | x |\n",
    "reasons": "Event `CreationWaiting`",
    "chart values": "```sh\nhelm upgrade x y --set kube-vip.runon=all\n```\n",
    "commands": "```sh\nharvester-ccm cleanup --cluster=demo\n```\n",
    "keys": "Annotation `cloudprovider.harvesterhci.io/ippool`.",
    "metrics": "The metric `harvester_ccm_services_waiting` counts them.",
    "files": "See `plan/service/walks.py`.",
}
"""A text with an error for each kind of name."""


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_names_exist(page: Path) -> None:
    text = page.read_text(encoding="utf-8")
    assert {kind: check(text) for kind, check in CHECKS.items() if check(text)} == {}


@pytest.mark.parametrize("kind", CHECKS)
def test_error_is_found(kind: str) -> None:
    assert CHECKS[kind](PLANTED[kind]) != []
