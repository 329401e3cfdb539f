"""What responses say, through Python: the same vectors as in Rust, and what users add."""

from __future__ import annotations

import asyncio
import json
from datetime import datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

import httpx
import pytest
from paceline import (
    AsyncRateLimiter,
    RateLimiter,
    RateLimitExceeded,
    RetryConfig,
    detect,
    spending,
)
from paceline.httpx import AsyncRateLimitTransport, RateLimitTransport

if TYPE_CHECKING:
    from collections.abc import Iterator

    from paceline.testing import VirtualClock

VECTORS = Path(__file__).parents[2] / "crates/paceline-core/tests/headers/cases.json"
CASES: list[dict[str, Any]] = json.loads(VECTORS.read_text(encoding="utf-8"))


def agrees(seen: float | timedelta | None, said: float | str | None) -> bool:
    """Whether a span is what a vector says; ``clamped`` is any that is finite and not negative."""
    seconds = seen.total_seconds() if isinstance(seen, timedelta) else seen
    if said == "clamped":
        return seconds is not None and 0 <= seconds < 400 * 86_400
    if seconds is None or said is None:
        return seconds is None and said is None
    return abs(seconds - float(said)) < 0.002


def test_rule_8_responses_are_read_as_in_rust() -> None:
    plain = [case for case in CASES if "also_ok" not in case["expect"]]
    assert len(plain) > 150
    for case in plain:
        expect, now = case["expect"], datetime.fromisoformat(case["now"].replace("Z", "+00:00"))
        seen = detect(case["status"], case["headers"], case["url"], now)
        assert seen.rejected == expect["rejected"], case["id"]
        assert agrees(seen.retry_after, expect["retry_after_s"]), case["id"]
        left = list(seen.dimensions)
        for said in expect["dimensions"]:
            # What only the provider's documentation says of windows, the headers need not.
            documented = said.get("window_from") == "docs"
            found = [
                it
                for it in left
                if (it.limit, it.remaining) == (said["limit"], said["remaining"])
                and agrees(it.reset_in, said["reset_in_s"])
                and (agrees(it.window, said["window_s"]) or (documented and it.window is None))
            ]
            assert found, (case["id"], said, seen)
            left.remove(found[0])
        assert not left, (case["id"], left)


def test_rule_8_headers_of_ones_own_come_before_the_standard_ones(clock: VirtualClock) -> None:
    headers = {"X-Mine": "7", "X-My-Limit": "9", "X-RateLimit-Remaining": "3"}
    names = {"limit": "x-my-limit", "remaining": "x-mine"}
    seen = detect(200, headers, headers_map=names)
    assert (seen.dimensions[0].limit, seen.dimensions[0].remaining) == (9, 7)
    limiter = RateLimiter(headers_map=names, clock=clock)
    permit = limiter.acquire("api.example.com")
    permit.observe(200, headers.items())
    status = limiter.get_status("api.example.com")
    assert status is not None
    assert (status.limit, status.remaining) == (9, 7)
    with pytest.raises(ValueError, match=r"unknown key .*known: limit, remaining, reset"):
        RateLimiter(headers_map={"remainder": "x-mine"})


def test_rule_8_an_api_of_ones_own_is_known_by_its_hosts(clock: VirtualClock) -> None:
    limiter = RateLimiter(clock=clock)
    limiter.register_provider(
        "*.example.com",
        requests={"limit": "X-Allowed", "remaining": "X-Left", "window": "1m"},
        tokens={"remaining": "X-Tokens-Left", "limit": "X-Tokens", "counts": "bucket"},
    )
    said = {"x-allowed": "60", "x-left": "10", "x-tokens": "1000", "x-tokens-left": "500"}
    url = "https://api.example.com/v1"
    limiter.acquire(url).observe(200, said.items(), url)
    status = limiter.get_status(url)
    assert status is not None
    assert (status.limit, status.remaining, status.window) == (60, 10, timedelta(minutes=1))
    assert status.dimensions["tokens"].remaining == 500
    elsewhere = "https://elsewhere.test/v1"
    limiter.acquire(elsewhere).observe(200, said.items(), elsewhere)
    assert limiter.get_status(elsewhere) is None
    for bad in [{"requests": {"limits": "X"}}, {"requests": {"window": "soon"}}, {}]:
        with pytest.raises(ValueError, match=r"known:|bad window|needs hosts"):
            limiter.register_provider("a.example", **bad)


SPENT = {"error": {"code": "insufficient_quota", "message": "You exceeded your current quota"}}


def test_rule_25_a_spent_quota_is_not_retried(clock: VirtualClock) -> None:
    sent = []

    def answer(request: httpx.Request) -> httpx.Response:
        sent.append(request)
        return httpx.Response(429, json=SPENT)

    limiter = RateLimiter(clock=clock)
    transport = RateLimitTransport(limiter, httpx.MockTransport(answer))
    with httpx.Client(transport=transport) as client:
        response = client.post("https://api.openai.com/v1/responses", json={})
        assert response.json() == SPENT
        assert len(sent) == 1
        with client.stream("POST", "https://api.openai.com/v1/responses") as streamed:
            assert json.loads(streamed.read()) == SPENT
        assert len(sent) == 2
        # Of a host that is not known to say it so, the body is not looked at.
        client.post("https://api.example.com/v1/responses", json={})
        assert len(sent) == 2 + 4


def test_rule_25_nor_in_an_event_loop(clock: VirtualClock) -> None:
    sent = []

    def answer(request: httpx.Request) -> httpx.Response:
        sent.append(request)
        return httpx.Response(429, json=SPENT)

    async def ask() -> httpx.Response:
        limiter = AsyncRateLimiter(clock=clock)
        transport = AsyncRateLimitTransport(limiter, httpx.MockTransport(answer))
        async with httpx.AsyncClient(transport=transport) as client:
            return await client.post("https://api.openai.com/v1/responses", json={})

    assert asyncio.run(ask()).json() == SPENT
    assert len(sent) == 1


def test_an_outage_is_multiplied_by_no_more_than_the_budget(clock: VirtualClock) -> None:
    sent = []

    def answer(request: httpx.Request) -> httpx.Response:
        sent.append(request)
        return httpx.Response(503)

    retry = RetryConfig(budget=0.2)
    transport = RateLimitTransport(
        RateLimiter(clock=clock, retry=retry), httpx.MockTransport(answer)
    )
    with httpx.Client(transport=transport) as client:
        for _ in range(400):
            assert client.get("https://api.example.com").status_code == 503
    assert 480 <= len(sent) <= 520, "a fifth of all, and the first ten"
    with pytest.raises(ValueError, match="budget"):
        RetryConfig(budget=1.5)


GITHUB = "https://api.github.com"


def github(resource: str, limit: int, remaining: int) -> list[tuple[str, str]]:
    return [
        ("x-ratelimit-limit", str(limit)),
        ("x-ratelimit-remaining", str(remaining)),
        ("x-ratelimit-resource", resource),
        ("x-ratelimit-reset", "1900"),
    ]


def test_profiles_are_known_before_the_first_answer_and_replaced_by_it(
    clock: VirtualClock,
) -> None:
    limiter = RateLimiter(clock=clock)
    status = limiter.get_status(GITHUB)
    assert status is not None
    assert (status.limit, status.window, status.confidence) == (60, timedelta(hours=1), "registry")
    search = limiter.get_status(f"{GITHUB}/search/code")
    assert search is not None
    assert (search.limit, search.window) == (10, timedelta(minutes=1))
    url = f"{GITHUB}/repos/a/b"
    limiter.acquire(url).observe(200, github("core", 5000, 4990), url)
    status = limiter.get_status(url)
    assert status is not None
    assert (status.limit, status.remaining, status.confidence) == (5000, 4990, "confirmed")
    with_credentials = RateLimiter(authenticated=True, clock=clock).get_status(GITHUB)
    assert with_credentials is not None
    assert with_credentials.limit == 5000
    assert RateLimiter(use_provider_profiles=False).get_status(GITHUB) is None


def test_rule_15_the_servers_own_buckets_are_kept_apart(clock: VirtualClock) -> None:
    limiter = RateLimiter(clock=clock)
    for path, bucket, limit, remaining in [
        ("/search/issues", "search", 30, 7),
        ("/search/code", "code_search", 10, 9),
        ("/repos/a/b", "core", 5000, 4999),
    ]:
        url = GITHUB + path
        limiter.acquire(url).observe(200, github(bucket, limit, remaining), url)
    levels = {}
    for path in ("/search/users", "/search/code", "/users/octocat"):
        status = limiter.get_status(GITHUB + path)
        assert status is not None
        levels[path] = (status.endpoint.removeprefix(GITHUB), status.limit, status.remaining)
    assert levels == {
        "/search/users": ("/#search", 30, 7),
        "/search/code": ("/#code_search", 10, 9),
        "/users/octocat": ("", 5000, 4999),
    }


def test_headers_are_read_as_text_and_as_bytes() -> None:
    raw = [(b"X-RateLimit-Limit", b"60"), (b"Retry-After", b"7"), (b"X-\xff", b"\xff")]
    seen = detect(429, raw)
    assert (seen.dimensions[0].limit, seen.retry_after) == (60, 7)
    assert detect(429, dict(raw)) == seen
    assert detect(429, httpx.Headers(raw[:2]).raw) == seen


def test_rule_17_accounts_are_counted_apart_and_their_names_are_no_secrets(
    clock: VirtualClock,
) -> None:
    limiter = RateLimiter(clock=clock)
    limiter.set_limit("api.example.com", limit=1, window="1h")
    for account in ("alice", "bob"):
        assert limiter.try_acquire("api.example.com", account=account)
        assert limiter.try_acquire("api.example.com", account=account) is None
    assert "alice@https://api.example.com" in limiter.list_endpoints()
    transport = RateLimitTransport(limiter, httpx.MockTransport(lambda _: httpx.Response(200)))
    with httpx.Client(transport=transport) as client, spending(account="carol"):
        response = client.get("https://api.example.com")
    assert response.extensions["paceline"].scope == "carol@https://api.example.com"
    with pytest.raises(ValueError, match="bad account") as error:
        limiter.acquire("api.example.com", account="sk secret")
    assert "sk secret" not in str(error.value)


def test_also_parents_charges_wider_scopes_too(clock: VirtualClock) -> None:
    limiter = RateLimiter(also_parents=True, clock=clock)
    limiter.set_limit("api.example.com", limit=3, window="1h")
    limiter.set_limit("api.example.com/search", limit=5, window="1h")
    for _ in range(3):
        assert limiter.try_acquire("api.example.com/search")
    assert limiter.try_acquire("api.example.com/search") is None
    assert limiter.wait_time("api.example.com/search") == pytest.approx(1200)
    status = limiter.get_status("api.example.com/search")
    assert status is not None
    assert status.remaining == 2, "a refused request charges nothing anywhere"


def test_a_call_is_explained(clock: VirtualClock) -> None:
    limiter = RateLimiter(clock=clock)
    assert limiter.explain("api.example.com").governing is None
    limiter.set_limit("api.example.com", limit=60, window="1m")
    limiter.set_limit("api.example.com/search", limit=10, window="1m")
    why = limiter.explain("https://api.example.com/search/users")
    assert why.governing is not None
    assert why.governing.endpoint == "https://api.example.com/search"
    assert [it.endpoint for it in why.wider] == ["https://api.example.com"]
    assert "narrowest" in str(why)
    assert "10/1m: 10 left, set by you" in str(why)


def test_a_response_tells_what_was_waited_for(clock: VirtualClock) -> None:
    limiter = RateLimiter(clock=clock)
    limiter.set_limit("api.example.com", limit=1, window="1m")
    transport = RateLimitTransport(limiter, httpx.MockTransport(lambda _: httpx.Response(200)))
    with httpx.Client(transport=transport) as client:
        first, second = (client.get("https://api.example.com") for _ in range(2))
    assert first.extensions["paceline"].limit is None
    paced = second.extensions["paceline"]
    assert (paced.waited, paced.limit, paced.attempts) == (pytest.approx(60), "1/1m", 1)


def test_rule_13_an_error_that_breaks_off_is_a_rejection_all_the_same(clock: VirtualClock) -> None:
    class Broken(httpx.SyncByteStream):
        def __iter__(self) -> Iterator[bytes]:
            yield b'{"err'
            raise httpx.RemoteProtocolError("it broke off")

    def answer(_: httpx.Request) -> httpx.Response:
        headers = {"content-type": "application/json", "content-length": "100", "retry-after": "30"}
        return httpx.Response(429, headers=headers, stream=Broken())

    limiter = RateLimiter(clock=clock, max_wait=1)
    transport = RateLimitTransport(limiter, httpx.MockTransport(answer))
    with httpx.Client(transport=transport) as client, pytest.raises(RateLimitExceeded):
        client.get("https://api.openai.com/v1/models")
    assert limiter.wait_time("https://api.openai.com") >= 30
