"""What the answers to a dry run mean."""

from __future__ import annotations

import pytest

from harvester_ccm.commands.admission import Admission, AdmissionVerdict, ask_admission, judge
from harvester_ccm.commands.checks_connection import Result
from harvester_ccm.commands.checks_content import webhook_check
from harvester_ccm.errors import CCMError, Unreachable
from harvester_ccm.model.cluster import ClusterIdentity
from harvester_ccm.model.harvester import LOAD_BALANCERS
from tests.unit.commands import objects
from tests.worlds.memory_server import MemoryClient, MemoryServer, refused

WEBHOOK = 'admission webhook "validator.harvester-system" denied the request: '
ANSWERS: dict[str, tuple[CCMError, AdmissionVerdict, Result, str]] = {
    "refused": (
        refused(500, "InternalError", f"{WEBHOOK}it has no running vm"),
        AdmissionVerdict.REFUSED,
        Result.FAILED,
        "give the VMs the label",
    ),
    "bad name": (
        refused(422, "Invalid", "metadata.name: Invalid value"),
        AdmissionVerdict.REFUSED,
        Result.FAILED,
        "lower-case",
    ),
    "away": (
        refused(500, "InternalError", 'failed calling webhook "validator": connection refused'),
        AdmissionVerdict.WEBHOOK_AWAY,
        Result.FAILED,
        "pods of harvester-load-balancer-webhook",
    ),
    "not allowed": (refused(403, "Forbidden", "may not create"), AdmissionVerdict.NOT_ALLOWED, Result.SKIPPED, ""),
    "silent": (Unreachable("no answer within 5 s"), AdmissionVerdict.UNKNOWN, Result.WARNING, ""),
    "no dry run": (
        refused(400, "BadRequest", "admission webhook does not support dry run"),
        AdmissionVerdict.UNKNOWN,
        Result.WARNING,
        "",
    ),
    "name taken": (refused(409, "AlreadyExists", "exists"), AdmissionVerdict.UNKNOWN, Result.WARNING, ""),
}


@pytest.mark.parametrize(("error", "verdict", "result", "advice"), ANSWERS.values(), ids=ANSWERS.keys())
async def test_what_harvester_says(error: CCMError, verdict: AdmissionVerdict, result: Result, advice: str) -> None:
    found = judge(error)
    assert found.verdict is verdict
    assert advice in found.advice
    assert found.is_problem is (result is Result.FAILED)
    assert str(error) in found.sentence() or verdict is AdmissionVerdict.NOT_ALLOWED
    server = MemoryServer()
    server.fault = lambda call: error if call.is_write else None
    client = MemoryClient(server, cluster="harvester", namespace=objects.VMS)
    check = await webhook_check(client, ClusterIdentity("demo", objects.VMS))
    assert (check.result, check.advice) == (result, found.advice)


@pytest.mark.parametrize(
    ("error", "who"),
    [
        (refused(500, "InternalError", f"{WEBHOOK}no"), "Harvester's webhook would refuse"),
        (
            refused(403, "Forbidden", 'loadbalancers "x" is forbidden: exceeded quota: a'),
            "Harvester's API server would",
        ),
        (refused(422, "Invalid", "metadata.name: Invalid value"), "Harvester's API server would refuse"),
        (refused(409, "AlreadyExists", "exists"), "What Harvester's webhook would say is not known: there is one"),
    ],
)
async def test_who_refuses_is_named(error: CCMError, who: str) -> None:
    assert judge(error).sentence().startswith(who)
    server = MemoryServer()
    server.fault = lambda call: error if call.is_write else None
    client = MemoryClient(server, cluster="harvester", namespace=objects.VMS)
    check = await webhook_check(client, ClusterIdentity("demo", objects.VMS))
    assert ("Harvester's API server would refuse a load balancer" in check.detail) == ("API server" in who)


async def test_it_is_a_dry_run_of_what_the_program_creates(monkeypatch: pytest.MonkeyPatch) -> None:
    sent: list[tuple[str, str, object, object]] = []

    async def request(method: str, path: str, *, params: object = None, body: object = None, **_more: object) -> bytes:
        sent.append((method, path, params, body))
        return b"{}"

    client = MemoryClient(MemoryServer(), cluster="harvester", namespace=objects.VMS)
    monkeypatch.setattr(client, "request", request)
    check = await webhook_check(client, ClusterIdentity("demo", objects.VMS))
    assert check.result is Result.OK
    ((method, path, params, body),) = sent
    assert (method, params) == ("POST", {"dryRun": "All"})
    assert path == LOAD_BALANCERS.path(objects.VMS)
    assert isinstance(body, dict)
    assert body["metadata"]["labels"]["cloudprovider.harvesterhci.io/serviceName"] == "preflight"
    assert await ask_admission(client, body, objects.VMS) == Admission(AdmissionVerdict.ADMITTED)
