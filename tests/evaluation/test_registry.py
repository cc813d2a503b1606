"""Evaluators by name, one's own included."""

from __future__ import annotations

from pathlib import Path

import pytest

from apps.memory_api.core.errors import Misconfigured
from apps.memory_api.core.settings import Settings
from apps.memory_api.evaluation.evaluate import evaluate
from apps.memory_api.evaluation.registry import check, open_evaluators
from apps.memory_api.evaluation.schemas import Criterion
from apps.memory_api.evaluation.threshold import Thresholds
from tests.evaluation.conftest import case, said
from tests.evaluation.test_threshold import settings

OWN = """
from apps.memory_api.evaluation.schemas import Criterion, Found, Score

class Tone:
    def __init__(self, word):
        self.word = word

    async def evaluate(self, case):
        friendly = any(self.word in case.run.text(at) for at in case.run.said)
        return Found((Score(Criterion.HELPFULNESS, float(friendly), (f"it says {self.word}",)),))

def open_tone(settings, llm):
    return Tone("please")

def open_wrong(settings, llm):
    class Wrong:
        async def evaluate(self, case):
            return Found((Score(Criterion.SAFETY, 7, ()),))
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


def test_a_model_is_not_asked_unless_it_is_named() -> None:
    assert [name for name, _ in open_evaluators(settings(), None)] == ["deterministic", "threshold"]


async def test_an_evaluator_of_ones_own(own_module: str) -> None:
    opened = open_evaluators(listing(f"deterministic, tone={own_module}:open_tone"), None)
    found = await evaluate(case([said("Could you wait, please?")]), opened, Thresholds())
    assert list(found.found) == ["deterministic", "tone"]
    best = found.best(Criterion.HELPFULNESS)
    assert best is not None
    assert (best.score, best.reasons) == (1.0, ("it says please",))


async def test_a_score_out_of_range_is_an_error_and_not_stored(own_module: str) -> None:
    opened = open_evaluators(listing(f"x={own_module}:open_wrong"), None)
    with pytest.raises(ValueError, match="from 0 to 1, not 7"):
        await evaluate(case(), opened, Thresholds())


@pytest.mark.parametrize(
    ("evaluators", "said_of_it"),
    [
        ("nonsense", "unknown evaluator 'nonsense'; ours are deterministic, threshold, llm"),
        ("deterministic,deterministic", "'deterministic' is given twice"),
        ("llm=checks_of_a_user:open_tone", "'llm' is given twice, or is no name"),
        ("Bad Name=a:b", "'Bad Name' is given twice, or is no name"),
        ("x=no.such.module:open_it", "x=no.such.module:open_it: No module named 'no'"),
        ("x=checks_of_a_user:nothing", "has no attribute 'nothing'"),
        ("x=checks_of_a_user:number", "x=checks_of_a_user:number cannot be called"),
        ("x=checks_of_a_user", "x=checks_of_a_user: "),
        ("x=:", "x=:: Empty module name"),
        ("llm", "llm, which needs a model"),
    ],
)
def test_the_start_says_what_is_wrong(own_module: str, evaluators: str, said_of_it: str) -> None:
    with pytest.raises(Misconfigured) as error:
        check(listing(evaluators))
    message = str(error.value)
    assert message.startswith("HANSEI_EVALUATORS")
    assert said_of_it in message
    assert "\n" not in message


def test_good_settings_pass(own_module: str) -> None:
    check(settings())
    check(settings(evaluators=f"llm,tone={own_module}:open_tone", llm_provider="bedrock"))
    assert open_evaluators(listing(""), None) == []
