"""States of a Service and of kube-vip before the controller starts, as the steps that lead to them.

Address A is the one that Harvester allocates to the Service, B another one of the user, C one of another client. All
steps are taken without a controller. The steps of a state are taken one by one, or together if ``at_once`` says so.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, Final

from devenv.announcement import ADDRESS_ANNOTATION, DHCP_ADDRESS, IGNORE_ANNOTATION
from devenv.kubevipscenarios import (
    READY,
    A,
    B,
    C,
    annotate,
    create,
    create_slice,
    delete_slice,
    fill_slice,
    publish,
    report,
    respecify,
    touch_slice,
    with_address,
)
from devenv.player import Step, at_once

HELD: Final = {ADDRESS_ANNOTATION: "", IGNORE_ANNOTATION: "true"}
NOWHERE: Final = "no-such-host.invalid"
NAME: Final = "web"
"""Name of the Service in all steps, for ``PriorState.steps_for``."""


@dataclass(frozen=True)
class PriorState:
    """A state and the steps that lead to it."""

    name: str
    steps: tuple[Step, ...]
    is_leased: bool = False
    """Whether the user requests a lease of a DHCP server, not an address of a pool."""
    is_ignored: bool = False
    """Whether ``kube-vip.io/ignore`` is on the Service without an empty annotation: it is the user's, and stays."""
    is_hidden: bool = False
    """Whether nothing but kube-vip's memory differs from a healthy Service of another provider."""

    def steps_for(self, name: str, addresses: dict[str, str]) -> tuple[Step, ...]:
        """Return the steps with another name of the Service and other addresses."""
        return tuple(_renamed(step, {NAME: name, **addresses}) for step in self.steps)


def _renamed(step: Step, texts: dict[str, str]) -> Step:
    name, separator, number = step.name.partition("-")
    return replace(step, name=f"{texts[name]}{separator}{number}", body=_replaced(step.body, texts))


def _replaced(value: Any, texts: dict[str, str]) -> Any:
    """Return a part of a body with other texts; of ``web-1``, only the name of the Service is one."""
    if isinstance(value, Mapping):
        return {key: _replaced(entry, texts) for key, entry in value.items()}
    if isinstance(value, list):
        return [_replaced(entry, texts) for entry in value]
    if isinstance(value, str):
        name, separator, number = value.partition("-")
        return f"{texts.get(name, name)}{separator}{number}"
    return value


EVENT: Final = annotate(NAME, other="1")
TOUCH: Final = touch_slice(NAME)
EMPTY: Final = annotate(NAME, address="")
IGNORE: Final = annotate(NAME, ignore="true")
CLEARED: Final = report(NAME)
SLICE: Final = create_slice(NAME, READY)
LOCAL: Final = respecify(NAME, externalTrafficPolicy="Local")
CLUSTER: Final = respecify(NAME, externalTrafficPolicy="Cluster")
ANNOUNCED: Final = (SLICE, with_address(NAME, A))
ANNOUNCED_B: Final = (SLICE, with_address(NAME, B))
TO_A: Final = at_once(annotate(NAME, address=A), report(NAME, A))
TO_B: Final = at_once(annotate(NAME, address=B), report(NAME, B))
SILENT: Final = (*ANNOUNCED, EMPTY, CLEARED, *TO_A)
"""kube-vip has seen an empty annotation, and since 1.1.2 does not announce the address that follows."""

_ANNOUNCED: Final = (
    PriorState("announced", ANNOUNCED),
    PriorState("announced after it was held back", (SLICE, create(NAME, HELD), *publish(NAME, A))),
    PriorState("another address is announced", ANNOUNCED_B),
    PriorState("node is removed", (*ANNOUNCED, annotate(NAME, node=None))),
    PriorState("policy is changed", (*ANNOUNCED, LOCAL), is_hidden=True),
    PriorState("policy is changed, event", (*ANNOUNCED, LOCAL, EVENT), is_hidden=True),
    PriorState("policy is changed and changed back", (*ANNOUNCED, LOCAL, CLUSTER), is_hidden=True),
    PriorState("false is spelled differently", (*ANNOUNCED, annotate(NAME, ddns="0")), is_hidden=True),
    PriorState("slice is emptied and filled", (*ANNOUNCED, fill_slice(NAME), fill_slice(NAME, READY))),
    PriorState("slice is deleted and created", (*ANNOUNCED, delete_slice(NAME), SLICE), is_hidden=True),
    PriorState(
        "slice is deleted, event, slice is created", (*ANNOUNCED, delete_slice(NAME), EVENT, SLICE), is_hidden=True
    ),
    PriorState(
        "other type and back", (*ANNOUNCED, respecify(NAME, type="ClusterIP"), respecify(NAME, type="LoadBalancer"))
    ),
)
_WITHDRAWN: Final = (
    PriorState("withdrawn", (*ANNOUNCED, EMPTY)),
    PriorState("withdrawn, status cleared", (*ANNOUNCED, EMPTY, CLEARED)),
    PriorState(
        "withdrawn, status cleared, events",
        (*ANNOUNCED, EMPTY, CLEARED, EVENT, annotate(NAME, other="2"), TOUCH),
    ),
    PriorState("withdrawn and ignored", (*ANNOUNCED, EMPTY, IGNORE, CLEARED, EVENT)),
    PriorState("silent", SILENT, is_hidden=True),
    PriorState("silent, event", (*SILENT, EVENT), is_hidden=True),
    PriorState("silent, touch", (*SILENT, TOUCH), is_hidden=True),
    PriorState("silent, false is spelled differently", (*SILENT, annotate(NAME, ddns="False")), is_hidden=True),
    PriorState("silent with another address", (*ANNOUNCED, EMPTY, CLEARED, *TO_B)),
    PriorState("text instead of an address", (SLICE, with_address(NAME, NOWHERE))),
    PriorState("text follows the address", (*ANNOUNCED, annotate(NAME, address=NOWHERE))),
    PriorState("text follows the address, event", (*ANNOUNCED, annotate(NAME, address=NOWHERE), EVENT)),
)
_CHANGED: Final = (
    PriorState("another address follows", (*ANNOUNCED, *TO_B)),
    PriorState("another address follows, event", (*ANNOUNCED, *TO_B, EVENT)),
    PriorState("another address follows, event, touch", (*ANNOUNCED, *TO_B, EVENT, TOUCH)),
    PriorState("address follows another one", (*ANNOUNCED_B, *TO_A), is_hidden=True),
    PriorState("foreign address follows", (*ANNOUNCED, annotate(NAME, address=C))),
    PriorState("foreign address is announced", (*ANNOUNCED, annotate(NAME, address=C), EVENT, TOUCH)),
    PriorState(
        "another address follows while the slice is empty",
        (*ANNOUNCED, fill_slice(NAME), *TO_B, fill_slice(NAME, READY)),
    ),
)
_NEW: Final = (
    PriorState("new, held back", (SLICE, create(NAME, HELD))),
    PriorState("new, ignored", (SLICE, create(NAME, {IGNORE_ANNOTATION: "true"})), is_ignored=True),
    PriorState("new, empty", (SLICE, with_address(NAME, ""))),
    PriorState("new, empty, event", (SLICE, with_address(NAME, ""), EVENT)),
    PriorState("specification", (SLICE, create(NAME, loadBalancerIP=A))),
    PriorState("specification of another address", (SLICE, create(NAME, loadBalancerIP=B))),
    PriorState("specification, then empty", (SLICE, create(NAME, loadBalancerIP=A), EMPTY)),
    PriorState(
        "specification, then held back with one patch",
        (SLICE, create(NAME, loadBalancerIP=A), annotate(NAME, address="", ignore="true")),
    ),
)
_IGNORED: Final = (
    PriorState("ignored while it is announced", (*ANNOUNCED, IGNORE), is_ignored=True),
    PriorState("ignored while it is announced, empty", (*ANNOUNCED, IGNORE, EMPTY)),
    PriorState("ignored while another address is announced, empty", (*ANNOUNCED_B, IGNORE, EMPTY)),
)
_LEASE: Final = (SLICE, with_address(NAME, DHCP_ADDRESS))
_REQUESTED_AGAIN: Final = (*_LEASE, EMPTY, CLEARED, annotate(NAME, address=DHCP_ADDRESS))
_LEASED: Final = {
    "lease": _LEASE,
    "lease is withdrawn": (*_LEASE, EMPTY, CLEARED),
    "lease is withdrawn and requested again": _REQUESTED_AGAIN,
    "lease is withdrawn and requested again, touch": (*_REQUESTED_AGAIN, TOUCH),
    "address of a pool": ANNOUNCED,
    "address of a pool is withdrawn": (*ANNOUNCED, EMPTY, CLEARED),
    "lease is withdrawn and ignored": (*_LEASE, EMPTY, IGNORE, CLEARED),
    "new, empty": (SLICE, with_address(NAME, "")),
    "new, held back": (SLICE, create(NAME, HELD)),
    "foreign address follows the lease": (*_LEASE, annotate(NAME, address=C)),
}
PRIOR_STATES: Final = (
    *_ANNOUNCED,
    *_WITHDRAWN,
    *_CHANGED,
    *_NEW,
    *_IGNORED,
    *(PriorState(f"DHCP: {name}", steps, is_leased=True) for name, steps in _LEASED.items()),
    PriorState("DHCP: policy is changed", (*_LEASE, LOCAL), is_leased=True, is_hidden=True),
)
