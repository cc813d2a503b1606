"""Settings of GRACE: `config/grace_config.yml`, overridden by `GRACE_<SECTION>_<NAME>` (S3.58–60).

Every value is read at run time; a test changes each one and sees a result change.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from functools import lru_cache
from pathlib import Path
from typing import Annotated, Any

import yaml
from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

from memory_api.core.errors import ConfigurationError, field_problem
from memory_api.core.resources import packaged_path

FILE_NAME = "grace_config.yml"
PREFIX = "GRACE_"
MAX_WEIGHT_ERROR = 0.01
MAX_WAIT_SECONDS = 31_536_000
"""A year. Without a limit, a time in the future may be later than a database can store."""
IN_DATABASE = (
    "Documents are in the database of the service: DATABASE_URL. The default collection is"
    " search.default_collection."
)
SET_ELSEWHERE = {
    "llm.model": "The model is that of the service: HANSEI_LLM_MODEL.",
    "document_store": IN_DATABASE,
    "qdrant": IN_DATABASE,
}
"""Settings of the document of GRACE that belong to the service, and where they are."""

Unit = Annotated[float, Field(ge=0, le=1)]


class _Section(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False)


class LLMSection(_Section):
    temperature: Annotated[float, Field(ge=0, le=2)] = 0.2
    max_tokens: Annotated[int, Field(ge=64)] = 2048
    light_model_judgments: bool = True


class PlannerSection(_Section):
    max_steps: Annotated[int, Field(ge=1, le=20)] = 20
    simple_below: Unit = 0
    confirm_above: Annotated[float, Field(ge=0)] = 1.01


class ExecutorSection(_Section):
    max_parallel: Annotated[int, Field(ge=1, le=16)] = 4
    step_timeout_seconds: Annotated[float, Field(gt=0, le=300)] = 30
    max_replans: Annotated[int, Field(ge=0, le=20)] = 3
    cooldown_seconds: Annotated[float, Field(ge=0, le=MAX_WAIT_SECONDS)] = 5
    max_tokens_per_run: Annotated[int, Field(ge=0)] = 200_000
    max_cost_usd_per_run: Annotated[float, Field(ge=0)] = 0.5
    warn_cost_share: Unit = 0.8
    react_max_iterations: Annotated[int, Field(ge=1, le=50)] = 8


class WeightSection(_Section):
    search_quality: Unit = 0.25
    source_agreement: Unit = 0.2
    self_evaluation: Unit = 0.25
    tool_success: Unit = 0.15
    query_coverage: Unit = 0.15

    @model_validator(mode="after")
    def _sum_to_one(self) -> WeightSection:
        total = sum(self.model_dump().values())
        if abs(total - 1) > MAX_WEIGHT_ERROR:
            raise ValueError(f"the weights must sum to 1, not {total:.3f}")
        return self


class SearchSection(_Section):
    top_k: Annotated[int, Field(ge=1, le=50)] = 5
    min_score: Unit = 0.2
    ask_back_below: Unit = 0.0
    default_collection: str = "wikipedia_ja"
    web_search_below: Unit = 0.7


class ThresholdSection(_Section):
    silent: Unit = 0.9
    notify: Unit = 0.7
    confirm: Unit = 0.4

    @model_validator(mode="after")
    def _ordered(self) -> ThresholdSection:
        if not self.silent >= self.notify >= self.confirm:
            raise ValueError("must be in the order silent ≥ notify ≥ confirm")
        return self


class InterventionSection(_Section):
    interactive: bool = True
    timeout_seconds: Annotated[float, Field(ge=0, le=MAX_WAIT_SECONDS)] = 300
    auto_proceed_on_timeout: bool = False
    max_rounds: Annotated[int, Field(ge=0)] = 3


class ReplanSection(_Section):
    confidence_threshold: Unit = 0.4
    confirm_all: bool = False


class WebSearchSection(_Section):
    url: str = ""


class GraceConfig(_Section):
    """All settings of GRACE."""

    llm: LLMSection = LLMSection()
    planner: PlannerSection = PlannerSection()
    executor: ExecutorSection = ExecutorSection()
    confidence_weights: WeightSection = WeightSection()
    search: SearchSection = SearchSection()
    thresholds: ThresholdSection = ThresholdSection()
    intervention: InterventionSection = InterventionSection()
    replan: ReplanSection = ReplanSection()
    web_search: WebSearchSection = WebSearchSection()


def read_config(path: Path, environment: Mapping[str, str]) -> GraceConfig:
    """The settings of a file and of the environment. Raises one `ConfigurationError` with all
    problems.
    """
    try:
        values: dict[str, Any] = yaml.safe_load(path.read_text(encoding="utf-8")) or {}
    except (OSError, yaml.YAMLError) as error:
        raise ConfigurationError(f"{path} cannot be read: {error}") from error
    sections = sorted(GraceConfig.model_fields, key=len, reverse=True)
    problems: list[str] = []
    for variable, text in environment.items():
        if not variable.startswith(PREFIX) or variable == "GRACE_CONFIG":
            continue
        name = variable.removeprefix(PREFIX).lower()
        section = next((each for each in sections if name.startswith(f"{each}_")), None)
        elsewhere = next((each for each in SET_ELSEWHERE if name.startswith(each)), None)
        if section is not None:
            values.setdefault(section, {})[name.removeprefix(f"{section}_")] = text
        elif elsewhere is not None:
            problems.append(f"{variable} has no effect. {SET_ELSEWHERE[elsewhere]}")
        else:
            problems.append(
                f"{variable} has no effect. Its name must be GRACE_<SECTION>_<NAME> with a section "
                f"of {FILE_NAME}: {', '.join(sorted(sections))}."
            )
    try:
        config = GraceConfig.model_validate(values)
    except ValidationError as error:
        fields = [field_problem(each) for each in error.errors()]
        problems += [
            f"GRACE setting {place}: {SET_ELSEWHERE.get(place, message)}"
            for place, message in fields
        ]
        raise ConfigurationError(" ".join(problems)) from error
    if problems:
        raise ConfigurationError(" ".join(problems))
    return config


@lru_cache(1)
def load_config() -> GraceConfig:
    """The settings of this process: those of `GRACE_CONFIG` if it names a file, otherwise the
    packaged ones. Raises `ConfigurationError`.
    """
    named = os.environ.get("GRACE_CONFIG")
    path = Path(named) if named else packaged_path("config") / FILE_NAME
    return read_config(path, os.environ)
