"""``explain service``: what it is, which load balancer is its own and why, what would be done now, what it awaits.

From the clusters, or from files.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import cast

from harvester_ccm.commands import EXIT_OK, EXIT_PROBLEMS
from harvester_ccm.commands.admission import Admission, ask_admission
from harvester_ccm.commands.backends import BackendReport, backends_of
from harvester_ccm.commands.call import (
    FILENAME,
    HARVESTER_NAMESPACE,
    NAMESPACE,
    WAITED,
    Call,
    harvester_namespace,
    refuse,
)
from harvester_ccm.commands.clusters import ask, open_clusters, open_guest
from harvester_ccm.commands.files import read_files
from harvester_ccm.commands.inventory import Inventory
from harvester_ccm.commands.one_service import read_for, read_without_harvester
from harvester_ccm.commands.rehearsal import AT_WRITE, Rehearsal, is_warning, rehearse, request_text, warnings_of
from harvester_ccm.commands.render import Document
from harvester_ccm.commands.targets import Target
from harvester_ccm.config import SERVICE_CONTROLLER
from harvester_ccm.errors import CCMError
from harvester_ccm.kube.identity import IDENTITY_NAMESPACE
from harvester_ccm.model.cluster import ClusterIdentity
from harvester_ccm.model.core import ENDPOINT_SLICES, Service, parse_provider_id
from harvester_ccm.model.harvester import VIRTUAL_MACHINES, LoadBalancer, VirtualMachine
from harvester_ccm.model.meta import ObjectMeta
from harvester_ccm.model.outcome import Done, Outcome, Refused, Retry, Wait, WaitReason
from harvester_ccm.names import LOAD_BALANCER_READY, NAD_MAPPING_NAME, NAD_MAPPING_NAMESPACE, SERVICE_FINALIZER
from harvester_ccm.plan.service.condition import with_condition
from harvester_ccm.plan.service.decision import plan_service
from harvester_ccm.plan.service.kube_vip import Announcement
from harvester_ccm.plan.service.ownership import LoadBalancerCandidate, Verdict, name_for
from harvester_ccm.plan.service.pending import harvester_unavailable
from harvester_ccm.plan.service.request import Request, read_request
from harvester_ccm.plan.service.selection import is_served, primary_reference
from harvester_ccm.plan.service.situation import Situation, observe
from harvester_ccm.plan.service.steps import ServicePlan


def explain_service(call: Call, target: Target) -> int:
    """Explain a Service and return the exit code."""
    files = call.flags.words(FILENAME.name)
    if not files and not target.name:
        raise refuse("no Service is named: explain svc/NAME -n NAMESPACE")
    if files:
        report = _from_files(call, files, target)
    elif call.settings.harvester.cloud_config is None:
        report = asyncio.run(_from_guest(call, target))
    else:
        report = asyncio.run(_from_clusters(call, target))
    call.output.answer(report.document(), text=report.text())
    return report.exit_code


async def _from_guest(call: Call, target: Target) -> ServiceReport:
    """Explain a Service without its load balancer: what the running program has said of it is all that is known."""
    async with open_guest(call.settings, call.environment) as guest:
        inventory = await read_without_harvester(guest, target.key_in(guest.namespace))
        service = named_service(inventory, target, guest.namespace)
        return report_from_guest(service, inventory, view_of(call, inventory, "", now=datetime.now(UTC)))


async def _from_clusters(call: Call, target: Target) -> ServiceReport:
    async with open_clusters(call.settings, call.environment) as clusters:
        inventory = await read_for(clusters, target.key_in(clusters.guest.namespace))
        service = named_service(inventory, target, clusters.guest.namespace)
        vms = inventory.problems.get(VIRTUAL_MACHINES.plural)
        if vms is not None:
            why = "" if inventory.harvester_away is not None else f" ({vms})"
            inventory = inventory.assuming(f"the VMs cannot be read; nodes count under their own names{why}")
        view = view_of(call, inventory, clusters.harvester.namespace, now=datetime.now(UTC))
        report = report_service(service, inventory, view)
        if report.creation is not None:
            admission = await ask_admission(clusters.harvester, report.creation, clusters.harvester.namespace)
            return replace(report, admission=admission)
        claimed = report.claimed
        if claimed is None or claimed.load_balancer.spec.workload_type != "vm":
            return report
        # Their health is in an object that the running program does not read.
        question = clusters.harvester.get(ENDPOINT_SLICES, claimed.name, namespace=clusters.harvester.namespace)
        asked = await ask(question)
        if asked.error is not None:
            inventory = replace(inventory, problems={**inventory.problems, ENDPOINT_SLICES.plural: asked.error})
        elif asked.answer is not None:
            inventory = replace(inventory, slices=(asked.answer,))
        return report_service(service, inventory, view)


def named_service(inventory: Inventory, target: Target, namespace: str) -> Service:
    """Return a Service of the cluster; ``namespace`` is that of the kubeconfig. Raises CCMError when it is not there.

    The error names the Services of that name in other namespaces.
    """
    key = target.key_in(namespace)
    service = inventory.service(key)
    if service is None:
        elsewhere = (one.metadata for one in inventory.services if one.metadata.name == target.name)
        there = " or ".join(sorted(f"-n {one.namespace}" for one in elsewhere))
        raise CCMError(f"there is no Service {key} in this cluster" + (f"; did you mean {there}?" if there else ""))
    return service


def _from_files(call: Call, files: tuple[str, ...], target: Target) -> ServiceReport:
    contents = read_files(files, namespace=harvester_namespace(call))
    service, choice = _chosen(target, contents.inventory)
    inventory = _with_vms(contents.inventory, contents.namespace, service)
    view = view_of(call, inventory, contents.namespace, now=contents.taken)
    missing = () if contents.taken else _missing(call, inventory, service)
    return report_service(service, inventory.assuming(choice, *missing), view)


def _with_vms(inventory: Inventory, namespace: str, service: Service) -> Inventory:
    """Return the inventory with a VM for every Node, where the VMs matter and none is in the files."""
    by_vm = read_request(service).wants_vm or any(one.spec.workload_type == "vm" for one in inventory.load_balancers)
    if inventory.vms or not inventory.nodes or not by_vm:
        return inventory
    named = {one.metadata.name: parse_provider_id(one.spec.provider_id) for one in inventory.nodes}
    metas = (ObjectMeta(name=name, namespace=namespace, uid=uid or f"uid-of-vm-{name}") for name, uid in named.items())
    made = tuple(VirtualMachine(metadata=meta) for meta in metas)
    return replace(inventory, vms=made).assuming("each Node is the VM of its name: no VM is in the files")


def view_of(call: Call, inventory: Inventory, namespace: str, *, now: datetime | None) -> ServiceView:
    """Return the view that the flags give; ``namespace`` is that of Harvester."""
    settings = call.settings
    cluster = ClusterIdentity.of(settings, namespace, inventory.cluster_uid)
    waited = call.flags.read(WAITED.name, float) if WAITED.name in call.flags.explicit else None
    return ServiceView(cluster, SERVICE_CONTROLLER in settings.controllers, waited, now)


def _chosen(target: Target, inventory: Inventory) -> tuple[Service, str]:
    """Return the Service to explain, and how it was chosen where the files leave a choice."""
    services = [one for one in inventory.services if target.namespace in ("", one.metadata.namespace)]
    if target.name:
        named = [one for one in services if one.metadata.name == target.name]
        if not named:
            present = ", ".join(one.metadata.key for one in inventory.services) or "none"
            wanted = target.key_in("") if target.namespace else target.name
            raise refuse(f"Service {wanted} is not in the files; there are: {present}")
        services = named
    if not services and inventory.services:
        present = ", ".join(one.metadata.key for one in inventory.services)
        raise refuse(
            f"there is no Service of namespace {target.namespace} in the files; there are: {present}. The namespace in "
            f"Harvester, which --{NAMESPACE.name} once was, is --{HARVESTER_NAMESPACE.name}"
        )
    if not services:
        raise refuse("there is no Service in the files")
    primaries = {primary_reference(one) for one in services}
    choice = [one for one in services if one.metadata.key not in primaries] or services
    if len(choice) == 1:
        return choice[0], ""
    keys = ", ".join(one.metadata.key for one in choice[1:])
    return choice[0], f"Service {choice[0].metadata.key} is meant, the first one; name another as argument: {keys}"


def _missing(call: Call, inventory: Inventory, service: Service) -> Iterator[str]:
    """Yield what the files leave out and the plan depends on."""
    yield from call.settings.warnings
    if not inventory.cluster_uid:
        yield (
            f"the UID of this cluster is not known (Namespace {IDENTITY_NAMESPACE} is not in the files): load "
            "balancers are judged and written without an owner mark"
        )
    if not inventory.load_balancers:
        yield "Harvester has no load balancer: none is in the files"
    primary = primary_reference(service)
    if primary is not None and inventory.service(primary) is None:
        yield f"Service {primary} does not exist: it is not in the files"
    request = read_request(service)
    if request.wants_vm and not inventory.nodes:
        yield "the cluster has no Node: none is in the files"
    if request.network and inventory.mapping is None:
        yield f"ConfigMap {NAD_MAPPING_NAMESPACE}/{NAD_MAPPING_NAME} does not exist: it is not in the files"
    if WAITED.name not in call.flags.explicit:
        yield "the Service has just come into its present state (--waited 0s)"


@dataclass(frozen=True)
class ServiceView:
    """What the flags say, and the point in time."""

    cluster: ClusterIdentity
    serving: bool
    """Whether the service controller is on."""
    waited: float | None
    """Seconds in the present phase; None: to be told from the objects' times and ``now``."""
    now: datetime | None
    """None: no time is known, and ``waited`` None counts as 0."""

    def observe(self, service: Service, inventory: Inventory) -> Situation:
        """Return what the running program would know about the Service."""
        situation = observe(inventory.service_store(self.cluster), service, self.cluster)
        return replace(situation, waited=self._waited(situation))

    def recall(self, situation: Situation) -> Situation:
        """Return the situation as after a start: what the program remembers of the Service is not known here."""
        served = is_served(situation.service)
        return replace(situation, waited=self._waited(situation), found_served=served, wall_time=AT_WRITE)

    def left_alone(self, situation: Situation) -> str:
        """Return why nothing is done about the Service; empty when it is served or being let go."""
        return situation.scope.because if self.serving else f"{SERVICE_CONTROLLER} is switched off by --controllers"

    def _waited(self, situation: Situation) -> float:
        """Return the seconds since the Service entered its phase: it left, its load balancer came to be, or it did."""
        if self.waited is not None or self.now is None:
            return self.waited or 0.0
        meta, lb = situation.service.metadata, situation.match.lb
        began = meta.creation_timestamp
        if situation.scope.leaving:
            began = meta.deletion_timestamp
        elif lb is not None:
            began = lb.metadata.deletion_timestamp or lb.metadata.creation_timestamp
        try:
            return max((self.now - datetime.fromisoformat(began or "")).total_seconds(), 0.0)
        except (ValueError, TypeError):
            # Absent, or not a time of the API.
            return 0.0


@dataclass(frozen=True)
class ServiceReport:
    """The explanation of one Service."""

    situation: Situation
    not_served: str
    """Why the program leaves the Service alone; empty when it does not."""
    plan: ServicePlan
    backends: BackendReport | None
    steps: tuple[Document, ...]
    assumptions: tuple[str, ...]
    admission: Admission | None = None
    """What Harvester's webhook says to the load balancer that would be created; None where it was not asked."""

    @property
    def creation(self) -> Document | None:
        """The load balancer that would be created; None where none would."""
        made = (cast("Document", one["loadBalancer"]).get("create") for one in self.steps if "loadBalancer" in one)
        return cast("Document | None", next(filter(None, made), None))

    @property
    def claimed(self) -> LoadBalancerCandidate | None:
        """The load balancer that serves the Service."""
        return next((one for one in self.situation.match.candidates if one.verdict is Verdict.CLAIMED), None)

    @property
    def exit_code(self) -> int:
        """Problems: something is refused, users would be warned, or Harvester could not be asked."""
        unknown = not self.not_served and not self.situation.harvester_known
        refused = isinstance(self.plan.outcome, Refused)
        return EXIT_PROBLEMS if self.problems or refused or unknown else EXIT_OK

    def document(self) -> Document:
        """Return the explanation for scripts; docs/reference/commands.md describes it."""
        situation, claimed = self.situation, self.claimed
        return {
            "service": situation.service.metadata.key,
            "notServed": self.not_served or None,
            "expectedName": name_for(situation.service, situation.cluster),
            "claimed": {"name": claimed.name, "because": claimed.because} if claimed else None,
            "loadBalancers": [
                {"name": one.name, "verdict": str(one.verdict), "because": one.because}
                for one in situation.match.candidates
            ],
            "backends": self.backends.document() if self.backends else None,
            "steps": list(self.steps),
            "admission": self.admission.document() if self.admission else None,
            "told": self._condition(),
            "outcome": _outcome(self.plan.outcome)[0],
            "waited": round(situation.waited, 3),
            "assumptions": list(self.assumptions),
        }

    @property
    def problems(self) -> list[str]:
        """What users would be warned of, or have been."""
        refused = self.admission is not None and self.admission.is_problem
        admission = [f"Harvester's webhook {self.admission.sentence()}"] if refused and self.admission else []
        return [*warnings_of(self.steps), *admission]

    def text(self) -> Document:
        """Return the explanation for people: what the objects say, what is wrong, and each request in one line."""
        service, cluster = self.situation.service, self.situation.cluster
        others = [one for one in self.situation.match.candidates if one is not self.claimed]
        home = f"namespace {cluster.namespace} of " if cluster.namespace else ""
        document: Document = {
            "service": service.metadata.key,
            "state": list(_state(service, self.situation.request, served=not self.not_served)),
            "Left alone": self.not_served,
            f"Load balancer in {home}Harvester": self._load_balancer(),
            "Not this Service's, though its labels or its name say so": [
                f"{one.name} ({one.verdict}): {one.because}. It is a {_describe(one.load_balancer)}" for one in others
            ],
            "backends": self.backends.sentences() if self.backends else [],
        }
        if not self.not_served:
            document |= self._plan_text()
        return {**document, "Assumed": list(self.assumptions)}

    def _condition(self) -> Document | None:
        said = self.situation.service.condition(LOAD_BALANCER_READY)
        if said is None:
            return None
        since = said.last_transition_time or None
        return {"ready": said.status == "True", "reason": said.reason, "message": said.message, "since": since}

    def _told(self) -> str:
        """Return what the running program has said, and since when: who reads this may have seen it already."""
        said = self.situation.service.condition(LOAD_BALANCER_READY)
        if said is None or (said.status == "True" and self.situation.harvester_known):
            return ""
        since = f"since {said.last_transition_time}" if said.last_transition_time else "already"
        if any(problem.endswith(said.message) for problem in self.problems):
            return f"{since}, by the condition {LOAD_BALANCER_READY} and an Event"
        return f"{since}, by the condition {LOAD_BALANCER_READY}: {said.reason}: {said.message}"

    def _load_balancer(self) -> list[str]:
        claimed, situation = self.claimed, self.situation
        if claimed is not None:
            return [
                f"{claimed.name}: {_describe(claimed.load_balancer)}",
                f"belongs to this Service: {claimed.because}",
            ]
        if not situation.harvester_known:
            return ["not known, because Harvester could not be read: see the problem"]
        if self.not_served:
            return ["none"]
        found = [f"none. One for this Service would be called {name_for(situation.service, situation.cluster)}"]
        if self.admission is not None and not self.admission.is_problem:
            found.append(f"Harvester's webhook {self.admission.sentence()}")
        return found

    def _plan_text(self) -> Document:
        present = {one.name: one.load_balancer.document() for one in self.situation.match.candidates}
        steps, outcome = [request_text(one, present) for one in self.steps if not is_warning(one)], self.plan.outcome
        problems: Document = {"Problem": self.problems if len(self.problems) > 1 else "".join(self.problems)}
        problems["Told"] = self._told()
        if not self.situation.harvester_known:
            problems["Problem"] = problems["Problem"] or harvester_unavailable(self.situation.harvester_problem).message
            return {**problems, "Then": "Nothing is decided while Harvester's load balancers cannot be read."}
        done: Document = {**problems, "What would be done now": steps or ("" if problems["Problem"] else "nothing")}
        match outcome:
            case Done() if problems["Problem"]:
                addresses = ", ".join(self.situation.service.addresses)
                served = f"It is served ({addresses}), but not as asked" if addresses else "It is not served as asked"
                return {**done, "Then": f"{served}: see the problem above. Nothing more will happen by itself."}
            case Done():
                return {**done, "Then": "All is as it should be."} if steps else done
            case Refused():
                return {**done, "Refused until there is": _outcome(outcome)[1]}
            case _:
                return {**done, "Then it waits for": _outcome(outcome)[1]}


class GuestReport(ServiceReport):
    """What is known of a Service without asking Harvester: nothing is decided, and nothing told of Harvester."""

    @property
    def exit_code(self) -> int:
        """Problems: the running program has not said that the Service is served."""
        said = self.situation.service.condition(LOAD_BALANCER_READY)
        is_served = said is not None and said.status == "True"
        return EXIT_OK if self.not_served or is_served else EXIT_PROBLEMS

    def document(self) -> Document:
        """Return the explanation for scripts, without what only Harvester could tell."""
        return {**super().document(), "expectedName": None, "outcome": None}

    def _load_balancer(self) -> list[str]:
        return ["not known: Harvester was not asked"]

    def _plan_text(self) -> Document:
        return {"Told": self._told() or f"nothing: the Service has no condition {LOAD_BALANCER_READY}"}


def report_from_guest(service: Service, inventory: Inventory, view: ServiceView) -> ServiceReport:
    """Return the explanation without a cloud-config: what the running program has said is all that is known."""
    situation = view.recall(view.observe(service, inventory))
    assumed = inventory.assuming(
        "Harvester was not asked, because no --cloud-config was given: what counts is what the running program says"
    )
    return GuestReport(
        situation=situation,
        not_served=view.left_alone(situation),
        plan=ServicePlan(),
        backends=None,
        steps=(),
        assumptions=assumed.assumptions,
    )


def report_service(service: Service, inventory: Inventory, view: ServiceView) -> ServiceReport:
    """Return the explanation: the plan is the one that the running program would make."""
    situation = view.recall(view.observe(service, inventory))
    not_served, claimed = view.left_alone(situation), situation.match.lb
    plan = ServicePlan() if not_served else with_condition(plan_service(situation), situation)
    first = rehearse(plan.steps, situation)
    steps = first.taken
    if first.looks_again:
        second = _look_again(situation, first, inventory, view)
        plan = with_condition(plan_service(second), second)
        more = rehearse(plan.steps, second, again=True).taken
        # What was told is not told again.
        steps = [*steps, *(one for one in more if "event" not in one or one not in steps)]
    return ServiceReport(
        situation=situation,
        not_served=not_served,
        plan=plan,
        backends=backends_of(claimed, inventory, situation.backends.none_because) if claimed else None,
        steps=tuple(steps),
        assumptions=inventory.assumptions,
    )


def _look_again(situation: Situation, first: Rehearsal, inventory: Inventory, view: ServiceView) -> Situation:
    """Return what is known after the first writes."""
    written = first.load_balancers
    left = replace(
        inventory,
        services=tuple(
            first.service if one.metadata.key == first.service.metadata.key else one for one in inventory.services
        ),
        load_balancers=tuple(written.get(one.metadata.name, one) for one in inventory.load_balancers),
    )
    seen = view.observe(first.service, left)
    return replace(seen, found_served=situation.found_served, wall_time=AT_WRITE)


def _state(service: Service, request: Request, *, served: bool) -> Iterator[str]:
    spec, meta = service.spec, service.metadata
    ports = ", ".join(
        f"{port.port}/{port.protocol}" + (f" (node port {port.node_port})" if port.node_port else "")
        for port in spec.ports
    )
    addresses = ", ".join(service.addresses) or "none"
    deleting = ", being deleted" if meta.deleting else ""
    yield f"type {spec.type}, ports {ports or 'none'}, address {addresses}{deleting}"
    primary = primary_reference(service)
    if served:
        yield f"wants to share the address of {primary}" if primary else f"wants {_wishes(request)}"
    if meta.has_finalizer(SERVICE_FINALIZER):
        yield f"protected: deleting it waits for its load balancer (finalizer {SERVICE_FINALIZER})"
    node = Announcement.of(service).node
    if node:
        yield f"kube-vip announces it on node {node}"


def _wishes(request: Request) -> str:
    pool = f"IP pool {request.ip_pool}" if request.ip_pool else "any matching IP pool"
    wishes = (
        "an address from DHCP" if request.ipam == "dhcp" else f"an address from {pool}",
        "announced by Harvester (VM load balancer)" if request.wants_vm else "announced by kube-vip in this cluster",
        f"network {request.network}" if request.network else "",
        f"address {request.address}" if request.address else "",
        f"a health check of node port {request.health_check.port}" if request.health_check else "",
    )
    return ", ".join(filter(None, wishes))


def _describe(load_balancer: LoadBalancer) -> str:
    spec, condition = load_balancer.spec, load_balancer.ready
    pool = load_balancer.allocated_pool or spec.ip_pool
    state = "not looked at by Harvester yet"
    if condition is not None:
        state = "ready" if condition.status == "True" else f"not ready: {condition.message}"
    words = (
        f"{spec.workload_type} load balancer",
        spec.ipam,
        f"pool {pool}" if pool else "",
        f"address {load_balancer.address or load_balancer.allocated_ip or 'none yet'}",
        state,
        "being deleted" if load_balancer.metadata.deleting else "",
    )
    return ", ".join(filter(None, words))


def _outcome(outcome: Outcome) -> tuple[Document, str]:
    """Return the outcome for scripts (``atMost`` in seconds), and for people."""
    match outcome:
        case Done():
            return {"result": "done"}, "nothing"
        case Retry(after=after):
            return {"result": "retry", "atMost": round(after, 3)}, f"the next try, in {after:.0f} s"
        case Wait(reason=reason, at_most=at_most):
            meaning = WaitReason(reason).meaning
            document: Document = {"result": "wait", "reason": reason, "meaning": meaning}
            if at_most is None:
                return document, meaning
            limit = f"; looked at again after {at_most:.0f} s at the latest"
            return {**document, "atMost": round(at_most, 3)}, f"{meaning}{limit}"
        case Refused(reason=reason):
            meaning = WaitReason(reason).meaning
            return {"result": "refused", "reason": reason, "meaning": meaning}, meaning
