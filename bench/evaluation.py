"""Proven verdicts of the deterministic evaluator on real traces: how many, and how many contradict
the recorded outcome.

The evaluator sees the ground truth of a trace, but neither its outcome nor its reward. Only sources
whose ground truth has expected actions or answers are measured, each as recorded, and in variants:

- `tools stated`     with the tools of the benchmark and whether they write. The published code of
                     tau-bench states it: a tool writes if it changes the data of the environment.

A run is proven right or wrong, or undecided (a score or none, but no proof). A proven verdict is a
contradiction if the recorded outcome is another one.
"""

from __future__ import annotations

import json
from collections import Counter, defaultdict
from collections.abc import Iterator
from typing import Any

from bench.data import SHARED, to_trace
from bench.harness import Report
from memory_api.evaluation.evaluators.deterministic import score_by_evidence
from memory_api.evaluation.evaluators.threshold import Thresholds
from memory_api.evaluation.schemas import Criterion, EvaluationInput, best_score
from memory_api.trace_analysis.ground_truth import expected_actions, expected_outputs
from memory_api.trace_analysis.parser import parse_trace
from memory_api.traces.expected_results import expected_answers
from memory_api.traces.schemas import CreateTraceRequest, OutcomeType

Raw = dict[str, Any]

READING = """
calculate find_user_id_by_email find_user_id_by_name_zip get_order_details get_product_details
get_reservation_details get_user_details list_all_airports list_all_product_types
search_direct_flight search_onestop_flight think transfer_to_human_agents
"""
WRITING = """
book_reservation cancel_pending_order cancel_reservation exchange_delivered_order_items
modify_pending_order_address modify_pending_order_items modify_pending_order_payment
modify_user_address return_delivered_order_items send_certificate update_reservation_baggages
update_reservation_flights update_reservation_passengers
"""
TOOLS = [
    {"name": name, "writes": writes}
    for names, writes in ((READING, False), (WRITING, True))
    for name in names.split()
]


def variants(raw: Raw) -> Iterator[tuple[str, Raw]]:
    truth = raw["ground_truth"]
    yield "as recorded", raw
    if expected_actions(truth) is not None:
        yield "tools stated", raw | {"tools": TOOLS}
    if expected_answers(truth):
        yield "match: exact", raw | {"match": "exact"}


def has_gold(raw: Raw) -> bool:
    truth = raw.get("ground_truth")
    return bool(
        expected_actions(truth) is not None or expected_answers(truth) or expected_outputs(truth)
    )


def classify(raw: Raw) -> str:
    """right, wrong (both proven) or undecided."""
    fields = {name: value for name, value in raw.items() if name not in ("reward", "outcome")}
    body = CreateTraceRequest.model_validate(to_trace(fields))
    case = EvaluationInput(
        run=parse_trace(body.events, body.task_description, body.task_goal, body.tools),
        task_description=body.task_description,
        task_goal=body.task_goal,
        answer=body.generated_answer,
        ground_truth=body.ground_truth,
        metadata={},
    )
    score = best_score(score_by_evidence(case).scores, Criterion.CORRECTNESS)
    if score is None or not score.proven:
        return "undecided"
    return "right" if Thresholds().verdict(score) is OutcomeType.SUCCESS else "wrong"


def count_verdicts(traces: list[Raw]) -> dict[tuple[str, str], Counter[str]]:
    """(source, variant) → the number of traces, of results and of contradictions."""
    counts: dict[tuple[str, str], Counter[str]] = defaultdict(Counter)
    for raw in filter(has_gold, traces):
        for variant, changed in variants(raw):
            result = classify(changed)
            count = counts[raw["source"], variant]
            count.update(("traces", result))
            if result != "undecided" and (result == "right") != (raw["outcome"] == "success"):
                count["contradictions"] += 1
                print(f"{raw['id']} {variant}: recorded {raw['outcome']}, {result}")
    return counts


def main() -> None:
    report = Report(
        "evaluation", "Proven verdicts of the deterministic evaluator against recorded outcomes."
    )
    columns = ("proven right", "proven wrong", "undecided", "contradictions")
    report.table("verdicts", "Verdicts by source", "source", "variant", "traces", *columns)
    lines = (SHARED / "traces.jsonl").read_text(encoding="utf8").splitlines()
    for (source, variant), count in sorted(count_verdicts(list(map(json.loads, lines))).items()):
        cells = ("traces", "right", "wrong", "undecided", "contradictions")
        report.row("verdicts", source, variant, *(count[cell] for cell in cells))
    report.finish()


if __name__ == "__main__":
    main()
