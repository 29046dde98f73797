"""The condition of a Service that ``kubectl wait`` waits for."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from devenv.binaries import require
from devenv.ccm import CcmProcess
from devenv.stage import Stage, until
from harvester_ccm.names import LOAD_BALANCER_READY, SERVICE_FINALIZER, Reason

pytestmark = pytest.mark.apiserver

THEIRS = {"type": "example.com/Audited", "status": "True", "reason": "Looked", "message": ""}


async def conditions(stage: Stage, name: str) -> dict[str, dict[str, Any]]:
    """Return the conditions of a Service by their types."""
    document: Any = await stage.service_document(name)
    return {one["type"]: one for one in document.get("status", {}).get("conditions", [])}


async def kubectl(stage: Stage, *words: str) -> tuple[int, str]:
    """Run kubectl on the guest; return its exit code and what it said."""
    process = await asyncio.create_subprocess_exec(
        require("kubectl")["kubectl"],
        "--kubeconfig",
        stage.scene.guest.admin_kubeconfig,
        *words,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
    )
    said, _ = await process.communicate()
    return process.returncode or 0, said.decode()


async def test_kubectl_waits_for_the_condition(stage: Stage, ccm: CcmProcess) -> None:
    await stage.create_service("web")
    waited = ("wait", "service/web", "--timeout=60s", f"--for=condition={LOAD_BALANCER_READY}")
    assert await kubectl(stage, *waited) == (0, "service/web condition met\n")
    (served,) = await stage.served("web")
    path = "/api/v1/namespaces/default/services/web/status"
    theirs = {**THEIRS, "lastTransitionTime": "2026-01-01T00:00:00Z"}
    before = await conditions(stage, "web")
    listed = {"status": {"conditions": [*before.values(), theirs]}}
    stage.scene.guest.admin.request("PATCH", path, body=listed)

    # Another port: the status is written, and what others say in conditions stays.
    await stage.change_service("web", {"spec": {"ports": [{"name": "https", "port": 443}]}})

    async def followed() -> bool:
        now = await stage.service("web")
        return now is not None and now.status.load_balancer.ingress[0].ports[0].port == 443

    await until(followed, within=60, what="the new port in the status")
    assert (await conditions(stage, "web"))["example.com/Audited"] == theirs
    assert (await conditions(stage, "web"))[LOAD_BALANCER_READY]["status"] == "True"

    # It leaves the Service with all else that is ours.
    await stage.change_service("web", {"metadata": {"finalizers": [SERVICE_FINALIZER, "example.com/keep"]}})
    await stage.change_service("web", {"spec": {"type": "ClusterIP"}})

    async def let_go() -> bool:
        now = await stage.service("web")
        return now is not None and now.metadata.finalizers == ("example.com/keep",)

    await until(let_go, within=60, what="our finalizer off")
    assert await conditions(stage, "web") == {"example.com/Audited": theirs}
    assert served.addresses
    assert ccm.exit_code is None


@pytest.mark.usefixtures("ccm")
async def test_kubectl_waits_for_a_service_that_is_refused(stage: Stage) -> None:
    await stage.create_service("web", annotations={"cloudprovider.harvesterhci.io/ipam": "nonsense"})
    waited = ("wait", "service/web", "--timeout=60s", f"--for=condition={LOAD_BALANCER_READY}=False")
    assert await kubectl(stage, *waited) == (0, "service/web condition met\n")
    told = await stage.hears("web", Reason.INVALID_ANNOTATION)
    condition = (await conditions(stage, "web"))[LOAD_BALANCER_READY]
    assert (condition["reason"], condition["message"]) == ("Unsupported", told.message)
