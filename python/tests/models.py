"""Clients of LLM SDKs that are answered from memory, and what they were asked."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import httpx2
from anthropic import Anthropic
from openai import AsyncOpenAI, OpenAI

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Iterator

#: Any, for it suits each SDK, and each has types of its own.
PROMPT: Any = [{"role": "user", "content": "Say hello."}]


class Api(httpx2.BaseTransport, httpx2.AsyncBaseTransport):
    """An API in memory: answers with ``script``, one entry a request, and then as a model does."""

    def __init__(self, *, prompt: int = 9, answer: int = 3) -> None:
        self.prompt, self.answer = prompt, answer
        self.script: list[httpx2.Response] = []
        self.seen: list[dict[str, Any]] = []

    def respond(self, request: httpx2.Request) -> httpx2.Response:
        body = json.loads(request.content) if request.content else {}
        self.seen.append(body)
        if self.script:
            return self.script.pop(0)
        anthropic_s = request.url.path.endswith("/messages")
        make = self.message if anthropic_s else self.completion
        if body.get("stream"):
            events = (self.message_events if anthropic_s else self.completion_events)(body)
            headers = {"content-type": "text/event-stream"}
            return httpx2.Response(200, headers=headers, stream=Parts(events))
        return httpx2.Response(200, json=make(body))

    def completion(self, body: dict[str, Any]) -> dict[str, Any]:
        message = {"role": "assistant", "content": "Hello!"}
        choice = {"index": 0, "finish_reason": "stop", "message": message}
        return {
            "id": "c-1",
            "object": "chat.completion",
            "created": 1,
            "model": body["model"],
            "choices": [choice],
            "usage": self.usage(),
        }

    def usage(self) -> dict[str, int]:
        total = self.prompt + self.answer
        return {
            "prompt_tokens": self.prompt,
            "completion_tokens": self.answer,
            "total_tokens": total,
        }

    def completion_events(self, body: dict[str, Any]) -> list[bytes]:
        head = {"id": "c-1", "object": "chat.completion.chunk", "created": 1, "model": "m"}
        delta = {"index": 0, "finish_reason": None, "delta": {"content": "Hello"}}
        events = [{**head, "choices": [delta]}] * self.answer
        if (body.get("stream_options") or {}).get("include_usage"):
            events.append({**head, "choices": [], "usage": self.usage()})
        lines = [f"data: {json.dumps(event)}\n\n".encode() for event in events]
        return [*lines, b"data: [DONE]\n\n"]

    def message(self, body: dict[str, Any]) -> dict[str, Any]:
        return {
            "id": "m-1",
            "type": "message",
            "role": "assistant",
            "model": body["model"],
            "content": [{"type": "text", "text": "Hello!"}],
            "stop_reason": "end_turn",
            "stop_sequence": None,
            "usage": {"input_tokens": self.prompt, "output_tokens": self.answer},
        }

    def message_events(self, body: dict[str, Any]) -> list[bytes]:
        start = self.message(body) | {"content": [], "stop_reason": None}
        start["usage"] = {"input_tokens": self.prompt, "output_tokens": 1}
        text = {"type": "content_block_delta", "index": 0}
        end = {"stop_reason": "end_turn", "stop_sequence": None}
        events: list[dict[str, Any]] = [
            {"type": "message_start", "message": start},
            {
                "type": "content_block_start",
                "index": 0,
                "content_block": {"type": "text", "text": ""},
            },
            *[{**text, "delta": {"type": "text_delta", "text": "Hello"}}] * self.answer,
            {"type": "content_block_stop", "index": 0},
            {"type": "message_delta", "delta": end, "usage": {"output_tokens": self.answer}},
            {"type": "message_stop"},
        ]
        return [f"event: {it['type']}\ndata: {json.dumps(it)}\n\n".encode() for it in events]

    def handle_request(self, request: httpx2.Request) -> httpx2.Response:
        return self.respond(request)

    async def handle_async_request(self, request: httpx2.Request) -> httpx2.Response:
        return self.respond(request)

    def openai(self, **options: Any) -> OpenAI:
        options.setdefault("api_key", "sk-test")
        return OpenAI(http_client=httpx2.Client(transport=self), **options)

    def async_openai(self, **options: Any) -> AsyncOpenAI:
        options.setdefault("api_key", "sk-test")
        return AsyncOpenAI(http_client=httpx2.AsyncClient(transport=self), **options)

    def anthropic(self, **options: Any) -> Anthropic:
        options.setdefault("api_key", "sk-test")
        return Anthropic(http_client=httpx2.Client(transport=self), **options)


class Parts(httpx2.SyncByteStream, httpx2.AsyncByteStream):
    """A body that comes in parts; ``before`` is called before each."""

    def __init__(self, parts: list[bytes], before: Callable[[int], None] | None = None) -> None:
        self.parts, self.before = parts, before

    def __iter__(self) -> Iterator[bytes]:
        for number, part in enumerate(self.parts):
            if self.before is not None:
                self.before(number)
            yield part

    async def __aiter__(self) -> AsyncIterator[bytes]:
        for part in self:
            yield part


def say(client: OpenAI | AsyncOpenAI, model: str = "gpt-4o", **options: Any) -> Any:
    """Ask a model for an answer of 16 tokens at most."""
    options = {"max_tokens": 16, **options}
    return client.chat.completions.create(model=model, messages=PROMPT, **options)
