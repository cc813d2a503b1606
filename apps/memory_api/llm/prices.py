"""The price of a model call, from the bundled table of genai-prices (no download)."""

from __future__ import annotations

from decimal import Decimal

import genai_prices

from memory_api.llm.port import TokenUsage

_PROVIDER_IDS = {
    "openai": "openai",
    "azure": "azure",
    "anthropic": "anthropic",
    "bedrock": "aws",
}


def price_usd(usage: TokenUsage, *, provider: str, model: str, endpoint: str) -> Decimal | None:
    """The price in US dollars; None if the table does not have the model at this provider.

    A compatible server is looked up by its URL and not only by the model name, because an open
    model on an own server costs nothing.
    """
    priced_usage = genai_prices.Usage(
        input_tokens=usage.input_tokens,
        output_tokens=usage.output_tokens,
        cache_read_tokens=usage.cached_input_tokens,
        cache_write_tokens=usage.cache_write_tokens,
    )
    try:
        if provider in _PROVIDER_IDS:
            price = genai_prices.calc_price(
                priced_usage, model, provider_id=_PROVIDER_IDS[provider]
            )
        else:
            price = genai_prices.calc_price(priced_usage, model, provider_api_url=endpoint)
    except LookupError:
        return None
    return price.total_price
