"""The life of a call, with real requests to a real server, on a virtual clock."""

from __future__ import annotations

import io
from typing import TYPE_CHECKING

import pytest
import requests
from paceline import RateLimiter, RateLimitExceeded, RetryConfig, RetryStrategy
from paceline.requests import RateLimitAdapter

if TYPE_CHECKING:
    from conftest import Server
    from paceline.testing import VirtualClock


def test_a_request_takes_a_permit_and_learns_from_the_answer(
    server: Server, clock: VirtualClock
) -> None:
    limits = {"X-RateLimit-Limit": "3", "X-RateLimit-Remaining": "0", "X-RateLimit-Reset": "30"}
    server.script = [(200, limits)]
    limiter = RateLimiter(clock=clock)
    response = limiter.request("GET", f"{server.url}/a", timeout=5)
    assert (response.status_code, response.text) == (200, "answer 1")
    status = limiter.get_status(server.url)
    assert status is not None
    assert (status.limit, status.remaining, status.confidence) == (3, 0, "estimated")
    limiter.request("GET", f"{server.url}/b")
    assert clock.now == pytest.approx(30, abs=1)


def test_rule_23_a_429_waits_as_long_as_the_server_says(
    server: Server, clock: VirtualClock
) -> None:
    server.script = [(429, {"Retry-After": "7"}), (503, {}), (200, {})]
    limiter = RateLimiter(clock=clock, retry=RetryConfig(jitter=0))
    response = limiter.request("POST", server.url, data=b"body")
    assert response.status_code == 200
    assert [body for _, _, body in server.seen] == [b"body"] * 3
    assert clock.now == pytest.approx(7 + 2, abs=0.01)


def test_rule_26_the_last_response_is_handed_back_as_it_is(
    server: Server, clock: VirtualClock
) -> None:
    server.script = [(429, {"Retry-After": "1"})] * 3
    limiter = RateLimiter(clock=clock, retry=RetryConfig(max_retries=2))
    response = limiter.request("GET", server.url, stream=True)
    assert response.status_code == 429
    assert response.raw.read() == b"answer 3", "the body was not consumed"


def test_rule_24_every_attempt_and_every_hop_takes_a_permit(
    server: Server, clock: VirtualClock
) -> None:
    server.script = [(302, {"Location": "/b"}), (503, {}), (200, {})]
    limiter = RateLimiter(clock=clock)
    limiter.set_limit(server.url, limit=100, window="1d")
    limiter.set_limit(server.url, limit=100, window="1d", dimension="tokens")
    assert limiter.request("GET", f"{server.url}/a", cost={"tokens": 10}).status_code == 200
    status = limiter.get_status(server.url)
    assert status is not None
    assert status.remaining == 97
    assert status.dimensions["tokens"].remaining == 90, "hops after the first spend no tokens"


def test_rule_24_every_attempt_spends_the_whole_cost(server: Server, clock: VirtualClock) -> None:
    server.script = [(503, {})]
    limiter = RateLimiter(clock=clock)
    limiter.set_limit(server.url, limit=100, window="1d", dimension="tokens")
    limiter.request("POST", server.url, cost={"tokens": 10})
    status = limiter.get_status(server.url)
    assert status is not None
    assert status.remaining == 80


def test_rule_22_raise_mode_raises_for_what_would_be_retried(
    server: Server, clock: VirtualClock
) -> None:
    server.script = [(429, {"Retry-After": "9"}), (404, {})]
    limiter = RateLimiter(clock=clock, raise_on_limit=True)
    with pytest.raises(RateLimitExceeded) as caught:
        limiter.request("GET", server.url)
    assert caught.value.retry_after == 9
    with pytest.raises(RateLimitExceeded) as caught:
        limiter.request("GET", server.url)
    assert caught.value.retry_after == pytest.approx(9, abs=0.01)
    assert len(server.seen) == 1, "the hold is kept"
    clock.advance(10)
    assert limiter.request("GET", server.url).status_code == 404
    assert clock.now == 10


def test_max_wait_below_the_servers_word_raises_with_the_full_number(
    server: Server, clock: VirtualClock
) -> None:
    server.script = [(429, {"Retry-After": "120"})]
    limiter = RateLimiter(clock=clock, max_wait=10)
    with pytest.raises(RateLimitExceeded) as caught:
        limiter.request("GET", server.url)
    assert caught.value.retry_after == 120
    assert clock.now == 0


def test_max_wait_bounds_the_sum_of_all_waits(server: Server, clock: VirtualClock) -> None:
    server.script = [(503, {})] * 9
    retry = RetryConfig(max_retries=8, strategy=RetryStrategy.FIXED, base_delay=4, jitter=0)
    limiter = RateLimiter(clock=clock, retry=retry, max_wait=10)
    assert limiter.request("GET", server.url).status_code == 503
    assert clock.now == 8
    assert len(server.seen) == 3


def test_a_session_is_wrapped_once_and_keeps_its_adapters(
    server: Server, clock: VirtualClock
) -> None:
    limiter = RateLimiter(clock=clock)
    limiter.set_limit(server.url, limit=1, window="1m")
    session = requests.Session()
    own = session.adapters["https://"]
    assert limiter.wrap_session(limiter.wrap_session(session)) is session
    adapter = session.adapters["https://"]
    assert isinstance(adapter, RateLimitAdapter)
    assert adapter.adapter is own
    session.get(server.url)
    session.get(server.url)
    assert clock.now == 60
    other = RateLimiter(clock=clock)
    other.set_limit(server.url, limit=9, window="1d")
    limiter.wrap_session(other.wrap_session(session)).get(server.url)
    assert clock.now == 120
    status = other.get_status(server.url)
    assert status is not None
    assert status.remaining == 8, "both count"
    session.close()


def test_what_is_no_http_passes_untouched(clock: VirtualClock) -> None:
    class Files(requests.adapters.BaseAdapter):
        def send(self, request: requests.PreparedRequest, **_: object) -> requests.Response:  # type: ignore[override]
            response = requests.Response()
            response.status_code, response.url = 429, request.url or ""
            return response

        def close(self) -> None:
            """Keep nothing open."""

    limiter = RateLimiter(clock=clock, default_limits={"requests_per_minute": 1})
    session = requests.Session()
    session.mount("file://", Files())
    limiter.wrap_session(session)
    for _ in range(3):
        response = session.get("file:///etc/hosts")
        assert (response.status_code, hasattr(response, "paceline")) == (429, False)
    assert (clock.now, limiter.list_endpoints()) == (0, [])


def test_a_body_that_cannot_be_sent_again_is_not(server: Server, clock: VirtualClock) -> None:
    server.script = [(429, {"Retry-After": "1"}), (429, {"Retry-After": "1"})]
    limiter = RateLimiter(clock=clock)
    assert limiter.request("PUT", server.url, data=io.BytesIO(b"again")).status_code == 200
    assert [body for _, _, body in server.seen] == [b"again"] * 3
    server.script = [(429, {"Retry-After": "1"})]
    once = (part for part in [b"once"])
    assert limiter.request("PUT", server.url, data=once).status_code == 429


def test_rule_20_a_connection_that_was_never_made_costs_nothing(clock: VirtualClock) -> None:
    limiter = RateLimiter(clock=clock)
    limiter.set_limit("http://127.0.0.1:1", limit=5, window="1h")
    with pytest.raises(requests.ConnectionError):
        limiter.request("GET", "http://127.0.0.1:1/x")
    status = limiter.get_status("http://127.0.0.1:1")
    assert status is not None
    assert status.remaining == 5


def test_a_retry_configuration_that_makes_no_sense_is_refused() -> None:
    for settings in (
        {"max_retries": -1},
        {"jitter": 2},
        {"base_delay": -1},
        {"backoff_factor": 0},
        {"replay": "some"},
    ):
        with pytest.raises(ValueError):  # noqa: PT011 - each names its own setting
            RetryConfig(**settings)
