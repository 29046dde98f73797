"""The rendered chart: snapshots, and the fields on which RKE2, Rancher and earlier releases rely."""

import os
import re
from collections.abc import Iterator, Sequence
from functools import cache
from itertools import product
from pathlib import Path

import pytest
import yaml

from devenv.helm import CHART, NAMESPACE, RELEASE, render_chart, run_helm
from devenv.manifests import CLUSTER_NAME, IMAGE, MANIFESTS, profiles, render_manifest
from devenv.process import DevenvError
from devenv.restclient import Json
from harvester_ccm import __version__
from harvester_ccm.flags.settings import cluster_name_warning
from tests.deploy.published import GENERATIONS, SAME_KUBE_VIP, Generation, write_published_chart

HERE = Path(__file__).parent
CASES = sorted(file.stem for file in (HERE / "values").glob("*.yaml"))
SNAPSHOTS = ("default", "everything")
RENEW = "HARVESTER_CCM_RENEW_SNAPSHOTS"
LOADER: type[yaml.SafeLoader | yaml.CSafeLoader] = yaml.CSafeLoader if yaml.__with_libyaml__ else yaml.SafeLoader
"""The C loader is seven times as fast."""
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


@pytest.mark.parametrize("case", SNAPSHOTS)
def test_rendering_matches_snapshot(case: str) -> None:
    snapshot = HERE / "snapshots" / f"{case}.yaml"
    text = rendered(case=case)
    if os.environ.get(RENEW):
        snapshot.write_text(text)
    assert text == snapshot.read_text(), f"look at the difference, then run the tests once with {RENEW}=1"


def test_helm_lint_has_no_finding() -> None:
    for case in CASES:
        values = HERE / "values" / f"{case}.yaml"
        run_helm("lint", "--strict", CHART, "--namespace", "kube-system", "--values", values)


@pytest.mark.parametrize("profile", profiles())
def test_static_manifests_are_current(profile: str) -> None:
    text = (MANIFESTS / f"{profile}.yaml").read_text()
    assert text == render_manifest(profile), "run python -m devenv.manifests"
    assert f"--cluster-name={CLUSTER_NAME}" in text
    assert f"image: {IMAGE}:v{__version__}-ccm" in text


FORMS = ["-v=5", "-v", "five", "--secure-port", "1030x", " --leader-elect=false ", "--controllers=-a\\,*"]
PUBLISHED_VALUES = (
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


@pytest.mark.security("chart: `sharedAddressScope`")
@pytest.mark.parametrize(
    ("case", "settings", "expected"),
    [
        ("default", (), []),
        ("default", ("global=null", "extraArgs={--cluster-name=prod}"), []),
        ("default", ("global.cattle=null", "extraArgs={--cluster-name=prod}"), []),
        ("default", (f"extraArgs={{{','.join(FORMS)}}}",), [form.strip().replace("\\", "") for form in FORMS]),
        (
            "default",
            PUBLISHED_VALUES,
            ["--node-ip-cidr=192.0.2.7, 2001:db8::/64", "--controllers=*,-node-route-controller"],
        ),
        ("default", ("sharedAddressScope=namespace",), ["--shared-address-scope=namespace"]),
        ("marketplace", (), ["--v=4"]),
        (
            "rke2",
            ("managementNetwork=a/b", "extraArgs={--v=2,--management-network=c/d}"),
            ["--management-network=a/b", "--v=2", "--management-network=c/d"],
        ),
    ],
)
def test_arguments_in_their_order(case: str, settings: tuple[str, ...], expected: list[str]) -> None:
    first = ["--cloud-config=/etc/kubernetes/cloud-config", "--cluster-name=prod"]
    # Without kube-vip, the chart sets no --announcer.
    assert arguments(render("kube-vip.enabled=false", *settings, case=case)) == [*first, *expected]


GO_NAME = "rancher/harvester-cloud-provider"
DIGEST = f"sha256:{'0' * 64}"


@pytest.mark.parametrize(
    ("case", "repository", "tag", "expected"),
    [
        ("default", IMAGE, "", f"{IMAGE}:v{__version__}-ccm"),
        ("default", f"reg.example.org/{GO_NAME}", "own", f"reg.example.org/{GO_NAME}:own"),
        ("default", f"reg.example.org/{GO_NAME}", "v0.1.0-ccm", f"reg.example.org/{GO_NAME}:v0.1.0-ccm"),
        ("default", f"{GO_NAME},image.digest={DIGEST}", "v0.1.0", f"{GO_NAME}:v0.1.0@{DIGEST}"),
        ("rke2", GO_NAME, "v9", f"registry.example.org/{GO_NAME}:v9"),
    ],
)
def test_image(case: str, repository: str, tag: str, expected: str) -> None:
    container = pod(render(f"image.repository={repository}", f"image.tag={tag}", case=case))["containers"][0]
    assert (container["image"], container["command"]) == (expected, ["harvester-cloud-provider"])


GO_IMAGE = r"is the Go provider's.*--reset-then-reuse-values"
"""The values of the Go provider's image come with ``helm upgrade --reuse-values``; its permissions are not enough."""


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        (("cloudConfigPath=", "cloudConfig.hostPath="), "cloudConfig.secretName .* or cloudConfigPath or cloudConfig."),
        (("extraArgs={v=4}",), '"v=4" is not a flag. Write each flag as --name=value'),
        (("extraArgs={--v=4,x}",), '"x" is not a flag'),
        (("extraArgs={--v 4}",), '"--v 4" has a flag and its value in one item: write --name=value'),
        (("extraArgs={--v=4 --leader-elect=false}",), "has more than one flag: write one per item"),
        (("extraArgs={--clusterName=demo}",), "has no flag --clusterName: write --cluster-name"),
        (("extraArgs={--v=4,--leader_elect}",), "has no flag --leader_elect: write --leader-elect"),
        (("extraArgs={--other}",), "has no flag --other: docs/reference/flags.md lists the flags"),
        (("extraArgs={-x}",), "has no flag -x"),
        (("kube-vip.env.cp_enable=T",), "set kube-vip.config.address to the address of the control plane"),
        (("image.repository=",), "image.repository is not set.*make image"),
        ((f"image.repository={GO_NAME}",), GO_IMAGE),
        ((f"image.repository={GO_NAME}", "image.tag=v0.2.9-rc1"), GO_IMAGE),
        ((f"image.repository=reg.example.org:5000/{GO_NAME}", "image.tag=v0.1.0"), GO_IMAGE),
        ((f"image.repository={GO_NAME}", "image.tag=master-head"), GO_IMAGE),
    ],
)
def test_invalid_value_is_an_error(settings: tuple[str, ...], message: str) -> None:
    with pytest.raises(DevenvError, match=message):
        render(*settings)


ABSENT = {
    "replicasCount=1": "PodDisruptionBudget",
    "podDisruptionBudget.enabled=false": "PodDisruptionBudget",
    "serviceAccount.create=false": "ServiceAccount",
    "rbac.create=false": "Role",
    "kube-vip.enabled=false": "DaemonSet",
}


@pytest.mark.parametrize(("setting", "kind"), ABSENT.items())
def test_disabled_object_is_not_rendered(setting: str, kind: str) -> None:
    def names(*settings: str) -> set[tuple[str, str]]:
        objects = render("replicasCount=2", *settings)
        return {
            (one["kind"], one["metadata"]["name"])
            for one in objects
            if kind == "DaemonSet" or "kube-vip" not in one["metadata"]["name"]
        }

    assert kind in {found for found, _ in names() - names(setting)}
    assert names(setting) - names() == set()


def test_port_and_probes_can_be_disabled() -> None:
    closed = pod(render("extraArgs={--secure-port=0}"))["containers"][0]
    assert not {"ports", "livenessProbe", "readinessProbe", "startupProbe"} & set(closed)
    assert "livenessProbe" not in pod(render("probes.liveness=null"))["containers"][0]
    monitored = render("extraArgs={--secure-port=0}", "metrics.enabled=true", "metrics.podMonitor.enabled=true")
    assert not {"ServiceMonitor", "PodMonitor"} & {one["kind"] for one in monitored}


def test_probes_follow_the_address_in_one_item_or_two() -> None:
    for words, host in (("--bind-address,192.0.2.1", "192.0.2.1"), ("--bind-address=::", None)):
        container = pod(render(f"extraArgs={{{words}}}"))["containers"][0]
        assert container["livenessProbe"]["httpGet"].get("host") == host


def rules_of(objects: list[Json], role: str) -> dict[str, set[str]]:
    """Return the verbs of the roles whose names start with ``role``, by resource and the name of the object, if any."""
    verbs: dict[str, set[str]] = {}
    for found in objects:
        if found["kind"] not in {"Role", "ClusterRole"} or not found["metadata"]["name"].startswith(role):
            continue
        for rule in found["rules"]:
            for resource, name in product(rule["resources"], rule.get("resourceNames", [""])):
                verbs.setdefault(f"{resource} {name}".strip(), set()).update(rule["verbs"])
    return verbs


READ = {"get", "list", "watch"}
RULES: dict[str, set[str]] = {
    "services": READ,
    "services/status": {"patch"},
    "nodes": READ | {"patch", "delete"},
    "nodes/status": {"patch"},
    "endpointslices": {"list", "patch"},
    "events": {"create"},
    "namespaces kube-system": {"get"},
    "tokenreviews": {"create"},
    "subjectaccessreviews": {"create"},
    "leases": {"create"},
    "leases cloud-controller-manager": {"get", "update"},
    "configmaps": {"create"},
    "configmaps harvester-nad-mapping": READ | {"update"},
}
"""What the page about security says that the chart grants."""


@pytest.mark.security("Services and Nodes: read, and patch")
@pytest.mark.security("Nodes also: delete (`rbac.nodeDeletion: false` removes this)")
@pytest.mark.security("EndpointSlices: list and patch (`rbac.endpointSlices: false` removes this)")
@pytest.mark.security(
    "Events, one Lease, the ConfigMap `harvester-nad-mapping`, the Namespace `kube-system`, token and access reviews"
)
@pytest.mark.security("Kubernetes cannot limit the creation of a Lease or ConfigMap to a name")
def test_rules_of_the_controller() -> None:
    account = "harvester-cloud-provider"
    assert rules_of(render(), account) == RULES
    assert rules_of(render("rbac.nodeDeletion=false"), account) == {**RULES, "nodes": RULES["nodes"] - {"delete"}}
    without_slices = {resource: verbs for resource, verbs in RULES.items() if resource != "endpointslices"}
    assert rules_of(render("rbac.endpointSlices=false"), account) == without_slices


@pytest.mark.security("kube-vip has its own service account")
@pytest.mark.security("the capabilities `NET_ADMIN` and `NET_RAW`")
def test_kube_vip_has_an_account_and_capabilities_of_its_own() -> None:
    objects = render()
    kube_vip = the(objects, "DaemonSet", "kube-vip")["spec"]["template"]["spec"]
    assert kube_vip["serviceAccountName"] == "kube-vip"
    assert pod(objects)["serviceAccountName"] == "harvester-cloud-provider"
    assert pod(render("serviceAccount.create=false"))["serviceAccountName"] == "default"
    capabilities = kube_vip["containers"][0]["securityContext"]["capabilities"]
    assert capabilities == {"add": ["NET_ADMIN", "NET_RAW"], "drop": ["ALL"]}


@pytest.mark.parametrize("setting", ["cloudConfigPath=/x", "cloudConfig.secretName=s"])
@pytest.mark.security(
    "Read-only root file system, no capabilities, no privilege escalation, seccomp `RuntimeDefault`, memory limit"
)
def test_pod_is_confined(setting: str) -> None:
    spec = pod(render(setting))
    (container,) = spec["containers"]
    assert container["securityContext"] == {
        "readOnlyRootFilesystem": True,
        "capabilities": {"drop": ["ALL"]},
        "allowPrivilegeEscalation": False,
    }
    assert spec["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
    assert container["resources"]["limits"]["memory"] == "256Mi"
    assert {mount["mountPath"] for mount in container["volumeMounts"] if not mount.get("readOnly")} == {"/tmp"}


@pytest.mark.parametrize(
    ("settings", "reads"),
    [
        ((), False),
        (("kube-vip.env.vip_wireguard=true",), True),
        (("kube-vip.extraArgs.bgp=true",), True),
    ],
)
def test_kube_vip_reads_secrets_only_if_its_mode_needs_them(settings: tuple[str, ...], reads: bool) -> None:
    found = {(one["kind"], one["metadata"]["name"]) for one in render(*settings)}
    assert (("Role", "kube-vip") in found) is reads


def test_metrics_of_kube_vip_are_monitored_only_on_every_address() -> None:
    for server, number in ((":2113", 1), ("127.0.0.1:2113", 0)):
        objects = render("kube-vip.podMonitor.enabled=true", f"kube-vip.env.prometheus_server={server}")
        assert [one["kind"] for one in objects].count("PodMonitor") == number


def test_role_is_for_the_lease_that_the_flags_name() -> None:
    flags = "extraArgs={--leader-elect-resource-name=mine,--leader-elect-resource-namespace=locks}"
    role = the(render(flags), "Role", "harvester-cloud-provider-leader-election")
    assert role["metadata"]["namespace"] == "locks"
    assert [rule.get("resourceNames") for rule in role["rules"]] == [None, ["mine"]]


def test_objects_are_where_the_release_is_and_the_roles_where_their_objects_are() -> None:
    switches = "replicasCount=2,metrics.enabled=true,metrics.podMonitor.enabled=true"
    of_kube_vip = "kube-vip.podMonitor.enabled=true,kube-vip.env.bgp_enable=true"
    options = ("--values", HERE / "values" / "default.yaml", "--set", f"{switches},{of_kube_vip}")
    text = run_helm("template", "other", CHART, "--namespace", "ccm", *options)
    objects = objects_of(text)
    places = {(one["kind"], one["metadata"]["name"], one["metadata"].get("namespace", "ccm")) for one in objects}
    assert {place for place in places if place[2] != "ccm"} == {
        (kind, f"harvester-cloud-provider-{name}", "kube-system")
        for kind, name in product(("Role", "RoleBinding"), ("leader-election", "network-mapping"))
    }
    assert {subject["namespace"] for one in objects for subject in one.get("subjects", ())} == {"ccm"}
    assert rules_of(objects, "harvester-cloud-provider") == RULES
    assert set(re.findall("app.kubernetes.io/instance: (.*)", text)) == {"other"}


def test_disruption_budget_can_forbid_every_disruption() -> None:
    """Zero is no absent value."""
    budget = the(render("replicasCount=2", "podDisruptionBudget.maxUnavailable=0"), "PodDisruptionBudget")
    assert budget["spec"]["maxUnavailable"] == 0


def test_upgrade_to_no_replica_is_a_pause() -> None:
    assert "\n  replicas: 0\n" in upgraded("replicasCount=0")


@pytest.mark.parametrize(
    "setting", ["global.cattle.systemDefaultRegistry=reg.example.org", "global.systemDefaultRegistry=reg.example.org"]
)
def test_every_image_is_taken_from_the_registry(setting: str) -> None:
    found = list(images(render(setting)))
    assert len(found) == 2
    assert all(image.startswith("reg.example.org/") for image in found)


@pytest.mark.parametrize(
    ("settings", "path"),
    [
        ((), HOST_FILE),
        (("cloudConfigPath=/etc/kubernetes/cloud-config",), "/etc/kubernetes/cloud-config"),
        (("cloudConfigPath=", "cloudConfig.hostPath=/last"), "/last"),
    ],
)
@pytest.mark.security("the pod runs as user 0 without capabilities")
def test_cloud_config_from_a_host_file_is_read_as_root_without_capabilities(
    settings: tuple[str, ...], path: str
) -> None:
    spec = pod(render(*settings))
    assert spec["volumes"][0] == {"name": "cloud-config", "hostPath": {"path": path, "type": "File"}}
    assert spec["securityContext"]["runAsUser"] == 0
    (container,) = spec["containers"]
    assert container["volumeMounts"][0]["mountPath"] == "/etc/kubernetes/cloud-config"
    assert container["securityContext"]["capabilities"] == {"drop": ["ALL"]}


@pytest.mark.security("the pod runs as user 65532")
def test_cloud_config_from_a_secret_wins_runs_without_root_and_follows_changes() -> None:
    spec = pod(render("cloudConfig.secretName=s", "cloudConfig.secretKey=k"))
    secret = spec["volumes"][0]["secret"]
    assert secret["secretName"] == "s"
    assert secret["items"] == [{"key": "k", "path": "cloud-config"}]
    assert "key: cloud-config\n" in rendered("cloudConfig.secretName=s", "cloudConfig.secretKey=")
    assert spec["securityContext"]["runAsNonRoot"] is True
    assert spec["securityContext"]["runAsUser"] == 65532
    mount = spec["containers"][0]["volumeMounts"][0]
    assert mount == {"name": "cloud-config", "mountPath": "/etc/kubernetes", "readOnly": True}
    assert (
        pod(render("cloudConfig.secretName=s", "podSecurityContext.runAsUser=7"))["securityContext"]["runAsUser"] == 7
    )


WRONG_TYPES = {
    "extraArgs=--v=4": "/extraArgs",
    "image.tag=110": "/image/tag",
    "controllers={loadbalancer}": "/controllers/0",
    "sharedAddressScope=shop": "/sharedAddressScope",
    "metrics.enabled=yes": "/metrics/enabled",
    "kube-vip.runOn=some": "/kube-vip/runOn",
    "kubeVipPolicy=Deny": "/kubeVipPolicy",
    "dnsPolicy=default": "/dnsPolicy",
    "image.pullPolicy=always": "/image/pullPolicy",
    "strategy.type=Rolling": "/strategy/type",
    "serviceAccount.create=no": "/serviceAccount/create",
    "kube-vip.secretAccess=no": "/kube-vip/secretAccess",
    "kube-vip.tolerations.key=x": "/kube-vip/tolerations",
}


def test_schema_names_exactly_the_wrong_types_and_words() -> None:
    with pytest.raises(DevenvError) as caught:
        render(*WRONG_TYPES)
    assert set(re.findall(r"at '(.*?)': (?!validation failed)", str(caught.value))) == set(WRONG_TYPES.values())


def test_schema_has_the_type_of_every_value() -> None:
    values = yaml.safe_load((CHART / "values.yaml").read_text())
    known = {*paths(values), *paths(values["global"], "global."), *paths(values["kube-vip"], "kube-vip.")}
    leaves = {path for path in known if not any(other.startswith(f"{path}.") for other in known)}
    with pytest.raises(DevenvError) as caught:
        run_helm("template", RELEASE, CHART, *(word for path in leaves for word in ("--set-json", f"{path}=[[0]]")))
    found = re.findall(r"at '/(.*?)(?:/0)?': (?!validation failed)", str(caught.value))
    assert {place.replace("/", ".") for place in found} == leaves


INVALID = {
    "logLevel": "11",
    "replicasCount": "many",
    "cloudConfigPath": "etc/config",
    "cloudConfig.hostPath": "etc/config",
    "cloudConfig.secretName": "kube-system/cloud-config",
    "cloudConfig.secretKey": "a/b",
    "image.digest": "latest",
    "image.tag": "a b",
    "image.repository": "https://reg.example.org/ccm",
    "global.systemDefaultRegistry": "https://reg.example.org",
    "global.cattle.systemDefaultRegistry": "http://reg.example.org",
    "serviceAccount.name": "my_account",
    "nameOverride": "a.b",
    "fullnameOverride": "A",
    "priorityClassName": "a_b",
    "managementNetwork": "a/b/c",
    "nodeIPCIDR": "192.0.2.0/99",
    "probes.liveness.path": "livez",
    "resources.limits.memory": "abc",
    "resources.requests.cpu": "100 m",
    "podDisruptionBudget.maxUnavailable": "all",
    "metrics.serviceMonitor.interval": "often",
    "metrics.podMonitor.interval": "30 s",
    "metrics.dashboard.namespace": "a/b",
    "kube-vip.image.repository": "ghcr.io/kube-vip/kube-vip:v1",
    "kube-vip.image.tag": "kube-vip:v1",
    "kube-vip.priorityClassName": "a_b",
    "kube-vip.resources.limits.memory": "1 Gi",
}
OTHER_INVALID = {
    "image.repository": "example/ccm:v1",
    "cloudConfig.secretName": "My Secret",
    "image.tag": "example/ccm:v1",
    "nodeIPCIDR": "192.0.2.0/24\\,2001:db8::/64\\,192.0.2.7",
}


@pytest.mark.parametrize("wrong", [INVALID, OTHER_INVALID], ids=["all", "other"])
@pytest.mark.parametrize("options", [(), ("--is-upgrade",)], ids=["install", "upgrade"])
def test_every_invalid_text_is_reported_in_one_sentence(wrong: dict[str, str], options: tuple[str, ...]) -> None:
    with pytest.raises(DevenvError) as caught:
        template(*(f"{path}={value}" for path, value in wrong.items()), options=options)
    sentences = re.findall(r'^(.+) is "(.*)"\. Expected: \w.*', str(caught.value), re.MULTILINE)
    assert sorted(sentences) == sorted((path, value.replace("\\,", ",")) for path, value in wrong.items())


def test_invalid_entries_of_lists_are_reported() -> None:
    with pytest.raises(DevenvError) as caught:
        render("imagePullSecrets[0].nam=x", "nodeExcludeIPRanges={192.0.2.1,example}", "global.imagePullSecrets[0].x=y")
    assert 'an item of nodeExcludeIPRanges is "example"' in str(caught.value)
    for path in ("imagePullSecrets", "global.imagePullSecrets"):
        assert f"\n{path} has an entry without a name" in str(caught.value)


VALID = (
    "nodeIPCIDR= 192.0.2.7 \\, 2001:db8::/64",
    "nodeExcludeIPRanges={192.0.2.1\\,fd00::1%eth0,2001:db8::1}",
    "resources.limits.memory=134217728",
    "resources.limits.cpu=0.5",
    "resources.requests.memory=1e8",
    "podDisruptionBudget.maxUnavailable=50%",
    "metrics.serviceMonitor.interval=1m30s",
    "managementNetwork=vlan1",
    "replicasCount=2",
    "logLevel=10",
)


def test_valid_texts_in_unusual_forms() -> None:
    assert arguments(render(*VALID))


@pytest.mark.parametrize("generation", GENERATIONS, ids=lambda one: one.chart)
def test_published_charts_are_upgraded_in_place(generation: Generation, tmp_path: Path) -> None:
    """Immutable fields are equal, and kube-vip restarts unless it is the same."""
    chart = write_published_chart(tmp_path, generation)
    text = run_helm("template", RELEASE, chart, "--namespace", NAMESPACE)
    published, ours = objects_of(text), render()
    assert the(published, "Deployment")["spec"]["selector"] == the(ours, "Deployment")["spec"]["selector"]
    if generation.kube_vip:
        old, new = (the(objects, "DaemonSet", "kube-vip")["spec"] for objects in (published, ours))
        assert old["selector"] == new["selector"]
        assert (old["template"] == new["template"]) is (generation is SAME_KUBE_VIP)


@pytest.mark.parametrize(
    "values",
    [
        ["metrics", "podDisruptionBudget", "serviceAccount", "rbac", "image.tag"],
        ["metrics.serviceMonitor", "podDisruptionBudget.enabled", "podDisruptionBudget.maxUnavailable"],
        ["serviceAccount.create", "rbac.create", "rbac.nodeDeletion", "rbac.endpointSlices", "image.pullPolicy"],
        ["logLevel", "strategy", "extraArgs", "dnsPolicy", "podLabels", "imagePullSecrets", "cloudConfigPath"],
    ],
    ids=",".join,
)
def test_null_is_the_default_value(values: list[str]) -> None:
    assert render("replicasCount=2", *(f"{value}=null" for value in values)) == render("replicasCount=2")
    assert render("replicasCount=null") == render()


@pytest.mark.security("Host network, because pod networks need initialized Nodes")
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
    everywhere = the(render("kube-vip.runOn=all"), "DaemonSet", "kube-vip")["spec"]["template"]["spec"]
    assert everywhere["tolerations"] == [{"operator": "Exists"}]
    assert everywhere["nodeSelector"] == {"kubernetes.io/os": "linux"}


def test_questions_keep_their_variables_and_defaults() -> None:
    questions = yaml.safe_load((CHART / "questions.yml").read_text())["questions"]
    values = yaml.safe_load((CHART / "values.yaml").read_text())
    questions += [inner for question in questions for inner in question.get("subquestions", ())]
    for question in questions:
        value = values
        for key in question["variable"].split("."):
            value = value[key]
        assert question["default"] == value, question["variable"]
        types = {bool: "boolean", int: "int", list: "array", str: "enum" if "options" in question else "string"}
        assert question["type"] == types[type(value)], question["variable"]
    variables = {question["variable"] for question in questions}
    assert {"cloudConfigPath", "cloudConfig.secretName", "cloudConfig.secretKey", "extraArgs"} <= variables


def test_one_switch_for_monitoring() -> None:
    parts = ("serviceMonitor", "prometheusRule", "dashboard")
    each = render(*(f"metrics.{part}.enabled=true" for part in parts))
    assert render("metrics.enabled=true") == each
    assert {"ServiceMonitor", "PrometheusRule", "ConfigMap"} <= {one["kind"] for one in each}
    assert "ServiceMonitor" not in {one["kind"] for one in render()}
    (endpoint,) = the(each, "ServiceMonitor")["spec"]["endpoints"]
    assert endpoint["bearerTokenFile"].startswith("/var/run/secrets/")


def test_chart_has_the_annotations_of_rancher() -> None:
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


def test_chart_has_the_fields_of_catalogs() -> None:
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


def test_helm_test_runs_preflight_with_the_pod_of_the_deployment() -> None:
    objects = render(case="everything")
    (test,) = (one for one in objects if one["kind"] == "Pod")
    (ours,) = test["spec"]["containers"]
    theirs = the(objects, "Deployment", "prod-ccm")["spec"]["template"]["spec"]
    annotations = test["metadata"]["annotations"]
    assert annotations["helm.sh/hook"] == "test"
    assert "hook-succeeded" in annotations["helm.sh/hook-delete-policy"], "helm uninstall does not delete it"
    assert annotations["helm.sh/hook-output-log-policy"] == "hook-succeeded,hook-failed", "nobody can read it later"
    assert ours["command"] == ["harvester-ccm", "preflight"]
    same = ("image", "args", "env", "securityContext", "volumeMounts")
    assert [ours[key] for key in same] == [theirs["containers"][0][key] for key in same]
    for key in ("serviceAccountName", "securityContext", "volumes", "tolerations", "hostNetwork"):
        assert test["spec"][key] == theirs[key]
    assert "app.kubernetes.io/name" not in test["metadata"]["labels"], "or the Deployment's Services select it"


UNKNOWN = {
    "cloudConfig.secretname=s": "cloudConfig.secretname",
    "image.registry=reg.example.org": "image.registry",
    "metrics.enable=false": "metrics.enable",
    "metrics.serviceMonitor.enable=true": "metrics.serviceMonitor.enable",
    "probes.liveness.periodSecond=3": "probes.liveness.periodSecond",
    "replicaCount=2": "replicaCount (write replicasCount)",
    "resources.limit.memory=1Gi": "resources.limit",
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


INSTALLATION = {
    ("global.cattle.clusterName=Prod_Cluster",): 'cluster is "Prod_Cluster", but Harvester would reject every load',
    (f"global.cattle.clusterName={'a' * 64}",): "at most 63 of a-z",
    ("extraArgs={--cluster-name=-prod}",): 'cluster is "-prod"',
    ("replicasCount=0",): "replicasCount is 0, so no controller would run",
    (
        'extraArgs={--cluster-name="demo"}',
    ): "has quotes around its value, which no shell removes: write --cluster-name=demo",
    ("extraArgs={--v='4'}",): "write --v=4",
}


@pytest.mark.parametrize(("settings", "message"), INSTALLATION.items())
def test_new_installation_that_cannot_work_fails_and_an_upgrade_continues(
    settings: tuple[str, ...], message: str
) -> None:
    with pytest.raises(DevenvError, match=re.escape(message)):
        render(*settings)
    assert "kind: Deployment" in upgraded(*settings)


@pytest.mark.parametrize("name", ["prod", "1prod", "prod.example", "kubernetes", " prod "])
def test_cluster_name_that_harvester_accepts(name: str) -> None:
    assert arguments(render(f"global.cattle.clusterName={name}"))
    warning = cluster_name_warning(name.strip())
    assert "every load balancer" not in warning


def template(*settings: str, options: Sequence[str] = ()) -> str:
    words = [word for setting in settings for word in ("--set", setting)]
    values = HERE / "values" / "default.yaml"
    return run_helm("template", RELEASE, CHART, *options, "--values", values, *words)


def upgraded(*settings: str) -> str:
    return template(*settings, options=["--is-upgrade"])


FREE = re.compile(
    r"global|.*\.(env|labels|tlsConfig|securityContext|updateStrategy|affinity)|probes\..*|metrics\..*\.authorization"
)
"""Maps with free keys, in addition to empty ones and those at the top level."""
PROBE_FIELDS = (
    "failureThreshold",
    "initialDelaySeconds",
    "path",
    "periodSeconds",
    "successThreshold",
    "terminationGracePeriodSeconds",
    "timeoutSeconds",
)
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
    of_kubernetes = {f"probes.{probe}.{field}" for probe in values["probes"] for field in PROBE_FIELDS}
    of_kubernetes |= {"resources.requests", "resources.limits", "resources.claims"}
    assert set(listed[1].split()) == {*paths(values), "clusterName", *of_kubernetes}


@pytest.mark.parametrize("name", ["clusterName", "global.clusterName"])
def test_cluster_name_at_an_old_place_is_an_error(name: str) -> None:
    """Charts before 0.1.12 read the name there, and examples still show it; without one a cluster is ``kubernetes``."""
    with pytest.raises(
        DevenvError,
        match=r"set global\.cattle\.clusterName=prod\. .* formerClusterNames=\{kubernetes\}, "
        r"or keep the name with global\.cattle\.clusterName=kubernetes",
    ):
        render(f"{name}=prod", "global.cattle.clusterName=")
    for right in ("global.cattle.clusterName=stage", "extraArgs={--cluster-name=stage}"):
        with pytest.raises(DevenvError, match="clusterName is prod, but the cluster would be called stage"):
            render(f"{name}=prod", right)
        assert "--cluster-name=stage" in upgraded(f"{name}=prod", right)
    assert "--cluster-name=prod" in arguments(render(f"{name}=prod"))
    assert "--cluster-name" not in upgraded(f"{name}=kubernetes", "global.cattle.clusterName="), "it has that name"
