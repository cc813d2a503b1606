"""The events in a prompt: each long content once, attempts folded, repeated lines left out before
events."""

from __future__ import annotations

from memory_api.reflection.attempt_text import fold_attempts, render_attempts
from memory_api.reflection.trace_text import (
    ShownContents,
    count_tokens,
    event_pieces,
    fit_events,
)
from memory_api.text.terms import estimate_tokens
from memory_api.trace_analysis.attempts import Attempt
from memory_api.traces.schemas import Event, EventType, OutcomeType

PAGE = "\n".join(f"Line {number} of the page about bridges and rivers." for number in range(40))
POLICY = "You are an agent of the airline. " * 20


def event(kind: EventType, content: str, **more: object) -> Event:
    return Event.model_validate({"event_type": kind, "content": content} | more)


def call(arguments: str, response: str) -> list[Event]:
    return [
        event(EventType.TOOL_CALL, arguments, tool_name="fetch"),
        event(EventType.TOOL_RESPONSE, response, tool_name="fetch"),
    ]


def texts(events: list[Event], **more: object) -> list[str]:
    return [piece.text for piece in event_pieces(events, ShownContents(), **more)]  # type: ignore[arg-type]


def test_page_that_was_fetched_four_times_is_shown_once() -> None:
    shown = texts([event for _ in range(4) for event in call('{"url": "x"}', PAGE)])
    assert shown[1].endswith(PAGE)
    reference = f"[the same {len(PAGE)} characters as in e0001]"
    assert [text.split(": ", 1)[1] for text in shown[3::2]] == [reference] * 3
    assert [text.split(": ", 1)[1] for text in shown[::2]] == ['{"url": "x"}'] * 4


def test_call_ids_are_shown_only_if_calls_are_parallel() -> None:
    one = event(EventType.TOOL_CALL, "a", tool_name="fetch", metadata={"call_id": "c1"})
    response = event(EventType.TOOL_RESPONSE, "b", tool_name="fetch", metadata={"call_id": "c1"})
    assert "c1" not in "".join(texts([one, response]))
    assert "c1" in "".join(texts([one, one, response, response]))


def test_policy_is_shown_once_and_earlier_events_are_labeled() -> None:
    shown = ShownContents()
    events = [event(EventType.SYSTEM_EVENT, POLICY), event(EventType.USER_MESSAGE, "Go")]
    event_pieces(events, shown)
    attempts = [
        Attempt(OutcomeType.FAILURE, [*events, *call('{"n": 1}', "x")]),
        Attempt(OutcomeType.SUCCESS, [*events, *call('{"n": 2}', "y")]),
    ]
    newest, oldest = fold_attempts(attempts, events, shown)
    assert (newest.label, oldest.label) == ("a2", "a1")
    assert newest.title == "Attempt a2 (success)"
    lines = [piece.text for piece in oldest.pieces]
    assert lines[0] == f"[a1.e0000] system_event: [the same {len(POLICY)} characters as in e0000]"
    assert lines[2] == '[a1.e0002] tool_call fetch: {"n": 1}'


def test_attempts_with_the_same_calls_are_folded() -> None:
    def attempt(number: int) -> Attempt:
        return Attempt(OutcomeType.FAILURE, call(f'{{"n": {number}}}', "x"))

    own = call('{"n": 3}', "x")
    groups = fold_attempts(
        [attempt(1), attempt(1), attempt(2), attempt(1), attempt(3)], own, ShownContents()
    )
    assert [group.title for group in groups] == [
        "Attempt a5 (failure), with the same calls as this run; only its last event is shown",
        "Attempt a4 (failure); 2 more attempts with the same calls and the same outcome: a1, a2",
        "Attempt a3 (failure)",
    ]
    assert [len(group.pieces) for group in groups] == [1, 2, 2]


def test_stretch_of_events_is_shown_once() -> None:
    """A reader finds the events of an attempt that this run or a newer attempt has too."""
    start = [event(EventType.USER_MESSAGE, "Go"), *call('{"n": 1}', "x")]
    own = [*start, *call('{"n": 2}', "y")]
    older = [*start, *call('{"n": 3}', "z"), *call('{"n": 4}', "z"), *call('{"n": 5}', "q")]
    oldest = [event(EventType.USER_MESSAGE, "Please"), *older[3:7], *call('{"n": 2}', "y")]
    attempts = [Attempt(OutcomeType.FAILURE, oldest), Attempt(OutcomeType.FAILURE, older)]
    newest, other = fold_attempts(attempts, own, ShownContents())
    assert newest.pieces[0].text == "[a2.e0000 to a2.e0002: the same 3 events as e0000 to e0002]"
    assert [piece.event_id for piece in newest.pieces[1:]] == [f"a2.e000{n}" for n in range(3, 9)]
    assert newest.first_difference == ("a2.e0003", "a2.e0004")
    assert [piece.text for piece in other.pieces[:2]] == [
        "[a1.e0000] user_message: Please",
        "[a1.e0001 to a1.e0004: the same 4 events as a2.e0003 to a2.e0006]",
    ]
    assert len(other.pieces) == 4, "two equal events are no stretch"


def test_four_long_attempts_keep_their_first_difference() -> None:
    def attempt(number: int) -> Attempt:
        steps = [item for n in range(60) for item in call(f'{{"n": {n}}}', f"{PAGE} {n} {number}")]
        steps[31] = event(EventType.TOOL_RESPONSE, f"Decisive {number}. {PAGE}", tool_name="fetch")
        steps[30] = event(EventType.TOOL_CALL, f'{{"n": "other {number}"}}', tool_name="fetch")
        return Attempt(OutcomeType.FAILURE, steps)

    own = [item for n in range(60) for item in call(f'{{"n": {n}}}', f"{PAGE} {n}")]
    items = fold_attempts([attempt(n) for n in range(4)], own, ShownContents())
    text = render_attempts(items, 2_000, "`fetch` differs (a2.e0064).")
    assert estimate_tokens(text) < 2_400
    for number in range(4):
        assert f'[a{number + 1}.e0030] tool_call fetch: {{"n": "other {number}"}}' in text
        assert f"[a{number + 1}.e0031] tool_response fetch: Decisive {number}." in text
    assert "[a2.e0064]" in text
    assert "[a3.e0064]" not in text


def test_repeated_lines_go_before_an_event_is_left_out() -> None:
    changed = PAGE.replace("Line 7 of", "Line seven of")
    events = [
        *call("1", PAGE),
        *call("2", changed),
        event(EventType.LLM_RESPONSE, "That was all."),
    ]
    pieces = event_pieces(events, ShownContents())
    fitted = fit_events(pieces, count_tokens(pieces) * 2 // 3)
    assert " omitted, about" not in fitted
    assert "Line seven of the page" in fitted
    assert "lines as in e0001" in fitted
    assert fit_events(pieces, 100_000) == "\n".join(piece.text for piece in pieces)


def test_message_that_cites_a_bullet_is_never_cut_out() -> None:
    filler = [event(EventType.LLM_RESPONSE, f"Step {n}: " + "words " * 60) for n in range(200)]
    citing = "thought " * 300 + "[own-00007] says so. " + "thought " * 300
    filler[100] = event(EventType.LLM_RESPONSE, citing)
    pieces = event_pieces(filler, ShownContents(), bullet_keys=["own-00007"])
    fitted = fit_events(pieces, 700)
    assert "[e0100] llm_response" in fitted or "[own-00007] says so." in fitted
    assert "[own-00007]" in fitted
    assert "omitted" in fitted
    quoted = [event(EventType.TOOL_RESPONSE, "[pat-00001] is a key") for _ in range(2)]
    assert all(not piece.citations for piece in event_pieces(quoted, ShownContents()))
