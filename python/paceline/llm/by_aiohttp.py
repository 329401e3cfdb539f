"""One attempt of an SDK by ``aiohttp``.

Its responses are read by whoever asked, so what they report is known only where all of it came at
once; of a stream the estimate stands.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from paceline import _drive
from paceline import aiohttp as paced_aiohttp
from paceline._native import Limiter
from paceline.llm.calls import Calling, _Attempt, pace

if TYPE_CHECKING:
    from collections.abc import Iterable

    import aiohttp

    from paceline._native import Paced, Permit

_ERROR = 400


class _Call(_Attempt, paced_aiohttp._Call):  # noqa: SLF001 - it is the same call
    def __init__(
        self,
        under: Calling,
        request: aiohttp.ClientRequest,
        handler: aiohttp.ClientHandlerType,
    ) -> None:
        super().__init__(under.guard.limiter, request, handler)
        body: Any = request.body
        self.begin(under, body.decode().encode() if hasattr(body, "decode") else None, None)
        self.content: bytes | None = None

    async def send(self) -> aiohttp.ClientResponse:
        response = await super().send()
        if response.content_type == "application/json":
            self.content = await response.read()
        return response

    def read(self, response: aiohttp.ClientResponse) -> tuple[int, Iterable[tuple[bytes, bytes]]]:
        self.answered(response.status)
        return super().read(response)

    def tell(self, response: aiohttp.ClientResponse, paced: Paced, permit: Permit) -> None:
        super().tell(response, paced, permit)
        self.admitted(paced)
        if self.content is not None or response.status >= _ERROR:
            self.charge.settle(permit, self.budgets, response.status, self.content)


def middleware(under: Calling) -> aiohttp.ClientMiddlewareType:
    """Make what paces the attempts of one call."""

    async def paced(
        request: aiohttp.ClientRequest, handler: aiohttp.ClientHandlerType
    ) -> aiohttp.ClientResponse:
        call = _Call(under, request, handler)
        response: aiohttp.ClientResponse = await pace(
            call, Limiter.acquire_soon, _drive.pause_async
        )
        return response

    return paced
