"""Prompts: which file applies, what identifies it, and how it is filled in."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from memory_api.llm.prompts import (
    PLACEHOLDERS,
    PromptInvalid,
    PromptMissing,
    check_prompt_directory,
    content_hash,
    find_template_problem,
    load_prompt,
    packaged_prompt_directory,
    render_template,
    safe_folder_name,
    select_sections,
)
from tests.support.cases import each_case

EXAMPLE = """Sum up what happened in {language}.

Answer like {{"summary": "…"}}.

{trace}
"""


@pytest.fixture
def default(tmp_path: Path) -> Path:
    folder = tmp_path / "default"
    (folder / "reflection").mkdir(parents=True)
    (folder / "summary.md").write_text(EXAMPLE, encoding="utf-8")
    (folder / "reflection" / "failure.txt").write_text("失敗した理由は？", encoding="utf-8")
    return folder


@pytest.fixture
def operator(tmp_path: Path) -> Path:
    folder = tmp_path / "operator"
    folder.mkdir()
    return folder


def put(folder: Path, *parts: str, text: str) -> None:
    path = folder.joinpath(*parts)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8")


def test_prompt_is_read_from_file_and_hashed(default: Path) -> None:
    prompt = load_prompt("summary", packaged_dir=default)
    assert prompt.text == EXAMPLE
    assert prompt.hash == hashlib.sha256(EXAMPLE.encode()).hexdigest()
    assert prompt.source == str(default / "summary.md")
    assert load_prompt("reflection/failure", packaged_dir=default).text == "失敗した理由は？"
    assert load_prompt("summary.txt", packaged_dir=default) == prompt


def test_nearest_operator_file_wins(default: Path, operator: Path) -> None:
    def text(tenant: str | None, playbook: str | None) -> str:
        found = load_prompt(
            "summary", tenant=tenant, playbook=playbook, operator_dir=operator, packaged_dir=default
        )
        return found.text

    assert text("acme", "web") == EXAMPLE
    put(operator, "summary.md", text="for all")
    assert text("acme", "web") == "for all"
    put(operator, "acme", "summary.txt", text="for acme")
    assert text("acme", "web") == "for acme"
    put(operator, "acme", "web", "summary.md", text="for acme's web")
    assert text("acme", "web") == "for acme's web"
    assert text("acme", "other") == "for acme"
    assert text("other", "web") == "for all"
    assert text(None, "web") == "for all"


def test_other_text_has_other_hash(default: Path) -> None:
    before = load_prompt("summary", packaged_dir=default)
    put(default, "summary.md", text=EXAMPLE + "!")
    assert load_prompt("summary", packaged_dir=default).hash != before.hash


def test_built_in_prompt_is_fallback(default: Path) -> None:
    prompt = load_prompt("missing", packaged_dir=default, builtin="Say {what}.")
    assert (prompt.source, prompt.text) == ("built-in", "Say {what}.")
    assert load_prompt("summary", packaged_dir=default, builtin="unused").text == EXAMPLE
    with pytest.raises(PromptMissing, match="'missing'"):
        load_prompt("missing", packaged_dir=default)


@pytest.mark.parametrize(
    "name", ["", "../secret", "/etc/passwd", "a/../b", "a//b", ".hidden", "a b", "a\\b", "Ä", "a\n"]
)
def test_path_as_prompt_name_is_refused(name: str, default: Path) -> None:
    with pytest.raises(ValueError, match="is not a valid prompt name"):
        load_prompt(name, packaged_dir=default)


@pytest.mark.parametrize("name", ["..", "../..", "/", "/etc", "a/b", ".", "", "日本" * 100, "\x00"])
def test_tenant_and_playbook_names_are_single_folders(
    name: str, default: Path, operator: Path
) -> None:
    put(operator.parent, "summary.md", text="outside")
    assert (
        load_prompt(
            "summary", tenant=name, playbook=name, operator_dir=operator, packaged_dir=default
        ).text
        == EXAMPLE
    )
    put(operator, safe_folder_name(name), safe_folder_name(name), "summary.md", text="inside")
    assert (
        load_prompt(
            "summary", tenant=name, playbook=name, operator_dir=operator, packaged_dir=default
        ).text
        == "inside"
    )


@given(st.text(max_size=128))
def test_property_a_folder_name_is_safe(name: str) -> None:
    folder = safe_folder_name(name)
    assert folder
    assert folder.isascii()
    assert len(folder) <= 255
    assert not folder.startswith(".")
    assert not set(folder) & set("/\\\x00:")


@given(st.text(max_size=128), st.text(max_size=128))
def test_property_different_names_have_different_folders(one: str, other: str) -> None:
    assert (safe_folder_name(one) == safe_folder_name(other)) == (one == other)


def test_packaged_prompts_are_found() -> None:
    assert packaged_prompt_directory().name == "prompts"


def test_only_known_placeholders_are_filled_in() -> None:
    text = render_template(EXAMPLE, {"language": "English", "trace": "{language} {{x}} {"})
    assert text == (
        'Sum up what happened in English.\n\nAnswer like {"summary": "…"}.\n\n{language} {{x}} {\n'
    )


@each_case(
    ("template", "text"),
    [
        ("{a}{b}", "12"),
        ("{{a}}", "{a}"),
        ("{{{a}}}", "{1}"),
        ('{"k": {"l": {}}}', '{"k": {"l": {}}}'),
        ('{{"k": {{"l": {a}}}}}', '{"k": {"l": 1}}'),
        ("{} {0} { a } {a-b} {", "{} {0} { a } {a-b} {"),
        ("}} {{", "} {"),
        ("}} {a", "}} {a"),
        ("", ""),
    ],
)
def test_doubled_braces_are_literal(template: str, text: str) -> None:
    assert render_template(template, {"a": "1", "b": "2"}) == text


def test_missing_placeholder_value_is_reported() -> None:
    with pytest.raises(ValueError, match=r"\{trace\} has no value"):
        render_template(EXAMPLE, {"language": "English"})


@given(st.text(), st.text())
def test_property_values_are_never_read_as_templates(one: str, other: str) -> None:
    assert render_template("<{one}|{other}>", {"one": one, "other": other}) == f"<{one}|{other}>"


SHORT = st.text('ab{}"\\', max_size=6)


@given(st.dictionaries(SHORT, SHORT | st.lists(st.dictionaries(SHORT, st.integers()), max_size=3)))
def test_property_json_example_with_doubled_braces_is_intact(
    example: dict[str, object],
) -> None:
    written = json.dumps(example)
    assert render_template(written.replace("{", "{{").replace("}", "}}"), {}) == written


def test_hash_covers_content() -> None:
    assert content_hash("a") != content_hash("b")
    assert len(content_hash("\ud800")) == 64


def test_section_without_content_is_left_out() -> None:
    template = "a\n{if x}\nX: {x}\n{end if}\nb\n{if y}\nY: {y}\n{end if}\n"
    assert select_sections(template, {"x": "1", "y": ""}) == "a\nX: {x}\nb\n"
    assert select_sections("{if x}\n{x}\n{end if}", {"x": "1"}) == "{x}\n"
    assert select_sections("say {if x} here", {}) == "say {if x} here"
    with pytest.raises(ValueError, match=r"\{z\} has no value"):
        select_sections("{if z}\n{end if}\n", {})


@each_case("name", sorted(PLACEHOLDERS))
def test_packaged_prompts_use_known_placeholders(name: str) -> None:
    text = load_prompt(name).text
    assert find_template_problem(name, text) is None


def test_unknown_placeholder_is_named(default: Path, operator: Path) -> None:
    put(operator, "acme", "reflection", "failure.txt", text="Why? {evnts} {task_goal} {{x}}")
    with pytest.raises(PromptInvalid, match=r"reflection/failure\.txt.*`\{evnts\}`") as caught:
        load_prompt("reflection/failure", tenant="acme", operator_dir=operator)
    assert caught.value.status == 422
    assert "`events`" not in caught.value.detail
    assert "events" in caught.value.detail
    put(operator, "acme", "reflection", "failure.txt", text="{if bullets}\n{bullets}\n")
    with pytest.raises(PromptInvalid, match="has no line"):
        load_prompt("reflection/failure", tenant="acme", operator_dir=operator)
    (operator / "acme" / "reflection" / "failure.txt").write_bytes(b"\xff\xfe")
    with pytest.raises(PromptInvalid, match="is not UTF-8"):
        load_prompt("reflection/failure", tenant="acme", operator_dir=operator)


def test_all_problems_of_a_folder_are_listed(operator: Path) -> None:
    put(operator, "curation", "curate.md", text="{lessons} {bullets} {sections}")
    put(
        operator, "acme", "web", "evaluation", "evaluate.txt", text="{evidence} {findings} {events}"
    )
    assert check_prompt_directory(operator) == []
    put(operator, "acme", "curation", "curate.md", text="{lessons} {lesson}")
    put(operator, "curation", "consolidate.txt", text="Merge what says the same.")
    put(operator, "reflection", "failures.txt", text="x")
    first, missing, second = check_prompt_directory(operator)
    assert missing == (
        "curation/consolidate.txt: The prompt file curation/consolidate.txt is not valid. "
        "The placeholder `{groups}` is missing."
    )
    assert first.startswith("acme/curation/curate.md: ")
    assert "`{lesson}`" in first
    assert second.startswith("reflection/failures.txt: No prompt has this name.")
    assert check_prompt_directory(operator / "missing") == [
        f"The folder {operator / 'missing'} does not exist."
    ]


def test_tenant_with_two_names(default: Path, operator: Path) -> None:
    put(operator, "acme", "summary.md", text="by slug")

    def text() -> str:
        tenants = ["0190d2c4-6f5e-7a31-9c11-3a55d6f0aa04", "acme"]
        return load_prompt(
            "summary", tenant=tenants, operator_dir=operator, packaged_dir=default
        ).text

    assert text() == "by slug"
    put(operator, "0190d2c4-6f5e-7a31-9c11-3a55d6f0aa04", "summary.md", text="by id")
    assert text() == "by id"
