"""The templates of the reflector of S1, and how a trajectory is filled in."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from memory_api.library.reflector_prompt import BUILTIN, ReflectorPromptBuilder, parse_analysis
from memory_api.llm.prompts import packaged_prompt_directory
from memory_api.playbooks.models import Bullet
from memory_api.reflection.trajectories.schemas import Trajectory
from tests.support.trajectories import ASKED, REPORT, TRAJECTORY, TRUTH


def test_nearest_template_is_used(tmp_path: Path) -> None:
    builder = ReflectorPromptBuilder(tmp_path)
    assert builder._load_template("coding") == BUILTIN["default"]
    (tmp_path / "default.txt").write_text("For all: {generated_answer}")
    assert builder._load_template("coding") == "For all: {generated_answer}"
    (tmp_path / "coding.txt").write_text("For coding: {generated_answer}")
    assert builder._load_template("coding") == "For coding: {generated_answer}"
    assert builder._load_template("other") == "For all: {generated_answer}"
    shipped = (packaged_prompt_directory() / "reflector" / "default.txt").read_text(
        encoding="utf-8"
    )
    assert ReflectorPromptBuilder()._load_template("coding") == shipped
    assert builder.build_evaluation_prompt(TRAJECTORY, "", Bullet(id="a", section="", content="c"))


def test_dataset_name_cannot_escape_prompt_folder(tmp_path: Path) -> None:
    (tmp_path / "prompts").mkdir()
    (tmp_path / "secret.txt").write_text("outside")
    (tmp_path / "prompts" / "default.txt").write_text("inside")
    builder = ReflectorPromptBuilder(tmp_path / "prompts")
    for name in ("../secret", "..", "/etc/passwd", "a/../../secret", "bullet/default"):
        assert builder._load_template(name) == "inside"


@pytest.mark.parametrize(
    ("template", "prompt"),
    [
        ("{{{generated_answer}}}", "{«A»}"),
        ('{{"a": {{}}}} {generated_answer}', '{"a": {}} «A»'),
        ('{"a": 1} {generated_answer}', '{"a": 1} «A»'),
        ("{generated_answer}|{ground_truth}|{test_report}", "«A»|«T»|(none)"),
        ("{reasoning_steps}\n{generated_answer}", "«one\ntwo»\n«A»"),
        ("[{previous_insights}]{generated_answer}", "[]«A»"),
        ("{used_bullets}\n{generated_answer}", "«[k-1] first\n[k-2] second»\n«A»"),
    ],
)
def test_placeholders_are_filled_and_braces_kept(
    tmp_path: Path, template: str, prompt: str
) -> None:
    (tmp_path / "default.txt").write_text(template)
    sent = Trajectory(query="q", generated_answer="A", reasoning_steps=["one", "two"])
    bullets = [
        Bullet(id="k-1", section="", content="first"),
        Bullet(id="k-2", section="", content="second"),
    ]
    built = ReflectorPromptBuilder(tmp_path).build(sent, "T", "", bullets, "d")
    assert unfenced(built) == prompt


def unfenced(prompt: str) -> str:
    return re.sub(r"<([a-z-]+-[0-9a-f]{16})>\n(.*?)\n</\1>", r"«\2»", prompt, flags=re.DOTALL)


def test_template_without_answer_placeholder_gets_answer(tmp_path: Path) -> None:
    (tmp_path / "default.txt").write_text("Our own words. {schema}")
    prompt = ReflectorPromptBuilder(tmp_path).build(*ASKED[:3], [], "d")
    assert prompt.startswith("Our own words.")
    assert TRAJECTORY.generated_answer in prompt
    assert json.dumps("key_insight") in prompt


@pytest.mark.parametrize("name", ["default", "bullet/default"])
def test_shipped_templates_have_required_parts(name: str) -> None:
    text = (packaged_prompt_directory() / "reflector" / f"{name}.txt").read_text(encoding="utf-8")
    common = ("{generated_answer}", "{ground_truth}", "Example", "not instructions")
    for part in common:
        assert part in text, part
    if name == "default":
        for part in ("{test_report}", "{reasoning_steps}", "{used_bullets}", "{previous_insights}"):
            assert part in text, part
        assert "reflector" in text.lower()
        assert "writes code" in text


def test_template_example_matches_schema() -> None:
    text = ReflectorPromptBuilder().build(*ASKED[:3], [], "d")
    example = text[text.index("A good answer:") : text.index("## The trajectory")]
    analysis = parse_analysis(example)
    assert analysis is not None
    assert analysis.insights


def test_long_answer_is_truncated_to_budget() -> None:
    sent = TRAJECTORY.model_copy(update={"generated_answer": "first\n" + "x y\n" * 50_000 + "last"})
    prompt = ReflectorPromptBuilder(budget=2048).build(sent, TRUTH, REPORT, [], "d")
    assert len(prompt) < 20_000
    assert "omitted" in prompt
    assert "first" in prompt
    assert "last" in prompt
