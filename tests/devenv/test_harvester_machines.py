"""Guest agents of VMs, as KubeVirt answers for them."""

from __future__ import annotations

from pathlib import Path

import pytest

from devenv.harvester.guestagent import GuestAgentApi
from devenv.harvester.machines import Machine, Machines
from harvester_ccm.errors import Conflict, Forbidden, NotFound
from harvester_ccm.kube.client import ApiClient
from harvester_ccm.kube.credentials import load_kubeconfig
from harvester_ccm.model.harvester import GUEST_OS_INFO

pytestmark = pytest.mark.apiserver


async def test_guest_agent_answers_under_the_products_rights(
    harvester_admin: ApiClient, harvester_kubeconfig: Path, vm_namespace: str
) -> None:
    machines, node = Machines(harvester_admin), Machine("n1", vm_namespace)
    await machines.create(node)
    async with (
        GuestAgentApi(harvester_admin) as agents,
        ApiClient(load_kubeconfig(harvester_kubeconfig), cluster="harvester") as product,
    ):

        async def hostname(name: str, namespace: str = vm_namespace) -> str:
            info = await product.get(GUEST_OS_INFO, name, namespace=namespace, subresource="guestosinfo")
            return info.hostname

        with pytest.raises(Conflict, match="VMI does not have guest agent connected"):
            await hostname("n1")
        await machines.report(node, "192.0.2.11")
        assert await hostname("n1") == "n1"
        agents.hostnames[f"{vm_namespace}/n1"] = "n1.example.test"
        assert await hostname("n1") == "n1.example.test"
        with pytest.raises(NotFound):
            await hostname("nobody")
        with pytest.raises(Forbidden):
            await hostname("n1", "default")
    await machines.delete(node)
