"""Harvester's kube-vip and garbage collector, which assign the addresses of generated Services and delete them."""

import asyncio
import ipaddress
from typing import Final

import structlog

from devenv.announcement import DHCP_ADDRESS
from devenv.harvester.endpoints import SERVICE_LABEL, external_address
from devenv.harvester.records import SERVICES, Records
from devenv.watch import Document, Mirror, key_of, labels_of
from harvester_ccm.kube.errors import Conflict, KubeError, NotFound

ANNOUNCE_SECONDS: Final = 0.05
"""Delay until a Service gets its address."""
RETRY_SECONDS: Final = 0.2

log = structlog.get_logger(__name__)


class HostVip:
    """Harvester's kube-vip: writes the ingress address of generated Services."""

    def __init__(self, services: Records, dhcp: tuple[str, str] | None) -> None:
        """``dhcp``: first and last address of the DHCP server; None means that no DHCP server responds."""
        self._services = services
        self._dhcp = dhcp
        self._due: asyncio.Queue[str] = asyncio.Queue()
        self._addresses: dict[str, str] = {}
        services.subscribe(self._on_service)

    async def run(self) -> None:
        """Handle one Service after the other until cancelled."""
        while True:
            key = await self._due.get()
            service = self._services.get(key)
            address = self._choose(key, service) if service else None
            if address is None:
                continue
            try:
                await self._announce(key, address)
            except NotFound:
                self._addresses.pop(key, None)
            except KubeError as error:
                log.debug("service not served yet", service=key, error=str(error))
                self._later(key, RETRY_SECONDS)

    def _choose(self, key: str, service: Document) -> str | None:
        """Return the address to announce, or None if there is nothing to do."""
        wished = service["spec"].get("loadBalancerIP")
        current, held = external_address(service), self._addresses.get(key)
        if not wished:
            return None
        address = (held or current or self._lease()) if wished == DHCP_ADDRESS else wished
        if address is None or address == current == held:
            return None
        if not _is_address(address):
            # From the status of a load balancer, which its owner can write.
            log.warning("no address to announce", service=key, address=address)
            return None
        return address

    async def _announce(self, key: str, address: str) -> None:
        namespace, _, name = key.partition("/")
        body = {"status": {"loadBalancer": {"ingress": [{"ip": address}]}}}
        self._addresses[key] = address
        await self._services.client.merge_patch(SERVICES, name, body, namespace=namespace, subresource="status")

    def _lease(self) -> str | None:
        if self._dhcp is None:
            return None
        first, last = (int(ipaddress.ip_address(end)) for end in self._dhcp)
        leased = set(self._addresses.values())
        free = (str(ipaddress.ip_address(number)) for number in range(first, last + 1))
        return next((address for address in free if address not in leased), None)

    def _on_service(self, before: Document | None, after: Document | None) -> None:
        document = after or before
        if document is None or SERVICE_LABEL not in labels_of(document):
            return
        if after is not None:
            self._later(key_of(document), ANNOUNCE_SECONDS)
        else:
            self._addresses.pop(key_of(document), None)

    def _later(self, key: str, seconds: float) -> None:
        asyncio.get_running_loop().call_later(seconds, self._due.put_nowait, key)


def _is_address(text: str) -> bool:
    try:
        ipaddress.ip_address(text)
    except ValueError:
        return False
    return True


class Collector:
    """The garbage collector: deletes generated objects some time after the deletion of their load balancer."""

    def __init__(self, balancers: Mirror, owned: tuple[Records, ...], *, delay: float) -> None:
        self._balancers = balancers
        self._owned = owned
        self._delay = delay
        self._deleted: asyncio.Queue[tuple[float, str]] = asyncio.Queue()
        balancers.subscribe(self._on_balancer)

    async def run(self) -> None:
        """Collect until cancelled, first the objects that an earlier run left."""
        for mirror in (self._balancers, *self._owned):
            await mirror.wait_synced()
        alive = {balancer["metadata"]["uid"] for balancer in self._balancers.all()}
        for uid in {uid for _, _, uid in self._generated() if uid not in alive}:
            self._schedule(uid)
        while True:
            due, deleted = await self._deleted.get()
            await asyncio.sleep(due - asyncio.get_running_loop().time())
            for records, document, uid in self._generated():
                if uid == deleted:
                    await self._collect(records, document, uid)

    def _generated(self) -> list[tuple[Records, Document, str]]:
        """Return the generated objects with the UIDs of their owners."""
        return [
            (records, document, owner["uid"])
            for records in self._owned
            for document in records.all()
            if SERVICE_LABEL in labels_of(document)
            for owner in document["metadata"].get("ownerReferences") or ()
        ]

    async def _collect(self, records: Records, document: Document, uid: str) -> None:
        try:
            await records.delete(document)
        except (NotFound, Conflict):
            log.debug("already collected", object=key_of(document))
        except KubeError as error:
            log.debug("not collected yet", object=key_of(document), error=str(error))
            self._schedule(uid)

    def _on_balancer(self, before: Document | None, after: Document | None) -> None:
        # The UID differs if it was deleted and created again while the watch was interrupted.
        if before is not None and (after is None or after["metadata"]["uid"] != before["metadata"]["uid"]):
            self._schedule(before["metadata"]["uid"])

    def _schedule(self, uid: str) -> None:
        self._deleted.put_nowait((asyncio.get_running_loop().time() + self._delay, uid))
