"""Tables as ``kubectl get`` prints them: the API server itself says which columns there are and what stands in them."""

from __future__ import annotations

import asyncio
import ssl
from pathlib import Path

from devenv.restclient import RestClient

TABLE = "application/json;as=Table;v=v1;g=meta.k8s.io,application/json"
GAP = 3
"""Blanks between two columns."""


class TableReader(RestClient):
    """Reads collections as tables, as one identity."""

    def __init__(self, url: str, context: ssl.SSLContext, *, token: str | None = None) -> None:
        """See ``RestClient``."""
        super().__init__(url, context, token=token)
        self._headers["Accept"] = TABLE

    async def lines(self, path: str) -> list[str]:
        """Return the lines of the table of a collection, heading first. Raises RefusedError, OSError."""
        table = await asyncio.to_thread(self.request, "GET", path)
        shown = [index for index, column in enumerate(table["columnDefinitions"]) if not column.get("priority")]
        rows = [[table["columnDefinitions"][index]["name"].upper() for index in shown]]
        rows += [[_text(row["cells"][index]) for index in shown] for row in table.get("rows") or ()]
        return aligned(rows)


def reader(kubeconfig: Path) -> TableReader:
    """Return a reader with the identity of a kubeconfig."""
    return TableReader.from_kubeconfig(kubeconfig)


def aligned(rows: list[list[str]]) -> list[str]:
    """Return each row as a line, its cells under each other.

    >>> aligned([["NAME", "AGE"], ["first", "5s"]])
    ['NAME    AGE', 'first   5s']
    """
    widths = [max(len(cell) for cell in column) + GAP for column in zip(*rows, strict=True)]
    return ["".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in rows]


def _text(cell: object) -> str:
    return "" if cell is None else str(cell)
