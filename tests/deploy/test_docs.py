"""The pages: every link works, every example is valid, every name exists."""

import re
import subprocess
import sys
from functools import cache
from pathlib import Path

import pytest
import yaml

from devenv.helm import CHART
from scripts import generate_reference
from tests.deploy.documented_names import code_blocks, product_texts, prose

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
PAGES = sorted(DOCS.rglob("*.md"))
LINKED = [*PAGES, *(ROOT / f"{name}.md" for name in ("README", "CONTRIBUTING", "SECURITY")), CHART / "README.md"]

_LINK = re.compile(r"(?<!!)\[[^\]]*\]\((?P<target>[^)\s]+)\)")
_HEADING = re.compile(r"^#{1,6} +(?P<text>.+?) *$", re.MULTILINE)
_SHOWN_FILE = re.compile(
    r"^ *`(?P<path>deploy/[\w./-]+\.yaml)`:\n\n```yaml\n(?P<body>.*?)^```$", re.MULTILINE | re.DOTALL
)


def name_of(page: Path) -> str:
    return str(page.relative_to(ROOT))


@cache
def anchors(page: Path) -> frozenset[str]:
    """The anchors of a page's headings, as GitHub and the site make them."""
    found: set[str] = set()
    for heading in _HEADING.finditer(prose(page.read_text())):
        text = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", heading["text"])
        plain = re.sub(r"[^\w\- ]", "", text.replace("`", "").lower()).strip()
        found.add(re.sub(r"[ -]+", "-", plain))
    return frozenset(found)


def broken_links(page: Path) -> list[str]:
    broken = []
    for link in _LINK.finditer(prose(page.read_text())):
        target, _, anchor = link["target"].partition("#")
        if "://" in target or target.startswith("mailto:"):
            continue
        file = (page.parent / target).resolve() if target else page
        missing_anchor = bool(anchor) and file.suffix == ".md" and file.exists() and anchor not in anchors(file)
        if not file.exists() or missing_anchor:
            broken.append(link["target"])
    return broken


@pytest.mark.parametrize("page", LINKED, ids=name_of)
def test_links_work(page: Path) -> None:
    assert broken_links(page) == []


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_links_stay_inside_the_site(page: Path) -> None:
    """A link out of docs/ works in a checkout and is dead on the site."""
    relative = [
        link["target"].partition("#")[0]
        for link in _LINK.finditer(prose(page.read_text()))
        if "://" not in link["target"]
    ]
    assert [target for target in relative if not (page.parent / target).resolve().is_relative_to(DOCS)] == []


@pytest.mark.parametrize("page", LINKED, ids=name_of)
def test_yaml_examples_are_valid(page: Path) -> None:
    for block in code_blocks(page.read_text(), "yaml"):
        assert list(yaml.safe_load_all(block)), block


def test_examples_are_shown_word_for_word() -> None:
    """Every file of examples is in a page, as it is."""
    shown = {}
    for page in PAGES:
        for match in _SHOWN_FILE.finditer(page.read_text()):
            assert match["body"] == (ROOT / match["path"]).read_text(), f"{name_of(page)}: {match['path']}"
            shown[match["path"]] = page
    rooms = ("rke2", "k3s", "kubeadm", "rancher", "harvester")
    files = {name_of(file) for room in rooms for file in (ROOT / "deploy" / room).glob("*.yaml")}
    files.add("deploy/helmchart.yaml")
    assert set(shown) == files


def test_every_alert_is_explained() -> None:
    rules = yaml.safe_load((CHART / "files" / "rules.yaml").read_text())
    alerts = [rule for group in rules["groups"] for rule in group["rules"]]
    page = (DOCS / "operations" / "monitoring.md").read_text()
    rows = re.findall(r"^\| `(HarvesterCcm\w+)` \| (\w+) \| (.*?) \|", page, re.MULTILINE)
    assert [row[:2] for row in rows] == [(rule["alert"], rule["labels"]["severity"]) for rule in alerts]
    for rule, row in zip(alerts, rows, strict=True):
        if not re.search("expiry|_age_", rule["expr"]):  # which also have a time in the expression
            assert rule["for"].replace("m", " min").replace("h", " h") in row[2], rule["alert"]


def test_messages_name_sections_that_exist() -> None:
    """A message of the controller has no links: it names a section and the subject of its page."""
    named = re.findall(r"'([^'\n]+)' on the page about ([a-z ]+)", product_texts())
    assert named != []
    for section, subject in named:
        page = DOCS / "operations" / f"{subject.replace(' ', '-')}.md"
        assert section in [heading["text"] for heading in _HEADING.finditer(prose(page.read_text()))], subject


def test_reference_of_annotations_and_events_is_current() -> None:
    """The other generated pages are compared in ``tests/unit``."""
    script = ROOT / "scripts" / "generate_reference.py"
    done = subprocess.run([sys.executable, script, "--check"], check=False, timeout=60)
    assert done.returncode == 0, "run make generate"


def test_every_chart_value_is_explained() -> None:
    """The comment above a value in ``values.yaml`` is its meaning on the page."""
    values = list(generate_reference.chart_values(generate_reference.VALUES.read_text(encoding="utf-8")))
    assert {"replicasCount", "cloudConfig.secretName", "kube-vip.env.vip_arp"} <= {value.path for value in values}
    assert [value.path for value in values if not value.comment] == []
