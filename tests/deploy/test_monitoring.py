"""Alerts and dashboard: well-formed, alike, and about metrics and labels that exist."""

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import pytest
import yaml

from devenv.helm import CHART, render_chart
from devenv.reference import described_metrics
from devenv.restclient import Json
from harvester_ccm.kube.reload import CredentialReloader
from harvester_ccm.names import NodeReason, Reason
from harvester_ccm.telemetry.health import READY, HealthRegistry
from tests.support.memory_server import MemoryClient, MemoryServer

SHIPPED = CHART / "files"
ROOT = Path(__file__).parents[2]
HOME = yaml.safe_load((CHART / "Chart.yaml").read_text())["home"]
CASES = ROOT / "deploy" / "monitoring" / "rules_test.yaml"
DURATION: Final = r"^[1-9][0-9]*(s|m|h|d)$"
SCRAPE_LABELS: Final = {"job", "instance"}
PROCESS: Final = {"process_resident_memory_bytes", "process_cpu_seconds_total", "process_open_fds"}
WORDS: Final = {"and", "or", "unless", "by", "on", "without", "bool"}
SUFFIXES: Final = ("_bucket", "_count", "_sum")


def load(file: Path) -> Any:
    return yaml.safe_load(file.read_text(encoding="utf-8"))


RULES = [rule for group in load(SHIPPED / "rules.yaml")["groups"] for rule in group["rules"]]
ALERTS = {alert["alert"]: alert for alert in RULES}
DASHBOARD = json.loads((SHIPPED / "dashboard.json").read_text(encoding="utf-8"))
PANELS = [panel for panel in DASHBOARD["panels"] if panel["type"] != "row"]
QUERIES = {f"{panel['title']} {target['refId']}": target["expr"] for panel in PANELS for target in panel["targets"]}
CHANGES = {entry["name"]: entry["expr"] for entry in DASHBOARD["annotations"]["list"]}
EXPRESSIONS = {name: alert["expr"] for name, alert in ALERTS.items()} | QUERIES | CHANGES


def metrics() -> dict[str, set[str]]:
    """Return the samples of a scrape: name to labels."""
    shown = {name: set(SCRAPE_LABELS) for name in PROCESS}
    for metric in described_metrics():
        labels = SCRAPE_LABELS | set(metric.labels)
        if metric.type == "histogram":
            shown |= {f"{metric.name}{suffix}": labels for suffix in SUFFIXES}
            shown[f"{metric.name}_bucket"] = labels | {"le"}
        else:
            shown[metric.name] = labels
    return shown


def used_metrics(expression: str) -> Iterator[tuple[str, set[str]]]:
    """Yield each metric that an expression names, with the labels it is selected by."""
    bare = re.sub(r"\b(by|on|without)\s*\([^)]*\)", " ", expression)
    bare = re.sub(r"\[[^]]*]", " ", re.sub(r'"[^"]*"', '""', bare))
    for name, selector in re.findall(r"([a-zA-Z_:][\w:]*)\s*(\{[^}]*\})?(?!\s*\(|\w)", bare):
        if name not in WORDS and not re.search(rf"\b{name}\s*\(", bare) and f"{name}=" not in re.sub(r"\s", "", bare):
            yield name, set(re.findall(r"(\w+)\s*(?:=~|!~|!=|=)", selector))


def grouping_labels(expression: str) -> set[str]:
    """Return the labels that results are grouped or matched by."""
    groups = re.findall(r"\b(?:by|on|without)\s*\(([^)]*)\)", expression)
    return {label.strip() for group in groups for label in group.split(",") if label.strip()}


@pytest.mark.parametrize("expression", EXPRESSIONS.values(), ids=EXPRESSIONS.keys())
def test_expressions_use_what_exists(expression: str) -> None:
    known = metrics()
    used = list(used_metrics(expression))

    assert used
    assert {name for name, _ in used} <= known.keys()
    for name, labels in used:
        assert labels <= known[name], name
    assert grouping_labels(expression) <= set().union(*(known[name] for name, _ in used))
    assert expression.count("(") == expression.count(")")


@pytest.mark.parametrize("alert", ALERTS.values(), ids=ALERTS.keys())
def test_alerts_are_complete(alert: Json) -> None:
    assert alert.keys() == {"alert", "expr", "for", "labels", "annotations"}
    assert re.fullmatch(r"HarvesterCcm[A-Z][A-Za-z]+", alert["alert"])
    assert re.match(DURATION, alert["for"])
    assert alert["labels"] in ({"severity": "warning"}, {"severity": "critical"})
    assert alert["annotations"].keys() == {"summary", "description", "runbook_url"}
    texts = (alert["annotations"]["summary"], alert["annotations"]["description"])
    assert all(text.endswith(".") for text in texts)
    page, _, anchor = alert["annotations"]["runbook_url"].removeprefix(f"{HOME}/blob/main/").partition("#")
    headings = re.findall(r"^#+ (.*)$", (ROOT / page).read_text(), re.MULTILINE)
    assert anchor in {heading.lower().replace(" ", "-").replace(":", "") for heading in headings}
    shown = set(re.findall(r"\$labels\.(\w+)", " ".join(texts)))
    assert shown <= grouping_labels(alert["expr"])


def test_alerts_cover_services_credentials_lease_and_harvester() -> None:
    assert len(ALERTS) == len(RULES)
    assert ALERTS.keys() >= {
        "HarvesterCcmServicePending",
        "HarvesterCcmCredentialRejected",
        "HarvesterCcmCredentialExpiring",
        "HarvesterCcmNotLeader",
        "HarvesterCcmHarvesterUnreachable",
    }


def test_chart_renders_rules_and_dashboard() -> None:
    switches = ["metrics.prometheusRule.enabled=true", "metrics.dashboard.enabled=true"]
    values = Path(__file__).parent / "values" / "default.yaml"
    objects = [one for one in yaml.safe_load_all(render_chart(values=[values], settings=switches)) if one]
    (rule,) = (one for one in objects if one["kind"] == "PrometheusRule")
    (dashboard,) = (one for one in objects if one["kind"] == "ConfigMap")

    assert rule["spec"] == load(SHIPPED / "rules.yaml")
    assert json.loads(dashboard["data"]["harvester-ccm.json"]) == DASHBOARD
    assert dashboard["metadata"]["labels"]["grafana_dashboard"] == "1"


def test_every_alert_has_a_case_that_fires_and_one_that_does_not() -> None:
    cases = [case for test in load(CASES)["tests"] for case in test["alert_rule_test"]]

    for fires in (True, False):
        assert {case["alertname"] for case in cases if bool(case["exp_alerts"]) is fires} == ALERTS.keys()


def test_reasons_in_expressions_and_cases_exist() -> None:
    selectors = re.findall(r'\breason=~?"([^"]+)"', f"{EXPRESSIONS} {CASES.read_text(encoding='utf-8')}")

    assert {name for selector in selectors for name in selector.split("|")} <= {*Reason, *NodeReason}


def test_health_checks_in_expressions_exist() -> None:
    selectors = re.findall(r'kubernetes_healthcheck\{[^}]*name=~?"([^"]+)"', " ".join(EXPRESSIONS.values()))
    named = {name for selector in selectors for name in selector.split("|")}
    health = HealthRegistry()
    health.follow_caches(guest=[], harvester=[])
    for cluster in ("guest", "harvester"):
        client = MemoryClient(MemoryServer(), cluster=cluster)
        health.follow_files([CredentialReloader(client, lambda: pytest.fail("no file is read"))])

    assert named >= {"harvester-credential", "harvester-reachable", "harvester-credential-file"}
    of_application = re.findall(r'health\.add\("([^"]+)"', (ROOT / "harvester_ccm" / "app.py").read_text())
    assert named <= {*health.results(READY), *of_application}


def test_every_metric_is_on_the_dashboard_or_alerted_on() -> None:
    used = {name for expression in EXPRESSIONS.values() for name, _ in used_metrics(expression)}
    shown = {re.sub(r"_(bucket|count|sum)$", "", name) for name in used}
    ours = {metric.name for metric in described_metrics() if metric.name.startswith("harvester_ccm_")}

    message = "a metric of our own has a panel in files/dashboard.json of the chart, or an alert in files/rules.yaml"
    assert ours <= shown, message
