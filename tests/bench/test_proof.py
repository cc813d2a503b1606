"""The figures of docs/proof.md and of the demo follow from the recorded answers."""

from __future__ import annotations

import json
import tarfile
from pathlib import Path
from typing import Any

import pytest

from bench.harness import RESULTS
from bench.proof import RECORDINGS, make_report
from bench.recordings import SAFE_FILTER
from hansei.evaluation.notes import find_notes
from hansei.evaluation.report import build_report
from memory_api.demo.console_data import REPORTS


def test_recorded_answers_are_scored_as_the_results_say() -> None:
    assert make_report().text() == (RESULTS / "proof.md").read_text("utf8")


def rounded(value: Any) -> Any:
    """The last digits of a sum differ between versions of Python."""
    return json.loads(json.dumps(value), parse_float=lambda number: round(float(number), 9))


@pytest.mark.parametrize(("line", "archive"), [(0, "e43"), (1, "c25")])
def test_reports_of_the_demo_are_those_of_the_recordings(
    line: int, archive: str, tmp_path: Path
) -> None:
    shown = json.loads(REPORTS.read_text("utf8").splitlines()[line])
    with tarfile.open(RECORDINGS / f"{archive}.tar.xz") as file:
        file.extractall(tmp_path, **SAFE_FILTER)
    report = json.loads(json.dumps(build_report(tmp_path)))
    report["learning"]["projects"] = []
    report["about"] = shown["about"]
    assert rounded(shown) == rounded(report | {"notes": find_notes(report)})
