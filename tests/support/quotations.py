"""Quotations in one text."""

from __future__ import annotations

from collections.abc import Collection, Iterable

from memory_api.text.quotations import find_quotations_of, quote_passages_of


def find_quotations(
    text: str, outside_texts: Iterable[str], own_names: Collection[str] = ()
) -> list[str]:
    return find_quotations_of([text], outside_texts, own_names)[text]


def quote_passages(text: str, outside_texts: Iterable[str]) -> str:
    return quote_passages_of([text], outside_texts)[text]
