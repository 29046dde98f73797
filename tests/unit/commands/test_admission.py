"""What the results of a dry run mean."""

from __future__ import annotations

import pytest

from harvester_ccm.commands.checks_connection import Result
from harvester_ccm.commands.checks_content import webhook_check
from harvester_ccm.errors import CCMError, Unreachable
from harvester_ccm.model.harvester import LOAD_BALANCERS, ClusterIdentity
from tests.unit.commands import objects
from tests.worlds.memory_server import MemoryClient, MemoryServer, refused

WEBHOOK = 'admission webhook "validator.harvester-system" denied the request: '
ANSWERS: dict[str, tuple[CCMError, Result, str]] = {
    "refused": (
        refused(500, "InternalError", f"{WEBHOOK}it has no running vm"),
        Result.FAILED,
        "give the VMs the label",
    ),
    "quota": (refused(403, "Forbidden", 'loadbalancers "x" is forbidden: exceeded quota: a'), Result.FAILED, ""),
    "bad name": (refused(422, "Invalid", "metadata.name: Invalid value"), Result.FAILED, "lower-case"),
    "away": (
        refused(500, "InternalError", 'failed calling webhook "validator": connection refused'),
        Result.FAILED,
        "pods of harvester-load-balancer-webhook",
    ),
    "not allowed": (refused(403, "Forbidden", "may not create"), Result.SKIPPED, ""),
    "silent": (Unreachable("no answer within 5 s"), Result.WARNING, ""),
    "no dry run": (refused(400, "BadRequest", "admission webhook does not support dry run"), Result.WARNING, ""),
    "name taken": (refused(409, "AlreadyExists", "exists"), Result.OK, ""),
}


@pytest.mark.parametrize(("error", "result", "advice"), ANSWERS.values(), ids=ANSWERS.keys())
async def test_what_harvester_reports(error: CCMError, result: Result, advice: str) -> None:
    server = MemoryServer()
    server.fault = lambda call: error if call.is_write else None
    client = MemoryClient(server, cluster="harvester", namespace=objects.VMS)
    check = await webhook_check(client, ClusterIdentity("demo", objects.VMS))
    assert check.result is result
    assert advice in check.advice
    assert str(error) in check.detail or result in (Result.OK, Result.SKIPPED)


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
