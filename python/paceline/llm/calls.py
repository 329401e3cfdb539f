"""One HTTP attempt of an SDK on its way: how it is counted, and what is learned of it."""

from __future__ import annotations

import contextvars
from typing import TYPE_CHECKING, Any

from paceline import _drive, _flow, _httpx
from paceline._native import Limiter, Permit
from paceline.errors import RateLimitExceeded, StorageUnavailable
from paceline.llm import streams
from paceline.llm.cache import Sent
from paceline.llm.errors import Escape, RateLimited, UnknownPrice
from paceline.retry import RetryConfig, RetryStrategy

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Coroutine, Iterable
    from types import ModuleType

    from paceline._native import Answer, Cost, LlmCall, Paced
    from paceline.llm.flights import Wait
    from paceline.llm.guard import Guard
    from paceline.llm.sdks import Sdk

#: What the SDK sends again by itself is sent once here.
_ONCE = RetryConfig(
    max_retries=0, strategy=RetryStrategy.NONE, retry_on_status=(429, 503, 504, 529)
)
_ERROR = 400


class Calling:
    """A call of an SDK that is under way, with all its attempts."""

    __slots__ = ("guard", "sdk", "waited")

    def __init__(self, guard: Guard, sdk: Sdk) -> None:
        """Begin one."""
        self.guard = guard
        self.sdk = sdk
        #: seconds that its attempts have waited so far
        self.waited = 0.0


#: The call of an SDK that runs in this context.
calling: contextvars.ContextVar[Calling | None] = contextvars.ContextVar(
    "paceline_calling", default=None
)


class _Attempt(_flow.PlainCall):
    """What one attempt is, whatever client sends it."""

    calling: Calling
    charge: LlmCall
    request: Any
    #: permits of the budgets that it is paid from
    budgets: list[Permit]
    is_answered: bool

    def begin(self, under: Calling, body: bytes | None, model: str | None) -> None:
        """Find out where it is counted, and what it may spend."""
        self.calling = under
        self.limiter = under.guard.limiter
        self.budgets = []
        self.is_answered = False
        url = self.request.url
        path = url.path
        self.url = under.sdk.url + path
        try:
            self.charge = under.guard.charge(under.sdk, url.host, path, body, model)
        except StorageUnavailable as error:
            raise _past(under, error) from error

    @property
    def retried_above(self) -> bool:
        return self.calling.sdk.retries

    @property
    def retry(self) -> RetryConfig:
        return _ONCE if self.calling.sdk.retries else self.limiter.retry

    @property
    def patience(self) -> float | None:
        most = self.limiter.max_wait
        return most if most is None else max(0.0, most - self.calling.waited)

    def spends(self) -> tuple[str, Cost, str | None]:
        account = self.calling.guard.account_of(self.request.headers)
        return self.charge.scope, self.charge.cost, account

    def answered(self, status: int) -> None:
        """Note that there is an answer."""
        self.is_answered = True
        self.charge.answered(status)

    def admitted(self, paced: Paced) -> None:
        """Note how long it waited."""
        self.calling.waited += paced.waited
        self.charge.waited(paced.waited)


class _Call(_Attempt, _httpx.Call):
    """One attempt, by a client of ``httpx`` or ``httpx2``."""

    def __init__(
        self,
        under: Calling,
        package: ModuleType,
        original: Callable[..., Any],
        client: Any,
        request: Any,
        kwargs: dict[str, Any],
    ) -> None:
        self.package = package
        self.original = original
        self.client = client
        self.request = request
        self.kwargs = kwargs
        self.begin(under, *_body(request))
        #: whether all of the answer is read, whatever it is
        self.is_read = False

    def read(self, response: Any) -> tuple[int, list[tuple[bytes, bytes]]]:
        self.answered(response.status_code)
        return super().read(response)

    def is_short(self, response: Any) -> bool:
        return self.is_read or super().is_short(response)

    def tell(self, response: Any, paced: Paced, permit: Permit) -> None:
        response.extensions["paceline"] = paced
        self.admitted(paced)
        status = response.status_code
        if permit.spent:
            # Waiting brings nothing back: the SDK is not to try again.
            response.headers["x-should-retry"] = "false"
        if response.is_closed or status >= _ERROR:
            content = response.content if response.is_closed else None
            self.charge.settle(permit, self.budgets, status, content)
        else:
            reader = self.charge.watch(permit, self.budgets, self.kind(response))
            streams.watch(self.package, response, reader)


class _Blocking(_Call):
    async def send(self) -> Any:
        token = calling.set(None)
        try:
            return self.original(self.client, self.request, **self.kwargs)
        finally:
            calling.reset(token)

    async def body(self, response: Any) -> bytes | None:
        return response.read() if response.is_closed or self.is_short(response) else None

    async def discard(self, response: Any) -> None:
        response.close()

    async def fill(self, response: Any) -> None:
        response.read()

    @staticmethod
    def waiting() -> Wait | None:
        # What runs in this event loop may be the one to wait for.
        return None if _drive.in_loop() else _drive.until


class _Async(_Call):
    async def send(self) -> Any:
        token = calling.set(None)
        try:
            return await self.original(self.client, self.request, **self.kwargs)
        finally:
            calling.reset(token)

    async def body(self, response: Any) -> bytes | None:
        return await response.aread() if response.is_closed or self.is_short(response) else None

    def discard(self, response: Any) -> Any:
        return response.aclose()

    async def fill(self, response: Any) -> None:
        await response.aread()

    @staticmethod
    def waiting() -> Wait | None:
        return _drive.until_async


def blocking(under: Calling, *sent: Any) -> Any:
    """Pace one attempt on this thread."""
    return _drive.finish(_attend(_Blocking, under, Sent(*sent), Limiter.acquire, _drive.pause))


def awaited(under: Calling, *sent: Any) -> Coroutine[Any, Any, Any]:
    """Pace one attempt in an event loop."""
    return _attend(_Async, under, Sent(*sent), Limiter.acquire_soon, _drive.pause_async)


async def _attend(
    kind: type[_Blocking | _Async],
    under: Calling,
    sent: Sent,
    acquire: Callable[..., Permit | Awaitable[Permit]],
    pause: Callable[[Any, float], Awaitable[object]],
) -> Any:
    """Give the answer that is kept, or let an attempt have its turn."""
    cache = under.guard.cache
    key = None if cache is None else cache.key(sent, _body(sent.request)[0])
    if cache is None or key is None:
        return await pace(kind(under, *sent), acquire, pause)

    async def fetch() -> tuple[Any, Answer | None]:
        call = kind(under, *sent.opened())
        call.is_read = not sent.is_stream
        response = await pace(call, acquire, pause)
        try:
            recording = cache.record(key, response, sent, call.charge)
            if not sent.is_stream:
                await call.fill(response)
        except BaseException:
            await call.discard(response)
            raise
        return response, None if recording is None else recording.answer

    return await cache.answer(key, sent, fetch, kind.waiting)


async def pace(
    call: Any,
    acquire: Callable[..., Permit | Awaitable[Permit]],
    pause: Callable[[Any, float], Awaitable[object]],
) -> Any:
    """Take what an attempt may cost from its budgets, then let it have its turn."""
    budgets = call.budgets
    try:
        for scope, cost in call.charge.budgets:
            granted = acquire(call.limiter, scope, cost, max_wait=0, account=None)
            budgets.append(granted if isinstance(granted, Permit) else await granted)
        return await _flow.exchange(call, acquire, pause)
    except (RateLimitExceeded, UnknownPrice) as error:
        cancel(budgets)
        raise _outward(call, error) from error
    except BaseException as error:
        if call.never_left(error):
            cancel(budgets)
        raise


def cancel(permits: Iterable[Permit]) -> None:
    """Give back what was never spent."""
    for permit in permits:
        permit.cancel()


def _outward(call: _Attempt, error: Exception) -> BaseException:
    """Give the error that users are to see, in a form that gets past the SDK."""
    if isinstance(error, RateLimitExceeded):
        if not call.is_answered:
            call.charge.refused()
        if not isinstance(error, StorageUnavailable):
            charge = call.charge
            words = str(error), error.scope, error.dimension, error.retry_after
            error = RateLimited(*words, charge.provider, charge.model)
    return _past(call.calling, error)


def _past(under: Calling, error: Exception) -> BaseException:
    """Give an error in the form in which it gets past the SDK."""
    return Escape(error) if under.sdk.wraps_errors else error


def _body(request: Any) -> tuple[bytes | None, str | None]:
    """Give a request's body where it is at hand, and the model that a form names."""
    content = getattr(request, "_content", None)
    if content is not None:
        return content or None, None
    for field in getattr(request.stream, "fields", ()):
        if field.name == "model" and isinstance(value := getattr(field, "value", None), str):
            return None, value
    return None, None
