"""The model's answer, and how far it is trusted.

Parsing is lenient about forms: lists as text, the field names of spec 5. A score that is no number
from 0 to 1 makes the answer invalid, so that the model is asked again. Validation is strict,
because the author of a trace may have put instructions into it: the answer is compared with what
the model was shown. No I/O.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Mapping
from functools import cache
from typing import Any, Literal, Self, TypeVar, cast, get_args
from uuid import UUID

from pydantic import (
    BaseModel,
    Field,
    ValidationError,
    create_model,
    field_validator,
    model_validator,
)

from memory_api.core.secret_redaction import redact
from memory_api.core.telemetry import get_logger
from memory_api.llm.structured_output import clean_words, to_list
from memory_api.playbooks.citations import resolve_citations
from memory_api.playbooks.models import VerdictTag
from memory_api.reflection.schemas import CauseKind
from memory_api.text.readings import readings_of
from memory_api.traces.schemas import OutcomeType

log = get_logger(__name__)

M = TypeVar("M", bound=BaseModel)

MAX_RULES = 3
MAX_SOURCE_EVENTS = 5
_CONDITION_START = re.compile(r"(?:when|whenever|before|after|if|while|for|once|unless|in)\b", re.I)
_EMPTY_WORDS = frozenset({"", "null", "none", "n/a"})


class ModelVerdict(BaseModel):
    """A model's verdict on one bullet that the run used."""

    key: str
    tag: VerdictTag
    reason: str

    @field_validator("key", mode="before")
    @classmethod
    def _strip_brackets(cls, value: Any) -> Any:
        return value.strip(" []\"'") if isinstance(value, str) else value

    @field_validator("tag", mode="before")
    @classmethod
    def _lowercase(cls, value: Any) -> Any:
        return value.strip().lower() if isinstance(value, str) else value


def valid_items(model: type[M], value: Any, *, log_event: str = "") -> list[M]:
    """The valid items of a list; another value is a list of one, and null an empty one. An invalid
    item does not affect the others; `log_event` is logged with their number.
    """
    items: list[M] = []
    given = cast("list[Any]", value if isinstance(value, list) else [value] if value else [])
    for item in given:
        try:
            items.append(model.model_validate(item))
        except ValidationError:
            continue
    if log_event and len(items) < len(given):
        log.warning(log_event, count=len(given) - len(items))
    return items


Remedy = Literal["shown", "inferred"]
"""Whether a run shows that a rule works, or nobody has tried it."""
REMEDIES = "remedies"
"""Key of a reflection's metadata: rule → its `Remedy`. A strategy has its own as `remedy`."""
ACTIONS = "actions"
"""Key of a reflection's metadata: rule → what to do, without the condition."""


class ReflectionRule(BaseModel):
    """A rule for later runs."""

    when: str = Field("", description="A clause: When …, Before …")
    do: str = Field(min_length=1, description="An imperative")
    remedy: Remedy = "inferred"

    @field_validator("remedy", mode="before")
    @classmethod
    def _known_remedy(cls, value: Any) -> Any:
        return value if value in get_args(Remedy) else "inferred"

    @field_validator("when", "do", mode="before")
    @classmethod
    def _strip(cls, value: Any) -> Any:
        return ("" if value is None else value).strip() if isinstance(value, str | None) else value

    def to_sentence(self, names: Collection[str] = ()) -> str:
        """Both parts as one sentence. A first word of `do` that is one of the `names` keeps its
        case.
        """
        when = self.when.rstrip(" ,.、。")
        do = self.do if self.do[-1] in ".!?。！？…" else f"{self.do}{_full_stop(self.do)}"
        if not when:
            return do
        if _full_stop(when) == "。":
            return f"{when}、{do}"
        if not _CONDITION_START.match(when):
            when = f"When {when}"
        is_name = re.split(r"\W", do, maxsplit=1)[0] in names
        keeps_case = is_name or do[1:2].isupper() or not do[:1].isupper()
        do = do if keeps_case else do[0].lower() + do[1:]
        return f"{when[0].upper()}{when[1:]}, {do}"


CAUSES_WITHOUT_RULES: frozenset[CauseKind] = frozenset(
    {"outside_agent_control", "expected_result_conflicts_with_policy"}
)
"""Causes from which no rule for agents follows. From luck one follows: what not to rely on."""


class ModelReflection(BaseModel):
    """One reflection as a model writes it."""

    # The docstring is part of the schema that the model gets. The prompts describe the fields.
    # An answer without a reflection is valid for its verdicts.

    root_cause: str = ""
    explanation: str = ""
    cause_kind: CauseKind = "unknown"
    second_cause_kind: CauseKind | None = None
    rules: list[ReflectionRule] = Field(default_factory=list[ReflectionRule], max_length=MAX_RULES)
    task_hint: str | None = None
    same_as: list[str] = Field(default_factory=list)
    importance: float = Field(0.5, ge=0, le=1)
    confidence: float = Field(0.5, ge=0, le=1)
    tags: list[str] = Field(default_factory=list)
    source_event_ids: list[str] = Field(default_factory=list)
    verdicts: list[ModelVerdict] = Field(default_factory=list[ModelVerdict])

    @model_validator(mode="before")
    @classmethod
    def _accept_documented_fields(cls, value: Any) -> Any:
        """Those of spec 5: `reflection` for the explanation, `strategy` for one rule."""
        if not isinstance(value, dict):
            return value
        fields = dict(cast("dict[str, Any]", value))
        reflection = fields.pop("reflection", None)
        if reflection is not None and not fields.get("explanation"):
            fields["explanation"] = reflection
        strategy = fields.pop("strategy", None)
        if strategy and not fields.get("rules"):
            fields["rules"] = [strategy]
        return fields

    @model_validator(mode="after")
    def _require_text_or_verdicts(self) -> Self:
        if not self.verdicts and (problem := self.missing_text()):
            raise ValueError(problem)
        return self

    def missing_text(self) -> str:
        """What is missing, as a sentence; "" if there is a reflection."""
        return "" if self.reflection else "`root_cause` and `explanation` are empty."

    @property
    def reflection(self) -> str:
        parts = (self.root_cause, self.explanation)
        return " ".join(part for part in dict.fromkeys(parts) if part)

    @property
    def may_have_rules(self) -> bool:
        """Whether one of the causes depends on the agent, or is unknown."""
        causes = {self.cause_kind, self.second_cause_kind} - {None}
        return bool(causes - CAUSES_WITHOUT_RULES)

    @field_validator("root_cause", "explanation", mode="before")
    @classmethod
    def _strip(cls, value: Any) -> Any:
        return value.strip() if isinstance(value, str) else value

    @field_validator("task_hint", mode="before")
    @classmethod
    def _none_if_empty(cls, value: Any) -> Any:
        if not isinstance(value, str):
            return value
        return None if value.strip().casefold() in _EMPTY_WORDS else value.strip()

    @field_validator("rules", mode="before")
    @classmethod
    def _clean_rules(cls, value: Any) -> Any:
        """Without malformed rules. A text is a rule without a condition; a value that is no list
        is a list of one.
        """
        given = cast("list[Any]", value if isinstance(value, list) else [value] if value else [])
        rules = [{"do": rule} if isinstance(rule, str) else rule for rule in given]
        filled = [rule for rule in rules if not _is_empty_rule(rule)]
        return valid_items(ReflectionRule, filled, log_event="rules_malformed")[:MAX_RULES]

    @field_validator("cause_kind", mode="before")
    @classmethod
    def _known_cause(cls, value: Any) -> Any:
        return "unknown" if value is None else value

    @field_validator("verdicts", mode="before")
    @classmethod
    def _valid_verdicts(cls, value: Any) -> list[ModelVerdict]:
        return valid_items(ModelVerdict, value, log_event="verdicts_malformed")

    @field_validator("importance", "confidence", mode="before")
    @classmethod
    def _only_numbers(cls, value: Any) -> Any:
        if isinstance(value, bool):
            raise ValueError("must be a number from 0 to 1")
        return value

    @field_validator("tags", mode="before")
    @classmethod
    def _clean_tags(cls, value: Any) -> list[str]:
        return clean_words(value)

    @field_validator("source_event_ids", "same_as", mode="before")
    @classmethod
    def _clean_ids(cls, value: Any) -> list[str]:
        return list(dict.fromkeys(item.strip(" []\"'") for item in to_list(value)))


class SharedReflection(BaseModel):
    """What a model answered about one run among several. `prompt_hash` is that of the batch."""

    answer: ModelReflection
    confirmed_lessons: list[UUID]
    model: str
    prompt_hash: str


_SUCCESS_CAUSES: frozenset[CauseKind] = frozenset({"agent_decision", "succeeded_by_luck"})
_IMPOSSIBLE_CAUSES: Mapping[OutcomeType, frozenset[CauseKind]] = {
    OutcomeType.FAILURE: _SUCCESS_CAUSES,
    OutcomeType.ERROR: _SUCCESS_CAUSES,
    OutcomeType.TIMEOUT: _SUCCESS_CAUSES,
    OutcomeType.SUCCESS: frozenset({"agent_mistake"}),
}


@cache
def reflection_class(outcome: OutcomeType) -> type[ModelReflection]:
    """`ModelReflection` with the causes that a run with this outcome can have."""
    impossible = _IMPOSSIBLE_CAUSES.get(outcome, frozenset())
    kind: Any = Literal[tuple(k for k in get_args(CauseKind) if k not in impossible)]
    fields: dict[str, Any] = {
        "cause_kind": (kind, "unknown"),
        "second_cause_kind": (kind | None, None),
    }
    return create_model(
        "ModelReflection", __base__=ModelReflection, __doc__=ModelReflection.__doc__, **fields
    )


def _is_empty_rule(rule: Any) -> bool:
    text: Any = cast("dict[str, Any]", rule).get("do") if isinstance(rule, dict) else None
    return isinstance(text, str) and text.strip().casefold() in _EMPTY_WORDS


def _full_stop(text: str) -> str:
    """The full stop of the text's script."""
    return "。" if "\u3040" <= text[-1] <= "\u9fff" else "."


def quotations_of_input(texts: Iterable[str], shown: str) -> list[str]:
    """The texts that are a literal part of what the model was shown, however it is written. Then
    the author of the trace wrote them, not the model.
    """
    normalized = _normalize_readings(shown)
    return [text for text in texts if _normalize(text) in normalized]


def _normalize_readings(text: str) -> str:
    return "\n".join(map(_normalize, dict.fromkeys(readings_of([text]))))


_QUOTATION_MARKS = str.maketrans("", "", "\"'“”‘’`「」『』")


def _normalize(text: str) -> str:
    """The words in lower case. A copy in quotation marks is a copy."""
    # JSON escapes the two halves of a surrogate pair separately; this joins them.
    whole = text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
    return " ".join(whole.translate(_QUOTATION_MARKS).casefold().split())


def validate_verdicts(
    verdicts: Iterable[ModelVerdict], keys: Collection[str], shown: str
) -> list[ModelVerdict]:
    """The valid verdicts, redacted: one per bullet, only on bullets with these keys, and with a
    reason that is not copied from what the model was shown. Contradicting verdicts on a bullet are
    dropped.
    """
    verdicts = list(verdicts)
    if not verdicts:
        return []
    key_of = resolve_citations((verdict.key for verdict in verdicts), keys)
    normalized = _normalize_readings(shown)
    valid: dict[str, ModelVerdict] = {}
    contradicted: set[str] = set()
    for verdict in verdicts:
        key = key_of.get(verdict.key)
        if key is None or _normalize(verdict.reason) in normalized:
            log.warning("verdict_not_counted", key=verdict.key, known=key is not None)
            continue
        first = valid.setdefault(key, verdict)
        if first.tag != verdict.tag:
            contradicted.add(key)
    return [
        ModelVerdict(key=key, tag=verdict.tag, reason=redact(verdict.reason).text)
        for key, verdict in valid.items()
        if key not in contradicted
    ]
