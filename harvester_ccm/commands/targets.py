"""What a command is to look at, named as kubectl's users name it: ``svc web``, ``service/web``, ``shop/web``. Pure."""

from __future__ import annotations

import difflib
from collections.abc import Mapping, Sequence
from typing import Final

from msgspec import Struct

from harvester_ccm.commands.call import refuse

SERVICE: Final = "service"
NODE: Final = "node"

_KINDS: Final[Mapping[str, str]] = {
    **dict.fromkeys(("service", "services", "svc"), SERVICE),
    **dict.fromkeys(("node", "nodes", "no"), NODE),
}
"""The names of kubectl for a kind."""
_NAMED: Final = {SERVICE: "explain svc/NAME -n NAMESPACE", NODE: "explain node/NAME"}
"""How an object of a kind is named."""


class Target(Struct, frozen=True):
    """An object that was named on the command line."""

    kind: str
    name: str
    namespace: str = ""
    """Empty: none is named, and for a Node."""

    def key_in(self, namespace: str) -> str:
        """Return ``namespace/name`` of a Service, in this namespace where none is named."""
        return f"{self.namespace or namespace}/{self.name}"


def kind_of(word: str) -> str | None:
    """Return the kind that the first word after ``explain`` names; None when it names none.

    >>> kind_of("svc"), kind_of("node/w1"), kind_of("web")
    ('service', 'node', None)
    """
    return _KINDS.get(word.partition("/")[0].lower())


def read_target(words: Sequence[str], *, namespace: str) -> Target:
    """Return what the words name; ``namespace`` is that of ``-n``.

    Raises ConfigurationError where they name nothing, or two things at once.

    >>> read_target(["svc/web"], namespace="shop")
    Target(kind='service', name='web', namespace='shop')
    >>> read_target(["service", "shop/web"], namespace="")
    Target(kind='service', name='web', namespace='shop')
    """
    if not words:
        raise refuse(f"no Service or Node is named: {_NAMED[SERVICE]}, or {_NAMED[NODE]}")
    first, rest = words[0], list(words[1:])
    _, slash, tail = first.partition("/")
    kind = kind_of(first)
    if kind is None:
        raise refuse(_unknown(first, tail if slash else ""))
    names = [tail, *rest] if slash else rest
    if len(names) > 1:
        guess = f"; did you mean {kind} {names[1]} -n {names[0]}?" if kind == SERVICE and len(names) == 2 else ""
        raise refuse(f"one {kind.capitalize()} is explained at a time, got {' '.join(names)}{guess}")
    if not names:
        raise refuse(f"no {kind.capitalize()} is named: {_NAMED[kind]}")
    return _named(kind, names[0], namespace)


def _named(kind: str, name: str, namespace: str) -> Target:
    if kind == NODE:
        if not name or "/" in name:
            raise refuse(f"the Node is {name!r}; expected its name")
        return Target(kind, name)
    home, slash, short = name.rpartition("/")
    if not short or "/" in home or (slash and not home):
        raise refuse(f"the Service is {name!r}; expected its name, or namespace/name")
    if home and namespace and home != namespace:
        raise refuse(f"the Service is {name!r} and --namespace is {namespace!r}: these are two namespaces")
    return Target(kind, short, home or namespace)


def _unknown(word: str, name: str) -> str:
    close = difflib.get_close_matches(word.partition("/")[0].lower(), (SERVICE, "svc", NODE), n=1)
    meant = close[0] if close else f"svc {word}" if name else ""
    guess = f"; did you mean {meant}?" if meant else "."
    return f"{word!r} is nothing to explain{guess} Expected one of: {SERVICE}, {NODE}"
