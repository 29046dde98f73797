"""What Harvester's hosts do for generated Services: kube-vip gives them their address, the collector removes them."""

from __future__ import annotations

import asyncio
import ipaddress
from collections.abc import Callable
from typing import Final

import structlog

from devenv.harvester.endpoints import SERVICE_LABEL, external_address
from devenv.harvester.records import SERVICES, Records
from devenv.watch import Document, Mirror, key_of, labels_of
from harvester_ccm.errors import CCMError, Conflict, NotFound

DHCP_ADDRESS: Final = "0.0.0.0"  # noqa: S104 - kube-vip's word for "ask a DHCP server"
RETRY_SECONDS: Final = 0.2

log = structlog.get_logger(__name__)


class HostVip:
    """Harvester's kube-vip: writes the ingress address of generated Services a moment after they ask for it."""

    def __init__(self, services: Records, *, delay: float, dhcp: tuple[str, str] | None) -> None:
        """``dhcp`` is the first and last address that can be leased; None means that nobody answers."""
        self._services = services
        self._callbacks: list[Callable[[], None]] = []
        self._delay = delay
        self._dhcp = dhcp
        self._due: asyncio.Queue[str] = asyncio.Queue()
        self._addresses: dict[str, str] = {}
        services.subscribe(self._on_service)

    @property
    def announced(self) -> dict[str, set[str]]:
        """The addresses that are up, and the Services they are up for."""
        found: dict[str, set[str]] = {}
        for key, address in self._addresses.items():
            found.setdefault(address, set()).add(key)
        return found

    def on_change(self, callback: Callable[[], None]) -> None:
        """Have ``callback`` called when an address goes up or down."""
        self._callbacks.append(callback)

    async def run(self) -> None:
        """Serve one Service after the other until cancelled."""
        while True:
            key = await self._due.get()
            service = self._services.get(key)
            address = self._choose(key, service) if service else None
            if address is None:
                continue
            try:
                await self._announce(key, address)
            except NotFound:
                self._withdraw(key)
            except CCMError as error:
                log.debug("service not served yet", service=key, error=str(error))
                self._later(key, RETRY_SECONDS)

    async def renew(self, key: str, address: str) -> None:
        """Let a lease be renewed with another address. Raises NotFound when there is no such Service."""
        await self._announce(key, address)

    def _choose(self, key: str, service: Document) -> str | None:
        """Return the address to announce, or None when all is done or nothing can be done."""
        wished = service["spec"].get("loadBalancerIP")
        current, held = external_address(service), self._addresses.get(key)
        if not wished:
            return None
        address = (held or current or self._lease()) if wished == DHCP_ADDRESS else wished
        if address is None or address == current == held:
            return None
        if not _is_address(address):
            # As it came from a load balancer's status, which its owner may write.
            log.warning("no address to announce", service=key, address=address)
            return None
        return address

    async def _announce(self, key: str, address: str) -> None:
        namespace, _, name = key.partition("/")
        body = {"status": {"loadBalancer": {"ingress": [{"ip": address}]}}}
        self._addresses[key] = address
        self._tell()
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
            self._later(key_of(document), self._delay)
        else:
            self._withdraw(key_of(document))

    def _later(self, key: str, seconds: float) -> None:
        asyncio.get_running_loop().call_later(seconds, self._due.put_nowait, key)

    def _withdraw(self, key: str) -> None:
        if self._addresses.pop(key, None) is not None:
            self._tell()

    def _tell(self) -> None:
        for callback in self._callbacks:
            callback()


def _is_address(text: str) -> bool:
    try:
        ipaddress.ip_address(text)
    except ValueError:
        return False
    return True


class Collector:
    """The garbage collector: removes generated objects some time after their load balancer is gone."""

    def __init__(self, balancers: Mirror, owned: tuple[Records, ...], *, delay: float) -> None:
        self._balancers = balancers
        self._owned = owned
        self._delay = delay
        self._dead: asyncio.Queue[tuple[float, str]] = asyncio.Queue()
        balancers.subscribe(self._on_balancer)

    async def run(self) -> None:
        """Collect until cancelled; what was left by an earlier run is found first."""
        await self._balancers.wait_synced()
        for records in self._owned:
            await records.wait_synced()
        alive = {balancer["metadata"]["uid"] for balancer in self._balancers.all()}
        for uid in {owner for document, owner in self._generated() if owner not in alive}:
            self._bury(uid)
        while True:
            due, uid = await self._dead.get()
            await asyncio.sleep(max(0.0, due - asyncio.get_running_loop().time()))
            await self._collect(uid)

    def _generated(self) -> list[tuple[Document, str]]:
        return [
            (document, owner["uid"])
            for records in self._owned
            for document in records.all()
            if SERVICE_LABEL in labels_of(document)
            for owner in document["metadata"].get("ownerReferences") or ()
        ]

    async def _collect(self, uid: str) -> None:
        for records in self._owned:
            for document in records.all():
                owners = {o["uid"] for o in document["metadata"].get("ownerReferences") or ()}
                if owners != {uid}:
                    continue
                try:
                    await records.delete(document)
                except (NotFound, Conflict):
                    log.debug("already collected", object=key_of(document))
                except CCMError as error:
                    log.debug("not collected yet", object=key_of(document), error=str(error))
                    self._bury(uid)

    def _on_balancer(self, before: Document | None, after: Document | None) -> None:
        if after is None and before is not None:
            self._bury(before["metadata"]["uid"])
        elif before is not None and after is not None and before["metadata"]["uid"] != after["metadata"]["uid"]:
            # Deleted and made again while the watch was away.
            self._bury(before["metadata"]["uid"])

    def _bury(self, uid: str) -> None:
        self._dead.put_nowait((asyncio.get_running_loop().time() + self._delay, uid))
