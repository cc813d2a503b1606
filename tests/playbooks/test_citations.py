"""Spec 4's citations: scenarios 001 and 002, invariant 001, and what a cited id means."""

from __future__ import annotations

import copy
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from memory_api.playbooks.citations import extract_cited_ids, resolve_citations
from tests.support.cases import each_case


def said(*texts: Any) -> list[dict[str, Any]]:
    return [{"role": "assistant", "content": text} for text in texts]


def test_scn_refl_001_01_assistant_ids_once_and_no_user_ids() -> None:
    messages = [
        {"role": "user", "content": "Please refactor this"},
        {"role": "assistant", "content": "With [pat-001] and [mis-002] in mind"},
        {"role": "user", "content": "And [pat-003]?"},
        {"role": "assistant", "content": "Yes, and [pat-001] again"},
    ]
    assert set(extract_cited_ids(messages)) == {"pat-001", "mis-002"}


def test_scn_refl_001_02_no_citation_is_an_empty_list() -> None:
    assert extract_cited_ids([{"role": "user", "content": "[pat-001]"}, *said("Here it is")]) == []
    assert extract_cited_ids([]) == []


def test_scn_refl_001_03_legacy_and_modern_ids() -> None:
    assert set(extract_cited_ids(said("By [kpt_001] and [oth-003]"))) == {"kpt_001", "oth-003"}


@each_case(
    "text",
    [
        "pat-001",
        "[pat001]",
        "[PAT-001]",
        "[pat-]",
        "[shr-001]",
        "[ pat-001 ]",
        "[xpat-001]",
        "[kpt-1]",
    ],
)
def test_other_brackets_are_not_citations(text: str) -> None:
    assert extract_cited_ids(said(text)) == []


def test_text_and_thinking_blocks_are_read_but_not_calls() -> None:
    content = [
        {"type": "text", "text": "so [ctx-1]"},
        {"type": "thinking", "thinking": "hm, [pref-00002]"},
        {"type": "tool_use", "input": {"text": "[mis-3]"}},
        "and [oth-4]",
        None,
    ]
    assert extract_cited_ids(said(content, None, 7)) == ["ctx-1", "pref-00002", "oth-4"]


def test_custom_slugs_are_cited() -> None:
    assert extract_cited_ids(said("[shr-00001] [pat-1]"), ["shr"]) == ["shr-00001", "pat-1"]


# INV-REFL-001: cited ids are deduplicated
@settings(max_examples=100)
@given(
    st.lists(
        st.tuples(
            st.sampled_from(["assistant", "user", "system"]),
            st.lists(
                st.sampled_from(
                    ["[pat-1]", "[mis-22]", "[kpt_003]", "[pref-1][ctx-9]", "none", "[oth-x]"]
                )
            ).map(" ".join),
        )
    )
)
def test_inv_refl_001_no_id_twice_and_only_from_the_assistant(turns: list[tuple[str, str]]) -> None:
    cited = extract_cited_ids([{"role": role, "content": text} for role, text in turns])
    assert len(cited) == len(set(cited))
    said_by_assistant = " ".join(text for role, text in turns if role == "assistant")
    assert all(f"[{key}]" in said_by_assistant for key in cited)
    known = {"[pat-1]", "[mis-22]", "[kpt_003]", "[pref-1]", "[ctx-9]"}
    assert {f"[{key}]" for key in cited} == {k for k in known if k in said_by_assistant}


def test_resolve_tries_exact_then_number_then_legacy() -> None:
    keys = ["pat-00001", "pat-001", "mis-00002", "kpt_007", "free-form"]
    cited = ["pat-001", "pat-1", "mis-2", "kpt_7", "free-form", "oth-1"]
    assert resolve_citations(cited, keys) == {
        "pat-001": "pat-001",  # exact, though the number alone would be ambiguous
        "mis-2": "mis-00002",
        "kpt_7": "kpt_007",
        "free-form": "free-form",
    }


def test_resolve_follows_a_merged_key_to_its_survivor() -> None:
    aliases = {"pat-00002": "pat-00001", "pat-00009": "pat-00008"}
    assert resolve_citations(["pat-2", "pat-00002", "pat-9"], ["pat-00001"], aliases) == {
        "pat-2": "pat-00001",
        "pat-00002": "pat-00001",
    }


def test_qg_ace_003_extraction_touches_neither_stdin_nor_stdout(
    capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """So a hook, whose stdin is its input and whose stdout is its answer, can call it."""
    monkeypatch.setattr("sys.stdin", None)  # reading it would raise
    messages = [{"role": "assistant", "content": "As [pat-001] says, and [pat-001] again"}]
    before = copy.deepcopy(messages)
    assert extract_cited_ids(messages) == extract_cited_ids(messages) == ["pat-001"]
    assert messages == before
    assert capfd.readouterr() == ("", "")
