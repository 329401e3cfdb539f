"""The guard of LLM calls: ``paceline.install()``, and what belongs to it."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Any

from paceline.llm import guarding
from paceline.llm.cache import bypass_cache
from paceline.llm.guard import Guard, ModelStats, RateLimitRule
from paceline.llm.guarding import bypass, get_guard

if TYPE_CHECKING:
    from typing import TypeVar

    _Client = TypeVar("_Client")

__all__ = [
    "Guard",
    "ModelStats",
    "RateLimitRule",
    "bypass",
    "bypass_cache",
    "get_guard",
    "install",
    "is_installed",
    "stats",
    "uninstall",
    "unwrap",
    "wrap",
]

_lock = threading.Lock()


def install(guard: Guard | None = None, **options: Any) -> Guard:
    """Guard every call of every LLM SDK in this process, of clients made before and after.

        import paceline

        guard = paceline.install()

    Args:
        guard: a guard that you have; a new one unless given.
        **options: settings of a new one: see :class:`paceline.Guard`.

    Returns:
        the guard. Installed again without any argument, the one that is; with some, the new one
        takes its place.

    Raises:
        TypeError: for a guard together with options, or an option that is none.
        StorageUnavailable: when ``fail_closed`` is set and the store cannot be reached.

    """
    if guard is not None and options:
        raise TypeError("install takes a guard that you have or settings of a new one, not both")
    with _lock:
        it = guard or (None if options else guarding.installed()) or Guard(**options)
        guarding.set_installed(it)
        return it


def uninstall() -> Guard | None:
    """Guard calls no longer, leave every SDK as it was found, and give the guard that there was.

    Clients that were wrapped and blocks go on being guarded. What is under way ends as it began.
    """
    return guarding.set_installed(None)


def is_installed() -> bool:
    """Whether every call is guarded."""
    return guarding.installed() is not None


def stats() -> dict[str, ModelStats]:
    """Tell what became of calls in this process, by model, as the guard of this place counted."""
    guard = get_guard()
    return {} if guard is None else guard.stats


def wrap(client: _Client) -> _Client:
    """Guard one client by the guard of this place, or by a new one, and give it back.

    See :meth:`paceline.Guard.wrap`.
    """
    return (get_guard() or Guard()).wrap(client)


def unwrap(client: _Client) -> _Client:
    """Guard a client no longer that was wrapped, and give it back."""
    return guarding.unwrap(client)
