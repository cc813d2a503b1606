"""The recordings of `bench grace_with_model` are complete and in the form that the agent reads."""

from __future__ import annotations

import json

from bench.grace_with_model import RECORDINGS, has_words
from bench.recordings import read_recordings
from memory_api.grace.planner import PlannedSteps
from memory_api.grace.tools.reasoning import AnswerJudgment, SourcedAnswer

FORMS = {"grace_plan": PlannedSteps, "grace_answer": SourcedAnswer, "grace_judge": AnswerJudgment}


def test_recordings_have_the_form_that_is_asked_for() -> None:
    recorded = read_recordings(RECORDINGS)
    questions = {recording.name.split("-", 1)[1].removesuffix("-again") for recording in recorded}
    assert len(questions) == 40
    assert len({recording.name for recording in recorded}) == len(recorded)
    for recording in recorded:
        FORMS[recording.purpose].model_validate(json.loads(recording.answer))


def test_expected_words_in_another_order() -> None:
    assert has_words("Bill, played by Pearl Mackie [1].", "Pearl Mackie as Bill")
    assert has_words("中国では「メイユー」といいます。", "「（メイユー）」")
    assert not has_words("Housing assistance [1].", "shelters, housing assistance")
    assert not has_words("The sources do not say it.", "Pearl Mackie")
