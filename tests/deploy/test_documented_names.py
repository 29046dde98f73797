"""Everything that a page names exists: search texts, reasons, flags, values, files, commands, keys and metrics."""

import re
from pathlib import Path

import pytest

from devenv.helm import CHART
from tests.deploy.documented_names import ROOT, reasons, search_texts, unknown_names

DOCS = ROOT / "docs"
# The changelog also names what was removed.
PAGES = sorted(page for page in DOCS.rglob("*.md") if page.name != "changelog.md")
PAGES += [ROOT / "README.md", ROOT / "CONTRIBUTING.md", CHART / "README.md"]
TROUBLESHOOTING = DOCS / "operations" / "troubleshooting.md"
PLANTED = {
    "search texts": "| Message contains | Fix |\n|---|---|\n| `failed to get allocator` | x |\n",
    "reasons": "Event `CreationWaiting`",
    "flags": "`--former-cluster-name`",
    "chart values": "```sh\nhelm upgrade x y --set kube-vip.runon=all\n```\n",
    "files": "See `harvester_ccm/plan/service/phases.py`.",
    "commands": "```sh\nharvester-ccm cleanup --cluster=demo\n```\n",
    "keys": "Annotation `cloudprovider.harvesterhci.io/ippool`.",
    "metrics": "The metric `harvester_ccm_services_waiting` counts them.",
}
"""A text with an error for each kind of name."""


def name_of(page: Path) -> str:
    return str(page.relative_to(ROOT))


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_names_exist(page: Path) -> None:
    assert unknown_names(page.read_text(encoding="utf-8")) == {}


@pytest.mark.parametrize(("kind", "text"), PLANTED.items(), ids=PLANTED)
def test_error_is_found(kind: str, text: str) -> None:
    assert kind in unknown_names(text)


def test_search_texts_are_read_from_tables() -> None:
    texts = set(search_texts(TROUBLESHOOTING.read_text(encoding="utf-8")))
    assert {"fail to get allocator", "stays announced", "addresses=[0.0.0.0]", "nothing listens"} <= texts


def test_picture_of_the_path_names_reasons() -> None:
    picture = (DOCS / "images" / "address-path.svg").read_text(encoding="utf-8")
    named = re.findall(r"[A-Z]\w+", " ".join(re.findall(r'class="r">([^<]*)<', picture).__iter__()))
    assert named
    assert {name for name in named if not any(reason.endswith(name) for reason in reasons())} == set()
