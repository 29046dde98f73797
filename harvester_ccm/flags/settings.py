"""Creates ``Settings`` from flags and environment, and checks rules that concern several flags."""

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

from harvester_ccm import config
from harvester_ccm.errors import ConfigurationError
from harvester_ccm.flags.parser import FlagValues
from harvester_ccm.flags.table import FLAGS, Group
from harvester_ccm.kube.objects import DNS_LABEL, DNS_SUBDOMAIN, LABEL_VALUE
from harvester_ccm.names import DEFAULT_CLUSTER_NAME

MIN_RETRY_PERIODS: Final = 1.2
"""Retry periods that the renew deadline must be longer than, as client-go demands it."""

TO_HARVESTER: Final = ("cloud-config", "cloud-config-context")
"""Flags that lead to Harvester."""
_SAME_EVERYWHERE: Final = frozenset({Group.HARVESTER, Group.SERVICES, Group.NODES, Group.CONTROLLERS})


def flags_of_cluster(given: Mapping[str, str]) -> tuple[str, ...]:
    """Return the given flags that say what the controllers do, as on a command line.

    The others are about the process or the machine: how it reaches both clusters, and where it listens.
    """
    names = [flag.name for flag in FLAGS if flag.group in _SAME_EVERYWHERE and flag.name not in TO_HARVESTER]
    return tuple(f"--{name}={given[name]}" for name in names if name in given)


def build_settings(flags: FlagValues, environment: Mapping[str, str], *, offline: bool = False) -> config.Settings:
    """Return the settings of a run. Raises ConfigurationError with all errors, including those of the command line.

    ``offline`` is for commands that connect to no cluster and do not need --cloud-config.
    """
    problems = list(flags.problems)
    cluster_name = trimmed_cluster_name(flags["cluster-name"])
    former_names = dict.fromkeys(map(trimmed_cluster_name, flags["former-cluster-names"]))
    former_names.pop(cluster_name, None)
    settings = config.Settings(
        harvester=config.HarvesterSettings(
            cloud_config=flags["cloud-config"],
            cluster_name=cluster_name,
            former_names=tuple(former_names),
            context=flags["cloud-config-context"],
        ),
        guest=config.GuestSettings(
            kubeconfigs=_kubeconfigs(flags["kubeconfig"], environment),
            master=flags["master"],
            context=flags["context"],
        ),
        services=config.ServiceSettings(
            concurrent_syncs=flags["concurrent-service-syncs"],
            orphan_policy=flags["orphaned-load-balancer-policy"],
            orphan_period=flags["orphaned-load-balancer-resync-period"],
            class_only=flags["require-load-balancer-class"],
            allow_harvester_change=flags["allow-harvester-change"],
            shared_address_scope=flags["shared-address-scope"],
            announcer=flags["announcer"],
        ),
        nodes=config.NodeSettings(
            management_network=flags["management-network"],
            node_ip_cidrs=flags["node-ip-cidr"],
            exclude_ranges=flags["node-exclude-ip-ranges"],
            use_provided_node_ip=not flags["disable-annotation-alpha-provided-ip-addr"],
            concurrent_syncs=flags["concurrent-node-syncs"],
            monitor_period=flags["node-monitor-period"],
            status_period=flags["node-status-update-frequency"],
            deletion_confirmations=flags["node-deletion-confirmations"],
            vmi_controller=not flags["disable-vmi-controller"],
            hostname_lookup=not flags["disable-hostname-lookup"],
        ),
        leader_election=config.LeaderElectionSettings(
            enabled=flags["leader-elect"],
            lease_duration=flags["leader-elect-lease-duration"],
            renew_deadline=flags["leader-elect-renew-deadline"],
            retry_period=flags["leader-elect-retry-period"],
            name=flags["leader-elect-resource-name"],
            namespace=flags["leader-elect-resource-namespace"],
        ),
        server=config.ServerSettings(
            bind_address=flags["bind-address"],
            port=flags["secure-port"],
            certificate=flags["tls-cert-file"],
            key=flags["tls-private-key-file"],
            min_tls=flags["tls-min-version"],
            open_paths=frozenset(flags["authorization-always-allow-paths"]),
        ),
        logging=config.LoggingSettings(format=flags["logging-format"], verbosity=flags["v"]),
        controllers=_controllers(flags["controllers"]),
        flags=flags_of_cluster(flags.given),
        warnings=tuple(filter(None, [cluster_name_warning(cluster_name)])),
    )
    guest = settings.guest
    server = settings.server
    if settings.harvester.cloud_config is None and not offline:
        problems.append("--cloud-config is required: the kubeconfig file of the Harvester cluster")
    if "" in settings.harvester.former_names:
        problems.append("--former-cluster-names has an empty entry; expected previous names of this cluster")
    if guest.context and not guest.kubeconfigs:
        problems.append("--context is set without a kubeconfig; set --kubeconfig or KUBECONFIG, too")
    if (server.certificate is None) != (server.key is None):
        problems.append("--tls-cert-file and --tls-private-key-file need each other")
    if settings.leader_election.enabled:
        problems += _lease_problems(settings.leader_election, flags["leader-elect-resource-lock"])
    if problems:
        raise ConfigurationError(problems)
    return settings


def _kubeconfigs(flag: Path | None, environment: Mapping[str, str]) -> tuple[Path, ...]:
    """Return the file of --kubeconfig, or else the files that the environment names, each once."""
    if flag is not None:
        return (flag,)
    listed = environment.get("KUBECONFIG", "").split(os.pathsep)
    return tuple(Path(path) for path in dict.fromkeys(listed) if path)


def trimmed_cluster_name(value: str) -> str:
    """Return a cluster name without surrounding white space and quotes, as the Go provider uses it."""
    return value.strip(" \t\n\r\"'`")


def cluster_name_warning(name: str) -> str:
    """Return the problem that a cluster name causes, if any. No name is rejected: clusters use such names already."""
    if name in ("", DEFAULT_CLUSTER_NAME):
        return (
            f"--cluster-name is {name!r}, the name of every cluster without one: clusters in one Harvester namespace "
            "cannot be distinguished, IP pools for a named cluster do not match, and Harvester does not clean up after "
            "the cluster. Set a unique name (chart: global.cattle.clusterName) before you create the first Service"
        )
    if DNS_LABEL.fullmatch(name):
        return ""
    # The load balancer is called "<name>-<namespace>-<service>-<hash>", with "a" in front of a digit or "-". For VM
    # load balancers, Harvester creates a Service of that name, which cannot contain dots.
    is_subdomain = LABEL_VALUE.fullmatch(name) and DNS_SUBDOMAIN.fullmatch(f"a{name}-x")
    rejected = "VM load balancers" if is_subdomain else "every load balancer"
    return (
        f"--cluster-name is {name!r}: Harvester will reject {rejected}, because names and labels contain the cluster "
        "name. Use a DNS label: at most 63 of a-z, 0-9 and '-', with no '-' at the ends"
    )


def _controllers(words: Sequence[str]) -> frozenset[str]:
    """Return the enabled controllers: the first match of a name counts, ``*`` enables those without a match."""
    matches = {word.removeprefix("-"): not word.startswith("-") for word in reversed(words)}
    return frozenset(
        name for name in config.CONTROLLERS if name != config.ROUTE_CONTROLLER and matches.get(name, "*" in words)
    )


def _lease_problems(election: config.LeaderElectionSettings, lock: str) -> list[str]:
    lease = election.lease_duration
    renew = election.renew_deadline
    retry = election.retry_period
    checks = {
        f"--leader-elect-resource-lock is {lock!r}; expected leases": lock == "leases",
        "--leader-elect-resource-name is empty; expected the name of a Lease": election.name != "",
        "--leader-elect-resource-namespace is empty; expected a namespace": election.namespace != "",
        "--leader-elect-retry-period must be above zero": retry > 0,
        # The Lease contains whole seconds, and the API server rejects zero.
        "--leader-elect-lease-duration must be at least 1s": lease >= 1,
        f"--leader-elect-lease-duration ({lease:g}s) must be greater than "
        f"--leader-elect-renew-deadline ({renew:g}s)": lease > renew,
        f"--leader-elect-renew-deadline ({renew:g}s) must be greater than {MIN_RETRY_PERIODS} times "
        f"--leader-elect-retry-period ({retry:g}s)": renew > MIN_RETRY_PERIODS * retry,
    }
    return [problem for problem, holds in checks.items() if not holds]
