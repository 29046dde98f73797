"""What a library costs before it does anything, and what it costs to read objects with it.

``python -m benchmarks.dependencies`` imports each library in a fresh interpreter and decodes a list of Services with
each that can. Those that are not installed say so: install the ones to be compared beside the others first.
"""

from __future__ import annotations

import json
import subprocess
import sys
from dataclasses import dataclass
from statistics import median
from typing import Final

from benchmarks.machine import describe_machine

ROUNDS: Final = 5
SERVICES: Final = 1000

# Resident memory is asked of the kernel: the peak in getrusage outlives exec and would be the parent's.
_RESIDENT: Final = """
import os
def resident():
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE") / 2**20
"""
_IMPORT: Final = """
import time
begin = time.perf_counter()
{statement}
seconds = time.perf_counter() - begin
print(seconds, resident())
"""
_DECODE: Final = """
import json, sys, time
body = sys.stdin.buffer.read()
{prepare}
before = resident()
begin = time.process_time()
items = {decode}
seconds = time.process_time() - begin
assert len(items) == {number}
print(seconds, resident() - before)
"""


@dataclass(frozen=True)
class Reader:
    """A way to turn the bytes of a list into objects."""

    name: str
    prepare: str
    decode: str


LIBRARIES: Final = (
    "aiohttp",
    "cryptography.x509",
    "msgspec",
    "prometheus_client",
    "structlog",
    "yaml",
    "harvester_ccm.app",
    "kopf",
    "kubernetes.client",
    "kubernetes_asyncio.client",
    "lightkube",
    "httpx",
    "pydantic",
)
READERS: Final = (
    Reader(
        "msgspec, the fields that are read",
        "import msgspec\nfrom harvester_ccm.model.core import Service\n"
        "class Page(msgspec.Struct):\n    items: list[Service]\n"
        "decoder = msgspec.json.Decoder(Page, strict=False)",
        "decoder.decode(body).items",
    ),
    Reader("json, dictionaries", "", "json.loads(body)['items']"),
    Reader(
        "kubernetes, generated models",
        "from kubernetes import client\n"
        "class Answer:\n    def __init__(self, data): self.data = data\n"
        "api = client.ApiClient()",
        "[api._ApiClient__deserialize(one, 'V1Service') for one in json.loads(body)['items']]",
    ),
    Reader(
        "lightkube, dataclasses",
        "from lightkube.resources.core_v1 import Service",
        "[Service.from_dict(one) for one in json.loads(body)['items']]",
    ),
)


def run(program: str, given: bytes = b"") -> tuple[float, float] | None:
    """Return the two numbers that a program prints, medians of all rounds; None when it cannot import something."""
    numbers = []
    for _ in range(ROUNDS):
        done = subprocess.run(
            [sys.executable, "-c", _RESIDENT + program], input=given, capture_output=True, check=False
        )
        if b"ModuleNotFoundError" in done.stderr:
            return None
        if done.returncode:
            raise RuntimeError(done.stderr.decode())
        first, second = map(float, done.stdout.split())
        numbers.append((first, second))
    return median(one[0] for one in numbers), median(one[1] for one in numbers)


def services(number: int) -> bytes:
    """Return a list of Services as an API server sends it, with the fields that it fills in."""
    metadata = {
        "namespace": "default",
        "uid": "5e0d7c1e-2a5b-4a3e-9a53-0b8b1f5f7a10",
        "resourceVersion": "12345",
        "creationTimestamp": "2026-01-01T00:00:00Z",
        "labels": {"app": "web", "tier": "front"},
        "annotations": {"cloudprovider.harvesterhci.io/ipam": "pool", "kube-vip.io/loadbalancerIPs": "192.0.2.7"},
        "finalizers": ["service.kubernetes.io/load-balancer-cleanup"],
        "managedFields": [{"manager": "kubectl", "operation": "Update", "fieldsV1": {"f:spec": {"f:type": {}}}}] * 3,
    }
    item = {
        "spec": {
            "type": "LoadBalancer",
            "clusterIP": "10.43.0.7",
            "ports": [{"name": "http", "port": 80, "targetPort": 8080, "nodePort": 30080, "protocol": "TCP"}] * 2,
            "selector": {"app": "web"},
            "sessionAffinity": "None",
            "externalTrafficPolicy": "Cluster",
        },
        "status": {"loadBalancer": {"ingress": [{"ip": "192.0.2.7", "ipMode": "VIP"}]}},
    }
    items = [{**item, "metadata": {**metadata, "name": f"web-{i}"}} for i in range(number)]
    return json.dumps({"kind": "ServiceList", "items": items}).encode()


def main() -> None:
    """Print both tables."""
    print(describe_machine("none"))
    bare = run(_IMPORT.format(statement=""))
    assert bare is not None
    print(f"\nimport, median of {ROUNDS}; a bare interpreter has {bare[1]:.0f} MiB\n")
    for name in LIBRARIES:
        cost = run(_IMPORT.format(statement=f"import {name}"))
        text = "not installed" if cost is None else f"{cost[0] * 1000:6.0f} ms  {cost[1] - bare[1]:6.1f} MiB"
        print(f"{name:28} {text}")
    print(f"\n{SERVICES} Services from JSON, median of {ROUNDS}\n")
    body = services(SERVICES)
    first: float | None = None
    for reader in READERS:
        cost = run(_DECODE.format(prepare=reader.prepare, decode=reader.decode, number=SERVICES), body)
        if cost is None:
            print(f"{reader.name:36} not installed")
            continue
        first = first or cost[0]
        print(f"{reader.name:36} {cost[0] * 1000:7.1f} ms CPU ({cost[0] / first:.1f} x)  {cost[1]:6.1f} MiB")


if __name__ == "__main__":
    main()
