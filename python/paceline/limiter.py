"""The limiters."""

from __future__ import annotations

import functools
import inspect
from typing import TYPE_CHECKING, Any, Literal, TypeVar, overload

from paceline import _httpx, _native, _process, status
from paceline._flow import spending
from paceline.retry import RetryConfig

if TYPE_CHECKING:
    import os
    from collections.abc import Callable, Mapping

    import aiohttp
    import httpx
    import httpx2
    import requests
    from typing_extensions import Self

    from paceline.status import Explanation, RateLimitStatus

_Function = TypeVar("_Function", bound="Callable[..., Any]")

#: Connections that are kept to each host: about as many as threads that share a limiter.
_CONNECTIONS = 64


#: The clock of limiters that are given none: real time, but in tests.
usual_clock: _native.VirtualClock | None = None


def read_config(config: str | os.PathLike[str] | bool | None) -> _native.Config | None:
    """Read a file of settings, or the nearest one for ``True``."""
    if config is None or config is False:
        return None
    return _native.Config(None if config is True else config)


class _Limiter(_native.Limiter):
    """What both kinds of limiter share: their settings, and how they show themselves."""

    def __init__(
        self,
        storage: str = "memory",
        *,
        default_limits: Mapping[str, int | None] | None = None,
        raise_on_limit: bool = False,
        retry: RetryConfig | None = None,
        max_wait: float | None = None,
        fail_closed: bool = False,
        fallback: Literal["local"] | None = None,
        lease: float | None = None,
        storage_timeout: float = 0.25,
        learn_first: bool = False,
        adaptive: bool = False,
        also_parents: bool = False,
        account: str | None = None,
        headers_map: Mapping[str, str] | None = None,
        use_provider_profiles: bool = True,
        authenticated: bool = False,
        clock: _native.VirtualClock | None = None,
        config: str | os.PathLike[str] | bool | None = None,
    ) -> None:
        self.config = said = read_config(config)
        if said is not None:
            storage = (said.storage or storage) if storage == "memory" else storage
            retry = retry or (RetryConfig(**said.retry) if said.retry else None)
            max_wait = said.max_wait if max_wait is None else max_wait
        self.retry = retry or RetryConfig()
        self.max_wait = max_wait
        super().__init__(
            storage,
            default_limits=default_limits,
            raise_on_limit=raise_on_limit,
            retry=self.retry.policy,
            max_wait=max_wait,
            fail_closed=fail_closed,
            fallback=fallback,
            lease=lease,
            storage_timeout=storage_timeout,
            learn_first=learn_first,
            adaptive=adaptive,
            also_parents=also_parents,
            account=account,
            headers_map=headers_map,
            use_provider_profiles=use_provider_profiles,
            authenticated=authenticated,
            clock=clock or usual_clock,
            config=said,
        )
        _process.used(self, shared=storage != "memory")
        if said is not None:
            said.apply(self)

    def reload(self) -> None:
        """Read the file that was given as ``config`` anew, and live by its limits from now on.

        What was used of a limit stays used, also when it is another number now. Other settings
        are those of a limiter from its beginning.

        Raises ``ValueError`` when something in it is wrong, and nothing was changed.
        """
        if self.config is None:
            raise ValueError("there is nothing to reload: no config was given")
        config = _native.Config(self.config.path)
        config.apply(self, self.config)
        self.config = config

    def get_status(self, endpoint: str) -> RateLimitStatus | None:
        """Read what is known of the scope that governs an endpoint; ``None`` if nothing is.

        A host whose server counts in several buckets of its own shows the tightest of them: one
        that is held, or else the one of which the smallest share is left.
        """
        return status.read(self, endpoint)

    def explain(self, endpoint: str) -> Explanation:
        """Say which limits a call to an endpoint meets, and why those; ``print`` it.

        >>> from paceline import RateLimiter
        >>> limiter = RateLimiter()
        >>> limiter.set_limit("api.example.com", limit=60, window="1m")
        >>> print(limiter.explain("https://api.example.com/users/7"))
        https://api.example.com governs https://api.example.com/users/7: no narrower one is known
          60/1m: 60 left, set by you
        """
        return status.explain(self, endpoint)

    def limit(
        self, endpoint: str, cost: Mapping[str, float] | None = None
    ) -> Callable[[_Function], _Function]:
        """Have every call of a function wait for its permit first.

            @limiter.limit("api.example.com", cost={"tokens": 1500})
            async def ask(question): ...

        A function waits on its thread, a coroutine function in its event loop, whichever the
        limiter. The cost stands when it raises: only :meth:`acquire` lets it be corrected.

        Raises ``TypeError`` for a generator, which runs long after it was called.
        """

        def decorate(function: _Function) -> _Function:
            if inspect.isgeneratorfunction(function) or inspect.isasyncgenfunction(function):
                raise TypeError(
                    f"{function.__qualname__} is a generator, which runs after it was called: "
                    "acquire a permit inside of it"
                )
            if inspect.iscoroutinefunction(function):

                @functools.wraps(function)
                async def paced(*args: Any, **kwargs: Any) -> Any:
                    async with _native.Limiter.acquire_async(self, endpoint, cost):
                        return await function(*args, **kwargs)

            else:

                @functools.wraps(function)
                def paced(*args: Any, **kwargs: Any) -> Any:
                    with _native.Limiter.acquire(self, endpoint, cost):
                        return function(*args, **kwargs)

            return paced  # type: ignore[return-value] # its signature is the same

        return decorate


class RateLimiter(_Limiter):
    """Paces calls from threads.

    A limit is declared with :meth:`set_limit`, given to every host with ``default_limits``, or read
    from responses. Calls wait for their turn, first come, first served.

    Args:
        storage: where limits and levels live. ``"memory"`` is this process;
            ``"sqlite:///file.db"`` (``"sqlite:////absolute/file.db"``) is shared by the processes
            of a machine; ``"redis://[user:password@]host:port/db"``, ``"rediss://..."``,
            ``"unix:///redis.sock"``, ``"redis+sentinel://host:port,host:port/service"`` and
            ``"redis+cluster://host:port,host:port"`` by many machines.
        default_limits: limits of every host that has none of its own, until a response says
            otherwise: ``requests_per_second``, ``requests_per_minute``, ``requests_per_hour``,
            ``requests_per_day``, ``tokens_per_minute``. All that are given apply.
        raise_on_limit: never wait; raise :class:`~paceline.RateLimitExceeded` instead, also for an
            answer that would be retried.
        retry: what to retry and how.
        max_wait: seconds that one call may wait in all, retries included. If it would be longer,
            :class:`~paceline.RateLimitExceeded` comes at once.
        fail_closed: while the store cannot be reached, raise :class:`~paceline.StorageUnavailable`
            (now, too) instead of letting calls through. Either way the logger ``paceline`` says so
            once, and once when it is back.
        fallback: ``"local"`` has each process pace itself at the share of the limits that it had,
            while the store cannot be reached.
        lease: seconds for which a process takes small parts of a limit in Redis at once, such as
            ``0.1``: many calls then cost one round trip, and all processes together still never
            exceed the limit. For calls that spend one request and nothing else.
        storage_timeout: seconds that one visit to a server may take.
        learn_first: where nothing is known of an endpoint, one request goes ahead and the others
            follow its answer.
        adaptive: where a server says nothing of its limits, search for the rate that it allows:
            start slowly, rise while requests pass, fall back a little when one is refused. What was
            found is kept in the store.
        also_parents: charge a request in every scope with a limit that it belongs to, not only in
            the narrowest: all of them or none.
        account: for whom calls count that name no account, apart from others at the same endpoint.
            A name such as ``"team-a"``, and no secret: it is part of keys and messages.
        headers_map: headers of one's own in which servers state a limit, by what they hold:
            ``limit``, ``remaining``, ``reset``, ``retry_after``. They come before the standard
            ones, but after what is built in about a host.
        use_provider_profiles: whether to use what is built in about single hosts: how to read them,
            and what they document of their limits.
        authenticated: whether calls carry credentials, for hosts that document other limits then.
        clock: a clock that moves when told to, for tests.
        config: a file of settings (``paceline check`` finds mistakes in it): limits of endpoints,
            and what is not said here. ``True`` takes what ``PACELINE_CONFIG`` names, or the nearest
            ``paceline.toml``, here or in a folder above.

    Raises:
        StorageUnavailable: when ``fail_closed`` is set and the store cannot be reached.
        ValueError: for a setting that makes no sense; the message says what was expected.
        TypeError: for a limit that is no number.

    """

    _session: requests.Session | None = None

    def request(
        self,
        method: str,
        url: str,
        *,
        cost: Mapping[str, float] | None = None,
        account: str | None = None,
        **kwargs: Any,
    ) -> requests.Response:
        """Send a request when the limits allow, and learn from the answer.

        Args:
            method: the HTTP method.
            url: where to; the narrowest scope with a limit governs.
            cost: what it spends beside one request, such as ``{"tokens": 1500}``.
            account: for whom it counts; see the limiter's ``account``.
            **kwargs: whatever :meth:`requests.Session.request` takes.

        Returns:
            the response as ``requests`` gives it; the last one, when retries did not help.

        Raises:
            RateLimitExceeded: when it would wait longer than ``max_wait``, or with
                ``raise_on_limit``.

        """
        session = self._session or self._open()
        if cost is None and account is None:
            return session.request(method, url, **kwargs)
        with spending(cost, account=account):
            return session.request(method, url, **kwargs)

    def _open(self) -> requests.Session:
        from http.cookiejar import DefaultCookiePolicy  # noqa: PLC0415

        import requests  # noqa: PLC0415

        session = requests.Session()
        # Calls that share a limiter are not one visitor: no cookie goes from one to the next.
        session.cookies.set_policy(DefaultCookiePolicy(allowed_domains=[]))
        for prefix in ("https://", "http://"):
            session.mount(prefix, requests.adapters.HTTPAdapter(pool_maxsize=_CONNECTIONS))
        self._session = self.wrap_session(session)
        return self._session

    def wrap_session(self, session: requests.Session) -> requests.Session:
        """Pace everything that a session sends, redirects included, and give the session back.

        What is mounted on it stays in use beneath. To wrap it again with the same limiter changes
        nothing.
        """
        from paceline.requests import paced  # noqa: PLC0415

        for prefix, adapter in list(session.adapters.items()):
            session.mount(prefix, paced(adapter, self))
        return session


class AsyncRateLimiter(_Limiter):
    """Paces calls from event loops, asyncio's and Trio's; several at once, if need be.

    It takes the settings of :class:`RateLimiter`, and works with and without ``async with``.
    """

    acquire = _native.Limiter.acquire_async  # type: ignore[assignment] # what is waited for differs

    @overload
    async def arequest_httpx(
        self,
        client: httpx.AsyncClient,
        method: str,
        url: httpx.URL | str,
        *,
        cost: Mapping[str, float] | None = None,
        **kwargs: Any,
    ) -> httpx.Response: ...
    @overload
    async def arequest_httpx(
        self,
        client: httpx2.AsyncClient,
        method: str,
        url: httpx2.URL | str,
        *,
        cost: Mapping[str, float] | None = None,
        **kwargs: Any,
    ) -> httpx2.Response: ...
    async def arequest_httpx(
        self,
        client: Any,
        method: str,
        url: Any,
        *,
        cost: Mapping[str, float] | None = None,
        **kwargs: Any,
    ) -> Any:
        """Send a request when the limits allow, and learn from the answer.

        Args:
            client: an ``AsyncClient`` of ``httpx`` or ``httpx2``. It is wrapped, as by
                :func:`paceline.httpx.wrap`: from now on all that it sends is paced.
            method: the HTTP method.
            url: where to; the narrowest scope with a limit governs.
            cost: what it spends beside one request, such as ``{"tokens": 1500}``.
            **kwargs: whatever the client's ``request`` takes.

        Returns:
            the response as the client gives it; the last one, when retries did not help.

        Raises:
            RateLimitExceeded: when it would wait longer than ``max_wait``, or with
                ``raise_on_limit``.

        """
        _httpx.module(client).wrap(client, self)
        with spending(cost):
            return await client.request(method, url, **kwargs)

    async def arequest_aiohttp(
        self,
        session: aiohttp.ClientSession,
        method: str,
        url: Any,
        *,
        cost: Mapping[str, float] | None = None,
        **kwargs: Any,
    ) -> aiohttp.ClientResponse:
        """Send a request when the limits allow, and learn from the answer.

        Args:
            session: what sends. Its own middlewares stay in use.
            method: the HTTP method.
            url: where to; the narrowest scope with a limit governs.
            cost: what it spends beside one request, such as ``{"tokens": 1500}``.
            **kwargs: whatever :meth:`aiohttp.ClientSession.request` takes. Its ``timeout`` goes on
                while the request waits for its turn.

        Returns:
            the response, to be read and released; the last one, when retries did not help.

        Raises:
            RateLimitExceeded: when it would wait longer than ``max_wait``, or with
                ``raise_on_limit``.

        """
        from paceline.aiohttp import pacing  # noqa: PLC0415 - imports aiohttp only if used

        kwargs["middlewares"] = pacing(self, session, kwargs.get("middlewares"))
        with spending(cost):
            return await session.request(method, url, **kwargs)

    async def __aenter__(self) -> Self:
        """Give the limiter itself."""
        return self

    async def __aexit__(self, *_: object) -> None:
        """Keep nothing open."""
