"""How far a server's clock is from ours, from the ``Date`` header of an answer, which has whole seconds."""

from __future__ import annotations

import time
from email.utils import parsedate_to_datetime
from typing import Final

import aiohttp

from harvester_ccm.commands import clusters
from harvester_ccm.commands.check import Check, ok, skipped, warning
from harvester_ccm.commands.clusters import ask
from harvester_ccm.errors import Unreachable
from harvester_ccm.kube.connection import describe_connection_error
from harvester_ccm.kube.credentials import Credentials

TOLERATED_SECONDS: Final = 30.0


async def clock_check(credentials: Credentials, where: str) -> Check:
    """Return the check of the clock; no credential is sent for it."""
    asked = await ask(clock_skew(credentials))
    if asked.answer is None:
        return skipped(where, "clock", str(asked.error))
    skew = asked.answer
    if abs(skew) <= TOLERATED_SECONDS:
        return ok(where, "clock", f"differs by {abs(skew):.0f} s")
    direction = "ahead of" if skew > 0 else "behind"
    return warning(
        where,
        "clock",
        f"the server's clock is {abs(skew):.0f} s {direction} this machine's",
        "Set up time synchronisation. Leader election does not depend on it (only local durations count), but tokens "
        "and certificates may count as expired or as not valid yet",
    )


async def clock_skew(credentials: Credentials) -> float:
    """Return the server's time minus ours in seconds. Raises Unreachable."""
    tls = credentials.tls
    try:
        async with aiohttp.ClientSession(
            connector=aiohttp.TCPConnector(ssl=tls if tls is not None else False), trust_env=False
        ) as session:
            before = time.time()
            async with session.get(
                f"{credentials.server}/version",
                server_hostname=credentials.tls_server_name,
                proxy=credentials.proxy,
                allow_redirects=False,
            ) as response:
                middle = (before + time.time()) / 2
                date = response.headers.get("Date", "")
    except (aiohttp.ClientError, ConnectionError, TimeoutError) as error:
        raise Unreachable(describe_connection_error(error, limit=clusters.SECONDS)) from error
    try:
        told = parsedate_to_datetime(date).timestamp()
    except (TypeError, ValueError):
        raise Unreachable("the server does not say its time") from None
    # Half a second, because the header leaves out the fraction.
    return told + 0.5 - middle
