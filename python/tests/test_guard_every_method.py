"""Every posting method of the OpenAI and Anthropic SDKs is guarded and gives the same: rule 29."""

from __future__ import annotations

import asyncio
import functools
import inspect
import json
import re
import urllib.request
from typing import TYPE_CHECKING, Any

import anthropic
import openai
import paceline
import pytest
from models import PROMPT

if TYPE_CHECKING:
    from collections.abc import Iterator

#: What a method is given for a parameter that it requires, by name; else its annotation decides.
NAMED: dict[str, Any] = {
    "messages": PROMPT,
    "model": "sandbox-1",
    "max_tokens": 8,
    "input": "Say hello.",
    "file": ("a.txt", b"text"),
    "image": ("a.png", b"picture"),
    "data": ("a.bin", b"part"),
    "video": ("a.mp4", b"video"),
    "files": [("a.txt", b"text")],
    "audio_sample": ("a.wav", b"sound"),
    "recording": ("a.wav", b"sound"),
}
#: Methods that post by way of others, or do more than that.
ELSEWHERE = re.compile(
    r"_and_poll|poll$|_and_stream|_and_wait|^stream$|^parse$|tool_runner|upload_chunks"
)


def resources(client: Any) -> Iterator[tuple[str, Any]]:
    """Give every resource of a client, by its path."""
    found = [("", client)]
    while found:
        path, it = found.pop()
        for name in sorted(dir(type(it))):
            if name.startswith(("_", "with_")):
                continue
            attribute = inspect.getattr_static(type(it), name)
            if not isinstance(attribute, (functools.cached_property, property)):
                continue
            module = type(it).__module__.partition(".")[0]
            value = getattr(it, name, None)
            if ".resources." in type(value).__module__ and type(value).__module__.startswith(
                module
            ):
                below = f"{path}.{name}".lstrip(".")
                yield below, value
                found.append((below, value))


def posting(client: Any) -> Iterator[tuple[str, str]]:
    """Give the path and name of every method that posts."""
    for path, resource in resources(client):
        for name, method in inspect.getmembers(type(resource), inspect.isfunction):
            if name.startswith("_") or ELSEWHERE.search(name):
                continue
            if "self._post(" in inspect.getsource(inspect.unwrap(method)):
                yield path, name


def arguments(method: Any) -> tuple[list[Any], dict[str, Any]]:
    """Make something up for whatever a method requires."""
    positional, named = [], {}
    for parameter in inspect.signature(method).parameters.values():
        if parameter.default is not parameter.empty or parameter.kind in {
            parameter.VAR_KEYWORD,
            parameter.VAR_POSITIONAL,
        }:
            continue
        kind = str(parameter.annotation)
        if parameter.name in NAMED:
            value = NAMED[parameter.name]
        elif re.match(r"(Iterable|List|list|Sequence|SequenceNotStr)\b", kind):
            value = []
        elif re.match(r"(int|float)\b", kind):
            value = 1
        elif kind.startswith("bool"):
            value = True
        elif re.match(r"(Union\[)?str\b|Literal", kind):
            value = "x"
        else:
            value = {}
        if parameter.kind is parameter.POSITIONAL_ONLY or parameter.name.endswith("_id"):
            if parameter.kind is parameter.KEYWORD_ONLY:
                named[parameter.name] = value
            else:
                positional.append(value)
        else:
            named[parameter.name] = value
    return positional, named


CLIENTS: dict[str, Any] = {
    "openai": lambda url: openai.OpenAI(base_url=f"{url}/v1", api_key="k", max_retries=0),
    "anthropic": lambda url: anthropic.Anthropic(base_url=url, api_key="k", max_retries=0),
}
ASYNC: dict[str, Any] = {
    "openai": lambda url: openai.AsyncOpenAI(base_url=f"{url}/v1", api_key="k", max_retries=0),
    "anthropic": lambda url: anthropic.AsyncAnthropic(base_url=url, api_key="k", max_retries=0),
}
METHODS = [
    (sdk, path, name) for sdk in CLIENTS for path, name in posting(CLIENTS[sdk]("http://localhost"))
]


def sent(url: str) -> int:
    """Give how many requests a sandbox has had."""
    with urllib.request.urlopen(f"{url}/_sandbox", timeout=5) as answer:  # noqa: S310 - ours
        report = json.load(answer)
    return int(report["admitted"] + report["refused"])


def reach(client: Any, path: str) -> Any:
    return functools.reduce(getattr, path.split("."), client) if path else client


#: What differs from call to call.
VOLATILE = re.compile(r"(_request_id|request_id|id|created|created_at|n)=[^,)}\]]*|0x[0-9a-f]+")


def plain(outcome: Any) -> tuple[str, str]:
    """Describe what a call gave, but for what differs each time."""
    if isinstance(outcome, BaseException):
        return type(outcome).__qualname__, ""
    shown = repr(outcome) if hasattr(outcome, "model_dump") else ""
    return type(outcome).__qualname__, VOLATILE.sub("", shown)


def call(client: Any, path: str, name: str, view: str) -> Any:
    target = reach(client, path)
    positional, named = arguments(getattr(type(target), name).__get__(target))
    try:
        if view == "plain":
            return getattr(target, name)(*positional, **named)
        if view == "raw":
            return getattr(target.with_raw_response, name)(*positional, **named)
        with getattr(target.with_streaming_response, name)(*positional, **named) as response:
            return response.read()
    except Exception as error:  # noqa: BLE001 - whatever the SDK makes of the answer
        return error


async def acall(client: Any, path: str, name: str, view: str) -> Any:
    target = reach(client, path)
    positional, named = arguments(getattr(type(target), name).__get__(target))
    try:
        if view == "plain":
            return await getattr(target, name)(*positional, **named)
        if view == "raw":
            return await getattr(target.with_raw_response, name)(*positional, **named)
        streamed = getattr(target.with_streaming_response, name)(*positional, **named)
        async with streamed as response:
            return await response.read()
    except Exception as error:  # noqa: BLE001 - whatever the SDK makes of the answer
        return error


def test_all_of_them_were_found() -> None:
    counts = {sdk: sum(it[0] == sdk for it in METHODS) for sdk in CLIENTS}
    assert counts["openai"] >= 60
    assert counts["anthropic"] >= 8
    for sdk, method in (
        ("openai", ("chat.completions", "create")),
        ("openai", ("embeddings", "create")),
        ("openai", ("responses", "create")),
        ("openai", ("audio.transcriptions", "create")),
        ("anthropic", ("messages", "create")),
        ("anthropic", ("messages", "count_tokens")),
    ):
        assert (sdk, *method) in METHODS


@pytest.mark.parametrize("view", ["plain", "raw", "streaming"])
@pytest.mark.parametrize("sdk", list(CLIENTS))
def test_each_attempt_takes_one_permit_and_gives_what_it_gave(
    sandbox: str, sdk: str, view: str
) -> None:
    client = CLIENTS[sdk](sandbox)
    for _, path, name in (it for it in METHODS if it[0] == sdk):
        before = sent(sandbox)
        unguarded = call(client, path, name, view)
        between = sent(sandbox)
        guard = paceline.Guard()
        with guard:
            guarded = call(client, path, name, view)
        attempts = sent(sandbox) - between
        permits = sum(it.sent for it in guard.stats.values())
        what = f"{sdk} {path}.{name}: {guarded!r}"
        assert permits == attempts == between - before, what
        assert plain(guarded) == plain(unguarded), what
    client.close()


@pytest.mark.parametrize("view", ["plain", "raw", "streaming"])
@pytest.mark.parametrize("sdk", list(CLIENTS))
def test_in_an_event_loop_too(sandbox: str, sdk: str, view: str) -> None:
    async def main() -> None:
        async with ASYNC[sdk](sandbox) as client:
            for _, path, name in (it for it in METHODS if it[0] == sdk):
                unguarded = await acall(client, path, name, view)
                between = sent(sandbox)
                guard = paceline.Guard()
                async with guard:
                    guarded = await acall(client, path, name, view)
                permits = sum(it.sent for it in guard.stats.values())
                what = f"{sdk} {path}.{name}: {guarded!r}"
                assert permits == sent(sandbox) - between, what
                assert plain(guarded) == plain(unguarded), what

    asyncio.run(main())


def test_helpers_that_stream_and_parse_are_guarded_too(sandbox: str) -> None:
    guard = paceline.Guard()
    client, claude = CLIENTS["openai"](sandbox), CLIENTS["anthropic"](sandbox)
    ask: dict[str, Any] = {"model": "m", "messages": PROMPT}
    with guard:
        assert client.chat.completions.parse(**ask).choices
        with client.chat.completions.stream(**ask) as stream:
            assert list(stream)
        assert len(list(client.chat.completions.create(**ask, stream=True))) > 1
        assert client.responses.parse(model="m", input="Hello").output
        with client.responses.stream(model="m", input="Hello") as events:
            assert list(events)
        with claude.messages.stream(max_tokens=9, **ask) as text:
            assert text.get_final_text()
    assert sum(it.sent for it in guard.stats.values()) == sent(sandbox) == 6
    client.close()
    claude.close()
