"""Harvester's side: resource definitions, VMs, an IP pool, and the emulator or Harvester's real programs."""

import asyncio
import os
import sys
from pathlib import Path
from typing import Final

from devenv.cluster import layout
from devenv.cluster.controlplane import ControlPlane
from devenv.cluster.layout import NodePlace
from devenv.cluster.setup import Setup
from devenv.harvester.machines import Machines
from devenv.process import ChildProcess, require_running
from devenv.restclient import Json, RefusedError, wait_until
from harvester_ccm.kube.client import ApiClient
from harvester_ccm.kube.credentials import load_credentials

START_SECONDS: Final = 120.0
CHECKOUT: Final = Path(__file__).parents[2]
SYSTEM_NAMESPACE: Final = "harvester-system"
REAL_PROGRAMS: Final = {"lb-controller": (), "lb-webhook": ("--https-port", "443")}
"""Harvester's programs and their arguments."""
POOLS: Final = {"cluster-addresses": (layout.POOL, layout.VM_NETWORK), "vm-addresses": (layout.VM_POOL, "")}
"""IP pools: first and last address, and the network whose load balancers get them.

Harvester knows the network of a cluster's load balancer by its VMs. A VM load balancer has no network.
"""


class Harvester:
    """Harvester as the guest cluster sees it."""

    def __init__(self, plane: ControlPlane, setup: Setup) -> None:
        """Nothing is started."""
        self.plane = plane
        self._setup = setup
        self._children: list[ChildProcess] = []

    def start(self) -> None:
        """Return once load balancers get addresses. Raises DevenvError."""
        self.plane.admin.apply(
            *sorted((CHECKOUT / "devenv" / "crds").glob("*.yaml")),
            CHECKOUT / "devenv" / "rbac" / "harvester-cloud-provider.yaml",
        )
        for namespace in (SYSTEM_NAMESPACE, layout.VM_NAMESPACE):
            self.plane.admin.apply({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": namespace}})
        self.plane.admin.apply(_network())
        asyncio.run(self._create_machines())
        if self._setup.harvester_bin:
            self._start_real_programs(Path(self._setup.harvester_bin))
        else:
            self._start_emulator()
        wait_until(self._webhook_works, seconds=START_SECONDS, what="Harvester's webhook")
        for name, (addresses, network) in POOLS.items():
            self.plane.admin.apply(_pool(name, addresses, network))
        wait_until(self._pools_are_ready, seconds=START_SECONDS, what="an IP pool")

    def load_balancers(self) -> list[str]:
        """Return the names of all load balancers."""
        path = "/apis/loadbalancer.harvesterhci.io/v1beta1/loadbalancers"
        return [balancer["metadata"]["name"] for balancer in self.plane.admin.request("GET", path)["items"]]

    def allocated(self) -> dict[str, str]:
        """Return the allocated addresses of all pools and their owners."""
        allocated: dict[str, str] = {}
        for pool in self._pools():
            allocated |= (pool.get("status") or {}).get("allocated") or {}
        return allocated

    def _pools(self) -> list[Json]:
        pools: list[Json] = self.plane.admin.request("GET", "/apis/loadbalancer.harvesterhci.io/v1beta1/ippools")[
            "items"
        ]
        return pools

    async def _create_machines(self) -> None:
        async with ApiClient(load_credentials(self.plane.kubeconfig), cluster="harvester-admin") as client:
            for node in layout.NODES:
                await Machines(client).create(node.machine, node.address)

    def delete_machine(self, node: NodePlace) -> None:
        """Delete the VM of a node."""
        asyncio.run(self._delete_machine(node))

    async def _delete_machine(self, node: NodePlace) -> None:
        async with ApiClient(load_credentials(self.plane.kubeconfig), cluster="harvester-admin") as client:
            await Machines(client).delete(node.machine)

    def _start_emulator(self) -> None:
        command: list[str | Path] = [sys.executable, "-m", "devenv.cluster.emulated", self.plane.kubeconfig]
        emulator = self._run("harvester-emulator", command, cwd=CHECKOUT)
        wait_until(
            lambda: "ready" in emulator.log_file.read_text(), seconds=START_SECONDS, what="the emulated Harvester"
        )

    def _start_real_programs(self, directory: Path) -> None:
        # The webhook registers itself as this Service. Its address is one of the router, where the webhook listens.
        self.plane.admin.apply(_webhook_service())
        environment = os.environ | {"KUBECONFIG": str(self.plane.kubeconfig)}
        for name, arguments in REAL_PROGRAMS.items():
            self._run(name, [directory / name, *arguments], env=environment)

    def _run(
        self, name: str, command: list[str | Path], *, cwd: Path | None = None, env: dict[str, str] | None = None
    ) -> ChildProcess:
        child = ChildProcess.start(name, command, log_file=self._setup.out / f"{name}.log", cwd=cwd, env=env)
        self._children.append(child)
        return child

    def _webhook_works(self) -> bool:
        """Whether the webhook rejects a load balancer for VMs without a listener."""
        require_running(self._children)
        path = f"/apis/loadbalancer.harvesterhci.io/v1beta1/namespaces/{layout.VM_NAMESPACE}/loadbalancers?dryRun=All"
        trial = {
            "apiVersion": "loadbalancer.harvesterhci.io/v1beta1",
            "kind": "LoadBalancer",
            "metadata": {"generateName": "trial-"},
            "spec": {"ipam": "pool", "workloadType": "vm"},
        }
        try:
            self.plane.admin.request("POST", path, body=trial)
        except RefusedError as refusal:
            return "at least one listener" in str(refusal)
        return False

    def _pools_are_ready(self) -> bool:
        return all(_is_ready(pool) for pool in self._pools())


def _is_ready(pool: Json) -> bool:
    conditions = (pool.get("status") or {}).get("conditions") or ()
    return any(condition["type"] == "Ready" and condition["status"] == "True" for condition in conditions)


def _network() -> Json:
    """Return the VM network of the nodes."""
    namespace, _, name = layout.VM_NETWORK.partition("/")
    return {
        "apiVersion": "k8s.cni.cncf.io/v1",
        "kind": "NetworkAttachmentDefinition",
        "metadata": {"name": name, "namespace": namespace},
        "spec": {"config": '{"cniVersion":"0.3.1","name":"vlan-100","type":"bridge","bridge":"mgmt-br","vlan":100}'},
    }


def _pool(name: str, addresses: tuple[str, str], network: str) -> Json:
    """Return an IP pool for the guest cluster."""
    first, last = addresses
    entry = {"subnet": layout.NODE_NETWORK, "rangeStart": first, "rangeEnd": last, "gateway": layout.ROUTER}
    scope = {"project": "*", "namespace": layout.VM_NAMESPACE, "guestCluster": layout.CLUSTER}
    selector: Json = {"scope": [scope]}
    if network:
        selector["network"] = network
    return {
        "apiVersion": "loadbalancer.harvesterhci.io/v1beta1",
        "kind": "IPPool",
        "metadata": {"name": name},
        "spec": {"ranges": [entry], "selector": selector},
    }


def _webhook_service() -> Json:
    return {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": {"name": "harvester-load-balancer-webhook", "namespace": SYSTEM_NAMESPACE},
        "spec": {
            "clusterIP": layout.WEBHOOK_SERVICE,
            "ports": [{"name": "https", "port": 443, "targetPort": 443}],
        },
    }
