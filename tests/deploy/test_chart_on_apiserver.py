"""The chart on a real API server: valid objects, installation, upgrades, and exact permissions."""

import re
import subprocess
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest
import yaml

from devenv.apiserver import ControlPlane
from devenv.binaries import require
from devenv.helm import CHART, NAMESPACE, RELEASE, render_chart, run_helm
from devenv.manifests import CLUSTER_NAME, IMAGE, MANIFESTS, profiles
from devenv.process import DevenvError
from devenv.restclient import Json, RestClient
from harvester_ccm import __version__
from harvester_ccm.commands.clusters import GUEST
from harvester_ccm.commands.permissions import permissions_of
from harvester_ccm.config import Settings
from harvester_ccm.flags import build_settings, parse_command_line
from harvester_ccm.names import LOAD_BALANCER_CLASS
from tests.deploy.published import GENERATIONS, NEWEST, SAME_KUBE_VIP, Generation, write_published_chart

pytestmark = pytest.mark.apiserver

HERE = Path(__file__).parent
CASES = sorted(file.stem for file in (HERE / "values").glob("*.yaml"))
DEPLOYMENT = f"/apis/apps/v1/namespaces/{NAMESPACE}/deployments/harvester-cloud-provider"
DAEMON_SET = f"/apis/apps/v1/namespaces/{NAMESPACE}/daemonsets/kube-vip"
TEST_POD = "harvester-cloud-provider-preflight"
UNCHECKED = "--disable-openapi-validation"
"""Saves half of the time of Helm; upgrades of published charts are validated."""
OURS = f"image.repository={IMAGE}"
NAMED = "global.cattle.clusterName=prod"
CONFIG = "--cloud-config=/etc/kubernetes/cloud-config"
ANNOUNCER = "--announcer=kube-vip"
VERBS = ("get", "list", "watch", "create", "update", "patch", "delete")
ROLES = "/apis/rbac.authorization.k8s.io/v1"


def apply_strictly(plane: ControlPlane, text: str) -> list[str]:
    command: list[str | Path] = [require("kubectl")["kubectl"], "--kubeconfig", plane.admin_kubeconfig]
    command += ["apply", "--server-side", "--force-conflicts", "--validate=strict", "-o", "name", "-f", "-"]
    done = subprocess.run(command, check=False, input=text, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    names: str = done.stdout
    return names.split()


def install(plane: ControlPlane, chart: Path, *settings: str, options: Sequence[str] = (UNCHECKED,)) -> str:
    arguments = [*options, *(argument for setting in settings for argument in ("--set", setting))]
    command: list[str | Path] = ["upgrade", "--install", RELEASE, chart, "--namespace", NAMESPACE, *arguments]
    return run_helm(*command, kubeconfig=plane.admin_kubeconfig)


@pytest.fixture
def release(guest: ControlPlane) -> Iterator[ControlPlane]:
    """A cluster without a release before and after the test."""
    yield guest
    run_helm("uninstall", RELEASE, "--namespace", NAMESPACE, kubeconfig=guest.admin_kubeconfig)


def test_every_object_is_accepted(guest: ControlPlane) -> None:
    """Each rendering is applied over the previous one, except for the immutable Pod of ``helm test``."""
    renderings = {case: render_chart(values=[HERE / "values" / f"{case}.yaml"]) for case in CASES}
    text = "---\n".join(one.replace(TEST_POD, f"{case}-preflight") for case, one in renderings.items())
    applied = apply_strictly(guest, text)
    assert len(applied) == len([document for document in yaml.safe_load_all(text) if document])
    remove(guest, text)


def test_static_manifests_are_accepted(guest: ControlPlane) -> None:
    text = "---\n".join((MANIFESTS / f"{profile}.yaml").read_text() for profile in profiles())
    applied = apply_strictly(guest, text.replace(CLUSTER_NAME, "prod"))
    assert applied.count("deployment.apps/harvester-cloud-provider") == len(profiles())
    remove(guest, text)


def remove(plane: ControlPlane, text: str) -> None:
    objects = [one for one in yaml.safe_load_all(text) if one]
    named = {
        (one["apiVersion"], one["kind"], one["metadata"].get("namespace"), one["metadata"]["name"]) for one in objects
    }
    for version, kind, namespace, name in named:
        plane.admin.request("DELETE", f"{plane.admin.collection_path(version, kind, namespace=namespace)}/{name}")


@pytest.mark.parametrize("generation", [GENERATIONS[2], SAME_KUBE_VIP, NEWEST], ids=lambda one: one.chart)
def test_upgrade_from_a_published_chart_keeps_every_object(
    release: ControlPlane, tmp_path: Path, generation: Generation
) -> None:
    install(release, write_published_chart(tmp_path, generation), "global.cattle.clusterName=prod")
    before = {path: release.admin.request("GET", path) for path in (DEPLOYMENT, DAEMON_SET)}
    original = before[DEPLOYMENT]["spec"]["template"]["spec"]["containers"][0]["image"]

    with pytest.raises(DevenvError, match=r"is the Go provider's.*Upgrade with --reset-then-reuse-values"):
        install(release, CHART, options=["--reuse-values"])
    with pytest.raises(DevenvError, match=r"image\.repository is not set"):
        install(release, CHART, options=["--reset-then-reuse-values"])
    install(release, CHART, OURS, options=["--reset-then-reuse-values"])  # with validation

    after = {path: release.admin.request("GET", path) for path in before}
    for path, old in before.items():
        assert after[path]["metadata"]["uid"] == old["metadata"]["uid"]
    assert after[DEPLOYMENT]["metadata"]["generation"] == 2
    # Without a new generation kube-vip is not restarted, and the announced addresses stay up.
    restarted = after[DAEMON_SET]["metadata"]["generation"] != before[DAEMON_SET]["metadata"]["generation"]
    assert restarted is (generation is not SAME_KUBE_VIP)
    pod = after[DEPLOYMENT]["spec"]["template"]["spec"]
    assert pod["containers"][0]["image"] == f"{IMAGE}:v{__version__}-ccm"
    assert pod["containers"][0]["args"] == [CONFIG, "--cluster-name=prod", ANNOUNCER]
    assert after[DEPLOYMENT]["spec"]["strategy"]["rollingUpdate"] == {"maxSurge": 0, "maxUnavailable": 1}
    assert pod["tolerations"][0]["operator"] == "Exists"
    assert release.admin.get_or_none(f"{ROLES}/namespaces/{NAMESPACE}/roles/kube-vip") is None

    run_helm("rollback", RELEASE, "1", "--namespace", NAMESPACE, kubeconfig=release.admin_kubeconfig)
    back = release.admin.request("GET", DEPLOYMENT)
    assert back["spec"]["template"]["spec"]["containers"][0]["image"] == original


def test_values_with_the_go_image_are_replaced_in_the_same_upgrade(release: ControlPlane, tmp_path: Path) -> None:
    mirror = "image.repository=reg.example.org/rancher/harvester-cloud-provider"
    install(release, write_published_chart(tmp_path, GENERATIONS[1]), mirror, "image.tag=v0.1.5")
    with pytest.raises(DevenvError, match=r"set image\.repository to your image .* and image\.tag to null"):
        install(release, CHART, options=["--reset-then-reuse-values"])
    install(release, CHART, OURS, "image.tag=null", options=["--reset-then-reuse-values", UNCHECKED])
    pod = release.admin.request("GET", DEPLOYMENT)["spec"]["template"]["spec"]
    assert pod["containers"][0]["image"] == f"{IMAGE}:v{__version__}-ccm"


def test_changed_secret_rolls_the_pod_at_the_next_upgrade(release: ControlPlane) -> None:
    def checksum() -> str:
        source = ("cloudConfig.secretName=harvester-kubeconfig", "cloudConfig.secretKey=kubeconfig")
        install(release, CHART, OURS, NAMED, *source)
        template = release.admin.request("GET", DEPLOYMENT)["spec"]["template"]
        found: str = template["metadata"]["annotations"]["checksum/cloud-config"]
        return found

    def secret(content: str) -> Json:
        metadata = {"name": "harvester-kubeconfig", "namespace": NAMESPACE}
        return {"apiVersion": "v1", "kind": "Secret", "metadata": metadata, "stringData": {"kubeconfig": content}}

    without = checksum()
    release.apply(secret("one"))
    first = checksum()
    assert first == checksum()
    release.apply(secret("two"))
    assert len({without, first, checksum()}) == 3


def test_installation_without_a_cluster_name_fails_and_an_upgrade_continues(
    release: ControlPlane, tmp_path: Path
) -> None:
    with pytest.raises(DevenvError, match=r"global\.cattle\.clusterName is not set"):
        install(release, CHART, OURS)
    install(release, write_published_chart(tmp_path), "cloudConfig.secretname=typo")
    install(release, CHART, OURS, options=["--reset-then-reuse-values", UNCHECKED])
    pod = release.admin.request("GET", DEPLOYMENT)["spec"]["template"]["spec"]
    assert pod["containers"][0]["args"] == [CONFIG, ANNOUNCER]


def test_notes_have_the_commands_for_the_release(guest: ControlPlane) -> None:
    options = ["--dry-run=client", "--namespace", "ccm", "--set", f"{OURS},{NAMED},fullnameOverride=x"]
    text = run_helm("install", "other", CHART, *options, kubeconfig=guest.admin_kubeconfig)
    assert re.findall("(?:kubectl|helm) .*", text.partition("NOTES:")[2]) == [
        "kubectl -n ccm rollout status deployment/x",
        "helm test other --namespace ccm",
        "kubectl -n ccm exec deployment/x -- harvester-ccm status",
    ]


KUBE_VIP_CLASS = "kube-vip.io/kube-vip-class"


def create_service(plane: ControlPlane, name: str, load_balancer_class: str | None) -> None:
    spec = {"type": "LoadBalancer", "loadBalancerClass": load_balancer_class, "ports": [{"port": 80}]}
    metadata = {"name": name, "namespace": "default"}
    plane.admin.request(
        "POST",
        "/api/v1/namespaces/default/services",
        body={"apiVersion": "v1", "kind": "Service", "metadata": metadata, "spec": spec},
    )


@pytest.fixture
def services(guest: ControlPlane) -> Iterator[set[str]]:
    """Services of each class, and one without a class; the set has their names."""
    classes = {"of-kube-vip": KUBE_VIP_CLASS, "ours": LOAD_BALANCER_CLASS, "other": "example.com/other", "plain": None}
    for name, load_balancer_class in classes.items():
        create_service(guest, name, load_balancer_class)
    names = set(classes)
    yield names
    for name in names:
        delete_service(guest, name)


def delete_service(plane: ControlPlane, name: str) -> None:
    plane.admin.request("DELETE", f"/api/v1/namespaces/default/services/{name}")


def served_class(plane: ControlPlane) -> str | None:
    """Return the variable lb_class_name of kube-vip; None without it."""
    container = plane.admin.request("GET", DAEMON_SET)["spec"]["template"]["spec"]["containers"][0]
    found: dict[str, str | None] = {variable["name"]: variable.get("value") for variable in container["env"]}
    return found.get("lb_class_name")


@pytest.mark.parametrize(
    "setting", ["kube-vip.harvesterClass=required", f"kube-vip.env.lb_class_name={LOAD_BALANCER_CLASS}"]
)
def test_class_of_kube_vip_changes_only_if_no_service_has_the_present_one(
    release: ControlPlane, services: set[str], setting: str
) -> None:
    """kube-vip serves one class, and would withdraw the addresses of Services with the former one."""
    refused = (
        rf"no longer announce Services with spec.loadBalancerClass {KUBE_VIP_CLASS}. There are 1: default/of-kube-vip\."
    )
    with pytest.raises(DevenvError, match=refused):
        install(release, CHART, OURS, NAMED, setting)
    install(release, CHART, OURS, NAMED)
    with pytest.raises(DevenvError, match=refused):
        install(release, CHART, OURS, NAMED, setting)
    assert served_class(release) is None

    delete_service(release, "of-kube-vip")
    install(release, CHART, OURS, NAMED, setting)
    assert served_class(release) == LOAD_BALANCER_CLASS

    # kube-vip does not serve a later one anyway, so a tenant cannot stop an upgrade with it.
    create_service(release, "of-kube-vip", KUBE_VIP_CLASS)
    install(release, CHART, OURS, NAMED, setting)
    with pytest.raises(DevenvError, match=rf"Services with spec.loadBalancerClass {LOAD_BALANCER_CLASS}. There are 1"):
        install(release, CHART, OURS, NAMED)
    assert served_class(release) == LOAD_BALANCER_CLASS

    delete_service(release, "ours")
    services.discard("ours")
    install(release, CHART, OURS, NAMED)
    assert served_class(release) is None


def test_other_classes_do_not_concern_an_installation_with_default_values(
    release: ControlPlane, services: set[str]
) -> None:
    for _ in range(2):
        install(release, CHART, OURS, NAMED)
    assert served_class(release) is None


def permissions(settings: Settings) -> Iterator[str]:
    """Yield the permissions that ``preflight`` checks: ``verb resource group namespace name``."""
    for one in permissions_of(GUEST, settings):
        parts = (one.verb, one.title, one.resource.group, *one.name(settings))
        yield " ".join(part or "-" for part in parts)


SETTINGS = build_settings(parse_command_line(["--cloud-config=x", "--cluster-name=demo"]), {})
ALLOWED = sorted(permissions(SETTINGS))
OTHER_NAMES = [
    f"{verb} {title} {group} {namespace} other"
    for verb in VERBS
    for title, group, namespace in (
        ("leases", "coordination.k8s.io", "kube-system"),
        ("configmaps", "-", "kube-system"),
        ("namespaces", "-", "-"),
    )
    if (verb, title) not in {("create", "leases"), ("create", "configmaps")}
]
USED = permissions_of(GUEST, SETTINGS)
OTHER_VERBS = sorted(
    {
        " ".join(part or "-" for part in (verb, one.title, one.resource.group, *one.name(SETTINGS)))
        for one in USED
        for verb in VERBS
        if verb not in {other.verb for other in USED if other.title == one.title}
    }
)
REFUSED = [
    *OTHER_NAMES,
    *OTHER_VERBS,
    "list endpoints",
    "get secrets - kube-system",
    "get configmaps - kube-system",
    "get configmaps - default harvester-nad-mapping",
    "update leases coordination.k8s.io kube-node-lease",
    "create services",
    "create nodes",
    "delete services",
    "list pods",
    "get namespaces - - default",
    "impersonate users",
]


def attributes(asked: str) -> Json:
    words = [None if word == "-" else word for word in asked.split()]
    verb, resource, group, namespace, name = (words + [None] * 5)[:5]
    resource, _, subresource = str(resource).partition("/")
    known = {"group": group, "namespace": namespace, "name": name, "subresource": subresource or None}
    return {"verb": verb, "resource": resource} | {key: value for key, value in known.items() if value}


@pytest.mark.security(
    "The RBAC reference lists every permission of the service account `kube-system/harvester-cloud-provider`"
)
@pytest.mark.security("The controller reads no Secrets through the API")
def test_permissions_are_exactly_those_that_the_controller_needs(release: ControlPlane) -> None:
    install(release, CHART, OURS, NAMED)
    account = RestClient(
        release.kubeconfig_for_service_account(NAMESPACE, "harvester-cloud-provider", context_namespace=NAMESPACE)
    )
    reviews = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews"

    def allowed(asked: str) -> bool:
        body = {"spec": {"resourceAttributes": attributes(asked)}}
        answer: bool = account.request("POST", reviews, body=body)["status"]["allowed"]
        return answer

    assert [asked for asked in ALLOWED if not allowed(asked)] == []
    assert [asked for asked in REFUSED if allowed(asked)] == []
    paths = {
        path: account.request("POST", reviews, body={"spec": {"nonResourceAttributes": {"path": path, "verb": "get"}}})[
            "status"
        ]["allowed"]
        for path in ("/metrics", "/logs")
    }
    assert paths == {"/metrics": False, "/logs": False}
