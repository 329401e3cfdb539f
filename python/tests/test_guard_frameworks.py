"""Frameworks that stand on a guarded SDK are guarded; seams of their own take a limiter."""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
from pathlib import Path
from typing import TYPE_CHECKING, Any

import paceline
import pytest
from langchain_core.language_models import FakeListChatModel
from langchain_openai import ChatOpenAI, OpenAIEmbeddings
from llama_index.core.embeddings import MockEmbedding
from llama_index.core.llms import ChatMessage, MockLLM
from paceline.langchain import LangChainRateLimiter
from paceline.llama_index import LlamaIndexRateLimiter
from paceline.testing import VirtualClock
from pydantic import SecretStr

if TYPE_CHECKING:
    from conftest import Server

KEY = SecretStr("none")
TESTS = Path(__file__).resolve().parent
#: What has frameworks that take other versions of SDKs than the tests here.
PYTHON = TESTS.parents[1] / "target" / "frameworks" / "bin" / "python"


@pytest.fixture
def guard() -> paceline.Guard:
    return paceline.Guard()


def test_langchain_is_guarded_by_the_sdk_beneath(sandbox: str, guard: paceline.Guard) -> None:
    options: dict[str, Any] = {"base_url": f"{sandbox}/v1", "api_key": KEY}
    model = ChatOpenAI(model="gpt-4o", **options)
    embeddings = OpenAIEmbeddings(model="e", check_embedding_ctx_length=False, **options)
    with guard:
        assert model.invoke("Hello!").content
        assert len(list(model.stream("Hello!"))) > 1
        assert embeddings.embed_query("Hello!")
        assert asyncio.run(model.ainvoke("Hello!")).content
    sent = {name: it.sent for name, it in guard.stats.items()}
    assert sent == {"127.0.0.1:gpt-4o": 3, "127.0.0.1:e": 1}


def test_what_may_not_wait_reaches_a_user_of_langchain_bare(sandbox: str) -> None:
    guard = paceline.Guard(on_rate_limit="raise")
    guard.set_rate_limit("gpt-4o", requests_per_minute=1)
    model = ChatOpenAI(model="gpt-4o", base_url=f"{sandbox}/v1", api_key=KEY)
    with guard:
        model.invoke("Hello!")
        with pytest.raises(paceline.RateLimited):
            model.invoke("Hello!")


# What it imports warns of things of its own.
@pytest.mark.filterwarnings("default")
def test_litellm_is_guarded_by_the_sdk_beneath_and_wraps_what_may_not_wait(
    sandbox: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("LITELLM_LOCAL_MODEL_COST_MAP", "True")
    import litellm  # noqa: PLC0415
    from litellm.exceptions import InternalServerError  # noqa: PLC0415

    def ask() -> Any:
        return litellm.completion(
            model="openai/gpt-4o",
            messages=[{"role": "user", "content": "Hello!"}],
            api_base=f"{sandbox}/v1",
            api_key="none",
        )

    guard = paceline.Guard(on_rate_limit="raise")
    guard.set_rate_limit("gpt-4o", requests_per_minute=1)
    with guard:
        assert ask().choices
        with pytest.raises(InternalServerError) as raised:
            ask()
    assert guard.stats["127.0.0.1:gpt-4o"].sent == 1
    beneath: BaseException | None = raised.value
    while beneath is not None and not isinstance(beneath, paceline.RateLimited):
        beneath = beneath.__context__
    assert beneath is not None


def test_langchain_s_own_seam_takes_a_limiter() -> None:
    clock = VirtualClock()
    limiter = paceline.RateLimiter(clock=clock)
    limiter.set_limit("internal:llama-3", limit=60, window="1m", burst=1)
    limited = LangChainRateLimiter(limiter, "internal:llama-3")
    model = FakeListChatModel(responses=["hi"], rate_limiter=limited)
    for _ in range(3):
        assert model.invoke("Hello!").content == "hi"
    assert clock.now == pytest.approx(2.0)
    assert not limited.acquire(blocking=False)
    assert not asyncio.run(limited.aacquire(blocking=False))
    assert asyncio.run(limited.aacquire())
    assert clock.now == pytest.approx(3.0)


def structured(_path: str, _body: bytes) -> tuple[str, bytes]:
    """Answer a chat as one does that was asked for JSON."""
    message = {"role": "assistant", "content": '{"name": "Ada"}'}
    answer = {
        "id": "1",
        "object": "chat.completion",
        "created": 1,
        "model": "gpt-4o",
        "choices": [{"index": 0, "finish_reason": "stop", "message": message}],
        "usage": {"prompt_tokens": 5, "completion_tokens": 2, "total_tokens": 7},
    }
    return "application/json", json.dumps(answer).encode()


def test_frameworks_are_guarded_by_the_sdk_beneath(sandbox: str, server: Server) -> None:
    assert PYTHON.exists(), "they are not installed: run make test"
    server.respond = structured
    server.script = [(500, {"retry-after-ms": "1"}), (200, {})] * 5
    ran = subprocess.run(
        [PYTHON, TESTS / "frameworks.py", sandbox, server.url],
        env=os.environ | {"PYTHONPATH": str(TESTS.parent)},
        stdout=subprocess.PIPE,
        check=True,
        text=True,
    )
    became = json.loads(ran.stdout)
    assert became["openai"].startswith("2.")
    told = became["told"]
    # An answer that is not what was asked for is asked for once more, and that takes a permit, too.
    # What may not wait is wrapped there as any error is.
    for kind in ("structured", "structured async"):
        assert told["instructor"].pop(kind) == [
            "InstructorRetryException from ValidationError",
            "InstructorRetryException from RateLimited",
            3,
            3,
        ]
    kinds = {name: list(calls) for name, calls in told.items()}
    answered_then_refused = ["answered", "RateLimited", 2, 2]
    assert told == {name: dict.fromkeys(it, answered_then_refused) for name, it in kinds.items()}
    of_apis = {name: {kind.partition(" ")[0] for kind in it} for name, it in kinds.items()}
    assert of_apis == {
        "llama_index": {"chat", "embed"},
        "openai_agents": {"chat", "responses"},
        "pydantic_ai": {"chat", "responses", "messages", "embed"},
        "instructor": {"chat", "messages"},
    }
    # What the SDK beneath tries again takes another permit.
    tried_again = {"chat": ["answered", 2]}
    assert became["again"] == {
        "llama_index": tried_again,
        "openai_agents": tried_again,
        "pydantic_ai": tried_again,
        "instructor": tried_again | {"structured": ["answered", 2]},
    }
    assert len(server.seen) == 10


def test_llama_index_s_own_seam_takes_a_limiter() -> None:
    clock = VirtualClock()
    limiter = paceline.RateLimiter(clock=clock)
    limiter.set_limit("internal:llama-3", limit=60, window="1m", burst=1)
    limited = LlamaIndexRateLimiter(limiter, "internal:llama-3")
    model, embedding = MockLLM(), MockEmbedding(embed_dim=2, embed_batch_size=2)
    model.rate_limiter = embedding.rate_limiter = limited
    assert model.complete("Hello!").text == "Hello!"
    assert list(model.stream_complete("Hello!"))
    assert clock.now == pytest.approx(1.0)
    # Two batches.
    assert len(embedding.get_text_embedding_batch(["a", "b", "c"])) == 3
    assert clock.now == pytest.approx(3.0)
    assert asyncio.run(embedding.aget_query_embedding("a"))
    assert clock.now == pytest.approx(4.0)
    # A chat of this model is a completion, and LlamaIndex asks for both.
    assert model.chat([ChatMessage(content="Hello!")]).message.content
    assert clock.now == pytest.approx(6.0)


def test_llama_index_s_seam_counts_tokens_that_it_is_told() -> None:
    clock = VirtualClock()
    limiter = paceline.RateLimiter(clock=clock)
    limiter.set_limit("internal:llama-3", limit=60, window="1m", dimension="tokens", burst=10)
    limited = LlamaIndexRateLimiter(limiter, "internal:llama-3")
    limited.acquire(10)
    limited.acquire()
    assert clock.now == 0.0
    asyncio.run(limited.async_acquire(10))
    assert clock.now == pytest.approx(10.0)


def test_llama_index_s_user_is_told_what_may_not_wait() -> None:
    limiter = paceline.RateLimiter(raise_on_limit=True, clock=VirtualClock())
    limiter.set_limit("internal:llama-3", limit=1, window="1m")
    model = MockLLM()
    model.rate_limiter = LlamaIndexRateLimiter(limiter, "internal:llama-3")
    model.complete("Hello!")
    with pytest.raises(paceline.RateLimitExceeded):
        model.complete("Hello!")
