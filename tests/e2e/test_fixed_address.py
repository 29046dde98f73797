"""Requested addresses on real API servers: the credential has exactly the verbs that ``generate_addon.sh`` grants."""

import asyncio
from collections.abc import AsyncIterator

import pytest

from devenv.apiserver import SERVICE_ACCOUNT
from devenv.ccm import CcmProcess
from devenv.stage import Stage, until
from harvester_ccm.model.core import Service
from harvester_ccm.names import IP_POOL

pytestmark = pytest.mark.apiserver

RIGHTS = "requested-addresses"
RBAC = "/apis/rbac.authorization.k8s.io/v1"
POOL = "/ippools/lan"
PERMITTED = "permission for requested addresses"


@pytest.fixture
async def permitted(stage: Stage, lan: None) -> AsyncIterator[CcmProcess]:
    """The leader, which may request addresses of pool lan."""
    api_version = "rbac.authorization.k8s.io/v1"
    meta = {"name": RIGHTS}
    rule = {"apiGroups": ["loadbalancer.harvesterhci.io"], "resources": ["ippools"], "resourceNames": ["lan"]}
    subject = {"kind": "ServiceAccount", "name": SERVICE_ACCOUNT, "namespace": "default"}
    role = {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": RIGHTS}
    harvester = stage.scene.harvester
    harvester.apply(
        {
            "apiVersion": api_version,
            "kind": "ClusterRole",
            "metadata": meta,
            "rules": [{**rule, "verbs": ["get", "patch"]}],
        },
        {
            "apiVersion": api_version,
            "kind": "ClusterRoleBinding",
            "metadata": meta,
            "roleRef": role,
            "subjects": [subject],
        },
    )
    run = stage.run(proxied=True)
    await stage.logged(run, PERMITTED)
    yield run
    for plural in ("clusterrolebindings", "clusterroles"):
        harvester.admin.request("DELETE", f"{RBAC}/{plural}/{RIGHTS}")


async def request(stage: Stage, name: str, address: str) -> None:
    await stage.create_service(name, annotations={IP_POOL: "lan"}, spec={"loadBalancerIP": address})


async def allocated(stage: Stage, wanted: dict[str, str]) -> bool:
    """Return whether each Service has the address that it requests, and is Ready.

    The status alone does not show it: kube-vip writes ``spec.loadBalancerIP`` there before Harvester allocates it.
    """
    services = [await stage.service(name) for name in wanted]
    found = [service.addresses for service in services if service is not None and _is_ready(service)]
    return found == [(address,) for address in wanted.values()]


def _is_ready(service: Service) -> bool:
    condition = service.ready_condition
    return condition is not None and condition.status == "True"


@pytest.mark.usefixtures("permitted")
async def test_services_get_their_requested_addresses_with_two_requests_each(stage: Stage) -> None:
    wanted = {f"web-{number}": f"127.77.0.{90 - number}" for number in range(6)}
    await asyncio.gather(*(request(stage, name, address) for name, address in wanted.items()))
    await until(lambda: allocated(stage, wanted), within=60, what="requested addresses")
    methods = [record.method for record in stage.harvester_proxy.matching(path=POOL)]
    assert (methods.count("GET"), methods.count("PATCH"), len(methods)) == (6, 6, 12)
    assert {record.status for record in stage.harvester_proxy.matching(path=POOL)} == {200}
