"""The engine: what `paceline` is built on.

Use :class:`paceline.RateLimiter` and :class:`paceline.AsyncRateLimiter`, which add what only Python
needs. Spans are seconds.
"""

import os
from collections.abc import Coroutine, Generator, Iterable, Mapping, Sequence
from datetime import date
from pathlib import Path
from typing import Any, TypeAlias, TypedDict, final

from typing_extensions import Self, Unpack, disjoint_base

__all__ = [
    "Acquisition",
    "Answer",
    "Cache",
    "Config",
    "Cost",
    "Guard",
    "Limiter",
    "LlmCall",
    "Paced",
    "Permit",
    "Ready",
    "Recording",
    "RetryPolicy",
    "VirtualClock",
    "Waiter",
    "Watch",
    "after_fork_in_child",
    "after_fork_in_parent",
    "before_fork",
    "detect",
    "end_waits",
    "is_volatile_cookie",
    "main",
    "simulate",
]

#: A scope, the seconds of its hold, and each limit with its level.
_Scoped: TypeAlias = tuple[str, float, list[tuple[str, float, str, int, int, int, float, str]]]

class _StoreMetrics(TypedDict):
    """The store beneath, since the beginning; zero where it is in memory."""

    #: Whether it cannot be reached at present.
    away: bool
    #: Visits that failed.
    failures: int
    #: Calls that went without it.
    unmetered: int
    visits: int
    #: Seconds that they took, all together.
    busy: float

class _Tally(TypedDict, total=False):
    """What became of calls in one scope; what is left out is zero."""

    #: Attempts that took a permit and were sent.
    sent: int
    #: Seconds that calls waited for a permit, all together.
    waited: float
    #: Calls that had to wait.
    delayed: int
    #: Calls that we refused: they raised in place of waiting.
    refused: int
    #: Attempts that the server answered with a 429.
    rejected: int
    #: Attempts that failed in another way, at the server or on the way there.
    failed: int
    #: Calls that were answered from a cache.
    cached: int
    #: Tokens of prompts.
    input_tokens: int
    #: Tokens of answers.
    output_tokens: int
    #: What was spent, in millionths of a dollar.
    micro_usd: int

def end_waits() -> int:
    """Wake every thread that waits, to end; tell how many there are."""

def before_fork() -> None:
    """Close what a child must not inherit, and let nobody open it until the fork is done."""

def after_fork_in_parent() -> None:
    """Go on in the parent."""

def after_fork_in_child() -> None:
    """Forget, in a child, who waited in the parent."""

def detect(
    status: int,
    headers: list[tuple[str | bytes, str | bytes]],
    url: str | None,
    now: float | None,
    body: bytes | None,
    headers_map: Mapping[str, str] | None,
    use_provider_profiles: bool,
) -> tuple[
    list[tuple[str, str | None, int | None, int | None, float | None, float | None, bool]],
    float | None,
    bool,
    bool,
    str | None,
]:
    """Read one response, by the same code as a limiter: see :func:`paceline.detect`."""

def main(argv: list[str]) -> int:
    """Run the command line, the program's name first, and give its exit status."""

def simulate(pairs: list[tuple[str, str]]) -> str:
    """Run a simulation, said in pairs of the command's options and values: its report as JSON.

    Raises ValueError for what makes no sense.
    """

class _ScopeMetrics(TypedDict):
    """What became of calls in one scope of this process."""

    #: Attempts that took a permit and were sent.
    sent: int
    #: Seconds that calls waited for a permit, all together.
    waited: float
    delayed: int
    refused: int
    #: Attempts that the server answered with a 429 or the like.
    rejected: int
    #: Those of them that say that a quota is spent.
    spent: int
    failed: int
    cached: int
    input_tokens: int
    output_tokens: int
    micro_usd: int
    #: Attempts of calls that were sent before.
    retried: int
    #: Rejections that said how long to stay away.
    holds: int
    #: How many attempts waited no longer than so many seconds, and longer than those before.
    waits: list[tuple[float, int]]
    #: Seconds for which it is held.
    hold: float
    #: Each limit with its level, as far as this process knows.
    limits: list[tuple[str, float, str, int, int, int, float, str]]

@final
class Config:
    """What a ``paceline.toml`` says."""

    def __new__(cls, path: str | os.PathLike[str] | None = None) -> Config:
        """Read a file; else what ``PACELINE_CONFIG`` names, or the nearest ``paceline.toml``.

        Raises ValueError for the first thing that is wrong, with its line; OSError when there is
        no file.
        """

    @property
    def path(self) -> Path: ...
    @property
    def storage(self) -> str | None: ...
    @property
    def max_wait(self) -> float | None: ...
    @property
    def retry(self) -> dict[str, Any] | None:
        """The fields of a RetryConfig; ``None`` where nothing is said of retries."""

    def apply(self, limiter: Limiter, before: Config | None = None) -> None:
        """Set its limits and know its providers; what only another one said before is gone."""

    def guard(self, guard: Guard, before: Config | None = None) -> None:
        """Set its rules and budgets; what only another one said before is gone."""

@disjoint_base
class Limiter:
    """The engine's limiter."""

    def __init__(
        self,
        storage: str = "memory",
        *,
        default_limits: Mapping[str, int | None] | None = None,
        raise_on_limit: bool = False,
        retry: RetryPolicy | None = None,
        max_wait: float | None = None,
        fail_closed: bool = False,
        fallback: str | None = None,
        lease: float | None = None,
        storage_timeout: float = 0.25,
        learn_first: bool = False,
        adaptive: bool = False,
        also_parents: bool = False,
        account: str | None = None,
        headers_map: Mapping[str, str] | None = None,
        use_provider_profiles: bool = True,
        authenticated: bool = False,
        clock: VirtualClock | None = None,
        config: Config | None = None,
    ) -> None: ...
    def acquire(
        self,
        endpoint: str,
        cost: Mapping[str, float] | Cost | None = None,
        *,
        max_wait: float | None = None,
        account: str | None = None,
    ) -> Permit:
        """Wait on this thread until a call may be made, and give its permit.

        The permit is a context manager. ``cost`` is what the call spends beside one request.
        ``max_wait`` and ``account`` override the limiter's.

        Raises :class:`paceline.RateLimitExceeded` at once when it would wait longer, and
        ``ValueError`` for an endpoint, dimension or amount that is none.
        """

    def acquire_async(
        self,
        endpoint: str,
        cost: Mapping[str, float] | Cost | None = None,
        *,
        max_wait: float | None = None,
        account: str | None = None,
    ) -> Acquisition:
        """Like :meth:`acquire`, to be awaited or entered with ``async with``."""

    def acquire_soon(
        self,
        endpoint: str,
        cost: Mapping[str, float] | Cost | None = None,
        *,
        max_wait: float | None = None,
        account: str | None = None,
    ) -> Permit | Coroutine[Any, Any, Permit]:
        """Like :meth:`acquire_async` where there has to be a wait, else the permit itself."""

    def try_acquire(
        self,
        endpoint: str,
        cost: Mapping[str, float] | Cost | None = None,
        *,
        account: str | None = None,
    ) -> Permit | None:
        """Give a permit if there is room at once and nobody waits for it; else ``None``.

        Raises ``ValueError`` for an endpoint, dimension or amount that is none.
        """

    def wait_time(
        self,
        endpoint: str,
        cost: Mapping[str, float] | Cost | None = None,
        *,
        account: str | None = None,
    ) -> float:
        """Give the seconds that a call would have to wait, without taking anything."""

    def set_limit(
        self,
        endpoint: str,
        limit: int,
        window: str = "1m",
        dimension: str = "requests",
        burst: int | None = None,
        *,
        strict: bool = False,
    ) -> None:
        """Declare a limit for an endpoint and everything below it.

        The same dimension and window replaces a limit and keeps what was used of it; another
        window adds a second limit, and both must pay. ``window`` is ``"30s"``, ``"15m"``, ``"1h"``,
        ``"1d"``; ``burst`` is how many units a full bucket holds, ``limit`` unless given;
        ``strict`` never lets more than ``limit`` pass in any span of one window.

        Raises ``ValueError`` for a limit below 1, a bad window, or ``strict`` with ``burst``, and
        ``TypeError`` for a limit that is no whole number.
        """

    def status(self, endpoint: str) -> _Scoped | None:
        """Give the governing scope, the seconds of its hold, and each limit with its level."""

    def explained(self, endpoint: str) -> tuple[str, list[_Scoped]]:
        """Give in words why a call is paced as it is, and every scope that it meets."""

    def register_provider(
        self, hosts: str | Sequence[str], **dimensions: Mapping[str, str]
    ) -> None:
        """Know an API of one's own: which headers of its responses state which limits.

        ``hosts`` are names such as ``"api.example.com"`` or ``"*.example.com"``. Each dimension is
        given the names of its headers by ``limit``, ``remaining``, ``reset`` and ``retry_after``,
        and what these do not say: ``window`` (such as ``"1m"``), ``unit`` of a reset that is a
        number (``"s"`` or ``"ms"``), and ``counts`` (``"window"`` or ``"bucket"``).

        Raises ``ValueError`` for a key or value that is none of these, and for a name that no
        header can have.
        """

    def may_retry(self, thousandths: int) -> bool:
        """Take one more retry, if so many thousandths of all requests leave room for it."""

    def list_endpoints(self) -> list[str]:
        """Give every scope about which something is known, sorted."""

    def clear(self, endpoint: str | None = None) -> int:
        """Forget an endpoint and everything below it, or everything; tell how many there were."""

    def count(self, scope: str, **fields: Unpack[_Tally]) -> None:
        """Count what became of calls in a scope, named as it is shown, such as ``"openai:gpt-4o"``.

        The store keeps the sums of each day. What is counted lies in this process until it is a
        second old, and one visit then hands in all of it: made by whoever counts next, or on
        behalf of an event loop, which never waits for it. :meth:`flush` does so at once.

        Raises ``TypeError`` for a name that is none of these or a value that is no number, and
        ``ValueError`` for a negative one.
        """

    def usage(self) -> list[tuple[str, date, _Tally]]:
        """Give what became of calls in the last 35 days, by day (of UTC) and then by scope.

        That is what all who share the store have handed in, and what this process has counted
        until now; no field is left out. Visits the store.

        Raises :class:`paceline.StorageUnavailable` when it cannot be reached.
        """

    def measure(self) -> None:
        """Begin to measure what becomes of calls in this process: before, nothing of it is done.

        :mod:`paceline.prometheus` and :mod:`paceline.opentelemetry` do so themselves.
        """

    def metrics(self) -> tuple[int, _StoreMetrics, list[tuple[str, _ScopeMetrics]]]:
        """Give what was measured: callers that wait, the store beneath, and each scope.

        Nothing before :meth:`measure`. It does not visit the store.
        """

    def flush(self) -> None:
        """Hand in what the store keeps back to save visits; done by itself soon, and at the end."""

    @property
    def storage_health(self) -> tuple[bool, int, int]:
        """Whether the store is away, how many visits failed, and how many calls went without it."""

    @property
    def waiting(self) -> int:
        """How many callers of this process wait."""

    @property
    def raise_on_limit(self) -> bool:
        """Whether it raises instead of waiting."""

    def pass_virtual_time(self, seconds: float) -> bool:
        """Move a virtual clock; ``False`` on a real one."""

@final
class Acquisition:
    """A permit to be awaited."""

    def __await__(self) -> Generator[Any, None, Permit]: ...
    def keep(self, permit: Permit) -> None:
        """Remember the permit, to be closed when the block is left."""

    def __aenter__(self) -> Acquisition: ...
    def __aexit__(self, _kind: object, _error: object, _trace: object) -> Ready: ...

@final
class Ready:
    """An awaitable that is done."""

    def __await__(self) -> Generator[Any, None, Any]: ...
    def __iter__(self) -> Self: ...
    def __next__(self) -> Any: ...

@final
class Paced:
    """What pacing did to a call: ``response.paceline``, or ``response.extensions["paceline"]``.

    Each hop of a redirect is a call of its own.
    """

    __match_args__ = ("waited", "scope", "attempts", "limit")

    def __new__(
        cls, waited: float, scope: str, attempts: int, limit: str | None = None
    ) -> Self: ...
    def __getnewargs__(self) -> tuple[float, str, int, str | None]: ...
    def __eq__(self, other: object, /) -> bool: ...
    def __hash__(self) -> int: ...
    @property
    def waited(self) -> float:
        """Seconds waited in all, retries included."""

    @property
    def scope(self) -> str:
        """The scope that was charged, such as ``https://api.example.com``."""

    @property
    def attempts(self) -> int:
        """How often it was sent."""

    @property
    def limit(self) -> str | None:
        """The limit that was waited for last, such as ``60/1m``, or what else.

        ``None`` without a wait.
        """

@final
class Permit:
    """The right to make one call. Its cost stands unless it is cancelled."""

    def settle(self, **actual: float) -> None:
        """Correct the estimate to what was spent, more or less; other dimensions stand."""

    def again(self) -> None:
        """Count it as one for a further attempt of the same call."""

    def cancel(self) -> None:
        """Give everything back: the call was never made."""

    def observe(
        self,
        status: int,
        fields: Iterable[tuple[str, str] | tuple[bytes, bytes]],
        url: str | None = None,
        body: bytes | None = None,
    ) -> float | None:
        """Learn from a response's status and headers, as pairs of name and value.

        With the URL, more is known of some hosts, and a server that has several buckets is followed
        into the one that it names; a body is for those that say it only there.

        Gives the seconds for which a rejection says to stay away, if it does.
        """

    def paced(self, waited: float, attempts: int, limit: str | None = None) -> Paced:
        """Tell what pacing did to a call that it was the last permit of."""

    def wants_body(self, url: str, status: int, content_type: str | None = None) -> bool:
        """Whether the body of a response says something of limits that its headers do not."""

    @property
    def spent(self) -> bool:
        """Whether the response said that the quota does not come back by waiting."""

    @property
    def limit(self) -> str | None:
        """What it was waited for: a limit such as ``60/1m``, or a hold."""

    @property
    def waited(self) -> float:
        """Seconds waited for it."""

    @property
    def scope(self) -> str:
        """The scope that was charged, such as ``https://api.example.com``."""

    @property
    def cost(self) -> dict[str, float]:
        """What it counts for."""

    def __enter__(self) -> Self: ...
    def __exit__(self, _kind: object, _error: object, _trace: object) -> None: ...

@final
class Waiter:
    """A place in line, for a driver that can wait."""

    def poll(self) -> Permit | float | None:
        """Give the permit, the seconds to sleep as the head of the line, or ``None``."""

    def close(self) -> None:
        """Leave the line, and give back what was granted meanwhile."""

@final
class RetryPolicy:
    """The engine's form of :class:`paceline.RetryConfig`."""

    def __new__(
        cls,
        *,
        max_retries: int,
        strategy: str,
        base_delay: float,
        max_delay: float,
        backoff_factor: float,
        retry_on_status: list[int],
        jitter: float,
        replay: str,
        budget: float,
    ) -> Self: ...
    @property
    def budget(self) -> int:
        """The share of all requests that may be retries, in thousandths."""

    def pause(
        self,
        method: str,
        keyed: bool,
        status: int,
        retry_after: float | None,
        attempt: int,
        random: float,
    ) -> float | None:
        """Give the seconds before the next attempt; ``None`` to hand the answer back.

        ``keyed`` says whether the request has an ``Idempotency-Key``.
        """

    def retries(self, status: int) -> bool:
        """Whether a status is worth another attempt."""

@final
class VirtualClock:
    """Time that moves when told to."""

    def __new__(cls) -> Self: ...
    def advance(self, seconds: float) -> None:
        """Move the present forward."""

    @property
    def now(self) -> float:
        """Seconds since the clock was made."""

@final
class Cost:
    """What a call spends, as the engine keeps it; wherever a mapping says so, it may stand."""

@final
class Guard:
    """Rules, prices and budgets for the models that a limiter paces: :class:`paceline.Guard`."""

    def __new__(cls, limiter: Limiter) -> Self: ...
    def set_rule(
        self,
        model: str,
        provider: str | None,
        requests: int | None,
        tokens: int | None,
        input_tokens: int | None,
        output_tokens: int | None,
        burst: int | None,
    ) -> None:
        """Set a rule; the limits are per minute."""

    def remove_rule(self, model: str, provider: str | None) -> bool:
        """Remove a rule; tell whether there was one."""

    def rule(self, provider: str, model: str) -> tuple[int | None, int | None, int | None]:
        """Give requests, tokens and burst of the rule that governs a model."""

    def set_budget(self, model: str, provider: str | None, usd: int | None, per: str) -> None:
        """Set or lift a budget."""

    def set_price(
        self, model: str, provider: str | None, dollars: tuple[float, float, float, float]
    ) -> None:
        """Set dollars for a million tokens: prompt, read from cache, written to cache, answer."""

    def stats(
        self,
    ) -> dict[str, tuple[int, float, int, int, int, int, int, int, int, float]]:
        """Give the fields of :class:`paceline.ModelStats`, by model."""

    def call(
        self,
        own: str,
        any_host: bool,
        host: str,
        path: str,
        body: bytes | None,
        model: str | None,
    ) -> LlmCall:
        """Give the call of a request that an SDK sends, whose own provider is ``own``.

        Raises :class:`paceline.StorageUnavailable` when a rule cannot be put into the store.
        """

@final
class LlmCall:
    """One attempt of a call: what it may spend, and what becomes of it."""

    @property
    def provider(self) -> str:
        """Whose API it is."""

    @property
    def model(self) -> str:
        """The model, or the resource where none is named."""

    @property
    def scope(self) -> str:
        """Where it is counted."""

    @property
    def cost(self) -> Cost:
        """What it may spend there."""

    @property
    def budgets(self) -> list[tuple[str, Cost]]:
        """The scopes of the budgets that it is paid from, and what it may spend of each.

        Raises :class:`paceline.RateLimitExceeded` when it alone could exceed one, and
        :class:`paceline.UnknownPrice`.
        """

    def with_input(self, tokens: int) -> Self:
        """Give the same for a prompt that somebody has counted."""

    def answered(self, status: int) -> None:
        """Note that it was sent, and answered so."""

    def waited(self, seconds: float) -> None:
        """Note that it waited."""

    def refused(self) -> None:
        """Note that it was not let through."""

    def settle(
        self, permit: Permit, budgets: Sequence[Permit], status: int, body: bytes | None
    ) -> None:
        """Settle for what an answer says it used; an error used nothing."""

    def watch(self, permit: Permit, budgets: Sequence[Permit], content_type: str | None) -> Watch:
        """Give what reads an answer along that comes bit by bit."""

@final
class Watch:
    """Reads an answer along, and settles for it once when it ends."""

    def push(self, part: bytes) -> None:
        """Read the next bytes of it."""

    def end(self) -> None:
        """Settle: there is no more of it."""

@final
class Cache:
    """Answers that are kept for the calls of a guard."""

    def __new__(
        cls,
        guard: Guard,
        storage: str,
        ttl: float | None,
        entries: int,
        size: int,
        clock: VirtualClock | None,
    ) -> Self: ...
    def key(
        self,
        method: str,
        url: str,
        headers: Sequence[tuple[bytes, bytes]],
        body: bytes,
        account: str | None,
    ) -> bytes | None:
        """Give what a request is known by; ``None`` for one whose answer is not to be kept."""

    def get(self, key: bytes) -> Answer | None:
        """Give the answer with that key, unless it is too old."""

    def count(self, answer: Answer) -> None:
        """Note that a call was answered from here."""

    def record(
        self,
        key: bytes,
        provider: str,
        model: str,
        status: int,
        version: bytes,
        reason: bytes,
        headers: Sequence[tuple[bytes, bytes]],
    ) -> Recording | None:
        """Give what writes an answer down; ``None`` for one that is not to be kept."""

    def meet(
        self,
        name: str,
        client: dict[str, Any],
        but: frozenset[str],
        other: tuple[Any, ...],
        arguments: dict[str, Any],
    ) -> tuple[bytes | None, Any]:
        """Give what a call of an SDK is known by, or a copy of what came of it before.

        It is known by the name of the method, the client's attributes ``but`` some, what ``other``
        there is to say, and the arguments. Both are ``None`` where that is not known.
        """

    def keep(self, key: bytes, answer: Answer, result: object) -> None:
        """Keep what an SDK has made of an answer, for the same call again."""

    def clear(self) -> None:
        """Forget all of them."""

@final
class Answer:
    """An answer that was kept."""

    @property
    def status(self) -> int:
        """Its status."""

    @property
    def version(self) -> bytes:
        """The version of HTTP, such as ``HTTP/1.1``."""

    @property
    def reason(self) -> bytes:
        """The words beside the status."""

    @property
    def headers(self) -> list[tuple[bytes, bytes]]:
        """Its headers, in order."""

    @property
    def body(self) -> bytes:
        """Its body, decoded."""

    @property
    def parts(self) -> list[bytes]:
        """The body in the parts in which it came."""

    @property
    def scope(self) -> str:
        """Where it would have been counted, such as ``openai:gpt-4o``."""

@final
class Recording:
    """Writes an answer down as it passes by, and keeps it if all of it came."""

    def push(self, part: bytes) -> None:
        """Hear the next bytes of it."""

    def end(self) -> None:
        """Hear that there is no more of it."""

    @property
    def answer(self) -> Answer | None:
        """The answer, once all of it has come."""

def is_volatile_cookie(name: str) -> bool:
    """Tell whether a cookie of that name says nothing of whose request it is."""
