"""Views of API objects: provider IDs, the network mapping, load balancers and VM instances."""

import gc

import msgspec
import pytest

from devenv.watch import Document
from harvester_ccm.model.core import (
    CONFIG_MAPS,
    PROVIDER_SCHEME,
    SERVICES,
    ConfigMap,
    parse_provider_id,
    published_devices,
)
from harvester_ccm.model.harvester import INSTANCES, LOAD_BALANCERS, WHOLE_LOAD_BALANCERS, LoadBalancer
from harvester_ccm.names import NAD_MAPPING_KEY

UID = "c9b1f1a2-5c1e-4b7e-9a52-1d2f3a4b5c6d"


@pytest.mark.parametrize(
    ("provider_id", "uid"),
    [
        (f"harvester://{UID}", UID),
        ("", None),
        ("k3s://w1", None),
        ("aws:///eu-west-1a/i-0123", None),
        ("harvester://", None),
        ("harvester:///ns/w1", None),
        (UID, None),
    ],
)
def test_vm_uid_of_a_provider_id(provider_id: str, uid: str | None) -> None:
    assert parse_provider_id(provider_id) == uid
    assert uid is None or PROVIDER_SCHEME + uid == provider_id


@pytest.mark.parametrize(
    ("data", "devices"),
    [
        ({NAD_MAPPING_KEY: '{"infra/vlan9": "eth1", "vlan8": ""}'}, {"infra/vlan9": "eth1", "vlan8": ""}),
        ({NAD_MAPPING_KEY: ""}, {}),
        (None, {}),
        ({NAD_MAPPING_KEY: "null"}, None),
        ({NAD_MAPPING_KEY: '{"vlan8": "eth1"'}, None),
        ({NAD_MAPPING_KEY: '{"vlan8":' + "[" * 2000}, None),
        ({NAD_MAPPING_KEY: '["vlan8"]'}, None),
        ({NAD_MAPPING_KEY: '{"vlan8": "eth1", "vlan9": 1}'}, None),
        ({NAD_MAPPING_KEY: '{"vlan8": "\\ud800"}'}, None),
    ],
)
def test_network_mapping_that_is_no_object_of_strings_is_unreadable(
    data: dict[str, str] | None, devices: dict[str, str] | None
) -> None:
    assert published_devices(ConfigMap(data=data)) == devices
    assert published_devices(None) is None


def load_balancer(**fields: object) -> LoadBalancer:
    return LOAD_BALANCERS.decode(msgspec.json.encode({"metadata": {"name": "web"}, **fields}))


def test_workload_type_and_backends_of_a_load_balancer() -> None:
    assert load_balancer().spec.workload_type == "vm", "Harvester's upgrade to 1.2 leaves it out"
    assert load_balancer(spec={"workloadType": "cluster"}).spec.workload_type == "cluster"
    assert load_balancer().backends == ()
    assert load_balancer(status={"backendServers": ["10.1.0.2"]}).backends == ("10.1.0.2",)


def test_document_of_a_whole_load_balancer_lacks_only_the_managed_fields() -> None:
    kept = {"metadata": {"name": "web", "unknown": {"a": [1]}}, "spec": {"ipam": "pool", "unknown": 1}, "new": None}
    metadata = {**kept["metadata"], "managedFields": [{"manager": "kubectl"}]}  # type: ignore[dict-item]
    source = msgspec.json.encode({**kept, "metadata": metadata})
    assert WHOLE_LOAD_BALANCERS.decode(source).document() == kept


def test_values_of_another_form_hide_no_object() -> None:
    meta = CONFIG_MAPS.decode(b'{"metadata": {"generation": "3", "creationTimestamp": "soon"}}').metadata
    assert (meta.generation, meta.created) == (3, None)


def test_host_name_in_the_status_of_a_service_is_no_address() -> None:
    status = {"loadBalancer": {"ingress": [{"hostname": "web.example.com"}, {"ip": "10.0.0.1"}]}}
    assert SERVICES.decode(msgspec.json.encode({"status": status})).addresses == ("10.0.0.1",)


def test_more_addresses_of_a_nic_are_kept_than_services_have_on_a_node() -> None:
    nic = {**NIC, "ipAddresses": [f"10.0.0.{number}" for number in range(200)]}
    source = msgspec.json.encode({"spec": NETWORKS, "status": {"interfaces": [nic]}})
    assert len(INSTANCES.decode(source).interfaces[0].addresses) == 200


def test_garbage_collector_ignores_views() -> None:
    found = load_balancer(spec={"healthCheck": {"port": 80}}, status={})
    assert not any(gc.is_tracked(one) for one in (found, found.metadata, found.spec, found.status))


NETWORKS: Document = {"networks": [{"name": "nic-1", "multus": {"networkName": "default/vlan1"}}]}
NIC: Document = {"name": "nic-1", "interfaceName": "enp1s0", "ipAddresses": ["10.0.0.1", "fd00::1"]}
POD: Document = {"interfaceName": "cali0123456789a", "ipAddress": "fe80::ecee:eeff:feee:eeee"}
UNPLUGGED: Document = {"name": "nic-2", "interfaceName": "enp2s0", "ipAddresses": ["10.0.0.2"]}
BRIDGE: Document = {"name": "", "interfaceName": "cni0", "ipAddresses": ["10.42.0.1"]}


@pytest.mark.parametrize("interfaces", [[NIC], [BRIDGE, NIC, POD], [*[POD] * 60, NIC], [NIC, UNPLUGGED]])
def test_devices_in_no_network_of_the_vm_are_left_out(interfaces: list[Document]) -> None:
    source = msgspec.json.encode({"spec": NETWORKS, "status": {"interfaces": interfaces}})
    assert [one.interface_name for one in INSTANCES.decode(source).interfaces] == ["enp1s0"]
    assert INSTANCES.decode(b'{"status":{"interfaces":null}}').interfaces == ()
