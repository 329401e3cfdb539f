"""Call models by frameworks, guarded: what `test_guard_frameworks.py` runs.

Takes the URLs of a sandbox and of a server that answers each call with an error first, and prints
what became of each kind of call.
"""

from __future__ import annotations

import asyncio
import inspect
import json
import logging
import sys
import urllib.request
from typing import TYPE_CHECKING, Any

import paceline

paceline.install()

# After the guard, on purpose.
import agents  # noqa: E402
import anthropic  # noqa: E402
import instructor  # noqa: E402
import openai  # noqa: E402
import pydantic  # noqa: E402
import pydantic_ai  # noqa: E402
from llama_index.core.llms import ChatMessage  # noqa: E402
from llama_index.embeddings.openai import OpenAIEmbedding  # noqa: E402
from llama_index.llms.openai import OpenAI as LlamaIndexOpenAI  # noqa: E402
from pydantic_ai.embeddings.openai import OpenAIEmbeddingModel  # noqa: E402
from pydantic_ai.models.anthropic import AnthropicModel  # noqa: E402
from pydantic_ai.models.openai import OpenAIChatModel, OpenAIResponsesModel  # noqa: E402
from pydantic_ai.providers.anthropic import AnthropicProvider  # noqa: E402
from pydantic_ai.providers.openai import OpenAIProvider  # noqa: E402

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable

    #: What a framework is called by; what is asynchronous runs in one event loop.
    Calls = dict[str, Callable[[], Any]]

SANDBOX, FAILING = sys.argv[1:]
#: What is called where the first attempt fails.
AGAIN = "chat", "structured"
ASK: dict[str, Any] = {
    "model": "gpt-4o",
    "max_tokens": 16,
    "messages": [{"role": "user", "content": "Hello!"}],
}


async def read(stream: AsyncIterator[Any]) -> list[Any]:
    """Read a stream to its end."""
    return [part async for part in stream]


def of_llama_index(url: str) -> Calls:
    """Give the calls of LlamaIndex."""
    known: dict[str, Any] = {"api_base": f"{url}/v1", "api_key": "k"}
    model = LlamaIndexOpenAI(model="gpt-4o", **known)
    embedding = OpenAIEmbedding(**known)
    asked = [ChatMessage(content="Hello!")]

    async def in_a_loop() -> Any:
        return await model.achat(asked)

    async def stream_in_a_loop() -> Any:
        return await read(await model.astream_chat(asked))

    async def embed_in_a_loop() -> Any:
        return await embedding.aget_query_embedding("Hello!")

    return {
        "chat": lambda: model.complete("Hello!").text,
        "chat stream": lambda: list(model.stream_chat(asked)),
        "chat async": in_a_loop,
        "chat async stream": stream_in_a_loop,
        "embed": lambda: embedding.get_text_embedding_batch(["Hello!", "Bye!"]),
        "embed async": embed_in_a_loop,
    }


def of_openai_agents(url: str) -> Calls:
    """Give the calls of OpenAI's agents, by both of its APIs."""
    client = openai.AsyncOpenAI(base_url=f"{url}/v1", api_key="k")
    models = {
        "chat": agents.OpenAIChatCompletionsModel("gpt-4o", client),
        "responses": agents.OpenAIResponsesModel("gpt-4o", client),
    }

    def of_model(api: str) -> Calls:
        agent = agents.Agent(name="it", model=models[api])

        async def in_a_loop() -> Any:
            return (await agents.Runner.run(agent, "Hello!")).final_output

        async def stream_in_a_loop() -> Any:
            return await read(agents.Runner.run_streamed(agent, "Hello!").stream_events())

        return {
            api: lambda: agents.Runner.run_sync(agent, "Hello!").final_output,
            f"{api} async": in_a_loop,
            f"{api} async stream": stream_in_a_loop,
        }

    return of_model("chat") | of_model("responses")


def of_pydantic_ai(url: str) -> Calls:
    """Give the calls of Pydantic AI, by the APIs of two providers."""
    provider = OpenAIProvider(base_url=f"{url}/v1", api_key="k")
    claude = AnthropicProvider(base_url=url, api_key="k")
    models = {
        "chat": OpenAIChatModel("gpt-4o", provider=provider),
        "responses": OpenAIResponsesModel("gpt-4o", provider=provider),
        "messages": AnthropicModel("claude-sonnet-5", provider=claude),
    }
    embedder = pydantic_ai.Embedder(OpenAIEmbeddingModel("e", provider=provider))

    def of_model(api: str) -> Calls:
        agent = pydantic_ai.Agent(models[api])

        async def in_a_loop() -> Any:
            return (await agent.run("Hello!")).output

        async def stream_in_a_loop() -> Any:
            async with agent.run_stream("Hello!") as streamed:
                return await read(streamed.stream_text())

        return {
            api: lambda: agent.run_sync("Hello!").output,
            f"{api} stream": lambda: list(agent.run_stream_sync("Hello!").stream_text()),
            f"{api} async": in_a_loop,
            f"{api} async stream": stream_in_a_loop,
        }

    async def embed_in_a_loop() -> Any:
        return (await embedder.embed_query("Hello!")).embeddings

    return {
        **of_model("chat"),
        **of_model("responses"),
        **of_model("messages"),
        "embed": lambda: embedder.embed_documents_sync(["Hello!"]).embeddings,
        "embed async": embed_in_a_loop,
    }


class Name(pydantic.BaseModel):
    """What an answer has to be that is structured."""

    name: str


def of_instructor(url: str) -> Calls:
    """Give the calls of instructor. No answer of a sandbox is structured: it asks once more."""
    known: dict[str, Any] = {"base_url": f"{url}/v1", "api_key": "k"}
    json_mode = instructor.Mode.JSON
    gpt = instructor.from_openai(openai.OpenAI(**known), mode=json_mode)
    in_loops = instructor.from_openai(openai.AsyncOpenAI(**known), mode=json_mode)
    claude = instructor.from_anthropic(anthropic.Anthropic(base_url=url, api_key="k"))

    async def in_a_loop() -> Any:
        return await in_loops.create(response_model=None, **ASK)

    async def stream_in_a_loop() -> Any:
        return await read(await in_loops.create(response_model=None, stream=True, **ASK))

    async def structured_in_a_loop() -> Any:
        return await in_loops.create(response_model=Name, max_retries=1, **ASK)

    return {
        "chat": lambda: gpt.create(response_model=None, **ASK),
        "chat stream": lambda: list(gpt.create(response_model=None, stream=True, **ASK)),
        "chat async": in_a_loop,
        "chat async stream": stream_in_a_loop,
        "messages": lambda: claude.create(response_model=None, **ASK | {"model": "claude"}),
        "structured": lambda: gpt.create(response_model=Name, max_retries=1, **ASK),
        "structured async": structured_in_a_loop,
    }


def admitted() -> int:
    """Give how many requests the sandbox has seen."""
    with urllib.request.urlopen(f"{SANDBOX}/_sandbox") as report:  # noqa: S310 - it is HTTP
        return int(json.load(report)["admitted"])


def outcome(call: Callable[[], Any], times: int = 1) -> str:
    """Call, and tell whether there was an answer, or what was raised by reason of what."""
    try:
        for _ in range(times):
            answer = call()
            assert LOOP.run_until_complete(answer) if inspect.isawaitable(answer) else answer
    except Exception as error:  # noqa: BLE001 - it is told
        raised = type(error).__name__
        return f"{raised} from {type(error.__cause__).__name__}" if error.__cause__ else raised
    return "answered"


def sent(guard: paceline.Guard) -> int:
    """Give how many attempts took a permit and were sent."""
    return sum(it.sent for it in guard.stats.values())


def of_sandbox(call: Callable[[], Any]) -> list[Any]:
    """Call where there is room, then twice where there is room for one attempt a minute."""
    before = admitted()
    paced = paceline.install(paceline.Guard())
    once = outcome(call)
    limited = paceline.install(paceline.Guard(on_rate_limit="raise"))
    limited.set_rate_limit("*", requests_per_minute=1)
    twice = outcome(call, times=2)
    return [once, twice, sent(paced) + sent(limited), admitted() - before]


def of_failing(call: Callable[[], Any]) -> list[Any]:
    """Call where the SDK beneath has to try again."""
    guard = paceline.install(paceline.Guard())
    return [outcome(call), sent(guard)]


FRAMEWORKS = {
    "llama_index": of_llama_index,
    "openai_agents": of_openai_agents,
    "pydantic_ai": of_pydantic_ai,
    "instructor": of_instructor,
}
agents.set_tracing_disabled(disabled=True)
logging.disable()
# What frameworks run in a loop of their own choice runs in the same: it uses the same clients.
LOOP = asyncio.new_event_loop()
asyncio.set_event_loop(LOOP)
told = {
    name: {kind: of_sandbox(call) for kind, call in calls(SANDBOX).items()}
    for name, calls in FRAMEWORKS.items()
}
again = {
    name: {kind: of_failing(call) for kind, call in calls(FAILING).items() if kind in AGAIN}
    for name, calls in FRAMEWORKS.items()
}
print(json.dumps({"openai": openai.__version__, "told": told, "again": again}))  # noqa: T201
