"""Reading objects from files: every form that kubectl prints, and every fault with its place."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from harvester_ccm.commands.files import read_files
from harvester_ccm.errors import ConfigurationError
from tests.unit.commands import objects
from tests.unit.commands.conftest import Runner, Writer, listed

PAIR = (objects.service(), objects.balancer(name="lb"))
YAML = """\
apiVersion: v1
kind: Service
metadata: {name: web, namespace: shop, uid: u, creationTimestamp: 2026-11-21T08:00:00Z}
spec: {type: LoadBalancer, ports: [{port: 80}]}
---
# nothing here
---
apiVersion: loadbalancer.harvesterhci.io/v1beta1
kind: LoadBalancer
metadata: {name: lb, namespace: vms}
spec: {workloadType: cluster, ipam: pool}
"""


def read(tmp_path: Path, text: str, *, namespace: str = "") -> tuple[list[str], list[str], str]:
    """Return the keys of Services and load balancers, and the namespace."""
    path = tmp_path / "case"
    path.write_text(text)
    found = read_files([str(path)], namespace=namespace)
    services = [one.metadata.key for one in found.services]
    return services, [one.metadata.key for one in found.load_balancers], found.namespace


@pytest.mark.parametrize(
    "text",
    [
        pytest.param(YAML, id="YAML documents"),
        pytest.param("\n".join(map(json.dumps, PAIR)), id="JSON after JSON"),
        pytest.param(json.dumps(listed(PAIR)), id="a List"),
        pytest.param(json.dumps(listed([listed(PAIR)])), id="a List in a List"),
        pytest.param("{kind: Service, apiVersion: v1, metadata: {name: web, namespace: shop, uid: u}}\n---\n"
                     "{kind: LoadBalancer, apiVersion: loadbalancer.harvesterhci.io/v1beta1, "
                     "metadata: {name: lb, namespace: vms}, spec: {}}", id="YAML in braces"),
    ],
)  # fmt: skip
def test_forms(tmp_path: Path, text: str) -> None:
    assert read(tmp_path, text) == (["shop/web"], ["vms/lb"], "vms")


def test_times_stay_text(tmp_path: Path) -> None:
    path = tmp_path / "case"
    path.write_text(YAML)
    (service,) = read_files([str(path)], namespace="").services
    assert service.metadata.creation_timestamp == "2026-11-21T08:00:00Z"


def test_items_of_a_typed_list_need_no_kind(tmp_path: Path) -> None:
    items = [{key: value for key, value in objects.service().items() if key not in {"kind", "apiVersion"}}]
    document = {"apiVersion": "v1", "kind": "ServiceList", "items": items}
    assert read(tmp_path, json.dumps(document))[0] == ["shop/web"]


def test_what_is_missing_is_supposed(tmp_path: Path) -> None:
    path = tmp_path / "case"
    path.write_text("kind: Service\napiVersion: v1\nmetadata: {name: web}\n")
    contents = read_files([str(path)], namespace="")
    assert contents.services[0].metadata.key == "default/web"
    assert contents.assumptions == (
        "namespace in Harvester: default; --harvester-namespace names another",
        "Service web has no namespace: default is taken",
        "Service web has no UID: the name of its load balancer cannot be told for certain",
    )


def test_other_objects_are_passed_over(tmp_path: Path) -> None:
    path = tmp_path / "case"
    others = [
        {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p", "namespace": "shop"}},
        {"apiVersion": "serving.knative.dev/v1", "kind": "Service", "metadata": {"name": "k", "namespace": "shop"}},
    ]
    path.write_text(json.dumps(listed([objects.service(), *others])))
    contents = read_files([str(path)], namespace="vms")
    assert [one.metadata.key for one in contents.services] == ["shop/web"]
    assert contents.assumptions == ("not looked at: Pod shop/p, Service shop/k",)


def test_one_namespace_of_harvester_counts(tmp_path: Path) -> None:
    other = objects.balancer(name="other")
    other["metadata"]["namespace"] = "elsewhere"
    text = json.dumps(listed([objects.balancer(name="lb"), other]))
    assert read(tmp_path, text, namespace="vms")[1:] == (["vms/lb"], "vms")
    with pytest.raises(
        ConfigurationError, match=r"several namespaces in Harvester \(elsewhere, vms\); .* --harvester-namespace"
    ):
        read(tmp_path, text)


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("a: b: c", "neither YAML nor JSON at line 1"),
        ("{", "neither YAML nor JSON"),
        ("just words", "a document is no Kubernetes object"),
        ("- a\n- b", "a document is no Kubernetes object"),
        ("kind: Service\napiVersion: v1\nmetadata: {}\n", "a Service has no metadata.name"),
        (
            "kind: Service\napiVersion: v1\nmetadata: {name: web}\nspec: {ports: [{port: eighty}]}\n",
            r"Service web: Expected `int`, got `str` - at `\$.spec.ports\[0\].port`",
        ),
        ("kind: Service\napiVersion: v1\nmetadata: {name: web}\nspec: {1: 2, [3]: 4}", "neither YAML nor JSON"),
    ],
)
def test_faults(tmp_path: Path, text: str, problem: str) -> None:
    with pytest.raises(ConfigurationError, match=problem):
        read(tmp_path, text)


def test_binary_files_and_directories(tmp_path: Path) -> None:
    path = tmp_path / "case"
    path.write_bytes(b"\xff\xfe\x00")
    with pytest.raises(ConfigurationError, match="not UTF-8 text"):
        read_files([str(path)], namespace="")
    with pytest.raises(ConfigurationError, match="is a directory"):
        read_files([str(tmp_path)], namespace="")


def test_the_remedy_for_several_namespaces_works(run: Runner, case: Writer) -> None:
    other = objects.balancer(name="other")
    other["metadata"]["namespace"] = "elsewhere"
    file = case(objects.service(), objects.balancer(), other)
    for command in (("status",), ("explain",), ("explain", "svc/web"), ("explain", "nad-mapping")):
        refused = run(*command, "-f", file, "--cluster-name=demo")
        assert refused.code == 2
        assert "choose one with --harvester-namespace" in refused.err
        chosen = run(*command, "-f", file, "--cluster-name=demo", "--harvester-namespace=vms", "-o", "json")
        assert (chosen.code in (0, 1), chosen.err) == (True, "")
    assert (
        run("status", "-f", file, "--harvester-namespace=elsewhere", "-o", "json").document["namespace"] == "elsewhere"
    )


@pytest.mark.parametrize(
    ("words", "problem"),
    [
        (("explain", "nad-mapping", "-n", "vms"), "--namespace is that of a Service, and the mapping is in none"),
        (("explain", "--harvester-namespace=vms"), "--harvester-namespace goes with -f"),
        (("explain", "nad-mapping", "--harvester-namespace=vms"), "--harvester-namespace goes with -f"),
        (("status", "--harvester-namespace=vms"), "--harvester-namespace goes with -f"),
    ],
)
def test_namespaces_that_mean_nothing_are_refused(run: Runner, words: tuple[str, ...], problem: str) -> None:
    result = run(*words, "--cloud-config=/missing")
    assert (result.code, result.out) == (2, "")
    assert problem in result.err


def test_the_older_namespace_of_a_service_in_files(run: Runner, case: Writer) -> None:
    result = run("explain", "service", "-f", case(objects.service()), "-n", "vms", "--cluster-name=demo")
    assert (result.code, result.out) == (2, "")
    assert "there is no Service of namespace vms in the files; there are: shop/web. " in result.err
    assert "is --harvester-namespace" in result.err
