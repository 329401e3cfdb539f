"""What one call does, from its endpoint to its retries: a test for each statement."""

from __future__ import annotations

import asyncio
import email.utils
import logging
import subprocess
import sys
import threading
import time
from collections import Counter
from datetime import datetime, timedelta, timezone
from typing import TYPE_CHECKING

import pytest
from paceline import (
    AsyncRateLimiter,
    RateLimiter,
    RateLimitExceeded,
    RateLimitStatus,
    StorageUnavailable,
    detect,
)
from paceline.retry import RetryConfig
from servers import RedisServer, free_port

if TYPE_CHECKING:
    from collections.abc import Generator
    from pathlib import Path

    from conftest import Server
    from paceline.testing import VirtualClock

API = "https://api.example.com"
GITHUB = "https://api.github.com"
LIMIT, REMAINING, RESET = "X-RateLimit-Limit", "X-RateLimit-Remaining", "X-RateLimit-Reset"


def known(limiter: RateLimiter, endpoint: str) -> RateLimitStatus:
    status = limiter.get_status(endpoint)
    assert status is not None
    return status


def answer(
    limiter: RateLimiter, url: str, limit: int | None = None, remaining: int | None = None
) -> None:
    """Make a call that is answered with these headers."""
    said = [(LIMIT, limit), (REMAINING, remaining)]
    headers = [(name, str(value)) for name, value in said if value is not None]
    limiter.acquire(url).observe(200, headers, url)


def passing(limiter: RateLimiter, url: str, most: int) -> int:
    """How many of so many calls go through at once."""
    return sum(limiter.try_acquire(url) is not None for _ in range(most))


@pytest.fixture(params=["memory", "sqlite", "redis"])
def storage(request: pytest.FixtureRequest, tmp_path: Path) -> Generator[str]:
    if request.param == "redis":
        with RedisServer() as server:
            yield server.url
    else:
        yield {"memory": "memory", "sqlite": f"sqlite:///{tmp_path / 'limits.db'}"}[request.param]


@pytest.fixture
def nobody() -> str:
    """Give a Redis that is not there."""
    return f"redis://127.0.0.1:{free_port()}/0"


# One call


def test_one_call_waits_for_room_sends_and_learns(server: Server, clock: VirtualClock) -> None:
    limiter = RateLimiter(clock=clock)
    limiter.set_limit(server.url, limit=1, window="1m")
    limiter.acquire(server.url)
    server.script = [(200, {"X-RateLimit-Limit-Tokens": "90", "X-RateLimit-Remaining-Tokens": "7"})]
    assert limiter.request("GET", server.url).text == "answer 1"
    assert clock.now == 60
    assert known(limiter, server.url).dimensions["tokens"].remaining == 7


# The endpoint


def test_an_endpoint_is_a_scheme_and_a_host(clock: VirtualClock) -> None:
    limiter = RateLimiter(clock=clock)
    answer(limiter, f"{API}/users/octocat", 60, 40)
    answer(limiter, f"{API}/repos/a/b", 60, 39)
    assert limiter.list_endpoints() == [API]
    for path in ("/users/octocat", "/repos/a/b", "/elsewhere"):
        assert (known(limiter, API + path).endpoint, known(limiter, API + path).remaining) == (
            API,
            39,
        )
    for other in ("http://api.example.com", "https://example.com", f"{API}:8443"):
        assert limiter.get_status(other) is None


def test_paths_that_state_other_limits_are_held_to_a_tighter_one_at_once(
    clock: VirtualClock,
) -> None:
    limiter = RateLimiter(clock=clock)
    answer(limiter, f"{API}/wide", 100, 50)
    answer(limiter, f"{API}/narrow", 10, 3)
    assert (known(limiter, f"{API}/wide").limit, passing(limiter, f"{API}/wide", 9)) == (10, 3)


def test_a_bare_domain_means_https_wherever_an_endpoint_is_named(clock: VirtualClock) -> None:
    limiter = RateLimiter(clock=clock)
    limiter.set_limit("api.example.com", limit=5)
    assert limiter.list_endpoints() == [API]
    for endpoint in ("api.example.com", "API.Example.com/", API):
        assert (known(limiter, endpoint).endpoint, known(limiter, endpoint).limit) == (API, 5)
    assert limiter.clear("api.example.com") == 1
    assert limiter.get_status(API) is None


# The bucket


def test_a_bucket_holds_its_limit_and_refills_at_limit_by_window(clock: VirtualClock) -> None:
    limiter = RateLimiter(clock=clock)
    limiter.set_limit(API, limit=5000, window="1h")
    assert passing(limiter, API, 5001) == 5000
    clock.advance(36)
    assert passing(limiter, API, 99) == 36 * 5000 // 3600
    clock.advance(7200)
    assert passing(limiter, API, 5001) == 5000, "it never holds more than its limit"


def test_a_wait_is_told_before_and_is_exactly_as_long(server: Server, clock: VirtualClock) -> None:
    limiter = RateLimiter(clock=clock)
    limiter.set_limit(server.url, limit=4, window="1m")
    for left in (3, 2, 1, 0):
        assert limiter.wait_time(server.url) == 0
        limiter.request("GET", server.url)
        assert known(limiter, server.url).remaining == left
    clock.advance(5)
    assert limiter.wait_time(server.url) == 10
    limiter.request("GET", server.url)
    assert clock.now == 15


def test_an_empty_bucket_paces_and_does_not_stall(clock: VirtualClock) -> None:
    limiter = RateLimiter(clock=clock)
    limiter.set_limit(API, limit=5000, window="1h")
    passing(limiter, API, 5000)
    waits = {round(limiter.acquire(API).waited, 6) for _ in range(5000)}
    assert waits == {0.72}, "spread over the hour, and nobody waits for its end"
    assert clock.now == pytest.approx(3600)


def test_rule_10_what_the_server_has_left_is_the_level(clock: VirtualClock) -> None:
    limiter = RateLimiter(clock=clock)
    for left in (90, 42, 41, 77):
        answer(limiter, API, 100, left)
        assert known(limiter, API).remaining == left
    limiter.acquire(API)
    assert known(limiter, API).remaining == 76, "between answers the count is a prediction"


def test_a_limit_that_the_server_changes_is_followed_at_once(clock: VirtualClock) -> None:
    limiter = RateLimiter(clock=clock)
    for limit in (100, 10, 1000):
        answer(limiter, API, limit, limit - 1)
        status = known(limiter, API)
        assert (status.limit, status.burst, status.remaining) == (limit, limit, limit - 1)


# Detection


@pytest.mark.parametrize("host", ["github", "stripe", "twitter", "openai"])
def test_rule_8_what_is_known_of_a_host_is_read_first(host: str) -> None:
    headers = {LIMIT: "60", "X-Max": "9"}
    seen = detect(200, headers, f"https://api.{host}.com/v1", headers_map={"limit": "X-Max"})
    assert seen.dimensions[0].limit == 60


def test_rule_8_then_the_users_own_headers_and_then_the_standard_ones() -> None:
    headers = {LIMIT: "60", "X-Max": "9"}
    seen = detect(200, headers, API, headers_map={"limit": "X-Max"})
    assert seen.dimensions[0].limit == 9
    seen = detect(200, headers, API, headers_map={"limit": "X-Most"})
    assert seen.dimensions[0].limit == 60


@pytest.mark.parametrize(
    "family", ["X-RateLimit", "RateLimit", "X-Rate-Limit", "X-RateLimit-Requests"]
)
def test_rule_8_standard_families(family: str) -> None:
    headers = {f"{family}-Limit": "60", f"{family}-Remaining": "59", f"{family}-Reset": "30"}
    (seen,) = detect(200, headers).dimensions
    assert (seen.dimension, seen.limit, seen.remaining, seen.reset_in) == ("requests", 60, 59, 30)


def test_rule_8_retry_after_counts_on_a_rejection_and_states_no_limit(clock: VirtualClock) -> None:
    refused = detect(429, {"Retry-After": "7"})
    assert (refused.retry_after, refused.dimensions) == (7, ())
    assert detect(200, {"Retry-After": "7"}).retry_after is None
    limiter = RateLimiter(clock=clock)
    limiter.acquire(API).observe(200, [("Retry-After", "7")], API)
    assert limiter.get_status(API) is None
    limiter.acquire(API).observe(429, [("Retry-After", "7")], API)
    assert known(limiter, API).hold == 7
    assert limiter.wait_time(API) == 7


NOW = datetime(2027, 1, 15, 8, tzinfo=timezone.utc)


@pytest.mark.parametrize(
    ("reset", "seconds"),
    [
        ("30", 30),
        ("86399", 86_399),
        (str(int(NOW.timestamp()) + 90), 90),
        ("2027-01-15T08:01:30Z", 90),
        ("2027-01-15T10:01:30+02:00", 90),
    ],
)
def test_a_reset_is_an_epoch_or_a_date_or_seconds_from_now(reset: str, seconds: float) -> None:
    (seen,) = detect(200, {LIMIT: "60", RESET: reset}, now=NOW).dimensions
    assert seen.reset_in == seconds


def test_seconds_until_a_reset_may_be_more_than_those_of_a_day() -> None:
    # Quotas of a month exist. As an epoch it would lie in 1970, where no reset does.
    (seen,) = detect(200, {LIMIT: "500", RESET: "2502381"}, now=NOW).dimensions
    assert seen.reset_in == 2_502_381


def test_where_nothing_is_detected_nothing_is_stored_and_nobody_waits(
    server: Server, clock: VirtualClock
) -> None:
    limiter = RateLimiter(clock=clock)
    for _ in range(20):
        limiter.request("GET", server.url)
    assert (limiter.list_endpoints(), limiter.get_status(server.url), clock.now) == ([], None, 0)
    limiter.set_limit(server.url, limit=1, window="1m")
    default = RateLimiter(clock=clock, default_limits={"requests_per_minute": 1})
    for paced in (limiter, default):
        paced.request("GET", server.url)
        assert paced.wait_time(server.url) == 60


# Storage

CHILD = """
import sys
from paceline import RateLimiter
print(RateLimiter(sys.argv[1]).get_status("api.example.com"))
"""


def test_what_survives_a_restart_and_what_processes_share(storage: str) -> None:
    limiter = RateLimiter(storage)
    limiter.set_limit(API, limit=3, window="1d")
    assert passing(limiter, API, 2) == 2
    command = [sys.executable, "-c", CHILD, storage]
    shared = subprocess.run(command, check=True, capture_output=True, text=True, timeout=30).stdout
    del limiter
    after = RateLimiter(storage).get_status(API)
    if storage == "memory":
        assert (shared, after) == ("None\n", None)
    else:
        assert "remaining=1," in shared
        assert after is not None
        assert after.remaining == 1


def test_stores_differ_in_nothing_else(storage: str, clock: VirtualClock) -> None:
    limiter = RateLimiter(storage, clock=clock)
    limiter.set_limit(API, limit=2, window="1m")
    assert [limiter.acquire(API).waited for _ in range(4)] == [0, 0, 30, 30]
    answer(limiter, f"{API}:8443", 60, 59)
    assert known(limiter, f"{API}:8443").remaining == 59


def test_no_two_workers_spend_the_same_unit(storage: str) -> None:
    shared = RateLimiter(storage, fail_closed=True, storage_timeout=5)
    shared.set_limit(API, limit=50, window="1d")
    granted: list[int] = []

    def work() -> None:
        own = {"fail_closed": True, "storage_timeout": 5}
        limiter = shared if storage == "memory" else RateLimiter(storage, **own)  # type: ignore[arg-type]
        granted.append(passing(limiter, API, 20))

    workers = [threading.Thread(target=work) for _ in range(4)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    assert len(granted) == 4
    assert sum(granted) == 50


# Scopes


def test_rule_15_the_narrowest_scope_with_a_limit_governs(clock: VirtualClock) -> None:
    limiter = RateLimiter(clock=clock)
    url = f"{API}/v1/users/42"
    for scope in (API, f"{API}/v1", f"{API}/v1/users", url):
        assert limiter.get_status(url) is None or known(limiter, url).endpoint != scope
        limiter.set_limit(scope, limit=9)
        assert known(limiter, url).endpoint == scope
    assert known(limiter, f"{API}/v1/users/43").endpoint == f"{API}/v1/users"
    assert known(limiter, f"{API}/v2").endpoint == API


def test_rule_15_a_path_that_is_used_up_leaves_its_neighbour_alone(clock: VirtualClock) -> None:
    limiter = RateLimiter(clock=clock)
    limiter.set_limit(API, limit=5)
    limiter.set_limit(f"{API}/search", limit=2)
    assert passing(limiter, f"{API}/search/code", 9) == 2
    assert passing(limiter, f"{API}/users", 9) == 5


def test_rule_15_query_and_trailing_slash_say_nothing_of_a_quota(clock: VirtualClock) -> None:
    limiter = RateLimiter(clock=clock)
    limiter.set_limit(f"{API}/search/", limit=3)
    for url in ("/search?q=1", "/search/?q=2&page=3", "/search/#top"):
        limiter.acquire(API + url)
    assert limiter.list_endpoints() == [f"{API}/search"]
    assert known(limiter, f"{API}/search?q=4").remaining == 0


def test_what_is_detected_belongs_to_the_scope_that_governs(clock: VirtualClock) -> None:
    limiter = RateLimiter(clock=clock)
    limiter.set_limit(f"{API}/search", limit=100, dimension="tokens")
    answer(limiter, f"{API}/search/code", 30, 29)
    assert known(limiter, f"{API}/search").limit == 30
    assert limiter.get_status(API) is None


def test_rule_12_what_is_detected_never_overwrites_what_was_set(clock: VirtualClock) -> None:
    limiter = RateLimiter(clock=clock)
    limiter.set_limit(API, limit=10, window="1m")
    for limit, left in ((1000, 999), (5, 1), (10, 9)):
        answer(limiter, API, limit, left)
        status = known(limiter, API)
        assert (status.limit, status.confidence) == (10, "configured")
    assert known(limiter, API).remaining == 7


# A store that is away


def test_rule_34_without_its_store_a_call_goes_through_with_a_warning(
    nobody: str, server: Server, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.WARNING, logger="paceline"):
        limiter = RateLimiter(nobody)
        assert "unpaced" in caplog.text, "it was asked at construction"
        assert limiter.request("GET", server.url).status_code == 200


def test_rule_34_or_it_is_refused_and_that_is_logged_too(
    server: Server, caplog: pytest.LogCaptureFixture
) -> None:
    with RedisServer() as redis:
        limiter = RateLimiter(redis.url, fail_closed=True)
    with (
        caplog.at_level(logging.WARNING, logger="paceline"),
        pytest.raises(RateLimitExceeded) as refused,
    ):
        limiter.request("GET", server.url)
    assert isinstance(refused.value, StorageUnavailable)
    assert "refused" in caplog.text
    assert server.seen == []


def test_rule_34_a_store_that_must_be_there_is_asked_at_construction(
    nobody: str, caplog: pytest.LogCaptureFixture
) -> None:
    with (
        caplog.at_level(logging.WARNING, logger="paceline"),
        pytest.raises(StorageUnavailable),
    ):
        RateLimiter(nobody, fail_closed=True)
    assert "refused" in caplog.text


# Dimensions


def test_each_dimension_has_a_budget_of_its_own_and_the_tightest_binds(
    server: Server, clock: VirtualClock
) -> None:
    limiter = RateLimiter(clock=clock, raise_on_limit=True)
    limiter.set_limit(server.url, limit=100)
    limiter.set_limit(server.url, limit=4000, dimension="tokens")
    for _ in range(2):
        limiter.request("POST", server.url, json={}, cost={"tokens": 1500})
    with pytest.raises(RateLimitExceeded) as refused:
        limiter.request("POST", server.url, json={}, cost={"tokens": 1500})
    assert (refused.value.dimension, refused.value.retry_after) == ("tokens", 7.5)
    levels = {name: it.remaining for name, it in known(limiter, server.url).dimensions.items()}
    assert levels == {"requests": 98, "tokens": 1000}


def test_rule_4_a_call_is_charged_everywhere_or_nowhere(clock: VirtualClock) -> None:
    limiter = RateLimiter(clock=clock)
    limiter.set_limit(API, limit=100)
    limiter.set_limit(API, limit=1000, dimension="tokens")
    limiter.acquire(API, cost={"tokens": 1000})
    before = known(limiter, API).dimensions
    for _ in range(50):
        assert limiter.try_acquire(API, cost={"tokens": 500}) is None
    after = known(limiter, API).dimensions
    assert {name: it.remaining for name, it in after.items()} == {"requests": 99, "tokens": 0}
    assert {name: it.reset_in for name, it in after.items()} == {
        name: it.reset_in for name, it in before.items()
    }


def test_rule_4_a_dimension_that_is_not_spent_never_gates(
    server: Server, clock: VirtualClock
) -> None:
    limiter = RateLimiter(clock=clock)
    limiter.set_limit(server.url, limit=1000, window="1d", dimension="tokens")
    limiter.request("POST", server.url, cost={"tokens": 9000})
    for _ in range(20):
        limiter.request("GET", server.url)
    assert clock.now == 0


# Provider profiles


def test_a_documented_limit_is_known_before_the_first_answer(clock: VirtualClock) -> None:
    limiter = RateLimiter(clock=clock)
    status = known(limiter, "api.github.com")
    assert (status.limit, status.window, status.confidence) == (60, timedelta(hours=1), "registry")
    assert passing(limiter, f"{GITHUB}/users/octocat", 61) == 60


def test_rule_12_and_is_replaced_by_the_first_headers(clock: VirtualClock) -> None:
    limiter = RateLimiter(clock=clock)
    answer(limiter, f"{GITHUB}/users/octocat", 5000, 4999)
    status = known(limiter, GITHUB)
    assert (status.limit, status.remaining) == (5000, 4999)
    assert status.confidence != "registry"


def test_nothing_is_guessed_of_providers_whose_limits_depend_on_the_account() -> None:
    limiter = RateLimiter()
    for host in ("api.openai.com", "api.anthropic.com", "api.stripe.com", "api.twitter.com"):
        assert limiter.get_status(host) is None


# Rejections


@pytest.mark.parametrize("status", [429, 503, 504])
def test_rule_23_a_rejection_is_retried_three_times_and_then_handed_back(
    status: int, server: Server, clock: VirtualClock
) -> None:
    server.script = [(status, {})] * 9
    response = RateLimiter(clock=clock).request("GET", server.url)
    assert (response.status_code, response.text) == (status, "answer 4")
    assert len(server.seen) == 4


@pytest.mark.parametrize("status", [400, 401, 404, 500])
def test_rule_23_other_errors_are_the_callers(status: int, server: Server) -> None:
    server.script = [(status, {})]
    assert RateLimiter().request("GET", server.url).status_code == status
    assert len(server.seen) == 1


def test_rule_23_the_servers_wait_decides_in_seconds_or_as_a_date(
    server: Server, clock: VirtualClock
) -> None:
    limiter = RateLimiter(clock=clock)
    server.script = [(429, {"Retry-After": "7"})]
    assert limiter.request("GET", server.url).status_code == 200
    assert clock.now == pytest.approx(7, abs=0.01)
    date = email.utils.formatdate(datetime.now(timezone.utc).timestamp() + 20, usegmt=True)
    server.script = [(503, {"Retry-After": date})]
    assert limiter.request("GET", server.url).status_code == 200
    assert clock.now == pytest.approx(27, abs=1.1), "dates have whole seconds"


def test_rule_23_but_no_more_than_max_delay(server: Server, clock: VirtualClock) -> None:
    limiter = RateLimiter(clock=clock, retry=RetryConfig(max_retries=5, max_delay=30.0))
    server.script = [(429, {"Retry-After": "300"})]
    assert limiter.request("GET", server.url).status_code == 200
    assert clock.now == pytest.approx(30, abs=0.01)


def test_rule_23_without_it_waits_double_and_are_left_to_chance_a_little(
    server: Server, clock: VirtualClock
) -> None:
    limiter = RateLimiter(clock=clock, retry=RetryConfig(max_retries=5, max_delay=30.0))
    server.script = [(503, {})] * 9
    limiter.request("GET", server.url)
    assert len(server.seen) == 6
    steps = 1 + 2 + 4 + 8 + 16
    assert clock.now == pytest.approx(steps, rel=0.11)
    assert clock.now != steps


def test_rule_22_raise_mode_raises_where_it_would_wait_and_never_sleeps(
    server: Server, clock: VirtualClock
) -> None:
    limiter = RateLimiter(clock=clock, raise_on_limit=True)
    limiter.set_limit(server.url, limit=1, window="1m")
    limiter.request("GET", server.url)
    with pytest.raises(RateLimitExceeded) as empty:
        limiter.request("GET", server.url)
    assert (empty.value.retry_after, len(server.seen)) == (60, 1)
    for rejection in ((429, {"Retry-After": "9"}), (503, {}), (504, {})):
        server.script = [rejection]
        with pytest.raises(RateLimitExceeded, match=str(rejection[0])) as refused:
            RateLimiter(clock=clock, raise_on_limit=True).request("GET", server.url)
        assert refused.value.retry_after > 0
    assert (len(server.seen), clock.now) == (4, 0)


# Threads, processes and event loops


def test_threads_share_a_limiter_and_its_session(server: Server) -> None:
    limiter = RateLimiter(raise_on_limit=True)
    limiter.set_limit(server.url, limit=10, window="1d")
    limiter.request("GET", server.url)
    session = limiter._session
    outcomes: Counter[str] = Counter()

    def ask() -> None:
        for _ in range(5):
            try:
                outcomes[limiter.request("GET", server.url).reason] += 1
            except RateLimitExceeded:  # noqa: PERF203 - half of them are refused
                outcomes["refused"] += 1

    threads = [threading.Thread(target=ask) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert outcomes == {"OK": 9, "refused": 11}
    assert limiter._session is session


def test_a_wait_blocks_the_thread_that_calls() -> None:
    limiter = RateLimiter()
    limiter.set_limit(API, limit=1, window="30ms")
    started = time.monotonic()
    limiter.acquire(API)
    assert limiter.acquire(API).waited > 0
    assert time.monotonic() - started >= 0.03


def test_and_in_an_event_loop_it_is_awaited() -> None:
    async def main() -> int:
        limiter = AsyncRateLimiter()
        limiter.set_limit(API, limit=1, window="40ms")
        await limiter.acquire(API)
        waiting, turns = asyncio.ensure_future(limiter.acquire(API)), 0
        while not waiting.done():
            turns += 1
            await asyncio.sleep(0)  # noqa: TID251 - a turn of the loop
        return turns

    assert asyncio.run(main()) > 10
