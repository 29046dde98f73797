"""kube-vip in the guest cluster: what it reads on a Service, and what this controller writes for it.

No other module reads or writes kube-vip's annotations. ``read_state`` parses them once, an intent of a plan states what
kube-vip must do, and ``annotations_for`` turns state and intent into the annotations to write.

kube-vip announces any address that it finds on a Service of type LoadBalancer: in its own annotation, else in the
specification, else in the status. It handles its events one after the other and blocks on a Service without an address.
An empty annotation makes it withdraw the address and continue. It skips all events of a Service with the annotation
``ignore``, and does not withdraw the address of such a Service.

``Mode`` has the combinations of these fields that differ in their effect, and what kube-vip does in each.

After kube-vip has announced any address of a Service and withdrawn it, it announces the next one only after a change of
the EndpointSlices (``needs_resync``). It reads the device of a Service once, with the address.

With DHCP, kube-vip asks for the address in its annotation ``requestedIP``, notes there what it got, and then writes the
status. The annotation may also be that of an earlier lease or of a user, and the status that of another controller
(``leases_of``). After a withdrawal, it does so only for a request that changes something else with it
(``request_again``).

kube-vip compares more fields of a Service than the address. When one of them changes, it withdraws the address, and
since version 1.2 it announces it again only after another event of the Service and then a touch of the endpoints
(``is_withdrawn_by_change``).

Source: observed on kube-vip v0.9 to v1.2 in ARP mode.
"""

from collections.abc import Mapping
from enum import StrEnum, auto
from ipaddress import IPv6Address, ip_address
from typing import Final

from msgspec import Struct

from harvester_ccm import names
from harvester_ccm.model.core import Service, ServiceCondition, ipv4_text
from harvester_ccm.names import Reason

Annotations = Mapping[str, str | None]
"""Annotations to write; None removes a key."""

ADDRESS_ANNOTATION: Final = names.KUBE_VIP_ADDRESSES
DEVICE_ANNOTATION: Final = names.KUBE_VIP_INTERFACE
IGNORE_ANNOTATION: Final = names.KUBE_VIP_IGNORE
LEASE_ANNOTATION: Final = names.KUBE_VIP_LEASE
NOTE_ANNOTATION: Final = names.KUBE_VIP_HOST
"""Keys of kube-vip's annotations, for messages."""
RESYNC_AFTER_SECONDS: Final = 1.0
"""Time that kube-vip gets to read an address before a resync is triggered; an earlier one has no effect."""
_WITHDRAWN: Final = ""
"""Value of the address annotation that makes kube-vip announce nothing."""
_REASONS_OF_ADDRESSES: Final = frozenset(
    {
        Reason.ENSURED,
        Reason.NOT_ANNOUNCED,
        Reason.BACKENDS_UNHEALTHY,
        Reason.REPLACEMENT_PENDING,
        Reason.KUBE_VIP_RESYNC_PENDING,
    }
)
"""Reasons in the condition of a Service that has an address, or had one that was withdrawn."""
_SPELLINGS: Final = ("False", "FALSE")
"""Values of kube-vip's annotation for DDNS that mean the default, and that users hardly write."""
_LEASES_LENGTH: Final = 100
"""Characters of kube-vip's annotation that are read: it has at most one IPv4 and one IPv6 address."""

_TRUE: Final = frozenset({"1", "t", "T", "true", "True", "TRUE"})
"""Values of kube-vip's annotation for dynamic DNS that switch it on."""
_RECORD_LENGTH: Final = 100
"""Characters of the record that are read: this controller writes less."""


class Mode(StrEnum):
    """What kube-vip does with a Service, by the address that it can read and the annotation ``ignore``.

    The docstring of each has two parts, from which a page for contributors is generated: what the Service has. Effect:
    what kube-vip does.
    """

    NOTHING_TO_READ = auto()
    """No address, and no annotation for one. Effect: kube-vip blocks for up to 30 s at each event of the Service,
    unless ``ignore`` is set."""
    READS_ADDRESS = auto()
    """An address, without ``ignore``. Effect: kube-vip announces the address, or is about to."""
    WITHDRAWN = auto()
    """An empty annotation, without ``ignore``. Effect: kube-vip announces nothing and continues. If it has read an
    address just before, it can still announce that one and withdraw it again, so this alone is not enough for a new
    Service."""
    PAUSED = auto()
    """An empty annotation, with ``ignore``. Effect: kube-vip announces nothing."""
    IGNORES_ADDRESS = auto()
    """An address and ``ignore``, on a Service of this controller. Effect: kube-vip may announce the address. It had
    read the address before ``ignore`` was set, or another client wrote one afterwards."""
    IGNORED_BY_USER = auto()
    """An address and ``ignore``, before this controller has put its finalizer on the Service. Effect: kube-vip
    announces nothing."""


class KubeVip(Struct, frozen=True):
    """Everything that kube-vip reads and writes on a Service.

    The address and ``ignore`` are separate annotations that several clients write: every combination occurs.
    """

    mode: Mode
    annotated: str | None
    """The annotation with the address: ``0.0.0.0`` for one from DHCP, empty for none; None without the annotation."""
    status: tuple[str, ...]
    """Addresses in the status."""
    specified: str
    """``spec.loadBalancerIP``."""
    requested: str
    """The address that this controller keeps as the user's request."""
    only_specified: str
    """The address that kube-vip takes from the specification, as this controller has noted: the Service never had the
    annotation. Empty without this note."""
    requested_for: str
    """UID of the Service on which the user wrote it; empty if this controller has not noted that."""
    ignored: bool
    """Whether kube-vip ignores the Service. Harvester announces the address of a Service that has one then."""
    device: str | None
    """Device of the nodes on which the address is announced; None for kube-vip's default device."""
    node: str | None
    """The node that announces the address, as kube-vip noted; None if it never announced one."""
    noted_leases: tuple[str, ...]
    """Addresses that kube-vip has last leased by DHCP, or that a user wants it to request there."""
    has_dhcp_interface: bool
    """Whether kube-vip has noted the interface with which it has leased an address, or a user has set one."""
    ddns: str | None
    """The annotation for DDNS, which users have for other purposes; None without it."""
    is_note_outdated: bool
    """Whether these notes are older than the load balancer, and kube-vip has not shown a lease since."""
    is_noted: bool
    """Whether this controller has put its condition on the Service, and with it noted the requested address."""
    had_address: bool
    """Whether that condition is one of a Service that has an address, or had one that was withdrawn."""
    compared: str
    """The fields that kube-vip compares besides the address (``compared_fields``)."""
    announced_as: str
    """These fields in the record of this controller: as they were when it last published the address for kube-vip, or
    had it announced again. Empty without a record."""

    @property
    def is_request_noted(self) -> bool:
        """Whether this controller has noted the address that the user requested for a new Service."""
        return bool(self.only_specified or self.requested_for)

    @property
    def was_met(self) -> bool:
        """Whether this controller has met the Service before, so that kube-vip may have announced an address of it.

        A Service that was of another type has lost its condition, but not what was noted of its request.
        """
        return self.is_noted or self.is_request_noted

    @property
    def read_address(self) -> str:
        """The address that kube-vip reads; empty if it reads none."""
        return _read_address(self.annotated, self.specified, self.status)

    @property
    def ipv4_of_pair(self) -> str:
        """The IPv4 address of an annotation with one address of each family; empty if it has no such pair.

        kube-vip announces both. A load balancer of Harvester has no IPv6 address.
        """
        first, comma, second = (self.annotated or "").partition(",")
        if not comma:
            return ""
        if _is_ipv6(second):
            return ipv4_text(first)
        return ipv4_text(second) if _is_ipv6(first) else ""

    @property
    def status_of_kube_vip(self) -> tuple[str, ...]:
        """The addresses in the status that kube-vip can announce on the device of a node, whoever wrote them.

        With an address in the annotation or the specification, kube-vip announces nothing else, and a lease from DHCP
        has a device of its own. Without both, another client has just removed the annotation.
        """
        read = self.specified if self.annotated is None else self.annotated
        announced = {address.strip() for address in read.split(",")}
        return tuple(address for address in self.status if address in announced)

    @property
    def shows_announced_address(self) -> bool:
        """Whether the status has exactly the address of the annotation, or the lease that kube-vip got for it."""
        if self.annotated == names.DHCP_ADDRESS:
            return bool(self.status) and all(map(self.is_noted_lease, self.status))
        return self.status == (self.annotated,)

    def is_noted_lease(self, address: str) -> bool:
        """Return whether an address in the status is one that kube-vip has noted as a lease, or a user requests."""
        return _normal(address) in self.noted_leases

    @property
    def requests_lease(self) -> bool:
        """Whether kube-vip gets the address from DHCP, or is to."""
        return self.annotated == names.DHCP_ADDRESS or self.takes_from_specification(names.DHCP_ADDRESS)

    @property
    def is_for_lease(self) -> bool:
        """Whether the annotation makes kube-vip get the address from DHCP."""
        return self.annotated == names.DHCP_ADDRESS and not self.ignored

    @property
    def awaits_second_lease(self) -> bool:
        """Whether kube-vip shows no lease for a Service of which it has announced an address before.

        It notes a lease before its node, and may not reach the API server in between.
        """
        has_noted_lease = self.has_dhcp_interface and bool(self.noted_leases) and not self.is_note_outdated
        was_announced = self.node is not None or self.ddns in _SPELLINGS or has_noted_lease
        return self.is_for_lease and was_announced and not self.status

    @property
    def is_withdrawn(self) -> bool:
        """Whether the annotation makes kube-vip announce nothing."""
        return self.annotated == _WITHDRAWN

    @property
    def may_announce(self) -> bool:
        """Whether kube-vip may announce an address now."""
        return self.mode in {Mode.READS_ADDRESS, Mode.IGNORES_ADDRESS}

    @property
    def is_paused(self) -> bool:
        """Whether kube-vip ignores the Service for this controller: only this controller writes both annotations.

        The Service waits for its address, or Harvester announces it.
        """
        return self.mode is Mode.PAUSED

    def takes_from_specification(self, address: str) -> bool:
        """Return whether kube-vip takes this address from the specification, and never had it from the annotation.

        If another client removes the annotation, kube-vip withdraws the address although the specification has the
        same. Only ``only_specified`` shows that there was none: what is ``requested`` can be the user's.
        """
        is_specified = self.annotated is None and self.specified == address
        return is_specified and (self.only_specified == address or not self.is_noted)


def _is_ipv6(text: str) -> bool:
    try:
        IPv6Address(text.strip())
    except ValueError:
        return False
    return True


def _read_address(annotated: str | None, specified: str, status: tuple[str, ...]) -> str:
    if annotated is not None:
        return annotated
    if specified:
        return specified
    return status[0] if status else ""


def is_about_announced_address(condition: ServiceCondition | None) -> bool:
    """Return whether a condition says that an address is published, and that no touch of the endpoints is due."""
    if condition is None:
        return False
    if condition.status == "True":
        return condition.reason == Reason.ENSURED
    return condition.reason == Reason.NOT_ANNOUNCED


def _normal(address: str) -> str:
    """Return an address in the usual form; empty for another text."""
    try:
        return str(ip_address(address.strip()))
    except ValueError:
        return ""


def _noted_leases(text: str) -> tuple[str, ...]:
    """Return the addresses in kube-vip's annotation for DHCP; texts that are none are left out."""
    addresses = map(_normal, text[:_LEASES_LENGTH].split(","))
    return tuple(address for address in addresses if address)


def compared_fields(service: Service) -> str:
    """Return the fields whose change makes kube-vip withdraw the address, with the defaults of the API server.

    kube-vip compares the text of the annotation for dynamic DNS. Here, all values that leave it off are the same: this
    controller changes one into another (``request_again``), and what follows from that is planned there.
    """
    spec = service.spec
    fields = [
        spec.external_traffic_policy or "Cluster",
        ",".join(spec.ip_families) or "IPv4",
        spec.ip_family_policy or "SingleStack",
    ]
    if service.metadata.annotation(names.KUBE_VIP_DDNS) in _TRUE:
        fields.append("DDNS")
    return " ".join(fields)


def noted_node(service: Service) -> str | None:
    """Return the node that kube-vip has noted on a Service; None if it has noted none."""
    return service.metadata.annotation(names.KUBE_VIP_HOST)


def read_state(service: Service) -> KubeVip:
    """Return what kube-vip reads on a Service."""
    annotation = service.metadata.annotation
    annotated = annotation(names.KUBE_VIP_ADDRESSES)
    specified = service.spec.load_balancer_ip
    ignored = annotation(names.KUBE_VIP_IGNORE) == "true"
    has_address = bool(_read_address(annotated, specified, service.addresses))
    is_managed = service.metadata.has_finalizer(names.SERVICE_FINALIZER)
    condition = service.ready_condition
    return KubeVip(
        mode=_mode_of(annotated, ignored=ignored, has_address=has_address, is_managed=is_managed),
        annotated=annotated,
        status=service.addresses,
        specified=specified,
        requested=(annotation(names.REQUESTED_ADDRESS) or "").strip(),
        only_specified=annotation(names.SPECIFIED_ADDRESS) or "",
        requested_for=annotation(names.REQUESTED_FOR) or "",
        ignored=ignored,
        device=annotation(names.KUBE_VIP_INTERFACE),
        node=noted_node(service),
        noted_leases=_noted_leases(annotation(names.KUBE_VIP_LEASE) or ""),
        has_dhcp_interface=bool(annotation(names.KUBE_VIP_HARDWARE)),
        ddns=annotation(names.KUBE_VIP_DDNS),
        is_note_outdated=annotation(names.LEASE_NOTE_OUTDATED) == "true",
        is_noted=condition is not None,
        had_address=condition is not None and condition.reason in _REASONS_OF_ADDRESSES,
        compared=compared_fields(service),
        announced_as=(annotation(names.ANNOUNCED_AS) or "")[:_RECORD_LENGTH],
    )


def _mode_of(annotated: str | None, *, ignored: bool, has_address: bool, is_managed: bool) -> Mode:
    if has_address and not ignored:
        return Mode.READS_ADDRESS
    if has_address:
        return Mode.IGNORES_ADDRESS if is_managed else Mode.IGNORED_BY_USER
    if annotated != _WITHDRAWN:
        return Mode.NOTHING_TO_READ
    return Mode.PAUSED if ignored else Mode.WITHDRAWN


class Leave(Struct, frozen=True):
    """Change none of kube-vip's annotations."""


class Pause(Struct, frozen=True):
    """Keep kube-vip from a Service that waits for an address, and withdraw an address that it should not have.

    An address in the status stays announced: kube-vip announced it for this controller, or for another provider.
    """


class Announce(Struct, frozen=True):
    """Make kube-vip announce an address, and let it read a Service again that it ignored."""

    address: str
    """``0.0.0.0`` for one from DHCP."""
    device: str | None = None
    """Device of the nodes to annotate; empty removes the annotation, None leaves it.

    Without the annotation, kube-vip takes its default device.
    """
    is_first: bool = False
    """Whether no address of the load balancer has been in use yet."""


class Withdraw(Struct, frozen=True):
    """Withdraw the address that kube-vip may announce, even if it ignores the Service now.

    This is written first, so that the address is not allocated to another Service while it is still announced.
    """

    device: str | None = None
    """Device of the nodes to annotate; empty removes the annotation, None leaves it."""


class WithdrawForGood(Struct, frozen=True):
    """Withdraw the address before the Service is released, even one that nothing shows any more.

    Other clients can have removed it while kube-vip ignored the Service, or when it was of another type: kube-vip goes
    on announcing it then.
    """


class Delegate(Struct, frozen=True):
    """Leave the announcement to Harvester: kube-vip ignores the Service.

    An address that kube-vip may announce is withdrawn first, by a patch of its own. After that, kube-vip ignores the
    Service as soon as the status has an address (see ``GiveUp``).
    """

    device: str | None = None
    """Device of the nodes to annotate; empty removes the annotation, None leaves it."""


class Release(Struct, frozen=True):
    """Remove this controller's annotations from a Service that stays, and none of another controller."""

    was_announced: bool
    """Whether kube-vip announced the address for this controller."""
    device: str | None = None
    """Device of the nodes to annotate; empty removes the annotation, None leaves it."""


class GiveUp(Struct, frozen=True):
    """Withdraw the address that the Service loses with this patch, and let kube-vip read the Service again.

    Without an address and with ``ignore`` it would count as new, and its endpoints would not be touched after the next
    announcement (``needs_resync``).
    """

    device: str | None = None
    """Device of the nodes to annotate; empty removes the annotation, None leaves it."""


Intent = Leave | Pause | Announce | Withdraw | WithdrawForGood | Delegate | GiveUp | Release
"""What kube-vip must do with a Service."""
LEAVE: Final = Leave()
PAUSE: Final = Pause()
GIVE_UP: Final = GiveUp()


def annotations_for(state: KubeVip, intent: Intent) -> Annotations:
    """Return the annotations that make kube-vip do what a plan intends; empty if it does that already."""
    match intent:
        case Leave():
            return {}
        case Pause():
            return _pause(state)
        case Announce():
            return {**_announce(state, intent), **_on_device(intent.device)}
        case Withdraw(device=device):
            return {**_withdraw(state), **_on_device(device)}
        case WithdrawForGood():
            return _withdraw_for_good(state)
        case Delegate(device=device):
            return {**_delegate(state), **_on_device(device)}
        case GiveUp(device=device):
            return {**_withdraw(state), names.KUBE_VIP_IGNORE: None, **_on_device(device)}
        case Release(was_announced=was_announced, device=device):
            return {**_release(state, was_announced=was_announced), **_on_device(device)}


def _pause(state: KubeVip) -> Annotations:
    """Both annotations are necessary: with one alone, kube-vip may announce the next address and withdraw it again.

    ``ignore`` is not set while kube-vip may announce an address, because it would not withdraw it. kube-vip never
    withdraws the address of a Service whose type changes, and has its node on it when the type changes back.

    A Service that had an address, which other clients removed, must not look like a new one, or ``needs_resync`` is
    false when it gets the next one. So ``ignore`` is removed, or not set.

    A Service that shows the announced address keeps it, also one whose user has set ``ignore`` since.
    """
    is_of_another_client = state.mode is Mode.IGNORES_ADDRESS and not state.shows_announced_address
    if state.status and not is_of_another_client:
        return {}
    if state.mode is Mode.PAUSED and state.had_address:
        return {names.KUBE_VIP_IGNORE: None}
    if state.mode is not Mode.NOTHING_TO_READ:
        return _withdraw(state)
    return _first_annotations(state)


def _first_annotations(state: KubeVip) -> Annotations:
    """Return the annotations of a Service on which kube-vip finds neither an address nor the annotation for one.

    kube-vip must read the event of a Service that is not new: other clients have removed both, and kube-vip may have
    announced the address in between, even one that Harvester announces.
    """
    if state.node is not None or state.was_met:
        return {names.KUBE_VIP_ADDRESSES: _WITHDRAWN, names.KUBE_VIP_IGNORE: None}
    return {names.KUBE_VIP_ADDRESSES: _WITHDRAWN, names.KUBE_VIP_IGNORE: "true"}


def _withdraw(state: KubeVip) -> Annotations:
    if not state.read_address:
        return {}
    if state.mode is Mode.IGNORES_ADDRESS:
        return {names.KUBE_VIP_ADDRESSES: _WITHDRAWN, names.KUBE_VIP_IGNORE: None}
    return {names.KUBE_VIP_ADDRESSES: _WITHDRAWN}


def _withdraw_for_good(state: KubeVip) -> Annotations:
    if state.read_address:
        return _withdraw(state)
    if state.mode is Mode.WITHDRAWN or state.node is None:
        return {}
    return {names.KUBE_VIP_ADDRESSES: _WITHDRAWN, names.KUBE_VIP_IGNORE: None}


def _delegate(state: KubeVip) -> Annotations:
    if state.may_announce:
        return _withdraw(state)
    if state.mode is Mode.NOTHING_TO_READ:
        return _first_annotations(state)
    if state.mode is Mode.WITHDRAWN and not state.status:
        return {}
    return {names.KUBE_VIP_ADDRESSES: _WITHDRAWN, names.KUBE_VIP_IGNORE: "true"}


def _announce(state: KubeVip, intent: Announce) -> Annotations:
    """Return the annotations that make kube-vip announce an address that it does not announce yet.

    kube-vip takes the same address in the annotation for another one than in the specification or in the status: it
    withdraws that, and announces the next one only after another change of the Service and a touch of the endpoints. So
    the annotation is omitted for an address in the specification. One that kube-vip may have read in the status is
    withdrawn first: the patch with the address is the other change then.
    """
    address = intent.address
    if state.annotated == address:
        # Any other ``ignore`` is that of a user, who has set it since the announcement.
        return {names.KUBE_VIP_IGNORE: None} if _has_own_ignore(state, intent) else {}
    if state.takes_from_specification(address):
        return {names.KUBE_VIP_IGNORE: None}
    if state.annotated is None and needs_resync(state, address):
        return {names.KUBE_VIP_ADDRESSES: _WITHDRAWN, names.KUBE_VIP_IGNORE: None}
    announcement: Annotations = {names.KUBE_VIP_ADDRESSES: address, names.KUBE_VIP_IGNORE: None}
    is_second_lease = address == names.DHCP_ADDRESS and needs_resync(state, address)
    if is_second_lease and state.ddns is None:
        # Nothing else may show the next process that kube-vip has announced an address before.
        return {**announcement, names.KUBE_VIP_DDNS: _SPELLINGS[0]}
    return announcement


def request_again(state: KubeVip) -> Annotations:
    """Return the annotation that makes kube-vip request the lease again; empty if a user has set it.

    kube-vip 1.2 writes a lease with the Service object of the event in which it withdrew the address before. That had
    an empty annotation after a withdrawal, and kube-vip writes nothing. So it has to withdraw once more, in an event
    with ``0.0.0.0``: any change that it compares makes it do that. It compares the text of the annotation for DDNS, and
    all spellings of false mean the default.
    """
    if state.ddns == _SPELLINGS[0]:
        return {names.KUBE_VIP_DDNS: _SPELLINGS[1]}
    if state.ddns in {None, _SPELLINGS[1]}:
        return {names.KUBE_VIP_DDNS: _SPELLINGS[0]}
    return {}


def _release(state: KubeVip, *, was_announced: bool) -> Annotations:
    if not was_announced:
        return {}
    removed: Annotations = {names.KUBE_VIP_ADDRESSES: None, names.KUBE_VIP_IGNORE: None}
    if state.ddns in _SPELLINGS:
        return {**removed, names.KUBE_VIP_DDNS: None}
    return removed


def _on_device(device: str | None) -> Annotations:
    return {} if device is None else {names.KUBE_VIP_INTERFACE: device or None}


def intent_needs_resync(state: KubeVip, intent: Intent) -> bool:
    """Return whether kube-vip needs a touch of the endpoints for the next address after the patch of an intent.

    A patch that withdraws an address makes kube-vip stay silent about the next one.
    """
    if isinstance(intent, Announce):
        return needs_resync(state, intent.address)
    return empties_address(state, intent) and bool(state.read_address)


def empties_address(state: KubeVip, intent: Intent) -> bool:
    """Return whether the patch of an intent empties the annotation with the address."""
    return annotations_for(state, intent).get(names.KUBE_VIP_ADDRESSES) == _WITHDRAWN


def complete(differing: Annotations, wanted: Annotations) -> Annotations:
    """Return the annotations of a patch: those that differ, and ``ignore`` if kube-vip must not ignore a withdrawal.

    Another client may have set ``ignore`` since the Service was read. kube-vip would not withdraw the address then.
    """
    is_withdrawal = differing.get(names.KUBE_VIP_ADDRESSES) == _WITHDRAWN
    if is_withdrawal and wanted.get(names.KUBE_VIP_IGNORE) is None:
        return {**differing, names.KUBE_VIP_IGNORE: None}
    return differing


def makes_ignored(annotations: Mapping[str, str | None]) -> bool:
    """Return whether kube-vip ignores the Service after a patch with these annotations."""
    return annotations.get(names.KUBE_VIP_IGNORE) == "true"


def needs_resync(state: KubeVip, address: str) -> bool:
    """Return whether kube-vip announces the address only after the endpoints have changed.

    That is so after kube-vip has announced any address of the Service and withdrawn it. kube-vip notes its node some
    time after it has announced an address, and not at all if the address is withdrawn before. So the note is no proof
    that kube-vip never announced the Service. Every Service that has an address or a note counts, also one that
    Harvester announces now. A new Service does not count: it has no address, and kube-vip ignores it. One whose address
    another client has removed looks the same, but for what this controller has noted (``was_met``).
    """
    # The status is left out here: kube-vip takes an address from it only if another client has removed the annotation,
    # and kube-vip has withdrawn the address then.
    if state.annotated == address:
        return False
    if state.takes_from_specification(address):
        # The specification had another address before, which kube-vip has announced and withdrawn. Or the Service has
        # the note from before it was of another type: with the address, kube-vip writes the status as well.
        return address not in state.status and (bool(state.status) or state.node is not None)
    if state.node is not None or state.status:
        return True
    if state.ignored:
        return state.had_address
    if state.annotated is None and state.was_met:
        # Another client has removed the annotation, at which kube-vip withdraws the address.
        return True
    # The user may have requested another address, which kube-vip announces until Harvester has decided.
    return state.is_withdrawn or state.read_address not in {"", address}


def is_withdrawn_by_change(state: KubeVip, address: str, announced_as: str) -> bool:
    """Return whether kube-vip has withdrawn an address because another field of the Service has changed.

    ``announced_as`` are the fields with which it was published; empty if they are not known. While kube-vip ignores the
    Service, it sees no change: it withdraws the address when it reads the Service again.

    The patch that replaces the record is the event of the Service after which a touch of the endpoints has an effect.
    The address in the annotation must stay the same: after an empty one, kube-vip before 1.0 would stay silent.
    """
    if state.mode is not Mode.READS_ADDRESS or state.read_address != address:
        return False
    return announced_as not in {"", state.compared}


def record_for(state: KubeVip, intent: Intent, announced_as: str) -> Annotations:
    """Return the record of the fields with which kube-vip announces the address, as the patch of an intent leaves it.

    The patch that publishes the address or has it announced again has the record, and the one that withdraws the
    address removes it. For a Service that kube-vip announced before this controller saw it, the patch that reports the
    address has it. No Service is patched for the record alone: one that the Go provider served has none at first.
    """
    if empties_address(state, intent) or isinstance(intent, Release):
        return {names.ANNOUNCED_AS: None}
    if not isinstance(intent, Announce):
        return {}
    if _publishes(state, intent) or is_withdrawn_by_change(state, intent.address, announced_as):
        return {names.ANNOUNCED_AS: state.compared}
    return {}


def end_of_specification(state: KubeVip, annotations: Annotations) -> Annotations:
    """Return the removal of the note that kube-vip takes the address from the specification alone.

    It goes with the patch that writes kube-vip's annotation (``annotations``), even an empty one, or follows another
    client that wrote it.
    """
    annotated = annotations.get(names.KUBE_VIP_ADDRESSES, state.annotated)
    return {} if annotated is None else {names.SPECIFIED_ADDRESS: None}


def _publishes(state: KubeVip, intent: Announce) -> bool:
    """Return whether the patch that announces an address is the first of this controller that leaves it to kube-vip."""
    address = intent.address
    if state.read_address == address and state.is_request_noted and not state.announced_as:
        # kube-vip announced the address that the user requested before this controller saw the Service.
        return True
    if state.takes_from_specification(address):
        return not state.status
    return state.annotated != address or _has_own_ignore(state, intent)


def _has_own_ignore(state: KubeVip, intent: Announce) -> bool:
    """Return whether kube-vip ignores the Service because this controller paused it, although it can read the address.

    Another client wrote the address into the annotation before this controller has published it. kube-vip can have
    announced it all the same, and have written the status. A user sets ``ignore`` on a published address.
    """
    return intent.is_first and state.mode is Mode.IGNORES_ADDRESS and not state.announced_as


def leases_of(state: KubeVip, *, recorded: str) -> tuple[str, ...]:
    """Return the addresses that kube-vip has leased by DHCP for a Service, as far as the Service shows it.

    An address in the status is a lease if kube-vip has noted it. The status was cleared before the load balancer was
    created, so the address is not that of an earlier load balancer or of another controller.

    kube-vip writes a lease once, and other clients can remove it from the status, or its note. Then these show it:
    ``recorded``, the lease that this controller has recorded on the load balancer, and the note itself. Neither counts
    if it is older than the load balancer (``is_note_outdated``), nor does a record that is older than the lease. A
    recorded lease also counts while kube-vip has to request it again: it asks for the same address, and may not write
    it a second time.
    """
    shown = tuple(filter(state.is_noted_lease, state.status))
    if state.is_note_outdated:
        return shown if state.requests_lease else ()
    if shown and (state.requests_lease or recorded):
        return shown
    if recorded and not _is_record_outdated(state, recorded):
        return (recorded,)
    # kube-vip writes all three at once. A user who requests an address has not written all of them.
    has_noted = state.node is not None and state.has_dhcp_interface
    return state.noted_leases[:1] if has_noted and state.requests_lease else ()


def _is_record_outdated(state: KubeVip, recorded: str) -> bool:
    """Return whether kube-vip can have got another lease than the recorded one.

    That is so after a restore of the cluster to the time before the lease: kube-vip has noted another one, or nothing
    at all. The address in the status decides, if there is one.
    """
    if state.status:
        return False
    if state.noted_leases:
        return recorded not in state.noted_leases
    return state.node is None and not state.has_dhcp_interface


def mark_of_notes(state: KubeVip) -> Annotations:
    """Return the annotation of the patch that makes kube-vip request the first lease for a load balancer."""
    is_noted = bool(state.noted_leases) or state.has_dhcp_interface
    return {names.LEASE_NOTE_OUTDATED: "true" if is_noted else None}


NOTES_ARE_VALID: Final[Annotations] = {names.LEASE_NOTE_OUTDATED: None}
"""The same annotation of a Service that shows the lease, or needs none."""


def overwritten_address(state: KubeVip, address: str) -> str:
    """Return the address that another client wrote to the annotation of a served Service; empty if there is none.

    ``address`` is the one that this controller announces.
    """
    expected = {address, names.DHCP_ADDRESS, *state.status}
    if not state.annotated or not state.status or state.annotated in expected:
        return ""
    if state.ipv4_of_pair in {address, state.requested} - {""}:
        # The user has requested both addresses, before the Service had one.
        return ""
    return state.annotated
