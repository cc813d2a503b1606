"""What tokens cost, from genai-prices' bundled table (no download)."""

from __future__ import annotations

from decimal import Decimal

import genai_prices

from apps.memory_api.llm.port import Usage

_PROVIDER_IDS = {
    "openai": "openai",
    "azure": "azure",
    "anthropic": "anthropic",
    "bedrock": "aws",
}


def price(usage: Usage, *, provider: str, model: str, endpoint: str) -> Decimal | None:
    """US dollars for that many tokens; None when the table does not know the model at that
    provider.

    A compatible server is known by its address, never by the model's name alone: the same open
    model costs nothing at home.
    """
    counted = genai_prices.Usage(
        input_tokens=usage.input_tokens,
        output_tokens=usage.output_tokens,
        cache_read_tokens=usage.cached_input_tokens,
        cache_write_tokens=usage.cache_write_tokens,
    )
    try:
        if provider in _PROVIDER_IDS:
            found = genai_prices.calc_price(counted, model, provider_id=_PROVIDER_IDS[provider])
        else:
            found = genai_prices.calc_price(counted, model, provider_api_url=endpoint)
    except LookupError:
        return None
    return found.total_price
