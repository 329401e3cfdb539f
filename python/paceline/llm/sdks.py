"""The SDKs that are guarded: a row for each.

A row says where calls begin and which HTTP client sends them. What is sent by that client while
such a call runs is paced; what a program sends by an HTTP client of its own is not.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable


@dataclass(frozen=True)
class Sdk:
    """An SDK, and where to meet its calls."""

    #: what users import
    package: str
    #: the provider behind its own base URL
    provider: str
    #: the module in which calls begin, and the methods there that begin one
    module: str
    methods: tuple[str, ...]
    #: the HTTP clients of what these are methods of
    http_clients: Callable[[Any], tuple[Any, ...]]
    #: from what users make to what these are methods of
    begins: Callable[[Any], Any] = lambda client: client
    #: its own API: answers are read as that API's, wherever they come from
    url: str = ""
    #: whether a method runs until the answer has begun. If not, it is known by its HTTP client.
    is_seen_whole: bool = True
    #: whether it sends rejected calls again by itself
    retries: bool = True
    #: whether it wraps errors that it does not know
    wraps_errors: bool = True
    #: whether it is this provider wherever it runs: what everybody may have at home
    any_host: bool = False


def _client(it: Any) -> tuple[Any, ...]:
    return (it._client,)  # noqa: SLF001 - there is no other way to it


def _stainless(provider: str, url: str) -> Sdk:
    """Describe an SDK of the generator that OpenAI's, Anthropic's and others come from."""
    return Sdk(
        package=provider,
        provider=provider,
        module=f"{provider}._base_client",
        methods=("SyncAPIClient.request", "AsyncAPIClient.request"),
        http_clients=_client,
        url=url,
    )


SDKS = (
    _stainless("openai", "https://api.openai.com"),
    _stainless("anthropic", "https://api.anthropic.com"),
    _stainless("groq", "https://api.groq.com"),
    _stainless("together", "https://api.together.ai"),
)
