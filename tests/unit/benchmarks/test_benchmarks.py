"""The pure parts of the benchmarks: counting requests, judging numbers, and the allocator's answers."""

from __future__ import annotations

import asyncio
import json
import time
from pathlib import Path
from typing import Any

import pytest

from benchmarks.allocator import MISSING_POOL, answer
from benchmarks.audit import AuditLog, Request, count_of, is_work, read_requests, tally
from benchmarks.load import names_of, service_body
from benchmarks.machine import processor_model, total_memory
from benchmarks.observed import Step, Steps
from benchmarks.result import Measurement, Section, columns, missed, number, percentile
from harvester_ccm.names import LB_CONTROLLER_FINALIZER, VM_NAME

USER = "system:serviceaccount:default:ccm"


def audit_line(
    verb: str, resource: str, *, user: str = USER, stage: str = "ResponseComplete", code: int = 200
) -> bytes:
    name, _, subresource = resource.partition("/")
    entry = {
        "stage": stage,
        "verb": verb,
        "user": {"username": user, "groups": ["system:authenticated"]},
        "objectRef": {"resource": name, "subresource": subresource},
        "responseStatus": {"code": code},
    }
    return json.dumps(entry, separators=(",", ":")).encode() + b"\n"


class TestRequests:
    def test_only_finished_requests_of_the_user_are_read(self) -> None:
        lines = [
            audit_line("create", "loadbalancers", code=201),
            audit_line("create", "loadbalancers", user=f"{USER}-other"),
            audit_line("patch", "services/status"),
            audit_line("patch", "services/status", stage="Panic"),
        ]
        assert read_requests(lines, USER) == [
            Request("create", "loadbalancers", 201),
            Request("patch", "services/status", 200),
        ]

    def test_a_watch_counts_when_it_starts_and_is_no_work(self) -> None:
        lines = [audit_line("watch", "nodes", stage=stage) for stage in ("ResponseStarted", "ResponseComplete")]
        requests = read_requests(lines, USER)
        assert requests == [Request("watch", "nodes", 200)]
        assert not is_work(requests[0])
        assert not is_work(Request("update", "leases", 200))
        assert is_work(Request("list", "nodes", 200))

    def test_a_path_without_a_resource_is_read(self) -> None:
        entry = {"stage": "ResponseComplete", "verb": "get", "user": {"username": USER}}
        assert read_requests([json.dumps(entry).encode()], USER) == [Request("get", "", 0)]

    def test_counting(self) -> None:
        requests = [Request("create", "events", 201)] * 2 + [Request("get", "nodes", 200)]
        assert count_of(requests) == 3
        assert count_of(requests, verb="create", resource="events") == 2
        assert count_of(requests, resource="pods") == 0
        assert tally(requests) == "2 create events 201, 1 get nodes 200"
        assert tally([]) == "none"

    def test_a_log_is_read_from_a_position_up_to_the_last_whole_line(self, tmp_path: Path) -> None:
        path = tmp_path / "audit.log"
        log = AuditLog(path, USER)
        assert log.position() == 0
        path.write_bytes(audit_line("list", "nodes"))
        position = log.position()
        with path.open("ab") as stream:
            stream.write(audit_line("get", "namespaces") + audit_line("list", "services")[:-20])
        assert log.since(position) == [Request("get", "namespaces", 200)]


class TestNumbers:
    @pytest.mark.parametrize(
        ("value", "target", "verdict"),
        [
            (1.0, None, ""),
            (2.0, 2.0, "OK"),
            (2.5, 2.0, "MISSED by 25 %"),
            (0.0, 0.0, "OK"),
            (3.0, 0.0, "MISSED by 3"),
        ],
    )
    def test_verdict(self, value: float, target: float | None, verdict: str) -> None:
        assert Measurement("time", value, "s", target).verdict == verdict

    @pytest.mark.parametrize(
        ("share", "expected"), [(0.0, 1.0), (0.5, 2.0), (0.51, 3.0), (0.75, 3.0), (0.95, 4.0), (1.0, 4.0)]
    )
    def test_percentile_is_one_of_the_values(self, share: float, expected: float) -> None:
        assert percentile([4.0, 2.0, 3.0, 1.0], share) == expected

    def test_percentile_of_nothing(self) -> None:
        with pytest.raises(ValueError, match="no values"):
            percentile([], 0.5)

    @pytest.mark.parametrize(
        ("value", "text"), [(7, "7"), (103.0, "103"), (1.0234, "1.02"), (47.26, "47.3"), (1020.4, "1020")]
    )
    def test_number(self, value: float, text: str) -> None:
        assert number(value) == text

    def test_a_section_shows_both_ratios(self) -> None:
        section = Section("Speed", [Measurement("p50", 50, "ms", 100, 1000), Measurement("max", 70, "ms")], ("Calm.",))
        title, head, first, second, remark = section.text().splitlines()
        assert title == "Speed"
        assert head.split() == ["measured", "target", "of", "target", "Go", "provider", "of", "Go"]
        assert first.split() == ["p50", "50", "ms", "<=", "100", "ms", "0.50", "×", "1000", "ms", "0.05", "×", "OK"]
        assert second.split() == ["max", "70", "ms"]
        assert remark.strip() == "Calm."

    def test_missed_targets_are_named(self) -> None:
        sections = [Section("Memory", [Measurement("peak", 90, "MiB", 72), Measurement("idle", 40, "MiB", 72)])]
        assert missed(sections) == ["Memory: peak: MISSED by 25 %"]


class TestMachine:
    def test_processor(self) -> None:
        assert processor_model("vendor_id\t: X\nmodel name\t: Fast CPU 3000\n") == "Fast CPU 3000"
        assert processor_model("Hardware: none\n") == "unknown processor"

    def test_memory(self) -> None:
        assert total_memory("MemTotal:       2048 kB\nMemFree: 1 kB\n") == 2 * 2**20
        assert total_memory("") == 0


class TestAllocator:
    @staticmethod
    def balancer(**metadata: Any) -> dict[str, Any]:
        return {"metadata": {"name": "lb", **metadata}, "spec": {"workloadType": "cluster", "ipam": "pool"}}

    def test_a_new_one_gets_all_in_one_write(self) -> None:
        written = answer(self.balancer(finalizers=["other"]), "198.18.0.1")
        assert written is not None
        assert written["metadata"]["finalizers"] == ["other", LB_CONTROLLER_FINALIZER]
        assert written["status"]["allocatedAddress"]["ip"] == "198.18.0.1"
        assert written["status"]["conditions"] == [{"type": "Ready", "status": "True"}]
        assert "address" not in written["status"]

    def test_a_vm_load_balancer_gets_its_address_and_backends_too(self) -> None:
        balancer = self.balancer()
        balancer["spec"] = {"workloadType": "vm", "backendServerSelector": {VM_NAME: ["node-1"]}}
        written = answer(balancer, "198.18.0.2")
        assert written is not None
        assert written["status"]["address"] == "198.18.0.2"
        assert written["status"]["backendServers"] == ["node-1"]

    def test_one_that_asks_for_no_pool_that_exists_is_refused_once(self) -> None:
        balancer = {**self.balancer(), "spec": {"workloadType": "cluster", "ipPool": MISSING_POOL}}
        written = answer(balancer, "198.18.0.1")
        assert written is not None
        assert written["metadata"]["finalizers"] == [LB_CONTROLLER_FINALIZER]
        (condition,) = written["status"]["conditions"]
        assert (condition["status"], condition["message"]) == ("False", "fail to get allocator no-such-pool")
        assert answer(written, "198.18.0.1") is None

    def test_a_served_one_is_left_alone(self) -> None:
        written = answer(self.balancer(), "198.18.0.1")
        assert written is not None
        assert answer(written, "198.18.0.9") is None

    def test_a_deleted_one_is_let_go_once(self) -> None:
        deleted = self.balancer(finalizers=[LB_CONTROLLER_FINALIZER, "other"], deletionTimestamp="2026-11-21T08:00:00Z")
        written = answer(deleted, "198.18.0.1")
        assert written is not None
        assert written["metadata"]["finalizers"] == ["other"]
        assert answer(written, "198.18.0.1") is None


class TestLoad:
    def test_names_sort_in_order(self) -> None:
        names = names_of("bulk", 101)
        assert names == sorted(names)
        assert names[0] == "bulk-000"

    def test_service(self) -> None:
        body: dict[str, Any] = dict(service_body("web", {"key": "value"}, port=8080))
        assert body["metadata"]["annotations"] == {"key": "value"}
        assert body["spec"] == {"type": "LoadBalancer", "ports": [{"name": "http", "port": 8080}]}


class TestSteps:
    def test_the_longest_step_is_told_and_forgotten_then(self, monkeypatch: pytest.MonkeyPatch) -> None:
        async def work() -> None:
            await asyncio.sleep(0)
            time.sleep(0.05)  # noqa: ASYNC251 - what is to be found
            await asyncio.sleep(0)
            began = time.thread_time()
            while time.thread_time() - began < 0.02:
                pass

        async def run() -> None:
            await asyncio.create_task(work(), name="busy one")

        steps = Steps()
        # Put back what it replaces.
        monkeypatch.setattr(asyncio.Handle, "_run", asyncio.Handle.__dict__["_run"])
        steps.measure()
        asyncio.run(run())
        step = steps.take()
        assert step.seconds >= 0.05
        assert step.most >= max(0.02, step.processor)
        assert step.what == "busy one"
        assert Step.last_of(f"before\n{Step(1, 1, 1, 'other').line()}\n{step.line()}\nafter") == Step(
            round(step.seconds, 6), round(step.processor, 6), round(step.most, 6), "busy one"
        )
        assert steps.take() == Step()

    def test_columns(self) -> None:
        assert columns([("Services", "500", "5000"), ("memory", "7", "11.5")]) == (
            "Services  500  5000",
            "memory      7  11.5",
        )
