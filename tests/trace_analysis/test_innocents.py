"""What the program must not say: right answers in another form are not wrong, and texts that look
like errors are no failures. What it must find: wrong answers under a declared `match`, and failures
that an envelope states.

The files in `innocents/` were written by hand: the last 50 lines of each (49 of the wrong answers)
by an author who knew nothing of the program.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from bench.data import to_event
from memory_api.evaluation.reflection_policy import effective_outcome
from memory_api.evaluation.schemas import Criterion
from memory_api.trace_analysis.analyze import ReflectionContext, analyze_trace
from memory_api.trace_analysis.facts import Fact, FactKind, facts_of
from memory_api.traces.importers.formats import convert_record, convert_session
from memory_api.traces.schemas import CreateTraceRequest, OutcomeType
from tests.support.cases import each_case
from tests.support.evaluation_cases import Row, call, judged, said

FOLDER = Path(__file__).with_name("innocents")


def lines(name: str) -> list[Any]:
    return [json.loads(line) for line in (FOLDER / name).read_text("utf-8").splitlines()]


def facts(body: CreateTraceRequest, *kinds: FactKind) -> list[Fact]:
    context = ReflectionContext(
        events=body.events,
        outcome=OutcomeType.SUCCESS,
        tenant_id="t",
        generated_answer=body.generated_answer,
    )
    return list(facts_of(analyze_trace(context, ground_truth=body.ground_truth), *kinds))


@each_case("pair", lines("equal_answers.jsonl"))
async def test_right_answer_in_another_form_is_not_wrong(pair: list[str]) -> None:
    for answer, expected in (pair, reversed(pair)):
        found = await judged(generated_answer=answer, ground_truth=expected)
        score = found.best(Criterion.CORRECTNESS)
        assert score is None or score.score == 1.0
        assert effective_outcome(found, OutcomeType.SUCCESS) is OutcomeType.SUCCESS
        body = CreateTraceRequest.model_validate(
            {"events": [said("Done.")], "generated_answer": answer, "ground_truth": expected}
        )
        met = [fact.values["met"] for fact in facts(body, FactKind.EXPECTATION)]
        assert False not in met


@each_case("text", lines("harmless_texts.jsonl"))
async def test_text_of_a_response_is_no_failure(text: str) -> None:
    events = [*call("lookup", '{"q": "x"}', text), said(text)]
    body = CreateTraceRequest.model_validate({"events": events})
    assert facts(body, FactKind.FAILED_CALL, FactKind.ERROR, FactKind.EXIT_CODE) == []
    found = await judged(events)
    assert found.verdict is None
    assert effective_outcome(found, OutcomeType.SUCCESS) is OutcomeType.SUCCESS


@each_case("case", lines("wrong_answers.jsonl"))
async def test_wrong_answer_under_a_declared_match_is_found(case: dict[str, Any]) -> None:
    name = "actions" if case["match"] == "calls" else "answer"
    truth = {name: case["expected"], "match": case["match"]}
    events = [row for tool, sent in case.get("calls", ()) for row in call(tool, json.dumps(sent))]
    found = await judged([*events, said(case.get("given", "Done."))], ground_truth=truth)
    assert (found.verdict, found.proven) == (OutcomeType.FAILURE, True)
    assert effective_outcome(found, OutcomeType.SUCCESS) is OutcomeType.FAILURE


def failing_events(case: dict[str, Any]) -> list[Row]:
    match case:
        case {"records": records}:
            sent = [(n, json.dumps(record).encode()) for n, record in enumerate(records, 1)]
            (converted,) = convert_session(sent, case["format"])
            assert isinstance(converted[1], bytes)
            return json.loads(converted[1])["events"]
        case {"format": name, **record}:
            (fields,) = convert_record(record, name)
            return fields["events"]
        case _:
            tool = case.pop("tool", "lookup")
            sent = {"event_type": "tool_call", "tool_name": tool, "content": case.pop("call", "{}")}
            return [sent, to_event({"tool_name": tool, **case})]


@each_case("case", lines("failures.jsonl"))
async def test_failure_that_an_envelope_states_is_found(case: dict[str, Any]) -> None:
    body = CreateTraceRequest.model_validate({"events": failing_events(case)})
    assert facts(body, FactKind.FAILED_CALL)


def test_files_are_complete() -> None:
    assert len(lines("equal_answers.jsonl")) >= 150
    assert len(lines("harmless_texts.jsonl")) >= 150
    assert len(lines("wrong_answers.jsonl")) >= 60
    assert len(lines("failures.jsonl")) >= 60
