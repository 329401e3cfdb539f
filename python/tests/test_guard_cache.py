"""Who asks the same is given the same answer, and no permit is taken for it: rule 28."""

from __future__ import annotations

import asyncio
import functools
import gzip
import json
import logging
import stat
import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any

import httpx2
import openai
import paceline
import pytest
import trio
from hypothesis import given, settings
from hypothesis import strategies as st
from models import PROMPT, Api, Parts, say
from paceline import Guard, Paced, RetryConfig, StorageUnavailable
from pydantic import BaseModel

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from paceline.testing import VirtualClock

SECRET = "sk-hunter2-the-secret"  # noqa: S105 - of nobody
#: For a process that finds what this one does.
ENVIRONMENT = {"PYTHONPATH": ":".join(sys.path)}
EVENTS = {"content-type": "text/event-stream"}


@pytest.fixture
def api() -> Api:
    return Api(prompt=9, answer=3)


@pytest.fixture
def guard(clock: VirtualClock) -> Guard:
    return Guard(cache=True, clock=clock)


def cached(guard: Guard, model: str = "openai:gpt-4o") -> int:
    return guard.stats[model].cached


def raw(client: openai.OpenAI, **options: Any) -> httpx2.Response:
    """Ask where only the sending is seen, and give the HTTP response."""
    options = {"model": "gpt-4o", "messages": PROMPT, **options}
    response: httpx2.Response = client.chat.completions.with_raw_response.create(
        **options
    ).http_response
    return response


# What it saves


def test_rule_28_a_hit_takes_no_permit_no_tokens_and_no_dollars(
    api: Api, clock: VirtualClock
) -> None:
    guard = Guard(cache=True, clock=clock, on_rate_limit="raise")
    guard.set_rate_limit("*", requests_per_minute=1, tokens_per_minute=100)
    guard.set_price("gpt-4o", input=0, output=60_000)
    guard.set_budget("*", usd=1)
    client = guard.wrap(api.openai())
    first = say(client)
    assert all(say(client) == first for _ in range(5))
    assert all(raw(client, max_tokens=16).status_code == 200 for _ in range(5))
    stats = guard.stats["openai:gpt-4o"]
    assert (len(api.seen), stats.sent, stats.cached) == (1, 1, 10)
    assert (stats.input_tokens, stats.output_tokens, stats.refused) == (9, 3, 0)
    with pytest.raises(paceline.RateLimited):
        say(client, temperature=0.5)


def test_nothing_is_cached_unless_asked_for(api: Api) -> None:
    guard = Guard()
    client = guard.wrap(api.openai())
    say(client)
    say(client)
    assert len(api.seen) == 2
    assert cached(guard) == 0


def test_a_call_is_looked_up_before_the_sdk_makes_a_request_of_it(
    api: Api, guard: Guard, monkeypatch: pytest.MonkeyPatch
) -> None:
    client, later = guard.wrap(api.openai()), guard.wrap(api.async_openai())
    claude = guard.wrap(api.anthropic())
    ask: dict[str, Any] = {"model": "claude", "messages": PROMPT, "max_tokens": 16}
    before = say(client), asyncio.run(say(later)), claude.messages.create(**ask)
    for one in (client, later, claude):
        monkeypatch.setattr(type(one), "_build_request", None)
    assert (say(client), asyncio.run(say(later)), claude.messages.create(**ask)) == before


@pytest.mark.parametrize("endpoint", ["embeddings", "responses", "completions"])
def test_other_calls_are_looked_up_there_too(
    api: Api, guard: Guard, monkeypatch: pytest.MonkeyPatch, endpoint: str
) -> None:
    client = guard.wrap(api.openai())
    usage = {"prompt_tokens": 1, "total_tokens": 1, "input_tokens": 1, "output_tokens": 1}
    data = [{"object": "embedding", "index": 0, "embedding": [0.5, 1.5]}]
    body = {"id": "r-1", "object": "x", "data": data, "output": [], "choices": [], "usage": usage}
    api.script = [httpx2.Response(200, json=body)]
    ask = {"model": "m", "prompt" if endpoint == "completions" else "input": "Hello!"}
    create = getattr(client, endpoint).create
    first = create(**ask)
    monkeypatch.setattr(openai.OpenAI, "_build_request", None)
    assert create(**ask) == first
    assert type(create(**ask)) is type(first)


# What is given


def same(one: BaseModel, other: BaseModel) -> None:
    """Check that two results are equal in every way, and share nothing that can change."""
    assert one == other
    assert type(one) is type(other)
    assert one.model_fields_set == other.model_fields_set
    assert one.model_extra == other.model_extra
    assert one.to_json() == other.to_json()  # type: ignore[attr-defined]
    assert one._request_id == other._request_id  # type: ignore[attr-defined]
    for name, value in one.__dict__.items():
        theirs = other.__dict__[name]
        if isinstance(value, BaseModel):
            assert value is not theirs
        elif isinstance(value, (list, dict)):
            assert value is not theirs
            assert all(not isinstance(it, BaseModel) for it in value if it in theirs) or all(
                it is not that for it, that in zip(value, theirs, strict=True)
            )


def test_a_result_is_what_it_would_be(api: Api, guard: Guard) -> None:
    body = {**api.completion({"model": "m"}), "of_tomorrow": {"deep": [{"n": 1}]}}
    api.script = [httpx2.Response(200, json=body, headers={"x-request-id": "req-1"})]
    client = guard.wrap(api.openai())
    first = say(client)
    same(say(client), first)
    with paceline.bypass_cache():
        api.script = [httpx2.Response(200, json=body, headers={"x-request-id": "req-1"})]
        same(say(client), first)


def test_whoever_changes_a_result_changes_nobody_else_s(api: Api, guard: Guard) -> None:
    client = guard.wrap(api.openai())
    for _ in range(3):
        answer = say(client)
        assert answer.choices[0].message.content == "Hello!"
        assert answer.usage.total_tokens == 12
        answer.choices[0].message.content = "changed"
        answer.usage.total_tokens = -1
        answer.choices.clear()


def test_a_response_is_what_it_would_be(api: Api, guard: Guard) -> None:
    headers = [("X-Request-Id", "req-1"), ("Set-Cookie", "__cf_bm=1"), ("Set-Cookie", "_cfuvid=2")]
    api.script = [httpx2.Response(200, json={"ü": [1]}, headers=headers)]
    client = guard.wrap(api.openai())
    first, second = raw(client), raw(client)
    assert second.headers.raw == first.headers.raw
    for name in ("status_code", "content", "text", "encoding", "reason_phrase", "http_version"):
        assert getattr(second, name) == getattr(first, name), name
    for name in ("is_closed", "is_stream_consumed", "num_bytes_downloaded", "history"):
        assert getattr(second, name) == getattr(first, name), name
    assert second.request.url == first.request.url
    assert type(second) is type(first)
    assert second.elapsed.total_seconds() == 0
    assert first.extensions["paceline"] == Paced(0.0, "openai:gpt-4o", 1)
    assert second.extensions["paceline"] == Paced(0.0, "openai:gpt-4o", 0)


def test_parse_gives_what_it_would(api: Api, guard: Guard) -> None:
    class Greeting(BaseModel):
        hello: str

    body = api.completion({"model": "m"})
    body["choices"][0]["message"]["content"] = '{"hello": "you"}'
    api.script = [httpx2.Response(200, json=body)]
    client = guard.wrap(api.openai())
    for _ in range(2):
        answer = client.chat.completions.parse(
            model="gpt-4o", messages=PROMPT, response_format=Greeting
        )
        assert answer.choices[0].message.parsed == Greeting(hello="you")
    assert (len(api.seen), cached(guard)) == (1, 1)


@pytest.mark.parametrize("is_stream", [False, True])
def test_what_came_compressed_comes_again_with_the_same_headers(
    api: Api, guard: Guard, is_stream: bool
) -> None:
    client = guard.wrap(api.openai())
    body = b"".join(api.completion_events({})) if is_stream else json.dumps({"n": 1}).encode()
    packed = gzip.compress(body)
    kind = EVENTS if is_stream else {"content-type": "application/json"}
    headers = {**kind, "content-encoding": "gzip", "content-length": str(len(packed))}
    api.script = [httpx2.Response(200, headers=headers, stream=Parts([packed[:9], packed[9:]]))]

    def read() -> tuple[bytes, httpx2.Headers]:
        streaming = client.chat.completions.with_streaming_response
        with streaming.create(model="gpt-4o", messages=PROMPT, stream=is_stream) as response:
            return response.read(), response.headers

    assert read() == read() == (body, httpx2.Headers(headers))
    assert len(api.seen) == 1


# Streams


def parts(client: openai.OpenAI) -> list[bytes]:
    streaming = client.chat.completions.with_streaming_response
    with streaming.create(model="gpt-4o", messages=PROMPT, stream=True) as response:
        return list(response.iter_bytes())


def test_a_stream_comes_again_as_one_in_the_same_parts(api: Api, guard: Guard) -> None:
    client = guard.wrap(api.openai())
    assert parts(client) == parts(client) == api.completion_events({})
    first, second = (list(say(client, stream=True)) for _ in range(2))
    assert first == second
    assert len(api.seen) == 2, "the second asked for 16 tokens at most"
    assert cached(guard) == 2


def test_a_stream_comes_again_in_an_event_loop(api: Api, guard: Guard) -> None:
    async def main() -> None:
        client = guard.wrap(api.async_openai())
        first = [event async for event in await say(client, stream=True)]
        assert first == [event async for event in await say(client, stream=True)]
        assert len(first) == 3

    asyncio.run(main())
    assert (len(api.seen), cached(guard)) == (1, 1)


def test_anthropic_s_stream_comes_again(api: Api, guard: Guard) -> None:
    client = guard.wrap(api.anthropic())
    for _ in range(2):
        with client.messages.stream(model="claude", max_tokens=16, messages=PROMPT) as stream:
            assert stream.get_final_text() == "Hello" * 3
    assert (len(api.seen), cached(guard, "anthropic:claude")) == (1, 1)


def test_a_stream_and_none_are_two_requests(api: Api, guard: Guard) -> None:
    client = guard.wrap(api.openai())
    assert list(say(client, stream=True))
    assert say(client).usage.total_tokens == 12
    assert len(api.seen) == 2


def test_a_stream_that_was_cut_off_or_left_is_not_kept(api: Api, guard: Guard) -> None:
    client = guard.wrap(api.openai())
    events = api.completion_events({})
    api.script = [
        httpx2.Response(200, headers=EVENTS, stream=Parts(events[:-1])),
        httpx2.Response(200, headers=EVENTS, stream=Parts(events)),
        httpx2.Response(
            200, headers=EVENTS, stream=Parts([b'data: {"error": {"code": "x"}}\n\n', *events])
        ),
    ]
    assert len(list(say(client, stream=True))) == 3
    left = say(client, stream=True)
    next(iter(left))
    left.close()
    with pytest.raises(openai.APIError):
        list(say(client, stream=True))
    assert len(list(say(client, stream=True))) == 3
    assert (len(api.seen), cached(guard)) == (4, 0)


# What is kept


@pytest.mark.parametrize("status", [400, 401, 404, 429, 500, 503])
def test_errors_are_never_kept(api: Api, guard: Guard, status: int) -> None:
    client = guard.wrap(api.openai(max_retries=0))
    api.script = [httpx2.Response(status, json={"error": {"message": "no"}})]
    with pytest.raises(openai.APIStatusError):
        say(client)
    assert say(client).choices
    assert len(api.seen) == 2


def test_what_the_sdk_sends_again_is_kept_when_it_succeeds(api: Api, guard: Guard) -> None:
    client = guard.wrap(api.openai())
    api.script = [httpx2.Response(500, headers={"retry-after-ms": "1"}, json={})]
    assert say(client) == say(client)
    assert len(api.seen) == 2


def test_a_spent_quota_is_seen_as_without_a_cache(api: Api, guard: Guard) -> None:
    client = guard.wrap(api.openai())
    body = json.dumps({"error": {"code": "insufficient_quota"}}).encode()
    headers = {"content-type": "application/json"}
    api.script = [httpx2.Response(429, headers=headers, stream=Parts([body]))]
    with pytest.raises(openai.RateLimitError):
        say(client)
    assert len(api.seen) == 1


def test_bypass_cache_goes_past_it_and_is_paced(api: Api, guard: Guard) -> None:
    client = guard.wrap(api.openai())
    with paceline.bypass_cache():
        say(client)
        raw(client)
    say(client)
    assert len(api.seen) == 3, "nothing was kept"
    with paceline.bypass_cache():
        say(client)
    assert (len(api.seen), guard.stats["openai:gpt-4o"].sent, cached(guard)) == (4, 4, 0)


def test_what_does_more_than_ask_is_never_kept(guard: Guard) -> None:
    class Server(Api):
        def respond(self, _request: httpx2.Request) -> httpx2.Response:
            self.seen.append({})
            return httpx2.Response(200, json={"id": "x", "object": "x", "data": []})

    api = Server()
    client = guard.wrap(api.openai())
    calls: list[Callable[[], Any]] = [
        client.models.list,
        lambda: client.files.create(file=("a.jsonl", b"{}"), purpose="batch"),
        lambda: client.audio.transcriptions.create(file=("a.mp3", b"x"), model="whisper-1"),
        lambda: client.batches.create(
            completion_window="24h", endpoint="/v1/responses", input_file_id="f"
        ),
        lambda: client.responses.create(model="m", input="x", background=True),
        lambda: client.responses.create(model="m", input="x", conversation="c"),
    ]
    for number, call in enumerate(calls):
        for _ in range(2):
            call()
        assert len(api.seen) == 2 * (number + 1)


# What is the same


def test_whatever_changes_the_answer_is_asked_anew(api: Api, guard: Guard) -> None:
    client = api.openai(api_key="one")
    calls: list[Callable[[], Any]] = [
        functools.partial(say, client),
        lambda: say(api.openai(api_key="two")),
        lambda: say(client.with_options(api_key="three")),
        lambda: say(client.with_options(organization="o")),
        lambda: say(client.with_options(project="o")),
        lambda: say(client.with_options(base_url="https://llm.example.com/v1")),
        lambda: say(client.with_options(default_headers={"OpenAI-Beta": "x"})),
        lambda: say(client.with_options(default_query={"api-version": "1"})),
        lambda: say(client, extra_headers={"OpenAI-Beta": "y"}),
        lambda: say(client, extra_query={"a": "1"}),
        lambda: say(client, extra_body={"a": 1}),
        lambda: say(client, extra_body={"a": 1.0}),
        lambda: say(client, extra_body={"a": True}),
        lambda: say(client, model="gpt-4o-mini"),
        lambda: say(client, temperature=0),
        lambda: list(say(client, stream=True)),
    ]
    with guard:
        for number, call in enumerate(calls):
            call()
            assert len(api.seen) == number + 1, number
        for call in calls:
            call()
        assert len(api.seen) == len(calls)
        with paceline.spending(account="team-a"):
            say(client)
        assert len(api.seen) == len(calls) + 1


def test_what_is_no_part_of_the_question_is_not_asked_anew(api: Api, guard: Guard) -> None:
    client = api.openai()
    again: list[Callable[[], Any]] = [
        functools.partial(say, client),
        lambda: say(api.openai()),
        lambda: say(client.with_options(timeout=7, max_retries=1)),
        lambda: say(client, extra_headers={"Idempotency-Key": "x"}),
        lambda: say(client, extra_headers={"User-Agent": "x"}),
        lambda: say(client, extra_headers={"traceparent": "x"}),
        lambda: say(client, tools=openai.omit, timeout=7),
        lambda: raw(client, max_tokens=16),
        lambda: asyncio.run(say(api.async_openai())),
    ]
    with guard:
        for call in again * 2:
            call()
    # The second package is known by another user agent only.
    assert len(api.seen) == 1


def test_guards_of_two_accounts_share_a_file_and_no_answer(api: Api, tmp_path: Path) -> None:
    storage = f"sqlite:///{tmp_path}/cache.db"
    for account in ("team-a", "team-b", None):
        with Guard(cache=True, cache_storage=storage, account=account):
            say(api.openai())
    assert len(api.seen) == 3


def test_what_a_client_adds_later_is_not_guessed(api: Api, guard: Guard) -> None:
    def sign(request: httpx2.Request) -> None:
        request.headers["authorization"] = "Bearer another"

    hooks = httpx2.Client(transport=api, event_hooks={"request": [sign]})
    secret = httpx2.Client(transport=api, auth=("user", "secret"))
    session = httpx2.Client(transport=api, cookies={"session": "1"})
    with guard:
        for http_client in (hooks, secret):
            for _ in range(2):
                say(openai.OpenAI(api_key="sk-test", http_client=http_client))
        assert len(api.seen) == 4
        client = openai.OpenAI(api_key="sk-test", http_client=session)
        say(client), say(client)
        session.cookies["session"] = "2"
        say(client)
        session.cookies["__cf_bm"] = "volatile"
        say(client)
        assert len(api.seen) == 6


def test_a_client_of_one_s_own_making_is_looked_up_where_it_sends(api: Api, guard: Guard) -> None:
    class Signing(openai.OpenAI):
        nonce = 0

        def _prepare_request(self, request: httpx2.Request) -> None:
            self.nonce += 1
            request.headers["x-tenant"] = str(self.nonce // 2)

    client = guard.wrap(Signing(api_key="sk-test", http_client=httpx2.Client(transport=api)))
    for expected in (1, 2, 2, 3, 3):
        say(client)
        assert len(api.seen) == expected


scalars = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(),
    st.integers(min_value=2**62),
    st.floats(),
    st.text(st.characters(exclude_categories=["Cs"])),
    st.binary(),
)
values = st.recursive(
    scalars,
    lambda inner: st.one_of(
        st.lists(inner), st.lists(inner).map(tuple), st.dictionaries(st.text("abs"), inner)
    ),
    max_leaves=12,
)
_engine = Guard(cache=True).cache


def key_of(value: object) -> bytes | None:
    assert _engine is not None
    return _engine.engine.meet("test", {}, frozenset(), (), {"it": value})[0]


def spelled(value: object) -> object:
    """Give what two values have in common if and only if they are the same, types and all."""
    match value:
        case dict():
            return "dict", frozenset((name, spelled(it)) for name, it in value.items())
        case list() | tuple():
            return type(value).__name__, tuple(map(spelled, value))
    return type(value).__name__, repr(value)


@given(values, values)
@settings(max_examples=500)
def test_two_arguments_are_the_same_if_and_only_if_they_are_equal(one: Any, other: Any) -> None:
    assert key_of(one) is not None
    assert (key_of(one) == key_of(other)) == (spelled(one) == spelled(other))
    assert key_of([one, other]) != key_of([[one], other])


@given(st.dictionaries(st.text("abs"), values, min_size=2))
def test_the_order_of_a_dictionary_does_not_count(value: dict[str, Any]) -> None:
    turned = dict(reversed(value.items()))
    assert key_of(value) == key_of(turned)
    # But models answer in the order of a schema.
    assert key_of({"properties": value}) != key_of({"properties": turned})


def test_1_is_not_true_and_what_is_not_known_has_no_key() -> None:
    several: tuple[Any, ...] = (1, 1.0, True, "1", b"1", [1], (1,), None, {})
    assert len({key_of(it) for it in several}) == 9
    assert key_of(openai.omit) == key_of(openai.omit) != key_of(openai.not_given)
    loop: list[Any] = []
    loop.append(loop)
    for unknown in (object(), loop, {1: 2}, {1}, type("Text", (str,), {})("x"), "\ud800"):
        assert key_of(unknown) is None


# How long and how much


def test_an_answer_is_given_for_so_long(api: Api, clock: VirtualClock) -> None:
    guard = Guard(cache=True, cache_ttl=60, clock=clock)
    client = guard.wrap(api.openai())
    for seconds, asked in ((0, 1), (59.9, 1), (0.1, 2), (59.9, 2), (0.2, 3)):
        clock.advance(seconds)
        say(client)
        raw(client, max_tokens=16)
        assert len(api.seen) == asked


def test_a_copy_is_no_younger_than_its_answer(api: Api, clock: VirtualClock) -> None:
    guard = Guard(cache=True, cache_ttl=60, clock=clock)
    client = guard.wrap(api.openai())
    raw(client, max_tokens=16)
    clock.advance(50)
    say(client)
    clock.advance(10)
    say(client)
    assert len(api.seen) == 2


def test_it_keeps_so_many_and_forgets_the_least_used(api: Api) -> None:
    guard = Guard(cache=True, cache_size=2)
    client = guard.wrap(api.openai())
    for model in ("a", "b", "a", "c", "a", "b"):
        say(client, model=model)
        raw(client, model=model, max_tokens=16)
    assert [seen["model"] for seen in api.seen] == ["a", "b", "c", "b"]


def test_it_keeps_so_many_bytes(api: Api) -> None:
    guard = Guard(cache=True, cache_bytes=1_500)
    client = guard.wrap(api.openai())
    for model in ("a", "b", "c", "a"):
        say(client, model=model)
    assert len(api.seen) == 4


def test_clear_cache_forgets_all(api: Api, guard: Guard) -> None:
    client = guard.wrap(api.openai())
    say(client)
    guard.clear_cache()
    say(client)
    assert len(api.seen) == 2
    Guard().clear_cache()


@pytest.mark.parametrize(
    ("options", "part"),
    [
        ({"cache_ttl": 0}, "cache_ttl"),
        ({"cache_ttl": -1}, "cache_ttl"),
        ({"cache_size": 0}, "cache_size"),
        ({"cache_bytes": 0}, "cache_bytes"),
        ({"cache_storage": "redis://h"}, "sqlite:///file.db"),
        ({"cache_storage": "elsewhere"}, "elsewhere"),
        ({"cache": False, "coalesce": True}, "cache=True"),
    ],
)
def test_settings_that_make_no_sense_are_told(options: dict[str, Any], part: str) -> None:
    with pytest.raises(ValueError, match=part):
        Guard(**{"cache": True, **options})


# In a file


def test_answers_survive_a_restart_and_two_processes_share_them(api: Api, tmp_path: Path) -> None:
    program = """if True:
        import sys
        from models import Api, say
        from paceline import Guard
        api = Api()
        client = Guard(cache=True, cache_storage=sys.argv[1]).wrap(api.openai())
        say(client, model=sys.argv[2])
        list(say(client, model=sys.argv[2], stream=True))
        print(len(api.seen))
    """
    storage = f"sqlite:///{tmp_path}/cache.db"

    def run(model: str) -> int:
        command = [sys.executable, "-c", program, storage, model]
        done = subprocess.run(command, check=True, capture_output=True, env=ENVIRONMENT)
        return int(done.stdout)

    assert [run("a"), run("a"), run("b")] == [2, 0, 2]
    guard = Guard(cache=True, cache_storage=storage)
    assert say(guard.wrap(api.openai()), model="a").choices
    assert (api.seen, cached(guard, "openai:a")) == ([], 1)
    assert run("c") == 2
    say(guard.wrap(api.openai()), model="c")
    assert api.seen == []


def test_a_child_goes_on_with_the_file(tmp_path: Path) -> None:
    program = """if True:
        import os, sys
        from models import Api, say
        from paceline import Guard
        api = Api()
        client = Guard(cache=True, coalesce=True, cache_storage=sys.argv[1]).wrap(api.openai())
        say(client)
        if (child := os.fork()) == 0:
            say(client)
            say(client, model="b")
            os._exit(len(api.seen))
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 2
        say(client)
        say(client, model="b")
        assert len(api.seen) == 1
    """
    command = [sys.executable, "-c", program, f"sqlite:///{tmp_path}/cache.db"]
    subprocess.run(command, check=True, env=ENVIRONMENT)


def test_rule_17_no_key_and_no_prompt_is_in_the_file(api: Api, tmp_path: Path) -> None:
    prompt = [{"role": "user", "content": "the words of the prompt"}]
    with Guard(cache=True, cache_storage=f"sqlite:///{tmp_path}/cache.db") as guard:
        client = api.openai(api_key=SECRET, organization="our-organisation")
        for _ in range(2):
            client.chat.completions.create(model="gpt-4o", messages=prompt)  # type: ignore[arg-type]
        assert SECRET not in repr(guard) + repr(guard.stats)
        written = b"".join(file.read_bytes() for file in tmp_path.iterdir())
        assert b"Hello!" in written, "answers are stored as they are"
        for secret in (SECRET, "our-organisation", "words of the prompt"):
            assert secret.encode() not in written
        for file in tmp_path.iterdir():
            assert stat.S_IMODE(file.stat().st_mode) == 0o600


def test_a_file_that_cannot_be_used_is_told_at_once(tmp_path: Path) -> None:
    with pytest.raises(StorageUnavailable, match="nowhere"):
        Guard(cache=True, cache_storage=f"sqlite:///{tmp_path}/nowhere/cache.db")
    limits = f"sqlite:///{tmp_path}/limits.db"
    Guard(storage=limits)
    with pytest.raises(StorageUnavailable, match="a file of its own"):
        Guard(storage=limits, cache=True, cache_storage=limits)


def test_a_file_that_goes_away_is_told_once_and_calls_go_on(
    api: Api, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    directory = tmp_path / "there"
    directory.mkdir()
    guard = Guard(cache=True, cache_storage=f"sqlite:///{directory}/cache.db")
    client = guard.wrap(api.openai())
    for file in directory.iterdir():
        file.unlink()
    directory.rmdir()
    with caplog.at_level(logging.WARNING, "paceline"):
        assert all(say(client).choices for _ in range(3))
    assert len(api.seen) == 3
    assert [record.name for record in caplog.records] == ["paceline"]
    assert "go on without it" in caplog.text


# Sharing one request


async def turn_until(is_so: Callable[[], bool]) -> None:
    """Let others have their turn, once and until something is so."""
    await asyncio.sleep(0)  # noqa: TID251
    while not is_so():  # noqa: ASYNC110 - a thread may be who makes it so
        await asyncio.sleep(0)  # noqa: TID251


class Held(Api):
    """An API that answers when it is told to."""

    def __init__(self) -> None:
        super().__init__()
        self.asked = threading.Event()
        self.go = threading.Event()

    def handle_request(self, request: httpx2.Request) -> httpx2.Response:
        self.asked.set()
        assert self.go.wait(10)
        return self.respond(request)

    async def handle_async_request(self, request: httpx2.Request) -> httpx2.Response:
        self.asked.set()
        await turn_until(self.go.is_set)
        return self.respond(request)


@pytest.fixture
def sharing() -> Guard:
    return Guard(cache=True, coalesce=True, retry=RetryConfig(max_retries=0))


def waiting(guard: Guard) -> int:
    """Tell how many wait for the request that is under way."""
    assert guard.cache is not None
    assert guard.cache._flights is not None
    return sum(len(flight._calls) for flight in guard.cache._flights._flights.values())


def release(api: Held, guard: Guard, waiters: int) -> None:
    """Answer once so many wait."""
    pause = threading.Event()
    for _ in range(10_000):
        if waiting(guard) >= waiters:
            break
        pause.wait(0.001)
    assert waiting(guard) == waiters
    api.go.set()


def test_50_threads_that_ask_the_same_make_one_request(sharing: Guard) -> None:
    api = Held()
    client = sharing.wrap(api.openai())
    with ThreadPoolExecutor(50) as pool:
        calls = [pool.submit(say, client) for _ in range(50)]
        release(api, sharing, 49)
        answers = [call.result() for call in calls]
    assert all(answer == answers[0] for answer in answers)
    assert len({id(answer.choices[0]) for answer in answers}) == 50
    stats = sharing.stats["openai:gpt-4o"]
    assert (len(api.seen), stats.sent, stats.cached) == (1, 1, 49)


def test_50_tasks_that_ask_the_same_make_one_request(sharing: Guard) -> None:
    api = Held()

    async def main() -> list[Any]:
        client = sharing.wrap(api.async_openai())
        calls = [asyncio.create_task(say(client)) for _ in range(50)]
        await turn_until(lambda: waiting(sharing) >= 49)
        api.go.set()
        return await asyncio.gather(*calls)

    answers = asyncio.run(main())
    assert all(answer == answers[0] for answer in answers)
    assert (len(api.seen), cached(sharing)) == (1, 49)


def test_threads_and_tasks_share_one_request(sharing: Guard) -> None:
    api = Held()
    client = sharing.wrap(api.openai())

    async def main() -> list[Any]:
        later = sharing.wrap(api.async_openai())
        return await asyncio.gather(*(say(later) for _ in range(10)))

    with ThreadPoolExecutor(12) as pool:
        calls = [pool.submit(say, client) for _ in range(5)]
        loops = [pool.submit(asyncio.run, main()) for _ in range(2)]
        release(api, sharing, 24)
        answers = [call.result() for call in calls] + [it for loop in loops for it in loop.result()]
    assert len(answers) == 25
    assert all(answer == answers[0] for answer in answers)
    assert len(api.seen) == 1


def test_if_the_first_fails_each_goes_by_itself(sharing: Guard) -> None:
    api = Held()
    client = sharing.wrap(api.openai(max_retries=0))
    api.script = [httpx2.Response(400, json={"error": {}})]

    def attempt(_: int) -> bool:
        try:
            return bool(say(client).choices)
        except openai.BadRequestError:
            return False

    with ThreadPoolExecutor(8) as pool:
        calls = [pool.submit(attempt, number) for number in range(8)]
        release(api, sharing, 7)
        assert sum(call.result() for call in calls) == 7
    assert 2 <= len(api.seen) <= 8


def test_a_first_that_is_cancelled_takes_nobody_along(sharing: Guard) -> None:
    api = Held()

    async def main() -> None:
        client = sharing.wrap(api.async_openai())
        first = asyncio.create_task(say(client))
        await turn_until(api.asked.is_set)
        others = [asyncio.create_task(say(client)) for _ in range(9)]
        await turn_until(lambda: waiting(sharing) >= 9)
        first.cancel()
        with pytest.raises(asyncio.CancelledError):
            await first
        others[3].cancel()
        await turn_until(lambda: waiting(sharing) >= 8)
        api.go.set()
        answers = await asyncio.gather(*others, return_exceptions=True)
        assert sum(isinstance(it, asyncio.CancelledError) for it in answers) == 1
        assert sum(not isinstance(it, BaseException) for it in answers) == 8

    asyncio.run(main())
    assert len(api.seen) == 1, "the next in line has sent"


def test_tasks_of_trio_share_one_request(sharing: Guard) -> None:
    class Slow(Api):
        async def handle_async_request(self, request: httpx2.Request) -> httpx2.Response:
            while waiting(sharing) < 4:
                await trio.lowlevel.checkpoint()
            return self.respond(request)

    api = Slow()

    async def main() -> None:
        client = sharing.wrap(api.async_openai())
        async with trio.open_nursery() as nursery:
            for _ in range(5):
                nursery.start_soon(say, client)

    trio.run(main)
    assert (len(api.seen), cached(sharing)) == (1, 4)


def test_streams_go_by_themselves(sharing: Guard) -> None:
    api = Api()
    client = sharing.wrap(api.openai())
    streams = [say(client, stream=True) for _ in range(3)]
    assert [len(list(stream)) for stream in streams] == [3, 3, 3]
    assert len(api.seen) == 3
    assert len(list(say(client, stream=True))) == 3
    assert len(api.seen) == 3


def test_a_blocking_call_in_an_event_loop_waits_for_nobody(sharing: Guard) -> None:
    api = Held()

    async def main() -> None:
        first = asyncio.create_task(say(sharing.wrap(api.async_openai())))
        await turn_until(api.asked.is_set)
        # The one that is under way could not go on meanwhile.
        assert say(sharing.wrap(Api().openai())).choices
        api.go.set()
        assert (await first).choices

    asyncio.run(main())


def test_without_coalesce_each_goes_by_itself(guard: Guard) -> None:
    class Patient(Api):
        asked = 0

        async def handle_async_request(self, request: httpx2.Request) -> httpx2.Response:
            self.asked += 1
            await turn_until(lambda: self.asked == 5)
            return self.respond(request)

    api = Patient()

    async def main() -> None:
        client = guard.wrap(api.async_openai())
        await asyncio.gather(*(say(client) for _ in range(5)))

    asyncio.run(main())
    assert len(api.seen) == 5


# What is left behind


def test_uninstall_restores_exactly() -> None:
    program = """if True:
        import importlib
        import paceline
        from paceline.llm.cache import BEGINNINGS
        found = {}
        for module, methods in BEGINNINGS.items():
            if module.startswith(("anthropic", "openai")):
                module = importlib.import_module(module)
                for path in methods:
                    owner = getattr(module, path.partition(".")[0])
                    found[owner] = owner.__dict__["create"]
        assert len(found) == 12
        paceline.install(cache=True)
        assert all(owner.__dict__["create"] is not it for owner, it in found.items())
        paceline.uninstall()
        assert all(owner.__dict__["create"] is it for owner, it in found.items())
    """
    subprocess.run([sys.executable, "-c", program], check=True, env=ENVIRONMENT)


def test_a_missing_argument_is_told_as_ever(api: Api, guard: Guard) -> None:
    client = guard.wrap(api.openai())
    for _ in range(2):
        with pytest.raises(TypeError, match="messages"):
            client.chat.completions.create(model="gpt-4o")  # type: ignore[call-overload]
