"""The commands of the pages: each is valid, and those to install, migrate and remove work as they stand."""

import asyncio
import os
import re
import stat
import subprocess
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from pathlib import Path

import pytest
import yaml

from devenv.apiserver import ControlPlane
from devenv.binaries import require
from devenv.helm import NAMESPACE, RELEASE, run_helm
from devenv.restclient import Json, RefusedError, RestClient
from harvester_ccm import __version__
from tests.deploy.documented_names import code_blocks
from tests.deploy.pagerunner import ADDRESSES, DEPLOYMENT, ROOT, PageRunner, commands_of
from tests.deploy.published import NEWEST, write_published_chart

DOCS = ROOT / "docs"
INSTALLATION = DOCS / "installation"
REPOSITORY = "registry.example.org/harvester-ccm"
IMAGE = f"{REPOSITORY}:v{__version__}-ccm"
PAGES = sorted(DOCS.rglob("*.md"))
LOAD_BALANCERS = "/apis/loadbalancer.harvesterhci.io/v1beta1/namespaces/my-namespace/loadbalancers"
POOL = "/apis/loadbalancer.harvesterhci.io/v1beta1/ippools/cluster-addresses"
SERVICE = "/api/v1/namespaces/default/services/web"
CHECKOUT = "1. Get the checkout"
CREDENTIAL = "4. Create the credential"
MANIFEST = "5. Write the manifest"
INSTALLERS = {
    "rke2": "var/lib/rancher/rke2/server/manifests",
    "k3s": "var/lib/rancher/k3s/server/manifests",
}
"""Programs that install what is in a folder of the server, and the folder."""
OTHER_NODES = {"rke2": "images import", "kubeadm": "/var/lib/rancher"}
"""Texts in the examples that copy the image to nodes of another program."""


def name_of(page: Path) -> str:
    return str(page.relative_to(DOCS))


@pytest.mark.parametrize("page", [*PAGES, ROOT / "README.md", ROOT / "CONTRIBUTING.md"], ids=lambda page: page.name)
def test_commands_are_valid_shell(page: Path) -> None:
    for block in code_blocks(page.read_text(encoding="utf-8"), "sh"):
        done = subprocess.run(["bash", "-n", "-c", block], check=False, capture_output=True, text=True)
        assert done.returncode == 0, f"{block}\n{done.stderr}"


@pytest.mark.parametrize("page", sorted(INSTALLATION.glob("*.md")), ids=lambda page: page.stem)
def test_nothing_is_written_with_names_that_the_shell_does_not_know(page: Path, tmp_path: Path) -> None:
    """A reader who comes back with a new shell gets an error, and no cluster or image without a name."""
    (tmp_path / "out").mkdir()
    (tmp_path / "deploy").symlink_to(ROOT / "deploy")
    for block in commands_of(page):
        if "registry.example.org/harvester-ccm#" in block or "CLUSTER-NAME#$" in block:
            done = subprocess.run(
                ["bash", "-c", block], check=False, cwd=tmp_path, env={"PATH": os.defpath}, capture_output=True
            )
            assert b"parameter null or not set" in done.stderr, block
            assert not any(file.stat().st_size for file in (tmp_path / "out").iterdir())


@pytest.fixture
async def reader(tmp_path: Path, guest: ControlPlane, harvester: ControlPlane) -> AsyncIterator[PageRunner]:
    """A reader, whose clusters contain nothing before and after the test."""
    namespace = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "my-namespace"}}
    harvester.apply(namespace)
    try:
        async with PageRunner(tmp_path, guest, harvester) as runner:
            yield runner
    finally:
        clear(guest, harvester)


def clear(guest: ControlPlane, harvester: ControlPlane) -> None:
    """Remove what a page left behind."""
    remove(guest.admin, SERVICE)
    remove(guest.admin, "/apis/apps/v1/namespaces/default/deployments/web")
    for path in (f"{LOAD_BALANCERS}/{entry['metadata']['name']}" for entry in items(harvester.admin, LOAD_BALANCERS)):
        remove(harvester.admin, path)
    remove(harvester.admin, POOL)
    run_helm("uninstall", RELEASE, "--ignore-not-found", "--namespace", NAMESPACE, kubeconfig=guest.admin_kubeconfig)
    kubectl: list[str | Path] = [require("kubectl")["kubectl"], "--kubeconfig", guest.admin_kubeconfig]
    manifest = ROOT / "deploy" / "manifests" / "kubeadm.yaml"
    subprocess.run([*kubectl, "delete", "--ignore-not-found", "-f", manifest], check=True, capture_output=True)
    for path in ("secrets/cloud-config", "configmaps/harvester-nad-mapping"):
        remove(guest.admin, f"/api/v1/namespaces/{NAMESPACE}/{path}")
    remove(guest.admin, f"/apis/coordination.k8s.io/v1/namespaces/{NAMESPACE}/leases/cloud-controller-manager")


def items(client: RestClient, path: str) -> list[dict[str, dict[str, str]]]:
    found: list[dict[str, dict[str, str]]] = client.request("GET", path)["items"]
    return found


def remove(client: RestClient, path: str) -> None:
    try:
        client.request("PATCH", path, body={"metadata": {"finalizers": None}})
        client.request("DELETE", path)
    except RefusedError:
        # It was never created, or is gone by now.
        return


async def follow(
    reader: PageRunner, page: str, *sections: str, without: str = "", changes: Mapping[str, str] | None = None
) -> str:
    """Run the examples of a page, or of some sections; return all output.

    ``without``: a text in the examples that are for other readers; ``changes``: what this reader replaces.
    """
    output = []
    for section in sections or ("",):
        for block in commands_of(INSTALLATION / f"{page}.md", section=section):
            if without and without in block:
                continue
            output.append(await reader.run(block, changes=changes))
            if page == "finish" and "> out/ippool.yaml" in block:
                reader.edit_pool()
            if page in INSTALLERS and f"https://get.{page}.io" in block:
                # The program installs what is in its folder when it starts.
                await reader.install_manifest(reader.node / INSTALLERS[page] / "harvester-ccm.yaml")
    return "".join(output)


async def prepare(reader: PageRunner, *sections: str, without_registry_on: str = "") -> None:
    """Follow the first steps; ``without_registry_on``: the program on whose nodes the image is copied."""
    image = "Without a registry" if without_registry_on else "With a registry"
    await follow(reader, "prepare", CHECKOUT, image, *sections, without=OTHER_NODES.get(without_registry_on, ""))


async def install_on_rke2(reader: PageRunner) -> None:
    await prepare(reader, CREDENTIAL, MANIFEST)
    await follow(reader, "rke2", "Create the cluster")


async def install_on_rke2_without_a_registry(reader: PageRunner) -> None:
    await prepare(reader, CREDENTIAL, MANIFEST, without_registry_on="rke2")
    await follow(reader, "rke2", "Create the cluster")
    assert (reader.node / "var/lib/rancher/rke2/agent/images/harvester-ccm.tar").is_file()


async def install_on_k3s(reader: PageRunner) -> None:
    await prepare(reader, CREDENTIAL, MANIFEST)
    await follow(reader, "k3s", "Without Rancher")


async def paste_into_rancher(reader: PageRunner) -> None:
    """RKE2 with Rancher and this chart, K3s with Rancher: the manifest is pasted into a form."""
    await prepare(reader, CREDENTIAL, MANIFEST)
    await reader.install_manifest(reader.checkout / "out" / "harvester-ccm.yaml")


async def change_only_the_image(reader: PageRunner) -> None:
    """RKE2 with Rancher: RKE2 installs its chart with the values on the page; Rancher has created the credential."""
    await prepare(reader)
    page = (INSTALLATION / "rke2-rancher.md").read_text(encoding="utf-8")
    (fragment,) = [yaml.safe_load(block) for block in code_blocks(page, "yaml")]
    values = reader.directory / "values-of-rke2.yaml"
    values.write_text(yaml.safe_dump(fragment["chartValues"][RELEASE]))
    chart = write_published_chart(reader.directory / "published", NEWEST)
    await reader.run(
        f"KUBECONFIG=~/Downloads/local.yaml deploy/generate_addon.sh -o $WORK/rancher $CLUSTER $NAMESPACE\n"
        "kubectl -n kube-system create secret generic cloud-config"
        " --from-file=cloud-config=$WORK/rancher/cloud-config\n"
        f"helm install {RELEASE} {chart} -n kube-system -f {values} --set global.cattle.clusterName=$CLUSTER"
    )


async def install_with_kubeadm(reader: PageRunner) -> None:
    await prepare(reader, CREDENTIAL)
    await follow(reader, "kubeadm-talos")


async def install_with_kubeadm_without_a_registry(reader: PageRunner) -> None:
    await prepare(reader, CREDENTIAL, without_registry_on="kubeadm")
    await follow(reader, "kubeadm-talos", "kubeadm", "Install")
    assert "ssh root@192.0.2.11 ctr -n k8s.io images import -" in reader.recorded


async def install_on_talos(reader: PageRunner) -> None:
    await prepare(reader, CREDENTIAL)
    await follow(reader, "kubeadm-talos", "Talos", "Install", changes={"kubeadm.yaml": "talos.yaml"})


async def install_on_k3s_without_its_helm_controller(reader: PageRunner) -> None:
    await prepare(reader, CREDENTIAL)
    for block in commands_of(INSTALLATION / "k3s.md", section="Without Rancher"):
        await reader.run(re.sub(r"scp out/harvester-ccm.yaml \\\n.*\n", "", block))
    await follow(reader, "kubeadm-talos", "K3s without its Helm controller")
    await follow(reader, "kubeadm-talos", "Install", without="create secret", changes={"kubeadm.yaml": "k3s.yaml"})


async def install_with_helm(reader: PageRunner) -> None:
    await prepare(reader, CREDENTIAL)
    await follow(reader, "helm")


async def install_on_rke1(reader: PageRunner) -> None:
    await prepare(reader, CREDENTIAL)
    await follow(reader, "rke1")
    cluster = yaml.safe_load((reader.checkout / "out" / "rke1-addons.yaml").read_text())
    assert cluster["cloud_provider"] == {"name": "external"}
    (reader.directory / "addons.yaml").write_text(cluster["addons"])
    await reader.run("kubectl apply -f $WORK/addons.yaml")


@pytest.mark.apiserver
@pytest.mark.parametrize(
    "install",
    [
        install_on_rke2,
        pytest.param(install_on_rke2_without_a_registry, marks=pytest.mark.thorough),
        install_on_k3s,
        paste_into_rancher,
        change_only_the_image,
        pytest.param(install_with_kubeadm, marks=pytest.mark.thorough),
        install_with_kubeadm_without_a_registry,
        install_on_talos,
        install_on_k3s_without_its_helm_controller,
        install_with_helm,
        install_on_rke1,
    ],
    ids=lambda install: str(install.__name__),
)
async def test_pages_lead_from_an_empty_folder_to_a_response(
    reader: PageRunner, install: Callable[[PageRunner], Awaitable[None]]
) -> None:
    await install(reader)
    output = await follow(reader, "finish")

    assert "READY: " in output.partition("NOT READY")[0], output
    deployment = reader.guest.admin.request("GET", DEPLOYMENT)
    (container,) = deployment["spec"]["template"]["spec"]["containers"]
    is_pushed = f"docker push {IMAGE}" in reader.recorded
    assert container["image"] == (IMAGE if is_pushed else f"localhost/harvester-ccm:v{__version__}-ccm")
    assert "--cluster-name=my-cluster" in container["args"]
    (request,) = [line for line in reader.recorded if line.startswith("curl ") and "http://" in line]
    assert f" http://{ADDRESSES}." in request
    kubeconfig = reader.checkout / "out" / "kubeconfig"
    if install in (install_on_rke2, install_on_k3s):
        assert stat.S_IMODE(kubeconfig.stat().st_mode) == 0o600


def removal_of(way: str) -> str:
    """Return the command of the page that deletes what was installed in a way."""
    page = (INSTALLATION / "upgrade-uninstall.md").read_text(encoding="utf-8")
    (command,) = re.findall(rf"^ *\| {re.escape(way)} \| `(\S[^`]+)` \|$", page, re.MULTILINE)
    return str(command)


@pytest.mark.apiserver
@pytest.mark.parametrize(
    ("install", "way", "kept"),
    [
        (install_with_helm, "Helm, Rancher's Apps", set()),
        (install_with_kubeadm, "plain manifests", {"init.yaml", "join.yaml", "kubeconfig"}),
    ],
    ids=["helm", "manifests"],
)
async def test_uninstall_page_leaves_nothing(
    reader: PageRunner, install: Callable[[PageRunner], Awaitable[None]], way: str, kept: set[str]
) -> None:
    await install(reader)
    await follow(reader, "finish")
    commands = commands_of(INSTALLATION / "upgrade-uninstall.md", section="Uninstall")
    cleanup = [block for block in commands if "harvester-ccm cleanup" in block]
    for block in commands:
        if block in cleanup:
            continue
        await reader.run(block, changes={"NAMESPACE NAME": "default web"})
        if "harvester-ccm status" in block:
            # Step 2 has a command for each way to install.
            await reader.run(removal_of(way))

    assert items(reader.harvester.admin, LOAD_BALANCERS) == []
    for path in (DEPLOYMENT, SERVICE, f"/api/v1/namespaces/{NAMESPACE}/secrets/cloud-config"):
        assert reader.guest.admin.get_or_none(path) is None
    account = "/api/v1/namespaces/my-namespace/serviceaccounts/my-cluster"
    for path in (account, POOL):
        assert reader.harvester.admin.get_or_none(path) is None
    left = {file.name for file in (reader.checkout / "out").iterdir()}
    assert left == {"ippool.yaml", *kept}, "no credential for Harvester is left"


@pytest.mark.apiserver
async def test_load_balancers_are_deleted_after_the_controller(reader: PageRunner) -> None:
    """Of a cluster that is gone; the load balancers of another one stay."""
    for name, cluster in (("web", "my-cluster"), ("other", "other-cluster")):
        label = {"cloudprovider.harvesterhci.io/cluster": cluster}
        metadata = {"name": name, "namespace": "my-namespace", "labels": label}
        spec = {"ipam": "dhcp", "workloadType": "cluster"}
        kind = {"apiVersion": "loadbalancer.harvesterhci.io/v1beta1", "kind": "LoadBalancer"}
        # The webhook of the emulated Harvester responds in this loop.
        await asyncio.to_thread(reader.harvester.apply, {**kind, "metadata": metadata, "spec": spec})
    (block,) = commands_of(INSTALLATION / "upgrade-uninstall.md", section="Services remain after the controller")
    output = await reader.run(block)

    assert "web" in output
    left = [entry["metadata"]["name"] for entry in items(reader.harvester.admin, LOAD_BALANCERS)]
    assert left == ["other"]


@pytest.mark.apiserver
async def test_migration_page_replaces_the_go_provider(reader: PageRunner, tmp_path: Path) -> None:
    """From the newest published chart, and back."""
    chart = write_published_chart(tmp_path / "published", NEWEST)
    await follow(reader, "prepare", CHECKOUT)
    credential = "KUBECONFIG=~/Downloads/local.yaml deploy/generate_addon.sh -o out my-cluster my-namespace"
    secret = "kubectl -n kube-system create secret generic cloud-config --from-file=cloud-config=out/cloud-config"
    await reader.run(f"{credential}\n{secret}")
    await reader.run(
        f"helm install {RELEASE} {chart} -n kube-system --set global.cattle.clusterName=my-cluster"
        " --set cloudConfig.secretName=cloud-config"
    )
    page = INSTALLATION / "migrate.md"
    for block in commands_of(page, section="Prepare"):
        # Without a controller that leads, the command ends with 1; the Go provider does not run here.
        await reader.run(block.replace("harvester-ccm status", "! harvester-ccm status"))
    assert not (reader.checkout / "out" / "rehearsal").exists(), "the credential of the rehearsal is gone"
    await follow(reader, "prepare", "With a registry")
    for block in commands_of(page, section="Helm or Rancher's Apps"):
        await reader.run(block)
    deployment = reader.guest.admin.request("GET", DEPLOYMENT)
    (container,) = deployment["spec"]["template"]["spec"]["containers"]
    assert container["image"] == IMAGE
    for block in commands_of(page, section="Verify"):
        await reader.run(block)
    await follow(reader, "upgrade-uninstall", "Upgrade")
    deployment = reader.guest.admin.request("GET", DEPLOYMENT)
    (container,) = deployment["spec"]["template"]["spec"]["containers"]
    assert container["image"] == IMAGE, "an upgrade keeps the values"
    await reader.run("helm rollback harvester-cloud-provider -n kube-system 1")


@pytest.mark.apiserver
async def test_migration_page_replaces_a_deployment_with_another_selector(reader: PageRunner) -> None:
    """Cluster API and the add-on of RKE1: a Deployment of this name, with the labels of other manifests."""
    await prepare(reader, CREDENTIAL)
    await reader.run("kubectl -n kube-system create deployment harvester-cloud-provider --image=rancher/go-provider")
    await follow(reader, "migrate", "Cluster API, RKE1 add-on")
    await follow(reader, "kubeadm-talos", "Install")
    deployment = reader.guest.admin.request("GET", DEPLOYMENT)
    (container,) = deployment["spec"]["template"]["spec"]["containers"]
    assert container["image"] == IMAGE


HELM_CHART_CONFIGS = "/apis/helm.cattle.io/v1/namespaces/kube-system/helmchartconfigs"
HELM_CHART_CONFIG_CRD: Json = {
    "apiVersion": "apiextensions.k8s.io/v1",
    "kind": "CustomResourceDefinition",
    "metadata": {"name": "helmchartconfigs.helm.cattle.io"},
    "spec": {
        "group": "helm.cattle.io",
        "names": {"kind": "HelmChartConfig", "plural": "helmchartconfigs", "singular": "helmchartconfig"},
        "scope": "Namespaced",
        "versions": [
            {
                "name": "v1",
                "served": True,
                "storage": True,
                "schema": {
                    "openAPIV3Schema": {
                        "type": "object",
                        "properties": {
                            "spec": {
                                "type": "object",
                                "properties": {
                                    "valuesContent": {"type": "string"},
                                    "failurePolicy": {"type": "string"},
                                },
                            }
                        },
                    }
                },
            }
        ],
    },
}
"""The definition that RKE2 brings."""


@pytest.mark.apiserver
@pytest.mark.parametrize("values", ["", "global:\n  cattle:\n    clusterName: demo", "logLevel: '4' # quoted: $HOME\n"])
async def test_image_is_added_to_the_values_of_rke2(reader: PageRunner, values: str) -> None:
    """Without Rancher: the values that are there stay, and no other field of the object changes."""
    reader.guest.apply(HELM_CHART_CONFIG_CRD)
    path = f"{HELM_CHART_CONFIGS}/harvester-cloud-provider"
    if values:
        kind = {"apiVersion": "helm.cattle.io/v1", "kind": "HelmChartConfig"}
        metadata = {"name": "harvester-cloud-provider", "namespace": NAMESPACE}
        spec = {"valuesContent": values, "failurePolicy": "abort"}
        reader.guest.apply({**kind, "metadata": metadata, "spec": spec})
    await prepare(reader)
    try:
        await follow(reader, "rke2", "Image only")
        spec = reader.guest.admin.request("GET", path)["spec"]
    finally:
        remove(reader.guest.admin, path)
    image = {"repository": REPOSITORY, "tag": f"v{__version__}-ccm"}
    assert yaml.safe_load(spec["valuesContent"]) == {**(yaml.safe_load(values) or {}), "image": image}
    assert spec.get("failurePolicy") == ("abort" if values else None)


RECOVERY = DOCS / "operations" / "disaster-recovery.md"
ENTRY = f"{ADDRESSES}.15"
FINALIZER = "service.kubernetes.io/load-balancer-cleanup"


@pytest.mark.apiserver
async def test_entry_of_a_pool_is_released(reader: PageRunner) -> None:
    """The entry of a load balancer that does not exist, in a pool with another one."""
    pool = {
        "apiVersion": "loadbalancer.harvesterhci.io/v1beta1",
        "kind": "IPPool",
        "metadata": {"name": "cluster-addresses"},
        "spec": {"ranges": [{"subnet": f"{ADDRESSES}.0/24"}], "selector": {}},
        "status": {
            "allocated": {ENTRY: "my-namespace/gone", f"{ADDRESSES}.16": "my-namespace/web"},
            "available": 250,
            "lastAllocated": ENTRY,
            "total": 252,
        },
    }
    # The webhook of the emulated Harvester responds in this loop.
    await asyncio.to_thread(reader.harvester.apply, pool)
    output = ""
    for block in commands_of(RECOVERY, section="Release an entry of a pool"):
        output += await reader.run(block, changes={"POOL": "cluster-addresses", "ADDRESS": ENTRY})

    assert "my-namespace/gone" in output
    assert reader.harvester.admin.request("GET", POOL)["status"]["allocated"] == {f"{ADDRESSES}.16": "my-namespace/web"}


@pytest.mark.apiserver
async def test_services_are_released_without_harvester(reader: PageRunner) -> None:
    """Only Services that are being deleted and have no other finalizer."""
    services = {"web": [FINALIZER], "kept": [FINALIZER], "other": [FINALIZER, "example.com/other"]}
    for name, finalizers in services.items():
        metadata = {"name": name, "namespace": "default", "finalizers": finalizers}
        spec = {"type": "LoadBalancer", "ports": [{"port": 80}]}
        reader.guest.apply({"apiVersion": "v1", "kind": "Service", "metadata": metadata, "spec": spec})
    path = "/api/v1/namespaces/default/services"
    for name in ("web", "other"):
        reader.guest.admin.request("DELETE", f"{path}/{name}")
    try:
        for block in commands_of(RECOVERY, section="Harvester is lost permanently"):
            await reader.run(block)
        assert reader.guest.admin.get_or_none(f"{path}/web") is None
        assert reader.guest.admin.request("GET", f"{path}/other")["metadata"]["finalizers"] == services["other"]
        assert reader.guest.admin.request("GET", f"{path}/kept")["metadata"]["finalizers"] == [FINALIZER]
    finally:
        for name in services:
            remove(reader.guest.admin, f"{path}/{name}")


@pytest.mark.apiserver
async def test_clone_gives_up_its_address(reader: PageRunner) -> None:
    metadata = {"name": "web", "namespace": "default"}
    spec = {"type": "LoadBalancer", "ports": [{"port": 80}]}
    reader.guest.apply({"apiVersion": "v1", "kind": "Service", "metadata": metadata, "spec": spec})
    status = {"loadBalancer": {"ingress": [{"ip": ENTRY}]}}
    reader.guest.admin.request("PATCH", f"{SERVICE}/status", body={"status": status})
    blocks = [block for block in commands_of(RECOVERY) if "--subresource=status" in block]
    assert blocks
    for block in blocks:
        await reader.run(block, changes={"NAMESPACE NAME": "default web"})
    assert reader.guest.admin.request("GET", SERVICE)["status"]["loadBalancer"] == {}


def examples_of(*groups: str) -> list[tuple[str, str]]:
    """Return the YAML examples of all pages with only objects of these API groups, with the name of the page."""
    found = []
    for page in PAGES:
        for block in code_blocks(page.read_text(encoding="utf-8"), "yaml"):
            documents = [document for document in yaml.safe_load_all(block) if document]
            versions = {document.get("apiVersion", "") if isinstance(document, dict) else "" for document in documents}
            if versions and all(version.startswith(groups) for version in versions):
                found.append((name_of(page), block))
    return found


@pytest.mark.apiserver
def test_examples_are_accepted_by_an_api_server(guest: ControlPlane, harvester: ControlPlane) -> None:
    """A field that does not exist is an error; placeholders are valid names but for those in capital letters."""
    harvester.apply({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "my-namespace"}})
    guest.apply({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "argocd"}})
    planes = ((guest, examples_of("v1")), (harvester, examples_of("loadbalancer.harvesterhci.io/")))
    for plane, examples in planes:
        assert examples
        for page, block in dict.fromkeys(examples):
            text = re.sub(r"\bBASE64-OF-\w+|\b[A-Z]+-[A-Z]+\b", "bmFtZQ==" if "BASE64" in block else "name", block)
            order = ["apply", "--dry-run=server", "--validate=strict", "-f", "-"]
            command: list[str | Path] = [require("kubectl")["kubectl"], "--kubeconfig", plane.admin_kubeconfig, *order]
            done = subprocess.run(command, check=False, input=text, capture_output=True, text=True)
            assert done.returncode == 0, f"{page}: {block}\n{done.stderr}"
