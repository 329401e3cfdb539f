"""The rows of `make bench` about LLM calls: what the guard costs, how much of a limit gets used.

Prints one JSON object a line, a row each, for `run.py`. With words on the command line only the
rows run whose name contains one of them.
"""

from __future__ import annotations

import contextlib
import json
import statistics
import subprocess
import sys
import time
import urllib.request
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor
from typing import TYPE_CHECKING, Any

import anthropic
import httpx2
import openai
import paceline
import parry
import run

from python import added, race, repeated, versus

sys.path.insert(0, str(run.ROOT / "python" / "tests"))
from servers import RedisServer

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from python import Calls, Row

SANDBOX = run.TARGET / "release" / "paceline"
#: So large that no call is ever refused.
LIMIT = 10**9
CALLS = 200
SHORT = [{"role": "user", "content": "Say hello to everybody, please."}]
LONG = [{"role": "user", "content": ("Steady water wears the stone. " * 1_100)[:32_000]}]
COMPLETION = {
    "id": "chatcmpl-1",
    "object": "chat.completion",
    "created": 1,
    "model": "gpt-4o",
    "choices": [
        {
            "index": 0,
            "finish_reason": "stop",
            "message": {"role": "assistant", "content": "Hello, everybody!"},
        }
    ],
    "usage": {"prompt_tokens": 13, "completion_tokens": 4, "total_tokens": 17},
}
MESSAGE = {
    "id": "msg_1",
    "type": "message",
    "role": "assistant",
    "model": "claude-sonnet-5",
    "content": [{"type": "text", "text": "Hello, everybody!"}],
    "stop_reason": "end_turn",
    "stop_sequence": None,
    "usage": {"input_tokens": 13, "output_tokens": 4},
}


def in_memory(answer: dict[str, Any]) -> httpx2.Client:
    """Answer at once, without a network."""
    body, headers = json.dumps(answer).encode(), {"content-type": "application/json"}

    def respond(_: httpx2.Request) -> httpx2.Response:
        return httpx2.Response(200, headers=headers, content=body)

    return httpx2.Client(transport=httpx2.MockTransport(respond))


def ask_openai(messages: Any) -> Callable[[], object]:
    client = openai.OpenAI(api_key="sk-none", http_client=in_memory(COMPLETION))
    # Looked up anew each time: one that was bound before is not patched by everybody.
    ask = {"model": "gpt-4o", "messages": messages, "max_tokens": 64}
    return lambda: client.chat.completions.create(**ask)


def ask_anthropic(messages: Any) -> Callable[[], object]:
    client = anthropic.Anthropic(api_key="sk-none", http_client=in_memory(MESSAGE))
    ask = {"model": "claude-sonnet-5", "messages": messages, "max_tokens": 64}
    return lambda: client.messages.create(**ask)


def guarded(guard: paceline.Guard, ask: Callable[[], object]) -> Calls:
    def calls(count: int) -> None:
        paceline.install(guard)
        repeated(ask)(count)
        paceline.uninstall()

    return calls


def by_parry(ask: Callable[[], object], *, cache: bool = False, **limits: int) -> Calls:
    guard = parry.Parry(cache=cache)
    guard.set_rate_limit("*", **limits)

    def calls(count: int) -> None:
        parry.install(guard)
        repeated(ask)(count)
        parry.uninstall()

    return calls


def cost(row: str, ask: Callable[[], object], most: float, **limits: int) -> Row:
    guard = paceline.Guard()
    guard.set_rate_limit("*", **limits)
    figures = race(
        {
            "plain": (repeated(ask), CALLS),
            "ours": (guarded(guard, ask), CALLS),
            "llm-parry": (by_parry(ask, **limits), CALLS),
        }
    )
    ours, peer = added(figures, "ours"), added(figures, "llm-parry")
    made = versus(row, "llm-parry", ours, peer, None)
    return made | {"goal": f"≤ {most:g} µs", "ok": ours <= most}


def costs() -> Iterator[Row]:
    requests, tokens = {"requests_per_minute": LIMIT}, {"tokens_per_minute": LIMIT}
    both = requests | tokens
    yield cost("openai, request limit, added", ask_openai(SHORT), 8, **requests)
    yield cost("openai, requests and tokens, added", ask_openai(SHORT), 12, **both)
    yield cost("openai, 32 kB prompt, token limit, added", ask_openai(LONG), 25, **tokens)
    yield cost("anthropic, request limit, added", ask_anthropic(SHORT), 8, **requests)


def streaming() -> Callable[[], object]:
    """Ask for a stream, and take its first part."""
    chunk = {"id": "c", "object": "chat.completion.chunk", "created": 1, "model": "gpt-4o"}
    choice = {"index": 0, "finish_reason": None, "delta": {"content": "Hello"}}
    event = f"data: {json.dumps(chunk | {'choices': [choice]})}\n\n".encode()

    def respond(_: httpx2.Request) -> httpx2.Response:
        headers = {"content-type": "text/event-stream"}
        return httpx2.Response(200, headers=headers, content=iter([event, b"data: [DONE]\n\n"]))

    memory = httpx2.Client(transport=httpx2.MockTransport(respond))
    client = openai.OpenAI(api_key="sk-none", http_client=memory)
    ask: dict[str, Any] = {"model": "gpt-4o", "messages": SHORT, "stream": True}

    def first() -> None:
        with client.chat.completions.create(**ask) as stream:
            next(iter(stream))

    return first


def first_tokens() -> Iterator[Row]:
    row = "openai, first token of a stream, added"
    yield cost(row, streaming(), 1_000, requests_per_minute=LIMIT, tokens_per_minute=LIMIT)


def hit(row: str, messages: Any) -> Row:
    """Answer a whole call from the cache, through the SDK."""
    client = openai.OpenAI(api_key="sk-none", http_client=in_memory(COMPLETION))

    def ask() -> object:
        # Looked up at each call: both guards change what stands there.
        create = client.chat.completions.create
        return create(model="gpt-4o", messages=messages, max_tokens=64)

    ours = guarded(paceline.Guard(cache=True), ask), CALLS
    figures = race({"ours": ours, "llm-parry": (by_parry(ask, cache=True), CALLS)})
    medians = (statistics.median(figures[name]) for name in ("ours", "llm-parry"))
    return versus(row, "llm-parry", *medians, 1.0)


def hits() -> Iterator[Row]:
    yield hit("openai, answered from the cache", SHORT)
    yield hit("openai, 32 kB prompt, answered from the cache", LONG)


@contextlib.contextmanager
def sandbox(*flags: str) -> Iterator[str]:
    command = [str(SANDBOX), "sandbox", "--port=0", "--json", *flags]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as server:
        try:
            yield json.loads((server.stdout or sys.stdin).readline())["url"]
        finally:
            server.terminate()


def journal(url: str) -> tuple[list[float], int]:
    """Give when calls were admitted, and how many were refused."""
    with urllib.request.urlopen(f"{url}/_sandbox/journal") as answer:  # noqa: S310 - ours
        entries = json.load(answer)
    admitted = [entry["at"] for entry in entries if entry["admitted"]]
    return admitted, len(entries) - len(admitted)


def send(url: str, seconds: float, threads: int, **options: Any) -> None:
    """Ask a model again and again, for so long, by so many threads of one guard."""
    guard = paceline.Guard(**options.pop("guard", {}))
    kind = options.pop("kind", "openai")
    end = time.monotonic() + seconds

    def work(_: int) -> None:
        if kind == "openai":
            client = guard.wrap(openai.OpenAI(base_url=f"{url}/v1", api_key="k", max_retries=0))
            ask = client.chat.completions.create
        else:
            client = guard.wrap(anthropic.Anthropic(base_url=url, api_key="k", max_retries=0))
            ask = client.messages.create
        while time.monotonic() < end:
            ask(model="m", messages=SHORT, **options)

    with ThreadPoolExecutor(threads) as pool:
        list(pool.map(work, range(threads)))


def share(row: str, got: float, refused: int, least: float) -> Row:
    return {
        "row": row,
        "ours": got * 100,
        "peer": None,
        "peer_name": None,
        "unit": "%",
        "ratio": None,
        "goal": f"≥ {least:.0%}, no 429",
        "ok": got >= least and refused == 0,
        "refused": refused,
    }


def throughput() -> Iterator[Row]:
    """Use a hundred thousand tokens in two seconds; a call reserves 4,096 and takes 200."""
    prompt, answer, window, seconds = 8, 200, 2, 20
    for kind, flags, taken in [
        ("anthropic", ["--headers=anthropic", "--settle"], prompt + answer),
        ("openai", ["--headers=openai"], prompt + 4_096),
    ]:
        limits = ["--limit=tokens=100000/2s", f"--answer-tokens={answer}", "--latency=5ms"]
        with sandbox(*limits, *flags) as url:
            send(url, seconds, 16, kind=kind, max_tokens=4_096)
            admitted, refused = journal(url)
        late = [at for at in admitted if at - admitted[0] >= window]
        best = 100_000 / window * (late[-1] - admitted[0] - window) / taken
        yield share(f"{kind}: 4,096 reserved, 200 taken", len(late) / best, refused, 0.95)


def processes() -> Iterator[Row]:
    """One model's 500 requests a minute, scaled to two seconds, by four programs."""
    with RedisServer() as redis, sandbox("--limit=500/2s", "--headers=openai") as url:
        options = {"guard": {"storage": f"{redis.url}/0"}, "max_tokens": 16}
        with ProcessPoolExecutor(4) as pool:
            jobs = [pool.submit(send, url, 20, 4, **options) for _ in range(4)]
            for job in jobs:
                job.result()
        admitted, refused = journal(url)
    late = [at for at in admitted if at - admitted[0] >= 2]
    best = 250 * (late[-1] - admitted[0] - 2)
    yield share("4 processes on Redis, 500 a window", len(late) / best, refused, 0.97)


ROWS: dict[str, Callable[[], Iterator[Row]]] = {
    "guard costs": costs,
    "guard cache": hits,
    "guard stream": first_tokens,
    "guard throughput": throughput,
    "guard processes": processes,
}


def main(words: list[str]) -> None:
    for name, rows in ROWS.items():
        if not words or any(word in name for word in words):
            for row in rows():
                print(json.dumps(row, ensure_ascii=False), flush=True)


if __name__ == "__main__":
    main(sys.argv[1:])
