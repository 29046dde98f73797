"""Mutations and rejections of the webhook with their texts."""

from typing import Any

import pytest

from devenv.harvester.admission import (
    Refusal,
    Surroundings,
    find_network,
    mutate,
    validate_create,
    validate_update,
)
from devenv.harvester.machines import Machine, instance_document, machine_document
from devenv.harvester.pool_admission import labelled, mutate_pool, validate_pool
from devenv.watch import Document
from tests.devenv.emulated import LISTENER, balancer, vm_balancer

NAMESPACE: Document = {"metadata": {"name": "default", "annotations": {"field.cattle.io/projectId": "c-q4xz6:p-6vvfz"}}}
PREFIX = "loadbalancer.harvesterhci.io"
CHECK = {"port": 30080, "successThreshold": 1, "failureThreshold": 1, "periodSeconds": 1, "timeoutSeconds": 1}


def listener(**changes: Any) -> Document:
    return {**LISTENER, **changes}


def refusal_of(document: Document, before: Document | None = None, around: Surroundings | None = None) -> str | None:
    try:
        if before is None:
            validate_create(document, around or Surroundings())
        else:
            validate_update(document, before)
    except Refusal as refusal:
        return str(refusal)
    return None


@pytest.mark.parametrize(
    ("spec", "text"),
    [
        ({"listeners": []}, ": the loadbalancer needs to have at least one listener"),
        (
            {"listeners": [listener(name="a"), listener(name="a", port=81, backendPort=1)]},
            ": listener has duplicate name a",
        ),
        (
            {"listeners": [listener(name="a", port=80), listener(name="b", port=80, backendPort=1)]},
            ": listener b has duplicate port TCP:80 with listener a",
        ),
        (
            {"listeners": [listener(name="a", port=80), listener(name="b", port=81)]},
            ": listener b has duplicate backend port TCP:30080 with listener a",
        ),
        ({"listeners": [listener(port=65536)]}, ": listener port 65536 must <= 65535"),
        ({"listeners": [listener(backendPort=70000)]}, ": listener backend port 70000 must <= 65535"),
        (
            {"listeners": [{"name": "a", "port": 80, "protocol": "TCP"}]},
            ": listener backend port 0 must >= 1",
        ),
        (
            {"healthCheck": {**CHECK, "port": 8080}},
            " with healthyCheck: healthcheck port 8080 is not in listener backend port list",
        ),
        (
            {"listeners": [listener(protocol="UDP")], "healthCheck": CHECK},
            " with healthyCheck: healthcheck port 30080 can only be a TCP backend port",
        ),
        (
            {"healthCheck": {**CHECK, "successThreshold": 0}},
            " with healthyCheck: healthcheck SuccessThreshold should > 0",
        ),
        ({"healthCheck": {**CHECK, "timeoutSeconds": 0}}, " with healthyCheck: healthcheck TimeoutSeconds should > 0"),
    ],
)
def test_vm_rules_hold_on_create_and_update(spec: Document, text: str) -> None:
    document = vm_balancer("web", **spec)
    assert refusal_of(document) == f"create loadbalancer default/web failed{text}"
    assert refusal_of(document, vm_balancer("web")) == f"update loadbalancer default/web failed{text}"
    assert refusal_of(balancer("web", **spec)) is None, "only for VM load balancers"


@pytest.mark.parametrize(
    "spec",
    [
        {"listeners": [listener(protocol="UDP")]},
        {"listeners": [listener(name="a"), listener(name="b", protocol="UDP")]},
        {"listeners": [listener(protocol="HTTP")]},
        {"listeners": [listener(name="")]},
        {"backendServerSelector": {"a": []}},
        {"healthCheck": {**CHECK, "timeoutSeconds": 9}},
        {"healthCheck": {"port": 0, "successThreshold": 5}},
    ],
)
def test_accepted_unusual_values(spec: Document) -> None:
    assert refusal_of(vm_balancer("web", **spec)) is None


ABSENT = object()


def typed(key: str, value: object, **more: Any) -> Document:
    document = vm_balancer("web", **more)
    document["spec"].pop(key)
    return document if value is ABSENT else {**document, "spec": {**document["spec"], key: value}}


@pytest.mark.parametrize(
    ("key", "old", "new", "text"),
    [
        ("ipam", "pool", "dhcp", "can't change the IPAM from pool to dhcp"),
        ("ipam", "dhcp", ABSENT, "can't change the IPAM from dhcp to "),
        ("ipam", "pool", ABSENT, None),
        ("ipam", ABSENT, "pool", None),
        ("workloadType", "vm", "cluster", "can't change the WorkloadType from vm to cluster"),
        ("workloadType", "cluster", ABSENT, "can't change the WorkloadType from cluster to "),
        ("workloadType", "vm", ABSENT, None),
    ],
)
def test_immutable_fields(key: str, old: object, new: object, text: str | None) -> None:
    expected = text and f"update loadbalancer default/web failed: {text}"
    assert refusal_of(typed(key, new), typed(key, old)) == expected


def removed_cluster(name: str) -> Surroundings:
    machine = machine_document(Machine("node-1", cluster=name))
    machine["metadata"]["annotations"] = {"harvesterhci.io/removeAllPersistentVolumeClaims": "true"}
    return Surroundings(machines=[machine])


def of_cluster(name: str, make: Any = balancer) -> Document:
    document: Document = make("web")
    document["metadata"]["labels"] = {"cloudprovider.harvesterhci.io/cluster": name}
    return document


@pytest.mark.parametrize(
    ("document", "cluster", "is_refused"),
    [
        (of_cluster("demo"), "demo", True),
        (of_cluster("demo"), "other", False),
        (of_cluster("kubernetes"), "kubernetes", False),
        (balancer("web"), "demo", False),
        (of_cluster("demo", vm_balancer), "demo", False),
    ],
)
def test_no_load_balancer_for_a_cluster_that_is_removed(document: Document, cluster: str, is_refused: bool) -> None:
    text = "the vm default/node-1 shows guest cluster demo is being removed"
    expected = f"create loadbalancer default/web failed with guest cluster check: {text}" if is_refused else None
    assert refusal_of(document, around=removed_cluster(cluster)) == expected


def test_mutation_of_a_cluster_load_balancer() -> None:
    machine = instance_document(Machine("node-1"))
    around = Surroundings(namespace=NAMESPACE, instances=[machine])
    assert mutate(balancer("web"), around)["metadata"]["annotations"] == {
        f"{PREFIX}/cluster": "demo",
        f"{PREFIX}/namespace": "default",
        f"{PREFIX}/project": "c-q4xz6/p-6vvfz",
        f"{PREFIX}/network": "default/vlan1",
    }


def test_mutation_of_a_vm_load_balancer_leaves_the_clients_annotations() -> None:
    document = vm_balancer("web")
    document["metadata"]["annotations"] = {f"{PREFIX}/network": "a/b", f"{PREFIX}/namespace": "wrong"}
    changed = mutate(document, Surroundings())["metadata"]["annotations"]
    assert changed == {f"{PREFIX}/network": "a/b", f"{PREFIX}/namespace": "default"}


@pytest.mark.parametrize(
    ("annotations", "expected"),
    [
        ({f"{PREFIX}/network": "a/b", "cloudprovider.harvesterhci.io/managementNetwork": "c/d"}, "a/b"),
        ({"cloudprovider.harvesterhci.io/managementNetwork": "c/d", f"{PREFIX}/cluster": "demo"}, "c/d"),
        ({f"{PREFIX}/cluster": "demo"}, "default/labelled"),
        ({f"{PREFIX}/cluster": "old"}, "default/named"),
        ({f"{PREFIX}/cluster": ""}, ""),
        ({f"{PREFIX}/cluster": "nobody"}, ""),
    ],
)
def test_network_is_found_in_this_order(annotations: dict[str, str], expected: str) -> None:
    labelled = instance_document(Machine("x", cluster="demo", networks=("", "default/labelled")))
    named = instance_document(Machine("old-pool-1", cluster="other", networks=("default/named",)))
    assert find_network(annotations, [named, labelled]) == expected


def test_missing_thresholds_are_filled_in_where_there_is_a_port() -> None:
    filled = mutate(vm_balancer("web", healthCheck={"port": 30080, "periodSeconds": 7}), Surroundings())
    assert filled["spec"]["healthCheck"] == {
        "port": 30080,
        "successThreshold": 2,
        "failureThreshold": 2,
        "periodSeconds": 7,
        "timeoutSeconds": 1,
    }
    bare = mutate(vm_balancer("web", healthCheck={"port": 0}), Surroundings())
    assert bare["spec"]["healthCheck"] == {"port": 0}


def test_negative_threshold_is_refused_by_the_mutator() -> None:
    with pytest.raises(Refusal) as caught:
        mutate(vm_balancer("web", healthCheck={"port": 30080, "successThreshold": -1}), Surroundings())
    assert str(caught.value) == (
        "json: cannot unmarshal number -1 into Go struct field "
        "HealthCheck.spec.healthCheck.successThreshold of type uint"
    )


def ip_pool(name: str, *ranges: str, **selector: Any) -> Document:
    entries = [{"subnet": entry} for entry in ranges]
    return labelled({"metadata": {"name": name}, "spec": {"ranges": entries, "selector": selector}})


def whole(prefix: str) -> str:
    """Return a whole /24 as Go prints it."""
    ends = f"RangeStart:{prefix}.1 RangeEnd:{prefix}.254"
    return f"{{{ends} Subnet:{{IP:{prefix}.0 Mask:ffffff00}} Gateway:{prefix}.1}}"


SCOPE = {"project": "*", "namespace": "ns", "guestCluster": "*"}
EVERYBODY = {"project": "*", "namespace": "*", "guestCluster": "*"}


@pytest.mark.parametrize(
    ("pool", "text"),
    [
        (ip_pool("p"), "range can't be empty"),
        (ip_pool("p", "x"), "invalid CIDR address: x, a valid example is 192.168.1.0/24"),
        (ip_pool("p", "10.0.0.0/24"), f"the ranges [{whole('10.0.0')}] overlap with other pools"),
        (
            ip_pool("p", "10.1.0.0/24", "10.1.0.0/25"),
            (
                f"there are overlaps between range {whole('10.1.0')} and {{RangeStart:10.1.0.1 RangeEnd:10.1.0.126 "
                "Subnet:{IP:10.1.0.0 Mask:ffffff80} Gateway:10.1.0.1}"
            ),
        ),
        (ip_pool("p", "10.1.0.0/24", scope=[EVERYBODY]), "there is already a global IP pool: other"),
        (ip_pool("p", "10.1.0.0/24", priority=7), "the priority can't be the same as the pool high"),
        (
            ip_pool("p", "10.1.0.0/24", scope=[SCOPE]),
            (
                "scope selector is same as the pool scoped with priority 0 Project * Namespace ns GuestCluster *, "
                "set a different priority or scope"
            ),
        ),
        (ip_pool("p", "10.1.0.9"), "invalid CIDR address: 10.1.0.9, a valid example is 192.168.1.0/24"),
        (
            ip_pool("p", "10.1.0.0/24", scope=[{**SCOPE, "namespace": "*", "project": "c-1/p-1"}]),
            (
                "scope selector is same as the pool scoped with priority 0 Project c-1/p-1 Namespace * GuestCluster *, "
                "set a different priority or scope"
            ),
        ),
    ],
)
def test_pool_refusals(pool: Document, text: str) -> None:
    others = [
        ip_pool("other", "10.0.0.0/24", scope=[EVERYBODY]),
        ip_pool("high", "10.8.0.0/24", priority=7),
        ip_pool("scoped", "10.9.0.0/24", scope=[SCOPE]),
    ]
    for create, verb in ((True, "create"), (False, "update")):
        with pytest.raises(Refusal) as caught:
            validate_pool(pool, others, create=create)
        assert str(caught.value) == f"can't {verb} IP pool p because {text}"


@pytest.mark.parametrize(
    ("network", "text"),
    [
        ("x", "invalid network x"),
        ("a/gone", 'network-attachment-definitions.k8s.cni.cncf.io "gone" not found'),
    ],
)
def test_no_write_of_a_pool_is_accepted_whose_network_cannot_be_read(network: str, text: str) -> None:
    pool = ip_pool("p", "10.1.0.0/24", network=network)
    for create, verb in ((True, "create"), (False, "update")):
        with pytest.raises(Refusal) as caught:
            mutate_pool(pool, [], create=create)
        assert str(caught.value) == f"can't {verb} IP pool p because {text}"
