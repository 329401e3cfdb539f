"""Make the table of prices anew: python3 scripts/update_prices.py MODEL_PRICES.json DATE SOURCE.

Reads the table that litellm publishes (``model_prices_and_context_window.json``, MIT), keeps what
is billed by the token at the providers that the guard knows by name, and leaves out snapshots that
cost what their family does.
"""

from __future__ import annotations

import json
import re
import sys
from pathlib import Path

TABLE = Path(__file__).parents[1] / "crates/paceline-core/src/llm/prices.json"
#: Providers by the names that the table has for them, and what it puts before their models.
PROVIDERS = {
    "openai": ("openai", ""),
    "anthropic": ("anthropic", ""),
    "gemini": ("google", "gemini/"),
    "mistral": ("mistral", "mistral/"),
    "cohere_chat": ("cohere", ""),
    "cohere": ("cohere", ""),
    "groq": ("groq", "groq/"),
    "together_ai": ("together", "together_ai/"),
    "deepseek": ("deepseek", "deepseek/"),
    "xai": ("xai", "xai/"),
    "perplexity": ("perplexity", "perplexity/"),
    "cerebras": ("cerebras", "cerebras/"),
}
KINDS = {"chat", "completion", "responses", "embedding", "moderation"}
SNAPSHOT = re.compile(r"(-latest|[-@]\d{4}-\d{2}-\d{2}|[-@]20\d{6}|-\d{4})$")
MILLION = 1_000_000


def main() -> None:
    """Write the table."""
    path, date, source = sys.argv[1:]
    prices: dict[str, dict[str, list[float]]] = {}
    for name, row in json.loads(Path(path).read_text()).items():
        provider, prefix = PROVIDERS.get(row.get("litellm_provider"), ("", ""))
        model = name.removeprefix(prefix)
        is_billed = row.get("mode") in KINDS and row.get("input_cost_per_token") is not None
        if not provider or not is_billed or model.startswith("ft:"):
            continue
        paid = row["input_cost_per_token"]
        costs = (
            paid,
            row.get("cache_read_input_token_cost", paid),
            row.get("cache_creation_input_token_cost", paid),
            row.get("output_cost_per_token") or 0,
        )
        prices.setdefault(provider, {})[model] = [round(cost * MILLION, 6) for cost in costs]
    for models in prices.values():
        for model in list(models):
            family = SNAPSHOT.sub("", model)
            if family != model and models.get(family) == models[model]:
                del models[model]
    lines = []
    for provider, models in sorted(prices.items()):
        rows = ",\n".join(f"      {json.dumps(m)}: {json.dumps(models[m])}" for m in sorted(models))
        lines.append(f"    {json.dumps(provider)}: {{\n{rows}\n    }}")
    head = f'{{\n  "date": {json.dumps(date)},\n  "source": {json.dumps(source)},\n'
    about = "USD for a million tokens: prompt, read from cache, written to cache, answer"
    body = f'  "columns": {json.dumps(about)},\n  "prices": {{\n'
    TABLE.write_text(head + body + ",\n".join(lines) + "\n  }\n}\n")


if __name__ == "__main__":
    main()
