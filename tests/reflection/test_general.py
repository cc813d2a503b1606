"""A rule without what only its own run shows. The sentences are ones the rules engine wrote."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from apps.memory_api.reflection.findings.schemas import Contrast
from apps.memory_api.reflection.findings.words.advice_en import EnglishAdvice
from apps.memory_api.reflection.findings.words.advice_ja import JapaneseAdvice
from apps.memory_api.reflection.general import general, is_of_one_task

RULES = {
    "never open with its first call again (here find(first_name=Ivan, zip=92133)): start from "
    "another fact": "never open with its first call again: start from another fact",
    "open the entry closest to it (here List of affiliates (by U.S. state)) instead of rewording": (
        "open the entry closest to it instead of rewording"
    ),
    "最も近い候補（ここでは 大阪城 と 大阪）を開く。": "最も近い候補を開く。",
}


@pytest.mark.parametrize(("text", "rule"), RULES.items())
def test_examples_go(text: str, rule: str) -> None:
    assert general(text) == rule
    assert general(rule) == rule


@pytest.mark.parametrize(
    "text",
    [
        "look for the permitted way first (another order of steps, part of the request) and offer",
        "When text is parsed as code (utils.py), catch the parse error and show it to the model",
        "Use items[0] and items[1], they differ",
        "利用者（本人）に尋ねる。",
    ],
)
def test_what_belongs_to_the_rule_stays(text: str) -> None:
    assert general(text) == text


@given(st.text(max_size=200))
def test_it_never_adds_words_and_doing_it_again_changes_nothing(text: str) -> None:
    once = general(text)
    assert general(once) == once
    assert len(once) <= len(text)


@pytest.mark.parametrize("advice", [EnglishAdvice(), JapaneseAdvice()])
@pytest.mark.parametrize(
    "contrast",
    [
        Contrast(True, None, None, ("Search[A]",), ("Search[B]",), (), ()),
        Contrast(True, None, None, (), (), ("calculate",), ()),
    ],
)
def test_what_set_the_attempts_of_a_task_apart_is_of_that_task(advice, contrast) -> None:
    assert is_of_one_task(advice.as_the_success(contrast))


@pytest.mark.parametrize("text", [*RULES, *RULES.values()])
def test_other_rules_are_for_any_task(text: str) -> None:
    assert not is_of_one_task(text)
