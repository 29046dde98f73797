"""What API servers show to the official Python client: plain documents, for those who judge the program.

The program has a client and a decoder of its own; what tests and the demo say of the objects that it leaves behind is
read by other code. The models of that client are not used: they take a second of processor time to load, and documents
show all that is there. The client is loaded when somebody first looks.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping
from http import HTTPStatus
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import msgspec

from devenv.watch import Document


class Unseen(AssertionError):
    """Raised when a server does not show what was looked at."""


class Eyes:
    """Looks at one API server. Use as an async context manager."""

    def __init__(self, kubeconfig: Path) -> None:
        """``kubeconfig``: whose eyes they are; with its context's server and credentials."""
        self._kubeconfig = kubeconfig
        self._client: Any = None
        self._opening = asyncio.Lock()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._client is not None:
            await self._client.close()

    async def one(self, path: str) -> Document | None:
        """Return the object at this path, None when there is none. Raises Unseen for any other answer."""
        return await self._get(path, {})

    async def all(self, path: str, **query: str) -> list[Document]:
        """Return the objects of a collection; ``query`` can name selectors. Raises Unseen."""
        found = await self._get(path, query)
        if found is None:
            raise Unseen(f"{path} is no collection of this server")
        items: list[Document] = found["items"]
        return items

    async def _get(self, path: str, query: Mapping[str, str]) -> Document | None:
        async with self._opening:
            if self._client is None:
                from kubernetes.aio import config  # noqa: PLC0415 - takes a fifth of a second

                self._client = await config.new_client_from_config(str(self._kubeconfig), persist_config=False)
        request = await self._client.param_serialize(
            "GET",
            path,
            query_params=list(query.items()),
            header_params={"Accept": "application/json"},
            auth_settings=["BearerToken"],
        )
        answer = await self._client.call_api(*request)
        body = await answer.read()
        if answer.status == HTTPStatus.NOT_FOUND:
            return None
        if answer.status != HTTPStatus.OK:
            raise Unseen(f"{path}: {answer.status} {body[:500].decode(errors='replace')}")
        document: Document = json.loads(body)
        return document


def addresses_in(service: Document) -> tuple[str, ...]:
    """Return the addresses that a Service shows its users."""
    ingress = service.get("status", {}).get("loadBalancer", {}).get("ingress") or ()
    return tuple(entry["ip"] for entry in ingress if entry.get("ip"))


def compare(view: msgspec.Struct, document: Document) -> None:
    """Raise AssertionError when a view of the program says something else than the document that it was made of.

    A field that the document has not must have its default.
    """
    for field in msgspec.structs.fields(view):
        value, shown = getattr(view, field.name), document.get(field.encode_name)
        if isinstance(value, bytes):
            continue  # what it was made of
        where = f"{type(view).__name__}.{field.name}"
        if shown is None:
            assert value == _default(field), f"{where} is {value!r}, and there is no {field.encode_name}"
        else:
            _compare(value, shown, where)


def _compare(value: object, shown: object, where: str) -> None:
    match value, shown:
        case msgspec.Struct(), dict():
            compare(value, shown)
        case ((list() | tuple()), list()):
            assert len(value) == len(shown), f"{where}: {value!r} instead of {shown!r}"
            for one, other in zip(value, shown, strict=True):
                _compare(one, other, where)
        case dict(), dict():
            assert value.keys() == shown.keys(), f"{where}: {value!r} instead of {shown!r}"
            for key, one in value.items():
                _compare(one, shown[key], f"{where}.{key}")
        case ((str() | int() | bool() | None), _):
            assert value == shown, f"{where}: {value!r} instead of {shown!r}"
        case _:
            raise AssertionError(f"{where} is a {type(value).__name__}, which nobody has said how to compare")


def _default(field: msgspec.structs.FieldInfo) -> object:
    if field.default_factory is not msgspec.NODEFAULT:
        return field.default_factory()
    return field.default
