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


def _mistral(it: Any) -> tuple[Any, ...]:
    known = it.sdk_configuration
    return known.client, known.async_client


def _cohere(it: Any) -> tuple[Any, ...]:
    return (it.httpx_client,)


def _google(it: Any) -> tuple[Any, ...]:
    return it._httpx_client, it._async_httpx_client  # noqa: SLF001 - there is no other way to it


SDKS = (
    _stainless("openai", "https://api.openai.com"),
    _stainless("anthropic", "https://api.anthropic.com"),
    _stainless("groq", "https://api.groq.com"),
    _stainless("together", "https://api.together.ai"),
    Sdk(
        package="mistralai",
        provider="mistral",
        module="mistralai.client.basesdk",
        methods=("BaseSDK.do_request", "BaseSDK.do_request_async"),
        http_clients=_mistral,
        url="https://api.mistral.ai",
        # It does only where it is told to, by a ``retry_config``.
        retries=False,
        wraps_errors=False,
    ),
    Sdk(
        package="cohere",
        provider="cohere",
        module="cohere.core.http_client",
        methods=(
            "HttpClient.request",
            "HttpClient.stream",
            "AsyncHttpClient.request",
            "AsyncHttpClient.stream",
        ),
        http_clients=_cohere,
        begins=lambda client: client._client_wrapper.httpx_client,  # noqa: SLF001
        url="https://api.cohere.com",
        # Its streams are context managers, which send when they are entered.
        is_seen_whole=False,
        wraps_errors=False,
    ),
    Sdk(
        package="google",
        provider="google",
        module="google.genai._api_client",
        methods=("BaseApiClient._request_once", "BaseApiClient._async_request_once"),
        http_clients=_google,
        begins=lambda client: client._api_client,  # noqa: SLF001
        url="https://generativelanguage.googleapis.com",
        # It does only where it is told to, by ``HttpRetryOptions``.
        retries=False,
        wraps_errors=False,
    ),
    Sdk(
        package="ollama",
        provider="ollama",
        module="ollama._client",
        methods=(
            "Client._request",
            "Client._request_raw",
            "AsyncClient._request",
            "AsyncClient._request_raw",
        ),
        http_clients=_client,
        url="https://ollama.com",
        # Its streams are generators, which send when they are read.
        is_seen_whole=False,
        retries=False,
        wraps_errors=False,
        any_host=True,
    ),
)
