"""A guest that refuses writes by a policy, and the condition that ``kubectl wait`` waits for, on real API servers."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import Any

import pytest

from devenv.binaries import require
from devenv.ccm import CcmProcess
from devenv.restclient import RestClient
from devenv.stage import Stage, until
from harvester_ccm.names import LOAD_BALANCER_READY, SERVICE_FINALIZER, Reason

pytestmark = pytest.mark.apiserver

GROUP = "admissionregistration.k8s.io/v1"
NAME = "no-vips.example.com"
SPEC = {
    "failurePolicy": "Fail",
    "matchConstraints": {
        "resourceRules": [
            {"apiGroups": [""], "apiVersions": ["v1"], "operations": ["UPDATE"], "resources": ["services/status"]}
        ]
    },
    "validations": [
        {
            "expression": "!object.metadata.name.startsWith('web')",
            "messageExpression": "'nothing of ' + object.metadata.name + ' may be written'",
        }
    ],
}
THEIRS = {"type": "example.com/Audited", "status": "True", "reason": "Looked", "message": ""}


class Policy:
    """A ValidatingAdmissionPolicy against every write of the status of Services whose name begins with ``web``."""

    def __init__(self, admin: RestClient) -> None:
        self._admin = admin

    def install(self) -> None:
        """Create it with its binding."""
        base: dict[str, Any] = {"apiVersion": GROUP, "metadata": {"name": NAME}}
        bound = {"policyName": NAME, "validationActions": ["Deny"]}
        for kind, spec in (("ValidatingAdmissionPolicy", SPEC), ("ValidatingAdmissionPolicyBinding", bound)):
            self._admin.request("POST", _collection(kind), body={**base, "kind": kind, "spec": spec})

    def remove(self) -> None:
        """Delete both, if they are there."""
        for kind in ("ValidatingAdmissionPolicyBinding", "ValidatingAdmissionPolicy"):
            path = f"{_collection(kind)}/{NAME}"
            if self._admin.get_or_none(path) is not None:
                self._admin.request("DELETE", path)


def _collection(kind: str) -> str:
    plural = "policies" if kind.endswith("Policy") else "policybindings"
    return f"/apis/{GROUP}/validatingadmission{plural}"


@pytest.fixture
def policy(stage: Stage) -> Iterator[Policy]:
    """A policy that is not in force yet."""
    found = Policy(stage.scene.guest.admin)
    try:
        yield found
    finally:
        found.remove()


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


async def refused_by(stage: Stage, policy: Policy) -> None:
    """Put the policy in force; the API server obeys it some time after it was made."""
    await stage.create_service("web-probe", spec={"type": "ClusterIP"})
    policy.install()

    async def obeyed() -> bool:
        code, _ = await kubectl(
            stage,
            *("patch", "service", "web-probe", "--subresource=status", "--dry-run=server", "--type=merge"),
            *("-p", '{"status":{"conditions":[]}}'),
        )
        return code != 0

    await until(obeyed, within=60, what="the policy in force")


@pytest.mark.usefixtures("ccm")
async def test_a_policy_of_the_guest_is_told_and_overcome(stage: Stage, policy: Policy) -> None:
    await refused_by(stage, policy)
    await stage.create_service("web")
    told = await stage.hears("web", Reason.SYNC_FAILED)
    assert told.type == "Warning"
    assert "nothing of web may be written" in told.message, told.message
    policy.remove()
    await stage.served("web", within=90)
    assert [one.count for one in await stage.told("web", Reason.SYNC_FAILED)] == [1]
    assert (await conditions(stage, "web"))[LOAD_BALANCER_READY]["status"] == "True"


@pytest.mark.usefixtures("ccm")
async def test_a_policy_that_keeps_a_deleted_service_is_told(stage: Stage, policy: Policy) -> None:
    await stage.create_service("web")
    await stage.served("web")
    await refused_by(stage, policy)
    await stage.delete_service("web")
    told = await stage.hears("web", Reason.SYNC_FAILED)
    assert "not let go when it is deleted" in told.message
    assert await stage.service("web") is not None
    assert len(await stage.load_balancers()) == 1, "its address is announced until the Service can be written"
    policy.remove()
    await stage.gone("web", within=90)


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
    assert (condition["reason"], condition["message"]) == ("NotServable", told.message)
