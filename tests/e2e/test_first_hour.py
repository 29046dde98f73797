"""24 faults of a user's first hour, and the line that states the cause and the fix of each.

``first_hour.txt`` has a name and a line per fault. The line is a problem of ``status`` unless the name is followed by
another source. HARVESTER_CCM_RENEW_SNAPSHOTS=1 writes the file. Both clusters and the controller start once, and the
faults follow each other.
"""

import asyncio
import base64
import json
import os
import re
import shutil
import signal
import socket
from collections.abc import Mapping
from datetime import datetime, tzinfo
from pathlib import Path
from typing import Any, Final
from urllib.parse import urlsplit

import pytest
import yaml

from devenv.apiserver import SERVICE_ACCOUNT
from devenv.ccm import CcmProcess
from devenv.demo.scenario import NETWORKS, NODES, initialized, listen
from devenv.guestnodes import GuestNodes, name_of
from devenv.harvester import FAST
from devenv.harvester.records import POOLS
from devenv.harvester.webhook import CONFIGURATION, MUTATING, VALIDATING
from devenv.stage import Stage, until
from harvester_ccm.cli import main
from harvester_ccm.commands import clusters
from harvester_ccm.kube.errors import AdmissionDenied
from harvester_ccm.model.core import CONFIG_MAPS
from harvester_ccm.model.harvester import LOAD_BALANCERS
from harvester_ccm.names import (
    HEALTH_CHECK_PORT,
    IP_POOL,
    IPAM,
    LB_SERVICE_NAME,
    NAD_MAPPING_NAME,
    NETWORK,
    PREFIX,
    PRIMARY_SERVICE,
    Reason,
)
from harvester_ccm.plan.service.messages import CONTROLLER_GRACE_SECONDS
from tests.e2e.test_pause import SHORT

pytestmark = [pytest.mark.apiserver, pytest.mark.parametrize("pace", [FAST], ids=["fast"])]

LINES: Final = Path(__file__).with_name("first_hour.txt")
PORT: Final = {"name": "http", "port": 18080}
NEWCOMER: Final = 4
"""Number of the node that joins without a guest agent."""
EXPIRED: Final = 1_700_000_000
"""End of the expired token, in seconds since 1970."""
BINDING: Final = "/apis/rbac.authorization.k8s.io/v1/namespaces/default/rolebindings"
VARIABLE: Final = (
    # The API server gives up a webhook that hangs at either of two steps.
    (r"net/http: TLS handshake timeout", "context deadline exceeded"),
    (r"(127\.0\.0\.1:)\d+", r"\1PORT"),
    (r"127\.77\.0\.\d+", "127.77.0.N"),
    (r"(demo-default-\w+)-[0-9a-f]{8}", r"\1-HASH"),
    (r"\w+_[0-9a-f]{8}-[0-9a-f-]{27}", "HOST_UUID"),
    (r"[^ ]*/own-", "/DIRECTORY/"),
    (r"for \d+s$", "for Ns"),
)
"""Patterns of texts that differ between runs, with their replacements."""
SERVICES: Final[Mapping[str, tuple[str, Mapping[str, Any]]]] = {
    "no IP pool of that name": ("Pending NoMatchingPool", {"annotations": {IP_POOL: "dmz"}}),
    "network without a node": ("Pending NetworkDeviceUnknown", {"annotations": {NETWORK: "default/vlan7"}}),
    "typo in the value of ipam": ("Blocked InvalidAnnotation", {"annotations": {IPAM: "dchp"}}),
    "typo in the name of an annotation": ("Degraded SettingsIgnored", {"annotations": {f"{PREFIX}ipamm": "dhcp"}}),
    "typo in healthcheck-port": ("Degraded InvalidAnnotation", {"annotations": {HEALTH_CHECK_PORT: "htpp"}}),
    "spec.loadBalancerIP": ("Degraded AddressNotAsRequested", {"spec": {"loadBalancerIP": "10.9.8.7"}}),
    "IPv6 required": ("Blocked Unsupported", {"spec": {"ipFamilyPolicy": "RequireDualStack"}}),
    "shared address, same port": ("Pending AddressSharingRejected", {"annotations": {PRIMARY_SERVICE: "default/web"}}),
    "primary-service without a namespace": ("Blocked InvalidAnnotation", {"annotations": {PRIMARY_SERVICE: "web"}}),
    "IP pool without a free address": ("Pending PoolExhausted", {"annotations": {IP_POOL: "tiny"}}),
}
"""Faults that one Service shows: state and reason in ``status``, and the Service."""


class Hour:
    """A cluster with two Services that work, and the lines that were found."""

    def __init__(self, stage: Stage, guest: GuestNodes, capsys: pytest.CaptureFixture[str]) -> None:
        self.stage = stage
        self.guest = guest
        self.lines: dict[str, str] = {}
        self._capsys = capsys
        self.cloud_config = stage.directory / "own-cloud-config"
        self.kubeconfig = stage.directory / "own-kubeconfig"
        shutil.copy(stage.scene.cloud_config, self.cloud_config)
        shutil.copy(stage.scene.kubeconfig, self.kubeconfig)

    async def start(self, **flags: str) -> CcmProcess:
        """Start the controller and return it when it leads."""
        flags = {name.replace("_", "-"): value for name, value in flags.items()}
        run = self.stage.run(flags=flags, cloud_config=self.cloud_config, kubeconfig=self.kubeconfig)
        await self.stage.logged(run, "service controller started")
        return run

    async def command(self, *words: str) -> str:
        flags = {**SHORT, "cluster-name": "demo", "cloud-config": self.cloud_config, "kubeconfig": self.kubeconfig}
        line = ["harvester-ccm", *words, *(f"--{name}={value}" for name, value in flags.items())]
        self._capsys.readouterr()
        await asyncio.to_thread(main, line, {})
        self._printed = self._capsys.readouterr()
        return self._printed.out

    async def complaint(self) -> str:
        """Return the first line that ``status`` prints to standard error."""
        await self.command("status")
        return self._printed.err.splitlines()[0]

    async def problems(self) -> list[str]:
        """Return the problems of ``status``, each as one line."""
        found = json.loads(await self.command("status", "-o", "json"))["problems"]
        return [
            f"{one['object']}: {one['state']} {one['reason']}: {one['message']}".replace(":  ", ": ") for one in found
        ]

    async def sees(self, fault: str, start: str) -> None:
        """Add the problem that starts like this, once ``status`` has it."""

        async def line() -> str | None:
            return next((one for one in await self.problems() if one.startswith(start)), None)

        self.lines[fault] = await until(line, within=60, what=f"{start} in status")

    async def sees_only(self, *starts: str) -> None:
        """Return once ``status`` has these problems and no others."""

        async def matches() -> bool:
            found = await self.problems()
            return len(found) == len(starts) and all(map(str.startswith, found, starts))

        await until(matches, within=60, what=f"only {starts} in status")

    async def has_mapping(self) -> bool:
        """Return whether the ConfigMap has the devices of the network."""
        found = await self.stage.guest_object(CONFIG_MAPS.path("kube-system", NAD_MAPPING_NAME))
        return "vlan1" in str((found or {}).get("data"))

    async def delete_load_balancer(self, service: str) -> None:
        found = [one for one in await self.stage.load_balancers() if one.metadata.label(LB_SERVICE_NAME) == service]
        await self.stage.host.delete(LOAD_BALANCERS, found[0].metadata.name, namespace="default")


async def test_every_fault_of_the_first_hour_has_its_line(
    stage: Stage, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    await stage.harvester.create_pool("lan", "127.77.0.0/24")
    await stage.harvester.create_pool("tiny", "127.76.0.8/30", selector={"scope": []})
    port = await set_webhook_timeout(stage, 1)
    async with GuestNodes(stage.guest, stage.host, networks=NETWORKS) as nodes:
        hour = Hour(stage, nodes, capsys)
        first = await hour.start()
        await asyncio.gather(*map(nodes.join, NODES))
        await initialized(stage)
        await until(hour.has_mapping, within=60, what="the mapping of networks")
        await services(hour)
        await load_balancers(hour)
        await webhook(hour, port)
        await controllers_of_harvester(hour, monkeypatch)
        await credentials(hour)
        first.terminate()
        await replicas(hour)

    text = "".join(f"{fault}\n    {normalized(line)}\n" for fault, line in hour.lines.items())
    if os.environ.get("HARVESTER_CCM_RENEW_SNAPSHOTS"):
        LINES.write_text(text)
    assert len(hour.lines) == 24
    assert text == LINES.read_text()


def normalized(line: str) -> str:
    """Return a line without what differs between runs."""
    for pattern, replacement in VARIABLE:
        line = re.sub(pattern, replacement, line)
    return line


async def set_webhook_timeout(stage: Stage, seconds: int) -> int:
    """Set the timeout of Harvester's webhook, which is 10 s, and return its port."""
    for resource in (VALIDATING, MUTATING):
        document = await stage.host.get(resource, CONFIGURATION)
        document["webhooks"][0]["timeoutSeconds"] = seconds
        await stage.host.replace(resource, CONFIGURATION, document)
    return int(urlsplit(document["webhooks"][0]["clientConfig"]["url"]).port or 0)


async def services(hour: Hour) -> None:
    """Create Services that work, and one for each fault that a Service can show."""
    stage = hour.stage
    await stage.create_service("web", ports=[PORT])
    await stage.create_service("portal", ports=[PORT], annotations={HEALTH_CHECK_PORT: "http"})
    await stage.create_service("full", ports=[PORT], annotations={IP_POOL: "tiny"})
    await listen(stage, hour.guest)
    await stage.served("web", "portal", "full")
    names = {fault: f"s{number}" for number, fault in enumerate(SERVICES)}
    for fault, (_, options) in SERVICES.items():
        await stage.create_service(names[fault], ports=[PORT], **options)
    for fault, (state, _) in SERVICES.items():
        await hour.sees(fault, f"Service default/{names[fault]}: {state}")

    await stage.create_service("metallb", ports=[PORT], annotations={"metallb.universe.tf/address-pool": "lan"})
    explained = json.loads(await hour.command("explain", "service", "metallb", "-n", "default", "-o", "json"))
    hour.lines["annotation of MetalLB (explain)"] = explained["reasons"][0]["message"]

    with pytest.raises(AdmissionDenied) as denied:
        await stage.host.delete(POOLS, "lan")
    hour.lines["deletion of an IP pool in use (kubectl)"] = str(denied.value)

    await stage.delete_service("full")
    freed = names["IP pool without a free address"]
    hour.lines["deletion of a Service in a full IP pool (Event)"] = (await stage.hears(freed, Reason.ENSURED)).message
    for name in ("metallb", *names.values()):
        await stage.delete_service(name)
    await stage.gone("full", "metallb", *names.values())


async def load_balancers(hour: Hour) -> None:
    """Delete a cluster load balancer in Harvester, and add a Node without a guest agent."""
    (before,) = await hour.stage.served("web")
    await hour.delete_load_balancer("web")
    event = await hour.stage.hears("web", Reason.LOAD_BALANCER_LOST)
    hour.lines["deletion of a cluster load balancer (Event)"] = event.message
    await hour.sees_only()
    (after,) = await hour.stage.served("web")
    assert after.addresses == before.addresses

    await hour.guest.join(NEWCOMER, agent=False)
    await hour.sees("VM without a guest agent", f"Node {name_of(NEWCOMER)}: Pending NoAddress")
    await hour.guest.leave(NEWCOMER)


async def webhook(hour: Hour, port: int) -> None:
    """Stop Harvester's webhook, and let it hang."""
    server = hour.stage.harvester.webhook
    assert server is not None
    await server.stop()
    await hour.stage.create_service("away", ports=[PORT])
    await hour.sees("stopped admission webhook", "Service default/away: Pending HarvesterUnavailable")
    with socket.socket() as silent:
        silent.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        silent.bind(("127.0.0.1", port))
        silent.listen(64)
        await hour.stage.create_service("hangs", ports=[PORT])
        await hour.sees("hanging admission webhook", "Service default/hangs: Pending HarvesterUnavailable")
    await server.start()
    await hour.stage.served("away", "hangs")
    for name in ("away", "hangs"):
        await hour.stage.delete_service(name)
    await hour.stage.gone("away", "hangs")


async def controllers_of_harvester(hour: Hour, monkeypatch: pytest.MonkeyPatch) -> None:
    """Stop Harvester's load balancer controller, and look at a new Service after a quarter of a minute."""

    class Later(datetime):
        @classmethod
        def now(cls, tz: tzinfo | None = None) -> "Later":
            return cls.fromtimestamp(datetime.now(tz).timestamp() + CONTROLLER_GRACE_SECONDS, tz)

    async with hour.stage.harvester.stopped():
        await hour.stage.create_service("slow", ports=[PORT])
        with monkeypatch.context() as patch:
            patch.setattr(clusters, "datetime", Later)
            start = "Service default/slow: Pending NotProcessed: Harvester's load balancer controller"
            await hour.sees("stopped load balancer controller of Harvester", start)
    await hour.stage.delete_service("slow")
    await hour.stage.gone("slow")


async def credentials(hour: Hour) -> None:
    """Delete the RoleBinding in Harvester, and let the token expire."""
    admin = hour.stage.scene.harvester.admin
    bindings = admin.request("GET", BINDING)["items"]
    binding = next(one for one in bindings if one["subjects"][0]["name"] == SERVICE_ACCOUNT)
    admin.request("DELETE", f"{BINDING}/{binding['metadata']['name']}")
    await hour.sees("deleted RoleBinding in Harvester", "Harvester: HarvesterUnavailable: The credential")
    del binding["metadata"]["resourceVersion"], binding["metadata"]["uid"]
    admin.request("POST", BINDING, body=binding)
    await hour.sees_only()

    valid = hour.cloud_config.read_text()
    hour.cloud_config.write_text(expire_token(valid))
    await hour.sees("expired token", "Harvester: HarvesterUnavailable: Harvester at")
    hour.cloud_config.write_text(valid)


def expire_token(kubeconfig: str) -> str:
    """Return a kubeconfig whose token ended long ago. Its signature is void, which the server does not report."""
    document = yaml.safe_load(kubeconfig)
    user = document["users"][0]["user"]
    head, claims, signature = user["token"].split(".")
    content = json.loads(base64.urlsafe_b64decode(claims + "=" * (-len(claims) % 4)))
    written = json.dumps({**content, "exp": EXPIRED}).encode()
    user["token"] = ".".join((head, base64.urlsafe_b64encode(written).decode().rstrip("="), signature))
    return yaml.safe_dump(document, sort_keys=False)


async def replicas(hour: Hour) -> None:
    """Halt the leader, delete a VM load balancer meanwhile, start a standby, and change its kubeconfig."""
    halted = await hour.start(**SHORT)
    os.killpg(halted.pid, signal.SIGSTOP)
    await hour.delete_load_balancer("portal")
    await hour.sees("deletion of a VM load balancer", "Service default/portal: Degraded LoadBalancerLost")
    await hour.sees("halted leader without a standby", "Lease kube-system/cloud-controller-manager: LeaseExpired")
    standby = await hour.start(**SHORT)
    await hour.stage.served("portal")
    await hour.sees_only()
    (leader,) = re.findall(r"^Leader: .*$", await hour.command("status"), re.MULTILINE)
    hour.lines["halted leader with a standby"] = leader
    halted.kill()

    shutil.copy(hour.stage.scene.harvester.admin_kubeconfig, hour.kubeconfig)
    hour.lines["kubeconfig of another cluster"] = await hour.complaint()
    assert await hour.stage.ended(standby) == 1
    assert "cluster replaced" in standby.log
