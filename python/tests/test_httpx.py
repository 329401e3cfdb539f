"""What a client of httpx or httpx2 has stays its own when it is paced."""

from __future__ import annotations

import asyncio
import io
import ssl
import threading
from typing import TYPE_CHECKING, Any

import aiohttp
import httpx
import httpx2
import hypercorn.asyncio
import hypercorn.config
import paceline.aiohttp
import paceline.httpx
import paceline.httpx2
import pytest
import requests
import trustme
from paceline import AsyncRateLimiter, RateLimiter

if TYPE_CHECKING:
    from collections.abc import Callable, Generator
    from pathlib import Path

    from conftest import Server
    from paceline.testing import VirtualClock

PACKAGES = [(httpx, paceline.httpx), (httpx2, paceline.httpx2)]
both = pytest.mark.parametrize(("package", "ours"), PACKAGES, ids=["httpx", "httpx2"])
FAR = "http://api.example.com/x"


def used(limiter: RateLimiter | AsyncRateLimiter, endpoint: str) -> int:
    status = limiter.get_status(endpoint)
    assert status is not None
    return status.limit - status.remaining


def limiter_for(endpoint: str, clock: VirtualClock) -> RateLimiter:
    limiter = RateLimiter(clock=clock)
    limiter.set_limit(endpoint, limit=100, window="1d")
    return limiter


@both
def test_a_wrapped_client_keeps_its_proxy_and_its_mounts(
    package: Any, ours: Any, server: Server, clock: VirtualClock
) -> None:
    limiter = limiter_for(FAR, clock)
    mounts = {"all://else.example": package.MockTransport(lambda _: package.Response(204))}
    client = package.Client(proxy=server.url, mounts=mounts)
    with ours.wrap(client, limiter) as same:
        assert same is client
        assert client.get(FAR).status_code == 200
        assert client.get("http://else.example").status_code == 204
    assert [path for _, path, _ in server.seen] == [FAR]
    assert used(limiter, FAR) == 1


@both
def test_what_is_no_http_passes_untouched(package: Any, ours: Any, clock: VirtualClock) -> None:
    limiter = RateLimiter(clock=clock, default_limits={"requests_per_minute": 1})
    mounts = {"s3://": package.MockTransport(lambda _: package.Response(429))}
    with ours.wrap(package.Client(mounts=mounts), limiter) as client:
        for _ in range(3):
            response = client.get("s3://bucket/key")
            assert (response.status_code, "paceline" in response.extensions) == (429, False)
    assert (clock.now, limiter.list_endpoints()) == (0, [])


@both
def test_a_client_that_was_wrapped_is_not_wrapped_again(
    package: Any, ours: Any, server: Server, clock: VirtualClock
) -> None:
    one, other = limiter_for(server.url, clock), limiter_for(server.url, clock)
    with package.Client() as client:
        for limiter in (one, other, one, other):
            ours.wrap(client, limiter)
        client.get(server.url)
    assert used(one, server.url) == used(other, server.url) == 1


@both
def test_rule_24_each_step_of_an_authentication_takes_a_permit(
    package: Any, ours: Any, server: Server, clock: VirtualClock
) -> None:
    server.script = [(401, {"WWW-Authenticate": 'Digest realm="r", nonce="n", qop="auth"'})]
    limiter = limiter_for(server.url, clock)
    with ours.wrap(package.Client(auth=package.DigestAuth("me", "secret")), limiter) as client:
        assert client.get(server.url).status_code == 200
    assert server.headers[1]["authorization"].startswith("Digest ")
    assert used(limiter, server.url) == 2


@both
def test_a_wrapped_client_keeps_its_cookies(
    package: Any, ours: Any, server: Server, clock: VirtualClock
) -> None:
    server.script = [(503, {"Set-Cookie": "lost=1"}), (200, {"Set-Cookie": "kept=2"})]
    with ours.wrap(package.Client(), limiter_for(server.url, clock)) as client:
        client.get(server.url)
        client.get(server.url)
    assert [seen.get("cookie") for seen in server.headers] == [None, None, "kept=2"]


@both
def test_a_form_with_files_is_sent_again(
    package: Any, ours: Any, server: Server, clock: VirtualClock
) -> None:
    server.script = [(429, {"Retry-After": "1"})]
    with ours.wrap(package.Client(), limiter_for(server.url, clock)) as client:
        response = client.post(server.url, files={"file": io.BytesIO(b"content")})
    assert response.status_code == 200
    (_, _, first), (_, _, second) = server.seen
    assert first == second
    assert b"content" in first


@both
def test_a_discarded_response_is_closed_and_the_last_one_is_not_read(
    package: Any, ours: Any, clock: VirtualClock
) -> None:
    closed: list[int] = []

    class Stream(package.SyncByteStream):  # type: ignore[misc] # of either package
        def __init__(self, status: int) -> None:
            self.status = status

        def __iter__(self) -> Generator[bytes]:
            yield b"body"

        def close(self) -> None:
            closed.append(self.status)

    class Flaky(package.BaseTransport):  # type: ignore[misc]
        statuses = iter([503, 504, 200])

        def handle_request(self, _: Any) -> Any:
            status = next(self.statuses)
            return package.Response(status, stream=Stream(status))

    transport = ours.RateLimitTransport(RateLimiter(clock=clock), Flaky())
    with package.Client(transport=transport) as client, client.stream("GET", FAR) as response:
        assert closed == [503, 504]
        assert not response.is_stream_consumed
        assert response.read() == b"body"
        assert response.extensions["paceline"].attempts == 3


@both
def test_a_transport_is_entered_left_and_closed_with_the_one_beneath(
    package: Any, ours: Any, clock: VirtualClock
) -> None:
    calls: list[str] = []

    class Inner(package.BaseTransport, package.AsyncBaseTransport):  # type: ignore[misc]
        def __getattribute__(self, name: str) -> Any:
            calls.append(name)
            return super().__getattribute__(name)

    limiter = RateLimiter(clock=clock)
    with package.Client(transport=ours.RateLimitTransport(limiter, Inner())):
        pass
    package.Client(transport=ours.RateLimitTransport(limiter, Inner())).close()

    async def main() -> None:
        transport = ours.AsyncRateLimitTransport(limiter, Inner())
        async with package.AsyncClient(transport=transport):
            pass
        await package.AsyncClient(transport=transport).aclose()

    asyncio.run(main())
    blocking = ["__enter__", "__exit__", "close", "close"]
    assert calls == [*blocking, "__aenter__", "__aexit__", "aclose", "aclose"]


@pytest.fixture(scope="module")
def http2(tmp_path_factory: pytest.TempPathFactory) -> Generator[tuple[str, ssl.SSLContext]]:
    """Serve HTTP/2 with a certificate of our own."""
    authority = trustme.CA()
    path: Path = tmp_path_factory.mktemp("http2")
    issued = authority.issue_cert("localhost")
    issued.private_key_pem.write_to_path(path / "key.pem")
    issued.cert_chain_pems[0].write_to_path(path / "cert.pem")
    config = hypercorn.config.Config()
    config.bind = ["127.0.0.1:0"]
    config.certfile, config.keyfile = str(path / "cert.pem"), str(path / "key.pem")
    config.accesslog = config.errorlog = None
    sockets = config.create_sockets()
    port = sockets.secure_sockets[0].getsockname()[1]
    config.create_sockets = lambda: sockets  # type: ignore[method-assign] # it has them already
    stop = threading.Event()

    async def app(scope: Any, _: Any, send: Callable[..., Any]) -> None:
        if scope["type"] == "http":
            await send({"type": "http.response.start", "status": 200, "headers": []})
            peer = str(scope["client"][1]).encode()
            await send({"type": "http.response.body", "body": peer})

    async def stopped() -> None:
        await asyncio.to_thread(stop.wait)

    def serve() -> None:
        asyncio.run(hypercorn.asyncio.serve(app, config, shutdown_trigger=stopped))

    thread = threading.Thread(target=serve, daemon=True)
    thread.start()
    context = ssl.create_default_context()
    authority.configure_trust(context)
    yield f"https://localhost:{port}", context
    stop.set()
    thread.join()


@both
def test_a_wrapped_client_speaks_http2_over_one_connection(
    package: Any, ours: Any, http2: tuple[str, ssl.SSLContext], clock: VirtualClock
) -> None:
    url, context = http2
    limiter = limiter_for(url, clock)

    async def main() -> set[tuple[str, str]]:
        client = ours.wrap(package.AsyncClient(http2=True, verify=context), limiter)
        async with client:
            await client.get(url)
            answers = await asyncio.gather(*(client.get(f"{url}/{n}") for n in range(20)))
        return {(answer.http_version, answer.text) for answer in answers}

    ((version, _),) = asyncio.run(main())
    assert version == "HTTP/2"
    assert used(limiter, url) == 21
    with ours.wrap(package.Client(http2=True, verify=context), limiter) as client:
        assert client.get(url).http_version == "HTTP/2"


@both
@pytest.mark.parametrize("kind", [RateLimiter, AsyncRateLimiter])
def test_one_limiter_paces_clients_of_both_colours(
    package: Any, ours: Any, kind: Any, server: Server, clock: VirtualClock
) -> None:
    limiter = kind(clock=clock)
    limiter.set_limit(server.url, limit=100, window="1d")
    with package.Client(transport=ours.RateLimitTransport(limiter)) as client:
        client.get(server.url)

    async def main() -> None:
        transport = ours.AsyncRateLimitTransport(limiter)
        async with package.AsyncClient(transport=transport) as client:
            await client.get(server.url)

    asyncio.run(main())
    assert used(limiter, server.url) == 2


def test_arequest_httpx_names_what_it_expects() -> None:
    async def main(client: Any) -> None:
        with pytest.raises(TypeError, match="expected an AsyncClient of httpx or httpx2"):
            await AsyncRateLimiter().arequest_httpx(client, "GET", FAR)

    asyncio.run(main(requests.Session()))
    with httpx.Client() as client:
        asyncio.run(main(client))


def test_a_session_of_aiohttp_keeps_its_middlewares_and_is_paced_once(
    server: Server, clock: VirtualClock
) -> None:
    limiter = AsyncRateLimiter(clock=clock)
    limiter.set_limit(server.url, limit=100, window="1d")

    async def sign(request: aiohttp.ClientRequest, handler: Any) -> aiohttp.ClientResponse:
        request.headers["X-Signed"] = "yes"
        response: aiohttp.ClientResponse = await handler(request)
        return response

    async def main() -> None:
        ours = paceline.aiohttp.RateLimitMiddleware(limiter)
        both: list[list[Any]] = [[sign], [sign, ours]]
        for middlewares in both:
            async with aiohttp.ClientSession(middlewares=middlewares) as session:
                (await limiter.arequest_aiohttp(session, "GET", server.url)).release()

    asyncio.run(main())
    assert [seen.get("x-signed") for seen in server.headers] == ["yes", "yes"]
    assert used(limiter, server.url) == 2


def test_a_wrapped_session_of_requests_keeps_its_proxy_and_its_connections(
    server: Server, clock: VirtualClock
) -> None:
    limiter = limiter_for(FAR, clock)
    with limiter.wrap_session(requests.Session()) as session:
        session.proxies = {"http": server.url}
        assert [session.get(FAR).status_code for _ in range(3)] == [200] * 3
    assert [path for _, path, _ in server.seen] == [FAR] * 3
    assert server.connections == 1
    assert used(limiter, FAR) == 3
