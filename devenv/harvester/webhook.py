"""Harvester's admission webhook: an HTTPS server that the API server calls, with the real names and answers.

A refusal reaches the client as HTTP 500 ``InternalError`` with the text ``admission webhook "…" denied the request:
Internal error occurred: …``. While the server is stopped and still registered, writes fail as they do when the real
webhook is down; the mutator is then skipped.
"""

from __future__ import annotations

import asyncio
import base64
from collections.abc import Callable
from contextlib import suppress
from types import TracebackType
from typing import Any, Final, Self

import msgspec
import structlog
from aiohttp import web

from devenv.harvester.admission import Refusal, Surroundings, mutate, validate_create, validate_update
from devenv.harvester.pool_admission import mutate_pool, validate_pool, validate_pool_deletion
from devenv.harvester.records import INSTANCES, LOAD_BALANCERS, MACHINES, NAMESPACES, POOLS
from devenv.harvester.tlsserver import TlsServer
from devenv.watch import Document, Mirror, annotations_of, documents, key_of
from harvester_ccm.errors import AdmissionDenied, AlreadyExists, NotFound
from harvester_ccm.kube.client import ApiClient
from harvester_ccm.model.meta import Resource

CONFIGURATION: Final = "harvester-load-balancer-webhook"
VALIDATOR: Final = "validator.harvester-system.harvester-load-balancer-webhook"
MUTATOR: Final = "mutator.harvester-system.harvester-load-balancer-webhook"
VALIDATION_PATH: Final = "/v1/webhook/validation"
MUTATION_PATH: Final = "/v1/webhook/mutation"

GROUP: Final = "admissionregistration.k8s.io"
VALIDATING: Final = documents(
    GROUP, "v1", "validatingwebhookconfigurations", kind="ValidatingWebhookConfiguration", namespaced=False
)
MUTATING: Final = documents(
    GROUP, "v1", "mutatingwebhookconfigurations", kind="MutatingWebhookConfiguration", namespaced=False
)
NETWORKS: Final = documents(
    "k8s.cni.cncf.io", "v1", "network-attachment-definitions", kind="NetworkAttachmentDefinition"
)

EFFECT_SECONDS: Final = 30.0
POLL_SECONDS: Final = 0.02

log = structlog.get_logger(__name__)


class Webhook:
    """The webhook of one API server. Use as an async context manager: it registers and unregisters itself."""

    def __init__(self, client: ApiClient) -> None:
        """What its rules look up is in mirrors: an answer can be older than what was written a moment ago."""
        self._client = client
        self.instances = Mirror(client, INSTANCES)
        self.machines = Mirror(client, MACHINES)
        self.pools = Mirror(client, POOLS)
        self.networks = Mirror(client, NETWORKS)
        self.namespaces = Mirror(client, NAMESPACES)
        routes = [
            web.post(VALIDATION_PATH, self._answer_validation),
            web.post(MUTATION_PATH, self._answer_mutation),
        ]
        self._server = TlsServer("127.0.0.1", routes)

    @property
    def mirrors(self) -> tuple[Mirror, ...]:
        """The collections that the rules look things up in; the owner runs them."""
        return (self.instances, self.machines, self.pools, self.networks, self.namespaces)

    async def __aenter__(self) -> Self:
        await self.start()
        try:
            await self._register(VALIDATING, self._validating())
            await self._register(MUTATING, self._mutating())
            await self._await_effect(registered=True)
        except BaseException:
            await self.stop()
            raise
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            for resource in (VALIDATING, MUTATING):
                with suppress(NotFound):
                    await self._client.delete(resource, CONFIGURATION)
            await self._await_effect(registered=False)
        finally:
            await self.stop()

    async def start(self) -> None:
        """Listen; after ``stop``, on the same port again."""
        await self._server.start()

    async def stop(self) -> None:
        """Stop listening and stay registered: from now on validation fails and mutation is skipped."""
        await self._server.stop()

    async def _register(self, resource: Resource[Document], document: Document) -> None:
        try:
            await self._client.create(resource, document)
        except AlreadyExists:
            await self._client.delete(resource, CONFIGURATION)
            await self._client.create(resource, document)

    async def _await_effect(self, *, registered: bool) -> None:
        """Return when the API server follows the change: it learns of configurations some time later."""
        async with asyncio.timeout(EFFECT_SECONDS):
            while await self._seen_by_server() != (registered, registered):  # noqa: ASYNC110 - remote state
                await asyncio.sleep(POLL_SECONDS)

    async def _seen_by_server(self) -> tuple[bool, bool]:
        """Return whether a trial that is never stored is refused, and whether one is changed."""
        return await self._is_refused(), await self._is_changed()

    async def _is_refused(self) -> bool:
        try:
            await self._try(workload_type="vm")
        except AdmissionDenied:
            return True
        return False

    async def _is_changed(self) -> bool:
        return bool(annotations_of(await self._try(workload_type="cluster")))

    async def _try(self, *, workload_type: str) -> Document:
        trial = {
            "apiVersion": LOAD_BALANCERS.api_version,
            "kind": LOAD_BALANCERS.kind,
            "metadata": {"generateName": "webhook-trial-"},
            "spec": {"ipam": "pool", "workloadType": workload_type},
        }
        path = LOAD_BALANCERS.path("default")
        answer = await self._client.request("POST", path, params={"dryRun": "All"}, body=trial)
        return LOAD_BALANCERS.decode(answer)

    def _validating(self) -> Document:
        rules = [
            _rule("loadbalancers", "Namespaced", "CREATE", "UPDATE"),
            _rule("ippools", "Cluster", "CREATE", "UPDATE", "DELETE"),
        ]
        hook = self._hook(VALIDATOR, VALIDATION_PATH, rules) | {"failurePolicy": "Fail"}
        return _configuration("ValidatingWebhookConfiguration", hook)

    def _mutating(self) -> Document:
        rules = [
            _rule("loadbalancers", "Namespaced", "CREATE", "UPDATE"),
            _rule("ippools", "Cluster", "CREATE", "UPDATE"),
        ]
        hook = self._hook(MUTATOR, MUTATION_PATH, rules) | {"failurePolicy": "Ignore"}
        return _configuration("MutatingWebhookConfiguration", hook)

    def _hook(self, name: str, path: str, rules: list[Document]) -> Document:
        return {
            "name": name,
            "clientConfig": {"url": f"https://127.0.0.1:{self._server.port}{path}", "caBundle": self._server.authority},
            "rules": rules,
            "matchPolicy": "Equivalent",
            "sideEffects": "None",
            "timeoutSeconds": 10,
            "admissionReviewVersions": ["v1"],
        }

    async def _answer_validation(self, request: web.Request) -> web.Response:
        return await _review(request, self._validate)

    async def _answer_mutation(self, request: web.Request) -> web.Response:
        return await _review(request, self._mutate)

    async def _validate(self, order: Document) -> None:
        new, old = order.get("object"), order.get("oldObject")
        if order["resource"]["resource"] == "ippools":
            if new is None:
                validate_pool_deletion(old or {})
            elif not new["metadata"].get("deletionTimestamp"):
                others = [p for p in self.pools.all() if key_of(p) != key_of(new)]
                validate_pool(new, others, create=old is None)
        elif new is None or new["metadata"].get("deletionTimestamp"):
            return
        elif old is None:
            validate_create(new, self._surroundings(order["namespace"]))
        else:
            validate_update(new, old)

    async def _mutate(self, order: Document) -> Document | None:
        new = order["object"]
        if new["metadata"].get("deletionTimestamp"):
            return None
        if order["resource"]["resource"] == "ippools":
            return mutate_pool(new, self.networks.all(), create=order.get("oldObject") is None)
        named = {**new, "metadata": {**new["metadata"], "namespace": order["namespace"]}}
        return mutate(named, self._surroundings(order["namespace"]))

    def _surroundings(self, namespace: str) -> Surroundings:
        found = self.namespaces.get(namespace)
        return Surroundings(found, self.instances.all(namespace), self.machines.all(namespace))


Rule = Callable[[Document], Any]


async def _review(request: web.Request, rule: Rule) -> web.Response:
    """Return the AdmissionReview that answers the one in the request."""
    order = msgspec.json.decode(await request.read(), type=Document)["request"]
    answer: Document = {"uid": order["uid"], "allowed": True}
    try:
        changed = await rule(order)
    except Refusal as refusal:
        answer["allowed"] = False
        answer["status"] = {
            "status": "Failure",
            "code": 500,
            "reason": "InternalError",
            "message": f"Internal error occurred: {refusal}",
        }
        log.debug("admission refused", text=str(refusal))
    else:
        if changed is not None:
            answer["patchType"] = "JSONPatch"
            answer["patch"] = base64.b64encode(msgspec.json.encode(_patch(order["object"], changed))).decode()
    review = {"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "response": answer}
    return web.Response(body=msgspec.json.encode(review), content_type="application/json")


def _patch(before: Document, after: Document) -> list[Document]:
    """Return the JSON patch for the parts that a mutator touches."""
    steps = []
    for path in (("metadata", "annotations"), ("metadata", "labels"), ("spec", "healthCheck")):
        old, new = before.get(path[0], {}).get(path[1]), after.get(path[0], {}).get(path[1])
        if old != new:
            steps.append({"op": "add", "path": "/" + "/".join(path), "value": new})
    return steps


def _rule(plural: str, scope: str, *operations: str) -> Document:
    return {
        "apiGroups": ["loadbalancer.harvesterhci.io"],
        "apiVersions": ["v1beta1"],
        "resources": [plural],
        "scope": scope,
        "operations": list(operations),
    }


def _configuration(kind: str, hook: Document) -> Document:
    return {
        "apiVersion": f"{GROUP}/v1",
        "kind": kind,
        "metadata": {"name": CONFIGURATION},
        "webhooks": [hook],
    }
