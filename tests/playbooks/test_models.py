"""Spec 2's models: properties 1 and 2, both spellings of deltas, the stored form."""

from __future__ import annotations

import json
import re
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import ValidationError

from memory_api.playbooks.models import (
    Bullet,
    DeltaContextItem,
    Playbook,
    PlaybookMetadata,
    SearchQuery,
    SearchResult,
    parts_not_in_content,
)
from tests.support.cases import each_case
from tests.support.playbook_strategies import counts, keys, playbooks, spec_bullets, texts, times

SPEC_BULLET = {
    "id": "shr-00001",
    "section": "strategies_and_hard_rules",
    "content": "日時の範囲を必ず確認する",
    "searchable_text": "日時 範囲 確認",
    "keywords": ["datetime", "range"],
    "helpful": 5,
    "harmful": 0,
    "source_trajectory": "traj_1 -> traj_2",
}


# Feature: self-reflection-system, Property 1: models keep the values they were given
@settings(max_examples=100)
@given(
    bullet=st.fixed_dictionaries(
        {
            "id": keys,
            "section": texts,
            "content": texts,
            "searchable_text": texts,
            "keywords": st.lists(texts, max_size=3),
            "helpful": counts,
            "harmful": counts,
            "source_trajectory": texts,
        }
    ),
    created=times,
    updated=times,
)
def test_property_1_bullet_and_playbook_keep_their_values(
    bullet: dict[str, Any], created: Any, updated: Any
) -> None:
    made = Bullet(**bullet)
    assert {name: getattr(made, name) for name in bullet} == bullet
    playbook = Playbook(
        metadata=PlaybookMetadata(created_at=created, updated_at=updated), bullets=[made]
    )
    assert (playbook.metadata.created_at, playbook.metadata.updated_at) == (created, updated)
    assert playbook.bullets == [made]


# Feature: self-reflection-system, Property 1: models keep the values they were given
@settings(max_examples=100)
@given(
    kind=st.sampled_from(["ADD", "UPDATE", "DELETE"]),
    text=st.tuples(texts, texts, texts),
    key=st.none() | keys,
    bullet=spec_bullets,
    scores=st.tuples(*[st.floats(0, 1)] * 3),
    top_k=st.integers(1, 1000),
    sections=st.none() | st.lists(texts),
    confidence=st.floats(0, 1),
)
def test_property_1_deltas_queries_and_results_keep_their_values(
    kind: Any,
    text: Any,
    key: Any,
    bullet: Any,
    scores: Any,
    top_k: Any,
    sections: Any,
    confidence: Any,
) -> None:
    section, content, reasoning = text
    delta = DeltaContextItem(
        type=kind, section=section, bullet_id=key, content=content, reasoning=reasoning
    )
    assert (delta.type, delta.section, delta.bullet_id) == (kind, section, key)
    assert (delta.content, delta.reasoning) == (content, reasoning)
    query = SearchQuery(
        query_text=content, top_k=top_k, section_filter=sections, min_confidence=confidence
    )
    assert (query.query_text, query.top_k) == (content, top_k)
    assert (query.section_filter, query.min_confidence) == (sections, confidence)
    vector, bm25, combined = scores
    result = SearchResult(
        bullet=bullet, vector_score=vector, bm25_score=bm25, combined_score=combined
    )
    assert result.bullet == bullet
    assert (result.vector_score, result.bm25_score, result.combined_score) == scores


# Feature: self-reflection-system, Property 2: confidence_score is the helpful share, .5 unrated
@settings(max_examples=100)
@given(helpful=st.integers(min_value=0), harmful=st.integers(min_value=0))
def test_property_2_confidence_score(helpful: int, harmful: int) -> None:
    score = Bullet(
        id="b", section="s", content="c", searchable_text="", helpful=helpful, harmful=harmful
    ).confidence_score
    total = helpful + harmful
    assert score == (helpful / total if total else 0.5)


def test_defaults_match_document() -> None:
    query = SearchQuery(query_text="q")
    assert (query.top_k, query.section_filter, query.min_confidence) == (10, None, 0.3)
    bullet = Bullet(id="b", section="s", content="c", searchable_text="t")
    assert (bullet.keywords, bullet.helpful, bullet.harmful, bullet.source_trajectory) == (
        [],
        0,
        0,
        "",
    )


def test_searchable_text_defaults_to_all_text() -> None:
    bullet = Bullet(
        id="b",
        section="s",
        content="Ask.",
        title="Order",
        when_to_use="by phone",
        keywords=["x", "y"],
    )
    assert bullet.searchable_text == "by phone\nOrder\nAsk.\nx y"
    assert Bullet(id="b", section="s", content="c", searchable_text="").searchable_text == ""


@settings(max_examples=100)
@given(playbooks())
def test_json_round_trip_is_equal(playbook: Playbook) -> None:
    assert Playbook.model_validate_json(playbook.model_dump_json()) == playbook
    assert Playbook.model_validate(playbook.to_document()) == playbook


def test_stored_form_matches_document_example() -> None:
    data = {
        "metadata": {"created_at": "2025-01-01T00:00:00Z", "updated_at": "2025-01-01T00:00:00Z"},
        "bullets": [SPEC_BULLET],
    }
    playbook = Playbook.model_validate(data)
    assert playbook.to_document() == data
    assert json.loads(playbook.model_dump_json())["bullets"][0]["confidence_score"] == 1.0


@each_case(
    "delta",
    [
        {},
        {"type": "ADD"},
        {"type": "ADD", "section": "s", "reasoning": "r"},
        {"type": "DELETE", "section": "s", "reasoning": "r"},
        {"type": "UPDATE", "content": "c"},
        {"type": "DELETE"},
        {"type": "KEEP"},
        {"type": "MERGE", "content": "c"},
    ],
)
def test_delta_without_required_fields_is_refused(delta: dict[str, Any]) -> None:
    with pytest.raises(ValidationError):
        DeltaContextItem.model_validate(delta)


@each_case("alias", ["bullet_id", "id", "name", "target_id", "key"])
def test_both_update_formats_are_accepted(alias: str) -> None:
    delta = DeltaContextItem.model_validate(
        {"type": "update", alias: "pat-1", "text": "new", "reason": "why"}
    )
    assert (delta.type, delta.bullet_id, delta.content, delta.reasoning) == (
        "UPDATE",
        "pat-1",
        "new",
        "why",
    )


def test_null_delta_fields_count_as_missing() -> None:
    delta = DeltaContextItem.model_validate(
        {"type": "ADD", "section": None, "bullet_id": None, "content": "c", "source_ids": None}
    )
    assert delta == DeltaContextItem(type="ADD", content="c")


@each_case(
    ("model", "data"),
    [
        (Bullet, {"id": "", "section": "s", "content": "c"}),
        (Bullet, {"id": "b", "section": "s", "content": "c", "helpful": -1}),
        (Playbook, {"version": "1.0", "sections": {}}),
        (DeltaContextItem, {"type": "FORGET", "content": "c"}),
        (DeltaContextItem, {"type": "ADD", "content": "c", "surprise": 1}),
        (DeltaContextItem, {"type": "DELETE", "id": "a", "target_id": "b"}),
        (SearchQuery, {"query_text": "q", "top_k": -1}),
        (SearchQuery, {"query_text": "q", "min_confidence": float("nan")}),
    ],
)
def test_invalid_models_are_refused(model: Any, data: dict[str, Any]) -> None:
    with pytest.raises(ValidationError):
        model.model_validate(data)


@each_case(
    ("part", "content", "left"),
    [
        ("Settle origin", "When about to book, settle  ORIGIN, then ask.", ""),
        ("settle origin and…", "Settle origin and date first.", ""),
        ("art", "start", "art"),
        ("When it rains. Not where it hails.", "When it rains, stay.", "Not where it hails."),
        ("予約をずらす…", "空きがなければ、予約をずらすこと。", ""),
        ("雨のとき。雪では不明。", "雨のとき、傘を持つ。", "雪では不明。"),
        ("", "anything", ""),
    ],
)
def test_searchable_text_has_no_repetition(part: str, content: str, left: str) -> None:
    assert parts_not_in_content(part, content) == left
    bullet = Bullet(id="b", section="s", content=content, title=part)
    assert bullet.searchable_text == "\n".join(filter(None, [left, content]))


WORDS = st.text(alphabet="ab .。\n", max_size=20)


@settings(max_examples=100)
@given(WORDS, WORDS, WORDS)
def test_searchable_text_contains_every_word(when: str, title: str, content: str) -> None:
    def words(text: str) -> set[str]:
        return set(re.findall("[ab]+", text))

    bullet = Bullet(id="x", section="s", content=content, when_to_use=when, title=title)
    assert words(bullet.searchable_text) == words(f"{when} {title} {content}")


@pytest.mark.parametrize(
    "fields",
    [
        {"type": "ADD", "content": None},
        {"type": "ADD", "text": None},
        {"type": "ADD", "section": None, "content": None, "reasoning": None},
        {"type": "MERGE", "source_ids": None, "content": "x"},
    ],
)
def test_null_is_no_required_field(fields: dict[str, Any]) -> None:
    with pytest.raises(ValidationError, match="requires"):
        DeltaContextItem.model_validate(fields)
