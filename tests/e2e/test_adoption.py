"""The command that ``explain`` prints adopts a load balancer of a cluster that was recreated."""

import asyncio
import os
from pathlib import Path

import pytest

from devenv.binaries import require
from devenv.stage import Stage, until
from harvester_ccm.cli import main
from harvester_ccm.model.core import SERVICES
from harvester_ccm.model.harvester import LOAD_BALANCERS
from harvester_ccm.names import LB_CLUSTER, LB_OWNER

pytestmark = pytest.mark.apiserver

WEB = SERVICES.path("default", "web")


async def explained(stage: Stage, capsys: pytest.CaptureFixture[str]) -> list[str]:
    """Return the lines of the explanation of the Service."""
    capsys.readouterr()
    scene = stage.scene
    flags = (f"--cloud-config={scene.cloud_config}", f"--kubeconfig={scene.kubeconfig}", "--cluster-name=demo")
    await asyncio.to_thread(main, ["harvester-ccm", "explain", "svc/web", "-n", "default", *flags], {})
    return capsys.readouterr().out.splitlines()


async def paste(stage: Stage, command: str) -> int:
    """Run a command in a shell whose kubectl talks to Harvester, and return its exit code."""
    directory = Path(require("kubectl")["kubectl"]).parent
    path, kubeconfig = f"{directory}:{os.environ['PATH']}", str(stage.scene.harvester.admin_kubeconfig)
    shell = await asyncio.create_subprocess_shell(
        command, env={"PATH": path, "KUBECONFIG": kubeconfig, "HOME": str(stage.directory)}
    )
    return await shell.wait()


async def announces(stage: Stage, *addresses: str) -> None:
    """Return once kube-vip announces just these addresses."""

    async def settled() -> bool:
        return set(stage.kube_vip.announced) == set(addresses)

    await until(settled, within=60, what=f"kube-vip with {addresses}")


async def test_command_of_explain_adopts_a_load_balancer_with_its_address(
    stage: Stage, lan: None, capsys: pytest.CaptureFixture[str]
) -> None:
    guest, harvester = stage.scene.guest.admin, stage.scene.harvester.admin
    run = stage.run()
    await stage.create_service("web")
    (before,) = await stage.served("web")
    (old,) = await stage.load_balancers()
    await announces(stage, *before.addresses)
    run.terminate(0)
    await stage.ended(run)

    # The cluster was recreated: the Service and the cluster have other UIDs and another name.
    guest.request("PATCH", WEB, body={"metadata": {"finalizers": None}})
    guest.request("DELETE", WEB)
    # kube-vip finds a Service by its name only: the new one must not get the status of the one before.
    await announces(stage)
    path = LOAD_BALANCERS.path("default", old.metadata.name)
    metadata = {"labels": {LB_CLUSTER: "before"}, "annotations": {LB_OWNER: "uid-of-the-cluster-before"}}
    # In another thread: the webhook answers in this one.
    await asyncio.to_thread(harvester.request, "PATCH", path, body={"metadata": metadata})
    run = stage.run()
    await stage.create_service("web")
    (served,) = await stage.served("web")
    assert served.addresses != before.addresses
    (new,) = [one for one in await stage.load_balancers() if one.metadata.name != old.metadata.name]

    lines = await explained(stage, capsys)
    text = " ".join(" ".join(lines).split())
    assert (
        f"stop the controller, delete load balancer {new.metadata.name} in Harvester, and adopt it in Harvester" in text
    )
    run.terminate(0)
    await stage.ended(run)
    harvester.request("DELETE", LOAD_BALANCERS.path("default", new.metadata.name))
    (command,) = [line for line in lines if line.strip().startswith("kubectl annotate ")]
    assert await paste(stage, command) == 0
    stage.run()

    async def adopted() -> bool:
        (service,) = [one for one in await stage.services() if one.metadata.name == "web"]
        names = [one.metadata.name for one in await stage.load_balancers()]
        return service.addresses == before.addresses and names == [old.metadata.name]

    await until(adopted, within=60, what="the Service with the earlier load balancer and its address")
