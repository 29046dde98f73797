"""The example files in deploy/: values render with the chart, and settings are those that each distribution needs."""

import re
from pathlib import Path

import yaml

from devenv.helm import CHART, RELEASE, run_helm
from devenv.manifests import IMAGE as REPOSITORY
from devenv.restclient import Json
from harvester_ccm import __version__

ROOT = Path(__file__).parents[2]
DEPLOY = ROOT / "deploy"
IMAGE = f"{REPOSITORY}:v{__version__}-ccm"


def documents(name: str) -> list[Json]:
    return [document for document in yaml.safe_load_all((DEPLOY / name).read_text()) if document]


def one(name: str, kind: str) -> Json:
    (found,) = [document for document in documents(name) if document.get("kind") == kind]
    return found


def rendered(values: str, directory: Path, chart: Path = CHART) -> Json:
    """The pod of the Deployment that the chart makes of the values."""
    file = directory / "values.yaml"
    file.write_text(values)
    text = run_helm("template", RELEASE, chart, "--namespace", "kube-system", "--values", file)
    objects = [document for document in yaml.safe_load_all(text) if document]
    (deployment,) = [document for document in objects if document["kind"] == "Deployment"]
    assert deployment["metadata"]["name"] == RELEASE
    pod: Json = deployment["spec"]["template"]["spec"]
    return pod


def test_image_in_chart_values(tmp_path: Path) -> None:
    (fragment,) = documents("rke2/image-chartvalues.yaml")
    values = fragment["chartValues"][RELEASE] | {"global": {"cattle": {"clusterName": "prod"}}}
    assert rendered(yaml.safe_dump(values), tmp_path)["containers"][0]["image"] == IMAGE


def test_plan_of_terraform_names_the_image() -> None:
    """No parser of such plans is here; what changes with a release is the image."""
    plan = (ROOT / "docs" / "installation" / "terraform.md").read_text()
    assert re.findall(r'(?:repository|tag) += "(.*)"', plan) == IMAGE.split(":")


def test_pages_and_examples_name_the_tag_of_this_version() -> None:
    files = [*(ROOT / "docs").rglob("*.md"), *DEPLOY.rglob("*.yaml")]
    tags = {tag for file in files for tag in re.findall(r"v\d+\.\d+\.\d+-ccm", file.read_text())}
    assert tags == {f"v{__version__}-ccm"}


def test_k3s_runs_no_cloud_controller_of_its_own() -> None:
    (plain,) = documents("k3s/config.yaml")
    (fragment,) = documents("k3s/rancher-cluster.yaml")
    everywhere = fragment["machineGlobalConfig"]
    assert plain["disable"] == everywhere["disable"] == ["servicelb"]
    assert plain["disable-cloud-controller"] is everywhere["disable-cloud-controller"] is True
    (selected,) = fragment["machineSelectorConfig"]
    assert plain["kubelet-arg"] == selected["config"]["kubelet-arg"] == ["cloud-provider=external"]


def test_rke2_with_own_chart_installs_no_other() -> None:
    (config,) = documents("rke2/config.yaml")
    assert config == {"cloud-provider-name": "external", "disable-cloud-controller": True}


def test_other_fragments() -> None:
    repository = one("rancher/clusterrepo.yaml", "ClusterRepo")
    assert set(repository["spec"]) == {"gitRepo", "gitBranch"}


def test_objects_made_by_hand_are_what_harvester_knows() -> None:
    pool, balancer = one("harvester/ippool.yaml", "IPPool"), one("harvester/loadbalancer.yaml", "LoadBalancer")
    assert balancer["spec"]["ipPool"] == pool["metadata"]["name"]
    (listener,) = balancer["spec"]["listeners"]
    assert balancer["spec"]["healthCheck"]["port"] == listener["backendPort"]
    assert {scope["guestCluster"] for scope in pool["spec"]["selector"]["scope"]} == {"CLUSTER-NAME"}
