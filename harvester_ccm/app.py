"""Assembly of clients, informers, controllers and leader election; start and shutdown in order.

Start: read the credentials (an error ends the process), start the informers, which wait for unreachable servers, wait
for the Lease with synced caches, start the controllers.

Shutdown (SIGTERM, SIGINT): the controllers accept no more keys and get 0.2 s to finish, all writers are stopped, the
Lease is released, the last Events are written, exit code 0. Every other end that the process decides on (another
cluster behind a credential, a bug) releases the Lease as well, exit code 1. A lost Lease stops all writes at once, exit
code 1.
"""

import asyncio
import gc
import signal
import socket
import uuid
from asyncio import sslproto
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from typing import Final

import structlog
from msgspec.structs import replace

from harvester_ccm import __version__
from harvester_ccm.access import both_credentials, guest_credentials, harvester_credentials
from harvester_ccm.config import LIFECYCLE_CONTROLLER, NODE_CONTROLLER, SERVICE_CONTROLLER, Settings
from harvester_ccm.controllers.device_mapping import NetworkMapping
from harvester_ccm.controllers.node import NodeController
from harvester_ccm.controllers.node_lifecycle import NodeLifecycleController
from harvester_ccm.controllers.orphans import OrphanCollector
from harvester_ccm.controllers.service import ServiceCaches, ServiceController, follow_load_balancers
from harvester_ccm.controllers.virtual_addresses import VirtualAddresses
from harvester_ccm.controllers.vms import GuestHostnames, NodeWrites, VMCache
from harvester_ccm.kube.builtin import LEASES, Lease
from harvester_ccm.kube.client import ApiClient
from harvester_ccm.kube.errors import ClusterReplaced
from harvester_ccm.kube.events import EventRecorder
from harvester_ccm.kube.fence import WriteFence
from harvester_ccm.kube.identity import ServerIdentity
from harvester_ccm.kube.informer import Informer
from harvester_ccm.kube.lease import LeaderElector, LeaseLost, LeaseTimes
from harvester_ccm.kube.objects import ObjectMeta
from harvester_ccm.kube.reload import CredentialReloader, warn_if_insecure
from harvester_ccm.kube.workqueue import WorkQueue
from harvester_ccm.model.core import CONFIG_MAPS, NODES, SERVICES
from harvester_ccm.model.event import EventMessage
from harvester_ccm.model.harvester import INSTANCES, VIRTUAL_MACHINES, ClusterIdentity
from harvester_ccm.names import NAD_MAPPING_NAME, NAD_MAPPING_NAMESPACE, Reason
from harvester_ccm.plan.node.vms import NODE_INDEXES, VM_INDEXES, VMI_INDEXES
from harvester_ccm.plan.service.snapshot import SERVICE_INDEXES, HarvesterCheck, check_harvester
from harvester_ccm.telemetry.health import HealthRegistry
from harvester_ccm.telemetry.metrics import Telemetry, measure_load_balancers, measure_nodes, measure_services
from harvester_ccm.telemetry.server import AccessReviewer, https_server

DRAIN_SECONDS: Final = 0.2
"""Time that running reconciles get at shutdown."""
SHUTDOWN_SECONDS: Final = 1.7
"""Time for responses to writes in flight, for releasing the Lease and for the last Events at shutdown."""

_Controller = ServiceController | OrphanCollector | NodeController | NetworkMapping | NodeLifecycleController

log = structlog.get_logger(__name__)


class _Stop(Exception):
    """Raised inside the task group on a signal."""


def run(settings: Settings, environment: Mapping[str, str]) -> int:
    """Run until a signal or the loss of the Lease; return the exit code.

    Raises CredentialError if the cloud-config, and ConfigurationError if the kubeconfig of the guest cluster, cannot be
    used.
    """
    # By default, asyncio allocates 256 KiB for each open TLS connection; a TLS record has at most 16 KiB.
    sslproto.SSLProtocol.max_size = 16 * 1024
    # Loaded modules stay in memory. The garbage collector would need 30 ms to traverse them each time.
    gc.collect()
    gc.freeze()
    return asyncio.run(_run(settings, environment))


async def _run(settings: Settings, environment: Mapping[str, str]) -> int:
    of_guest, of_harvester = both_credentials(settings, environment)
    log.info(
        "starting",
        version=__version__,
        cluster=settings.harvester.cluster_name,
        harvester=of_harvester.server,
        namespace=of_harvester.namespace or "default",
        guest=of_guest.server,
    )
    warn_if_insecure(of_harvester, "harvester")
    warn_if_insecure(of_guest, "guest")
    telemetry = Telemetry(__version__)
    observer = telemetry.request_done
    # With leader election, nothing is written before this process holds the Lease.
    fence = WriteFence(shut=settings.leader_election.enabled)
    async with (
        ApiClient(of_guest, cluster="guest", observer=observer, fence=fence) as guest,
        ApiClient(of_harvester, cluster="harvester", observer=observer, fence=fence) as harvester,
    ):
        reloaders = (
            CredentialReloader(harvester, partial(harvester_credentials, settings.harvester, environment)),
            CredentialReloader(guest, partial(guest_credentials, settings.guest, environment)),
        )
        application = Application(settings, guest, harvester, fence=fence, reloaders=reloaders, telemetry=telemetry)
        reviewer = AccessReviewer(guest)
        async with https_server(settings.server, application.health, telemetry=telemetry, reviewer=reviewer):
            return await application.run()


class Application:
    """All objects of the process, connected."""

    def __init__(
        self,
        settings: Settings,
        guest: ApiClient,
        harvester: ApiClient,
        *,
        fence: WriteFence,
        reloaders: Sequence[CredentialReloader],
        telemetry: Telemetry,
    ) -> None:
        """``fence`` is the one of both clients."""
        self._settings = settings
        self._fence = fence
        self._telemetry = telemetry
        self.health = HealthRegistry()
        """Checks of liveness and readiness."""
        self._guest = guest
        self._harvester = harvester
        host = socket.gethostname()
        self._recorder = EventRecorder(guest, host=host)
        namespace, mapping = harvester.namespace, f"metadata.name={NAD_MAPPING_NAME}"
        self._vms = VMCache(
            Informer(guest, NODES, indexes=NODE_INDEXES),
            Informer(harvester, VIRTUAL_MACHINES, namespace=namespace, indexes=VM_INDEXES),
            Informer(harvester, INSTANCES, namespace=namespace, indexes=VMI_INDEXES),
            ClusterIdentity.of(settings, namespace),
        )
        self._caches = ServiceCaches(
            services=Informer(guest, SERVICES, indexes=SERVICE_INDEXES),
            load_balancers=follow_load_balancers(harvester, namespace),
            vms=self._vms,
            config_maps=Informer(guest, CONFIG_MAPS, namespace=NAD_MAPPING_NAMESPACE, field_selector=mapping),
        )
        self._addresses = VirtualAddresses(self._caches.services, self._caches.load_balancers, self._vms.cluster)
        self._guest_caches = self._caches.services, self._vms.nodes
        self._harvester_caches = self._caches.load_balancers, self._vms.vms, self._vms.vmis
        election = settings.leader_election
        self._elector = LeaderElector(
            guest,
            fence,
            namespace=election.namespace,
            name=election.name,
            identity=f"{host}_{uuid.uuid4()}",
            times=LeaseTimes(election.lease_duration, election.renew_deadline, election.retry_period),
        )
        self._elector.on_change = self._emit_leadership
        self._reloaders = reloaders
        for reloader in reloaders:
            reloader.on_problem = partial(self._emit_reload_failure, reloader.cluster)
        self._guest_identity = ServerIdentity(
            guest, without="load balancers get no owner annotation, orphaned ones are not deleted"
        )
        self._queues: list[WorkQueue] = []
        self._observe()

    def _observe(self) -> None:
        """Connect metrics and health checks to what they observe."""
        telemetry, health, caches, settings = self._telemetry, self.health, self._caches, self._settings
        guest, harvester = self._guest_caches, self._harvester_caches
        # Without the cache of ConfigMaps: older charts do not grant them, and the rest works without.
        health.follow_caches(guest=guest, harvester=harvester)
        health.follow_files(self._reloaders)
        telemetry.follow_harvester(harvester)
        telemetry.follow_clients(self._guest, self._harvester)
        telemetry.before_scrape(lambda: health.show(telemetry.metrics))
        telemetry.follow_count(telemetry.metrics.events_dropped, lambda: self._recorder.dropped)
        measure_nodes(telemetry, self._vms.nodes)
        if SERVICE_CONTROLLER in settings.controllers:
            measure_services(telemetry, caches.services, self._vms.cluster)
            measure_load_balancers(telemetry, caches.load_balancers, caches.services, self._vms.cluster)
        if settings.leader_election.enabled:
            telemetry.follow_lease(settings.leader_election.name, self._elector)

    async def run(self) -> int:
        """Run until a signal, the loss of the Lease or a replaced cluster; return the exit code.

        Raises an exception that nothing expects. Every end but the loss of the Lease releases it.
        """
        stop = asyncio.Event()
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, stop.set)
        code = 0
        bugs: BaseException | None = None
        is_lost = False
        is_replaced = False
        try:
            await self._run_tasks(stop)
        except* _Stop:
            log.info("stopping")
        except* LeaseLost as lost:
            log.error("leadership lost", error=str(_first(lost)))
            code = 1
            is_lost = True
        except* ClusterReplaced as replaced:
            log.error("cluster replaced", error=str(_first(replaced)))
            code = 1
            is_replaced = True
        except* Exception as unexpected:
            bugs = unexpected
        if is_lost:
            self._fence.cut()
        else:
            # The Events that are left are about objects of the cluster that was there before.
            await self._shut_down(flush=not is_replaced)
        if bugs is not None:
            raise bugs
        return code

    async def _run_tasks(self, stop: asyncio.Event) -> None:
        """Run everything until one task ends. Raises the exceptions that ended them."""
        async with asyncio.TaskGroup() as group:
            group.create_task(self._until_stopped(stop), name="stop")
            group.create_task(self._recorder.run(), name="events")
            for informer in (*self._guest_caches, *self._harvester_caches, self._caches.config_maps):
                group.create_task(informer.run(), name=informer.name)
            for reloader in self._reloaders:
                group.create_task(reloader.run(), name="credentials")
            group.create_task(self._lead(), name="leader")

    async def _until_stopped(self, stop: asyncio.Event) -> None:
        await stop.wait()
        await asyncio.gather(*(queue.drain(DRAIN_SECONDS) for queue in self._queues))
        raise _Stop

    async def _lead(self) -> None:
        """Wait for the Lease, then run the controllers and renew it; if one ends, the other does."""
        if not self._settings.leader_election.enabled:
            await self._work()
            return
        await self._elector.acquire()
        async with asyncio.TaskGroup() as group:
            group.create_task(self._elector.hold(), name="lease")
            group.create_task(self._work(), name="work")

    async def _work(self) -> None:
        """Run the enabled controllers."""
        async with asyncio.TaskGroup() as group:
            uid = await self._guest_identity.learn()
            for controller in self._controllers(replace(self._vms.cluster, uid=uid)):
                self._telemetry.follow_queue(controller.queue)
                self._queues.append(controller.queue)
                group.create_task(controller.run(), name=controller.queue.name)

    def _controllers(self, cluster: ClusterIdentity) -> Iterator[_Controller]:
        """Yield the enabled controllers."""
        enabled, caches, vms, recorder = self._settings.controllers, self._caches, self._vms, self._recorder
        services, nodes = self._settings.services, self._settings.nodes
        writes = NodeWrites(self._guest, vms.nodes, recorder)
        if SERVICE_CONTROLLER in enabled:
            self.health.add(
                "harvester-matches-cluster", lambda: check_harvester(caches, cluster) is not HarvesterCheck.MISMATCH
            )
            workers = services.concurrent_syncs
            yield ServiceController(
                self._guest, self._harvester, caches, recorder=recorder, cluster=cluster, workers=workers
            )
            collector = OrphanCollector(
                self._guest_identity,
                self._harvester,
                caches.services,
                caches.load_balancers,
                cluster=cluster,
                settings=services,
            )
            self._telemetry.follow_count(self._telemetry.metrics.orphans_deleted, lambda: collector.deleted)
            yield collector
        if NODE_CONTROLLER in enabled:
            hostnames = GuestHostnames(self._harvester, vms)
            yield NodeController(writes, vms, self._addresses, settings=nodes, hostnames=hostnames)
            if nodes.vmi_controller:
                yield NetworkMapping(self._guest, vms, caches.config_maps, recorder=recorder)
        if LIFECYCLE_CONTROLLER in enabled:
            yield NodeLifecycleController(self._guest_identity, self._harvester, writes, vms, settings=nodes)

    async def _shut_down(self, *, flush: bool) -> None:
        """Release the Lease, and if ``flush`` write the last Events."""
        try:
            async with asyncio.timeout(SHUTDOWN_SECONDS):
                # The Lease is released after the response to the last write; without one it expires, as after a crash.
                await self._fence.answered()
                await self._elector.release()
                if flush:
                    await self._recorder.flush()
        except TimeoutError:
            log.warning("shutdown timed out", seconds=SHUTDOWN_SECONDS, lease_held=self._elector.leading)

    def _emit_leadership(self, verb: str, lease: Lease) -> None:
        event = EventMessage("Normal", Reason.LEADER, f"{self._elector.identity} {verb}")
        self._recorder.emit(LEASES, lease, event, component="cloud-controller-manager")

    def _emit_reload_failure(self, cluster: str, problem: str) -> None:
        """Emit an Event on the Lease: the pod does not know its own name, and no other object is always there."""
        election = self._settings.leader_election
        lease = Lease(metadata=ObjectMeta(name=election.name, namespace=election.namespace))
        event = EventMessage(
            "Warning",
            Reason.CREDENTIAL_NOT_RELOADED,
            f"The kubeconfig for {cluster} cannot be loaded: {problem}. The previous credential stays in use until the "
            "controller restarts, which needs a usable kubeconfig",
            "Correct the file or Secret",
        )
        self._recorder.emit(LEASES, lease, event, component="cloud-controller-manager")


def _first(group: BaseExceptionGroup[BaseException]) -> BaseException:
    """Return the first error inside nested groups."""
    error: BaseException = group
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    return error
