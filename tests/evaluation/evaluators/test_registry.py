"""Evaluators by name, one's own included."""

from __future__ import annotations

from pathlib import Path

import pytest

from memory_api.core.errors import ConfigurationError
from memory_api.core.settings import Settings
from memory_api.evaluation.evaluate import run_evaluators
from memory_api.evaluation.evaluators.registry import check_settings, open_evaluators
from memory_api.evaluation.evaluators.threshold import Thresholds
from memory_api.evaluation.schemas import Criterion
from tests.evaluation.evaluators.test_threshold import settings
from tests.support.evaluation_cases import case, said

OWN = """
from memory_api.evaluation.schemas import Criterion, CriterionScore, EvaluatorResult

class Tone:
    def __init__(self, word):
        self.word = word

    async def evaluate(self, case):
        replies = map(case.run.content_at, case.run.reply_positions)
        friendly = any(self.word in reply for reply in replies)
        reasons = (f"it says {self.word}",)
        return EvaluatorResult((CriterionScore(Criterion.HELPFULNESS, float(friendly), reasons),))

def open_tone(settings, llm):
    return Tone("please")

def open_wrong(settings, llm):
    class Wrong:
        async def evaluate(self, case):
            return EvaluatorResult((CriterionScore(Criterion.SAFETY, 7, ()),))
    return Wrong()

number = 7
"""


@pytest.fixture
def own_module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    name = "checks_of_a_user"
    (tmp_path / f"{name}.py").write_text(OWN, encoding="utf-8")
    monkeypatch.syspath_prepend(tmp_path)
    return name


def listing(evaluators: str) -> Settings:
    return settings(evaluators=evaluators)


def test_model_evaluator_is_off_by_default() -> None:
    assert [name for name, _ in open_evaluators(settings(), None)] == ["deterministic", "threshold"]


async def test_custom_evaluator_is_used(own_module: str) -> None:
    opened = open_evaluators(listing(f"deterministic, tone={own_module}:open_tone"), None)
    found = await run_evaluators(case([said("Could you wait, please?")]), opened, Thresholds())
    assert list(found.found) == ["deterministic", "tone"]
    best = found.best(Criterion.HELPFULNESS)
    assert best is not None
    assert (best.score, best.reasons) == (1.0, ("it says please",))


async def test_score_out_of_range_is_refused(own_module: str) -> None:
    opened = open_evaluators(listing(f"x={own_module}:open_wrong"), None)
    with pytest.raises(ValueError, match="from 0 to 1, not 7"):
        await run_evaluators(case(), opened, Thresholds())


@pytest.mark.parametrize(
    ("evaluators", "said_of_it"),
    [
        ("nonsense", "Unknown evaluator 'nonsense'. Use deterministic, threshold, llm or NAME"),
        ("deterministic,deterministic", "Each name must be unique"),
        (
            "llm=checks_of_a_user:open_tone",
            "Each name must be unique and consist of a-z, 0-9, - and _, not 'llm'",
        ),
        (
            "Bad Name=a:b",
            "Each name must be unique and consist of a-z, 0-9, - and _, not 'Bad Name'",
        ),
        ("x=no.such.module:open_it", "x=no.such.module:open_it: No module named 'no'"),
        ("x=checks_of_a_user:nothing", "has no attribute 'nothing'"),
        ("x=checks_of_a_user:number", "x=checks_of_a_user:number is not callable"),
        ("x=checks_of_a_user", "x=checks_of_a_user: "),
        ("x=:", "x=:: Empty module name"),
        ("llm", "llm, which needs a model"),
    ],
)
def test_invalid_setting_is_reported_at_start(
    own_module: str, evaluators: str, said_of_it: str
) -> None:
    with pytest.raises(ConfigurationError) as error:
        check_settings(listing(evaluators))
    message = str(error.value)
    assert message.startswith("HANSEI_EVALUATORS")
    assert said_of_it in message
    assert "\n" not in message


def test_valid_settings_pass(own_module: str) -> None:
    check_settings(settings())
    check_settings(settings(evaluators=f"llm,tone={own_module}:open_tone", llm_provider="bedrock"))
    assert open_evaluators(listing(""), None) == []
