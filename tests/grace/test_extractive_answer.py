"""The answer without a model quotes the best source."""

from __future__ import annotations

from memory_api.grace.tools.port import Source
from memory_api.grace.tools.rag_search import relevance_scores
from memory_api.grace.tools.reasoning import MAX_UNCHECKED, extract_answer


def test_repeated_sentence_is_quoted_once() -> None:
    rule = "A refund of a train ticket takes ten days."
    text = f"{rule} {rule} Call the office for a refund of a train ticket by card. {rule}"
    question = "How long does a refund of a train ticket take?"
    result = extract_answer(question, [Source("doc", text, 0.8)])
    assert result.output.count(rule) == 1
    assert "by card" in result.output


def test_rows_of_a_table_are_quoted_with_their_heading() -> None:
    head = "| version | support ends |\n|---|---|"
    rows = ["| 16 | November 2028 |", "| 17 | November 2029 |", "| 18 | November 2030 |"]
    text = "Releases.\n\n" + "\n".join([head, *rows]) + "\n\nAn upgrade takes an hour."
    result = extract_answer("When does the support of version 17 end?", [Source("doc", text, 0.8)])
    assert head in result.output
    assert rows[1] in result.output
    quoted = [line for line in result.output.splitlines() if line.startswith("|")]
    assert set(quoted) <= {*head.splitlines(), *rows}


def test_offsets_of_a_quoted_row_are_those_of_the_page() -> None:
    head = "| version | support ends |\n|---|---|\n"
    rows = "| 16 | November 2028 |\n| 17 | November 2029 |\n"
    page = f"{head}| 15 | November 2027 |\n{rows}"
    start = page.index("| 16")
    chunk = Source("doc", head + rows.strip(), 0.8, start=start, end=start + len(rows) - 1)
    cited = extract_answer("When does the support of 17 end?", [chunk]).sources[0]
    assert (cited.start, cited.end) == (start, start + len(rows) - 1)


def test_passage_that_begins_inside_a_table_is_quoted_in_whole_rows() -> None:
    row = "| `MODE` | `rules` | What a request returns if the model fails. `fail`: 502 or 503. |"
    text = f"|\n{row}\n| `SIZE` | `8` | Runs per call. More runs share a prompt. |\n\nSee below."
    result = extract_answer("What does MODE=fail return?", [Source("doc", text, 0.8)])
    assert row in result.output
    assert "|\n|" not in result.output


def test_an_unchecked_passage_is_never_silent() -> None:
    text = "A pending order cannot be refunded."
    result = extract_answer(text, [Source("doc", text, 1.0)])
    assert result.output.startswith("The passage that fits best: ")
    assert not result.is_checked
    assert result.sources[0].score == MAX_UNCHECKED < 0.9


def test_confidence_is_about_the_question() -> None:
    """A source that was found with other words scores by the words of the question."""
    found_by_other_words = Source("doc", "Parcels to Norway need a customs form.", 0.98)
    result = extract_answer("What is the warranty of the batteries?", [found_by_other_words])
    assert result.sources[0].score < 0.1


def test_confidence_is_about_the_quoted_text() -> None:
    """A passage may have each word of the question somewhere, and no sentence that answers it."""
    sentences = [
        f"The {word} is described here." for word in ("port", "parking", "price", "permit")
    ]
    scattered = " ".join(["A garage opens at six.", *sentences, "A monthly fee is due."])
    question = "What is the price of a monthly parking permit in the port garage?"
    together = "The price of a monthly parking permit in the port garage is 90 dollars."
    assert extract_answer(question, [Source("doc", scattered, 0.8)]).sources[0].score < 0.6
    assert extract_answer(question, [Source("doc", together, 0.8)]).sources[0].score > 0.8


def test_scores_do_not_depend_on_other_passages() -> None:
    question = "What is the warranty period of the Falcon drill?"
    souvenirs = "The warranty period of souvenirs is five days."
    right = "The warranty period of the Falcon drill is three years."
    alone, beside = (
        relevance_scores(question, [souvenirs]),
        relevance_scores(question, [souvenirs] * 4),
    )
    assert alone[0] < 0.7
    assert beside[0] < 0.7
    assert relevance_scores(question, [souvenirs, right])[1] > 0.9
