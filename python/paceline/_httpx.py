"""Pacing for ``httpx`` and ``httpx2``, which have the same face and classes of their own."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any, ClassVar

from paceline import _drive
from paceline._flow import LONGEST_ERROR, PlainCall

if TYPE_CHECKING:
    from collections.abc import Coroutine
    from types import ModuleType

    from typing_extensions import Self

    from paceline._native import Paced, Permit
    from paceline.limiter import AsyncRateLimiter, RateLimiter


class Transport:
    """What transports of both packages and both colours share."""

    #: ``httpx`` or ``httpx2``
    package: ClassVar[ModuleType]
    #: which of its transports sends, unless another is given
    default: ClassVar[str]

    def __init__(self, limiter: RateLimiter | AsyncRateLimiter, transport: Any = None) -> None:
        """Stand in front of another transport."""
        self.limiter = limiter
        self.transport = getattr(self.package, self.default)() if transport is None else transport


class Blocking(Transport):
    """A transport for threads."""

    default: ClassVar = "HTTPTransport"

    def handle_request(self, request: Any) -> Any:
        """Send when the limits allow, and again if need be."""
        return _drive.run(_Blocking(self, request))

    def close(self) -> None:
        """Close the inner transport."""
        self.transport.close()

    def __enter__(self) -> Self:
        """Enter the inner transport."""
        self.transport.__enter__()
        return self

    def __exit__(self, *error: object) -> None:
        """Leave the inner transport."""
        self.transport.__exit__(*error)


class Async(Transport):
    """A transport for event loops."""

    default: ClassVar = "AsyncHTTPTransport"

    def handle_async_request(self, request: Any) -> Coroutine[Any, Any, Any]:
        """Send when the limits allow, and again if need be."""
        return _drive.run_async(_Async(self, request))

    async def aclose(self) -> None:
        """Close the inner transport."""
        await self.transport.aclose()

    async def __aenter__(self) -> Self:
        """Enter the inner transport."""
        await self.transport.__aenter__()
        return self

    async def __aexit__(self, *error: object) -> None:
        """Leave the inner transport."""
        await self.transport.__aexit__(*error)


class Call(PlainCall):
    """One request on its way."""

    __slots__ = ("limiter", "package", "request", "transport", "url")

    def __init__(self, transport: Transport, request: Any) -> None:
        self.limiter = transport.limiter
        self.package: Any = transport.package
        self.transport = transport.transport
        self.request = request
        self.url = str(request.url)

    @property
    def method(self) -> str:
        return str(self.request.method)

    @property
    def keyed(self) -> bool:
        return "Idempotency-Key" in self.request.headers

    def read(self, response: Any) -> tuple[int, list[tuple[bytes, bytes]]]:
        # As text, they would cost as much as all of the rest.
        return response.status_code, response.headers.raw

    def kind(self, response: Any) -> str | None:
        kind: str | None = response.headers.get("content-type")
        return kind

    def is_short(self, response: Any) -> bool:
        """Whether the body of an error may be read ahead of its reader."""
        length = response.headers.get("content-length", "")
        return length.isdecimal() and int(length) <= LONGEST_ERROR

    def tell(self, response: Any, paced: Paced, _permit: Permit) -> None:
        response.extensions["paceline"] = paced

    def never_left(self, error: BaseException) -> bool:
        it = self.package
        unsent = (it.ConnectError, it.ConnectTimeout, it.PoolTimeout, it.ProxyError)
        return isinstance(error, (*unsent, it.UnsupportedProtocol))

    def lost(self, error: BaseException) -> bool:
        it = self.package
        return isinstance(error, (it.NetworkError, it.ConnectTimeout, it.RemoteProtocolError))

    def rewind(self) -> bool:
        stream = self.request.stream
        if isinstance(stream, self.package.ByteStream):
            return True
        # A form rewinds its own files. Of other streams nobody knows whether they begin again.
        fields = getattr(stream, "fields", None)
        return fields is not None and all(map(_begins_again, fields))


class _Blocking(Call):
    __slots__ = ()

    async def body(self, response: Any) -> bytes | None:
        if not self.is_short(response):
            return None
        body: bytes = b"".join(response.stream)
        response.stream = self.package.ByteStream(body)
        return body

    async def send(self) -> Any:
        return self.transport.handle_request(self.request)

    async def discard(self, response: Any) -> None:
        response.close()


class _Async(Call):
    __slots__ = ()

    async def body(self, response: Any) -> bytes | None:
        if not self.is_short(response):
            return None
        body = b"".join([part async for part in response.stream])
        await response.stream.aclose()
        response.stream = self.package.ByteStream(body)
        return body

    def send(self) -> Any:
        return self.transport.handle_async_request(self.request)

    def discard(self, response: Any) -> Any:
        return response.aclose()


def _begins_again(field: Any) -> bool:
    file = getattr(field, "file", b"")
    return isinstance(file, (str, bytes)) or bool(file.seekable())


def module(client: Any) -> Any:
    """Give the module of ours for the package that an asynchronous client is from."""
    for kind in type(client).__mro__:
        package = kind.__module__.partition(".")[0]
        if package in {"httpx", "httpx2"} and hasattr(client, "aclose"):
            return importlib.import_module(f"paceline.{package}")
    raise TypeError(f"expected an AsyncClient of httpx or httpx2, not {type(client).__name__}")


def wrap(client: Any, limiter: RateLimiter | AsyncRateLimiter, transport: type[Transport]) -> None:
    """Put a transport before each of a client's own, once for each limiter.

    Neither package has a public way to them. Whoever wants none of this hands over a transport.
    """

    def paced(inner: Any) -> Any:
        it = inner
        while isinstance(it, Transport):
            if it.limiter is limiter:
                return inner
            it = it.transport
        return transport(limiter, inner)

    client._transport = paced(client._transport)  # noqa: SLF001
    mounts = client._mounts  # noqa: SLF001
    for pattern, inner in mounts.items():
        # None stands for the client's transport.
        mounts[pattern] = None if inner is None else paced(inner)
