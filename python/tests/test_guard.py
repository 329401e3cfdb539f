"""Who is guarded, and that nothing else changes: rules 23 to 25 and 29."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import inspect
import subprocess
import sys
import threading
from typing import TYPE_CHECKING, Any

import aiohttp
import anthropic._base_client
import httpx
import httpx2
import openai._base_client
import paceline
import pytest
from models import PROMPT, Api, say
from paceline import Guard, RateLimited

if TYPE_CHECKING:
    from collections.abc import Generator

    from paceline.testing import VirtualClock

CHANGED = [
    (openai._base_client.SyncAPIClient, "request"),
    (openai._base_client.AsyncAPIClient, "request"),
    (anthropic._base_client.SyncAPIClient, "request"),
    (anthropic._base_client.AsyncAPIClient, "request"),
    (httpx2.Client, "send"),
    (httpx2.AsyncClient, "send"),
    (httpx.Client, "send"),
    (httpx.AsyncClient, "send"),
    (aiohttp.ClientSession, "_request"),
]


def attributes() -> list[Any]:
    return [vars(owner)[name] for owner, name in CHANGED]


ORIGINAL = attributes()


@pytest.fixture
def api() -> Api:
    return Api()


@pytest.fixture(autouse=True)
def _restored() -> Generator[None]:
    yield
    # Wrapped clients are guarded for as long as they live.
    gc.collect()
    paceline.uninstall()
    assert all(now is then for now, then in zip(attributes(), ORIGINAL, strict=True))


def test_rule_29_uninstall_leaves_every_attribute_as_it_was() -> None:
    for _ in range(3):
        guard = paceline.install()
        assert not any(now is then for now, then in zip(attributes(), ORIGINAL, strict=True))
        assert paceline.is_installed()
        assert paceline.uninstall() is guard
        assert not paceline.is_installed()
        assert all(now is then for now, then in zip(attributes(), ORIGINAL, strict=True))
    assert paceline.uninstall() is None


def test_rule_29_what_is_changed_looks_as_before() -> None:
    paceline.install()
    for now, then in zip(attributes(), ORIGINAL, strict=True):
        assert inspect.signature(now) == inspect.signature(then)
        assert inspect.iscoroutinefunction(now) == inspect.iscoroutinefunction(then)
        assert (now.__doc__, now.__qualname__) == (then.__doc__, then.__qualname__)


@pytest.mark.parametrize("order", ["before", "after"])
def test_rule_29_an_sdk_that_is_imported_later_is_guarded_too(order: str) -> None:
    program = f"""
import sys, paceline
if {order == "before"}:
    import openai
paceline.install()
assert {order == "before"} == ("openai" in sys.modules)
import openai, openai._base_client as base, httpx2
from paceline.llm import patches
assert hasattr(base.SyncAPIClient.request, "__wrapped__")
assert hasattr(httpx2.Client.send, "__wrapped__")
before = base.SyncAPIClient.request.__wrapped__
paceline.uninstall()
assert base.SyncAPIClient.request is before
assert not hasattr(httpx2.AsyncClient.send, "__wrapped__")
"""
    subprocess.run([sys.executable, "-c", program], check=True)


def test_rule_29_clients_made_before_and_after_count(api: Api) -> None:
    before = api.openai()
    guard = paceline.install()
    say(before)
    say(api.openai())
    assert guard.stats["openai:gpt-4o"].sent == 2
    assert paceline.get_guard() is guard
    assert paceline.stats() == guard.stats
    paceline.uninstall()
    say(before)
    assert guard.stats["openai:gpt-4o"].sent == 2


def test_rule_29_installed_again_it_is_the_same_or_the_new_one(api: Api) -> None:
    guard = paceline.install()
    assert paceline.install() is guard
    other = paceline.install(max_wait=1)
    assert other is not guard
    assert paceline.install(guard) is guard
    say(api.openai())
    assert guard.stats["openai:gpt-4o"].sent == 1, "one layer, however often"


def test_rule_29_bypass_lets_calls_through_here_only(api: Api) -> None:
    guard = paceline.install()
    client = api.openai()
    with paceline.bypass():
        assert paceline.get_guard() is None
        say(client)
        thread = threading.Thread(target=say, args=(client,))
        thread.start()
        thread.join()
    assert guard.stats["openai:gpt-4o"].sent == 1, "a thread of its own is not here"


def test_rule_29_a_block_has_a_guard_of_its_own(api: Api) -> None:
    outer, inner = Guard(), Guard()
    client = api.openai()
    with outer:
        say(client)
        with inner, paceline.bypass(), inner:
            say(client)
        say(client)
    say(client)
    assert outer.stats["openai:gpt-4o"].sent == 2
    assert inner.stats["openai:gpt-4o"].sent == 1


def test_rule_29_blocks_of_tasks_do_not_mix(api: Api) -> None:
    guards = [Guard() for _ in range(8)]

    async def work(guard: Guard) -> None:
        client = api.async_openai()
        async with guard:
            for _ in range(5):
                await say(client)
                await asyncio.sleep(0)  # noqa: TID251 - lets the others go on

    async def main() -> None:
        await asyncio.gather(*map(work, guards))

    asyncio.run(main())
    assert [it.stats["openai:gpt-4o"].sent for it in guards] == [5] * 8


def test_rule_29_one_client_can_be_wrapped(api: Api) -> None:
    guard = Guard()
    client, other = api.openai(), api.openai()
    assert guard.wrap(guard.wrap(client)) is client
    say(client)
    say(client.with_options(max_retries=0))
    say(other)
    assert guard.stats["openai:gpt-4o"].sent == 2
    assert guard.unwrap(client) is client
    say(client)
    assert guard.stats["openai:gpt-4o"].sent == 2


def test_rule_29_it_may_come_and_go_while_others_call(api: Api) -> None:
    client = api.openai()
    stop = threading.Event()
    failed: list[BaseException] = []

    def work() -> None:
        try:
            while not stop.is_set():
                say(client)
        except BaseException as error:  # noqa: BLE001 - it is looked at below
            failed.append(error)

    threads = [threading.Thread(target=work) for _ in range(4)]
    for it in threads:
        it.start()
    for _ in range(100):
        paceline.install()
        paceline.uninstall()
    stop.set()
    for it in threads:
        it.join()
    assert not failed


def test_rule_24_at_most_four_requests_for_three_retries(api: Api, clock: VirtualClock) -> None:
    guard = Guard(clock=clock)
    client = guard.wrap(api.openai(max_retries=3))
    api.script = [httpx2.Response(429, headers={"retry-after-ms": "1"})] * 9
    with pytest.raises(openai.RateLimitError):
        say(client)
    assert len(api.seen) == 4
    assert guard.stats["openai:gpt-4o"].rejected == 4


def test_rule_23_a_rejection_that_lasts_too_long_is_an_error_at_once(
    api: Api, clock: VirtualClock
) -> None:
    guard = Guard(clock=clock, max_wait=30)
    client = guard.wrap(api.openai(max_retries=3))
    api.script = [httpx2.Response(429, headers={"retry-after": "3600"})]
    with pytest.raises(RateLimited) as caught:
        say(client)
    assert caught.value.retry_after == pytest.approx(3600)
    assert len(api.seen) == 1
    assert clock.now == 0


def test_rule_25_a_spent_quota_is_not_tried_again(api: Api) -> None:
    guard = Guard()
    client = guard.wrap(api.openai(max_retries=3))
    error = {"error": {"message": "You exceeded your quota.", "code": "insufficient_quota"}}
    api.script = [httpx2.Response(429, json=error)] * 9
    with pytest.raises(openai.RateLimitError) as caught:
        say(client)
    assert caught.value.code == "insufficient_quota"
    assert len(api.seen) == 1


def test_rule_29_the_sdk_s_own_errors_come_through(api: Api) -> None:
    client = api.openai(max_retries=0)
    cases: list[tuple[int, type[openai.APIStatusError]]] = [
        (400, openai.BadRequestError),
        (401, openai.AuthenticationError),
        (404, openai.NotFoundError),
        (429, openai.RateLimitError),
        (500, openai.InternalServerError),
    ]
    for status, kind in cases:
        for guarded in (False, True):
            api.script = [httpx2.Response(status, json={"error": {"message": "m", "code": "c"}})]
            block = Guard() if guarded else contextlib.nullcontext()
            with block, pytest.raises(kind) as caught:
                say(client)
            error = caught.value
            assert (error.status_code, error.code, error.body) == (
                status,
                "c",
                {"message": "m", "code": "c"},
            )


@pytest.mark.parametrize(
    ("raised", "expected"),
    [
        (httpx2.ConnectError, openai.APIConnectionError),
        (httpx2.ReadTimeout, openai.APITimeoutError),
    ],
)
def test_what_never_left_gives_its_permit_back(
    raised: type[Exception], expected: type[Exception], clock: VirtualClock
) -> None:
    def respond(_: httpx2.Request) -> httpx2.Response:
        raise raised("on the way")

    guard = Guard(clock=clock)
    guard.set_rate_limit("*", requests_per_minute=10)
    http_client = httpx2.Client(transport=httpx2.MockTransport(respond))
    client = guard.wrap(openai.OpenAI(api_key="k", max_retries=0, http_client=http_client))
    with pytest.raises(expected):
        say(client)
    status = guard.limiter.get_status("openai:gpt-4o")
    assert status is not None
    assert status.remaining == (10 if raised is httpx2.ConnectError else 9)


def test_a_call_to_another_host_by_the_same_http_client_is_not_guarded(api: Api) -> None:
    guard = Guard()
    http_client = httpx2.Client(transport=api)
    client = guard.wrap(openai.OpenAI(api_key="k", http_client=http_client))
    http_client.post("https://elsewhere.example.com/x", json={"model": "m"})
    assert not guard.stats
    client.chat.completions.create(model="m", messages=PROMPT)
    assert guard.stats
