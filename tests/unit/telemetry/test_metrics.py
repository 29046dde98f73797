"""Metrics: the catalogue, what is counted, what is read when asked for, and the reference page."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from prometheus_client.parser import text_string_to_metric_families

from devenv.reference import metrics_page
from harvester_ccm.model.core import LEASES
from harvester_ccm.model.harvester import LOAD_BALANCERS
from harvester_ccm.model.outcome import WaitReason
from harvester_ccm.telemetry import catalogue
from harvester_ccm.telemetry.catalogue import CATALOGUE, MetricType
from harvester_ccm.telemetry.metrics import Telemetry

ROOT = Path(__file__).parents[3]
PAGE = ROOT / "docs" / "reference" / "metrics.md"


def samples(telemetry: Telemetry) -> dict[str, dict[tuple[tuple[str, str], ...], float]]:
    """Return what a scrape shows: name of the sample, then labels, then value."""
    text = telemetry.exposition("")[0].decode()
    found: dict[str, dict[tuple[tuple[str, str], ...], float]] = {}
    for family in text_string_to_metric_families(text):
        for sample in family.samples:
            found.setdefault(sample.name, {})[tuple(sorted(sample.labels.items()))] = sample.value
    return found


def test_everything_that_is_counted_is_in_the_catalogue() -> None:
    telemetry = Telemetry("1.2.3")
    telemetry.request_done("guest", "GET", "/version", 200, 0.1)
    telemetry.queue("service").added("shop/web")

    known = {metric.name for metric in CATALOGUE}
    shown = {re.sub(r"_(bucket|count|sum)$", "", name) for name in samples(telemetry)}

    assert {name for name in shown if not name.startswith("process_")} <= known


def test_names_follow_the_rules_of_prometheus() -> None:
    assert len({metric.name for metric in CATALOGUE}) == len(CATALOGUE)
    for metric in CATALOGUE:
        assert re.fullmatch(r"[a-z][a-z_]*[a-z]", metric.name)
        assert metric.name.endswith("_total") == (metric.type is MetricType.COUNTER)
        assert bool(metric.buckets) == (metric.type is MetricType.HISTOGRAM)
        assert metric.help.endswith(".")


def test_a_process_shows_its_version_and_its_own_use_of_the_machine() -> None:
    shown = samples(Telemetry("1.2.3"))

    assert [dict(labels)["version"] for labels in shown["harvester_ccm_build_info"]] == ["1.2.3"]
    assert shown["process_resident_memory_bytes"][()] > 0
    assert shown["process_open_fds"][()] > 0
    assert not [name for name in shown if name.endswith("_created")]


def test_two_processes_in_one_share_nothing() -> None:
    one, other = Telemetry("1"), Telemetry("1")
    one.request_done("guest", "GET", "/version", 200, 0.1)

    assert "rest_client_requests_total" not in samples(other)


def test_requests_are_counted_by_code_verb_and_server() -> None:
    telemetry = Telemetry("1")
    telemetry.request_done("guest", "PATCH", "/version", 200, 0.03)
    telemetry.request_done("guest", "PATCH", "/version", 200, 0.3)
    telemetry.request_done("harvester", "GET", "/version", 0, 10.0)

    shown = samples(telemetry)

    counted = shown["rest_client_requests_total"]
    assert counted[(("code", "200"), ("host", "guest"), ("method", "PATCH"))] == 2
    assert counted[(("code", "<error>"), ("host", "harvester"), ("method", "GET"))] == 1
    durations = shown["rest_client_request_duration_seconds_bucket"]
    assert durations[(("host", "guest"), ("le", "0.1"), ("verb", "PATCH"))] == 1
    assert durations[(("host", "guest"), ("le", "0.5"), ("verb", "PATCH"))] == 2


def test_updates_of_load_balancers_are_the_node_pass_of_the_framework() -> None:
    telemetry = Telemetry("1")
    path = LOAD_BALANCERS.path("vms", "web")
    for status in (200, 500, 0):
        telemetry.request_done("harvester", "PUT", path, status, 3.0)
    telemetry.request_done("guest", "PUT", LEASES.path("kube-system", "one"), 409, 1.0)
    telemetry.request_done("harvester", "POST", LOAD_BALANCERS.path("vms"), 500, 1.0)

    shown = samples(telemetry)

    assert shown["service_controller_loadbalancer_sync_total"][()] == 3
    assert shown["service_controller_nodesync_error_total"][()] == 2
    assert shown["service_controller_update_loadbalancer_host_latency_seconds_count"][()] == 3


def test_only_success_is_a_contact() -> None:
    telemetry = Telemetry("1", clock=lambda: 100.0, wall_clock=lambda: 5000.0)
    telemetry.follow_caches(guest=[], harvester=[])
    telemetry.request_done("harvester", "GET", "/version", 401, 0.1)
    telemetry.request_done("guest", "GET", "/version", 200, 0.1)
    name = "harvester_ccm_harvester_last_contact_timestamp_seconds"
    assert name not in samples(telemetry)

    telemetry.request_done("harvester", "GET", "/version", 200, 0.1)

    assert samples(telemetry)[name] == {(): 5000.0}


def test_values_are_read_anew_at_each_scrape() -> None:
    telemetry = Telemetry("1")
    restarts: dict[tuple[str, ...], float] = {("guest/services",): 1.0}
    telemetry.read_at_scrape(catalogue.WATCH_RESTARTS, lambda: restarts)
    telemetry.read_at_scrape(catalogue.EVENTS_DROPPED, lambda: {(): 7.0})
    telemetry.read_at_scrape(catalogue.LAST_CONTACT, dict)
    key = (("collection", "guest/services"),)
    assert samples(telemetry)["harvester_ccm_watch_restarts_total"] == {key: 1.0}

    restarts[("guest/services",)] = 2.0

    shown = samples(telemetry)
    assert shown["harvester_ccm_watch_restarts_total"] == {key: 2.0}
    assert shown["harvester_ccm_events_dropped_total"] == {(): 7.0}
    assert "harvester_ccm_harvester_last_contact_timestamp_seconds" not in shown


@pytest.mark.parametrize(
    ("accept", "content_type"),
    [
        ("", "text/plain; version=0.0.4"),
        ("*/*", "text/plain; version=0.0.4"),
        ("application/openmetrics-text; version=1.0.0", "application/openmetrics-text; version=1.0.0"),
    ],
)
def test_a_scraper_chooses_the_format(accept: str, content_type: str) -> None:
    body, given = Telemetry("1").exposition(accept)

    assert given.startswith(content_type)
    assert body.endswith(b"# EOF\n") == accept.startswith("application/openmetrics")


def test_reference_page_is_up_to_date() -> None:
    assert PAGE.read_text(encoding="utf-8") == metrics_page(), "docs/reference/metrics.md is old: run make generate"


def test_reference_page_has_a_row_for_every_metric_and_reason() -> None:
    rows = [row for row in metrics_page().splitlines() if row.startswith("| `")]

    assert len(rows) == len(CATALOGUE) + len(WaitReason)
    assert all(row.count("|") in (3, 5) for row in rows)
