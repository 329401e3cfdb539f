"""Answers that come bit by bit settle however they end; nothing else of them changes: rule 27."""

from __future__ import annotations

import asyncio
import gc
import gzip
import json
from typing import TYPE_CHECKING, Any

import httpx2
import openai
import pytest
from models import PROMPT, Api, Parts, say
from paceline import Guard

if TYPE_CHECKING:
    from collections.abc import Callable

    from paceline.testing import VirtualClock

#: What a call reserves: a short prompt, and an answer of so many tokens at most.
RESERVED = 4_096
LIMIT = 100_000


@pytest.fixture
def api() -> Api:
    return Api(prompt=9, answer=30)


@pytest.fixture
def guard(clock: VirtualClock) -> Guard:
    guard = Guard(clock=clock)
    guard.set_rate_limit("*", tokens_per_minute=LIMIT)
    return guard


def used(guard: Guard, model: str = "openai:gpt-4o") -> int:
    """Give the tokens that are in use."""
    status = guard.limiter.get_status(model)
    assert status is not None
    return LIMIT - status.dimensions["tokens"].remaining


def stream(client: openai.OpenAI, **options: Any) -> openai.Stream[Any]:
    options = {"stream_options": {"include_usage": True}, **options}
    answer: openai.Stream[Any] = say(client, stream=True, max_tokens=RESERVED, **options)
    return answer


def test_read_to_its_end_it_settles_for_what_it_reports(api: Api, guard: Guard) -> None:
    client = guard.wrap(api.openai())
    events = list(stream(client))
    assert used(guard) == 9 + 30
    assert len(events) == 31
    assert guard.stats["openai:gpt-4o"].output_tokens == 30


def test_while_it_runs_all_of_it_is_reserved(api: Api, guard: Guard) -> None:
    client = guard.wrap(api.openai())
    answer = stream(client)
    next(iter(answer))
    assert used(guard) > RESERVED
    answer.close()


@pytest.mark.parametrize("leave", ["close", "forget"])
def test_left_early_it_settles_for_what_was_seen(api: Api, guard: Guard, leave: str) -> None:
    client = guard.wrap(api.openai())
    answer = stream(client)
    for _ in range(10):
        next(iter(answer))
    if leave == "close":
        answer.close()
    del answer
    gc.collect()
    assert 10 <= used(guard) < 200, "the prompt, and some ten tokens"


def test_without_a_report_it_settles_for_what_was_seen(api: Api, guard: Guard) -> None:
    client = guard.wrap(api.openai())
    list(stream(client, stream_options=openai.omit))
    assert 30 <= used(guard) < 200


def broken(number: int) -> None:
    if number == 5:
        raise httpx2.ReadError("the connection broke")


def test_broken_it_settles_for_what_was_seen_and_the_error_comes_through(
    api: Api, guard: Guard
) -> None:
    client = guard.wrap(api.openai(max_retries=0))
    parts = Parts(api.completion_events({}), broken)
    api.script = [httpx2.Response(200, headers={"content-type": "text/event-stream"}, stream=parts)]
    with pytest.raises((httpx2.ReadError, openai.APIConnectionError)):
        list(stream(client))
    assert 5 <= used(guard) < 100


def test_cancelled_it_settles_for_what_was_seen(api: Api, guard: Guard) -> None:
    async def main() -> None:
        client = guard.wrap(api.async_openai())
        begun = asyncio.Event()

        async def read() -> None:
            answer = await client.chat.completions.create(
                model="gpt-4o",
                messages=PROMPT,
                stream=True,
                max_tokens=RESERVED,
            )
            async for _ in answer:
                begun.set()
                await asyncio.Event().wait()

        task = asyncio.create_task(read())
        await begun.wait()
        assert used(guard) > RESERVED
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        del task
        gc.collect()
        await asyncio.get_running_loop().shutdown_asyncgens()
        assert used(guard) < 200

    asyncio.run(main())


def test_in_an_event_loop_it_settles_for_what_it_reports(api: Api, guard: Guard) -> None:
    async def main() -> None:
        client = guard.wrap(api.async_openai())
        answer = await client.chat.completions.create(
            model="gpt-4o",
            messages=PROMPT,
            stream=True,
            max_tokens=RESERVED,
            stream_options={"include_usage": True},
        )
        assert len([event async for event in answer]) == 31

    asyncio.run(main())
    assert used(guard) == 9 + 30


def test_anthropic_s_stream_settles_for_prompt_and_answer(api: Api, guard: Guard) -> None:
    client = guard.wrap(api.anthropic())
    with client.messages.stream(
        model="claude",
        max_tokens=RESERVED,
        messages=PROMPT,
    ) as answer:
        text = "".join(answer.text_stream)
    assert text == "Hello" * 30
    assert used(guard, "anthropic:claude") == 9 + 30


@pytest.mark.parametrize("compress", [gzip.compress, None])
def test_a_raw_response_is_read_along_compressed_or_not(
    api: Api, guard: Guard, compress: Callable[[bytes], bytes] | None
) -> None:
    client = guard.wrap(api.openai())
    body = json.dumps(api.completion({"model": "gpt-4o"})).encode()
    headers = {"content-type": "application/json"}
    if compress is not None:
        body, headers = compress(body), {**headers, "content-encoding": "gzip"}
    api.script = [httpx2.Response(200, headers=headers, stream=Parts([body[:20], body[20:]]))]
    raw = client.chat.completions.with_streaming_response
    with raw.create(model="gpt-4o", messages=PROMPT, max_tokens=RESERVED) as response:
        assert json.loads(response.read())["id"] == "c-1"
    assert used(guard) == 9 + 30


def test_what_is_no_text_keeps_its_estimate_and_its_bytes(api: Api, guard: Guard) -> None:
    client = guard.wrap(api.openai())
    sound = bytes(range(256)) * 100
    headers = {"content-type": "audio/mpeg"}
    api.script = [httpx2.Response(200, headers=headers, stream=Parts([sound]))]
    speech = client.audio.speech.create(model="tts-1", voice="alloy", input="Hello!")
    assert speech.read() == sound
    assert "openai:tts-1" in guard.stats


def test_nothing_is_held_back_until_the_stream_has_ended(api: Api, guard: Guard) -> None:
    sent: list[int] = []
    client = guard.wrap(api.openai())
    parts = Parts(api.completion_events({}), sent.append)
    api.script = [httpx2.Response(200, headers={"content-type": "text/event-stream"}, stream=parts)]
    answer = iter(stream(client))
    next(answer)
    assert len(sent) <= 2, "what the decoder needs, and no more"
    list(answer)
