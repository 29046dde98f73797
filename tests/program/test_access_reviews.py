"""How many reviews the callers of ``/metrics`` cost the API server, on simulated time."""

import asyncio
from collections.abc import Mapping
from typing import Any, Final

import pytest
from aiohttp import web

from harvester_ccm.telemetry.server import AccessReviewer
from tests.support.clock import jumping_time
from tests.support.memory_server import Call, Document, MemoryClient, MemoryServer

SCRAPER: Final = "token-of-prometheus"
UNPRIVILEGED: Final = "token-of-another-account"
IDENTITY: Final = {"uid": "uid-of-user", "groups": ["monitoring"], "extra": {"scopes": ["metrics"]}}
"""What a token also says about its user."""


class ReviewingServer(MemoryServer):
    """Accepts the tokens of two accounts, of which one can read metrics. A review takes 50 ms."""

    now = most = 0
    """Reviews that take place at a time: now, and at most until now."""

    async def serve(
        self, verb: str, path: str, body: Any, params: Mapping[str, str] | None = None, *, by: str = ""
    ) -> Document:
        self.calls.append(Call(verb, path, asyncio.get_running_loop().time(), body, by))
        self.now += 1
        self.most = max(self.most, self.now)
        await asyncio.sleep(0.05)
        self.now -= 1
        spec = body["spec"]
        if path.endswith("/tokenreviews"):
            is_known = spec["token"] in {SCRAPER, UNPRIVILEGED}
            user = {"username": spec["token"].removesuffix("-rotated"), **IDENTITY}
            return {"status": {"authenticated": is_known, "user": user}}
        return {"status": {"allowed": spec["user"] == SCRAPER}}

    def reviewed_tokens(self) -> list[str]:
        return [call.body["spec"]["token"] for call in self.calls if call.path.endswith("/tokenreviews")]


async def status_for(reviewer: AccessReviewer, token: str, path: str = "/metrics", address: str = "10.0.0.1") -> int:
    """Return the HTTP status that a caller gets."""
    try:
        await reviewer.check(f"Bearer {token}", path, address)
    except web.HTTPException as refusal:
        return refusal.status
    return 200


@pytest.mark.security("The decision about a token is cached for ten seconds")
@jumping_time
async def test_decisions_are_used_for_ten_seconds_and_not_longer() -> None:
    server = ReviewingServer()
    reviewer = AccessReviewer(MemoryClient(server, cluster="guest"))
    for token, status in ((SCRAPER, 200), (UNPRIVILEGED, 403), ("made-up", 401)):
        server.calls.clear()
        for _ in range(5):
            assert await status_for(reviewer, token) == status
        assert server.reviewed_tokens() == [token]
        await asyncio.sleep(9)
        assert await status_for(reviewer, token) == status
        assert server.reviewed_tokens() == [token]
        await asyncio.sleep(1)
        assert await status_for(reviewer, token) == status
        assert server.reviewed_tokens() == [token, token]


@jumping_time
async def test_permission_is_asked_for_the_whole_identity_of_the_user() -> None:
    """A role can be bound to a group."""
    server = ReviewingServer()
    await status_for(AccessReviewer(MemoryClient(server, cluster="guest")), SCRAPER)
    (asked,) = [call.body["spec"] for call in server.calls if call.path.endswith("/subjectaccessreviews")]
    assert {key: asked[key] for key in IDENTITY} == IDENTITY


@jumping_time
async def test_decision_holds_for_its_path_only() -> None:
    server = ReviewingServer()
    reviewer = AccessReviewer(MemoryClient(server, cluster="guest"))
    await status_for(reviewer, SCRAPER)
    await status_for(reviewer, SCRAPER, "/readyz")
    assert server.reviewed_tokens() == [SCRAPER, SCRAPER]


@pytest.mark.security("made-up tokens from one address cause at most 20 reviews, and then two a second")
@jumping_time
@pytest.mark.security("A caller beyond that gets status 429")
async def test_made_up_tokens_are_reviewed_at_a_limited_rate_and_do_not_delay_a_scraper() -> None:
    server = ReviewingServer()
    reviewer = AccessReviewer(MemoryClient(server, cluster="guest"))
    statuses = set()
    seconds = 60
    for second in range(seconds):
        made_up = [status_for(reviewer, f"made-up-{second}-{number}") for number in range(134)]
        statuses.update(await asyncio.gather(*made_up))
        assert await status_for(reviewer, SCRAPER, address="10.0.0.2") == 200
        await asyncio.sleep(1)
    assert (statuses, server.most) == ({401, 429}, 4)
    assert len(reviewer._decisions) < 100
    with pytest.raises(web.HTTPTooManyRequests) as refused:
        await asyncio.gather(*(reviewer.check(f"Bearer {n}", "/metrics", "10.0.0.3") for n in range(21)))
    assert refused.value.headers["Retry-After"] == "1"
    reviewed = [token for token in server.reviewed_tokens() if token != SCRAPER]
    assert len(reviewed) <= 20 + 2 * seconds + 10
    # Another account is served once the others have stopped.
    await asyncio.sleep(10)
    assert await status_for(reviewer, UNPRIVILEGED) == 403
