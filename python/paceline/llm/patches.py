"""What is changed while calls are guarded: where calls of SDKs begin, and how HTTP clients send.

Each change is one attribute of a class, and is taken back exactly. An SDK that is imported later is
changed when it is.
"""

from __future__ import annotations

import functools
import importlib
import inspect
import sys
import threading
import weakref
from typing import TYPE_CHECKING, Any

import wrapt

from paceline.llm import cache, calls
from paceline.llm.calls import Calling, calling
from paceline.llm.errors import Escape
from paceline.llm.sdks import SDKS

if TYPE_CHECKING:
    from collections.abc import Callable
    from types import ModuleType

    from paceline.llm.guard import Guard
    from paceline.llm.sdks import Sdk

    #: gives the guard of what an SDK does by these HTTP clients
    Find = Callable[[tuple[Any, ...]], Guard | None]


class Patches:
    """The changes, and whether they are made at present."""

    def __init__(self, find: Find) -> None:
        """Make none yet; ``find`` tells whose call it is."""
        self._find = find
        self._lock = threading.RLock()
        #: the class, the name, what was there before, and what is there now
        self._made: list[tuple[type, str, Any, Any]] = []
        self._wanted = False
        self._listening = False
        #: HTTP clients of SDKs whose calls are not seen as a whole
        self._owned: weakref.WeakKeyDictionary[Any, Sdk] = weakref.WeakKeyDictionary()
        self._changes: dict[str, Callable[[ModuleType], None]] = {
            "httpx._client": self._change_clients,
            "httpx2._client": self._change_clients,
            "aiohttp.client": self._change_sessions,
        }
        for sdk in SDKS:
            self._changes[sdk.module] = functools.partial(self._change_sdk, sdk)
        for name, methods in cache.BEGINNINGS.items():
            self._changes[name] = functools.partial(self._change_beginnings, methods)

    def want(self, wanted: bool) -> None:
        """Make all changes, or take them back. What is so already stays."""
        with self._lock:
            if wanted and not self._wanted:
                self._make()
            elif self._wanted and not wanted:
                self._take_back()
            self._wanted = wanted

    def _make(self) -> None:
        for name, change in self._changes.items():
            module = sys.modules.get(name)
            # What is still being imported is met below.
            if module is not None and not getattr(module.__spec__, "_initializing", False):
                change(module)
        if not self._listening:
            self._listening = True
            for name in self._changes:
                if name not in sys.modules or not self._is_changed(name):
                    wrapt.register_post_import_hook(self._imported, name)

    def _is_changed(self, module: str) -> bool:
        return any(owner.__module__ == module for owner, *_ in self._made)

    def _imported(self, module: ModuleType) -> None:
        with self._lock:
            if self._wanted:
                self._changes[module.__name__](module)

    def _take_back(self) -> None:
        while self._made:
            owner, name, before, now = self._made.pop()
            # What somebody else has put over it stays, and calls through it what was there before.
            if owner.__dict__.get(name) is now:
                setattr(owner, name, before)

    def _change(self, owner: type, name: str, make: Callable[[Any], Any]) -> None:
        before = owner.__dict__.get(name)
        if before is None or any(it is owner and at == name for it, at, *_ in self._made):
            return
        now = make(before)
        setattr(owner, name, now)
        self._made.append((owner, name, before, now))

    def _change_sdk(self, sdk: Sdk, module: ModuleType) -> None:
        """Change where calls of an SDK begin."""
        make = self._begin if sdk.is_seen_whole else self._mark
        for path in sdk.methods:
            class_name, _, name = path.partition(".")
            if (owner := getattr(module, class_name, None)) is not None:
                self._change(owner, name, functools.partial(make, sdk))

    def _change_beginnings(self, methods: tuple[str, ...], module: ModuleType) -> None:
        """Change where the cache meets calls."""
        for path in methods:
            class_name, _, name = path.partition(".")
            if (owner := getattr(module, class_name, None)) is not None:
                self._change(owner, name, functools.partial(cache.looked_up, self._find))

    def _begin(self, sdk: Sdk, before: Callable[..., Any]) -> Callable[..., Any]:
        """Have it known, while a method runs, that a call of an SDK is under way."""
        if inspect.iscoroutinefunction(before):

            @functools.wraps(before)
            async def call(of: Any, *args: Any, **kwargs: Any) -> Any:
                outer = calling.get()
                token = calling.set(self._call_of(sdk, of))
                try:
                    return await before(of, *args, **kwargs)
                except Escape as escape:
                    _leave(escape, outer)
                finally:
                    calling.reset(token)

        else:

            @functools.wraps(before)
            def call(of: Any, *args: Any, **kwargs: Any) -> Any:
                outer = calling.get()
                token = calling.set(self._call_of(sdk, of))
                try:
                    return before(of, *args, **kwargs)
                except Escape as escape:
                    _leave(escape, outer)
                finally:
                    calling.reset(token)

        return call

    def _call_of(self, sdk: Sdk, of: Any) -> Calling | None:
        guard = self._find(sdk.http_clients(of)) if self._wanted else None
        return None if guard is None else Calling(guard, sdk)

    def _mark(self, sdk: Sdk, before: Callable[..., Any]) -> Callable[..., Any]:
        """Have it known whose HTTP client it is that a method is about to use."""

        @functools.wraps(before)
        def call(of: Any, *args: Any, **kwargs: Any) -> Any:
            for client in sdk.http_clients(of):
                self._owned[client] = sdk
            return before(of, *args, **kwargs)

        return call

    def _sent_by(self, client: Any) -> Calling | None:
        """Give the call that a client sends for; ``None`` for what is none of an SDK's."""
        if (under := calling.get()) is not None:
            return under
        if not self._owned or not self._wanted or (sdk := self._owned.get(client)) is None:
            return None
        guard = self._find((client,))
        return None if guard is None else Calling(guard, sdk)

    def _change_clients(self, module: ModuleType) -> None:
        """Change how the clients of ``httpx`` or ``httpx2`` send."""
        package = importlib.import_module(module.__name__.partition(".")[0])

        def blocking(before: Callable[..., Any]) -> Callable[..., Any]:
            @functools.wraps(before)
            def send(client: Any, request: Any, **kwargs: Any) -> Any:
                if (under := self._sent_by(client)) is None:
                    return before(client, request, **kwargs)
                return calls.blocking(under, package, before, client, request, kwargs)

            return send

        def awaited(before: Callable[..., Any]) -> Callable[..., Any]:
            @functools.wraps(before)
            async def send(client: Any, request: Any, **kwargs: Any) -> Any:
                if (under := self._sent_by(client)) is None:
                    return await before(client, request, **kwargs)
                return await calls.awaited(under, package, before, client, request, kwargs)

            return send

        self._change(module.Client, "send", blocking)
        self._change(module.AsyncClient, "send", awaited)

    def _change_sessions(self, module: ModuleType) -> None:
        """Change how sessions of ``aiohttp`` send."""

        def sending(before: Callable[..., Any]) -> Callable[..., Any]:
            @functools.wraps(before)
            async def request(session: Any, *args: Any, **kwargs: Any) -> Any:
                if (under := self._sent_by(session)) is not None:
                    from paceline.llm import by_aiohttp  # noqa: PLC0415 - imports aiohttp

                    given = kwargs.get("middlewares")
                    own = session._middlewares if given is None else given  # noqa: SLF001
                    kwargs["middlewares"] = (*own, by_aiohttp.middleware(under))
                return await before(session, *args, **kwargs)

            return request

        self._change(module.ClientSession, "_request", sending)


def _leave(escape: Escape, outer: Calling | None) -> None:
    """Let an error out that has got past the SDK; within another SDK it has further to go."""
    if outer is not None:
        raise escape
    raise escape.error from escape.error.__cause__
