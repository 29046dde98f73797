"""What is kept of an object: what is read of it. Whoever writes the object decides on its size."""

import ast
import inspect
import itertools
import re
from typing import Any

import msgspec
import pytest

from harvester_ccm import names
from harvester_ccm.kube.objects import MAX_NOTICED, Object, Resource
from harvester_ccm.model.core import ENDPOINT_SLICES, MAX_PORTS, NODES, SERVICES
from harvester_ccm.model.harvester import INSTANCES, LOAD_BALANCERS, MAX_KEPT, VIRTUAL_MACHINES
from harvester_ccm.plan.service.load_balancer import specification, vm_spec
from harvester_ccm.redaction import MAX_FOREIGN_TEXT

KIB = 1024
LARGE = "x" * 255 * KIB
SPEC: dict[str, Any] = {
    "type": "LoadBalancer",
    "loadBalancerIP": LARGE,
    "loadBalancerSourceRanges": ["0.0.0.0/0"] * 9999,
}
TEMPLATE = {"metadata": {"labels": {"a": LARGE}, "annotations": {names.VM_NAME: LARGE}}}
CONDITIONS = [{"type": f"{number}", "status": "True", "message": LARGE} for number in range(4)]
OBJECTS: dict[str, tuple[Resource[Any], dict[str, Any]]] = {
    "Service": (SERVICES, {"spec": SPEC}),
    "ports of another type": (SERVICES, {"spec": {"ports": [{"name": f"p{n}", "port": n} for n in range(20_000)]}}),
    "Node": (NODES, {"status": {"conditions": CONDITIONS}}),
    "EndpointSlice": (ENDPOINT_SLICES, {"endpoints": [{"addresses": ["10.0.0.1"], "nodeName": "a"}] * 1000}),
    "LoadBalancer": (LOAD_BALANCERS, {"spec": {"description": "x" * 1400 * KIB}, "status": {"conditions": CONDITIONS}}),
    "VirtualMachine": (VIRTUAL_MACHINES, {"spec": {"template": TEMPLATE}}),
    "VirtualMachineInstance": (INSTANCES, {}),
}


def decoded(resource: Resource[Any], document: dict[str, Any]) -> Any:
    return resource.decode(msgspec.json.encode(document))


@pytest.mark.parametrize(("resource", "document"), OBJECTS.values(), ids=OBJECTS)
@pytest.mark.security("What is kept of an object is what is read of it: known labels and annotations")
def test_of_a_large_object_little_is_kept(resource: Resource[Any], document: dict[str, Any]) -> None:
    unread = {f"example.com/{number}": "x" * 200 for number in range(1000)}
    noticed = {f"{names.PREFIX}unknown-{number}": LARGE for number in range(1000)}
    finalizers = [f"example.com/{number}" for number in range(20_000)]
    metadata = {"name": "web", "labels": unread, "annotations": {**unread, **noticed}, "finalizers": finalizers}
    found: Object = decoded(resource, {"metadata": metadata, **document})
    assert len(msgspec.json.encode(found)) < 16 * KIB
    assert found.metadata.name == "web"


def test_of_a_service_known_annotations_and_keys_of_unknown_ones_are_kept() -> None:
    annotations = {
        names.NETWORK: "vms/vlan8",
        names.KUBE_VIP_ADDRESSES: "10.0.0.7",
        f"{names.PREFIX}ip-pol": "lan",
        "harvesterhci.io/ip-pool": "lan",
        "metallb.io/address-pool": "lan",
        "example.com/note": "text",
    }
    labels = {names.PRIMARY_SERVICE_LABEL: "shop.web", "app": "web", names.FOREIGN_LABEL[0]: "kube-vip"}
    found = decoded(SERVICES, {"metadata": {"annotations": annotations, "labels": labels}})
    assert found.metadata.annotations == {
        names.NETWORK: "vms/vlan8",
        names.KUBE_VIP_ADDRESSES: "10.0.0.7",
        f"{names.PREFIX}ip-pol": "",
        "harvesterhci.io/ip-pool": "",
        "metallb.io/address-pool": "",
    }
    assert found.metadata.labels == {names.PRIMARY_SERVICE_LABEL: "shop.web", names.FOREIGN_LABEL[0]: "kube-vip"}


@pytest.mark.security("cut to 1,100 characters")
@pytest.mark.parametrize("key", [*names.SERVICE_ANNOTATIONS, *names.KUBE_VIP_ANNOTATIONS])
def test_value_of_a_known_annotation_is_cut(key: str) -> None:
    found = decoded(SERVICES, {"metadata": {"annotations": {key: LARGE}}})
    assert found.metadata.annotations == {key: "x" * MAX_FOREIGN_TEXT}


def test_value_that_is_cut_never_becomes_a_valid_one() -> None:
    """The beginning of a value that is too long is not what its user wrote."""
    text = "10.0.0.5, " + "x" * 5000
    found = decoded(SERVICES, {"metadata": {}, "spec": {"loadBalancerIP": text}})
    assert found.spec.load_balancer_ip == text[:MAX_FOREIGN_TEXT]
    node = decoded(NODES, {"metadata": {"annotations": {names.PROVIDED_NODE_IP: text}}})
    assert node.metadata.annotation(names.PROVIDED_NODE_IP) == text[:MAX_FOREIGN_TEXT]


def test_list_of_addresses_of_a_node_is_cut_behind_hundreds_of_them() -> None:
    """A list of 20,000 ranges cost 140 ms at every plan of the Node."""
    value = msgspec.json.encode([f"10.0.{number // 250}.{number % 250}/32" for number in range(20_000)]).decode()
    found = decoded(NODES, {"metadata": {"annotations": {names.ADDITIONAL_INTERNAL_IPS: value}}})
    kept = found.metadata.long_annotation(names.ADDITIONAL_INTERNAL_IPS)
    assert len(kept) == 16 * KIB
    assert kept.count(",") > 500


def test_own_finalizer_is_kept_behind_thousands_of_others() -> None:
    finalizers = [*(f"example.com/{number}" for number in range(5000)), names.SERVICE_FINALIZER]
    found = decoded(SERVICES, {"metadata": {"finalizers": finalizers}})
    assert found.metadata.has_finalizer(names.SERVICE_FINALIZER)
    assert len(found.metadata.finalizers) == MAX_NOTICED + 1


def test_ports_of_a_load_balancer_are_kept_up_to_more_than_the_node_ports_of_a_cluster() -> None:
    ports = [{"name": f"p{number}", "port": number, "nodePort": number} for number in range(1, 5000)]
    found = decoded(SERVICES, {"spec": {"type": "LoadBalancer", "ports": ports}})
    assert [port.port for port in found.spec.ports] == list(range(1, MAX_PORTS + 1))
    assert MAX_PORTS > 32768 - 30000


def test_endpoints_that_differ_in_nothing_that_is_read_are_kept_once() -> None:
    endpoints = [
        {"addresses": ["10.0.0.1", "10.0.0.2"], "nodeName": "a", "conditions": {"ready": True}},
        {"addresses": ["10.0.0.3"], "nodeName": "a", "conditions": {"serving": True}},
        {"addresses": ["10.0.0.4"], "nodeName": "a", "conditions": {"ready": False}},
        {"addresses": ["10.0.0.5"], "nodeName": "b"},
        {"addresses": [], "nodeName": "b"},
    ]
    found = decoded(ENDPOINT_SLICES, {"endpoints": endpoints}).endpoints
    assert [(endpoint.addresses, endpoint.node_name, endpoint.is_serving) for endpoint in found] == [
        (("10.0.0.1",), "a", True),
        (("10.0.0.4",), "a", False),
        (("10.0.0.5",), "b", True),
        (None, "b", True),
    ]


@pytest.mark.security("at most 256 KiB of a load balancer or VM")
@pytest.mark.security("A larger one is reported with its size and largest field")
def test_load_balancer_that_is_too_large_says_its_size_the_limit_and_its_largest_field() -> None:
    listeners = [{"name": f"listener-{number}", "port": number} for number in range(10_000)]
    document = {"metadata": {"name": "web"}, "spec": {"description": "a", "listeners": listeners}}
    with pytest.raises(ValueError, match=r"it has [\d,]+ bytes, of which [\d,]+ would be kept") as caught:
        decoded(LOAD_BALANCERS, document)
    assert f"the limit is {MAX_KEPT:,}; its largest field is spec.listeners" in str(caught.value)


MANY: dict[str, Any] = {"networks": [{"name": f"{number:060}"} for number in range(5000)]}


@pytest.mark.parametrize(
    ("resource", "spec"), [(VIRTUAL_MACHINES, {"template": {"spec": MANY}}), (INSTANCES, MANY)], ids=["VM", "instance"]
)
@pytest.mark.security("at most 256 KiB of a load balancer or VM")
def test_vm_that_is_too_large_cannot_be_decoded(resource: Resource[Any], spec: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=r"its largest field is spec\."):
        decoded(resource, {"spec": spec})


def test_plans_compare_only_what_is_kept_of_the_specification() -> None:
    """``_spec_difference`` compares the fields of these functions."""
    written = {key for module in (vm_spec, specification) for key in spec_fields(module)}
    spec = {"listeners": [{"a": "b"}], "backendServerSelector": {"a": ["b"]}, "healthCheck": {"port": 1}}
    kept = decoded(LOAD_BALANCERS, {"spec": {**spec, "description": "text"}})
    assert set(kept.document()["spec"]) >= written


def spec_fields(module: Any) -> set[str]:
    """Return the fields of a specification that a module compares with those of an existing load balancer."""
    text = inspect.getsource(module)
    fields = set(re.findall(r'spec(?:: Document)? = \{"(\w+)": entries, "(\w+)"', text))
    found = {field for pair in fields for field in pair}
    return found | set(re.findall(r'spec\["(\w+)"\]', text)) | set(re.findall(r'spec=\{"(\w+)":', text))


def test_spec_fields_are_found() -> None:
    assert spec_fields(vm_spec) == {"listeners", "healthCheck", "backendServerSelector"}
    assert spec_fields(specification) == {"description"}


def catalogue() -> dict[str, str]:
    """Return the values of the catalogue of names, each with the first words of its text."""
    body = ast.parse(inspect.getsource(names)).body
    found = {}
    for statement, text in itertools.pairwise(body):
        is_documented = isinstance(text, ast.Expr) and isinstance(text.value, ast.Constant)
        if isinstance(statement, ast.AnnAssign) and isinstance(statement.target, ast.Name) and is_documented:
            value = getattr(names, statement.target.id)
            if isinstance(value, str):
                found[value] = str(text.value.value)  # type: ignore[attr-defined]
    return found


@pytest.mark.parametrize(
    ("kinds", "keys"),
    [
        (("Service",), {*names.SERVICE_ANNOTATIONS, *names.KUBE_VIP_ANNOTATIONS, names.PRIMARY_SERVICE_LABEL}),
        (("LoadBalancer",), set(names.LB_KEYS)),
        (("Node",), set(names.NODE_KEYS)),
        (("VirtualMachineInstance",), set(names.VM_KEYS) - {names.ZONE, names.REGION}),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, tuple) else "",
)
def test_every_label_and_annotation_of_the_catalogue_is_kept(kinds: tuple[str, ...], keys: set[str]) -> None:
    pattern = re.compile(rf"({'|'.join(kinds)}) (annotation|label)[, ]")
    assert {value for value, text in catalogue().items() if pattern.match(text)} == keys
