"""The guard of LLM calls: which limits models have, what calls may spend, and who is guarded."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, TypedDict, TypeVar

from paceline import _native, limiter
from paceline._flow import account as account_here
from paceline.limiter import RateLimiter
from paceline.llm import guarding
from paceline.llm.cache import Cache

if TYPE_CHECKING:
    import os
    from collections.abc import Callable, Mapping

    from typing_extensions import Self

    from paceline.llm.sdks import Sdk
    from paceline.retry import RetryConfig

_Client = TypeVar("_Client")

#: Where credentials stand, by which accounts are told apart.
_CREDENTIALS = ("authorization", "x-api-key", "api-key", "x-goog-api-key")


class RateLimitRule(TypedDict):
    """The limits of a model, ``None`` where there is none."""

    requests_per_minute: int | None
    tokens_per_minute: int | None
    burst: int | None


@dataclass(frozen=True)
class ModelStats:
    """What became of the calls of one model in this process."""

    #: attempts that were sent
    sent: int
    #: seconds waited in all, by how many of them
    waited: float
    delayed: int
    #: calls that were refused here, and answers of 429 and other errors from the provider
    refused: int
    rejected: int
    failed: int
    #: calls that were answered from the cache
    cached: int
    input_tokens: int
    output_tokens: int
    #: dollars, where a price is known
    usd: float


class Guard:
    """Paces the calls of LLM SDKs: one bucket for each model at each provider.

    It guards what :func:`paceline.install` is given, a client that it has wrapped, or what is
    called in a ``with guard:`` block. It outlives :func:`paceline.uninstall`.

    Args:
        on_rate_limit: ``"wait"`` for a turn, or ``"raise"`` :class:`paceline.RateLimited` at once.
        max_wait: seconds that one call may wait in all, the attempts that its SDK makes included;
            ``None`` for ever. If it would be longer, :class:`paceline.RateLimited` comes at once.
        storage: where limits and levels live; see :class:`paceline.RateLimiter`, as for
            ``fail_closed``, ``fallback``, ``storage_timeout`` and ``clock``.
        config: a file of settings, as for a :class:`paceline.RateLimiter`; rules and budgets in it
            are those of ``set_rate_limit`` and ``set_budget``.
        account: for whom calls count, apart from others at the same provider. A name, and no
            secret: it is part of keys and messages.
        by_credential: whether each API key counts as an account of its own, named by a keyed hash.
        retry: how to send rejected calls again of SDKs that do not do so themselves.
        count_tokens: counts the tokens of a prompt in place of the estimate: given the model and
            the body of the request, it gives their number, or ``None`` for the estimate.
        cache: whether who asks the same is given the same answer. It takes no permit, and costs
            neither tokens nor dollars. See also :func:`paceline.bypass_cache`.
        cache_ttl: seconds for which an answer is given again; ``None`` for ever.
        cache_size: how many answers are kept; those not asked for the longest go first.
        cache_bytes: how many bytes of them, and as many again of what SDKs have made of them.
        cache_storage: where they are kept: ``"memory"``, or ``"sqlite:///file.db"``, which survives
            a restart and is shared by processes. It is for its owner only, and no store of limits.
        coalesce: whether calls that ask the same at the same time share one request.

    Raises:
        StorageUnavailable: when ``fail_closed`` is set and the store cannot be reached, or the file
            of the cache cannot be used.
        ValueError: for a setting that makes no sense; the message says what was expected.

    """

    def __init__(
        self,
        *,
        on_rate_limit: Literal["wait", "raise"] = "wait",
        max_wait: float | None = 60.0,
        storage: str = "memory",
        account: str | None = None,
        by_credential: bool = False,
        retry: RetryConfig | None = None,
        count_tokens: Callable[[str, bytes], int | None] | None = None,
        fail_closed: bool = False,
        fallback: Literal["local"] | None = None,
        storage_timeout: float = 0.25,
        config: str | os.PathLike[str] | bool | None = None,
        clock: _native.VirtualClock | None = None,
        cache: bool = False,
        cache_ttl: float | None = 3600.0,
        cache_size: int = 10_000,
        cache_bytes: int = 256 << 20,
        cache_storage: str = "memory",
        coalesce: bool = False,
    ) -> None:
        """Be ready to guard calls."""
        if on_rate_limit not in {"wait", "raise"}:
            raise ValueError(f'bad on_rate_limit {on_rate_limit!r}: expected "wait" or "raise"')
        if coalesce and not cache:
            raise ValueError("coalesce=True shares what is cached: it takes cache=True, too")
        #: what paces; its limits are looked up under names such as ``openai:gpt-4o``
        self.limiter = RateLimiter(
            storage,
            raise_on_limit=on_rate_limit == "raise",
            learn_first=True,
            max_wait=max_wait,
            account=account,
            retry=retry,
            fail_closed=fail_closed,
            fallback=fallback,
            storage_timeout=storage_timeout,
            config=config,
            clock=clock,
        )
        self._engine = _native.Guard(self.limiter)
        if (said := self.limiter.config) is not None:
            said.guard(self._engine)
        self._by_credential = by_credential
        self._count_tokens = count_tokens
        self.cache: Cache | None = None
        if cache:
            kept = cache_ttl, cache_size, cache_bytes
            clock = clock or limiter.usual_clock
            answers = _native.Cache(self._engine, cache_storage, *kept, clock)
            self.cache = Cache(answers, account, coalesce=coalesce)

    def reload(self) -> None:
        """Read the file that was given as ``config`` anew, and live by it from now on.

        What was used stays used. Raises ``ValueError`` when something in it is wrong.
        """
        before = self.limiter.config
        self.limiter.reload()
        if (said := self.limiter.config) is not None:
            said.guard(self._engine, before)

    def set_rate_limit(
        self,
        model: str,
        requests_per_minute: int | None = None,
        tokens_per_minute: int | None = None,
        burst: int | None = None,
        provider: str | None = None,
        *,
        input_tokens_per_minute: int | None = None,
        output_tokens_per_minute: int | None = None,
    ) -> None:
        """Set the limits of every model that a rule covers; with none, they are unlimited.

        The first rule that covers a model governs it: ``openai:gpt-4o``, ``gpt-4o``, the same for
        the family of a dated snapshot, ``openai:*``, ``*``, then what is documented of its provider
        (OpenAI 500, Anthropic 50 requests per minute). Each model that a rule covers has a bucket
        of its own. What the provider's answers say is followed beside it.

        Args:
            model: a model, ``provider:model``, ``provider:*``, or ``*``.
            requests_per_minute: requests per minute.
            tokens_per_minute: tokens per minute. A call counts as the most that it can use, and
                what it did not use comes back, unless the provider keeps it.
            burst: how many requests go at once; ``requests_per_minute`` unless given.
            provider: the one provider whose models are meant.
            input_tokens_per_minute: tokens of prompts per minute, where they are metered apart.
            output_tokens_per_minute: tokens of answers per minute.

        Raises:
            ValueError: for a limit below 1, or a burst without ``requests_per_minute``.

        """
        self._engine.set_rule(
            model,
            provider,
            requests_per_minute,
            tokens_per_minute,
            input_tokens_per_minute,
            output_tokens_per_minute,
            burst,
        )

    def remove_rate_limit(self, model: str, provider: str | None = None) -> bool:
        """Remove a rule, so that the next one governs; tell whether there was one."""
        return self._engine.remove_rule(model, provider)

    def rate_limit_for(self, provider: str, model: str) -> RateLimitRule:
        """Give the rule that governs a model; ``None`` in each place where it is unlimited.

        >>> from paceline import Guard
        >>> Guard().rate_limit_for("openai", "gpt-4o")
        {'requests_per_minute': 500, 'tokens_per_minute': None, 'burst': None}
        """
        requests, tokens, burst = self._engine.rule(provider, model)
        return {"requests_per_minute": requests, "tokens_per_minute": tokens, "burst": burst}

    def set_budget(
        self, model: str, usd: int | None, per: str = "1d", provider: str | None = None
    ) -> None:
        """Let all calls that a pattern covers together spend so much, and no more, in any window.

        A call is refused at once with :class:`paceline.RateLimited` when what it may cost is not
        left: money does not come back by waiting. The most that a call can cost is reserved, and
        what it did not cost comes back. In a shared or durable store the budget is too.

        Args:
            model: a model, ``provider:model``, ``provider:*``, or ``*`` for all together.
            usd: whole dollars; ``None`` lifts the budget.
            per: the window, such as ``"1h"`` or ``"30d"``.
            provider: the one provider whose models are meant.

        Raises:
            ValueError: for a budget below 1 or a bad window.
            TypeError: for one that is no whole number.

        """
        self._engine.set_budget(model, provider, usd, per)

    def set_price(
        self,
        model: str,
        *,
        input: float,  # noqa: A002 - what providers call it
        output: float,
        cached: float | None = None,
        cache_written: float | None = None,
        provider: str | None = None,
    ) -> None:
        """Set what a model costs, in dollars for a million tokens, in place of what is published.

        Args:
            model: a model, ``provider:model``, ``provider:*``, or ``*``.
            input: prompts.
            output: answers.
            cached: what of a prompt the provider reads from its cache; ``input`` unless given.
            cache_written: what of a prompt it writes there; ``input`` unless given.
            provider: the one provider whose models are meant.

        Raises:
            ValueError: for a price that is negative or no number.

        """
        cached = input if cached is None else cached
        cache_written = input if cache_written is None else cache_written
        self._engine.set_price(model, provider, (input, cached, cache_written, output))

    @property
    def stats(self) -> dict[str, ModelStats]:
        """What became of calls in this process, by model: ``{"openai:gpt-4o": ...}``."""
        return {scope: ModelStats(*sums) for scope, sums in self._engine.stats().items()}

    def clear_cache(self) -> None:
        """Forget all answers that are kept, those of other processes in the same file included.

        What another process has in its memory it goes on giving until that is too old.

        Raises:
            StorageUnavailable: when the file of the cache cannot be used.

        """
        if self.cache is not None:
            self.cache.engine.clear()

    def wrap(self, client: _Client) -> _Client:
        """Guard what one client of an SDK calls, and give the client back.

        Copies that it makes of itself (``with_options``) are guarded, too. To wrap it again changes
        nothing; wrapped by another guard, it changes hands.

        Raises:
            TypeError: for a client of no SDK that is known.

        """
        return guarding.wrap(client, self)

    def unwrap(self, client: _Client) -> _Client:
        """Guard a client no longer that was wrapped, and give it back."""
        return guarding.unwrap(client)

    def __enter__(self) -> Self:
        """Guard what is called in the block, in this thread or task and what it starts."""
        guarding.enter(self)
        return self

    def __exit__(self, *_: object) -> None:
        """Guard it no longer."""
        guarding.leave()

    async def __aenter__(self) -> Self:
        """Guard what is called in the block."""
        return self.__enter__()

    async def __aexit__(self, *_: object) -> None:
        """Guard it no longer."""
        self.__exit__()

    def charge(
        self, sdk: Sdk, host: str, path: str, body: bytes | None, model: str | None
    ) -> _native.LlmCall:
        """Give where a request is counted, and what it may spend."""
        call = self._engine.call(sdk.provider, sdk.any_host, host, path, body, model)
        if self._count_tokens is not None and body is not None:
            counted = self._count_tokens(call.model, body)
            return call if counted is None else call.with_input(counted)
        return call

    def account_of(self, headers: Mapping[str, str]) -> str | None:
        """Give the account that a request counts for; ``None`` for the limiter's."""
        if (named := account_here()) is not None or not self._by_credential:
            return named
        secret = next(filter(None, map(headers.get, _CREDENTIALS)), "")
        return "key-" + hashlib.blake2b(secret.encode(), key=b"paceline", digest_size=8).hexdigest()

    def __repr__(self) -> str:
        """Say what it is."""
        return f"<paceline.Guard of {len(self.stats)} models>"
