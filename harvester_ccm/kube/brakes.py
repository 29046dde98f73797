"""How often an object may be written, and what is done about somebody else who keeps undoing it.

Two programs that both insist on a field write as fast as they are answered, for ever. So a write that was undone
counts like one that failed: some are repeated at once, as a crossing of two writers heals that way, and then there is
a pause before each. A write of what has changed is never held up by that. Objects that are made and deleted have an
allowance besides, whoever is the cause.

A field is undone when it has to be written although it is not as the last write of ours has left it, or with the value
of that write once more. All here is pure: objects come in as documents, time as seconds of one clock.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from enum import Enum
from functools import lru_cache
from typing import Any, Final, Self

import msgspec
from msgspec import Struct, field

from harvester_ccm.kube.backoff import Allowance

UNDONE_AT_ONCE: Final = 3
"""So many undone writes of one group of fields are repeated at once."""
GONE_AT_ONCE: Final = 2
"""So many objects that were undone as a whole are created again at once: each takes several writes."""
UNDONE_PAUSE: Final = 120.0
"""Seconds until one more is."""
MADE_AT_ONCE: Final = 8
"""So many objects are created and deleted for one object of a user without a pause: four changes of its mind, three
where its first creation is among them."""
MADE_PAUSE: Final = 60.0
"""Seconds until one more is. Up to four writes come with each, and two clusters that both believe in an object, and
each make another one of it, go on for ever."""

Document = Mapping[str, Any]
Path = tuple[str, ...]
"""Where a field stands; an entry of a list that belongs to many stands there by its name."""
Fields = Mapping[Path, object]

_PRINTS: Final = 2**32
_PARTS: Final = ("metadata", "spec", "status", "data")
MAPS: Final[Mapping[Path, str]] = {("metadata", "labels"): "label", ("metadata", "annotations"): "annotation"}
"""Fields of many names, with the word for one of them."""
_FINALIZERS: Final[Path] = ("metadata", "finalizers")
LISTS: Final[Mapping[Path, str]] = {_FINALIZERS: "finalizer", ("spec", "taints"): "taint"}
"""The same of lists that belong to many."""
_CONDITIONS: Final[Path] = ("status", "conditions")
_SAID: Final = ("status", "reason", "message")
_KEPT_BY_SERVER: Final = frozenset({"uid", "resourceVersion", "generation", "managedFields"})


def fields_of(document: Document) -> Fields:
    """Return the fields of an object, or those that a merge patch sets, by their paths."""
    return {
        path: value
        for part in _PARTS
        for name, content in (document.get(part) or {}).items()
        if name not in _KEPT_BY_SERVER
        for path, value in _entries((part, name), content)
    }


def _entries(path: Path, content: Any) -> Iterator[tuple[Path, object]]:
    if path in MAPS:
        yield from (((*path, key), value) for key, value in (content or {}).items())
    elif path == _CONDITIONS:
        # When one was written says nothing, and what is written names only ours.
        yield from (((*path, one["type"]), [one.get(key) for key in _SAID]) for one in content or ())
    elif path in LISTS:
        yield from (((*path, one if isinstance(one, str) else one["key"]), "there") for one in content or ())
    else:
        yield path, content


def written_fields(body: Document, present: Fields, *, whole: bool = False) -> Fields:
    """Return what a merge patch, or a ``whole`` object, changes of one with these fields; None for what it removes."""
    wanted = fields_of(body)
    replaced = [path for path in LISTS if path[1] in (body.get(path[0]) or {})]
    removed = {path: None for path in present if path not in wanted and (whole or path[:-1] in replaced)}
    return {path: value for path, value in wanted.items() if present.get(path) != value} | removed


class WriteGroup(Enum):
    """What is braked by itself: whoever rewrites one of these keeps no other from being right."""

    STATUS = "status"
    METADATA = "metadata"
    """And all of ``spec`` that is patched."""
    OBJECT = "object"
    """An object that is replaced as a whole."""
    EXISTENCE = "existence"
    """An object that is gone without a deletion of ours was undone."""
    MAKING = "making"
    """Creations and deletions, undone or not."""


_ALLOWANCES: Final = {
    WriteGroup.EXISTENCE: (GONE_AT_ONCE, UNDONE_PAUSE),
    WriteGroup.MAKING: (MADE_AT_ONCE, MADE_PAUSE),
}


class Hold(Struct, frozen=True):
    """A write that has to wait."""

    group: WriteGroup
    seconds: float
    undone: Fields
    """What somebody else keeps writing, as it is now; nothing where the writes alone were too many."""

    @property
    def path(self) -> Path:
        """The first of those fields."""
        return next(iter(self.undone), ())


class Release(Struct, frozen=True):
    """What may be sent of a request now."""

    body: Document
    parts: tuple[tuple[WriteGroup, Fields], ...]
    """What it writes."""
    before: Fields
    holds: tuple[Hold, ...]
    """What keeps the rest back."""
    last: bool = False
    """Whether the object is let go with it."""

    @property
    def empty(self) -> bool:
        """Whether nothing may be sent."""
        return bool(self.holds) and not self.parts


class _Brake(Struct, gc=False):
    """What is remembered of the writes of one group.

    There are four for each Service: passes of the garbage collector would be twice as long with them.
    """

    allowance: Allowance
    counts_all: bool
    told: bool = False
    fields: dict[Path, int] = field(default_factory=dict)
    """Prints of the value that was written last and of the one that was there then, the former above the latter."""

    @classmethod
    def of(cls, group: WriteGroup) -> Self:
        """Return that of a group of which nothing was written."""
        allowance = Allowance(*_ALLOWANCES.get(group, (UNDONE_AT_ONCE, UNDONE_PAUSE)))
        return cls(allowance, counts_all=group is WriteGroup.MAKING)

    def undone(self, written: Fields, present: Fields) -> Fields:
        """Return those of the fields to be written that somebody has undone, as they are."""
        return {path: present.get(path) for path, value in written.items() if self._is_undone(path, value, present)}

    def _is_undone(self, path: Path, value: object, present: Fields) -> bool:
        wished, left = divmod(self.fields[path], _PRINTS) if path in self.fields else (None, None)
        return left is not None and (_print(present.get(path)) != left or _print(value) == wished)

    def wrote(self, written: Fields, after: Fields) -> None:
        """Take note of what was written and of how the object is since."""
        for path, value in written.items():
            self.fields[_shared(path) if path[1:] else path] = _print(value) * _PRINTS + _print(after.get(path))


def _print(value: object) -> int:
    """Return a number that stands for a value of JSON: thousands of objects are remembered, and most have no fight."""
    return hash(msgspec.json.encode(value, order="deterministic")) % _PRINTS


@lru_cache(maxsize=256)
def _shared(path: Path) -> Path:
    """Return one and the same path for all objects that have such a field."""
    return path


class Brakes(Struct, gc=False):
    """The brakes of one object of a user, and of what is made for it."""

    _brakes: dict[WriteGroup, _Brake] = field(default_factory=dict)
    """Those of the groups that were written."""

    def release(
        self, method: str, name: str, body: Document, present: Document, now: float, *, last: bool = False
    ) -> Release:
        """Return what may be sent of a request; ``present`` is the object that it is about, as it is.

        ``last``: whether it is a patch of those with which the object is let go. Every fight about it ends there.
        """
        before: Fields = {(name,): "there"} if method == "DELETE" else fields_of(present)
        parts = tuple((group, fields) for group, fields in _written(method, name, body, before))
        holds = tuple(hold for group, fields in parts if (hold := self._hold(group, fields, before, now)))
        if last or not holds:
            return Release(body, parts, before, (), last)
        held = {hold.group for hold in holds}
        if method != "PATCH":
            return Release(body, (), before, holds)
        free = {part: content for part, content in body.items() if _group_of(part) not in held}
        return Release(free, tuple(one for one in parts if one[0] not in held), before, holds)

    def sent(self, release: Release, answer: Document, now: float) -> None:
        """Take note that a release was sent and worked; ``answer`` is the object that came back, or empty."""
        after = fields_of(answer)
        for group, written in release.parts:
            brake = self._brakes.setdefault(group, _Brake.of(group))
            if not brake.allowance.whole_in(now):
                brake.told = False
            if brake.counts_all or brake.undone(written, release.before):
                brake.allowance.take(now)
            if group is WriteGroup.EXISTENCE:
                # Another object has the name now, or none.
                self._forget(WriteGroup.OBJECT)
            brake.wrote(written, after or written)
        if release.last and any(path[:-1] == _FINALIZERS for _, written in release.parts for path in written):
            # Should it come back, all is written anew, and nobody has undone anything.
            self._forget(WriteGroup.STATUS, WriteGroup.METADATA)

    def replacement_hold(self, now: float) -> Hold | None:
        """Return what keeps an object from being given up for another one, or None.

        That takes a deletion and a creation; with only the first of them nothing would serve until the pause is over.
        The same holds for one that needs no other now, as it shares an address: it may soon be asked to have its own.
        """
        brake = self._brakes.get(WriteGroup.MAKING)
        seconds = brake.allowance.turn_in(now, 2) if brake is not None else 0.0
        return Hold(WriteGroup.MAKING, seconds, {}) if seconds else None

    def quiet_in(self, now: float) -> float:
        """Return the seconds until no write was undone of late; 0 when none was.

        Until then what holds may stop holding and hold again, time after time.
        """
        return max((one.allowance.whole_in(now) for one in self._brakes.values() if not one.counts_all), default=0.0)

    def is_told(self, hold: Hold) -> bool:
        """Return whether the user knows, since there was quiet the last time."""
        return self._brakes[hold.group].told

    def set_told(self, hold: Hold) -> None:
        """Take note that the user knows."""
        self._brakes[hold.group].told = True

    def _forget(self, *groups: WriteGroup) -> None:
        """Have nothing of what was written count as undone."""
        for group in groups:
            if group in self._brakes:
                self._brakes[group].fields.clear()

    def _hold(self, group: WriteGroup, written: Fields, present: Fields, now: float) -> Hold | None:
        brake = self._brakes.get(group)
        if brake is None:
            return None
        undone, seconds = brake.undone(written, present), brake.allowance.turn_in(now)
        return Hold(group, seconds, undone) if seconds and (undone or brake.counts_all) else None


def _written(method: str, name: str, body: Document, before: Fields) -> Iterator[tuple[WriteGroup, Fields]]:
    match method:
        case "PATCH":
            for group in (WriteGroup.STATUS, WriteGroup.METADATA):
                content = {part: one for part, one in body.items() if _group_of(part) is group}
                written = written_fields(content, before)
                if written:
                    yield group, written
        case "PUT":
            yield WriteGroup.OBJECT, written_fields(body, before, whole=True)
        case _:
            yield WriteGroup.EXISTENCE, {(name,): "there" if method == "POST" else None}
            yield WriteGroup.MAKING, {}


def _group_of(part: str) -> WriteGroup:
    return WriteGroup.STATUS if part == "status" else WriteGroup.METADATA


def soonest(seconds: Iterable[float | None]) -> float | None:
    """Return the shortest of some times, None being none."""
    return min((one for one in seconds if one is not None), default=None)
