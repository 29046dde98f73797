"""What the pages say about IP pools and labels works on the Harvesters for which they say it."""

import asyncio
import re
from pathlib import Path
from typing import Final

import pytest
import yaml

from devenv.harvester.machines import Kind, Machine
from devenv.harvester.records import MACHINES, POOLS
from devenv.harvester.webhook import NETWORKS
from harvester_ccm.names import IP_POOL
from tests.support.builders import CLUSTER, service
from tests.support.clock import jumping_time
from tests.support.memory_server import Document
from tests.support.versioned_harvester import World

ROOT: Final = Path(__file__).parents[2]
NETWORK: Final = "vms/vlan-100"
VERSIONS: Final = ("1.3", "1.4", "1.5.0", "1.6", "1.7", "1.8", "1.9")
RANCHER: Final = (Kind.RANCHER, Kind.OLDER_RANCHER)
FIRST_ADDRESS: Final = "192.0.2.200"


def pool_of_the_pages(*, network: bool) -> Document:
    """Return the pool of the install pages, for this cluster; ``network``: with the line for VMs that Rancher made."""
    text = (ROOT / "deploy" / "harvester" / "ippool.yaml").read_text()
    text = text.replace("CLUSTER-NAME", CLUSTER.name).replace("my-namespace", CLUSTER.namespace)
    if network:
        text = text.replace("# network:", "network:")
    document: Document = yaml.safe_load(text)
    return document


PLACES: dict[str, tuple[Kind, bool, bool]] = {
    "without labels": (Kind.PLAIN, False, False),
    **{f"made by {kind}": (kind, True, False) for kind in RANCHER},
    **{f"{kind}, named pool": (kind, False, True) for kind in Kind},
}
"""VM of the cluster, whether the pool has the line for its network, and whether the Service names the pool."""


@pytest.mark.parametrize(("kind", "network", "names_its_pool"), PLACES.values(), ids=PLACES)
@pytest.mark.parametrize("number", VERSIONS)
@jumping_time
async def test_pool_of_the_pages_serves_a_cluster(
    number: str, kind: Kind, *, network: bool, names_its_pool: bool
) -> None:
    world = World()
    machine = Machine.of_kind(kind, 1, CLUSTER.name, namespace=CLUSTER.namespace, networks=(NETWORK,))
    world.put_machine(machine, "192.0.2.10")
    namespace, _, name = NETWORK.partition("/")
    metadata = {"name": name, "namespace": namespace}
    world.put_document(NETWORKS, {"metadata": metadata, "spec": {"config": "{}"}})
    pool = pool_of_the_pages(network=network)
    async with world.on(number):
        await asyncio.sleep(1)
        world.put_document(POOLS, pool)
        world.put(service(annotations={IP_POOL: pool["metadata"]["name"]} if names_its_pool else {}))
        async with world.live():
            await asyncio.sleep(60)
    assert world.address() == FIRST_ADDRESS
    assert world.warnings() == []


def labels_of_the_page() -> dict[str, str]:
    """Return the labels that the page about Harvester 1.8.0 has an administrator give a VM."""
    page = (ROOT / "docs" / "operations" / "troubleshooting.md").read_text()
    _, _, section = page.partition("### Harvester 1.8.0 takes no load balancer")
    command = section.partition("```sh\n")[2].partition("```")[0]
    assert " label --overwrite virtualmachine NAME" in command, "the VM itself, not its template"
    return dict(re.findall(r"^ +(\S+)=(\S+)", command.replace("=CLUSTER", f"={CLUSTER.name}"), re.MULTILINE))


@jumping_time
async def test_label_that_the_page_names_ends_the_rejections_of_harvester_1_8_0() -> None:
    world = World()
    machine = Machine.of_kind(Kind.LABELLED, 1, CLUSTER.name, namespace=CLUSTER.namespace, networks=("",))
    world.put_machine(machine, "192.0.2.10")
    async with world.on("1.8.0"):
        world.put_document(POOLS, pool_of_the_pages(network=False))
        world.put(service())
        async with world.live():
            await asyncio.sleep(60)
            assert world.address() == ""
            assert "it has no running vm" in world.warnings()[0]
            key = f"{CLUSTER.namespace}/{machine.name}"
            world.harvester.change(MACHINES, key, {"metadata": {"labels": labels_of_the_page()}})
            await asyncio.sleep(600)
            assert world.address() == FIRST_ADDRESS
