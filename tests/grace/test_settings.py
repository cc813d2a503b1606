"""Each setting of `config/grace_config.yml` has an effect: here without a run, or in a test of runs
that is named here.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from memory_api.commands.api_processes import check_settings
from memory_api.core.errors import ConfigurationError
from memory_api.core.resources import packaged_path
from memory_api.core.settings import Settings
from memory_api.grace.agent_model import RunOverLimit, RunUsage
from memory_api.grace.confidence import (
    ConfidenceFactors,
    decide,
    score_step,
)
from memory_api.grace.config import GraceConfig, load_config, read_config
from memory_api.grace.execution_plan import ExecutionPlan, ExecutionState, PlanStep
from memory_api.grace.planner import PlanningContext, template_plan
from memory_api.grace.replanning import ReplanContext, choose_strategy
from memory_api.grace.tools.port import Source
from memory_api.grace.tools.rag_search import select_sources
from tests.grace import test_agent_runs, test_settings_in_runs
from tests.grace import test_needless_questions as needless
from tests.support.cases import each_case

FILE = packaged_path("config") / "grace_config.yml"


def _over_limit(config: GraceConfig, tokens: int, usd: float) -> bool:
    try:
        RunUsage(tokens, usd).check(config)
    except RunOverLimit:
        return True
    return False


def _strategy(config: GraceConfig, trigger: str, step_id: int, replans: int = 0) -> str:
    steps = [PlanStep(step_id=n, action="reasoning", description="-") for n in (1, 2, 3, 4)]
    state = ExecutionState(ExecutionPlan(original_query="q", steps=steps))
    state.states |= {1: "success", 2: "success"}
    why = ReplanContext(trigger, step_id)  # type: ignore[arg-type]
    return choose_strategy(why, state, replans, config)


def _sources(config: GraceConfig) -> list[float]:
    found = [Source(f"s{n}", "", score) for n, score in enumerate((0.995, 0.7, 0.5, 0.3))]
    return [source.score for source in select_sources(found, config)]


def _plan(config: GraceConfig) -> ExecutionPlan:
    context = PlanningContext("q", config, {}, [("wikipedia_ja", ""), ("other", "")])
    return template_plan(context, 0.5)


ANSWER = ConfidenceFactors(2, 0.5, 0.7, 0.1, 0.6, 2, 0.9, 1.0, 0.8)

Result = Callable[[GraceConfig], Any]
WITHOUT_A_RUN: dict[str, tuple[str, Result]] = {
    "planner.confirm_above": ("0.4", lambda c: _plan(c).requires_confirmation),
    "executor.max_replans": ("1", lambda c: _strategy(c, "step_failed", 3, replans=1)),
    "executor.max_tokens_per_run": ("100", lambda c: _over_limit(c, 100, 0)),
    "executor.max_cost_usd_per_run": ("0.1", lambda c: _over_limit(c, 0, 0.1)),
    "search.top_k": ("1", _sources),
    "search.min_score": ("0.6", _sources),
    "search.default_collection": ("other", lambda c: _plan(c).steps[0].collection),
    "thresholds.silent": ("0.95", lambda c: decide(0.92, c.thresholds)),
    "thresholds.notify": ("0.5", lambda c: decide(0.6, c.thresholds)),
    "thresholds.confirm": ("0.1", lambda c: decide(0.3, c.thresholds)),
}  # fmt: skip
"""Setting → another value, and a result that depends on it."""

WEIGHTS = {f"confidence_weights.{name}" for name in GraceConfig().confidence_weights.model_dump()}

IN_RUNS = {
    "llm.temperature": test_settings_in_runs.test_settings_of_the_model_are_sent,
    "llm.max_tokens": test_settings_in_runs.test_settings_of_the_model_are_sent,
    "llm.light_model_judgments": test_settings_in_runs.test_rules_judge_instead_of_the_model,
    "planner.max_steps": test_settings_in_runs.test_limit_of_steps,
    "planner.simple_below": test_settings_in_runs.test_model_plans_from_the_complexity_that_is_set,
    "executor.max_parallel": test_settings_in_runs.test_parallel_steps,
    "executor.step_timeout_seconds": test_settings_in_runs.test_timeout_of_a_step,
    "executor.cooldown_seconds": test_settings_in_runs.test_second_replan_waits_for_the_cooldown,
    "executor.warn_cost_share": test_settings_in_runs.test_warning_before_the_limit,
    "executor.react_max_iterations": test_settings_in_runs.test_loop_ends_after_its_iterations,
    "search.web_search_below": test_settings_in_runs.test_web_search_is_added_to_a_weak_search,
    "web_search.url": test_settings_in_runs.test_web_search_is_added_to_a_weak_search,
    "intervention.interactive": test_settings_in_runs.test_doubt_asks_only_if_interactive,
    "intervention.timeout_seconds": test_agent_runs.test_waiting_run_holds_nothing_and_times_out,
    "intervention.auto_proceed_on_timeout": test_settings_in_runs.test_timeout_may_proceed,
    "intervention.max_rounds": test_agent_runs.test_nothing_found_is_not_guessed,
    "replan.confidence_threshold": test_settings_in_runs.test_weak_search_is_replaced,
    "replan.confirm_all": needless.test_new_plan_that_may_change_things_is_confirmed,
    "search.ask_back_below": needless.test_search_of_middle_confidence_is_read_first,
}
"""Setting → the test of runs that changes it."""


@each_case("setting", WITHOUT_A_RUN)
def test_setting_changes_a_result(setting: str) -> None:
    value, result = WITHOUT_A_RUN[setting]
    section, name = setting.split(".")
    variable = f"GRACE_{section}_{name}".upper()
    assert result(read_config(FILE, {variable: value})) != result(GraceConfig())


def test_each_weight_changes_a_result() -> None:
    for name in GraceConfig().confidence_weights.model_dump():
        values = dict.fromkeys(GraceConfig().confidence_weights.model_dump(), 0.1) | {name: 0.6}
        environment = {f"GRACE_CONFIDENCE_WEIGHTS_{k.upper()}": str(v) for k, v in values.items()}
        changed = read_config(FILE, environment)
        assert score_step(ANSWER, changed).score != score_step(ANSWER, GraceConfig()).score


def test_no_setting_is_without_a_test() -> None:
    settings = {
        f"{section}.{name}"
        for section, values in GraceConfig().model_dump().items()
        for name in values
    }
    assert settings == {*WITHOUT_A_RUN, *WEIGHTS, *IN_RUNS}


def test_wrong_setting_stops_before_any_process_starts(monkeypatch: pytest.MonkeyPatch) -> None:
    """`hansei up` and `hansei serve --processes` would restart a process that ends at once."""
    settings = Settings(_env_file=None)  # type: ignore[call-arg]
    load_config.cache_clear()
    monkeypatch.setenv("GRACE_THRESHOLDS_CONFIRM", "2")
    with pytest.raises(ConfigurationError, match=r"thresholds\.confirm"):
        check_settings(settings)
    monkeypatch.setenv("GRACE_THRESHOLDS_CONFIRM", "0.5")
    check_settings(settings)
    load_config.cache_clear()
