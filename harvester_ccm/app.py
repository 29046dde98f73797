"""Assembly of clients, informers, controllers and leader election; start and shutdown in order.

Start: read the credentials (an error ends the process), start the informers, which wait for unreachable servers, wait
for the Lease with synced caches, start the controllers.

Shutdown (SIGTERM, SIGINT): all tasks are cancelled, and writes that were sent are waited for; then the Lease is
released, the last Events are written, exit code 0. Every other end that the process decides on (another
cluster behind a credential, a bug) releases the Lease as well, exit code 1. A lost Lease stops all writes at once, exit
code 1.
"""

import asyncio
import shlex
import signal
import socket
import uuid
from asyncio import sslproto
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from typing import Any, Final

import structlog
from msgspec.structs import replace

from harvester_ccm import __version__
from harvester_ccm.access import both_credentials, guest_credentials, harvester_credentials
from harvester_ccm.config import LIFECYCLE_CONTROLLER, NODE_CONTROLLER, SERVICE_CONTROLLER, OrphanPolicy, Settings
from harvester_ccm.controllers.caches import Caches
from harvester_ccm.controllers.device_mapping import NetworkMapping
from harvester_ccm.controllers.guest_hostnames import GuestHostnames
from harvester_ccm.controllers.node import NodeController
from harvester_ccm.controllers.node_lifecycle import NodeLifecycleController
from harvester_ccm.controllers.orphans import OrphanController
from harvester_ccm.controllers.reconciler import Reconciler, Shared
from harvester_ccm.controllers.self_report import SelfReport
from harvester_ccm.controllers.service import ServiceController
from harvester_ccm.controllers.virtual_addresses import VirtualAddresses
from harvester_ccm.controllers.wake import Wakes
from harvester_ccm.kube.builtin import LEASES, Lease
from harvester_ccm.kube.client import ApiClient
from harvester_ccm.kube.errors import ClusterReplaced
from harvester_ccm.kube.events import EventRecorder
from harvester_ccm.kube.fence import WriteFence
from harvester_ccm.kube.holder import holder_mark
from harvester_ccm.kube.identity import ServerIdentity
from harvester_ccm.kube.lease import LeaderElector, LeaseLost, LeaseTimes
from harvester_ccm.kube.objects import ObjectMeta
from harvester_ccm.kube.reload import CredentialReloader, warn_if_insecure
from harvester_ccm.model.event import EventMessage
from harvester_ccm.model.harvester import ClusterIdentity
from harvester_ccm.names import LEASE_FLAGS, LEASE_HOLDER, PROGRAM, Reason
from harvester_ccm.plan.service.ownership.right_harvester import HarvesterCheck, check_harvester
from harvester_ccm.telemetry.health import HealthRegistry
from harvester_ccm.telemetry.metrics import Telemetry
from harvester_ccm.telemetry.objects import LoadBalancerMetrics, NodeMetrics, ServiceMetrics
from harvester_ccm.telemetry.server import AccessReviewer, https_server

SHUTDOWN_SECONDS: Final = 1.7
"""Time for responses to writes in flight, for releasing the Lease and for the last Events at shutdown."""

_CREDENTIALS_USABLE: Final = EventMessage(
    "Normal", Reason.CREDENTIAL_RELOADED, "The kubeconfigs can be used again, or the process that reported them ends"
)

log = structlog.get_logger(__name__)


class _Stop(Exception):
    """Raised inside the task group on a signal."""


def run(settings: Settings, environment: Mapping[str, str]) -> int:
    """Run until a signal or the loss of the Lease; return the exit code.

    Raises CredentialError if the cloud-config, and ConfigurationError if the kubeconfig of the guest cluster, cannot be
    used.
    """
    limit_tls_buffers()
    return asyncio.run(_run(settings, environment))


def limit_tls_buffers() -> None:
    """Give each TLS connection a buffer of one TLS record, 16 KiB; asyncio allocates 256 KiB.

    The metrics server alone accepts 256 connections, with which unauthenticated clients would double the memory.
    """
    sslproto.SSLProtocol.max_size = 16 * 1024


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
    telemetry = Telemetry(__version__, settings.harvester.cluster_name)
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
        self._caches = Caches(guest, harvester, ClusterIdentity.of(settings, harvester.namespace))
        # It notes when an address was removed, also while another process is the leader.
        self._virtual_addresses = VirtualAddresses(
            self._caches.services, self._caches.load_balancers, self._caches.cluster
        )
        election = settings.leader_election
        identity = f"{host}_{uuid.uuid4()}"
        self._elector = LeaderElector(
            guest,
            fence,
            namespace=election.namespace,
            name=election.name,
            identity=identity,
            times=LeaseTimes(election.lease_duration, election.renew_deadline, election.retry_period),
        )
        self._elector.annotations = {
            LEASE_HOLDER: holder_mark(f"{PROGRAM}/{__version__}", identity),
            LEASE_FLAGS: shlex.join(settings.flags),
        }
        self._elector.on_change = self._emit_leadership
        self._reloaders = reloaders
        for reloader in reloaders:
            reloader.on_check = self._report_credentials
        self._credentials_report = SelfReport(self._emit_about_lease, _CREDENTIALS_USABLE)
        self._guest_identity = ServerIdentity(
            guest, without="load balancers get no owner annotation, orphaned ones are not deleted"
        )
        self._observe()

    def _observe(self) -> None:
        """Connect metrics and health checks to what they observe."""
        telemetry = self._telemetry
        health = self.health
        caches = self._caches
        settings = self._settings
        health.follow_caches(guest=caches.of_guest, harvester=caches.of_harvester)
        health.follow_files(self._reloaders)
        telemetry.follow_harvester(caches.of_harvester)
        telemetry.follow_clients(self._guest, self._harvester)
        telemetry.add_reader(lambda: [(telemetry.metrics.healthcheck, health.samples())])
        telemetry.show_count(telemetry.metrics.events_dropped, lambda: self._recorder.dropped)
        NodeMetrics(telemetry, caches)
        if SERVICE_CONTROLLER in settings.controllers:
            ServiceMetrics(telemetry, caches)
            LoadBalancerMetrics(telemetry, caches)
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
            # Python 3.11.2 leaves the task of a failed group cancelled: no time limit would work in this one any more.
            await asyncio.create_task(self._run_tasks(stop), name="tasks")
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
        # Without the Lease, nothing is left to write. The clients close the connections of writes in flight.
        if not is_lost:
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
            for informer in self._caches.all:
                group.create_task(informer.run(), name=informer.name)
            for reloader in self._reloaders:
                group.create_task(reloader.run(), name="credentials")
            group.create_task(self._lead(), name="leader")

    async def _until_stopped(self, stop: asyncio.Event) -> None:
        await stop.wait()
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
            self._caches.cluster = replace(self._caches.cluster, uid=uid)
            controllers = list(self._controllers())
            Wakes(self._caches, controllers)
            for controller in controllers:
                self._telemetry.follow_queue(controller.queue)
                group.create_task(controller.run(), name=controller.name)

    def _controllers(self) -> Iterator[Reconciler[Any, Any]]:
        """Yield the enabled controllers."""
        enabled = self._settings.controllers
        services = self._settings.services
        nodes = self._settings.nodes
        caches = self._caches
        shared = Shared(caches, self._recorder, fence=self._fence)
        if SERVICE_CONTROLLER in enabled:
            self.health.add("harvester-matches-cluster", self._is_our_harvester)
            yield ServiceController(shared, self._guest, self._harvester, workers=services.concurrent_syncs)
        if SERVICE_CONTROLLER in enabled and services.orphan_policy is not OrphanPolicy.OFF:
            orphans = OrphanController(shared, self._guest_identity, self._harvester, settings=services)
            self._telemetry.show_count(self._telemetry.metrics.orphans_deleted, lambda: orphans.deleted)
            yield orphans
        if NODE_CONTROLLER in enabled:
            hostnames = GuestHostnames(self._harvester, caches)
            yield NodeController(shared, self._virtual_addresses, settings=nodes, hostnames=hostnames)
        if NODE_CONTROLLER in enabled and nodes.vmi_controller:
            yield NetworkMapping(shared, self._guest)
        if LIFECYCLE_CONTROLLER in enabled:
            yield NodeLifecycleController(shared, self._guest_identity, self._harvester, settings=nodes)

    def _is_our_harvester(self) -> bool:
        return check_harvester(self._caches, self._caches.cluster) is not HarvesterCheck.MISMATCH

    async def _shut_down(self, *, flush: bool) -> None:
        """Release the Lease, and if ``flush`` write the last Events."""
        try:
            async with asyncio.timeout(SHUTDOWN_SECONDS):
                # The Lease is released after the response to the last write; without one it expires, as after a crash.
                await self._fence.answered()
                await self._elector.release()
                if flush:
                    # What this process reports about itself ends with it.
                    self._credentials_report.update(None)
                    await self._recorder.flush()
        except TimeoutError:
            log.warning("shutdown timed out", seconds=SHUTDOWN_SECONDS, lease_held=self._elector.leading)

    def _emit_leadership(self, verb: str, lease: Lease) -> None:
        event = EventMessage("Normal", Reason.LEADER, f"{self._elector.identity} {verb}")
        self._recorder.emit(LEASES, lease, event, component="cloud-controller-manager")

    def _report_credentials(self) -> None:
        """Report the kubeconfigs that cannot be loaded any more."""
        problems = [
            f"The kubeconfig for {reloader.cluster} cannot be loaded: {reloader.problem}"
            for reloader in self._reloaders
            if reloader.problem
        ]
        if not problems:
            self._credentials_report.update(None)
            return
        cause = (
            f"{'. '.join(problems)}. The previous credential stays in use until the controller restarts, which needs a "
            "usable kubeconfig"
        )
        remedy = "Correct the file or Secret"
        self._credentials_report.update(EventMessage("Warning", Reason.CREDENTIAL_NOT_RELOADED, cause, remedy))

    def _emit_about_lease(self, event: EventMessage) -> None:
        """Emit an Event on the Lease: the pod does not know its own name, and no other object is always there."""
        election = self._settings.leader_election
        lease = Lease(metadata=ObjectMeta(name=election.name, namespace=election.namespace))
        self._recorder.emit(LEASES, lease, event, component="cloud-controller-manager")


def _first(group: BaseExceptionGroup[BaseException]) -> BaseException:
    """Return the first error inside nested groups."""
    error: BaseException = group
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    return error
