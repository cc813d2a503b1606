"""Steps of agents that depart from what the run had shown before, and the decisive step."""

from __future__ import annotations

from pathlib import Path
from typing import get_args

from bench.rules import blamed_ranks
from memory_api.reflection.rules import english_structure, japanese_structure
from memory_api.trace_analysis.analyze import analyze_trace
from memory_api.trace_analysis.structure import Divergence, DivergenceKind
from memory_api.trace_analysis.team import Role
from tests.support.runs import Row, call, findings, reflection, run, says, user
from tests.trace_analysis.test_teams import code, output, roles

LANGUAGES = (english_structure.EnglishStructure(), japanese_structure.JapaneseStructure())
RECORDED = Path(__file__).parents[1] / "recordings" / "teams"
TASK = user("How many tonnes of zinc did the Arnholt mine ship in 2019?")
TABLE = "Metal | 2018 | 2019 | 2020\nZinc | 1,204 | 1,377 | 1,410\nLead | 610 | 655 | 702"


def by(agent: str, rows: list[Row]) -> list[Row]:
    return [{**row, "agent": agent} for row in rows]


def found(rows: list[Row], ground_truth: str | None = None) -> dict[str, Divergence]:
    """Kind of divergence -> the first one."""
    items = analyze_trace(run(rows), ground_truth=ground_truth).divergences
    return {item.kind: item for item in reversed(items)}


def test_value_of_another_column_is_misread() -> None:
    page = by("Reader", call("open", {"page": "shipments"}, TABLE))
    wrong = found(
        [TASK, *page, says("Zinc in 2019: 1,204 tonnes.", "Reader"), says("1204", "Lead")]
    )
    assert (wrong["misread"].event_id, wrong["misread"].found) == ("e3", "1,377")
    right = says("Zinc in 2019: 1,377 tonnes; in 2018 it was 1,204.", "Reader")
    assert "misread" not in found([TASK, *page, right, says("1377", "Lead")])
    two = says("From 2018 to 2019: 1,204 to 1,377 tonnes.", "Reader")
    assert "misread" not in found([TASK, *page, two, says("1377", "Lead")])


def test_older_file_is_handed_over() -> None:
    rows = [
        TASK,
        says("I saved the raw rows as ship_v1.csv.", "Cleaner"),
        says("The rows without doubles are in ship_v2.csv.", "Cleaner"),
    ]
    stale = found([*rows, says("Counter, use ship_v1.csv.", "Lead"), says("12", "Counter")])
    assert (stale["stale_file"].event_id, stale["stale_file"].found) == ("e3", "ship_v2.csv")
    assert "stale_file" not in found([*rows, says("Counter, use ship_v2.csv.", "Lead")])
    assert "stale_file" not in found([*rows, says("Not ship_v1.csv but ship_v2.csv.", "Lead")])


def test_changed_digits_units_and_years() -> None:
    page = by("Reader", call("open", {"page": "x"}, "Zinc shipped in 2019: 13774 t"))
    assert found([TASK, *page, says("It is 13747 t.", "Lead")])["altered_number"].found == "13774"
    assert "altered_number" not in found([TASK, *page, says("It is 13774 t, not 13747.", "Lead")])
    assert found([TASK, *page, says("It is 13774 kg.", "Lead")])["altered_unit"].found == "13774 t"
    assert "altered_unit" not in found([TASK, *page, says("It is 13774 tonnes.", "Lead")])
    other = by("Reader", call("search", {"q": "Arnholt mine zinc 2018"}, "Zinc: 12 t"))
    assert found([TASK, *other, says("12", "Lead")])["substituted"].stated == "2018"
    both = by("Reader", call("search", {"q": "Arnholt zinc 2018 2019"}, "Zinc: 12 t"))
    assert "substituted" not in found([TASK, *both, says("12", "Lead")])


def test_part_of_an_output() -> None:
    first = by("Reader", call("open", {"file": "ship.pdf"}, "Page 1 of 3\nZinc 12\nLead 9"))
    says_all = says("The file lists two metals.", "Reader")
    part = found([TASK, *first, says_all, says("12", "Lead")])["partial_view"]
    assert (part.event_id, part.source_event_id) == ("e3", "e2")
    rest = by("Reader", call("open", {"file": "ship.pdf", "page": 3}, "Page 3 of 3\nTin 4"))
    assert "partial_view" not in found([TASK, *first, *rest, says_all, says("12", "Lead")])
    program = [says(code("print(len(read('ship.pdf')))"), "Coder"), output("12")]
    assert "partial_view" not in found([TASK, *first, *program, says("12", "Lead")])


def test_files_and_sources_that_nobody_opened() -> None:
    listing = by("Clerk", call("ls", {"path": "/in"}, "a1.txt\nb2.txt\nc3.txt"))
    opened = [
        row for name in ("a1.txt", "b2.txt") for row in by("Clerk", call("cat", {"f": name}, "4"))
    ]
    report = [says("All files are read: 8 in total.", "Clerk"), says("8", "Lead")]
    unread = found([TASK, *listing, *opened, *report])["unread_files"]
    assert (unread.event_id, unread.stated, unread.found) == ("e7", "2", "3")
    last = by("Clerk", call("cat", {"f": "c3.txt"}, "1"))
    assert "unread_files" not in found([TASK, *listing, *opened, *last, *report])

    hits = by(
        "Reader", call("search", {"q": "zinc"}, "[1] Blog on mines\n[2] Register of shipments")
    )
    asked = says("Checker, please open [2] and compare.", "Reader")
    confirmed = says("I compared it: the value is right.", "Checker")
    assert found([TASK, *hits, asked, confirmed])["unopened"].event_id == "e4"
    page = by("Checker", call("open", {"result": 2}, "Register"))
    assert "unopened" not in found([TASK, *hits, asked, *page, confirmed])


def test_values_typed_in_after_a_failure() -> None:
    shown = output("'Ash', 11, 'Elm', 12, 'Oak', 19, 'Fir', 23")
    failed = [says(code("print(load('trees.xlsx'))"), "Coder"), output("ImportError: xlsx", 1)]
    typed = [says(code("print(sum([11, 12, 19, 23]), 'Ash', 'Elm')"), "Coder"), output("65")]
    rows = [TASK, says(code("show()"), "Coder"), shown, *failed, *typed, says("65", "Lead")]
    assert found(rows)["typed_in"].found == "trees.xlsx"
    reads = [says(code("print(total('trees.csv'), 11, 12, 19, 23, 'Ash')"), "Coder"), output("65")]
    assert "typed_in" not in found([*rows[:5], *reads, says("65", "Lead")])


def test_statements_without_a_source() -> None:
    rows = [
        TASK,
        says("The mine shipped 4711 tonnes of zinc.", "Expert"),
        *by("Chemist", call("convert", {"tonnes": 4711}, "4711000 kg")),
        says("FINAL ANSWER: 4711000", "Lead"),
    ]
    used = found(rows)["from_statement"]
    assert (used.event_id, used.stated, used.source_event_id) == ("e1", "4711", "e2")
    result = reflection(rows)
    assert result is not None
    assert result.source_event_ids[0] == "e1"
    assert result.strategy_text == (
        "Before you use a value that another agent stated without a source, look it up."
    )


def test_numbers_of_a_list_are_no_statements() -> None:
    steps = "Plan:\n1. Load it.\n2. Count it.\nStep 3. Report it."
    rows = [TASK, says(steps, "Planner"), says("```python\nprint(1, 2, 3)\n```", "Coder")]
    assert not [d for d in findings(rows).divergences if d.kind == "without_call"]


def test_expected_answer_that_was_passed_over() -> None:
    rows = [
        TASK,
        says("The register gives 1377.", "Reader"),
        says("The blog gives 1204.", "Surfer"),
        says("Of 1377 and 1204, I take 1204.", "Lead"),
        says("FINAL ANSWER: 1204", "Lead"),
    ]
    assert found(rows, "1377")["passed_over"].event_id == "e3"
    assert "passed_over" not in found(rows, "9999")
    assert "passed_over" not in found(rows)


def test_objection_that_nobody_checks() -> None:
    rows = [
        TASK,
        *by("Coder", call("count", {"file": "ship.db"}, "45")),
        says("It is 45.", "Coder"),
        says("45 is too high, the doubles are still in it.", "Inspector"),
    ]
    kept = says("We go with 45.", "Lead")
    ignored = found([*rows, kept])["ignored_objection"]
    assert (ignored.event_id, ignored.source_event_id) == ("e5", "e4")
    again = by("Coder", call("count", {"file": "ship.db", "unique": True}, "45"))
    assert "ignored_objection" not in found([*rows, *again, kept])


def test_calls_without_progress() -> None:
    rows = [TASK]
    for n in range(4):
        rows += by("Web", call("click", {"target": f"next {n}"}, f"Viewer [no text] page {n}/9"))
    stalled = found([*rows, says("No answer.", "Lead")])["stalled_output"]
    assert (stalled.event_id, stalled.source_event_id) == ("e1", "e7")
    assert "stalled_output" not in found([*rows[:5], says("No answer.", "Lead")])


def test_agent_that_only_instructs_is_a_coordinator() -> None:
    rows = [
        TASK,
        says("Reader, please open the register.", "Lead"),
        *by("Reader", call("open", {"page": "register"}, TABLE)),
        says("Zinc 2019: 1,377.", "Reader"),
        says("FINAL ANSWER: 1377", "Lead"),
    ]
    assert roles(rows) == [
        Role.TASK,
        Role.COORDINATOR,
        Role.WORKER,
        Role.OUTPUT,
        Role.WORKER,
        Role.COORDINATOR,
    ]


def test_every_kind_has_sentences() -> None:
    for kind in get_args(DivergenceKind):
        item = Divergence(kind, "e1", "Reader", "stated", "found", "e9")
        for language in (
            english_structure.EnglishStructure(),
            japanese_structure.JapaneseStructure(),
        ):
            text = language.divergence(item)
            assert "Reader" in text or "e9" in text
            assert "None" not in text
            assert "{" not in text
    strategies = (english_structure.DIVERGENCE_STRATEGIES, japanese_structure.DIVERGENCE_STRATEGIES)
    assert strategies[0].keys() == strategies[1].keys()


def test_successful_run_has_none() -> None:
    rows = [TASK, says("The mine shipped 4711 t and 12 kg.", "Expert"), says("4711", "Lead")]
    assert findings(rows, "success").divergences == ()


def test_long_texts_are_bounded() -> None:
    row = " | ".join(str(n) for n in range(30))
    rows = [TASK]
    for n in range(80):
        rows.append(says(f"{row}\n" * 40 + f"file_{n}.csv 1{n}00 m", f"Agent{n % 3}"))
    assert findings(rows).decisive_event_ids


def test_development_runs() -> None:
    """These runs were used while the rules were written: they show regressions, not quality."""
    ranks = [rank for _, rank, _ in blamed_ranks(RECORDED)]
    assert sum(rank == 1 for rank in ranks) >= 12
