"""Who we are towards Harvester, and whom we serve."""

from __future__ import annotations

from typing import Self

from msgspec import Struct

from harvester_ccm.config import Settings
from harvester_ccm.names import DEFAULT_CLUSTER_NAME


class ClusterIdentity(Struct, frozen=True):
    """This cluster as Harvester sees it."""

    name: str
    """Value of --cluster-name, trimmed."""
    namespace: str
    """Namespace in Harvester that holds our VMs and load balancers: that of the cloud-config's context."""
    uid: str = ""
    """UID of the guest's kube-system namespace; empty when it may not be read, and where only VMs are looked at."""
    management_network: str = ""
    former_names: tuple[str, ...] = ()
    """Names that this cluster had before: what was made under them is ours too."""
    class_only: bool = False
    """Whether only Services that ask for our load balancer class are served."""
    asks_guests: bool = True
    """Whether guest agents are asked for host names, so that a VM may have another name than its Node."""
    publishes_devices: bool = True
    """Whether this program writes the ConfigMap that maps networks to the devices of the nodes."""
    new_harvester: bool = False
    """Whether load balancers are created in a Harvester that has no load balancer and no VM of this cluster."""

    @classmethod
    def of(cls, settings: Settings, namespace: str, uid: str = "") -> Self:
        """Return the identity that the flags give, for what is known from the clusters besides."""
        return cls(
            name=settings.harvester.cluster_name,
            namespace=namespace,
            uid=uid,
            former_names=settings.harvester.former_names,
            management_network=settings.nodes.management_network or "",
            asks_guests=settings.nodes.asks_guests,
            class_only=settings.services.class_only,
            publishes_devices=settings.nodes.vmi_controller,
            new_harvester=settings.services.accept_new_harvester,
        )

    @property
    def names(self) -> tuple[str, ...]:
        """The name, and those before it."""
        return (self.name, *self.former_names)

    @property
    def named(self) -> bool:
        """Whether the name tells this cluster from others: it is not empty and not the default that nobody chose."""
        return self.name not in {"", DEFAULT_CLUSTER_NAME}
