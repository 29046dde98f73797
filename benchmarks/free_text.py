"""Functions that read text of tenants, kubelets and servers, and the time that each takes for a long one.

``READERS`` is the list for the table and for ``tests/unit/test_free_text.py``: a new function that reads such a text
belongs in it, with the words that it looks for. A long text consists of one of these words again and again, because
that is what makes a search slow which tries again at each of them.
"""

import time
from collections.abc import Callable, Iterator
from typing import Any, Final

import msgspec

from benchmarks.table import Row
from harvester_ccm import names
from harvester_ccm.commands.clusters import ClusterStore
from harvester_ccm.commands.runner import sanitize_document
from harvester_ccm.flags import build_settings, parse_command_line
from harvester_ccm.kube.errors import error_from_response, normalized_message
from harvester_ccm.model.core import NODES, SERVICES
from harvester_ccm.model.event import EventMessage
from harvester_ccm.model.harvester import INSTANCES, LOAD_BALANCERS, ClusterIdentity, LoadBalancer
from harvester_ccm.plan.node.addresses import plan_addresses
from harvester_ccm.plan.node.facts import addresses_of, read_facts
from harvester_ccm.plan.service.allocation.deletion import deletion_write
from harvester_ccm.plan.service.allocation.pending import pending_warning
from harvester_ccm.plan.service.allocation.state import is_in_progress, read_allocation
from harvester_ccm.plan.service.announcing.seen import read_seen
from harvester_ccm.plan.service.messages import backends_warning, failure_event, harvester_unavailable
from harvester_ccm.plan.service.ownership.owner import candidate_of
from harvester_ccm.plan.service.request import read_request
from harvester_ccm.plan.service.snapshot import observe
from harvester_ccm.redaction import cut, redact, redact_text, sanitize

LONG: Final = 256 * 1024
"""Characters of a long text: the API limits all annotations of an object to this many."""

_SECRETS: Final = (
    *("token:", "a/token:", "token-abcde:", "kubeconfig-", "kubeconfig-a:", "password", "password:", "authorization  "),
    *("Authorization: basic ", "bearer ", "Bearer ", "eyJ", "LS0tLS1CRUdJTi", "://", "://a@", '"token": "'),
    *("-----BEGIN ", "-----BEGIN PRIVATE KEY-----", "\n", "\u202e", "client-key-data: "),
)
"""Words of credentials, and characters that are escaped."""
_OF_HARVESTER: Final = (
    *("no matched IPPool with requirement &{Network:", " Project:", " Namespace:", " Cluster:", "}", "\n"),
    *("fail to get ip from pool ", ", error: ", "fail to reserve ", "record ", " into ", "fail to get allocator "),
    *("could not get the allocator ", "no IP addresses available", "duplicate allocation", "not in range set"),
    *("no running backend servers", "not probed as healthy", "waiting for external IP"),
)
"""Words of Harvester's messages."""
_OF_SERVERS: Final = (
    *('User "', '" cannot ', ' in the namespace "', '" is forbidden: ', '" is invalid: metadata.uid: ', '"'),
    *("admission webhook", "denied the request", "failed calling webhook", "exceeded quota", "a1 "),
)
"""Words of API servers."""
_VALUES: Final = ("default/", "/", ",", "10.0.0.1,", "0", "80", "\u0663", " ", '["', "[", '"10.0.0.5",')
"""Parts of the values of annotations."""

_NODE_SETTINGS: Final = build_settings(parse_command_line(["--cloud-config=/x"]), {}, offline=True).nodes
_CLUSTER: Final = ClusterIdentity(name="demo", namespace="vms", uid="uid")
_EMPTY: Final = ClusterStore(_CLUSTER, {})


class _NoVirtualIPs:
    listed = True

    def owner(self, _address: str) -> str:
        return ""


class Reader(msgspec.Struct, frozen=True):
    """A function that reads free text."""

    name: str
    read: Callable[[str], object]
    words: tuple[str, ...]
    """What it, or what it calls, looks for."""

    def longest(self) -> Iterator[str]:
        """Yield a long text for each word."""
        for word in self.words:
            yield word * (LONG // len(word))


def _load_balancer(message: str = "", **annotations: str) -> LoadBalancer:
    """Return a load balancer with a condition and annotations, decoded as from a server."""
    labels = {names.LB_CLUSTER: "demo", names.LB_SERVICE_NAMESPACE: "shop", names.LB_SERVICE_NAME: "web"}
    document = {
        "metadata": {"name": "x", "namespace": "vms", "labels": labels, "annotations": annotations},
        "status": {"conditions": [{"type": "Ready", "status": "False", "message": message}]},
    }
    return LOAD_BALANCERS.decode(msgspec.json.encode(document))


def _service(annotations: dict[str, str], **spec: object) -> Any:
    metadata = {"name": "web", "namespace": "shop", "uid": "1", "annotations": annotations}
    ports = [{"port": 80, "protocol": "TCP", "nodePort": 30080}]
    document = {"metadata": metadata, "spec": {"type": "LoadBalancer", "ports": ports, **spec}}
    return SERVICES.decode(msgspec.json.encode(document))


def _request_of(text: str) -> object:
    keys = (*names.SERVICE_ANNOTATIONS, names.KUBE_VIP_ADDRESSES)
    # Together they have the length that the API permits.
    annotations = dict.fromkeys(keys, text[: len(text) // len(keys)])
    service = _service(annotations, loadBalancerIP=text)
    return read_request(service, read_seen(service))


def _addresses_of(text: str) -> object:
    metadata = {
        "name": "w1",
        "annotations": {names.PROVIDED_NODE_IP: text, names.ADDITIONAL_INTERNAL_IPS: text},
    }
    node = NODES.decode(msgspec.json.encode({"metadata": metadata}))
    interface = {"name": "nic", "ipAddress": text, "ipAddresses": [text]}
    instance = {
        "metadata": {"name": "w1", "namespace": "vms"},
        "spec": {"networks": [{"name": "nic", "multus": {"networkName": "lan"}}]},
        "status": {"interfaces": [interface]},
    }
    vmi = INSTANCES.decode(msgspec.json.encode(instance))
    list(addresses_of(node, vmi))
    facts = read_facts(node, vmi, settings=_NODE_SETTINGS, virtual_ips=_NoVirtualIPs(), missing_for={}, holders={})
    return plan_addresses(facts)


def _error_of(text: str) -> Any:
    body = msgspec.json.encode({"kind": "Status", "reason": "", "message": text})
    return error_from_response(status=403, body=body, request="GET /x")


def _event_of(text: str) -> str:
    event = EventMessage("Warning", names.Reason.SYNC_FAILED, text, text, place=text, answer=text)
    return event.message


READERS: Final = (
    Reader("cut", cut, _SECRETS),
    Reader("sanitize", sanitize, _SECRETS),
    Reader("redact_text", lambda text: redact_text(cut(text)), _SECRETS),
    Reader("redact (field of a log line)", lambda text: redact({"error": text, "list": [text]}), _SECRETS),
    Reader("sanitize_document (commands)", lambda text: sanitize_document({"a": [text]}), _SECRETS),
    Reader("EventMessage.message", _event_of, _SECRETS),
    Reader("error_from_response", _error_of, _OF_SERVERS),
    Reader("normalized_message", lambda text: normalized_message(str(_error_of(text))), _OF_SERVERS),
    Reader("Forbidden.namespace", lambda text: harvester_unavailable(_error_of(text)), _OF_SERVERS),
    Reader(
        "failure_event",
        lambda text: failure_event(_error_of(text), 20, observe(_EMPTY, _service({}), _CLUSTER)),
        _OF_SERVERS,
    ),
    Reader("pending_warning", lambda text: pending_warning(read_allocation(_load_balancer(text))), _OF_HARVESTER),
    Reader("deletion_write", lambda text: deletion_write(_load_balancer(text)), _OF_HARVESTER),
    Reader("is_in_progress", lambda text: is_in_progress(_load_balancer(text)), _OF_HARVESTER),
    Reader("backends_warning", lambda text: backends_warning(_load_balancer(text)), _OF_HARVESTER),
    Reader(
        "candidate_of",
        lambda text: candidate_of(_load_balancer(**{names.LB_OWNER: text}), _service({}), _CLUSTER),
        (*_SECRETS, *_VALUES),
    ),
    Reader("read_request", _request_of, (*_VALUES, *_SECRETS)),
    Reader("plan_addresses", _addresses_of, _VALUES),
)


def measure() -> Iterator[Row]:
    """Yield a row for each function: the longest time for a text of 256 KiB of one of its words."""
    for reader in READERS:
        slowest, slowest_word = 0.0, ""
        for word, text in zip(reader.words, reader.longest(), strict=True):
            started = time.perf_counter()
            reader.read(text)
            seconds = time.perf_counter() - started
            if seconds > slowest:
                slowest, slowest_word = seconds, word
        yield Row(f"256 KiB of {slowest_word!r} through {reader.name}", slowest * 1000, "ms")
