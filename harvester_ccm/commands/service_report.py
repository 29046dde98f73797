"""The explanation of one Service, as a document for scripts and in sentences for people."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import cast

from msgspec import Struct

from harvester_ccm.commands import EXIT_OK, EXIT_PROBLEMS
from harvester_ccm.commands.admission import Admission
from harvester_ccm.commands.backend_report import BackendReport
from harvester_ccm.commands.render import Document
from harvester_ccm.commands.service_view import ServiceView
from harvester_ccm.commands.writes import is_warning, service_steps, step_text, warnings_of
from harvester_ccm.model.core import Service
from harvester_ccm.model.harvester import LoadBalancer
from harvester_ccm.model.outcome import Done, Outcome, Refused, Wait, WaitReason
from harvester_ccm.names import LOAD_BALANCER_READY, SERVICE_FINALIZER
from harvester_ccm.plan.service.decision import plan_service
from harvester_ccm.plan.service.kube_vip import Announcement
from harvester_ccm.plan.service.messages import harvester_unavailable
from harvester_ccm.plan.service.ownership import Claim
from harvester_ccm.plan.service.request import Request
from harvester_ccm.plan.service.snapshot import Situation
from harvester_ccm.plan.service.writes import ServicePlan


class ServiceReport(Struct, frozen=True):
    """The explanation of one Service."""

    situation: Situation
    not_served: str
    """Why the program leaves the Service alone; empty when it does not."""
    plan: ServicePlan
    steps: tuple[Document, ...]
    assumptions: tuple[str, ...]
    backends: BackendReport | None = None
    """Those of a VM load balancer."""
    admission: Admission | None = None
    """What Harvester's webhook says to the load balancer that would be created; None where it was not asked."""

    @property
    def creation(self) -> Document | None:
        """The load balancer that would be created; None where none would."""
        return next((cast("Document", one["body"]) for one in self.steps if one.get("verb") == "create"), None)

    @property
    def claimed(self) -> Claim | None:
        """The load balancer that serves the Service."""
        match = self.situation.match
        return match.claims[0] if match.lb is not None else None

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
            "expectedName": situation.match.expected_name,
            "claimed": {"name": claimed.name, "because": claimed.because} if claimed else None,
            "loadBalancers": [
                {"name": one.name, "owner": str(one.owner), "because": one.because} for one in situation.match.claims
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
        admission = [self.admission.sentence()] if refused and self.admission else []
        found = [*warnings_of(self.steps), *admission]
        return [*found, *self._lacking(found)]

    def _lacking(self, found: Sequence[str]) -> list[str]:
        """Return what the running program says that the Service lacks, unless that is found or what comes now mends it.

        A write that is refused is known to who has tried it, and no plan tells of it.
        """
        said, after = self.situation.service.ready_condition, self.plan.condition
        lacks = said is not None and said.status != "True" and after is not None and after.status != "True"
        if said is None or not lacks or self.not_served or not self.situation.harvester_known:
            return []
        if any(one.endswith(said.message) for one in found):
            return []
        return [f"{said.reason}: {said.message}"]

    def text(self) -> Document:
        """Return the explanation for people: what the objects say, what is wrong, and each write in one line."""
        service, cluster = self.situation.service, self.situation.cluster
        others = [one for one in self.situation.match.claims if one is not self.claimed]
        home = f"namespace {cluster.namespace} of " if cluster.namespace else ""
        document: Document = {
            "service": service.metadata.key,
            "state": list(_state(service, self.situation.request, served=not self.not_served)),
            "Left alone": self.not_served,
            f"Load balancer in {home}Harvester": self._load_balancer(),
            "Not this Service's, though its labels or its name say so": [
                f"{one.name} ({one.owner}), a {_describe(one.load_balancer)}: {one.because}" for one in others
            ],
            "backends": self.backends.sentences() if self.backends else [],
        }
        if not self.not_served:
            document |= self._plan_text()
        return {**document, "Assumed": list(self.assumptions)}

    def _condition(self) -> Document | None:
        said = self.situation.service.ready_condition
        if said is None:
            return None
        since = said.last_transition_time or None
        return {"ready": said.status == "True", "reason": said.reason, "message": said.message, "since": since}

    def _told(self) -> str:
        """Return what the running program has said, and since when: who reads this may have seen it already."""
        said = self.situation.service.ready_condition
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
        found = [f"none. One for this Service would be called {situation.match.expected_name}"]
        if self.admission is not None and not self.admission.is_problem:
            found.append(self.admission.sentence())
        return found

    def _plan_text(self) -> Document:
        steps, outcome = [step_text(one) for one in self.steps if not is_warning(one)], self.plan.outcome
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


class GuestReport(ServiceReport, frozen=True):
    """What is known of a Service without asking Harvester: nothing is decided, and nothing told of Harvester."""

    @property
    def problems(self) -> list[str]:
        """Nothing beside what the running program has said, which is told as that."""
        return []

    @property
    def exit_code(self) -> int:
        """Problems: the running program has not said that the Service is served."""
        said = self.situation.service.ready_condition
        is_served = said is not None and said.status == "True"
        return EXIT_OK if self.not_served or is_served else EXIT_PROBLEMS

    def document(self) -> Document:
        """Return the explanation for scripts, without what only Harvester could tell."""
        return {**super().document(), "expectedName": None, "outcome": None}

    def _load_balancer(self) -> list[str]:
        return ["not known: Harvester was not asked"]

    def _plan_text(self) -> Document:
        return {"Told": self._told() or f"nothing: the Service has no condition {LOAD_BALANCER_READY}"}


def report_from_guest(service: Service, view: ServiceView) -> ServiceReport:
    """Return the explanation without a cloud-config: what the running program has said is all that is known."""
    situation = view.observe(service)
    assumed = view.inventory.assuming(
        "Harvester was not asked, because no --cloud-config was given: what counts is what the running program says"
    )
    return GuestReport(
        situation=situation,
        not_served=view.left_alone(situation),
        plan=ServicePlan(),
        steps=(),
        assumptions=assumed.assumptions,
    )


def report_service(service: Service, view: ServiceView) -> ServiceReport:
    """Return the explanation: the plan is the one that the running program would make."""
    situation = view.observe(service)
    not_served = view.left_alone(situation)
    plan = ServicePlan() if not_served else plan_service(situation)
    return ServiceReport(
        situation=situation,
        not_served=not_served,
        plan=plan,
        steps=tuple(service_steps(plan, situation)),
        assumptions=view.inventory.assumptions,
    )


def _state(service: Service, request: Request, *, served: bool) -> Iterator[str]:
    spec, meta = service.spec, service.metadata
    ports = ", ".join(
        f"{port.port}/{port.protocol}" + (f" (node port {port.node_port})" if port.node_port else "")
        for port in spec.ports
    )
    addresses = ", ".join(service.addresses) or "none"
    deleting = ", being deleted" if meta.deleting else ""
    yield f"type {spec.type}, ports {ports or 'none'}, address {addresses}{deleting}"
    if served:
        yield f"wants to share the address of {request.primary}" if request.primary else f"wants {_wishes(request)}"
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
