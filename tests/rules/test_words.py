"""Public text contains no word of the list in `tests/rules/words.py`.

Documents and prompts are checked completely. Messages of code are checked in the folders of
`CHECKED`; `python -m tests.rules.words apps/memory_api/core` shows what a folder still contains.
"""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

from tests.rules.passages import Passage, documents, messages, paragraphs, prompts, prose
from tests.rules.sources import ROOT, files, name_of
from tests.rules.words import check, find_words
from tests.support.cases import each_case

CHECKED = ("apps/memory_api", "sdk/hansei")
"""Folders and files of the code whose messages are checked, for example `apps/memory_api/core`."""


def words(text: str) -> list[str]:
    return [match.word for match in find_words(Passage(ROOT / "text", 1, text))]


@each_case("path", [*documents(), *prompts()])
def test_documents_and_prompts(path: Path) -> None:
    assert [str(match) for match in check(path)] == []


@pytest.mark.parametrize("folder", CHECKED)
def test_messages(folder: str) -> None:
    path = ROOT / folder
    checked = [path] if path.is_file() else files(folder, suffix=".py")
    assert checked, f"{folder} has no Python files"
    assert [str(match) for each in checked for match in check(each)] == []


@each_case(
    ("text", "found"),
    [
        ("The run that was told of it stands beside the others.", ["told", "stands", "beside"]),
        ("Lessons are kept, never forgotten.", ["kept", "forgotten"]),
        ("A stored lesson, never erased.", []),
        ("KEEP leaves a bullet unchanged.", []),
        ("The budget is reserved before a call and settled after it.", []),
        ("The verdict is settled.", ["settled"]),
        ("Do not keep rephrasing it. The transaction is rolled back.", []),
        ("Change one argument and keep the other arguments unchanged.", []),
        ("Returned values of a standard slot.", []),
        ("Who sends it is counted.", ["Who sends"]),
        ("The person who sends it is counted.", []),
        ("Normalise the behaviour of cancelled runs.", ["Normalise", "behaviour"]),
    ],
)
def test_words_are_found(text: str, found: list[str]) -> None:
    assert sorted(words(text)) == sorted(found)


CODE = '''
class Missing(ProblemError):
    """Not public: told."""
    detail = "gone away"

@router.get("/x")
async def show(run: str = Query(description="who is told")) -> None:
    """What is kept."""
    log.info("database_away", kept=1)
    raise Missing(f"{run} is beside `told`." + " Once more.")

def helper() -> str:
    """Not public: kept."""
    return "not public: kept"
'''


def test_messages_of_code_are_found() -> None:
    found = sorted(text for _, text in messages(ast.parse(CODE), Path("router.py")))
    assert found == [
        "What is kept.",
        "database away",
        "gone away",
        "who is told",
        "… is beside ‹code›. Once more.",
    ]


def test_stored_text_and_wire_models_are_public() -> None:
    module = ast.parse('class Trace:\n    """A trace."""\n\nTEXT = f"It was {x} told and kept."\n')
    schemas = [text for _, text in messages(module, Path("traces/schemas.py"))]
    assert schemas == ["A trace."]
    stored = [text for _, text in messages(module, Path("reflection/rules/english.py"))]
    assert stored == ["It was … told and kept."]


def test_only_prose_is_read() -> None:
    text = "# Keep\n\nA `kept` [link](kept.md).\n\n```\nkept\n```\n<!-- kept -->\n| a | kept |\n"
    found = [(one.line, one.text) for one in paragraphs(ROOT / "x.md", prose(text))]
    assert found == [(1, "# Keep."), (3, "A ‹code› [link]."), (9, "| a | kept |")]


def test_documents_and_prompts_are_there() -> None:
    names = {name_of(path) for path in [*documents(), *prompts()]}
    assert {
        "README.md",
        "docs/architecture.md",
        "docs/decisions/README.md",
        "docs/llms.txt",
    } <= names
    assert any(name.startswith("prompts/") for name in names)
