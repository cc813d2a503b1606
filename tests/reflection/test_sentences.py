"""The form of the stored sentences: reflections, strategies and reasons of verdicts."""

from __future__ import annotations

import re
from dataclasses import replace
from functools import partial
from itertools import combinations
from typing import Any

import pytest

from memory_api.curation.lesson_duplicates import is_duplicate
from memory_api.reflection.credit.bullet_advice import parse_bullet_advice
from memory_api.reflection.credit.judge import verdict_reason
from memory_api.reflection.rules.english import EnglishNarrative
from memory_api.reflection.rules.english_strategies import EnglishStrategies
from memory_api.reflection.rules.japanese import JapaneseNarrative
from memory_api.reflection.rules.japanese_strategies import JapaneseStrategies
from memory_api.reflection.rules.language import NarrativeLanguage, StrategyLanguage
from memory_api.reflection.rules.narrative import narrative_sentences
from memory_api.text.advice import merge_tool_lists, strip_run_examples, strip_tool_lists
from memory_api.trace_analysis.arguments import (
    QUOTES_CHANGE,
    WHITESPACE_CHANGE,
    ArgumentChange,
)
from memory_api.trace_analysis.findings import (
    AttemptContrast,
    Crash,
    FailedAssertion,
    FailedCall,
    FailureStreak,
    FinalAnswer,
    Findings,
    MissingOutput,
    RepairedCall,
    RepeatedAttempt,
    RepeatedCall,
    UnconfirmedChange,
)
from memory_api.trace_analysis.ground_truth import ActionDeviation
from memory_api.trace_analysis.structure import AnswerOrigin
from memory_api.traces.schemas import ErrorCategory, OutcomeType
from tests.support.cases import each_case

LANGUAGES = [EnglishStrategies(), JapaneseStrategies()]
KINDS = (
    *("timeout", "rate_limit", "permission", "network", "syntax", "shortage", "missing"),
    *("unavailable", "invalid", "parse", "model", "other"),
)


def retry(*changes: ArgumentChange, tool: str, kind: str = "failed", **fields: Any) -> RepairedCall:
    known: dict[str, Any] = {
        "sourced_argument": None,
        "source_tool": None,
        "used_alternative": False,
    } | fields
    return RepairedCall(
        "e1", "e2", tool, 1, "No such name", kind, "find a", "find b", changes, **known
    )


def contrast(**fields: Any) -> AttemptContrast:
    known: dict[str, Any] = {
        "calls_only_in_this": (),
        "calls_only_in_other": (),
        "tools_only_in_this": (),
        "tools_only_in_other": (),
    } | fields
    return AttemptContrast(this_succeeded=True, trace_id=None, event_id="e5", **known)


def strategies(say: StrategyLanguage, tool: str = "book") -> list[str]:
    """Every strategy of a language."""
    departure = ActionDeviation(
        "changed", "e1", tool, f"{tool}(a=1)", (ArgumentChange("a", "1", "2"),)
    )
    answer = FinalAnswer("e9", "x", unsearched_names=("United Kingdom",))
    failed_call = ("e1", None, tool, tool, "missing", "no", ErrorCategory.TOOL_ERROR)
    failure = FailedCall(*failed_call, ungrounded_arguments=("id=5",))
    failed = partial(retry, tool=tool)
    texts = [
        say.drop_quotes(tool),
        say.use_suggestion(tool, ("A (film)", "B")),
        say.convert(
            Crash(
                "e1", "", "", "", ErrorCategory.TOOL_ERROR, expected_type="str", actual_type="int"
            )
        ),
        *(say.avoid_error(kind, tool, "Code 17", True) for kind in KINDS),
        say.exact_form(answer),
        say.weigh_candidates(answer),
        say.search_name(answer),
        say.read_first(answer),
        say.derive_arguments(departure),
        say.check_before_change(departure),
        say.before_declining(departure),
        say.all_parts([departure]),
        say.state_figure(MissingOutput("5", None, "")),
        say.follow_success(
            contrast(compared_tool=tool, differing_arguments=(ArgumentChange("a", "1", "2"),))
        ),
        say.follow_success(contrast(tools_only_in_this=(tool,))),
        say.follow_success(
            contrast(calls_only_in_this=("Search[A]",), calls_only_in_other=("Search[B]",))
        ),
        say.change_arguments(failed(ArgumentChange(QUOTES_CHANGE, "x", "'x'"))),
        say.change_arguments(failed(ArgumentChange(WHITESPACE_CHANGE, None, None))),
        say.change_arguments(failed(ArgumentChange("a", "1", "2"), kind="invalid")),
        say.change_arguments(failed(ArgumentChange("", "(2004 film)", ""))),
        say.change_arguments(
            failed(ArgumentChange("a", "1", "2"), sourced_argument="a", source_tool="look")
        ),
        say.look_up_value(failure),
        say.start_differently(RepeatedAttempt(1, None, "Search[A]")),
        say.no_repeat(RepeatedCall("e1", ("e1",), tool, tool, 2, 2)),
        say.ask_first(UnconfirmedChange("e1", tool, "", "")),
        say.follow_name(()),
        say.run_failing_test(FailedAssertion("t.py::test_sum", "")),
        say.vary_phrases(),
        say.resolve_failed_code(),
        say.verify_answer(),
        say.change_repeated_step(),
    ]
    return [text for text in texts if text]


@each_case("text", strategies(EnglishStrategies()))
def test_english_strategy_is_a_condition_and_an_imperative(text: str) -> None:
    head = strip_tool_lists(strip_run_examples(text))
    assert re.match(r"(?:When|Before|If) [^,.;]+(?:“[^”]*”)?[^,.;]*, [a-z]", head)
    assert len(re.findall(r"[.!?](?= [A-Z]|$)", head)) <= 2


@each_case("text", strategies(JapaneseStrategies()))
def test_japanese_strategy_has_at_most_two_sentences_in_plain_form(text: str) -> None:
    head = strip_tool_lists(text)
    assert head.count("。") <= 2
    assert not re.search(r"です|ます|ください", head)


@pytest.mark.parametrize("language", LANGUAGES)
def test_strategy_for_another_tool_is_the_same_strategy(language: StrategyLanguage) -> None:
    for ours, theirs in zip(strategies(language), strategies(language, "cancel"), strict=True):
        if strip_tool_lists(ours) != ours and "`book`" not in strip_tool_lists(ours):
            joined = merge_tool_lists(ours, theirs)
            assert joined is not None
            assert "`book`" in joined
            assert "`cancel`" in joined or theirs == ours


@pytest.mark.parametrize("language", LANGUAGES)
def test_different_strategies_stay_different_bullets(language: StrategyLanguage) -> None:
    texts = list(dict.fromkeys(strip_run_examples(text) for text in strategies(language)))
    for one, other in combinations(texts, 2):
        if strip_tool_lists(one) != strip_tool_lists(other):
            assert not is_duplicate(one, other), (one, other)
            assert merge_tool_lists(one, other) is None


@pytest.mark.parametrize("language", LANGUAGES)
def test_tool_in_a_list_is_neither_recommended_nor_advised_against(
    language: StrategyLanguage,
) -> None:
    for text in strategies(language, "send_refund"):
        if "send_refund" not in strip_tool_lists(text):
            advice = parse_bullet_advice(text, ["send_refund"])
            assert not advice.calls | advice.avoids, text


def test_strategy_of_a_different_argument() -> None:
    changes = (ArgumentChange("a", "1", "2"), ArgumentChange("b", None, "3"))
    assert EnglishStrategies().follow_success(
        contrast(compared_tool="book", differing_arguments=changes)
    ) == (
        "Before calling `book`, take `a` and `b` from an earlier response or the user's message. "
        "Successful and failed attempts at this task differed in these arguments."
    )


def test_message_of_an_error_is_quoted_without_its_values() -> None:
    changes = (ArgumentChange("payment_id", "1", "2"),)
    given = retry(*changes, tool="pay", kind="invalid")
    given = replace(given, message="Error: payment method 7334 not found")
    assert EnglishStrategies().change_arguments(given) == (
        "When a call fails with “payment method … not found”, change only the argument that the "
        "message concerns and leave the others unchanged. Previously changed: `pay` (`payment_id`)."
    )


def test_added_argument_is_no_changed_condition() -> None:
    """The call failed without the date: nothing shows that a condition had to give way."""
    added = (ArgumentChange("date", None, "2026-11-25"),)
    for kind in ("failed", "missing", "unavailable"):
        given = replace(retry(*added, tool="reserve_room", kind=kind), message="日付が必要です")
        assert JapaneseStrategies().change_arguments(given) == (
            "呼び出しが「日付が必要です」で失敗したときは、不足している引数がないか確認し、"
            "その引数だけを加える。追加した引数：`reserve_room`（`date`）。"
        )
        given = replace(given, message="A date is required")
        assert EnglishStrategies().change_arguments(given) == (
            "When a call fails with “A date is required”, check whether it lacks an argument, and "
            "add only that argument. Previously added: `reserve_room` (`date`)."
        )


NARRATIVES = [EnglishNarrative(), JapaneseNarrative()]


@pytest.mark.parametrize("language", NARRATIVES)
def test_wording_is_not_called_a_failure(language: NarrativeLanguage) -> None:
    worded = FailedCall(
        *("e1", "e2", "find", "find(a)", "missing", "No Results", ErrorCategory.TOOL_ERROR),
        failure_source="wording",
    )
    streak = FailureStreak(
        "e1", ("e1", "e3", "e5"), "find", 3, "", ("a", "b"), (), None, ("No Results",), False
    )
    retried = retry(ArgumentChange("a", "1", "2"), tool="find", is_reported=False)
    for text in (language.unrepaired(worded, 0), language.streak(streak), language.retry(retried)):
        assert not re.search(r"fail|失敗", text), text
    assert "No Results" in language.unrepaired(worded, 0)


@pytest.mark.parametrize("language", NARRATIVES)
def test_no_sentence_praises_a_run_without_findings(language: NarrativeLanguage) -> None:
    calm = Findings("en", "t", call_count=2, last_call="look()", tool_sequence=(("look", 2),))
    assert not re.search(r"error|accepted|worked|検出|受け付け", language.path(calm))
    for outcome in OutcomeType:
        assert narrative_sentences(calm, outcome, None, language) == []


@pytest.mark.parametrize("language", NARRATIVES)
def test_origin_of_an_answer_names_what_is_known(language: NarrativeLanguage) -> None:
    origin = AnswerOrigin("message", "42", "42", "e9", "e3", "e3", "Analyst", None, 2)
    assert re.search(
        r"No output and no reported page or file contains it|出力にも、.*含まれない",
        language.answer_origin(origin),
    )
    printed = replace(origin, kind="output", first_event_id="e4", output_event_id="e4")
    assert "e4" in language.answer_origin(printed)
    assert "Analyst" in language.answer_origin(printed)


def test_repeated_failures_name_their_events() -> None:
    streak = FailureStreak(
        "e1", ("e1", "e3", "e5", "e7"), "Search", 4, "tea", ("tea a", "tea b"), (), None
    )
    assert EnglishNarrative().streak(streak) == (
        "4 `Search` calls failed with no successful call of this tool between them "
        "(e1, e3, e5, …): “tea a” and “tea b”. All arguments contain “tea”."
    )


@each_case("judge", ["test", "rules"])
@each_case("why", ["followed_right", "followed_wrong", "kept_from", "broken"])
def test_reason_of_a_verdict_names_the_tool(judge: str, why: str) -> None:
    english, japanese, unknown = (
        verdict_reason(why, "book", judge, language) for language in ("en", "ja", "de")
    )
    assert english == unknown
    assert "`book`" in english
    assert "`book`" in japanese
    assert re.search(r"[ぁ-ん]", japanese)


def test_reason_of_a_verdict_against_a_bullet() -> None:
    assert verdict_reason("kept_from", "book", "test", "en") == (
        "The bullet advises against `book`. The run followed it, and the ground truth shows the "
        "call was needed."
    )
