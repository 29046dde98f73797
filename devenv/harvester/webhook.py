"""Harvester's admission webhook: an HTTPS server that the API server calls, with the real names and messages.

A client gets a rejection as HTTP 500 ``InternalError`` with the text ``admission webhook "…" denied the request:
Internal error occurred: …``. While the server is stopped and still registered, writes fail as if the real webhook were
down; the mutator is skipped.
"""

import asyncio
import base64
import ssl
import tempfile
from contextlib import suppress
from pathlib import Path
from typing import Final, Self

import msgspec
import structlog
from aiohttp import web

from devenv.background import closed
from devenv.harvester.admission import Refusal, Surroundings, mutate, validate_create, validate_update
from devenv.harvester.pool_admission import mutate_pool, validate_pool, validate_pool_deletion
from devenv.harvester.records import INSTANCES, MACHINES, NAMESPACES, POOLS
from devenv.harvester.versions import Version
from devenv.pki import Authority
from devenv.watch import Document, Mirror, documents, key_of, labels_of
from harvester_ccm.kube.client import ApiClient
from harvester_ccm.kube.errors import AdmissionDenied, AlreadyExists, NotFound
from harvester_ccm.kube.objects import Resource

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


class Rules:
    """What the webhook decides about each write, with mirrors that can be older than the last write."""

    def __init__(self, client: ApiClient, version: Version) -> None:
        self._version = version
        self.instances = Mirror(client, INSTANCES)
        self.machines = Mirror(client, MACHINES)
        self.pools = Mirror(client, POOLS)
        self.networks = Mirror(client, NETWORKS)
        self.namespaces = Mirror(client, NAMESPACES)

    @property
    def mirrors(self) -> tuple[Mirror, ...]:
        """The collections that the rules read; the owner runs them."""
        return (self.instances, self.machines, self.pools, self.networks, self.namespaces)

    def validate(self, plural: str, new: Document | None, old: Document | None) -> None:
        """Judge a write: ``new`` None is a deletion, ``old`` None a creation. Raises Refusal."""
        if plural == POOLS.plural:
            self._validate_pool(new, old)
        elif new is None or new["metadata"].get("deletionTimestamp"):
            return
        elif old is None:
            validate_create(new, self._surroundings(new), self._version)
        else:
            validate_update(new, old, self._surroundings(new), self._version)

    def _validate_pool(self, new: Document | None, old: Document | None) -> None:
        if new is None:
            validate_pool_deletion(old or {}, self._version.words)
        elif not new["metadata"].get("deletionTimestamp"):
            others = [pool for pool in self.pools.all() if key_of(pool) != key_of(new)]
            validate_pool(new, others, self._version.words, create=old is None)

    def mutate(self, plural: str, new: Document, old: Document | None) -> Document:
        """Return the object as the webhook changes it. Raises Refusal."""
        if new["metadata"].get("deletionTimestamp"):
            return new
        if plural == POOLS.plural:
            return mutate_pool(new, self.networks.all(), self._version.words, create=old is None)
        return mutate(new, self._surroundings(new), self._version)

    def _surroundings(self, balancer: Document) -> Surroundings:
        namespace = balancer["metadata"]["namespace"]
        found = self.namespaces.get(namespace)
        return Surroundings(found, self.instances.all(namespace), self.machines.all(namespace))


class Webhook:
    """The webhook of one API server. Use as an async context manager, which registers and unregisters it."""

    def __init__(self, client: ApiClient, version: Version) -> None:
        self._client = client
        self.rules = Rules(client, version)
        self._tls, self._authority = _serving_certificate()
        self._http: web.Server | None = None
        self._server: asyncio.Server | None = None
        self._port = 0

    async def __aenter__(self) -> Self:
        await self.start()
        try:
            await self._register(VALIDATING, VALIDATOR, VALIDATION_PATH, "Fail")
            await self._register(MUTATING, MUTATOR, MUTATION_PATH, "Ignore")
            await self._await_effect(registered=True)
        except BaseException:
            await self.stop()
            raise
        return self

    async def __aexit__(self, *_: object) -> None:
        try:
            for resource in (VALIDATING, MUTATING):
                with suppress(NotFound):
                    await self._client.delete(resource, CONFIGURATION)
            await self._await_effect(registered=False)
        finally:
            await self.stop()

    async def start(self) -> None:
        """Listen, after ``stop`` on the same port again."""
        self._http = web.Server(self._respond, access_log=None)
        self._server = await asyncio.get_running_loop().create_server(
            self._http, "127.0.0.1", self._port, ssl=self._tls, reuse_address=True, reuse_port=True
        )
        self._port = self._server.sockets[0].getsockname()[1]

    async def stop(self) -> None:
        """Stop listening and stay registered: validation fails and mutation is skipped."""
        if self._http is not None and self._server is not None:
            await self._http.shutdown(1.0)
            await closed(self._server, self._http)
            self._http = self._server = None

    async def _register(self, resource: Resource[Document], name: str, path: str, policy: str) -> None:
        document = self._configuration(resource.kind, name, path, policy)
        try:
            await self._client.create(resource, document)
        except AlreadyExists:
            await self._client.delete(resource, CONFIGURATION)
            await self._client.create(resource, document)

    async def _await_effect(self, *, registered: bool) -> None:
        """Return once the API server uses the changed configurations, which takes some time."""
        async with asyncio.timeout(EFFECT_SECONDS):
            while await effects_of_webhook(self._client) != {registered}:  # noqa: ASYNC110 - remote state
                await asyncio.sleep(POLL_SECONDS)

    def _configuration(self, kind: str, name: str, path: str, policy: str) -> Document:
        pool_operations = ["CREATE", "UPDATE", *(["DELETE"] if policy == "Fail" else [])]
        hook = {
            "name": name,
            "clientConfig": {"url": f"https://127.0.0.1:{self._port}{path}", "caBundle": self._authority},
            "rules": [
                _rule("loadbalancers", "Namespaced", ["CREATE", "UPDATE"]),
                _rule("ippools", "Cluster", pool_operations),
            ],
            "failurePolicy": policy,
            "matchPolicy": "Equivalent",
            "sideEffects": "None",
            "timeoutSeconds": 10,
            "admissionReviewVersions": ["v1"],
        }
        return {"apiVersion": f"{GROUP}/v1", "kind": kind, "metadata": {"name": CONFIGURATION}, "webhooks": [hook]}

    async def _respond(self, request: web.BaseRequest) -> web.Response:
        """Return the AdmissionReview with the response to the one in the request."""
        order = msgspec.json.decode(await request.content.read(), type=Document)["request"]
        answer: Document = {"uid": order["uid"], "allowed": True}
        plural, new, old = order["resource"]["resource"], _named(order, "object"), _named(order, "oldObject")
        try:
            if request.path == VALIDATION_PATH or new is None:
                self.rules.validate(plural, new, old)
            else:
                changed = self.rules.mutate(plural, new, old)
                answer["patchType"] = "JSONPatch"
                answer["patch"] = base64.b64encode(msgspec.json.encode(_patch(order["object"], changed))).decode()
        except Refusal as refusal:
            message = f"Internal error occurred: {refusal}"
            status = {"status": "Failure", "code": 500, "reason": "InternalError", "message": message}
            answer |= {"allowed": False, "status": status}
            log.debug("admission refused", text=str(refusal))
        review = {"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "response": answer}
        return web.Response(body=msgspec.json.encode(review), content_type="application/json")


async def effects_of_webhook(client: ApiClient) -> set[bool]:
    """Return whether a dry run is rejected, and whether one is changed."""
    try:
        await _try(client)
    except AdmissionDenied:
        is_rejected = True
    else:
        is_rejected = False
    return {is_rejected, bool(labels_of(await _try(client, {"subnet": "203.0.113.0/24"})))}


async def _try(client: ApiClient, *ranges: Document) -> Document:
    """Create a pool that nothing selects, in a dry run. Raises AdmissionDenied: always without a range."""
    trial = {
        "apiVersion": POOLS.api_version,
        "kind": POOLS.kind,
        "metadata": {"generateName": "webhook-trial-"},
        "spec": {"ranges": list(ranges)},
    }
    answer = await client.request("POST", POOLS.path(None), params={"dryRun": "All"}, body=trial)
    return POOLS.decode(answer)


def _named(order: Document, part: str) -> Document | None:
    """Return an object of a request, with the namespace that only the request has at a creation."""
    document: Document | None = order.get(part)
    if document is None or not order.get("namespace"):
        return document
    return {**document, "metadata": {**document["metadata"], "namespace": order["namespace"]}}


def _patch(before: Document, after: Document) -> list[Document]:
    """Return the JSON patch for the fields that a mutator changes."""
    steps = []
    for path in (("metadata", "annotations"), ("metadata", "labels"), ("spec", "healthCheck")):
        old, new = before.get(path[0], {}).get(path[1]), after.get(path[0], {}).get(path[1])
        if old != new:
            steps.append({"op": "add", "path": "/" + "/".join(path), "value": new})
    return steps


def _serving_certificate() -> tuple[ssl.SSLContext, str]:
    """Return the TLS context of the server, and its authority in base64."""
    with tempfile.TemporaryDirectory(prefix="harvester-") as directory:
        authority = Authority("webhook", Path(directory))
        pair = authority.issue_server("serving", ("127.0.0.1",))
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(pair.certificate, pair.key)
        return context, base64.b64encode(authority.ca_file.read_bytes()).decode()


def _rule(plural: str, scope: str, operations: list[str]) -> Document:
    return {
        "apiGroups": ["loadbalancer.harvesterhci.io"],
        "apiVersions": ["v1beta1"],
        "resources": [plural],
        "scope": scope,
        "operations": operations,
    }
