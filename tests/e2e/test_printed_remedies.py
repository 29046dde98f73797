"""Remedies that the product prints, typed as they stand against the fault that they are for: the fault ends.

``kubectl`` is real. A remedy that names ``kubectl edit`` is carried out with an editor that does what the text says.
"""

import asyncio
import json
import os
import re
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any, Final

import pytest

from devenv.binaries import require
from devenv.ccm import CcmProcess
from devenv.demo.scenario import NETWORKS
from devenv.guestnodes import GuestNodes, name_of
from devenv.harvester.records import INSTANCES, MACHINES
from devenv.kubelets import DOCUMENTS, Kubelet, node_document
from devenv.stage import Stage, until
from harvester_ccm.cli import main
from harvester_ccm.kube.errors import KubeError
from harvester_ccm.model.core import SERVICES
from harvester_ccm.model.harvester import LOAD_BALANCERS
from harvester_ccm.names import LB_CLUSTER, LB_CONTROLLER_FINALIZER, LB_OWNER, NodeReason, Reason
from harvester_ccm.plan.node.patch import uninitialized_taints
from tests.e2e.observing import announced

pytestmark = [pytest.mark.apiserver, pytest.mark.usefixtures("ccm")]

WITHIN: Final = 90
FINALIZER: Final = "example.com/backup"
ROLES: Final = "/apis/rbac.authorization.k8s.io/v1/clusterroles/harvesterhci.io:cloudprovider"
WEBHOOKS: Final = "/apis/admissionregistration.k8s.io/v1/validatingwebhookconfigurations"


async def shell(line: str, kubeconfig: Path, editor: str = "") -> str:
    """Return the output of a command line that a reader pastes; ``editor`` is what he does in an editor."""
    kubectl = require("kubectl")["kubectl"]
    path = f"{kubectl.parent}:{os.environ['PATH']}"
    process = await asyncio.create_subprocess_exec(
        "bash",
        "-c",
        line,
        env={"PATH": path, "KUBECONFIG": str(kubeconfig), "KUBE_EDITOR": editor, "HOME": str(kubeconfig.parent)},
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
    )
    async with asyncio.timeout(WITHIN):
        output, _ = await process.communicate()
    assert process.returncode == 0, f"{line}: {output.decode()}"
    return output.decode()


async def in_harvester(stage: Stage, line: str, editor: str = "") -> str:
    """Type a command with the kubeconfig of Harvester."""
    return await shell(line, stage.scene.harvester.admin_kubeconfig, editor)


class Screen:
    """The output of the commands."""

    def __init__(self, stage: Stage, capsys: pytest.CaptureFixture[str]) -> None:
        self._capsys = capsys
        scene = stage.scene
        # The other flags are on the Lease of the leader.
        files = {"cloud-config": scene.cloud_config, "kubeconfig": scene.guest.admin_kubeconfig}
        self._flags = [f"--{name}={value}" for name, value in files.items()]

    async def text(self, *words: str) -> str:
        self._capsys.readouterr()
        await asyncio.to_thread(main, ["harvester-ccm", *words, *self._flags], {})
        return self._capsys.readouterr().out

    async def run(self, *words: str) -> dict[str, Any]:
        document: dict[str, Any] = json.loads(await self.text(*words, "-o", "json"))
        return document

    async def problem(self, name: str, reason: str, words: str = "") -> dict[str, str]:
        async def found() -> dict[str, str] | None:
            rows = (await self.run("status"))["problems"]
            return next((row for row in rows if _fits(row, name, reason, words)), None)

        return await until(found, within=WITHIN, what=f"{reason} of {name}")

    async def is_over(self, name: str) -> None:
        """Return once ``status`` lists no problem of an object."""

        async def over() -> bool:
            return not [row for row in (await self.run("status"))["problems"] if row["object"] == name]

        await until(over, within=WITHIN, what=f"the end of the problem of {name}")


def _fits(row: dict[str, str], name: str, reason: str, words: str) -> bool:
    return (row["object"], row["reason"]) == (name, reason) and words in row["message"]


@pytest.fixture
def screen(stage: Stage, capsys: pytest.CaptureFixture[str]) -> Screen:
    """What an operator sees."""
    return Screen(stage, capsys)


def edit_command(text: str) -> str:
    found = re.search(r"kubectl edit .+?(?=[,.;]( |$)|$)", text)
    assert found, text
    return found[0]


def editor_with(directory: Path, script: str) -> str:
    """Return an editor that changes a file as this script of ``sed`` does."""
    file = directory / "script.sed"
    file.write_text(script)
    return f"sed -i -f {file}"


@pytest.mark.thorough
async def test_foreign_finalizer_on_a_load_balancer_is_removed_as_the_problem_says(
    stage: Stage, screen: Screen
) -> None:
    await stage.create_service("web")
    await stage.served("web")
    (balancer,) = await stage.load_balancers()
    finalizers = {"metadata": {"finalizers": [LB_CONTROLLER_FINALIZER, FINALIZER]}}
    await stage.host.merge_patch(LOAD_BALANCERS, balancer.metadata.name, finalizers, namespace="default")
    await stage.delete_service("web")
    await stage.gone("web")
    await stage.create_service("web")
    row = await screen.problem("Service default/web", Reason.REPLACEMENT_PENDING, FINALIZER)

    await in_harvester(stage, edit_command(row["message"]), editor_with(stage.directory, f"\\,{FINALIZER},d"))

    await stage.served("web")
    await screen.is_over("Service default/web")


async def test_verb_that_the_bound_role_lacks_is_added_as_the_event_says(stage: Stage, screen: Screen) -> None:
    await stage.create_service("web")
    await stage.served("web")
    admin = stage.scene.harvester.admin
    role = admin.request("GET", ROLES)
    reduced = json.loads(json.dumps(role["rules"]))
    reduced[0]["verbs"].remove("delete")
    admin.request("PATCH", ROLES, body={"rules": reduced})
    try:
        await until(lambda: cannot_delete(screen), within=WITHIN, what="the role in the cache of the API server")
        await stage.delete_service("web")
        row = await screen.problem("Service default/web", Reason.HARVESTER_UNAVAILABLE, "cannot delete resource")

        await in_harvester(
            stage,
            edit_command(row["message"]),
            editor_with(stage.directory, "0,/^  - update$/s//  - update\\n  - delete/"),
        )

        await stage.gone("web", within=WITHIN)
    finally:
        admin.request("PATCH", ROLES, body={"rules": role["rules"]})


async def test_misspelt_scope_is_in_the_output_of_the_printed_command(stage: Stage, screen: Screen) -> None:
    pools = (await in_harvester(stage, "kubectl get ippools.loadbalancer.harvesterhci.io -o name")).split()
    scope = {"project": "*", "namespace": "*", "guestCluster": "dmeo"}
    for pool in pools:
        await in_harvester(stage, f"kubectl patch {pool} --type=merge -p '{selected(scope)}'")
    await stage.create_service("web")
    row = await screen.problem("Service default/web", Reason.NO_MATCHING_POOL, "its selector is misspelt")

    # What the controller wrote to the condition has the command at its end.
    command = row["command"] or row["message"].rpartition("Run: ")[2]
    assert "guestCluster:dmeo" in await in_harvester(stage, command)

    corrected = selected({**scope, "guestCluster": "demo"})
    await in_harvester(stage, f"kubectl patch {pools[0]} --type=merge -p '{corrected}'")
    await stage.served("web")
    await screen.is_over("Service default/web")


def selected(scope: dict[str, str]) -> str:
    """Return the patch of the selector of a pool."""
    return json.dumps({"spec": {"selector": {"scope": [scope]}}})


async def cannot_delete(screen: Screen) -> bool:
    """Return whether ``preflight`` misses the verb delete on load balancers."""
    checks = (await screen.run("preflight"))["checks"]
    return any(one["check"] == "loadbalancers" and "cannot delete" in one["detail"] for one in checks)


async def test_webhook_that_cannot_be_called_is_named_for_nodes_too(stage: Stage) -> None:
    admin = stage.scene.guest.admin
    async with GuestNodes(stage.guest, stage.host, networks=NETWORKS) as nodes:
        admin.request("POST", WEBHOOKS, body=dead_webhook())
        try:
            await until(lambda: is_webhook_in_effect(stage), within=WITHIN, what="the webhook in effect")
            await nodes.join(1)
            message = await node_hears(stage, name_of(1), NodeReason.UPDATE_REJECTED)
            assert "Check that the pods behind the webhook that it names run" in message
            assert "rejects it" not in message
        finally:
            admin.request("DELETE", f"{WEBHOOKS}/dead")
        await until(lambda: is_initialized(stage, name_of(1)), within=WITHIN, what="the initialized Node")


def dead_webhook() -> dict[str, Any]:
    """Return a webhook for updates of Nodes at whose address nothing listens."""
    rule = {"apiGroups": [""], "apiVersions": ["v1"], "operations": ["UPDATE"], "resources": ["nodes", "nodes/status"]}
    hook = {
        "name": "dead.example.com",
        "rules": [rule],
        "clientConfig": {"url": "https://127.0.0.1:9/x"},
        "admissionReviewVersions": ["v1"],
        "sideEffects": "None",
        "timeoutSeconds": 1,
        "failurePolicy": "Fail",
    }
    kind = "ValidatingWebhookConfiguration"
    return {
        "apiVersion": "admissionregistration.k8s.io/v1",
        "kind": kind,
        "metadata": {"name": "dead"},
        "webhooks": [hook],
    }


async def is_webhook_in_effect(stage: Stage) -> bool:
    """Return whether a Node cannot be changed."""
    name = "probe"
    with suppress(KubeError):
        await stage.guest.create(DOCUMENTS, node_document(Kubelet(name, system_uuid="probe")))
    try:
        await stage.guest.merge_patch(DOCUMENTS, name, {"metadata": {"labels": {"probe": os.urandom(4).hex()}}})
    except KubeError:
        await stage.guest.delete(DOCUMENTS, name)
        return True
    return False


async def node_hears(stage: Stage, name: str, reason: str) -> str:
    """Return the message of the newest Event of a Node with this reason."""

    async def message() -> str:
        events = await stage.events("Node", name)
        return next((str(event["message"]) for event in reversed(events) if event["reason"] == reason), "")

    return await until(message, within=WITHIN, what=f"{reason} of {name}")


async def is_initialized(stage: Stage, name: str) -> bool:
    """Return whether a Node has its provider ID and no taint."""
    node = (await stage.nodes()).get(name)
    return node is not None and bool(node.spec.provider_id) and not uninitialized_taints(node)


async def joins_with(stage: Stage, nodes: GuestNodes, number: int, change: Callable[[dict[str, Any]], None]) -> None:
    """Let a Node join whose VM and VMI are changed before that."""
    await nodes.join(number)
    await nodes.remove(number)
    for resource in (MACHINES, INSTANCES):
        document = await stage.host.get(resource, name_of(number), namespace="default")
        change(document)
        await stage.host.replace(resource, name_of(number), document, namespace="default")
    system_uuid = str(document["spec"]["domain"]["firmware"]["uuid"])
    await stage.guest.create(DOCUMENTS, node_document(Kubelet(name_of(number), system_uuid=system_uuid)))


async def test_label_of_another_cluster_is_corrected_with_the_printed_command(stage: Stage, screen: Screen) -> None:
    def label(document: dict[str, Any]) -> None:
        document["metadata"]["labels"]["guestcluster.harvesterhci.io/name"] = "other"

    async with GuestNodes(stage.guest, stage.host, networks=NETWORKS) as nodes:
        await joins_with(stage, nodes, 1, label)
        row = await screen.problem(f"Node {name_of(1)}", NodeReason.VM_CLUSTER_MISMATCH)

        await in_harvester(stage, row["command"])

        await until(lambda: is_initialized(stage, name_of(1)), within=WITHIN, what="the initialized Node")


async def test_two_vms_with_one_uuid_are_told_apart_as_the_problem_says(stage: Stage, screen: Screen) -> None:
    uuid = "11111111-2222-3333-4444-555555555555"

    def share(document: dict[str, Any]) -> None:
        spec = document["spec"].get("template", document)["spec"]
        spec["domain"]["firmware"]["uuid"] = uuid

    async with GuestNodes(stage.guest, stage.host, networks=NETWORKS) as nodes:
        await joins_with(stage, nodes, 1, share)
        await joins_with(stage, nodes, 2, share)
        await nodes.remove(1)
        await nodes.remove(2)
        await stage.guest.create(DOCUMENTS, node_document(Kubelet("worker", system_uuid=uuid)))
        row = await screen.problem("Node worker", NodeReason.VM_AMBIGUOUS)
        assert "set the label" not in row["message"], "both VMs have it"
        field = re.search(r"\((spec[\w.]+)\)", row["message"])
        assert field, row["message"]

        patch: Any = uuid.replace("1", "6")
        for part in reversed(field[1].split(".")):
            patch = {part: patch}
        command = f"kubectl patch virtualmachines.kubevirt.io {name_of(2)} --type=merge -p '{json.dumps(patch)}'"
        await in_harvester(stage, command)
        # A restart of the VM makes a new instance from the template.
        await nodes.stop_vm(2)

        await until(lambda: is_initialized(stage, "worker"), within=WITHIN, what="the initialized Node")
        await stage.guest.delete(DOCUMENTS, "worker")


async def test_command_of_explain_adopts_a_load_balancer_with_its_address(
    stage: Stage, screen: Screen, ccm: CcmProcess
) -> None:
    guest, harvester = stage.scene.guest.admin, stage.scene.harvester.admin
    await stage.create_service("web")
    (before,) = await stage.served("web")
    (old,) = await stage.load_balancers()
    await announced(stage, {before.addresses[0]: {"default/web"}})
    ccm.terminate(0)
    await stage.ended(ccm)

    # The cluster was recreated: the Service and the cluster have other UIDs and another name.
    path = SERVICES.path("default", "web")
    guest.request("PATCH", path, body={"metadata": {"finalizers": None}})
    guest.request("DELETE", path)
    # kube-vip finds a Service by its name only: the new one must not get the status of the one before.
    await announced(stage, {})
    metadata = {"labels": {LB_CLUSTER: "before"}, "annotations": {LB_OWNER: "uid-of-the-cluster-before"}}
    await stage.host.merge_patch(LOAD_BALANCERS, old.metadata.name, {"metadata": metadata}, namespace="default")
    run = stage.run()
    await stage.create_service("web")
    (served,) = await stage.served("web")
    assert served.addresses != before.addresses
    (new,) = [one for one in await stage.load_balancers() if one.metadata.name != old.metadata.name]

    text = await screen.text("explain", "svc/web", "-n", "default")
    remedy = f"stop the controller, delete load balancer {new.metadata.name} in Harvester, and adopt it in Harvester"
    assert remedy in " ".join(text.split())
    run.terminate(0)
    await stage.ended(run)
    harvester.request("DELETE", LOAD_BALANCERS.path("default", new.metadata.name))
    (command,) = [line for line in text.splitlines() if line.strip().startswith("kubectl annotate ")]
    await in_harvester(stage, command)
    stage.run()

    async def adopted() -> bool:
        (service,) = [one for one in await stage.services() if one.metadata.name == "web"]
        names = [one.metadata.name for one in await stage.load_balancers()]
        return service.addresses == before.addresses and names == [old.metadata.name]

    await until(adopted, within=WITHIN, what="the Service with the earlier load balancer and its address")
