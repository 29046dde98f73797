"""The policy of the chart: who may set what kube-vip and this controller write on a Service, on a real API server."""

import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import pytest
import yaml

from devenv.apiserver import ControlPlane
from devenv.binaries import require
from devenv.helm import CHART, NAMESPACE, RELEASE, run_helm
from devenv.manifests import IMAGE
from devenv.restclient import Json, RefusedError, RestClient, status_of, wait_until
from harvester_ccm import names
from tests.deploy.test_chart_rendering import objects_of

API: Final = "admissionregistration.k8s.io/v1/ValidatingAdmissionPolicy"
POLICY: Final = "harvester-cloud-provider-kube-vip"
POLICIES: Final = "/apis/admissionregistration.k8s.io/v1/validatingadmissionpolicies"
TENANT: Final = "shop"
SERVICES: Final = f"/api/v1/namespaces/{TENANT}/services"
SETTINGS: Final = (f"image.repository={IMAGE}", "global.cattle.clusterName=prod")
CLASS: Final = names.LOAD_BALANCER_CLASS
WRITTEN: Final = (
    names.KUBE_VIP_ADDRESSES,
    names.KUBE_VIP_IGNORE,
    names.KUBE_VIP_HOST,
    names.KUBE_VIP_LEASE,
    "kube-vip.io/hwaddr",
    names.ANNOUNCED_AS,
)
SERVED: Final = {names.KUBE_VIP_ADDRESSES: "10.0.0.3", names.KUBE_VIP_HOST: "node-1", names.ANNOUNCED_AS: "{}"}
LABEL: Final = {names.PRIMARY_SERVICE_LABEL: "shop.web"}


def helm(*arguments: str, settings: tuple[str, ...] = ()) -> list[str]:
    return [*arguments, *(word for setting in (*SETTINGS, *settings) for word in ("--set-string", setting))]


def rendered(*settings: str, version: str = "v1.30.0", apis: tuple[str, ...] = (API,)) -> dict[str, Json]:
    words = helm("template", RELEASE, str(CHART), "--namespace", NAMESPACE, settings=settings)
    options = ["--kube-version", version, *(word for api in apis for word in ("--api-versions", api))]
    objects = objects_of(run_helm(*words, *options))
    return {one["kind"]: one for one in objects if one["metadata"]["name"] == POLICY}


@pytest.mark.parametrize(
    ("settings", "actions"),
    [
        ((), ["Warn", "Audit"]),
        (("kubeVipPolicy=warn",), ["Warn", "Audit"]),
        (("kubeVipPolicy=",), ["Warn", "Audit"]),
        (("kubeVipPolicy=deny",), ["Deny", "Audit"]),
    ],
)
def test_action_is_that_of_the_value(settings: tuple[str, ...], actions: list[str]) -> None:
    objects = rendered(*settings)
    assert objects["ValidatingAdmissionPolicyBinding"]["spec"] == {"policyName": POLICY, "validationActions": actions}
    assert objects["ValidatingAdmissionPolicy"]["spec"]["failurePolicy"] == "Ignore"


@pytest.mark.security("`off` | There is no policy")
@pytest.mark.parametrize("text", ["off", '"off"', "no"])
def test_off_is_off_also_without_quotes(tmp_path: Path, text: str) -> None:
    file = tmp_path / "values.yaml"
    file.write_text(f"kubeVipPolicy: {text}\n")
    words = helm("template", RELEASE, str(CHART), "--namespace", NAMESPACE)
    assert POLICY not in run_helm(*words, "--values", file, "--api-versions", API)


@pytest.mark.security("as with Kubernetes before 1.30")
@pytest.mark.parametrize("version", ["v1.23.0", "v1.29.0"])
def test_cluster_without_policies_gets_none(version: str) -> None:
    earlier = API.replace("/v1/", "/v1beta1/")
    assert rendered("kubeVipPolicy=deny", version=version, apis=(earlier,)) == {}


@pytest.fixture(scope="module")
def denying(guest: ControlPlane) -> Iterator[ControlPlane]:
    """A cluster with the chart and the policy in force, and the namespace of a tenant."""
    guest.apply({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": TENANT}})
    words = helm(
        "upgrade", "--install", RELEASE, str(CHART), "--namespace", NAMESPACE, settings=("kubeVipPolicy=deny",)
    )
    run_helm(*words, "--disable-openapi-validation", kubeconfig=guest.admin_kubeconfig)
    tenant = tenant_of(guest)
    create(guest, "probe")
    wait_until(lambda: is_in_force(guest, tenant, "probe"), seconds=60, what="policy")
    yield guest
    run_helm("uninstall", RELEASE, "--namespace", NAMESPACE, kubeconfig=guest.admin_kubeconfig)
    guest.admin.request("DELETE", SERVICES)


def is_in_force(plane: ControlPlane, tenant: RestClient, name: str) -> bool:
    """Return whether the tenant cannot set an annotation on a Service; the value is always another one."""
    value = str(plane.admin.request("GET", f"{SERVICES}/{name}")["metadata"]["resourceVersion"])
    return status_of(tenant, "PATCH", f"{SERVICES}/{name}", annotated(names.KUBE_VIP_HOST, value)) == 403


def tenant_of(plane: ControlPlane) -> RestClient:
    """Return a client of a tenant, who may do everything with Services but write their status."""
    return account(plane, TENANT, "tenant", [{"apiGroups": [""], "resources": ["services"], "verbs": ["*"]}])


def account(plane: ControlPlane, namespace: str, name: str, rules: list[Json]) -> RestClient:
    return RestClient(kubeconfig_of(plane, namespace, name, rules))


def kubeconfig_of(plane: ControlPlane, namespace: str, name: str, rules: list[Json]) -> Path:
    """Return the kubeconfig of a service account with these rules in all namespaces."""
    group = "rbac.authorization.k8s.io"
    reference = {"apiGroup": group, "kind": "ClusterRole", "name": f"test-{name}"}
    subject = {"kind": "ServiceAccount", "name": name, "namespace": namespace}
    metadata = {"name": f"test-{name}"}
    path = plane.kubeconfig_for_service_account(namespace, name, context_namespace=TENANT)
    plane.apply(
        {"apiVersion": f"{group}/v1", "kind": "ClusterRole", "metadata": metadata, "rules": rules},
        {
            "apiVersion": f"{group}/v1",
            "kind": "ClusterRoleBinding",
            "metadata": metadata,
            "roleRef": reference,
            "subjects": [subject],
        },
    )
    client = RestClient(path)
    wait_until(lambda: status_of(client, "GET", SERVICES) == 200, seconds=30, what="permission")
    return path


@pytest.fixture(scope="module")
def tenant(denying: ControlPlane) -> RestClient:
    """The tenant."""
    return tenant_of(denying)


def service(name: str, annotations: Json | None = None, labels: Json | None = None, **spec: Any) -> Json:
    return {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": {"name": name, "namespace": TENANT, "annotations": annotations or {}, "labels": labels or {}},
        "spec": {"type": "LoadBalancer", "ports": [{"port": 80}], "allocateLoadBalancerNodePorts": False, **spec},
    }


def create(plane: ControlPlane, name: str, annotations: Json | None = None, **more: Any) -> Json:
    """Create a Service anew as an administrator."""
    status_of(plane.admin, "DELETE", f"{SERVICES}/{name}")
    return plane.admin.request("POST", SERVICES, body=service(name, annotations, **more))


def annotated(key: str, value: str | None) -> Json:
    return {"metadata": {"annotations": {key: value}}}


@pytest.mark.apiserver
@pytest.mark.parametrize("key", WRITTEN)
@pytest.mark.security("`deny` | The change is rejected")
@pytest.mark.security(
    "The policy is about the annotations `kube-vip.io/loadbalancerIPs`, `ignore`, `vipHost`, `requestedIP` and `hwaddr`"
)
@pytest.mark.security("the record `cloudprovider.harvesterhci.io/announced-as`")
def test_tenant_cannot_set_what_programs_write(denying: ControlPlane, tenant: RestClient, key: str) -> None:
    create(denying, "web", {**SERVED, key: "before"})
    for value in ("10.0.0.2", "another"):
        with pytest.raises(RefusedError, match=f"annotation {key} is set by kube-vip and the cloud controller"):
            tenant.request("PATCH", f"{SERVICES}/web", body=annotated(key, value))
    create(denying, "new")
    assert status_of(tenant, "PATCH", f"{SERVICES}/new", annotated(key, "10.0.0.2")) == 403, "it had none"
    found = denying.admin.request("GET", f"{SERVICES}/web")
    changed = {**found, "metadata": {**found["metadata"], "annotations": {**SERVED, key: "10.0.0.2"}}}
    assert status_of(tenant, "PUT", f"{SERVICES}/web", changed) == 403


@pytest.mark.apiserver
@pytest.mark.parametrize("address", ["10.0.0.2", "::ffff:10.0.0.2", "web.example.org"])
@pytest.mark.security("removed unless `spec.loadBalancerIP` names another address")
def test_tenant_cannot_have_kube_vip_read_the_specification(
    denying: ControlPlane, tenant: RestClient, address: str
) -> None:
    """Without its annotation, kube-vip announces the address in the specification."""
    create(denying, "web", SERVED)
    without = annotated(names.KUBE_VIP_ADDRESSES, None)
    with pytest.raises(RefusedError, match=r"without it, kube-vip announces spec\.loadBalancerIP"):
        tenant.request("PATCH", f"{SERVICES}/web", body={**without, "spec": {"loadBalancerIP": address}})
    assert status_of(tenant, "PATCH", f"{SERVICES}/web", {"spec": {"loadBalancerIP": address}}) == 200
    assert status_of(tenant, "PATCH", f"{SERVICES}/web", without) == 403
    assert status_of(tenant, "PATCH", f"{SERVICES}/web", annotated(names.KUBE_VIP_ADDRESSES, "")) == 200
    create(denying, "honored", SERVED, loadBalancerIP=SERVED[names.KUBE_VIP_ADDRESSES])
    assert status_of(tenant, "PATCH", f"{SERVICES}/honored", without) == 200


@pytest.mark.apiserver
@pytest.mark.parametrize(
    "carried",
    [
        {"metadata": {"annotations": {names.KUBE_VIP_ADDRESSES: "10.0.0.2"}}},
        {"metadata": {"annotations": {names.ANNOUNCED_AS: "{}"}}},
        {"spec": {"loadBalancerIP": "10.0.0.2"}},
    ],
    ids=["address", "record", "specification"],
)
@pytest.mark.parametrize("other", [{"type": "ClusterIP"}, {"loadBalancerClass": "x/y"}], ids=["type", "class"])
@pytest.mark.security("also when it gets the type LoadBalancer")
def test_tenant_cannot_set_anything_by_a_change_of_the_type(
    denying: ControlPlane, tenant: RestClient, carried: Json, other: Json
) -> None:
    """While the Service has another type or class, nothing of it is announced, and the policy does not concern it."""
    ports = {"allocateLoadBalancerNodePorts": None} if "type" in other else {}
    create(denying, "web", **other, **ports)
    path = f"{SERVICES}/web"
    back = {"type": "LoadBalancer", "allocateLoadBalancerNodePorts": False}
    tenant.request("PATCH", path, body=carried)
    tenant.request("PATCH", path, body={"spec": {"type": "ClusterIP"}})
    with pytest.raises(RefusedError, match="is set by kube-vip and the cloud controller"):
        tenant.request("PATCH", path, body={"spec": back})
    tenant.request("PATCH", path, body={"metadata": {"annotations": None}, "spec": {"loadBalancerIP": None}})
    spec = {**back, **carried.get("spec", {})}
    assert status_of(tenant, "PATCH", path, {**carried, "spec": spec}) == 403, "all in one patch"
    left_over = annotated(names.KUBE_VIP_HOST, "node-1")
    tenant.request("PATCH", path, body=left_over)
    assert status_of(tenant, "PATCH", path, {"spec": back}) == 200, "kube-vip never removes its note"


@pytest.mark.apiserver
@pytest.mark.security("the label `cloudprovider.harvesterhci.io/primary-service`")
def test_tenant_cannot_set_the_label_of_a_secondary(denying: ControlPlane, tenant: RestClient) -> None:
    create(denying, "web")
    with pytest.raises(RefusedError, match="the annotation of this name shares the address of another Service"):
        tenant.request("PATCH", f"{SERVICES}/web", body={"metadata": {"labels": LABEL}})
    create(denying, "labelled", labels=LABEL)
    removed = {"metadata": {"labels": {names.PRIMARY_SERVICE_LABEL: None}}}
    assert status_of(tenant, "PATCH", f"{SERVICES}/labelled", removed) == 200


@pytest.mark.apiserver
@pytest.mark.security("with the setting of this controller that does the same")
def test_refusal_names_the_setting_that_does_the_same(denying: ControlPlane, tenant: RestClient) -> None:
    create(denying, "web")
    with pytest.raises(RefusedError) as refused:
        tenant.request("PATCH", f"{SERVICES}/web", body=annotated(names.KUBE_VIP_ADDRESSES, "10.0.0.2"))
    for word in ("spec.loadBalancerIP", names.REQUESTED_ADDRESS, names.PRIMARY_SERVICE, "It can be emptied"):
        assert word in str(refused.value)


@pytest.mark.apiserver
@pytest.mark.security("Such a value can be emptied or, while the type stays, left as it is, and removed")
@pytest.mark.parametrize("key", WRITTEN)
def test_removing_emptying_and_not_changing_are_permitted(denying: ControlPlane, tenant: RestClient, key: str) -> None:
    create(denying, "web", {**SERVED, key: "before"})
    assert status_of(tenant, "PATCH", f"{SERVICES}/web", annotated(key, "before")) == 200
    assert status_of(tenant, "PATCH", f"{SERVICES}/web", annotated("example.com/note", "text")) == 200
    assert status_of(tenant, "PATCH", f"{SERVICES}/web", annotated(key, "")) == 200
    assert status_of(tenant, "PATCH", f"{SERVICES}/web", annotated(key, None)) == 200


@pytest.mark.apiserver
def test_service_without_a_class_that_was_served_before_one_is_required(
    denying: ControlPlane, tenant: RestClient
) -> None:
    create(denying, "former", SERVED)
    create(denying, "other", {names.KUBE_VIP_ADDRESSES: "10.0.0.3"})
    before = denying.admin.request("GET", f"{POLICIES}/{POLICY}")["spec"]["matchConditions"]
    required = rendered("kube-vip.harvesterClass=required")["ValidatingAdmissionPolicy"]["spec"]["matchConditions"]
    denying.admin.request("PATCH", f"{POLICIES}/{POLICY}", body={"spec": {"matchConditions": required}})
    change = annotated(names.KUBE_VIP_ADDRESSES, "10.0.0.2")
    try:
        other = f"{SERVICES}/other"
        wait_until(lambda: status_of(tenant, "PATCH", other, change) == 200, seconds=60, what="changed policy")
        assert status_of(tenant, "PATCH", f"{SERVICES}/former", change) == 403
        change["metadata"]["annotations"][names.ANNOUNCED_AS] = None
        assert status_of(tenant, "PATCH", f"{SERVICES}/former", change) == 403, "nor with the record that it had"
    finally:
        denying.admin.request("PATCH", f"{POLICIES}/{POLICY}", body={"spec": {"matchConditions": before}})
        wait_until(lambda: is_in_force(denying, tenant, "other"), seconds=60, what="policy of before")


INPUTS: Final = {
    "kube-vip.io/ddns": "true",
    "kube-vip.io/egress": "true",
    "kube-vip.io/egress-denied-networks": "10.0.0.0/8",
    "kube-vip.io/loadbalancerHostname": "web.example.org",
    "kube-vip.io/leaseName": "web",
    "kube-vip.io/serviceInterface": "eth1",
    names.REQUESTED_ADDRESS: "10.0.0.2",
    names.PRIMARY_SERVICE: "shop/other",
    names.HEALTH_CHECK_PORT: "80",
}


@pytest.mark.apiserver
@pytest.mark.security("Inputs of users such as `kube-vip.io/ddns` can be set")
@pytest.mark.security("It concerns Services of type LoadBalancer that this controller serves")
def test_inputs_of_users_finalizers_and_other_services_are_not_touched(
    denying: ControlPlane, tenant: RestClient
) -> None:
    create(denying, "web", SERVED)
    assert status_of(tenant, "PATCH", f"{SERVICES}/web", {"metadata": {"annotations": INPUTS}}) == 200
    finalizers = {"metadata": {"finalizers": [names.SERVICE_FINALIZER, "example.com/mine"]}}
    assert status_of(tenant, "PATCH", f"{SERVICES}/web", finalizers) == 200
    assert status_of(tenant, "PATCH", f"{SERVICES}/web", {"metadata": {"finalizers": None}}) == 200
    others: dict[str, dict[str, Any]] = {
        "other-class": {"loadBalancerClass": "kube-vip.io/kube-vip-class"},
        "cluster-ip": {"type": "ClusterIP", "allocateLoadBalancerNodePorts": None},
    }
    for name, spec in others.items():
        create(denying, name, **spec)
        change = annotated(names.KUBE_VIP_ADDRESSES, "10.0.0.2")
        assert status_of(tenant, "PATCH", f"{SERVICES}/{name}", change) == 200, name
    create(denying, "own-class", loadBalancerClass=CLASS)
    assert status_of(tenant, "PATCH", f"{SERVICES}/own-class", annotated(names.KUBE_VIP_ADDRESSES, "10.0.0.2")) == 403


@pytest.mark.apiserver
@pytest.mark.security("A request at the creation of a Service stays permitted")
def test_request_at_creation_is_permitted(denying: ControlPlane, tenant: RestClient) -> None:
    status_of(denying.admin, "DELETE", f"{SERVICES}/requesting")
    requested = {names.KUBE_VIP_ADDRESSES: "10.0.0.9", names.KUBE_VIP_LEASE: "10.0.0.9"}
    assert status_of(tenant, "POST", SERVICES, service("requesting", requested)) == 200


KUBE_VIP_RULES: Final = [
    {"apiGroups": [""], "resources": ["services"], "verbs": ["get", "list", "watch", "update"]},
    {"apiGroups": [""], "resources": ["services/status"], "verbs": ["update"]},
]
"""Of the chart of kube-vip itself, as far as Services are concerned; with another name of the account."""
GO_RULES: Final = [
    {
        "apiGroups": [""],
        "resources": ["services", "nodes", "events"],
        "verbs": ["get", "list", "watch", "update", "patch"],
    },
    {"apiGroups": [""], "resources": ["services/status"], "verbs": ["update", "patch"]},
]
"""Of the chart of the Go provider."""
WRITERS: Final[dict[str, tuple[str, str, list[Json]]]] = {
    "kube-vip as a DaemonSet of its own chart": ("kube-vip-system", "my-kube-vip", KUBE_VIP_RULES),
    "the Go provider after a rollback": ("kube-system", "go-provider", GO_RULES),
    "a program that patches": ("default", "patching", [KUBE_VIP_RULES[0], {**KUBE_VIP_RULES[1], "verbs": ["patch"]}]),
    "Velero and Argo CD": ("velero", "velero", [{"apiGroups": ["*"], "resources": ["*"], "verbs": ["*"]}]),
}


@pytest.mark.apiserver
@pytest.mark.security(
    "kube-vip, other cloud controllers and administrators may write `services/status`, under whichever account they run"
)
@pytest.mark.parametrize(("namespace", "name", "rules"), WRITERS.values(), ids=WRITERS)
def test_programs_that_write_the_status_set_everything(
    denying: ControlPlane, namespace: str, name: str, rules: list[Json]
) -> None:
    writer = account(denying, namespace, name, rules)
    for key in (*WRITTEN, "kube-vip.io/another"):
        found = create(denying, "web")
        found["metadata"]["annotations"] = {key: "10.0.0.2"}
        found["metadata"]["labels"] = LABEL
        assert status_of(writer, "PUT", f"{SERVICES}/web", found) == 200


@pytest.mark.apiserver
def test_service_accounts_of_the_chart_set_everything(denying: ControlPlane) -> None:
    def client_of(name: str) -> RestClient:
        return RestClient(denying.kubeconfig_for_service_account(NAMESPACE, name, context_namespace=NAMESPACE))

    found = create(denying, "web")
    found["metadata"]["annotations"] = dict.fromkeys(WRITTEN, "10.0.0.2")
    assert status_of(client_of("kube-vip"), "PUT", f"{SERVICES}/web", found) == 200
    change = annotated(names.KUBE_VIP_ADDRESSES, "10.0.0.4")
    assert status_of(client_of("harvester-cloud-provider"), "PATCH", f"{SERVICES}/web/status", change) == 200


def kubectl(kubeconfig: Path, *words: str | Path, document: Json | None = None) -> subprocess.CompletedProcess[str]:
    command: list[str | Path] = [require("kubectl")["kubectl"], "--kubeconfig", kubeconfig, "-n", TENANT, *words]
    text = None if document is None else yaml.safe_dump(document)
    environment = {"HOME": str(kubeconfig.parent), "PATH": "/usr/bin:/bin"}
    return subprocess.run(command, check=False, input=text, capture_output=True, text=True, timeout=60, env=environment)


@pytest.fixture(scope="module")
def kubeconfig(denying: ControlPlane) -> Path:
    """The kubeconfig of the tenant."""
    return kubeconfig_of(denying, TENANT, "tenant", [{"apiGroups": [""], "resources": ["services"], "verbs": ["*"]}])


def serve(plane: ControlPlane, name: str) -> None:
    """Write what the controller and kube-vip write on a Service that is served."""
    plane.admin.request("PATCH", f"{SERVICES}/{name}", body={"metadata": {"annotations": SERVED}})


@pytest.mark.apiserver
@pytest.mark.parametrize("words", [("apply",), ("apply", "--server-side"), ("replace",)], ids=" ".join)
def test_kubectl_changes_a_served_service(denying: ControlPlane, kubeconfig: Path, words: tuple[str, ...]) -> None:
    """As manifests in Git are: without what programs write."""
    status_of(denying.admin, "DELETE", f"{SERVICES}/applied")
    manifest = service("applied")
    first = kubectl(
        kubeconfig, "create" if words == ("replace",) else "apply", *words[1:], "-f", "-", document=manifest
    )
    assert first.returncode == 0, first.stderr
    serve(denying, "applied")
    manifest["spec"]["ports"] = [{"port": 81}]
    manifest["metadata"]["annotations"] = {"example.com/note": "text"}
    second = kubectl(kubeconfig, *words, "-f", "-", document=manifest)
    assert second.returncode == 0, second.stderr
    assert "Warning" not in second.stderr
    found = denying.admin.request("GET", f"{SERVICES}/applied")
    assert found["spec"]["ports"][0]["port"] == 81
    assert (found["metadata"]["annotations"].get(names.KUBE_VIP_HOST) is None) == (words == ("replace",))


@pytest.mark.apiserver
@pytest.mark.security("`warn` | The default: the user gets a warning")
def test_warning_names_the_annotation_and_the_change_is_made(denying: ControlPlane, kubeconfig: Path) -> None:
    binding = "/apis/admissionregistration.k8s.io/v1/validatingadmissionpolicybindings"
    denying.admin.request("PATCH", f"{binding}/{POLICY}", body={"spec": {"validationActions": ["Warn", "Audit"]}})
    try:
        create(denying, "warned")

        def is_warned() -> bool:
            value = denying.admin.request("GET", f"{SERVICES}/warned")["metadata"]["resourceVersion"]
            word = f"{names.KUBE_VIP_ADDRESSES}={value}"
            done = kubectl(kubeconfig, "annotate", "--overwrite", "service", "warned", word)
            return done.returncode == 0 and f"annotation {names.KUBE_VIP_ADDRESSES} is set by" in done.stderr

        wait_until(is_warned, seconds=60, what="warning")
        found = denying.admin.request("GET", f"{SERVICES}/warned")
        assert names.KUBE_VIP_ADDRESSES in found["metadata"]["annotations"]
    finally:
        denying.admin.request("PATCH", f"{binding}/{POLICY}", body={"spec": {"validationActions": ["Deny", "Audit"]}})


@pytest.mark.apiserver
def test_installation_says_whether_the_policy_is_in_force(denying: ControlPlane) -> None:
    words = ("get", "notes", RELEASE, "--namespace", NAMESPACE)
    notes = run_helm(*words, kubeconfig=denying.admin_kubeconfig)
    assert "Policy for the annotations of kube-vip (kubeVipPolicy): deny" in notes
    assert denying.admin.get_or_none(f"{POLICIES}/{POLICY}") is not None
