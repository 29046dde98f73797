"""Metrics: counted events, values read at each scrape, the reference page."""

import asyncio
import re
import time
from pathlib import Path
from typing import Any

import pytest
from prometheus_client.parser import text_string_to_metric_families

from devenv.pki import VALID_FOR, Authority
from devenv.reference import described_metrics, metrics_page
from harvester_ccm.kube.client import ApiClient
from harvester_ccm.kube.credentials import Credentials
from harvester_ccm.kube.errors import Answer, Conflict, CredentialError, Unreachable
from harvester_ccm.kube.outcome import Outcome
from harvester_ccm.kube.tokens import TokenSource
from harvester_ccm.kube.workqueue import WorkQueue
from harvester_ccm.telemetry.metrics import Telemetry
from tests.support.background import running
from tests.support.clock import jumping_time
from tests.support.offline import json_web_token, offline_client
from tests.unit.telemetry.states import CacheState

PAGE = Path(__file__).parents[3] / "docs" / "reference" / "metrics.md"
LAST_CONTACT = "harvester_ccm_harvester_last_contact_timestamp_seconds"
NAME = (("name", "service"),)


def samples(telemetry: Telemetry) -> dict[str, dict[tuple[tuple[str, str], ...], float]]:
    """Return the samples of a scrape by name and labels."""
    found: dict[str, dict[tuple[tuple[str, str], ...], float]] = {}
    for family in text_string_to_metric_families(telemetry.exposition("")[0].decode()):
        for sample in family.samples:
            found.setdefault(sample.name, {})[tuple(sorted(sample.labels.items()))] = sample.value
    return found


def test_names_follow_the_rules_of_prometheus() -> None:
    metrics = described_metrics()
    assert len({metric.name for metric in metrics}) == len(metrics)
    for metric in metrics:
        assert re.fullmatch(r"[a-z][a-z_]*[a-z]", metric.name)
        assert metric.name.endswith("_total") == (metric.type == "counter")
        assert metric.help.endswith(".")


def test_process_shows_its_version_and_resources() -> None:
    shown = samples(Telemetry("1.2.3"))
    assert [dict(labels)["version"] for labels in shown["harvester_ccm_build_info"]] == ["1.2.3"]
    assert shown["process_resident_memory_bytes"][()] > 0
    assert shown["process_open_fds"][()] > 0
    assert not [name for name in shown if name.endswith("_created")]


async def test_requests_are_counted_by_code_method_and_server() -> None:
    telemetry = Telemetry("1")
    for seconds in (0.03, 0.3):
        telemetry.request_done("guest", "PATCH", "/version", 200, seconds)
    telemetry.request_done("harvester", "GET", "/version", 0, 10.0)

    shown = samples(telemetry)
    counted = shown["rest_client_requests_total"]
    assert counted[(("code", "200"), ("host", "guest"), ("method", "PATCH"))] == 2
    assert counted[(("code", "<error>"), ("host", "harvester"), ("method", "GET"))] == 1
    durations = shown["rest_client_request_duration_seconds_bucket"]
    assert durations[(("host", "guest"), ("le", "0.1"), ("verb", "PATCH"))] == 1
    assert samples(Telemetry("1")).get("rest_client_requests_total") is None


async def test_expiry_is_infinite_for_tokens_that_do_not_contain_it() -> None:
    class Broken(TokenSource):
        def get(self) -> str:
            raise CredentialError("/token: no such file")

    expiring = json_web_token({"exp": 1800000000})
    telemetry = Telemetry("1")
    telemetry.follow_clients(
        offline_client("harvester", TokenSource(expiring)),
        offline_client("guest", Broken(None)),
        offline_client("opaque", TokenSource("token-abc:xyz")),
        offline_client("plugin", TokenSource(None)),
    )
    shown = samples(telemetry)["harvester_ccm_credential_expiry_timestamp_seconds"]
    unknown = {(("cluster", name),): float("inf") for name in ("guest", "opaque", "plugin")}
    assert shown == {(("cluster", "harvester"),): 1800000000.0, **unknown}


async def test_expiry_is_that_of_the_client_certificate_without_a_token(tmp_path: Path) -> None:
    client = Authority("test", tmp_path).issue_client("me", "me")
    credentials = Credentials(
        "https://127.0.0.1:1", "", None, TokenSource(None), certificate=client.certificate.read_bytes()
    )
    telemetry = Telemetry("1")
    telemetry.follow_clients(ApiClient(credentials, cluster="harvester"))
    shown = samples(telemetry)["harvester_ccm_credential_expiry_timestamp_seconds"]
    assert shown[(("cluster", "harvester"),)] == pytest.approx(time.time() + VALID_FOR.total_seconds(), abs=60)


async def test_last_contact_with_harvester_is_read_at_each_scrape() -> None:
    balancers: Any = CacheState(last_contact=float("-inf"))
    telemetry = Telemetry("1")
    quiet: Any = CacheState(last_contact=float("-inf"))
    telemetry.follow_harvester([balancers, quiet])
    assert samples(telemetry)[LAST_CONTACT][()] != samples(telemetry)[LAST_CONTACT][()], "NaN"
    balancers.last_contact = asyncio.get_running_loop().time() - 100
    assert samples(telemetry)[LAST_CONTACT][()] == pytest.approx(time.time() - 100, abs=30)


def test_count_of_another_object_is_read_at_each_scrape() -> None:
    telemetry, counts = Telemetry("1"), [2, 5]
    telemetry.show_count(telemetry.metrics.events_dropped, lambda: counts.pop(0))
    assert [samples(telemetry)["harvester_ccm_events_dropped_total"][()] for _ in range(2)] == [2, 5]


@jumping_time
async def test_keys_of_a_queue_are_counted_and_timed_with_their_reasons() -> None:
    conflict = Conflict(Answer(409, "Conflict", "changed"))
    errors = [conflict, Unreachable("no route"), ValueError("bug")]
    outcomes: list[Outcome] = [Outcome("dhcp"), Outcome("unsupported"), Outcome()]
    reasons: list[str] = []

    async def reconcile(_key: str) -> Outcome:
        reasons.append(telemetry.reason("service", "shop/a"))
        await asyncio.sleep(2)
        if errors:
            raise errors.pop(0)
        return outcomes.pop(0)

    telemetry, queue = Telemetry("1"), WorkQueue("service", reconcile, workers=1)
    telemetry.follow_queue(queue)
    queue.enqueue("shop/a")
    await asyncio.sleep(3)
    assert samples(telemetry)["workqueue_depth"][NAME] == 1
    async with running(queue.run()):
        for _ in range(2):
            await asyncio.sleep(60)
            queue.enqueue("shop/a")
        await asyncio.sleep(3)
    assert reasons == ["", "Conflict", "Unreachable", "ValueError", "dhcp", "unsupported"]
    assert telemetry.reason("service", "shop/a") == telemetry.reason("node", "w1") == ""
    shown = samples(telemetry)
    assert shown["workqueue_depth"][NAME] == 0
    assert shown["workqueue_adds_total"][NAME] == shown["workqueue_work_duration_seconds_count"][NAME] == 6
    assert shown["workqueue_retries_total"][NAME] == 3
    assert shown["workqueue_queue_duration_seconds_sum"][NAME] == pytest.approx(3)
    assert shown["workqueue_work_duration_seconds_sum"][NAME] == pytest.approx(12)


def test_client_chooses_the_format() -> None:
    for accept in ("", "*/*"):
        assert Telemetry("1").exposition(accept)[1].startswith("text/plain; version=0.0.4")
    accept = "application/openmetrics-text; version=1.0.0"
    body, content_type = Telemetry("1").exposition(accept)
    assert content_type.startswith(accept)
    assert body.endswith(b"# EOF\n")


def test_reference_page_is_up_to_date() -> None:
    assert PAGE.read_text(encoding="utf-8") == metrics_page(), "docs/reference/metrics.md is old: run make generate"
