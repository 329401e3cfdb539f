"""Frameworks that stand on a guarded SDK are guarded; LangChain's own seam takes a limiter."""

from __future__ import annotations

import asyncio
from typing import Any

import paceline
import pytest
from langchain_core.language_models import FakeListChatModel
from langchain_openai import ChatOpenAI, OpenAIEmbeddings
from paceline.langchain import LangChainRateLimiter
from paceline.testing import VirtualClock
from pydantic import SecretStr

KEY = SecretStr("none")


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
def test_litellm_is_guarded_by_the_sdk_beneath(
    sandbox: str, guard: paceline.Guard, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("LITELLM_LOCAL_MODEL_COST_MAP", "True")
    import litellm  # noqa: PLC0415

    with guard:
        answer = litellm.completion(
            model="openai/gpt-4o",
            messages=[{"role": "user", "content": "Hello!"}],
            api_base=f"{sandbox}/v1",
            api_key="none",
        )
    assert answer.choices
    assert guard.stats["127.0.0.1:gpt-4o"].sent == 1


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
