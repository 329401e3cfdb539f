"""The cache of a guard: who asks the same is given the same answer, and no permit is taken for it.

Every request is looked up where it is sent. What calls are most of the time, such as ``create``, is
looked up where it begins, too: what an SDK does in between takes far longer than the rest.
"""

from __future__ import annotations

import contextlib
import contextvars
import functools
import inspect
from datetime import timedelta
from typing import TYPE_CHECKING, Any, NamedTuple

from paceline import _native
from paceline._flow import account
from paceline.llm import streams
from paceline.llm.flights import Flights

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Generator
    from types import ModuleType

    from paceline.llm.flights import Wait
    from paceline.llm.guard import Guard

    #: has what an HTTP client is to send sent: gives the response, and the answer if it was kept
    Fetch = Callable[[], Awaitable[tuple[Any, _native.Answer | None]]]
    #: gives the guard of what an SDK does by these HTTP clients
    Find = Callable[[tuple[Any, ...]], Guard | None]

#: Whether calls of this context go past the cache.
_bypassed: contextvars.ContextVar[bool] = contextvars.ContextVar(
    "paceline_bypass_cache", default=False
)
#: The call of an SDK that runs in this context and is known since it began.
_begun: contextvars.ContextVar[Begun | None] = contextvars.ContextVar(
    "paceline_begun", default=None
)
_NO_TIME = timedelta(0)

#: Calls that are looked up where they begin: the module, and methods there.
BEGINNINGS = {
    module: (f"{name}.create", f"Async{name}.create")
    for module, name in {
        "anthropic.resources.messages.messages": "Messages",
        "anthropic.resources.beta.messages.messages": "Messages",
        "groq.resources.chat.completions": "Completions",
        "openai.resources.chat.completions.completions": "Completions",
        "openai.resources.completions": "Completions",
        "openai.resources.embeddings": "Embeddings",
        "openai.resources.responses.responses": "Responses",
        "together.resources.chat.completions": "CompletionsResource",
    }.items()
}
#: Where the clients are made of which it is known what they add to a request: it stands in their
#: attributes, all but these.
_CLIENTS = ("anthropic", "groq", "openai", "openai.lib.azure", "together")
_UNCOUNTED = {
    *("_client", "_default_stream_cls", "_lazy_tracer", "_open_telemetry", "_otel", "_platform"),
    *("_timeout", "_timeout_overridden", "max_retries", "timeout"),
}


@contextlib.contextmanager
def bypass_cache() -> Generator[None]:
    """Let calls in this block go past the cache: nothing is looked up, shared or kept.

    They are paced as ever.

    >>> import paceline
    >>> with paceline.bypass_cache():
    ...     pass  # client.chat.completions.create(...)
    """
    token = _bypassed.set(True)
    try:
        yield
    finally:
        _bypassed.reset(token)


class Sent(NamedTuple):
    """What an HTTP client was given to send."""

    package: ModuleType
    #: how the client sends by itself
    original: Callable[..., Any]
    client: Any
    request: Any
    kwargs: dict[str, Any]

    @property
    def is_stream(self) -> bool:
        """Whether the caller reads the answer as it comes."""
        return bool(self.kwargs.get("stream"))

    def opened(self) -> Sent:
        """Give the same, to be read as it comes."""
        return self._replace(kwargs={**self.kwargs, "stream": True})


class Cache:
    """The answers of one guard."""

    def __init__(self, engine: _native.Cache, account: str | None, *, coalesce: bool) -> None:
        """Keep answers in that engine, for that account unless another is named."""
        self.engine = engine
        self._account = account
        self._flights = Flights() if coalesce else None

    def key(self, sent: Sent, body: bytes | None) -> bytes | None:
        """Give what a request is known by; ``None`` when its answer is not to be kept."""
        _, _, client, request, kwargs = sent
        auth = kwargs.get("auth")
        is_own = auth is None or type(auth).__name__ == "UseClientDefault"
        if body is None or not is_own or _is_changed_later(client) or _bypassed.get():
            return None
        account = self._account_here()
        url, headers = str(request.url), request.headers.raw
        return self.engine.key(request.method, url, headers, body, account)

    def _account_here(self) -> str | None:
        return account() or self._account

    async def answer(
        self, key: bytes, sent: Sent, fetch: Fetch, waiting: Callable[[], Wait | None]
    ) -> Any:
        """Give the answer that is kept, or the one that comes."""
        if (kept := self.engine.get(key)) is not None:
            return self._give(sent, kept)
        # How fast somebody reads a stream is nobody else's business: streams are not shared.
        flights = None if sent.is_stream else self._flights
        if flights is None or (wait := waiting()) is None:
            response, kept = await fetch()
        else:
            again = functools.partial(self.engine.get, key)
            response, kept = await flights.share(key, again, fetch, wait)
            if response is None and kept is not None:
                return self._give(sent, kept)
        _note(kept)
        return response

    def record(
        self, key: bytes, response: Any, sent: Sent, charge: _native.LlmCall
    ) -> _native.Recording | None:
        """Write an answer down as it comes, to be kept when all of it came."""
        said = response.extensions
        recording = self.engine.record(
            key,
            charge.provider,
            charge.model,
            response.status_code,
            said.get("http_version", b""),
            said.get("reason_phrase", b""),
            response.headers.raw,
        )
        if recording is not None and response.is_closed:
            recording.push(response.content)
            recording.end()
        elif recording is not None:
            streams.watch(sent.package, response, recording)
        return recording

    def _give(self, sent: Sent, kept: _native.Answer) -> Any:
        """Make the client's own response of an answer."""
        self.engine.count(kept)
        _note(kept)
        package: Any = sent.package
        known = {"http_version": kept.version, "reason_phrase": kept.reason}
        extensions: dict[str, Any] = {name: it for name, it in known.items() if it}
        extensions["paceline"] = _native.Paced(0.0, kept.scope, 0)
        stream = streams.replay(package, kept.parts) if sent.is_stream else None
        response = package.Response(
            kept.status,
            content=None if sent.is_stream else kept.body,
            stream=stream,
            request=sent.request,
            extensions=extensions,
            default_encoding=sent.client._default_encoding,  # noqa: SLF001 - no other way to it
        )
        # The body was decoded: it chooses how before it hears how the body came.
        response._get_content_decoder()  # noqa: SLF001
        response.headers = package.Headers(kept.headers)
        response.elapsed = _NO_TIME
        return response

    def begin(self, name: str, client: Any, arguments: dict[str, Any]) -> Begun | None:
        """Look a call up that begins; ``None`` where it is not known so early what it asks."""
        kind = type(client)
        if kind.__module__ not in _CLIENTS or arguments.get("stream") or _bypassed.get():
            return None
        http_client = client._client  # noqa: SLF001
        if _is_changed_later(http_client) or http_client.params or _has_cookies(http_client):
            return None
        other = (kind.__qualname__, self._account_here(), http_client.headers.raw)
        uncounted = _uncounted(kind)  # type: ignore[arg-type] # a type is hashable
        key, made = self.engine.meet(name, vars(client), uncounted, other, arguments)
        return None if key is None and made is None else Begun(self.engine, key, made)


class Begun:
    """A call of an SDK that is known since it began; entered while it runs."""

    __slots__ = ("_engine", "_key", "_token", "kept", "made")

    def __init__(self, engine: _native.Cache, key: bytes | None, made: Any) -> None:
        """Know it by its key, or know already what comes of it."""
        self._engine = engine
        self._key = key
        #: a copy of what came of it before
        self.made = made
        #: the answer that it was given
        self.kept: _native.Answer | None = None

    def __enter__(self) -> None:
        """Have its answer told to it."""
        self._token = _begun.set(self)

    def __exit__(self, *_: object) -> None:
        """Hear of no more."""
        _begun.reset(self._token)

    def ended(self, result: Any) -> Any:
        """Keep what the SDK has made of the answer, and give it."""
        if self._key is not None and self.kept is not None:
            self._engine.keep(self._key, self.kept, result)
        return result


def _note(kept: _native.Answer | None) -> None:
    """Have the call that runs here know its answer."""
    if (begun := _begun.get()) is not None:
        begun.kept = kept


def looked_up(find: Find, before: Callable[..., Any]) -> Callable[..., Any]:
    """Change a method of an SDK so that it is looked up where it begins."""
    name = f"{before.__module__}.{before.__qualname__}"

    def begin(of: Any, arguments: dict[str, Any]) -> Begun | None:
        client = of._client  # noqa: SLF001
        guard = find((client._client,))  # noqa: SLF001
        cache = None if guard is None else guard.cache
        return None if cache is None else cache.begin(name, client, arguments)

    async def awaited(begun: Begun, of: Any, arguments: dict[str, Any]) -> Any:
        with begun:
            return begun.ended(await before(of, **arguments))

    is_awaited = inspect.iscoroutinefunction(inspect.unwrap(before))

    @functools.wraps(before)
    def create(of: Any, *args: Any, **kwargs: Any) -> Any:
        if args or (begun := begin(of, kwargs)) is None:
            return before(of, *args, **kwargs)
        if begun.made is not None:
            return _at_once(begun.made) if is_awaited else begun.made
        if is_awaited:
            return awaited(begun, of, kwargs)
        with begun:
            return begun.ended(before(of, **kwargs))

    return create


async def _at_once(result: Any) -> Any:
    return result


def _is_changed_later(client: Any) -> bool:
    """Whether an HTTP client adds something to a request, nobody knows what, when it sends it."""
    return client.auth is not None or bool(client.event_hooks["request"])


def _has_cookies(client: Any) -> bool:
    return any(not _native.is_volatile_cookie(cookie.name) for cookie in client.cookies.jar)


@functools.cache
def _uncounted(kind: type) -> frozenset[str]:
    """Give the attributes of clients that make no difference: how they send, and what is cached."""
    names = (name for of in kind.__mro__ for name, it in vars(of).items() if _is_cached(it))
    return frozenset(_UNCOUNTED.union(names))


def _is_cached(attribute: Any) -> bool:
    return isinstance(attribute, functools.cached_property)
