"""The cluster name: trimming, and what to tell the operator about a name that works badly.

No name is refused, because clusters with a bad one are in use; what cannot work is said at start.
"""

from __future__ import annotations

from typing import Final

from harvester_ccm.flags.values import go_quote
from harvester_ccm.model.meta import DNS_LABEL, DNS_SUBDOMAIN, LABEL_VALUE
from harvester_ccm.names import DEFAULT_CLUSTER_NAME

_TRIMMED: Final = " \t\n\r\"'`"


def read_cluster_name(value: str) -> tuple[str, tuple[str, ...]]:
    """Return the name to use everywhere, and sentences for the operator.

    >>> read_cluster_name("demo")
    ('demo', ())
    """
    name = value.strip(_TRIMMED)
    warnings = []
    if name != value:
        warnings.append(
            f"--cluster-name {go_quote(value)} was trimmed of white space and quotes; {go_quote(name)} is used"
        )
    fault = _fault(name)
    if fault:
        warnings.append(fault)
    return name, tuple(warnings)


def _fault(name: str) -> str | None:
    if name in ("", DEFAULT_CLUSTER_NAME):
        state = f"the default {go_quote(name)}" if name else "empty"
        return (
            f"--cluster-name is {state}, like that of every cluster without a name: clusters in one Harvester "
            "namespace cannot be told apart, IP pools for a named cluster do not match, and Harvester does not clean "
            "up after the cluster. Set a name of its own (chart: global.cattle.clusterName) before the first Service"
        )
    if DNS_LABEL.fullmatch(name):
        return None
    rule = "at most 63 lower-case letters, digits and '-', with a letter or digit at both ends"
    # The name stands in front of "-<namespace>-<service>-<hash>" after an "a" that makes its first character a letter.
    if not LABEL_VALUE.fullmatch(name) or not DNS_SUBDOMAIN.fullmatch(f"a{name}-x"):
        return (
            f"--cluster-name {go_quote(name)} is not a DNS label ({rule}): Harvester will refuse every load "
            "balancer, because its name and labels are built from it; set a name of that form"
        )
    return (
        f"--cluster-name {go_quote(name)} is not a DNS label ({rule}): Harvester will refuse load balancers with "
        "health checks, because it makes a Service of the same name, and that cannot have dots"
    )
