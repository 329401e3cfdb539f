"""Call the SDKs of the majors before, guarded: what `test_guard_previous.py` runs.

Takes the URL of a sandbox, and prints what was sent.
"""

from __future__ import annotations

import asyncio
import json
import sys
from importlib.metadata import version
from typing import Any

import paceline

guard = paceline.install()

import anthropic  # noqa: E402 - after the guard, on purpose
import httpx  # noqa: E402
import openai  # noqa: E402

URL = sys.argv[1]
ASK: dict[str, Any] = {"model": "gpt-4o", "messages": [{"role": "user", "content": "Hello!"}]}
sent = httpx.Client.send


async def in_a_loop() -> None:
    """Call, and stream, in an event loop."""
    async with openai.AsyncOpenAI(base_url=f"{URL}/v1", api_key="k") as client:
        await client.chat.completions.create(**ASK)
        stream = await client.chat.completions.create(**ASK, stream=True)
        assert [event async for event in stream]


with openai.OpenAI(base_url=f"{URL}/v1", api_key="k", max_retries=2) as client:
    client.chat.completions.create(**ASK)
    assert list(client.chat.completions.create(**ASK, stream=True))
    client.embeddings.create(model="e", input="Hello!")
    asyncio.run(in_a_loop())
    limited = paceline.Guard(on_rate_limit="raise")
    limited.set_rate_limit("once", requests_per_minute=1)
    refused = False
    with limited:
        client.chat.completions.create(**ASK | {"model": "once"})
        try:
            client.chat.completions.create(**ASK | {"model": "once"})
        except paceline.RateLimited:
            refused = True

with anthropic.Anthropic(base_url=URL, api_key="k") as claude:
    claude.messages.create(max_tokens=9, **ASK | {"model": "claude"})
    with claude.messages.stream(max_tokens=9, **ASK | {"model": "claude"}) as text:
        assert text.get_final_text()

stats = {name.partition(":")[2]: it.sent for name, it in guard.stats.items()}
paceline.uninstall()
told = {
    "versions": [version("openai"), version("anthropic")],
    "sent": stats,
    "refused": refused,
    "restored": httpx.Client.send is not sent and not hasattr(httpx.Client.send, "__wrapped__"),
}
print(json.dumps(told))  # noqa: T201
