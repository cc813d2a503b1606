"""The bench of blamed steps: what it sends, and how it scores."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from bench.blame import (
    LABELS,
    RECORDINGS,
    SETS,
    RecordedReader,
    missed,
    rank_labels,
    unlabeled_runs,
)
from bench.recorded_model import call_name, write_calls
from memory_api.llm.port import LLMRequest, Message
from memory_api.reflection.model_output import reflection_class
from memory_api.traces.schemas import OutcomeType


def write_runs(folder: Path, labels: dict[str, str]) -> None:
    for name, blamed in labels.items():
        (folder / f"{name}.json").write_text(json.dumps({"blamed": blamed}), encoding="utf8")


def test_rank_of_the_label(tmp_path: Path) -> None:
    write_runs(tmp_path, {"a": "e1", "b": "e2", "c": "e9"})
    ranks = rank_labels(tmp_path, {"a": ["e1", "e2"], "b": ["e1", "e3", "e4", "e2"], "c": ["e1"]})
    assert ranks == {"a": 1, "b": 4, "c": None}
    assert [missed(ranks, most) for most in (1, 3, 5)] == [["b", "c"], ["b", "c"], ["c"]]


@pytest.mark.parametrize("name", SETS)
def test_no_label_is_sent(name: str) -> None:
    raw = {path.stem: json.loads(path.read_bytes()) for path in (RECORDINGS / name).glob("*.json")}
    sent = unlabeled_runs(RECORDINGS / name)
    assert {run["external_id"] for run in sent} == set(raw)
    for run in sent:
        assert not set(LABELS) & set(run)
        assert raw[run["external_id"]]["blamed_reason"] not in json.dumps(run, ensure_ascii=False)


@pytest.mark.parametrize("name", SETS)
def test_recordings_are_complete(name: str) -> None:
    recorded = RecordedReader(RECORDINGS / name).by_name
    runs = {run["external_id"]: run for run in unlabeled_runs(RECORDINGS / name)}
    assert set(recorded) == set(runs)
    for run, answer in recorded.items():
        parsed = reflection_class(OutcomeType.FAILURE).model_validate_json(answer.answer)
        known = {event["event_id"] for event in runs[run]["events"]}
        assert set(parsed.source_event_ids) <= known


def request(text: str, instructions: str = "Explain.") -> LLMRequest:
    messages = (Message("system", instructions), Message("user", text))
    return LLMRequest(messages=messages, purpose="reflect")


async def test_changed_prompt_gets_the_recorded_answer_and_is_counted(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    fence = "<task-0123456789abcdef>\nGo.\n</task-0123456789abcdef>"
    call_name.set("a")
    recorded = replace(RecordedReader(tmp_path).to_call(request(fence)), answer="{}")
    write_calls(tmp_path / "recordings.jsonl", [recorded])
    for text, instructions, changed in (
        (fence.replace("0123456789abcdef", "fedcba9876543210"), "Explain.", 0),
        (fence.replace("Go", "Run"), "Explain.", 1),
        (fence, "Explain it.", 1),
    ):
        reader = RecordedReader(tmp_path)
        assert (await reader.complete(request(text, instructions))).text == "{}"
        assert len(reader.changed) == changed
    assert capsys.readouterr().out.splitlines() == ["a: -Go.", "a: +Run.", "a: other instructions"]
