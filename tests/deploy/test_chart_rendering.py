"""What the chart renders: the committed snapshots, and the rules that RKE2, Rancher and old releases rely on."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest
import yaml

from devenv.helm import CHART, KUBERNETES, NAMESPACE, RELEASE, render_chart, run_helm
from devenv.manifests import CLUSTER_NAME, IMAGE, MANIFESTS, profiles, render_manifest
from devenv.process import DevenvError
from devenv.restclient import Json
from harvester_ccm import __version__
from tests.deploy.published import GENERATIONS, NEWEST, Generation, write_published_chart

HERE = Path(__file__).parent
CASES = sorted(file.stem for file in (HERE / "values").glob("*.yaml"))
RENEW = "HARVESTER_CCM_RENEW_SNAPSHOTS"
LOADER: type[yaml.SafeLoader | yaml.CSafeLoader] = yaml.CSafeLoader if yaml.__with_libyaml__ else yaml.SafeLoader
"""The one in C is seven times as fast."""
HOST_FILE = "/var/lib/rancher/rke2/etc/config-files/cloud-provider-config"


@cache
def rendered(*settings: str, case: str = "default") -> str:
    return render_chart(values=[HERE / "values" / f"{case}.yaml"], settings=settings)


@cache
def render(*settings: str, case: str = "default") -> list[Json]:
    return objects_of(rendered(*settings, case=case))


def objects_of(text: str) -> list[Json]:
    return [document for document in yaml.load_all(text, Loader=LOADER) if document]


def the(objects: list[Json], kind: str, name: str = "harvester-cloud-provider") -> Json:
    found = [one for one in objects if one["kind"] == kind and one["metadata"]["name"] == name]
    assert len(found) == 1, f"{len(found)} objects {kind} {name}"
    return found[0]


def pod(objects: list[Json]) -> Json:
    spec: Json = the(objects, "Deployment")["spec"]["template"]["spec"]
    return spec


def arguments(objects: list[Json]) -> list[str]:
    args: list[str] = pod(objects)["containers"][0]["args"]
    return args


def images(objects: list[Json]) -> Iterator[str]:
    for one in objects:
        for container in one.get("spec", {}).get("template", {}).get("spec", {}).get("containers", ()):
            yield container["image"]


@pytest.mark.parametrize("case", CASES)
def test_rendering_matches_snapshot(case: str) -> None:
    snapshot = HERE / "snapshots" / f"{case}.yaml"
    text = rendered(case=case)
    if os.environ.get(RENEW):
        snapshot.write_text(text)
    assert text == snapshot.read_text(), f"look at the difference, then run the tests once with {RENEW}=1"


def test_helm_finds_no_fault() -> None:
    for case in CASES:
        values = HERE / "values" / f"{case}.yaml"
        run_helm("lint", "--strict", CHART, "--namespace", "kube-system", "--values", values, *KUBERNETES)


@pytest.mark.parametrize("profile", profiles())
def test_static_manifests_are_current(profile: str) -> None:
    text = (MANIFESTS / f"{profile}.yaml").read_text()
    assert text == render_manifest(profile), "run python -m devenv.manifests"
    assert f"--cluster-name={CLUSTER_NAME}" in text
    assert f"image: {IMAGE}:v{__version__}-ccm" in text


def test_names_and_selectors_are_those_of_the_published_chart() -> None:
    objects = render()
    kinds = ("ServiceAccount", "ClusterRole", "ClusterRoleBinding", "Deployment")
    assert all(the(objects, kind) for kind in kinds)
    labels = {
        "app.kubernetes.io/name": "harvester-cloud-provider",
        "app.kubernetes.io/instance": "harvester-cloud-provider",
    }
    deployment = the(objects, "Deployment")
    assert deployment["spec"]["selector"] == {"matchLabels": labels}
    assert deployment["spec"]["template"]["metadata"]["labels"] == labels
    assert deployment["metadata"]["namespace"] == "kube-system"
    announcer = {name: "kube-vip" if name.endswith("/name") else value for name, value in labels.items()}
    assert the(objects, "DaemonSet", "kube-vip")["spec"]["selector"] == {"matchLabels": announcer}


def test_arguments_keep_their_order() -> None:
    expected = ["--cloud-config=/etc/kubernetes/cloud-config", "--cluster-name=prod", "--v=4"]
    assert arguments(render(case="marketplace")) == expected
    assert arguments(render()) == expected[:2]
    several = arguments(render("managementNetwork=a/b", "extraArgs={--v=2,--management-network=c/d}", case="rke2"))
    assert several == [*expected[:2], "--management-network=a/b", "--v=2", "--management-network=c/d"]


def test_cleared_globals_render() -> None:
    name = "extraArgs={--cluster-name=prod}"
    assert arguments(render("global=null", name)) == arguments(render())
    assert arguments(render("global.cattle=null", name)) == arguments(render())


@pytest.mark.parametrize(
    "setting", ["global.cattle.systemDefaultRegistry=reg.example.org", "global.systemDefaultRegistry=reg.example.org"]
)
def test_every_image_is_taken_from_the_registry(setting: str) -> None:
    found = list(images(render(setting)))
    assert len(found) == 2
    assert all(image.startswith("reg.example.org/") for image in found)


def test_image_is_overridable_as_rke2_does() -> None:
    objects = render("image.repository=rancher/harvester-cloud-provider", "image.tag=v9", case="rke2")
    assert pod(objects)["containers"][0]["image"] == "registry.example.org/rancher/harvester-cloud-provider:v9"
    assert pod(objects)["containers"][0]["command"] == ["harvester-cloud-provider"]


@pytest.mark.parametrize(
    ("settings", "path"),
    [
        ((), HOST_FILE),
        (("cloudConfigPath=/etc/kubernetes/cloud-config",), "/etc/kubernetes/cloud-config"),
        (("cloudConfigPath=", "cloudConfig.hostPath=/last"), "/last"),
    ],
)
def test_cloud_config_from_a_host_file_is_read_as_root_without_capabilities(
    settings: tuple[str, ...], path: str
) -> None:
    spec = pod(render(*settings))
    assert spec["volumes"][0] == {"name": "cloud-config", "hostPath": {"path": path, "type": "File"}}
    assert spec["securityContext"]["runAsUser"] == 0
    container = spec["containers"][0]
    assert container["volumeMounts"][0]["mountPath"] == "/etc/kubernetes/cloud-config"
    assert container["securityContext"]["capabilities"] == {"drop": ["ALL"]}
    assert container["securityContext"]["readOnlyRootFilesystem"] is True
    assert container["securityContext"]["allowPrivilegeEscalation"] is False


def test_cloud_config_from_a_secret_wins_runs_without_root_and_follows_changes() -> None:
    spec = pod(render("cloudConfig.secretName=s", "cloudConfig.secretKey=k"))
    secret = spec["volumes"][0]["secret"]
    assert secret["secretName"] == "s"
    assert secret["items"] == [{"key": "k", "path": "cloud-config"}]
    assert spec["securityContext"]["runAsNonRoot"] is True
    assert spec["securityContext"]["runAsUser"] != 0
    mount = spec["containers"][0]["volumeMounts"][0]
    assert mount == {"name": "cloud-config", "mountPath": "/etc/kubernetes", "readOnly": True}
    assert (
        pod(render("cloudConfig.secretName=s", "podSecurityContext.runAsUser=7"))["securityContext"]["runAsUser"] == 7
    )


def test_checksum_changes_with_the_source() -> None:
    def checksum(*settings: str) -> str:
        template = the(render(*settings), "Deployment")["spec"]["template"]
        found: str = template["metadata"]["annotations"]["checksum/cloud-config"]
        return found

    assert checksum() == checksum("replicasCount=2")
    assert len({checksum(), checksum("cloudConfigPath=/x"), checksum("cloudConfig.secretName=s")}) == 3


def test_without_a_source_the_message_says_what_to_set() -> None:
    with pytest.raises(DevenvError, match=r"cloudConfig\.secretName .* or cloudConfigPath or cloudConfig\."):
        render("cloudConfigPath=", "cloudConfig.hostPath=")


@pytest.mark.parametrize(
    "wrong",
    [
        pytest.param(
            {
                "logLevel=11": "/logLevel",
                "replicasCount=many": "/replicasCount",
                "cloudConfigPath=etc/config": "/cloudConfigPath",
                "image.digest=latest": "/image/digest",
                "extraArgs=--v=4": "/extraArgs",
                "image.tag=110": "/image/tag",
                "image.repository=https://reg.example.org/ccm": "/image/repository",
                "global.systemDefaultRegistry=https://reg.example.org": "/global/systemDefaultRegistry",
                "global.cattle.systemDefaultRegistry=http://reg.example.org": "/global/cattle/systemDefaultRegistry",
                "cloudConfig.secretName=My Secret": "/cloudConfig/secretName",
                "serviceAccount.name=my_account": "/serviceAccount/name",
                "controllers={loadbalancer}": "/controllers/0",
                "nodeIPCIDR=192.0.2.0/99": "/nodeIPCIDR",
                "kube-vip.runOn=some": "/kube-vip/runOn",
                "kube-vip.tolerations.key=x": "/kube-vip/tolerations",
                "kube-vip.image.repository=ghcr.io/kube-vip/kube-vip:v1": "/kube-vip/image/repository",
            },
            id="each",
        ),
        pytest.param(
            {
                "extraArgs[0]=5": "/extraArgs/0",
                "image.tag=a b": "/image/tag",
                "image.repository=example/ccm:v1": "/image/repository",
                "cloudConfig.secretName=kube-system/cloud-config": "/cloudConfig/secretName",
            },
            id="otherwise",
        ),
    ],
)
def test_schema_names_every_wrong_value_and_no_other(wrong: dict[str, str]) -> None:
    with pytest.raises(DevenvError) as caught:
        render(*wrong)
    assert set(re.findall(r"at '(.*?)': (?!validation failed)", str(caught.value))) == set(wrong.values())


@pytest.mark.parametrize(
    ("setting", "message"),
    [
        ("extraArgs={v=4}", '"v=4" is no flag and follows none that waits for a value: write --name=value'),
        ("extraArgs={--v=4,x}", '"x" is no flag'),
        ("extraArgs={--v 4}", '"--v 4" has a flag and its value in one item: write --name=value'),
        ("extraArgs={--v=4 --leader-elect=false}", "has more than one flag: write one per item"),
    ],
)
def test_words_that_are_no_flags_are_named(setting: str, message: str) -> None:
    with pytest.raises(DevenvError, match=re.escape(message)):
        render(setting)


def test_flags_are_taken_in_every_form_that_the_program_reads() -> None:
    args = ["-v=5", "-v", "five", "--secure-port", "1030x", " --leader-elect=false ", "--controllers=-a,*"]
    escaped = ",".join(arg.replace(",", "\\,") for arg in args)
    objects = render(f"extraArgs={{{escaped}}}")
    assert arguments(objects)[2:] == [arg.strip() for arg in args]
    assert pod(objects)["containers"][0]["ports"][0]["containerPort"] == "1030x"


def test_values_of_the_published_chart_are_taken() -> None:
    spec = pod(
        render(
            "image.pullPolicy=",
            "image.repository=reg.example.org:5000/team/ccm",
            "image.tag=v1.0.0",
            "global.cattle.systemDefaultRegistry=reg.example.org:5000/mirror/",
            "nodeIPCIDR=192.0.2.7\\, 2001:db8::/64",
            "controllers={*,-node-route-controller}",
            "serviceAccount.create=true",
            "podAnnotations.checked=true",
            "deploymentAnnotations.number=7",
        )
    )
    assert spec["containers"][0]["args"][2:] == [
        "--node-ip-cidr=192.0.2.7, 2001:db8::/64",
        "--controllers=*,-node-route-controller",
    ]


def test_annotations_are_text() -> None:
    template = the(render("podAnnotations.checked=true"), "Deployment")["spec"]["template"]
    assert template["metadata"]["annotations"]["checked"] == "true"


@pytest.mark.parametrize(
    "settings",
    [
        ("image.repository=rancher/harvester-cloud-provider",),
        ("image.repository=rancher/harvester-cloud-provider", "image.tag=v0.2.9-rc1"),
        ("image.repository=reg.example.org:5000/rancher/harvester-cloud-provider", "image.tag=v0.1.0"),
        ("image.repository=rancher/harvester-cloud-provider", "image.tag=master-head"),
    ],
)
def test_image_of_the_go_provider_is_refused(settings: tuple[str, ...]) -> None:
    """Its values come with ``helm upgrade --reuse-values``; it would run with rights that are not enough for it."""
    with pytest.raises(DevenvError, match=r"is the Go provider's.*--reset-then-reuse-values"):
        render(*settings)


@pytest.mark.parametrize("tag", ["v0.1.0-ccm", "own"])
def test_mirror_under_the_name_of_the_go_provider_is_taken(tag: str) -> None:
    objects = render("image.repository=reg.example.org/rancher/harvester-cloud-provider", f"image.tag={tag}")
    assert pod(objects)["containers"][0]["image"].endswith(f"/harvester-cloud-provider:{tag}")


def test_tag_is_never_one_of_the_go_provider() -> None:
    assert pod(render())["containers"][0]["image"] == f"{IMAGE}:v{__version__}-ccm"


@pytest.mark.parametrize("generation", GENERATIONS, ids=lambda one: one.chart)
def test_published_charts_are_upgraded_in_place(generation: Generation, tmp_path: Path) -> None:
    """What cannot be changed in place is the same, and kube-vip is restarted where the page says so."""
    chart = write_published_chart(tmp_path, generation)
    text = run_helm("template", RELEASE, chart, "--namespace", NAMESPACE)
    published, ours = objects_of(text), render()
    assert the(published, "Deployment")["spec"]["selector"] == the(ours, "Deployment")["spec"]["selector"]
    if generation.kube_vip:
        old, new = (the(objects, "DaemonSet", "kube-vip")["spec"] for objects in (published, ours))
        assert old["selector"] == new["selector"]
        assert (old["template"] == new["template"]) is (generation is NEWEST)
    upstream = f"0.2.{int(NEWEST.chart.rpartition('.')[2]) // 100}"
    for page in (CHART / "README.md", CHART.parents[2] / "docs" / "installation" / "migrate.md"):
        assert f"from {upstream} ({NEWEST.chart} in RKE2)" in " ".join(page.read_text().split())


@pytest.mark.parametrize(
    "values",
    [
        ["metrics", "podDisruptionBudget", "serviceAccount", "rbac", "image.tag"],
        ["metrics.serviceMonitor", "podDisruptionBudget.enabled", "podDisruptionBudget.maxUnavailable"],
        ["serviceAccount.create", "rbac.create", "rbac.nodeDeletion", "rbac.endpointSlices", "image.pullPolicy"],
        ["logLevel", "strategy", "extraArgs", "dnsPolicy", "podLabels"],
    ],
    ids=",".join,
)
def test_values_that_are_cleared_are_the_defaults(values: list[str]) -> None:
    assert render("replicasCount=2", *(f"{value}=null" for value in values)) == render("replicasCount=2")


def test_number_of_replicas_that_is_cleared_is_the_default() -> None:
    assert render("replicasCount=null") == render()


@pytest.mark.parametrize(
    ("switch", "kind"),
    [
        ("serviceAccount.create", "ServiceAccount"),
        ("rbac.create", "Role"),
        ("podDisruptionBudget.enabled", "PodDisruptionBudget"),
    ],
)
def test_what_is_switched_off_is_not_rendered(switch: str, kind: str) -> None:
    def names(*settings: str) -> set[tuple[str, str]]:
        objects = render("replicasCount=2", *settings)
        return {(one["kind"], one["metadata"]["name"]) for one in objects if "kube-vip" not in one["metadata"]["name"]}

    assert kind in {found for found, _ in names() - names(f"{switch}=false")}
    assert names(f"{switch}=false") - names() == set()


def test_lease_right_follows_its_flags() -> None:
    name = "harvester-cloud-provider-leader-election"
    flags = "extraArgs={--leader-elect-resource-name=mine,--leader-elect-resource-namespace=locks}"
    role = the(render(flags), "Role", name)
    leases = {"apiGroups": ["coordination.k8s.io"], "resources": ["leases"]}
    assert role["metadata"]["namespace"] == "locks"
    assert role["rules"] == [
        {**leases, "verbs": ["create"]},
        {**leases, "resourceNames": ["mine"], "verbs": ["get", "update"]},
    ]


def test_disruption_budget_only_with_more_than_one_replica() -> None:
    assert "PodDisruptionBudget" not in {one["kind"] for one in render()}
    budget = the(render(case="secret"), "PodDisruptionBudget")
    assert budget["spec"]["maxUnavailable"] == 1


def test_probes_and_metrics_follow_the_port() -> None:
    container = pod(render("extraArgs={--secure-port=10300,--bind-address=127.0.0.1}"))["containers"][0]
    assert container["ports"][0]["containerPort"] == 10300
    assert container["livenessProbe"]["httpGet"]["host"] == "127.0.0.1"
    closed = pod(render("extraArgs={--secure-port=0}"))["containers"][0]
    assert not {"ports", "livenessProbe", "readinessProbe", "startupProbe"} & set(closed)
    assert "livenessProbe" not in pod(render("probes.liveness=null"))["containers"][0]


def test_pod_tolerates_every_taint_of_a_starting_cluster() -> None:
    taints = {
        "node.cloudprovider.kubernetes.io/uninitialized",
        "node.kubernetes.io/not-ready",
        "node.kubernetes.io/network-unavailable",
        "node-role.kubernetes.io/control-plane",
        "node-role.kubernetes.io/controlplane",
        "node-role.kubernetes.io/etcd",
        "CriticalAddonsOnly",
        "cattle.io/os",
    }
    spec = pod(render())
    assert taints <= {one["key"] for one in spec["tolerations"]}
    assert spec["hostNetwork"] is True
    assert spec["dnsPolicy"] == "Default"


def test_kube_vip_is_a_condition_and_reads_no_secrets_unless_needed() -> None:
    assert "DaemonSet" not in {one["kind"] for one in render("kube-vip.enabled=false")}

    def secret_rule(*settings: str) -> bool:
        return any(one["kind"] == "Role" and one["metadata"]["name"] == "kube-vip" for one in render(*settings))

    assert not secret_rule()
    assert secret_rule("kube-vip.secretAccess=true")
    assert secret_rule("kube-vip.env.vip_wireguard=true")


def test_questions_keep_their_variables_and_defaults() -> None:
    questions = yaml.safe_load((CHART / "questions.yml").read_text())["questions"]
    values = yaml.safe_load((CHART / "values.yaml").read_text())
    for question in questions:
        value = values
        for key in question["variable"].split("."):
            value = value[key]
        assert question["default"] == value, question["variable"]
    variables = {question["variable"] for question in questions}
    assert {"cloudConfigPath", "cloudConfig.secretName", "cloudConfig.secretKey", "extraArgs"} <= variables


def test_chart_is_what_rancher_looks_for() -> None:
    chart = yaml.safe_load((CHART / "Chart.yaml").read_text())
    assert chart["name"] == "harvester-cloud-provider"
    major, minor, patch = map(int, chart["version"].split("."))
    assert (major, minor) == (0, 2), "outside of Harvester's >=0.0.1 <0.3.0"
    assert not str(patch).endswith("00"), "Rancher strips a trailing 00"
    annotations = chart["annotations"]
    assert annotations["catalog.cattle.io/upstream-version"] == chart["version"]
    assert annotations["catalog.cattle.io/namespace"] == "kube-system"
    assert annotations["catalog.cattle.io/release-name"] == "harvester-cloud-provider"
    assert chart["dependencies"][0]["condition"] == "kube-vip.enabled"
    oldest = re.fullmatch(r">= (\d+\.\d+)\.0-0", annotations["catalog.cattle.io/kube-version"])
    assert oldest is not None
    page = (CHART.parents[2] / "docs" / "reference" / "compatibility.md").read_text()
    assert f"| {oldest[1]} and later; only stable APIs are used |" in page


def test_chart_has_what_catalogues_show() -> None:
    chart = yaml.safe_load((CHART / "Chart.yaml").read_text())
    assert chart["kubeVersion"] == chart["annotations"]["catalog.cattle.io/kube-version"]
    repository = chart["home"]
    assert chart["sources"] == [repository]
    links = [link["url"] for link in yaml.safe_load(chart["annotations"]["artifacthub.io/links"])]
    pages = [url.removeprefix(f"{repository}/blob/main/") for url in links if "/blob/" in url]
    for file in [*pages, chart["icon"].removeprefix(f"{repository}/raw/main/")]:
        assert (CHART.parents[2] / file).is_file(), file
    shown = {one["image"] for one in yaml.safe_load(chart["annotations"]["artifacthub.io/images"])}
    assert shown == set(images(render()))
    assert (CHART / "app-readme.md").read_text().startswith("# ")


def test_helm_test_is_preflight_with_what_the_program_has() -> None:
    objects = render(case="everything")
    (test,) = (one for one in objects if one["kind"] == "Pod")
    (ours,) = test["spec"]["containers"]
    theirs = the(objects, "Deployment", "prod-ccm")["spec"]["template"]["spec"]
    assert test["metadata"]["annotations"]["helm.sh/hook"] == "test"
    assert ours["command"] == ["harvester-ccm", "preflight"]
    same = ("image", "args", "env", "securityContext", "volumeMounts")
    assert [ours[key] for key in same] == [theirs["containers"][0][key] for key in same]
    for key in ("serviceAccountName", "securityContext", "volumes", "tolerations", "hostNetwork"):
        assert test["spec"][key] == theirs[key]
    assert "app.kubernetes.io/name" not in test["metadata"]["labels"], "or the Deployment's Services select it"


UNKNOWN = {
    "cloudConfig.secretname=s": "cloudConfig.secretname",
    "image.registry=reg.example.org": "image.registry",
    "metrics.enabled=false": "metrics.enabled",
    "metrics.serviceMonitor.enable=true": "metrics.serviceMonitor.enable",
    "replicaCount=2": "replicaCount (write replicasCount)",
}
KNOWN = (
    "global.rke2DataDir=/data",
    "global.cattle.url=https://rancher.example.org",
    "global.cattle.windows.enabled=true",
    "kube-vip.env.vip_cidr=32",
    "kube-vip.extraArgs.log=5",
    "kube-vip.serviceAccount.name=q",
    "probes.liveness.initialDelaySeconds=5",
    "metrics.serviceMonitor.labels.release=prometheus",
    "clusterName=",
)
"""Keys of RKE2, Rancher and older charts, maps with free keys, and an empty value."""


def test_new_installation_fails_on_unknown_values_and_an_upgrade_continues() -> None:
    with pytest.raises(DevenvError, match=re.escape(f"no effect: {', '.join(UNKNOWN.values())}")):
        render(*UNKNOWN)
    assert "--cluster-name=prod" in upgraded(*UNKNOWN)
    assert "--cluster-name=prod" in arguments(render(*KNOWN))


@pytest.mark.parametrize("name", ["global=null", "global.cattle.clusterName="])
def test_new_installation_fails_without_a_cluster_name_and_an_upgrade_continues(name: str) -> None:
    with pytest.raises(DevenvError, match=r"global\.cattle\.clusterName is not set"):
        render(name)
    assert "--cluster-name" not in upgraded(name)
    assert "--cluster-name=kubernetes" in arguments(render("global.cattle.clusterName=kubernetes"))


def upgraded(*settings: str) -> str:
    words = [word for setting in settings for word in ("--set", setting)]
    values = HERE / "values" / "default.yaml"
    return run_helm("template", RELEASE, CHART, *KUBERNETES, "--is-upgrade", "--values", values, *words)


def test_image_has_no_default() -> None:
    """A name that the project does not own could be registered by a third party."""
    with pytest.raises(DevenvError, match=r"image\.repository is not set.*make image"):
        render("image.repository=")
    with pytest.raises(DevenvError, match=r"image\.repository is not set"):
        upgraded("image=null")


def test_notes_have_no_warning() -> None:
    """Nothing shows them under a HelmChart object, Argo CD or Rancher."""
    notes = (CHART / "templates" / "NOTES.txt").read_text()
    assert " if " not in notes
    assert not re.search("warn|note:", notes, re.IGNORECASE)


FREE = re.compile(
    r"global|.*\.(env|labels|tlsConfig|securityContext|updateStrategy|affinity)|probes\..*|metrics\..*\.authorization"
)
"""Maps that may hold anything, beside those that are empty by default and those at the top."""
CLOSED = ("image", "cloudConfig", "serviceAccount", "rbac", "probes", "podDisruptionBudget", "metrics")


def paths(values: Json, before: str = "") -> Iterator[str]:
    for key, value in values.items():
        path = before + key
        yield path
        if isinstance(value, dict) and not FREE.fullmatch(path) and (before or key in CLOSED):
            yield from paths(value, f"{path}.")


def test_every_value_is_known() -> None:
    values = yaml.safe_load((CHART / "values.yaml").read_text())
    text = (CHART / "templates" / "_checks.tpl").read_text()
    listed = re.search(r'define "hccm.knownValues" -}}(.*?){{- end', text, re.DOTALL)
    assert listed is not None
    assert set(listed[1].split()) == {*paths(values), "clusterName"}


@pytest.mark.parametrize("name", ["clusterName", "global.clusterName"])
def test_cluster_gets_no_other_name_than_the_one_that_was_meant(name: str) -> None:
    """Charts before 0.1.12 read the name there, and examples still show it; without one a cluster is ``kubernetes``."""
    with pytest.raises(
        DevenvError,
        match=r"keeps that name with global\.cattle\.clusterName=kubernetes\. "
        r".* write global\.cattle\.clusterName=prod\. .* formerClusterNames=\{kubernetes\}",
    ):
        render(f"{name}=prod", "global.cattle.clusterName=")
    assert "--cluster-name=stage" in arguments(render(f"{name}=prod", "global.cattle.clusterName=stage"))
    assert "--cluster-name=stage" in arguments(render(f"{name}=prod", "extraArgs={--cluster-name=stage}"))
    assert "--cluster-name" not in upgraded(f"{name}=kubernetes", "global.cattle.clusterName="), "it has that name"
