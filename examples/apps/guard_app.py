"""A web service that asks a model, on threads and in event loops.

`examples/guard_preload.py` serves it and counts.
"""

from __future__ import annotations

import asyncio
import os
from typing import TYPE_CHECKING, Any

import openai
import paceline

if TYPE_CHECKING:
    from wsgiref.types import StartResponse, WSGIEnvironment

# With `--preload` this runs once, in the parent of all workers.
paceline.install(storage="sqlite:///limits.db")
QUESTION: Any = {"model": "gpt-4o", "messages": [{"role": "user", "content": "Hello!"}]}

with openai.OpenAI() as client:  # The parent has been a user of it before its workers are forked.
    client.chat.completions.create(**QUESTION)


async def ask() -> None:
    """Ask in an event loop."""
    async with openai.AsyncOpenAI(max_retries=0) as client:
        await client.chat.completions.create(**QUESTION)


def app(environ: WSGIEnvironment, start_response: StartResponse) -> list[bytes]:
    """Ask the model, and say who did."""
    if environ["PATH_INFO"] == "/loop":
        asyncio.run(ask())
    else:
        with openai.OpenAI(max_retries=0) as client:
            client.chat.completions.create(**QUESTION)
    start_response("200 OK", [("Content-Type", "text/plain")])
    return [f"worker {os.getpid()}".encode()]
