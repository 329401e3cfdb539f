"""A route behind slowapi, for uvicorn, as `LIMIT` says."""

from __future__ import annotations

import os

from slowapi import Limiter, _rate_limit_exceeded_handler
from slowapi.errors import RateLimitExceeded
from slowapi.util import get_remote_address
from starlette.applications import Starlette
from starlette.requests import Request  # noqa: TC002 - slowapi reads the signature
from starlette.responses import JSONResponse
from starlette.routing import Route

limiter = Limiter(get_remote_address, headers_enabled=True)


@limiter.limit(os.environ["LIMIT"])
async def root(request: Request) -> JSONResponse:  # noqa: ARG001 - slowapi wants its name
    """Answer something."""
    return JSONResponse({})


app = Starlette(routes=[Route("/", root)])
app.state.limiter = limiter
app.add_exception_handler(RateLimitExceeded, _rate_limit_exceeded_handler)  # type: ignore[arg-type] # Starlette passes it no other error
