"""The figures of docs/proof.md follow from the recorded answers."""

from __future__ import annotations

from bench.harness import RESULTS
from bench.proof import make_report


def test_recorded_answers_are_scored_as_the_results_say() -> None:
    assert make_report().text() == (RESULTS / "proof.md").read_text("utf8")
