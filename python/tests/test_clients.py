"""The life of a call is the same through every client; real requests on a virtual clock."""

from __future__ import annotations

import gc
import socket
import threading
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from every_client import CLIENTS, Ask, Client
from paceline import RateLimitExceeded, RetryConfig, RetryStrategy

if TYPE_CHECKING:
    from collections.abc import Generator

    from conftest import Server
    from paceline.testing import VirtualClock

every = pytest.mark.parametrize("client", CLIENTS, ids=repr)
#: Nobody listens there.
NOWHERE = "http://127.0.0.1:1"


@every
def test_a_request_takes_a_permit_and_learns_from_the_answer(
    client: Client, server: Server, clock: VirtualClock
) -> None:
    limits = {"X-RateLimit-Limit": "3", "X-RateLimit-Remaining": "0", "X-RateLimit-Reset": "30"}
    server.script = [(200, limits)]
    limiter = client.limiter(clock=clock)
    first, second = client.send(limiter, Ask(f"{server.url}/a"), Ask(f"{server.url}/b"))
    assert (first.status, first.content) == (200, b"answer 1")
    assert (first.paced.waited, first.paced.attempts) == (0, 1)
    assert first.paced.scope == server.url
    assert clock.now == pytest.approx(30, abs=1)
    assert second.paced.waited == pytest.approx(clock.now)


@every
def test_rule_23_a_429_waits_as_long_as_the_server_says(
    client: Client, server: Server, clock: VirtualClock
) -> None:
    server.script = [(429, {"Retry-After": "7"}), (503, {}), (200, {})]
    limiter = client.limiter(clock=clock, retry=RetryConfig(jitter=0))
    (answer,) = client.send(limiter, Ask(server.url, "POST", content=b"body"))
    assert answer.status == 200
    assert [body for _, _, body in server.seen] == [b"body"] * 3
    assert clock.now == pytest.approx(7 + 2, abs=0.01)
    assert answer.paced.waited == pytest.approx(clock.now)
    assert answer.paced.attempts == 3


@every
def test_rule_26_the_last_response_is_handed_back_as_it_is(
    client: Client, server: Server, clock: VirtualClock
) -> None:
    server.script = [(429, {"Retry-After": "1"})] * 3
    limiter = client.limiter(clock=clock, retry=RetryConfig(max_retries=2))
    (answer,) = client.send(limiter, Ask(server.url))
    assert (answer.status, answer.content) == (429, b"answer 3")
    assert answer.paced.attempts == 3


@every
def test_rule_24_every_attempt_and_every_hop_takes_a_permit(
    client: Client, server: Server, clock: VirtualClock
) -> None:
    server.script = [(302, {"Location": "/b"}), (503, {}), (200, {})]
    limiter = client.limiter(clock=clock)
    limiter.set_limit(server.url, limit=100, window="1d")
    limiter.set_limit(server.url, limit=100, window="1d", dimension="tokens")
    (answer,) = client.send(limiter, Ask(f"{server.url}/a", cost={"tokens": 10}))
    assert answer.status == 200
    status = limiter.get_status(server.url)
    assert status is not None
    assert status.remaining == 97
    assert status.dimensions["tokens"].remaining == 90, "hops after the first spend no tokens"


@every
def test_rule_22_raise_mode_raises_for_what_would_be_retried(
    client: Client, server: Server, clock: VirtualClock
) -> None:
    server.script = [(429, {"Retry-After": "9"}), (404, {})]
    limiter = client.limiter(clock=clock, raise_on_limit=True)
    for _ in range(2):
        with pytest.raises(RateLimitExceeded) as caught:
            client.send(limiter, Ask(server.url))
        assert caught.value.retry_after == pytest.approx(9, abs=0.01)
    assert len(server.seen) == 1, "the hold is kept"
    clock.advance(10)
    assert client.send(limiter, Ask(server.url))[0].status == 404
    assert clock.now == 10


@every
def test_rule_21_max_wait_below_the_servers_word_raises_with_the_full_number(
    client: Client, server: Server, clock: VirtualClock
) -> None:
    server.script = [(429, {"Retry-After": "120"})]
    limiter = client.limiter(clock=clock, max_wait=10)
    with pytest.raises(RateLimitExceeded) as caught:
        client.send(limiter, Ask(server.url))
    assert caught.value.retry_after == 120
    assert clock.now == 0


@every
def test_rule_21_max_wait_bounds_the_sum_of_all_waits(
    client: Client, server: Server, clock: VirtualClock
) -> None:
    server.script = [(503, {})] * 9
    retry = RetryConfig(max_retries=8, strategy=RetryStrategy.FIXED, base_delay=4, jitter=0)
    limiter = client.limiter(clock=clock, retry=retry, max_wait=10)
    (answer,) = client.send(limiter, Ask(server.url))
    assert (answer.status, answer.paced.waited, clock.now) == (503, 8, 8)
    assert len(server.seen) == 3


@every
def test_a_body_that_cannot_be_sent_again_is_not(
    client: Client, server: Server, clock: VirtualClock
) -> None:
    server.script = [(429, {"Retry-After": "1"})]
    (answer,) = client.send(
        client.limiter(clock=clock), Ask(server.url, "PUT", once=[b"on", b"ce"])
    )
    assert answer.status == 429
    assert [body for _, _, body in server.seen] == [b"once"]


@every
def test_replay_safe_sends_again_only_what_repeats_no_effect(
    client: Client, server: Server, clock: VirtualClock
) -> None:
    limiter = client.limiter(clock=clock, retry=RetryConfig(replay="safe"))

    def statuses(method: str, status: int, **headers: str) -> tuple[int, int]:
        server.script = [(status, {})]
        before = len(server.seen)
        (answer,) = client.send(limiter, Ask(server.url, method, headers, content=b"x"))
        return answer.status, len(server.seen) - before

    assert statuses("PUT", 503) == (200, 2)
    assert statuses("POST", 503) == (503, 1)
    assert statuses("POST", 504, **{"Idempotency-Key": "7"}) == (200, 2)
    assert statuses("POST", 429) == (200, 2)


@every
def test_rule_20_a_connection_that_was_never_made_costs_nothing(
    client: Client, clock: VirtualClock
) -> None:
    limiter = client.limiter(clock=clock)
    limiter.set_limit(NOWHERE, limit=5, window="1h")
    with pytest.raises(client.connect_error):
        client.send(limiter, Ask(NOWHERE))
    status = limiter.get_status(NOWHERE)
    assert status is not None
    assert status.remaining == 5
    assert clock.now == 0


@every
def test_connection_errors_are_retried_on_request(client: Client, clock: VirtualClock) -> None:
    retry = RetryConfig(
        retry_on_connection_error=True, retry_on_status=(429,), jitter=0, replay="safe"
    )
    limiter = client.limiter(clock=clock, retry=retry)
    with pytest.raises(client.connect_error):
        client.send(limiter, Ask(NOWHERE, "POST", content=b"it was never sent"))
    assert clock.now == 1 + 2 + 4


@every
def test_a_connection_that_breaks_is_retried_if_that_repeats_no_effect(
    client: Client, clock: VirtualClock
) -> None:
    with closing(socket.create_server(("127.0.0.1", 0))) as listener:
        accepted = []

        def hang_up() -> None:
            while True:
                connection, _ = listener.accept()
                with connection:
                    if not (asked := connection.recv(65536)):
                        return
                    accepted.append(asked)

        thread = threading.Thread(target=hang_up, daemon=True)
        thread.start()
        host, port = listener.getsockname()
        retry = RetryConfig(max_retries=1, retry_on_connection_error=True, jitter=0, replay="safe")
        limiter = client.limiter(clock=clock, retry=retry)
        with pytest.raises(Exception):  # noqa: B017, PT011 - each client has its own
            client.send(limiter, Ask(f"http://{host}:{port}", "POST", content=b"x"))
        assert (len(accepted), clock.now) == (1, 0)
        with pytest.raises(Exception):  # noqa: B017, PT011
            client.send(limiter, Ask(f"http://{host}:{port}"))
        # aiohttp sends once more by itself what was lost, and that is retried as well.
        assert clock.now == (2 if "aiohttp" in client.name else 1)
        socket.create_connection((host, port)).close()
        thread.join()


@every
def test_connections_are_used_again(client: Client, server: Server, clock: VirtualClock) -> None:
    answers = client.send(client.limiter(clock=clock), *[Ask(server.url)] * 10)
    assert [answer.content for answer in answers] == [b"answer %d" % n for n in range(1, 11)]
    assert server.connections == 1


GIGABYTE = 1 << 30


@pytest.fixture
def gigabyte() -> Generator[str]:
    """Serve a gigabyte, made as it goes."""
    listener = socket.create_server(("127.0.0.1", 0))
    piece = bytes(1 << 20)

    def serve() -> None:
        connection, _ = listener.accept()
        with connection:
            while b"\r\n\r\n" not in connection.recv(65536):
                pass
            head = f"HTTP/1.1 200 OK\r\nContent-Length: {GIGABYTE}\r\nConnection: close\r\n\r\n"
            connection.sendall(head.encode())
            for _ in range(GIGABYTE // len(piece)):
                connection.sendall(piece)

    thread = threading.Thread(target=serve, daemon=True)
    thread.start()
    with listener:
        yield f"http://127.0.0.1:{listener.getsockname()[1]}"
        thread.join()


def _resident() -> int:
    """Bytes of memory that this process has."""
    return int(Path("/proc/self/statm").read_text().split()[1]) * 4096


@pytest.mark.parametrize("client", [it for it in CLIENTS if it.drain], ids=repr)
def test_rule_26_a_gigabyte_streams_through_at_flat_memory(client: Client, gigabyte: str) -> None:
    gc.collect()
    pieces = 0
    most = before = _resident()

    def tick() -> None:
        nonlocal pieces, most
        pieces += 1
        if pieces % 64 == 0:
            most = max(most, _resident())

    drain: Any = client.drain
    assert drain(client.limiter(), gigabyte, tick) == GIGABYTE
    assert pieces > 1000
    assert most - before < 50 << 20
