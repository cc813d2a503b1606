"""Vocabularies: chosen by language, named by source, and never a proof."""

from __future__ import annotations

import tomllib
from pathlib import Path

from memory_api.trace_analysis import vocabulary
from memory_api.trace_analysis.vocabulary import language_of, load_vocabulary
from tests.support.cases import each_case
from tests.support.runs import call, findings, says, user

FILES = sorted((Path(vocabulary.__file__).parent / "vocabularies").glob("*.toml"))


@each_case("path", FILES)
def test_every_vocabulary_names_its_source(path: Path) -> None:
    file = tomllib.loads(path.read_text(encoding="utf-8"))
    assert file["source"]
    assert file["license"]
    assert isinstance(file["datasets"], list)
    load_vocabulary(file["language"])


@each_case(
    ("text", "language"),
    [
        ("Please book the table for me and my wife.", "en"),
        ("Bitte storniere die Bestellung, ich habe sie nicht bekommen.", "de"),
        ("Je voudrais changer la date de mon billet pour le train.", "fr"),
        ("Não consigo ver a minha fatura, você pode ajudar com isso?", "pt"),
        ("Quiero cambiar la fecha de mi vuelo, por favor, no puedo ir el lunes.", "es"),
        ("明日の会議を予約してください。", "ja"),
        ("kubectl get pods", "en"),
    ],
)
def test_language_is_detected(text: str, language: str) -> None:
    assert language_of([text]) == language


def test_vocabulary_of_a_data_set_can_be_left_out() -> None:
    rows = call("Search", "Search[Kea]", "Could not find [Kea]. Similar: ['Kea (island)']") * 3
    assert findings(rows).failure_streaks
    without = load_vocabulary("en", "reflexion-hotpotqa-react")
    assert without.search("failure_short", "Could not find [Kea].") is None
    assert load_vocabulary("en").search("failure_short", "Could not find [Kea].")


def test_words_of_a_language_are_used_for_texts_in_it() -> None:
    assert load_vocabulary("en").search("dissatisfaction", "That's not what I asked for.")
    assert load_vocabulary("de").search("dissatisfaction", "That's not what I asked for.") is None


def test_phrase_in_a_response_is_wording_and_an_error_field_is_a_report() -> None:
    worded = findings(call("find", "find report", "No such file or directory"))
    assert worded.failed_calls[0].failure_source == "wording"
    reported = findings(call("find", "find report", "nothing", error={"message": "missing"}))
    assert reported.failed_calls[0].failure_source == "tool"


@each_case(
    ("response", "is_failure"),
    [
        ("Run-time error '1004': Application-defined or object-defined error", True),
        ("ERROR 1064 (42000): You have an error in your SQL syntax", True),
        ("Error 404: page", True),
        ("ORA-00942: table or view", True),
        ("Msg 208, Level 16, State 1\nInvalid object name", True),
        ("Error handling: see chapter 4", False),
        ("Exception 1: orders under 5 EUR are exempt", False),
        ("Errors found: 0", False),
    ],
)
def test_numbered_errors_are_reports(response: str, is_failure: bool) -> None:
    failed = findings(call("run_macro", {"code": "x"}, response)).failed_calls
    assert ("tool" in {c.failure_source for c in failed}) == is_failure


def test_error_kinds_by_message() -> None:
    classify = load_vocabulary("en").classify_error
    assert classify("HTTP 429: too many requests")[0] == "rate_limit"
    assert classify("open /etc/x: permission denied")[0] == "permission"
    assert classify("Bereits versandt")[0] == "failed"


def test_results_that_no_later_event_uses() -> None:
    page = "Parcel 88-213 left Hamburg on 4 May and reached Aarhus on 6 May at gate 17."
    rows = [
        user("Where is my parcel?"),
        *call("track", {"parcel": "P1"}, page),
        says("It is on its way."),
    ]
    assert [u.event_id for u in findings(rows).unused_results] == ["e1"]
    rows[-1] = says("It reached Aarhus.")
    assert findings(rows).unused_results == ()
