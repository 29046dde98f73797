"""The record: what this controller did last with a Service, in one annotation of it."""

from enum import StrEnum, auto
from typing import Final

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from harvester_ccm import names
from harvester_ccm.model.core import Service

_RECORD_LENGTH: Final = 1000
"""Characters of the record that are read: this controller writes less."""


class Step(StrEnum):
    """What this controller did last. A new process continues there.

    The docstring of each tells what was written, and after ``Next:`` what follows.
    """

    HELD = auto()
    """kube-vip announces nothing and ignores the Service. Next: the first address, or another one."""
    DELEGATED = auto()
    """So does it, and Harvester announces the address in the status. Next: the first address for kube-vip."""
    WITHDRAWN = auto()
    """The annotation is empty, and kube-vip reads it. Next: it ignores the Service, if an address is to follow."""
    ADOPTED = auto()
    """Another provider, or another version of this one, had published the address. Next: as after SHOWN."""
    PUBLISHED = auto()
    """The address is published. Next: touches, and the receipt."""
    RESPELLED = auto()
    """So is it, and an unused annotation has another spelling. Next: one more event, then as after PUBLISHED."""
    ANNOUNCED = auto()
    """kube-vip announces the address. It may withdraw it for a moment, because it handles older events of the Service,
    or another field that it compares has changed. Next: touches."""
    SHOWN = auto()
    """kube-vip announces the address, or no receipt is expected. Next: nothing. If the status was emptied: touches."""


_HELD: Final = frozenset({Step.HELD, Step.DELEGATED})
"""Steps after which kube-vip ignores the Service."""
_PUBLISHED: Final = frozenset({Step.ADOPTED, Step.PUBLISHED, Step.RESPELLED, Step.ANNOUNCED, Step.SHOWN})
"""Steps after which kube-vip announces the address of the record, or is about to."""


class Record(Struct, frozen=True, omit_defaults=True):
    """What this controller did last with a Service, in its annotation ``announced-as``, as JSON."""

    uid: str
    """UID of the Service: on a copy, the record is none."""
    step: Step
    address: str = ""
    """The address that was published last, ``0.0.0.0`` for a lease; empty if none ever was."""
    fields: str = ""
    """``Seen.compared`` at the last step."""
    again: bool = True
    """Whether kube-vip may have announced the Service before."""
    needs_respelling: bool = False
    """Whether kube-vip probably stays silent without another spelling: after a withdrawal, and for another lease."""
    was_respelled: bool = False
    """Whether this address has been published with another spelling."""
    node: str = ""
    """The node of the receipt that the publication removed; once the sequence is complete, of that for this address."""
    answers: bool = False
    """Whether kube-vip has written a receipt that was removed before."""

    @property
    def is_held(self) -> bool:
        """Whether kube-vip ignores the Service, and announces nothing."""
        return self.step in _HELD

    @property
    def is_published(self) -> bool:
        """Whether kube-vip announces the address, or is about to."""
        return self.step in _PUBLISHED

    @property
    def is_shown(self) -> bool:
        """Whether its address is that of the Service now, whoever announces it."""
        return self.is_published or self.step is Step.DELEGATED


def read_record(service: Service) -> Record | None:
    """Return what this controller did last with a Service; None if there is no record, or that of another Service."""
    text = service.metadata.annotation(names.ANNOUNCED_AS)
    if not text or len(text) > _RECORD_LENGTH:
        return None
    try:
        record = msgspec.json.decode(text, type=Record)
    except (msgspec.DecodeError, UnicodeError):
        return None
    if record.uid != service.metadata.uid:
        return None
    # Whatever another client has written into it: kube-vip has announced a Service before it answers, and before an
    # address of it is withdrawn or published with another spelling.
    was_announced = record.answers or record.step in {Step.WITHDRAWN, Step.RESPELLED}
    return replace(record, again=record.again or was_announced)


def written_record(record: Record) -> str:
    """Return the value of the annotation."""
    return msgspec.json.encode(record).decode()
