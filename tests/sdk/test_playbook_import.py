"""Lessons of other programs: which are read, and what is refused."""

from __future__ import annotations

import json

import pytest

from hansei.errors import BadRequestError
from hansei.models import Bullet
from hansei.playbook_import import detect_format, merge_lessons, parse_lessons
from tests.support.cases import each_case

AGENTS = """\
---
title: ours
---
# Project

Use Python 3.11.
It is installed.

<!-- a comment -->
## Tests **first**

- Run `make test`:
  ```sh
  make test  # not "- an item"
  ```
* Look at the log

  when it fails
  - nested
1. Ask.

<!-- hansei:begin playbook="coding" version=1 -->
- [oth-00001] Ours.
<!-- hansei:end playbook="coding" -->
"""
SKILLBOOK = {
    "skills": {
        "tests-00001": {
            "id": "tests-00001",
            "section": "tests",
            "content": "Run them.",
            "helpful": 3,
            "harmful": 1,
            "status": "active",
        },
        "tests-00002": {"section": "tests", "content": "Gone.", "status": "invalid"},
    },
    "sections": {"tests": ["tests-00001"]},
    "next_id": 2,
}
MEM0 = {
    "results": [
        {"id": "1", "memory": "Likes tea.", "categories": ["food"], "user_id": "anna"},
        {"id": "2", "memory": "Lives in Kyoto."},
    ]
}


def test_markdown_items_and_paragraphs_are_lessons() -> None:
    found = [(each.section, each.content) for each in parse_lessons(AGENTS, "agents-md")]
    assert found == [
        ("Project", "Use Python 3.11.\nIt is installed."),
        ("Tests first", 'Run `make test`:\n```sh\nmake test  # not "- an item"\n```'),
        ("Tests first", "Look at the log\n\nwhen it fails\n- nested"),
        ("Tests first", "Ask."),
    ]


def test_skillbook_keeps_keys_and_counters() -> None:
    (lesson,) = parse_lessons(json.dumps(SKILLBOOK), "skillbook")
    assert (lesson.key, lesson.section, lesson.content) == ("tests-00001", "tests", "Run them.")
    assert (lesson.helpful, lesson.harmful) == (3, 1)


def test_mem0_memories_are_lessons_of_their_category() -> None:
    found = [(each.section, each.content) for each in parse_lessons(json.dumps(MEM0), "mem0")]
    assert found == [("food", "Likes tea."), ("OTHERS", "Lives in Kyoto.")]


@each_case(
    ("text", "name", "expected"),
    [
        (AGENTS, "AGENTS.md", "agents-md"),
        ("## A\n[x-1] helpful=1 harmful=0 :: Do.", "playbook.md", "bullets"),
        (json.dumps(SKILLBOOK), "x.json", "skillbook"),
        (json.dumps({"bullets": {}}), "x.json", "skillbook"),
        (json.dumps({"bullets": []}), "x.json", "bullets"),
        (json.dumps({"sections": {}}), "x.json", "bullets"),
        (json.dumps(MEM0), "x.json", "mem0"),
        (json.dumps(MEM0["results"]), "-", "mem0"),
        ("{", "x.json", "bullets"),
        ("[]", "x.json", "bullets"),
        ('["x"]', "x.json", "bullets"),
    ],
)
def test_format_is_detected(text: str, name: str, expected: str) -> None:
    assert detect_format(text, name) == expected


@each_case(
    ("text", "format"),
    [
        ("", "agents-md"),
        ("# Only a title", "claude-md"),
        ("{", "mem0"),
        ("3", "mem0"),
        ('["x"]', "mem0"),
        ("[]", "skillbook"),
        ('{"skills": {"a": 1}}', "skillbook"),
        ("[" * 100_000, "mem0"),
    ],
)
def test_file_without_lessons_is_refused(text: str, format) -> None:
    with pytest.raises(BadRequestError):
        parse_lessons(text, format)


def test_known_lessons_are_not_added_twice() -> None:
    lessons = parse_lessons("## Tests\n- Run  THEM.\n- Read.\n- Read.\n", "agents-md")
    current = [Bullet(id="test-00001", section="Tests", content="Run them.")]
    merged, duplicates = merge_lessons(current, lessons)
    assert duplicates == 2
    assert [each["id"] for each in merged] == ["test-00001", "test-00002"]
