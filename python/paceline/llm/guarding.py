"""Who is guarded: everything, a block, or one client; and what is let through."""

from __future__ import annotations

import contextlib
import contextvars
import threading
import weakref
from typing import TYPE_CHECKING, Any, TypeVar

from paceline.llm.patches import Patches
from paceline.llm.sdks import SDKS

if TYPE_CHECKING:
    from collections.abc import Generator

    from paceline.llm.guard import Guard

_Client = TypeVar("_Client")

_lock = threading.RLock()
_installed: Guard | None = None
#: Guards of single clients, by the HTTP clients beneath.
_wrapped: weakref.WeakKeyDictionary[Any, Guard] = weakref.WeakKeyDictionary()
#: How many blocks are guarded by a guard of their own.
_blocks = 0
#: The blocks around here, the innermost first: each has a guard, or lets calls through.
_around: contextvars.ContextVar[tuple[Guard | None, Any] | None] = contextvars.ContextVar(
    "paceline_guard", default=None
)


def _find(http_clients: tuple[Any, ...]) -> Guard | None:
    """Give the guard of what is about to be sent by one of these."""
    if (block := _around.get()) is not None:
        return block[0]
    if _wrapped:
        for client in http_clients:
            if (guard := _wrapped.get(client)) is not None:
                return guard
    return _installed


_patches = Patches(_find)


def _refresh() -> None:
    """Change SDKs where somebody needs it, and nowhere else."""
    _patches.want(_installed is not None or _blocks > 0 or len(_wrapped) > 0)


def installed() -> Guard | None:
    """Give the guard of every call."""
    return _installed


def set_installed(guard: Guard | None) -> Guard | None:
    """Guard every call by this one; give the guard that did so before."""
    global _installed
    with _lock:
        before, _installed = _installed, guard
        _refresh()
        return before


def get_guard() -> Guard | None:
    """Give the guard of calls that are made here: of this block, else the one that is installed."""
    return _find(())


@contextlib.contextmanager
def bypass() -> Generator[None]:
    """Let calls in this block through: nothing is awaited, counted or learned.

    >>> import paceline
    >>> with paceline.bypass():
    ...     pass  # client.chat.completions.create(...)
    """
    around = _around.get()
    _around.set((None, around))
    try:
        yield
    finally:
        _around.set(around)


def enter(guard: Guard) -> None:
    """Begin a block with a guard of its own."""
    global _blocks  # noqa: PLW0603
    _around.set((guard, _around.get()))
    with _lock:
        _blocks += 1
        _refresh()


def leave() -> None:
    """End it."""
    global _blocks  # noqa: PLW0603
    if (block := _around.get()) is not None:
        _around.set(block[1])
    with _lock:
        _blocks -= 1
        _refresh()


def wrap(client: _Client, guard: Guard) -> _Client:
    """Guard one client of an SDK."""
    with _lock:
        for http_client in _http_clients(client):
            _wrapped[http_client] = guard
        _refresh()
    return client


def unwrap(client: _Client) -> _Client:
    """Guard it no longer."""
    with _lock:
        for http_client in _http_clients(client):
            _wrapped.pop(http_client, None)
        _refresh()
    return client


def _http_clients(client: Any) -> tuple[Any, ...]:
    """Give what a client of an SDK sends by."""
    packages = {kind.__module__.partition(".")[0] for kind in type(client).__mro__}
    for sdk in SDKS:
        if sdk.package in packages:
            return sdk.http_clients(sdk.begins(client))
    known = ", ".join(sdk.package for sdk in SDKS)
    raise TypeError(f"expected a client of {known}, not {type(client).__name__}")
