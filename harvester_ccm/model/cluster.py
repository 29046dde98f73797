"""Who we are towards Harvester."""

from __future__ import annotations

from dataclasses import dataclass

from harvester_ccm.names import DEFAULT_CLUSTER_NAME


@dataclass(frozen=True)
class ClusterIdentity:
    """This cluster as Harvester sees it."""

    name: str
    """Value of --cluster-name, trimmed."""
    namespace: str
    """Namespace in Harvester that holds our VMs and load balancers: that of the cloud-config's context."""
    uid: str = ""
    """UID of the guest's kube-system namespace; empty when it may not be read, and where only VMs are looked at."""
    management_network: str = ""

    @property
    def named(self) -> bool:
        """Whether the name tells this cluster from others: it is not empty and not the default that nobody chose."""
        return self.name not in {"", DEFAULT_CLUSTER_NAME}
