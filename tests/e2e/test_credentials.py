"""The cloud-config of a running controller is truncated, and replaced by one with another token."""

from pathlib import Path

import pytest

from devenv.apiserver import ControlPlane
from devenv.harvester import FAST
from devenv.stage import VM_NAMESPACE, Stage, until
from tests.conftest import bind

pytestmark = [
    pytest.mark.apiserver,
    pytest.mark.usefixtures("lan"),
    pytest.mark.parametrize("pace", [FAST], ids=["fast"]),
]

ROLE = "harvesterhci.io:cloudprovider"


def issue(harvester: ControlPlane, account: str, path: Path) -> None:
    """Write a cloud-config of a service account of its own."""
    harvester.kubeconfig_for_service_account(VM_NAMESPACE, account, context_namespace=VM_NAMESPACE, path=path)
    bind(harvester, ROLE, account=(VM_NAMESPACE, account), namespace=VM_NAMESPACE)


def mount(directory: Path, version: str) -> Path:
    """Let ``..data`` point to the directory of this version in one step, as the kubelet does with a Secret."""
    new = directory / "..new"
    new.symlink_to(version)
    new.rename(directory / "..data")
    return directory / "cloud-config"


@pytest.mark.security("A changed Secret, or a file that was overwritten in place, is read")
async def test_new_token_is_used_after_the_cloud_config_was_truncated_and_replaced(
    stage: Stage, tmp_path: Path
) -> None:
    harvester, secret = stage.scene.harvester, tmp_path / "secret"
    for version in ("v1", "v2"):
        (secret / version).mkdir(parents=True)
        issue(harvester, f"rotated-{version}", secret / version / "cloud-config")
    (secret / "cloud-config").symlink_to("..data/cloud-config")
    cloud_config = mount(secret, "v1")
    run = stage.run(cloud_config=cloud_config, times={"kube.reload.INTERVAL": 0.5})
    await stage.logged(run, "service controller started")

    text = cloud_config.read_text()
    cloud_config.write_text(text[: len(text) // 2])
    await stage.logged(run, "credentials not reloaded")

    async def is_reported() -> bool:
        events = await stage.events("Lease", "cloud-controller-manager", "kube-system")
        return any(event["reason"] == "CredentialNotReloaded" for event in events)

    await until(is_reported, within=60, what="the Event about the cloud-config")
    await stage.create_service("before")
    await stage.served("before")

    mount(secret, "v2")
    await stage.logged(run, "credentials reloaded")
    bindings = f"/apis/rbac.authorization.k8s.io/v1/namespaces/{VM_NAMESPACE}/rolebindings"
    harvester.admin.request("DELETE", f"{bindings}/{ROLE.replace(':', '-')}-rotated-v1")
    await stage.create_service("after")
    await stage.served("before", "after")
    assert [run.log.count(text) for text in ("credentials reloaded", "credentials not reloaded")] == [1, 1]
    assert "list or watch failed" not in run.log
    assert len(await stage.load_balancers()) == 2
