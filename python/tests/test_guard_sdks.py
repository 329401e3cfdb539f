"""The SDKs of other providers: a permit for each call, settled for its usage: rules 27 and 29."""

from __future__ import annotations

import asyncio
import gc
import json
import warnings
from typing import TYPE_CHECKING, Any

import cohere
import groq
import ollama
import paceline
import pytest
import together
from google import genai
from mistralai.client import Mistral
from models import PROMPT

if TYPE_CHECKING:
    from collections.abc import Callable, Generator

    from conftest import Server
    from paceline.testing import VirtualClock

#: Not every client can be closed.
pytestmark = pytest.mark.filterwarnings(
    "ignore::ResourceWarning",
    "ignore::pytest.PytestUnraisableExceptionWarning",
    "ignore:Inheritance class AiohttpClientSession:DeprecationWarning",
)
USAGE = {"prompt_tokens": 5, "completion_tokens": 2, "total_tokens": 7}
CHOICE = {"index": 0, "finish_reason": "stop", "message": {"role": "assistant", "content": "Hi"}}
CHAT = {"id": "1", "object": "chat.completion", "created": 1, "model": "m", "choices": [CHOICE]}
DELTA = {"index": 0, "finish_reason": None, "delta": {"role": "assistant", "content": "Hi"}}
VECTOR = [0.1, 0.2]
CHUNK = {**CHAT, "object": "chat.completion.chunk", "choices": [DELTA]}
#: What each kind of API answers, by its path: the content type, and the body.
ANSWERS: dict[str, tuple[str, list[Any]]] = {
    "/v2/chat": (
        "json",
        [
            {
                "id": "1",
                "finish_reason": "COMPLETE",
                "message": {"role": "assistant", "content": [{"type": "text", "text": "Hi"}]},
                "usage": {"tokens": {"input_tokens": 5, "output_tokens": 2}},
            }
        ],
    ),
    ":generateContent": (
        "json",
        [
            {
                "candidates": [{"content": {"parts": [{"text": "Hi"}], "role": "model"}}],
                "usageMetadata": {"promptTokenCount": 5, "candidatesTokenCount": 2},
            }
        ],
    ),
    "/api/chat": (
        "x-ndjson",
        [
            {
                "model": "m",
                "created_at": "2030-01-01T00:00:00Z",
                "message": {"role": "assistant", "content": "Hi"},
                "done": True,
                "prompt_eval_count": 5,
                "eval_count": 2,
            }
        ],
    ),
    "/v2/embed": (
        "json",
        [
            {
                "id": "1",
                "embeddings": {"float": [VECTOR]},
                "texts": ["Hello!"],
                "response_type": "embeddings_by_type",
                "meta": {"billed_units": {"input_tokens": 5}},
            }
        ],
    ),
    "/api/embed": ("json", [{"model": "m", "embeddings": [VECTOR], "prompt_eval_count": 5}]),
    ":batchEmbedContents": ("json", [{"embeddings": [{"values": VECTOR}]}]),
    ":streamGenerateContent": (
        "event-stream",
        [
            {
                "candidates": [{"content": {"parts": [{"text": "Hi"}], "role": "model"}}],
                "usageMetadata": {"promptTokenCount": 5, "candidatesTokenCount": 2},
            }
        ],
    ),
    "/embeddings": (
        "json",
        [
            {
                "id": "1",
                "object": "list",
                "model": "m",
                "data": [{"object": "embedding", "index": 0, "embedding": VECTOR}],
                "usage": {"prompt_tokens": 5, "total_tokens": 5},
            }
        ],
    ),
    "/chat/completions": ("json", [{**CHAT, "usage": USAGE}]),
    "stream:/v2/chat": (
        "event-stream",
        [
            {"type": "content-delta", "delta": {"message": {"content": {"text": "Hi"}}}},
            {
                "type": "message-end",
                "delta": {
                    "finish_reason": "COMPLETE",
                    "usage": {"tokens": {"input_tokens": 5, "output_tokens": 2}},
                },
            },
        ],
    ),
    "stream:": ("event-stream", [CHUNK, {**CHUNK, "usage": USAGE}]),
}


def respond(path: str, body: bytes) -> tuple[str, bytes]:
    """Answer as the API would that has such a path."""
    asked = json.loads(body or b"{}")
    # Ollama's streams are lines of the same kind.
    streams = "stream:" if asked.get("stream") and not path.startswith("/api/") else ""
    named = {
        name.removeprefix(streams): it for name, it in ANSWERS.items() if name.startswith(streams)
    }
    content, parts = next(it for name, it in named.items() if name in path)
    lines = [json.dumps(part).encode() for part in parts]
    if content == "event-stream":
        # Only these APIs say so in words that it is over.
        end = [b"[DONE]"] if "choices" in parts[0] else []
        lines = [b"data: " + line + b"\n" for line in [*lines, *end]]
        content = f"text/{content}"
    else:
        content = f"application/{content}"
    return content, b"\n".join(lines) + b"\n"


@pytest.fixture
def api(server: Server) -> str:
    server.respond = respond
    return server.url


@pytest.fixture(autouse=True)
def _leave_nothing_open() -> Generator[None]:
    """Let clients that nobody closes go quietly, and now."""
    yield
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        gc.collect()


def chat(client: Any, **options: Any) -> Any:
    return client.chat.completions.create(messages=PROMPT, max_tokens=9, **options)


def ask_gemini(url: str) -> Any:
    with genai.Client(api_key="k", http_options={"base_url": url}) as client:
        return client.models.generate_content(model="gemini-a", contents="Hello!")


def stream_gemini(url: str) -> Any:
    with genai.Client(api_key="k", http_options={"base_url": url}) as client:
        return list(client.models.generate_content_stream(model="gemini-s", contents="Hello!"))


def embed_by_gemini(url: str) -> Any:
    with genai.Client(api_key="k", http_options={"base_url": url}) as client:
        return client.models.embed_content(model="gemini-e", contents="Hello!")


CALLS: dict[str, Callable[[str], Any]] = {
    "127.0.0.1:mistral-a": lambda url: Mistral(api_key="k", server_url=url).chat.complete(
        model="mistral-a", messages=PROMPT
    ),
    "127.0.0.1:mistral-s": lambda url: list(
        Mistral(api_key="k", server_url=url).chat.stream(model="mistral-s", messages=PROMPT)
    ),
    "127.0.0.1:command-a": lambda url: cohere.ClientV2(api_key="k", base_url=url).chat(
        model="command-a", messages=PROMPT
    ),
    "ollama:llama3:8b": lambda url: ollama.Client(host=url).chat("llama3:8b", messages=PROMPT),
    "ollama:llama-s": lambda url: list(
        ollama.Client(host=url).chat("llama-s", messages=PROMPT, stream=True)
    ),
    "127.0.0.1:groq-a": lambda url: chat(groq.Groq(api_key="k", base_url=url), model="groq-a"),
    "127.0.0.1:groq-s": lambda url: list(
        chat(groq.Groq(api_key="k", base_url=url), model="groq-s", stream=True)
    ),
    "127.0.0.1:tog-a": lambda url: chat(
        together.Together(api_key="k", base_url=url), model="tog-a"
    ),
    "127.0.0.1:gemini-a": ask_gemini,
    "127.0.0.1:gemini-s": stream_gemini,
    "127.0.0.1:command-s": lambda url: list(
        cohere.ClientV2(api_key="k", base_url=url).chat_stream(model="command-s", messages=PROMPT)
    ),
    "127.0.0.1:tog-s": lambda url: list(
        chat(together.Together(api_key="k", base_url=url), model="tog-s", stream=True)
    ),
}
#: What takes no tokens for an answer.
EMBEDDINGS: dict[str, Callable[[str], Any]] = {
    "127.0.0.1:mistral-e": lambda url: Mistral(api_key="k", server_url=url).embeddings.create(
        model="mistral-e", inputs=["Hello!"]
    ),
    "127.0.0.1:embed-e": lambda url: cohere.ClientV2(api_key="k", base_url=url).embed(
        model="embed-e", texts=["Hello!"], input_type="search_document", embedding_types=["float"]
    ),
    "ollama:nomic": lambda url: ollama.Client(host=url).embed("nomic", "Hello!"),
    "127.0.0.1:groq-e": lambda url: groq.Groq(api_key="k", base_url=url).embeddings.create(
        model="groq-e", input="Hello!"
    ),
    "127.0.0.1:tog-e": lambda url: together.Together(api_key="k", base_url=url).embeddings.create(
        model="tog-e", input="Hello!"
    ),
}


async def ask_ollama(url: str) -> list[Any]:
    stream: Any = await ollama.AsyncClient(host=url).chat("llama-s", messages=PROMPT, stream=True)
    return [part async for part in stream]


async def ask_gemini_in_loop(url: str) -> Any:
    """Ask by aiohttp, as it does there."""
    client = genai.Client(api_key="k", http_options={"base_url": url})
    answer = await client.aio.models.generate_content(model="gemini-a", contents="Hello!")
    await client.aio.aclose()
    return answer


ASYNC: dict[str, Callable[[str], Any]] = {
    "127.0.0.1:gemini-a": ask_gemini_in_loop,
    "127.0.0.1:mistral-a": lambda url: Mistral(api_key="k", server_url=url).chat.complete_async(
        model="mistral-a", messages=PROMPT
    ),
    "127.0.0.1:command-a": lambda url: cohere.AsyncClientV2(api_key="k", base_url=url).chat(
        model="command-a", messages=PROMPT
    ),
    "ollama:llama-s": ask_ollama,
    "127.0.0.1:groq-a": lambda url: chat(groq.AsyncGroq(api_key="k", base_url=url), model="groq-a"),
    "127.0.0.1:tog-a": lambda url: chat(
        together.AsyncTogether(api_key="k", base_url=url), model="tog-a"
    ),
}


def check(guard: paceline.Guard, name: str, server: Server) -> None:
    stats = guard.stats[name]
    assert stats.sent == len(server.seen) == 1
    assert (stats.input_tokens, stats.output_tokens) == (5, 2)


@pytest.mark.parametrize("name", list(CALLS))
def test_a_call_takes_a_permit_and_settles(api: str, server: Server, name: str) -> None:
    guard = paceline.Guard()
    unguarded = CALLS[name](api)
    server.seen.clear()
    with guard:
        guarded = CALLS[name](api)
    assert type(guarded) is type(unguarded)
    check(guard, name, server)


@pytest.mark.parametrize("name", list(EMBEDDINGS))
def test_embeddings_take_a_permit_and_settle(api: str, server: Server, name: str) -> None:
    guard = paceline.Guard()
    with guard:
        EMBEDDINGS[name](api)
    stats = guard.stats[name]
    assert stats.sent == len(server.seen) == 1
    assert (stats.input_tokens, stats.output_tokens) == (5, 0)


def test_embeddings_that_report_no_usage_take_a_permit_all_the_same(
    api: str, server: Server
) -> None:
    guard = paceline.Guard()
    with guard:
        embed_by_gemini(api)
    assert guard.stats["127.0.0.1:gemini-e"].sent == len(server.seen) == 1


@pytest.mark.parametrize("name", list(ASYNC))
def test_in_an_event_loop_too(api: str, server: Server, name: str) -> None:
    guard = paceline.Guard()

    async def main() -> None:
        async with guard:
            await ASYNC[name](api)

    asyncio.run(main())
    check(guard, name, server)


@pytest.mark.parametrize("name", list(CALLS))
def test_what_may_not_wait_reaches_the_caller_bare(
    api: str, server: Server, name: str, clock: VirtualClock
) -> None:
    guard = paceline.Guard(on_rate_limit="raise", clock=clock)
    guard.set_rate_limit("*", requests_per_minute=1)
    with guard:
        CALLS[name](api)
        with pytest.raises(paceline.RateLimited) as caught:
            CALLS[name](api)
    assert caught.value.scope == name
    assert len(server.seen) == 1
