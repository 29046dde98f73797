"""The example files in deploy/: values render with the chart, and settings are those that each distribution needs."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import yaml

from devenv.helm import CHART, RELEASE, render_chart
from devenv.restclient import Json
from harvester_ccm import __version__

DEPLOY = Path(__file__).parents[2] / "deploy"
IMAGE = f"harvester/harvester-ccm:v{__version__}-ccm"


def documents(name: str) -> list[Json]:
    return [document for document in yaml.safe_load_all((DEPLOY / name).read_text()) if document]


def one(name: str, kind: str) -> Json:
    (found,) = [document for document in documents(name) if document.get("kind") == kind]
    return found


def rendered(values: str, directory: Path) -> Json:
    """The pod of the Deployment that the chart makes of the values."""
    file = directory / "values.yaml"
    file.write_text(values)
    objects = [document for document in yaml.safe_load_all(render_chart(values=[file])) if document]
    (deployment,) = [document for document in objects if document["kind"] == "Deployment"]
    assert deployment["metadata"]["name"] == RELEASE
    pod: Json = deployment["spec"]["template"]["spec"]
    return pod


def source(pod: Json) -> Json:
    """The volume with the kubeconfig for Harvester."""
    (volume,) = [entry for entry in pod["volumes"] if "secret" in entry or "hostPath" in entry]
    return dict(volume)


def test_image_in_helm_chart_config(tmp_path: Path) -> None:
    config = one("rke2/image-helmchartconfig.yaml", "HelmChartConfig")
    assert config["metadata"] == {"name": RELEASE, "namespace": "kube-system"}
    pod = rendered(config["spec"]["valuesContent"], tmp_path)
    assert pod["containers"][0]["image"] == IMAGE
    assert "--cluster-name=CLUSTER-NAME" in pod["containers"][0]["args"]


def test_image_in_chart_values(tmp_path: Path) -> None:
    (fragment,) = documents("rke2/image-chartvalues.yaml")
    values = yaml.safe_dump(fragment["chartValues"][RELEASE])
    assert rendered(values, tmp_path)["containers"][0]["image"] == IMAGE


@pytest.mark.parametrize("name", ["rke2/helmchart.yaml", "k3s/helmchart.yaml"])
def test_helm_chart_object(name: str, tmp_path: Path) -> None:
    chart = one(name, "HelmChart")
    spec = chart["spec"]
    released = yaml.safe_load((CHART / "Chart.yaml").read_text())
    assert chart["metadata"] == {"name": RELEASE, "namespace": "kube-system"}
    assert (spec["chart"], spec["version"]) == (released["name"], released["version"])
    assert spec["bootstrap"] is True
    assert spec["targetNamespace"] == "kube-system"
    pod = rendered(spec["valuesContent"], tmp_path)
    assert "--cluster-name=CLUSTER-NAME" in pod["containers"][0]["args"]


def test_credential_of_own_chart_on_rke2(tmp_path: Path) -> None:
    secret = one("rke2/helmchart.yaml", "Secret")
    volume = source(rendered(one("rke2/helmchart.yaml", "HelmChart")["spec"]["valuesContent"], tmp_path))
    assert volume["secret"]["secretName"] == secret["metadata"]["name"]
    assert {item["key"] for item in volume["secret"]["items"]} == set(secret["stringData"])


@pytest.mark.parametrize(("name", "whole"), [("k3s/helmchart.yaml", False), ("rke1/values.yaml", True)])
def test_credential_written_by_cloud_init(name: str, whole: bool, tmp_path: Path) -> None:
    values = (DEPLOY / name).read_text() if whole else one(name, "HelmChart")["spec"]["valuesContent"]
    assert source(rendered(values, tmp_path))["hostPath"]["path"] == "/etc/kubernetes/cloud-config"


def test_plan_of_terraform_names_the_image() -> None:
    """No parser of such plans is here; what changes with a release is the image."""
    plan = (DEPLOY.parent / "docs" / "install" / "terraform.md").read_text()
    assert re.findall(r'(?:repository|tag) += "(.*)"', plan) == IMAGE.split(":")


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


def test_registry_stands_in_for_the_one_that_images_come_from() -> None:
    (config,) = documents("rke2/registries.yaml")
    assert list(config["mirrors"]) == ["*"]


def test_package_names_the_released_chart() -> None:
    (package,) = documents("rke2/package.yaml")
    version = yaml.safe_load((CHART / "Chart.yaml").read_text())["version"]
    assert package["url"].endswith(f"/{RELEASE}-{version}.tgz")


def test_other_fragments() -> None:
    (cluster,) = documents("rke1/cluster.yaml")
    assert cluster["cloud_provider"] == {"name": "external"}
    repository = one("rancher/clusterrepo.yaml", "ClusterRepo")
    assert set(repository["spec"]) == {"gitRepo", "gitBranch"}


def test_objects_made_by_hand_are_what_harvester_knows() -> None:
    pool, balancer = one("harvester/ippool.yaml", "IPPool"), one("harvester/loadbalancer.yaml", "LoadBalancer")
    assert balancer["spec"]["ipPool"] == pool["metadata"]["name"]
    (listener,) = balancer["spec"]["listeners"]
    assert balancer["spec"]["healthCheck"]["port"] == listener["backendPort"]
    assert {scope["guestCluster"] for scope in pool["spec"]["selector"]["scope"]} == {"CLUSTER-NAME"}
