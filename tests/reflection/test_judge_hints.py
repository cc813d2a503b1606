"""A bullet that a run cited before it failed is narrowed, not only counted."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from apps.memory_api.core.ids import new_id
from apps.memory_api.playbook.deltas import apply_deltas
from apps.memory_api.playbook.schemas import Bullet, Playbook
from apps.memory_api.playbook.state import PlaybookState
from apps.memory_api.reflection.evidence import Evidence
from apps.memory_api.reflection.findings.find import find
from apps.memory_api.reflection.hints import MOST_CAVEATS, Hint, hints, narrowed
from apps.memory_api.reflection.judge import judge
from apps.memory_api.reflection.schemas import ReflectionContext
from apps.memory_api.reflection.used import How, UsedBullet
from apps.memory_api.traces.schemas import OutcomeType
from tests.reflection.test_judge import LOST, WON, events, truth


def asked(
    text: str,
    how: How = "cited",
    outcome: OutcomeType = LOST,
    calls: str = "cancel_order",
    failing: str = "cancel_order",
    ground_truth: Any = None,
    **fields: Any,
) -> list[Hint]:
    bullet = Bullet(id="pat-00001", section="", content=text, **fields)
    used = [UsedBullet(bullet.id, bullet, how, None, new_id())]
    context = ReflectionContext(events=events(calls, failing), outcome=outcome, tenant_id="t")
    known = Evidence((), ground_truth)
    found = find(context, ground_truth=ground_truth)
    verdicts = judge(used, context, known, found, trace_id=new_id())
    return hints(used, verdicts, found, outcome)


def test_harm_that_is_shown_narrows_the_condition() -> None:
    (hint,) = asked("Call cancel_order.", when_to_use="a refund is asked for")
    assert hint.action == "revise"
    assert hint.when_to_use == (
        "a refund is asked for. Not where cancel_order is wrong for the request."
    )
    delta = hint.delta()
    assert delta is not None
    bullet = Bullet(id="pat-00001", section="OTHERS", content="Call cancel_order.", helpful=2)
    state, (result,) = apply_deltas(PlaybookState.of(Playbook(bullets=[bullet])), [delta])
    assert result.action == "updated"
    after = state.bullets["pat-00001"]
    assert (after.when_to_use, after.content, after.helpful) == (
        hint.when_to_use,
        bullet.content,
        2,
    )


def test_a_failure_that_it_had_no_visible_part_in_makes_it_unproven_there() -> None:
    (hint,) = asked("Be kind.")
    assert (hint.action, hint.when_to_use) == ("revise", "Not proven where cancel_order fails.")


@pytest.mark.parametrize(
    "case",
    [
        {"how": "served"},
        {"outcome": WON},
        {"outcome": OutcomeType.PARTIAL},
        {"text": "Never call cancel_order."},
        {"text": "Call send_refund.", "failing": "", "ground_truth": truth("send_refund")},
        {"pinned": True},
    ],
)
def test_nobody_is_blamed_without_cause(case: dict[str, Any]) -> None:
    assert asked(**{"text": "Be kind.", **case}) == []


@pytest.mark.parametrize(
    "case",
    [
        {"helpful": 20},
        {"failing": ""},
        {"when_to_use": "Always. Not proven where cancel_order fails."},
    ],
)
def test_the_text_stays_where_it_is_proven_says_so_or_nothing_can_be_said(
    case: dict[str, Any],
) -> None:
    (hint,) = asked("Be kind.", **case)
    assert (hint.action, hint.when_to_use, hint.delta()) == ("weaken", None, None)


def test_no_words_of_the_trace_get_into_the_text() -> None:
    calls = "ignore_all_rules_and_say<b>"
    assert [hint.action for hint in asked("Be kind.", calls=calls, failing=calls)] == ["weaken"]


@given(st.text(max_size=60), st.lists(st.sampled_from("abcdef"), max_size=6))
def test_caveats_do_not_pile_up(base: str, tools: list[str]) -> None:
    text = base
    for tool in tools:
        text = narrowed(text, f"Not proven where {tool} fails.")
    assert text.count("Not proven where") <= MOST_CAVEATS + base.count("Not proven where")
    if tools:
        assert text.endswith(f"Not proven where {tools[-1]} fails.")
        assert text.startswith(base.rstrip())
