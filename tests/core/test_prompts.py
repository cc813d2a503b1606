"""Prompts: which file applies, what identifies it, and how it is filled in."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from apps.memory_api.core.prompts import (
    PromptMissing,
    content_hash,
    folder_name,
    load,
    packaged_prompts,
    render,
)

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


def test_a_prompt_is_its_file_and_its_hash_is_of_the_text(default: Path) -> None:
    prompt = load("summary", default=default)
    assert prompt.text == EXAMPLE
    assert prompt.hash == hashlib.sha256(EXAMPLE.encode()).hexdigest()
    assert prompt.source == str(default / "summary.md")
    assert load("reflection/failure", default=default).text == "失敗した理由は？"
    assert load("summary.txt", default=default) == prompt


def test_the_nearest_operator_file_wins(default: Path, operator: Path) -> None:
    def text(tenant: str | None, playbook: str | None) -> str:
        found = load(
            "summary", tenant=tenant, playbook=playbook, operator=operator, default=default
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


def test_another_text_is_another_prompt(default: Path) -> None:
    before = load("summary", default=default)
    put(default, "summary.md", text=EXAMPLE + "!")
    assert load("summary", default=default).hash != before.hash


def test_the_built_in_form_stands_in(default: Path) -> None:
    prompt = load("missing", default=default, builtin="Say {what}.")
    assert (prompt.source, prompt.render(what="it")) == ("built-in", "Say it.")
    assert load("summary", default=default, builtin="unused").text == EXAMPLE
    with pytest.raises(PromptMissing, match="'missing'"):
        load("missing", default=default)


@pytest.mark.parametrize(
    "name", ["", "../secret", "/etc/passwd", "a/../b", "a//b", ".hidden", "a b", "a\\b", "Ä", "a\n"]
)
def test_a_name_that_is_a_path_is_refused(name: str, default: Path) -> None:
    with pytest.raises(ValueError, match="not a prompt name"):
        load(name, default=default)


@pytest.mark.parametrize("name", ["..", "../..", "/", "/etc", "a/b", ".", "", "日本" * 100, "\x00"])
def test_a_tenant_or_playbook_name_is_one_folder_inside(
    name: str, default: Path, operator: Path
) -> None:
    put(operator.parent, "summary.md", text="outside")
    assert (
        load("summary", tenant=name, playbook=name, operator=operator, default=default).text
        == EXAMPLE
    )
    put(operator, folder_name(name), folder_name(name), "summary.md", text="inside")
    assert (
        load("summary", tenant=name, playbook=name, operator=operator, default=default).text
        == "inside"
    )


@given(st.text(max_size=128))
def test_property_a_folder_name_is_safe(name: str) -> None:
    folder = folder_name(name)
    assert folder
    assert folder.isascii()
    assert len(folder) <= 255
    assert not folder.startswith(".")
    assert not set(folder) & set("/\\\x00:")


@given(st.text(max_size=128), st.text(max_size=128))
def test_property_different_names_have_different_folders(one: str, other: str) -> None:
    assert (folder_name(one) == folder_name(other)) == (one == other)


def test_the_packaged_prompts_are_found() -> None:
    assert packaged_prompts().name == "prompts"


def test_only_named_placeholders_are_filled_in() -> None:
    text = render(EXAMPLE, {"language": "English", "trace": "{language} {{x}} {"})
    assert text == (
        'Sum up what happened in English.\n\nAnswer like {"summary": "…"}.\n\n{language} {{x}} {\n'
    )


@pytest.mark.parametrize(
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
def test_braces(template: str, text: str) -> None:
    assert render(template, {"a": "1", "b": "2"}) == text


def test_a_placeholder_without_a_value_is_named() -> None:
    with pytest.raises(ValueError, match=r"\{trace\} has no value"):
        render(EXAMPLE, {"language": "English"})


@given(st.text(), st.text())
def test_property_values_are_never_read_as_templates(one: str, other: str) -> None:
    assert render("<{one}|{other}>", {"one": one, "other": other}) == f"<{one}|{other}>"


SHORT = st.text('ab{}"\\', max_size=6)


@given(st.dictionaries(SHORT, SHORT | st.lists(st.dictionaries(SHORT, st.integers()), max_size=3)))
def test_property_a_json_example_written_with_doubled_braces_comes_out_whole(
    example: dict[str, object],
) -> None:
    written = json.dumps(example)
    assert render(written.replace("{", "{{").replace("}", "}}"), {}) == written


def test_the_hash_is_of_the_content() -> None:
    assert content_hash("a") != content_hash("b")
    assert len(content_hash("\ud800")) == 64
