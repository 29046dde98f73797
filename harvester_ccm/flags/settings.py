"""From flags and environment to ``Settings``: every rule is checked, every problem is reported at once."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from enum import StrEnum
from pathlib import Path
from typing import Final, TypeVar

from harvester_ccm.config import (
    CONTROLLER_ALIASES,
    CONTROLLERS,
    ROUTE_CONTROLLER,
    GuestSettings,
    HarvesterSettings,
    LeaderElectionSettings,
    LogFormat,
    LoggingSettings,
    NodeSettings,
    OrphanPolicy,
    ServerSettings,
    ServiceSettings,
    Settings,
)
from harvester_ccm.errors import ConfigurationError
from harvester_ccm.flags.cluster_name import read_cluster_name
from harvester_ccm.flags.definition import FlagValues
from harvester_ccm.flags.ranges import parse_exclude_ranges, parse_management_network, parse_node_ip_cidr
from harvester_ccm.flags.values import go_quote

RETRY_JITTER: Final = 1.2
"""A retry may be stretched by this factor; the renew deadline has to be longer."""
TLS_VERSIONS: Final[Mapping[str, str]] = {
    "": "1.2",
    "VersionTLS10": "1.2",
    "VersionTLS11": "1.2",
    "VersionTLS12": "1.2",
    "VersionTLS13": "1.3",
}
"""Lowest version served for each ``--tls-min-version``; nothing below 1.2 is ever offered."""

T = TypeVar("T")
E = TypeVar("E", bound=StrEnum)


def build_settings(flags: FlagValues, environment: Mapping[str, str], *, offline: bool = False) -> Settings:
    """Return the settings of a run. Raises ConfigurationError with one sentence for each problem.

    ``offline`` is for commands that ask no cluster: --cloud-config may be left out then.
    """
    check = _Check()
    name, warnings = read_cluster_name(flags.text("cluster-name"))
    ignored = flags.ignored
    if ROUTE_CONTROLLER in flags.words("controllers"):
        ignored += (f"--controllers names {ROUTE_CONTROLLER}, which never runs: Harvester has no cloud routes",)
    _check_provider(check, flags)
    settings = Settings(
        harvester=_harvester(check, flags, name, offline=offline),
        nodes=_nodes(check, flags),
        services=_services(check, flags),
        guest=_guest(check, flags, environment),
        leader_election=_leader_election(check, flags),
        server=_server(check, flags),
        logging=LoggingSettings(check.choice(flags, "logging-format", LogFormat), verbosity=flags.read("v", int)),
        controllers=_controllers(check, flags.words("controllers")),
        warnings=warnings,
        ignored=ignored,
    )
    if check.problems:
        raise ConfigurationError(check.problems)
    return settings


class _Check:
    """Collects problems, so that all of them are reported."""

    def __init__(self) -> None:
        self.problems: list[str] = []

    def require(self, condition: bool, problem: str) -> None:
        if not condition:
            self.problems.append(problem)

    def attempt(self, parse: Callable[[], T], fallback: T) -> T:
        try:
            return parse()
        except ConfigurationError as error:
            self.problems.extend(error.problems)
            return fallback

    def choice(self, flags: FlagValues, name: str, choices: type[E]) -> E:
        value = flags.text(name)
        try:
            return choices(value)
        except ValueError:
            self.problems.append(f"--{name} is {go_quote(value)}; expected one of: {', '.join(choices)}")
            return next(iter(choices))

    def at_least(self, flags: FlagValues, name: str, least: int) -> int:
        value = flags.read(name, int)
        self.require(value >= least, f"--{name} is {value}; expected a number of at least {least}")
        return value

    def positive(self, flags: FlagValues, name: str) -> float:
        value = flags.read(name, float)
        self.require(value > 0, f"--{name} is {_seconds(value)}; expected a duration above zero")
        return value


def _seconds(value: float) -> str:
    return f"{value:g}s"


def _check_provider(check: _Check, flags: FlagValues) -> None:
    provider = flags.text("cloud-provider")
    check.require(
        provider == "harvester",
        f"--cloud-provider is {go_quote(provider)}; this program serves only harvester: leave the flag out",
    )


def _harvester(check: _Check, flags: FlagValues, cluster_name: str, *, offline: bool) -> HarvesterSettings:
    cloud_config = flags.path("cloud-config")
    check.require(
        offline or cloud_config is not None,
        "--cloud-config is required: name the kubeconfig file of the Harvester cluster",
    )
    former = dict.fromkeys(read_cluster_name(name)[0] for name in flags.words("former-cluster-name"))
    check.require(
        "" not in former, "--former-cluster-name has an empty entry; expected names that this cluster had before"
    )
    former.pop(cluster_name, None)
    return HarvesterSettings(
        cloud_config=cloud_config,
        cluster_name=cluster_name,
        former_names=tuple(former),
        context=flags.text("cloud-config-context"),
    )


def _guest(check: _Check, flags: FlagValues, environment: Mapping[str, str]) -> GuestSettings:
    explicit, context = flags.path("kubeconfig"), flags.text("context")
    listed = environment.get("KUBECONFIG", "").split(os.pathsep)
    kubeconfigs = (explicit,) if explicit else tuple(dict.fromkeys(Path(name) for name in listed if name))
    check.require(
        not context or bool(kubeconfigs),
        f"--context is {go_quote(context)}, and there is no kubeconfig; set --kubeconfig or KUBECONFIG, too",
    )
    return GuestSettings(kubeconfigs=kubeconfigs, master=flags.text("master"), context=context)


def _services(check: _Check, flags: FlagValues) -> ServiceSettings:
    return ServiceSettings(
        concurrent_syncs=check.at_least(flags, "concurrent-service-syncs", 1),
        orphan_lbs=check.choice(flags, "orphan-lbs", OrphanPolicy),
        orphan_period=check.positive(flags, "orphan-lbs-period"),
        class_only=flags.read("load-balancer-class-only", bool),
        accept_new_harvester=flags.read("accept-new-harvester", bool),
    )


def _nodes(check: _Check, flags: FlagValues) -> NodeSettings:
    return NodeSettings(
        management_network=check.attempt(lambda: parse_management_network(flags.text("management-network")), None),
        node_ip_cidrs=check.attempt(lambda: parse_node_ip_cidr(flags.text("node-ip-cidr")), ()),
        exclude_ranges=check.attempt(lambda: parse_exclude_ranges(flags.words("node-exclude-ip-ranges")), ()),
        use_provided_node_ip=not flags.read("disable-annotation-alpha-provided-ip-addr", bool),
        concurrent_syncs=check.at_least(flags, "concurrent-node-syncs", 1),
        monitor_period=check.positive(flags, "node-monitor-period"),
        status_period=check.positive(flags, "node-status-update-frequency"),
        deletion_confirmations=check.at_least(flags, "node-deletion-confirmations", 2),
        vmi_controller=not flags.read("disable-vmi-controller", bool),
        hostname_lookup=not flags.read("disable-hostname-lookup", bool),
    )


def _leader_election(check: _Check, flags: FlagValues) -> LeaderElectionSettings:
    election = LeaderElectionSettings(
        enabled=flags.read("leader-elect", bool),
        lease_duration=flags.read("leader-elect-lease-duration", float),
        renew_deadline=flags.read("leader-elect-renew-deadline", float),
        retry_period=flags.read("leader-elect-retry-period", float),
        name=flags.text("leader-elect-resource-name"),
        namespace=flags.text("leader-elect-resource-namespace"),
    )
    if not election.enabled:
        return election
    check.require(flags.text("leader-elect-resource-lock") == "leases", 'resourceLock value must be "leases"')
    check.require(election.name != "", "--leader-elect-resource-name is empty; expected the name of a Lease")
    check.require(election.namespace != "", "--leader-elect-resource-namespace is empty; expected a namespace")
    check.positive(flags, "leader-elect-renew-deadline")
    check.positive(flags, "leader-elect-retry-period")
    lease, renew, retry = election.lease_duration, election.renew_deadline, election.retry_period
    check.require(
        # The Lease carries whole seconds and the API server refuses zero.
        lease >= 1,
        f"--leader-elect-lease-duration is {_seconds(lease)}; expected at least 1s",
    )
    check.require(
        lease > renew,
        f"--leader-elect-lease-duration ({_seconds(lease)}) must be greater than "
        f"--leader-elect-renew-deadline ({_seconds(renew)})",
    )
    check.require(
        renew > RETRY_JITTER * retry,
        f"--leader-elect-renew-deadline ({_seconds(renew)}) must be greater than {RETRY_JITTER} times "
        f"--leader-elect-retry-period ({_seconds(retry)})",
    )
    return election


def _server(check: _Check, flags: FlagValues) -> ServerSettings:
    certificate, key = flags.path("tls-cert-file"), flags.path("tls-private-key-file")
    check.require(
        (certificate is None) == (key is None),
        "--tls-cert-file and --tls-private-key-file go together; give both or neither",
    )
    port = flags.read("secure-port", int)
    check.require(0 <= port <= 65535, f"--secure-port is {port}; expected a port up to 65535, or 0 for no server")
    version = flags.text("tls-min-version")
    check.require(
        version in TLS_VERSIONS,
        f"--tls-min-version is {go_quote(version)}; expected one of: {', '.join(filter(None, TLS_VERSIONS))}",
    )
    return ServerSettings(
        bind_address=flags.text("bind-address"),
        port=port,
        certificate=certificate,
        key=key,
        min_tls=TLS_VERSIONS.get(version, "1.2"),
        open_paths=frozenset(flags.words("authorization-always-allow-paths")),
    )


def _controllers(check: _Check, words: Sequence[str]) -> frozenset[str]:
    """Return what is on: the first exact mention of a name decides, ``*`` stands for all that are not mentioned."""
    for word in words:
        name = word.removeprefix("-")
        if word == "*" or name in CONTROLLERS:
            continue
        known = ", ".join(CONTROLLERS)
        right = CONTROLLER_ALIASES.get(name)
        hint = f"write {go_quote(right)}" if right else f"known are: {known}"
        check.problems.append(
            f"invalid configuration for --controllers: {go_quote(name)} is not in the list of known controllers; {hint}"
        )
    return frozenset(name for name in CONTROLLERS if name != ROUTE_CONTROLLER and _is_on(name, words))


def _is_on(name: str, words: Sequence[str]) -> bool:
    mention = next((word for word in words if word in (name, f"-{name}")), None)
    return "*" in words if mention is None else mention == name
