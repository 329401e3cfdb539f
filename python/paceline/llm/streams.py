"""Answers that come bit by bit: read along as they pass, and settled for when they end.

However a stream ends, its close comes: read to its end, left early, cancelled, broken, or
forgotten.
"""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterator
    from types import ModuleType

    from paceline._native import Recording, Watch


def watch(package: ModuleType, response: Any, reader: Recording | Watch) -> None:
    """Read along what passes through a response that nobody has read yet."""
    blocking, awaited = _streams(package)
    inner = response.stream
    kind = blocking if isinstance(inner, package.SyncByteStream) else awaited
    is_plain = response.headers.get("content-encoding", "identity") == "identity"
    response.stream = kind(inner, reader, is_plain)
    if not is_plain:
        _watch_decoded(response, reader)


class _Watched:
    """A stream of which is read along what passes."""

    def __init__(self, inner: Any, reader: Recording | Watch, is_plain: bool) -> None:
        self._inner = inner
        self._reader = reader
        self._is_plain = is_plain

    def __del__(self) -> None:
        self._reader.end()


class _Blocking(_Watched):
    def __iter__(self) -> Iterator[bytes]:
        for part in self._inner:
            if self._is_plain:
                self._reader.push(part)
            yield part

    def close(self) -> None:
        self._inner.close()
        self._reader.end()


class _Awaited(_Watched):
    async def __aiter__(self) -> AsyncIterator[bytes]:
        async for part in self._inner:
            if self._is_plain:
                self._reader.push(part)
            yield part

    async def aclose(self) -> None:
        # A task that is cancelled may not come back from what it awaits here.
        self._reader.end()
        await self._inner.aclose()


@functools.cache
def _streams(package: ModuleType) -> tuple[type[Any], type[Any]]:
    """Make them streams of a package, which knows its own by their base classes."""
    blocking = type("Blocking", (_Blocking, package.SyncByteStream), {})
    awaited = type("Awaited", (_Awaited, package.AsyncByteStream), {})
    return blocking, awaited


def replay(package: ModuleType, parts: list[bytes]) -> Any:
    """Give a body that comes in parts again, at once."""
    return _replays(package)(parts)


class _Replayed:
    def __init__(self, parts: list[bytes]) -> None:
        self._parts = parts

    def __iter__(self) -> Iterator[bytes]:
        yield from self._parts

    async def __aiter__(self) -> AsyncIterator[bytes]:
        for part in self._parts:
            yield part


@functools.cache
def _replays(package: ModuleType) -> type[_Replayed]:
    return type("Replayed", (_Replayed, package.SyncByteStream, package.AsyncByteStream), {})


def _watch_decoded(response: Any, reader: Recording | Watch) -> None:
    """Read along behind the response's own decoder, for the response alone knows how to decode."""
    parts, aparts = response.iter_bytes, response.aiter_bytes

    def iter_bytes(*args: Any, **kwargs: Any) -> Iterator[bytes]:
        for part in parts(*args, **kwargs):
            reader.push(part)
            yield part

    async def aiter_bytes(*args: Any, **kwargs: Any) -> AsyncIterator[bytes]:
        async for part in aparts(*args, **kwargs):
            reader.push(part)
            yield part

    response.iter_bytes = iter_bytes
    response.aiter_bytes = aiter_bytes
