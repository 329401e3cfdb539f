"""One budget for many callers, and nothing of what they say anywhere: rules 17 and 27."""

from __future__ import annotations

import asyncio
import logging
import sqlite3
import threading
import traceback
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any

import httpx2
import openai
import pytest
from models import Api, say
from paceline import Guard, RateLimited
from paceline.llm.sdks import SDKS
from servers import RedisServer

if TYPE_CHECKING:
    from collections.abc import Generator
    from pathlib import Path

    from openai import AsyncOpenAI, OpenAI


@pytest.fixture(params=["memory", "sqlite", "redis"])
def storage(request: pytest.FixtureRequest, tmp_path: Path) -> Generator[str]:
    if request.param == "redis":
        with RedisServer() as server:
            yield f"{server.url}/0"
    else:
        yield "memory" if request.param == "memory" else f"sqlite:///{tmp_path}/limits.db"


def budgeted(storage: str, **options: Any) -> Guard:
    """Make a guard that has one dollar a day, for calls of a cent each."""
    guard = Guard(storage=storage, **options)
    guard.set_rate_limit("*")
    guard.set_price("gpt-4o", input=0, output=1_000)
    guard.set_budget("*", usd=1)
    return guard


def went(client: OpenAI) -> bool:
    """Call once; tell whether that was admitted."""
    try:
        say(client)
    except RateLimited:
        return False
    return True


async def went_in_loop(client: AsyncOpenAI) -> bool:
    try:
        await say(client)
    except RateLimited:
        return False
    return True


def test_1000_concurrent_calls_spend_at_most_the_budget(storage: str) -> None:
    guard = budgeted(storage)
    # Each reserves 16 tenths of a cent, and takes a cent in the end.
    api = Api(prompt=0, answer=10)
    client = guard.wrap(api.openai())
    with ThreadPoolExecutor(32) as pool:
        admitted = sum(pool.map(lambda _: went(client), range(1_000)))
    assert admitted == len(api.seen)
    # The last ones need more than they take: what is left is less than one reserves.
    assert 99 <= admitted <= 100
    assert guard.stats["openai:gpt-4o"].usd <= 1.0


def test_1000_concurrent_tasks_do_too(storage: str) -> None:
    guard = budgeted(storage)
    api = Api(prompt=0, answer=10)

    async def main() -> int:
        client = guard.wrap(api.async_openai())
        return sum(await asyncio.gather(*[went_in_loop(client) for _ in range(1_000)]))

    assert asyncio.run(main()) == len(api.seen)
    assert 60 <= len(api.seen) <= 100, "all reserve before the first has settled"


def test_a_budget_survives_a_restart(tmp_path: Path) -> None:
    storage = f"sqlite:///{tmp_path}/limits.db"
    api = Api(prompt=0, answer=10)
    admitted = 0
    for _ in range(2):
        guard = budgeted(storage)
        client = guard.wrap(api.openai())
        admitted += sum(went(client) for _ in range(60))
        guard.limiter.flush()
    assert 99 <= admitted <= 100


#: What nobody but the API may read.
SECRETS = ("sk-5ecret", "xyzzy prompt", "plugh answer", "frobozz header")


class Rude(Api):
    """Says secrets back, also in errors."""

    def completion(self, body: dict[str, Any]) -> dict[str, Any]:
        answer = super().completion(body)
        answer["choices"][0]["message"]["content"] = SECRETS[2]
        return answer


def test_rule_17_no_prompt_key_or_header_is_in_any_log_error_key_or_repr(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG, logger="paceline")
    file = tmp_path / "limits.db"
    guard = Guard(
        storage=f"sqlite:///{file}", on_rate_limit="raise", by_credential=True, account="team"
    )
    guard.set_rate_limit("gpt-4o", requests_per_minute=2, tokens_per_minute=100_000)
    api = Rude()
    headers = {"x-custom": SECRETS[3], "OpenAI-Organization": SECRETS[3]}
    client = guard.wrap(api.openai(api_key=SECRETS[0], default_headers=headers, max_retries=0))
    messages: Any = [{"role": "user", "content": SECRETS[1]}]
    said: list[str] = []

    def call() -> Any:
        return client.chat.completions.create(model="gpt-4o", messages=messages, user=SECRETS[3])

    response = call()
    assert SECRETS[2] in str(response), "they are there, where they belong"
    api.script = [httpx2.Response(500, json={"error": {"message": SECRETS[2]}})]
    with pytest.raises(openai.InternalServerError):
        call()
    for _ in range(2):
        with pytest.raises(RateLimited) as caught:
            call()
        error = caught.value
        said += [repr(error), str(error), *traceback.format_exception_only(error)]
        said += [repr(error.__cause__), repr(error.__context__), repr(vars(error))]
    said += [repr(guard), repr(guard.stats)]
    said += [repr(guard.limiter.list_endpoints()), repr(guard.limiter.explain("openai:gpt-4o"))]
    charge = guard.charge(
        SDKS[0],
        "api.openai.com",
        "/v1/chat/completions",
        b'{"model": "gpt-4o", "messages": [{"content": "xyzzy prompt"}]}',
        None,
    )
    said += [repr(charge), repr(charge.cost), repr(charge.budgets), charge.scope]
    with guard.limiter.acquire(charge.scope, charge.cost, max_wait=100) as permit:
        said.append(repr(permit))
    guard.limiter.flush()
    with sqlite3.connect(file) as database:
        said += list(database.iterdump())
    said += [record.getMessage() for record in caplog.records]
    text = "\n".join(said)
    for secret in SECRETS:
        assert secret not in text
        assert secret.split()[-1] not in text
    for path in tmp_path.iterdir():
        for secret in SECRETS:
            assert secret.encode() not in path.read_bytes()


def test_many_loops_and_threads_share_one_guard(storage: str) -> None:
    guard = Guard(storage=storage, on_rate_limit="raise")
    guard.set_rate_limit("gpt-4o", requests_per_minute=100)
    api = Api()
    outcomes: list[bool] = []

    def loop() -> None:
        async def main() -> None:
            client = guard.wrap(api.async_openai())
            outcomes.extend([await went_in_loop(client) for _ in range(20)])

        asyncio.run(main())

    def thread() -> None:
        client = guard.wrap(api.openai())
        outcomes.extend([went(client) for _ in range(20)])

    threads = [threading.Thread(target=run) for run in (loop, thread) * 4]
    for it in threads:
        it.start()
    for it in threads:
        it.join()
    assert len(outcomes) == 160
    # While it runs, some come back.
    assert 100 <= sum(outcomes) <= 115
