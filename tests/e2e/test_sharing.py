"""Services that share one address."""

import pytest

from devenv.stage import Stage, until
from harvester_ccm.names import (
    KUBE_VIP_ADDRESSES,
    PRIMARY_SERVICE,
    PRIMARY_SERVICE_LABEL,
    SERVICE_FINALIZER,
    Reason,
)
from tests.e2e.observing import announced, ingress_of

pytestmark = [pytest.mark.apiserver, pytest.mark.usefixtures("ccm")]


async def create(
    stage: Stage, name: str, port: int, *, of: str = "", protocol: str = "TCP", namespace: str = "default"
) -> None:
    """Create a Service with one port; ``of`` is the primary whose address it wants."""
    ports = [{"name": "main", "port": port, "protocol": protocol}]
    annotations = {PRIMARY_SERVICE: of} if of else {}
    await stage.create_service(name, namespace=namespace, ports=ports, annotations=annotations)


async def has_address(stage: Stage, address: str, *names: str, namespace: str = "default") -> None:
    """Return when all these Services have the address."""

    async def same() -> bool:
        found = [await stage.service(name, namespace) for name in names]
        return all(one is not None and one.addresses == (address,) for one in found)

    await until(same, within=60, what=f"{address} on {', '.join(names)}")


async def test_tcp_and_udp_services_with_one_port_share_an_address(stage: Stage) -> None:
    await create(stage, "dns-udp", 53, protocol="UDP")
    await create(stage, "dns-tcp", 53, of="default/dns-udp")
    await stage.served("dns-udp", "dns-tcp")

    await has_address(stage, "127.77.0.2", "dns-udp", "dns-tcp")
    assert len(await stage.load_balancers()) == 1
    await announced(stage, {"127.77.0.2": {"default/dns-udp", "default/dns-tcp"}})
    document = await stage.service_document("dns-tcp")
    assert ingress_of(document) == [{"ip": "127.77.0.2", "ports": [{"port": 53, "protocol": "TCP"}]}]
    assert document["metadata"]["finalizers"] == [SERVICE_FINALIZER]
    assert document["metadata"]["labels"] == {PRIMARY_SERVICE_LABEL: "default.dns-udp"}
    assert document["metadata"]["annotations"][KUBE_VIP_ADDRESSES] == "127.77.0.2"
    told = await stage.hears("dns-tcp", Reason.ENSURED)
    assert told.message == "Ensured load balancer, address 127.77.0.2 shared with default/dns-udp"

    await stage.delete_service("dns-tcp")
    await stage.gone("dns-tcp")
    assert len(await stage.load_balancers()) == 1
    await stage.delete_service("dns-udp")
    await stage.gone("dns-udp")
    await stage.nothing_left()
