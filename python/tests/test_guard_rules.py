"""Which limits a model has, and what happens when they are used up: rules 16, 21, 22, 24 and 30."""

from __future__ import annotations

import asyncio
import math
import pickle
from typing import TYPE_CHECKING

import paceline
import pytest
from models import Api, say
from paceline import Guard, RateLimited, RateLimitExceeded

if TYPE_CHECKING:
    from paceline.testing import VirtualClock


@pytest.fixture
def api() -> Api:
    return Api()


def test_60_a_minute_lets_60_through_back_to_back_and_the_61st_waits_one_second(
    api: Api, clock: VirtualClock
) -> None:
    guard = Guard(clock=clock)
    guard.set_rate_limit("gpt-4o", requests_per_minute=60)
    client = guard.wrap(api.openai())
    for _ in range(60):
        say(client)
    assert clock.now == 0
    say(client)
    assert clock.now == pytest.approx(1.0)
    assert guard.stats["openai:gpt-4o"].delayed == 1


def test_a_burst_of_its_own_holds_so_many_slots_which_come_back_at_the_rate(
    api: Api, clock: VirtualClock
) -> None:
    guard = Guard(clock=clock)
    guard.set_rate_limit("gpt-4o", requests_per_minute=60, burst=2)
    client = guard.wrap(api.openai())
    for _ in range(4):
        say(client)
    assert clock.now == pytest.approx(2.0)


def test_each_model_at_each_provider_has_a_bucket_of_its_own(api: Api, clock: VirtualClock) -> None:
    guard = Guard(clock=clock)
    guard.set_rate_limit("*", requests_per_minute=1)
    client = guard.wrap(api.openai())
    elsewhere = guard.wrap(api.openai(base_url="https://api.groq.com/openai/v1"))
    say(client, "a")
    say(client, "b")
    say(elsewhere, "a")
    assert clock.now == 0
    assert sorted(guard.limiter.list_endpoints()) == ["groq:a", "openai:a", "openai:b"]


def test_rule_21_a_wait_that_would_be_too_long_is_an_error_at_once_and_charges_nothing(
    api: Api, clock: VirtualClock
) -> None:
    guard = Guard(clock=clock, max_wait=60)
    guard.set_rate_limit("gpt-4o", requests_per_minute=1)
    client = guard.wrap(api.openai())
    say(client)
    say(client)
    assert clock.now == pytest.approx(60)
    impatient = Guard(clock=clock, max_wait=59)
    impatient.set_rate_limit("gpt-4o", requests_per_minute=1)
    impatient.wrap(client)
    say(client)
    with pytest.raises(RateLimited) as caught:
        say(client)
    assert clock.now == pytest.approx(60)
    assert caught.value.retry_after == pytest.approx(60)
    assert len(api.seen) == 3
    assert impatient.stats["openai:gpt-4o"].refused == 1


def test_rule_22_raise_never_waits_and_says_whose_call_it_was(
    api: Api, clock: VirtualClock
) -> None:
    guard = Guard(clock=clock, on_rate_limit="raise")
    guard.set_rate_limit("gpt-4o", requests_per_minute=60, burst=1)
    client = guard.wrap(api.openai(max_retries=5))
    say(client)
    with pytest.raises(RateLimited) as caught:
        say(client)
    error = caught.value
    assert (error.provider, error.model, error.dimension) == ("openai", "gpt-4o", "requests")
    assert error.scope == "openai:gpt-4o"
    assert error.retry_after == pytest.approx(1.0)
    assert isinstance(error, RateLimitExceeded)
    assert clock.now == 0
    assert len(api.seen) == 1, "the SDK did not try again"
    copy = pickle.loads(pickle.dumps(error))  # noqa: S301 - our own
    assert (copy.provider, copy.model, str(copy)) == ("openai", "gpt-4o", str(error))
    clock.advance(error.retry_after)
    say(client)


def test_rule_22_in_an_event_loop_too(api: Api, clock: VirtualClock) -> None:
    guard = Guard(clock=clock, on_rate_limit="raise")
    guard.set_rate_limit("gpt-4o", requests_per_minute=1)

    async def main() -> None:
        client = guard.wrap(api.async_openai())
        await say(client)
        with pytest.raises(RateLimited):
            await say(client)

    asyncio.run(main())
    assert len(api.seen) == 1


def test_rule_16_the_first_rule_that_covers_a_model_governs() -> None:
    guard = Guard()

    def governed(provider: str = "openai", model: str = "gpt-4o") -> int | None:
        return guard.rate_limit_for(provider, model)["requests_per_minute"]

    assert governed() == 500
    guard.set_rate_limit("*", requests_per_minute=100)
    assert (governed(), governed("groq", "llama")) == (100, 100)
    guard.set_rate_limit("openai:*", requests_per_minute=200)
    assert (governed(), governed("anthropic", "claude")) == (200, 100)
    guard.set_rate_limit("gpt-4o", requests_per_minute=300)
    assert (governed(), governed("azure", "gpt-4o"), governed("openai", "o3")) == (300, 300, 200)
    guard.set_rate_limit("gpt-4o", requests_per_minute=400, provider="openai")
    assert (governed(), governed("azure", "gpt-4o")) == (400, 300)
    assert governed(model="gpt-4o-2024-08-06") == 400, "a snapshot goes by its family"
    assert guard.remove_rate_limit("gpt-4o", provider="openai")
    assert governed() == 300
    assert guard.remove_rate_limit("gpt-4o")
    assert not guard.remove_rate_limit("gpt-4o")
    assert governed() == 200


def test_rule_16_a_rule_without_limits_means_unlimited(api: Api, clock: VirtualClock) -> None:
    guard = Guard(clock=clock)
    guard.set_rate_limit("gpt-4o")
    nothing = {"requests_per_minute": None, "tokens_per_minute": None, "burst": None}
    assert guard.rate_limit_for("openai", "gpt-4o") == nothing
    client = guard.wrap(api.openai())
    for _ in range(600):
        say(client)
    assert clock.now == 0


def test_a_rule_that_changes_keeps_what_was_used(api: Api, clock: VirtualClock) -> None:
    guard = Guard(clock=clock, on_rate_limit="raise")
    guard.set_rate_limit("gpt-4o", requests_per_minute=2)
    client = guard.wrap(api.openai())
    say(client)
    guard.set_rate_limit("gpt-4o", requests_per_minute=3)
    say(client)
    say(client)
    with pytest.raises(RateLimited):
        say(client)
    guard.set_rate_limit("gpt-4o")
    say(client)


def test_rule_30_openai_and_anthropic_have_documented_defaults_and_others_none(api: Api) -> None:
    guard = Guard()
    assert guard.rate_limit_for("openai", "gpt-4o")["requests_per_minute"] == 500
    assert guard.rate_limit_for("anthropic", "claude")["requests_per_minute"] == 50
    assert guard.rate_limit_for("mistral", "large")["requests_per_minute"] is None
    say(guard.wrap(api.openai()))
    status = guard.limiter.get_status("openai:gpt-4o")
    assert status is not None
    assert (status.limit, status.confidence) == (500, "registry")


def test_rule_29_another_base_url_is_another_provider(api: Api) -> None:
    guard = Guard()
    for base_url, provider in [
        ("http://localhost:11434/v1", "localhost"),
        ("https://openrouter.ai/api/v1", "openrouter"),
        ("https://team.openai.azure.com/openai/v1", "azure"),
        ("https://eu.api.openai.com/v1", "openai"),
    ]:
        say(guard.wrap(api.openai(base_url=base_url)), "m")
        assert f"{provider}:m" in guard.stats
        status = guard.limiter.get_status(f"{provider}:m")
        assert (status is not None) == (provider == "openai"), "only OpenAI has a default"


def test_rule_4_calls_refused_for_requests_leave_the_tokens_untouched(
    api: Api, clock: VirtualClock
) -> None:
    guard = Guard(clock=clock, on_rate_limit="raise")
    guard.set_rate_limit("gpt-4o", requests_per_minute=1, tokens_per_minute=10_000)
    client = guard.wrap(api.openai())
    say(client)
    before = guard.limiter.get_status("openai:gpt-4o")
    for _ in range(10):
        with pytest.raises(RateLimited) as caught:
            say(client)
        assert caught.value.dimension == "requests"
    after = guard.limiter.get_status("openai:gpt-4o")
    assert before is not None
    assert after is not None
    assert after.dimensions["tokens"].remaining == before.dimensions["tokens"].remaining
    assert after.dimensions["tokens"].remaining == 10_000 - 12, "what was not used came back"


def test_rule_5_a_call_larger_than_the_whole_budget_is_let_through_and_leaves_a_debt(
    api: Api, clock: VirtualClock
) -> None:
    api.prompt, api.answer = 60, 60
    guard = Guard(clock=clock, on_rate_limit="raise")
    guard.set_rate_limit("gpt-4o", tokens_per_minute=60)
    client = guard.wrap(api.openai())
    say(client, max_tokens=600)
    with pytest.raises(RateLimited) as caught:
        say(client)
    assert caught.value.dimension == "tokens"
    # It settled for 120 of 60.
    assert 60 <= caught.value.retry_after <= 120


def test_rule_24_each_attempt_of_the_sdk_takes_a_permit(api: Api, clock: VirtualClock) -> None:
    import httpx2  # noqa: PLC0415

    guard = Guard(clock=clock)
    guard.set_rate_limit("gpt-4o", requests_per_minute=60, burst=1)
    client = guard.wrap(api.openai(max_retries=2))
    retry_now = {"retry-after-ms": "1"}
    api.script = [httpx2.Response(500, headers=retry_now)] * 2
    say(client)
    assert clock.now == pytest.approx(2.0)
    assert len(api.seen) == 3
    stats = guard.stats["openai:gpt-4o"]
    assert (stats.sent, stats.failed) == (3, 2)


def test_a_limit_or_setting_that_makes_no_sense_is_refused() -> None:
    guard = Guard()
    for bad in (0, -1):
        with pytest.raises(ValueError, match="requests_per_minute must be 1 to"):
            guard.set_rate_limit("gpt-4o", requests_per_minute=bad)
        with pytest.raises(ValueError, match="usd must be 1 to"):
            guard.set_budget("*", usd=bad)
    with pytest.raises(TypeError, match="whole number"):
        guard.set_rate_limit("gpt-4o", requests_per_minute=1.5)  # type: ignore[arg-type] # on purpose
    with pytest.raises(ValueError, match="burst"):
        guard.set_rate_limit("gpt-4o", burst=5)
    with pytest.raises(ValueError, match="bad window"):
        guard.set_budget("*", usd=1, per="often")
    with pytest.raises(ValueError, match="dollars"):
        guard.set_price("gpt-4o", input=-1, output=1)
    with pytest.raises(ValueError, match='expected "wait" or "raise"'):
        Guard(on_rate_limit="sleep")  # type: ignore[arg-type] # on purpose
    with pytest.raises(TypeError, match="expected a client of openai"):
        guard.wrap(object())
    with pytest.raises(TypeError, match="not both"):
        paceline.install(guard, max_wait=1)
    assert not paceline.is_installed()


def test_rule_17_accounts_are_counted_apart_and_no_secret_is_shown(api: Api) -> None:
    guard = Guard(on_rate_limit="raise", by_credential=True)
    guard.set_rate_limit("*", requests_per_minute=1)
    for key in ("sk-one", "sk-two"):
        client = guard.wrap(api.openai(api_key=key))
        say(client)
        with pytest.raises(RateLimited):
            say(client)
    endpoints = guard.limiter.list_endpoints()
    assert len(endpoints) == 3
    assert "sk-" not in repr((endpoints, guard, guard.stats))
    with paceline.spending(account="team-a"):
        say(client)
    assert "team-a@openai:gpt-4o" in guard.limiter.list_endpoints()


def test_the_providers_own_headers_feed_the_bucket_of_the_model(
    api: Api, clock: VirtualClock
) -> None:
    import httpx2  # noqa: PLC0415

    headers = {
        "x-ratelimit-limit-requests": "10000",
        "x-ratelimit-remaining-requests": "9990",
        "x-ratelimit-reset-requests": "60ms",
        "x-ratelimit-limit-tokens": "30000",
        "x-ratelimit-remaining-tokens": "20000",
        "x-ratelimit-reset-tokens": "20s",
    }
    guard = Guard(clock=clock)
    client = guard.wrap(api.openai())
    api.script = [httpx2.Response(200, headers=headers, json=api.completion({"model": "m"}))]
    say(client, max_tokens=4_000)
    status = guard.limiter.get_status("openai:gpt-4o")
    assert status is not None
    assert (status.limit, status.remaining, status.confidence) == (10_000, 9_990, "estimated")
    tokens = status.dimensions["tokens"]
    assert (tokens.limit, tokens.remaining) == (30_000, 20_000), "OpenAI keeps what was reserved"
    assert guard.limiter.get_status("https://api.openai.com") is None


def test_rule_27_budgets_are_reserved_settled_and_never_exceeded(
    api: Api, clock: VirtualClock
) -> None:
    api.prompt, api.answer = 100_000, 10_000
    guard = Guard(clock=clock)
    guard.set_price("gpt-4o", input=1, output=10)  # 0.1 + 0.1 dollars a call
    guard.set_budget("*", usd=1, per="1d")
    client = guard.wrap(api.openai())
    for _ in range(5):
        say(client)
    with pytest.raises(RateLimited) as caught:
        say(client, max_tokens=10_000)
    error = caught.value
    assert (error.dimension, error.model, error.scope) == ("usd", "gpt-4o", "*")
    assert error.retry_after == pytest.approx(86_400)
    assert clock.now == 0
    assert guard.stats["openai:gpt-4o"].usd == pytest.approx(1.0)
    clock.advance(error.retry_after)
    say(client)


def test_a_call_that_costs_more_than_its_whole_budget_is_refused_for_good(api: Api) -> None:
    guard = Guard()
    guard.set_price("gpt-4o", input=1, output=1_000)
    guard.set_budget("openai:*", usd=1)
    client = guard.wrap(api.openai())
    with pytest.raises(RateLimited) as caught:
        say(client, max_tokens=2_000)
    assert caught.value.retry_after == math.inf
    assert not api.seen


def test_a_budget_over_a_model_without_a_price_says_so_instead_of_counting_nothing(
    api: Api,
) -> None:
    guard = Guard()
    guard.set_budget("*", usd=1)
    client = guard.wrap(api.openai())
    with pytest.raises(paceline.UnknownPrice, match="openai:my-model"):
        say(client, "my-model")
    assert not api.seen
    guard.set_price("my-model", input=0, output=0)
    say(client, "my-model")
    guard.set_budget("*", usd=None)
    say(client, "another")


def test_a_user_may_count_the_tokens_of_a_prompt(api: Api, clock: VirtualClock) -> None:
    api.prompt = 700

    def count(model: str, body: bytes) -> int | None:
        assert b"Say hello." in body
        return 700 if model == "counted" else None

    guard = Guard(clock=clock, on_rate_limit="raise", count_tokens=count)
    guard.set_rate_limit("*", tokens_per_minute=1_000)
    client = guard.wrap(api.openai())
    say(client, "counted")
    with pytest.raises(RateLimited) as caught:
        say(client, "counted")
    # 703 of 1,000 are used, and 716 are asked for.
    assert caught.value.retry_after == pytest.approx(60 * 0.419)
    say(client, "estimated")


def test_an_error_that_used_nothing_gives_tokens_and_dollars_back(api: Api) -> None:
    import httpx2  # noqa: PLC0415
    import openai  # noqa: PLC0415

    guard = Guard(on_rate_limit="raise")
    guard.set_rate_limit("gpt-4o", tokens_per_minute=1_000)
    guard.set_price("gpt-4o", input=1, output=500)
    guard.set_budget("*", usd=1)
    client = guard.wrap(api.openai(max_retries=0))
    for _ in range(5):
        api.script = [httpx2.Response(400, json={"error": {"message": "no"}})]
        with pytest.raises(openai.BadRequestError):
            say(client, max_tokens=900)
    status = guard.limiter.get_status("openai:gpt-4o")
    assert status is not None
    assert status.dimensions["tokens"].remaining == 1_000
    assert guard.stats["openai:gpt-4o"].usd == 0
