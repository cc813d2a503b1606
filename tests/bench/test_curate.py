"""The replay of recorded curations finds lessons and bullets by their texts."""

from __future__ import annotations

import json
from typing import Any

from bench.curate import RECORDINGS, labeled_pairs
from bench.recorded_model import RecordedCall, read_calls
from bench.recordings import RecordedDecisions, to_current_numbers

BULLET = "[{key}] OTHERS, helpful 0, harmful 0, taught by 1\n  when: it is late\n  Go home.\n"


def curation(
    name: str, lessons: list[str], *operations: dict[str, Any], key: str = ""
) -> RecordedCall:
    shown = "".join(f"{n}. (strategy) {text}\n" for n, text in enumerate(lessons, 1))
    prompt = (BULLET.format(key=key) if key else "") + shown
    empty = {"bullet_id": None, "source_ids": [], "contradicts": [], "content": None}
    answer = json.dumps({"operations": [empty | operation for operation in operations]})
    return RecordedCall("curate", prompt, answer, name)


def replayed(decisions: RecordedDecisions, lessons: list[str], key: str = "") -> list[Any]:
    prompt = curation("now", lessons, key=key).prompt
    return json.loads(decisions.answer(prompt))["operations"]


def test_lessons_in_another_order_and_batch() -> None:
    add = {"type": "ADD", "lessons": [1, 3], "content": "Go home."}
    keep = {"type": "KEEP", "lessons": [2], "bullet_id": "pat-00007"}
    recorded = curation("curate-01", ["A", "B", "C"], add, keep, key="pat-00007")
    decisions = RecordedDecisions([recorded])
    first = replayed(decisions, ["B", "A"], key="oth-00002")
    assert [(o["type"], o["lessons"], o["bullet_id"]) for o in first] == [
        ("ADD", [2], None),
        ("KEEP", [1], "oth-00002"),
    ]
    (second,) = replayed(decisions, ["C"], key="oth-00003")
    assert (second["type"], second["bullet_id"]) == ("KEEP", "oth-00003"), "it was added before"


def test_keys_of_an_answer_are_translated() -> None:
    prompt = BULLET.format(key="pat-00007") + "[L1] Ask first.\n[L2] Go home.\n"
    answer = '{"same_as": ["L2"], "bullet_id": "pat-00007"}'
    recording = RecordedCall("reflect", prompt, answer, "reflect-x")
    now = BULLET.format(key="oth-00001") + "[L1] Go home.\n[L2] Ask first.\n"
    assert to_current_numbers(recording, now) == '{"same_as": ["L1"], "bullet_id": "oth-00001"}'


def test_recordings_are_complete() -> None:
    recorded = read_calls(RECORDINGS / "recordings.jsonl")
    assert sum(r.purpose == "reflect" for r in recorded) == 67
    for recording in recorded:
        assert json.loads(recording.answer)


def test_labeled_duplicates_can_be_found() -> None:
    answers = [
        json.loads(r.answer)
        for r in read_calls(RECORDINGS / "recordings.jsonl")
        if r.purpose != "reflect"
    ]
    written = {o["content"] for answer in answers for o in answer["operations"]}
    playbook = json.loads((RECORDINGS / "playbook.json").read_text(encoding="utf8"))
    kept = {bullet["content"] for bullet in playbook}
    pairs = list(labeled_pairs(RECORDINGS))
    assert pairs
    for pair in pairs:
        assert set(pair) <= written, "the list names texts of these recordings"
        assert not set(pair) <= kept, "the recorded playbook has no labeled duplicates"
