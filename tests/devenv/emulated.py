"""Objects for the tests of the emulators."""

from devenv.harvester.records import LOAD_BALANCERS
from devenv.watch import Document


def balancer(name: str, namespace: str, *, cluster: str) -> Document:
    """Return a cluster load balancer with an address from a pool."""
    return {
        "apiVersion": LOAD_BALANCERS.api_version,
        "kind": LOAD_BALANCERS.kind,
        "metadata": {
            "name": name,
            "namespace": namespace,
            "annotations": {"loadbalancer.harvesterhci.io/cluster": cluster},
        },
        "spec": {"ipam": "pool", "workloadType": "cluster"},
    }
