"""What a ground truth expects, and how the client declared to compare it (`match`)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar, Literal, Self, cast, get_args

from pydantic import Field, ValidationInfo, field_validator, model_validator
from typing_extensions import TypeAliasType

from memory_api.core.schemas import TenantRequest
from memory_api.text.excerpts import excerpt
from memory_api.text.numbers import has_known_unit, parse_number

MatchRule = TypeAliasType("MatchRule", Literal["exact", "number", "contains", "calls"])
MATCH_RULES: tuple[str, ...] = get_args(MatchRule.__value__)
MATCH_DESCRIPTION = (
    "How to compare the run with `ground_truth`. `exact`: the answer is equal, apart from Unicode"
    " form (NFKC), case, white space and punctuation at its end. `contains`: it contains the"
    " expected text, in the same form and not inside a word. `number`: it states the number in"
    " digits, in any notation, rounded to the expected decimals, with the same or no unit."
    " `calls`: all `actions` were called with these arguments. Without `match`, an answer of"
    " another form is undecided."
)
MAX_ACCEPTED_ANSWERS = 1_000
"""Each is compared with the whole answer of the run."""
ANSWER_FIELDS = ("answer", "expected", "expected_answer", "gold", "target", "answers")


def expected_answers(ground_truth: Any) -> list[str]:
    """The accepted answers: a text or number, a list of them, or a mapping with a field for it. []
    for other shapes.
    """
    if isinstance(ground_truth, Mapping):
        mapping = cast("Mapping[str, Any]", ground_truth)
        named = (expected_answers(mapping.get(name)) for name in ANSWER_FIELDS)
        return next(filter(None, named), list[str]())
    is_list = isinstance(ground_truth, list | tuple)
    values: list[Any] = [*cast("list[Any]", ground_truth)] if is_list else [ground_truth]
    scalars = [v for v in values if isinstance(v, str | int | float) and not isinstance(v, bool)]
    if len(scalars) < len(values):
        return []
    return [text for text in (str(value).strip() for value in scalars) if text]


def declared_match(ground_truth: Any) -> MatchRule | None:
    match = _fields(ground_truth).get("match")
    return cast(MatchRule, match) if match in MATCH_RULES else None


def with_match(ground_truth: Any, match: MatchRule | None) -> Any:
    """The ground truth with `match` as one of its fields, as it is stored. Raises `ValueError` for
    a `match` that is unknown or does not fit, and for too many accepted answers.
    """
    if (count := len(expected_answers(ground_truth))) > MAX_ACCEPTED_ANSWERS:
        raise ValueError(
            f"`ground_truth` has {count:,} accepted answers. Send at most {MAX_ACCEPTED_ANSWERS:,}."
        )
    fields = _fields(ground_truth)
    is_expectation = bool(expected_answers(fields)) or isinstance(fields.get("actions"), list)
    stated = fields.get("match") if is_expectation else None
    if stated is not None and stated not in MATCH_RULES:
        raise ValueError(f"`match` must be one of {', '.join(MATCH_RULES)}, not {_show(stated)}.")
    if match is not None and stated not in (None, match):
        raise ValueError(f"`match` is '{match}' and '{stated}' in `ground_truth`. State one.")
    chosen = match or stated
    if chosen is None:
        return ground_truth
    _require_fit(ground_truth, chosen)
    return {**(fields or {"answer": ground_truth}), "match": chosen}


def _fields(ground_truth: Any) -> dict[str, Any]:
    return cast("dict[str, Any]", ground_truth) if isinstance(ground_truth, dict) else {}


def _require_fit(ground_truth: Any, match: str) -> None:
    if match == "calls":
        if not _states_actions(_fields(ground_truth).get("actions")):
            raise ValueError(
                "`match` is 'calls', but `ground_truth` has no `actions` with a `name`:"
                f" {_show(ground_truth)}."
            )
        return
    answers = expected_answers(ground_truth)
    if not answers:
        shown = _show(ground_truth)
        raise ValueError(f"`match` is '{match}', but `ground_truth` states no answer: {shown}.")
    for answer in answers if match == "number" else ():
        number = parse_number(answer)
        if number is None:
            raise ValueError(
                f"`match` is 'number', but the expected answer {_show(answer)} is not a number."
            )
        if not has_known_unit(number):
            raise ValueError(
                f"`match` is 'number', but the unit of the expected answer {_show(answer)} is not"
                " known. Leave it out."
            )


def _states_actions(actions: Any) -> bool:
    if not isinstance(actions, list):
        return False
    items = cast("list[Any]", actions)
    return bool(items) and all(isinstance(_fields(i).get("name", i), str) for i in items)


def _show(value: Any) -> str:
    return repr(excerpt(value, 80)) if isinstance(value, str) else excerpt(repr(value), 80)


class ExpectationRequest(TenantRequest):
    """A request with what is correct, and how to compare the run with it."""

    NEEDS_GROUND_TRUTH: ClassVar[bool] = True
    """Whether `match` is about the ground truth of this request."""

    ground_truth: Any = Field(
        default=None,
        description="What is correct: an answer, a list of accepted answers, or `{answer, actions, "
        "outputs}`. `match` is stored in it.",
    )
    match: MatchRule | None = Field(default=None, description=MATCH_DESCRIPTION)

    @field_validator("ground_truth")
    @classmethod
    def _check_ground_truth(cls, ground_truth: Any) -> Any:
        return with_match(ground_truth, None)

    @field_validator("match")
    @classmethod
    def _check_match(cls, match: MatchRule | None, info: ValidationInfo) -> MatchRule | None:
        ground_truth = info.data.get("ground_truth")
        if ground_truth is not None or cls.NEEDS_GROUND_TRUTH:
            with_match(ground_truth, match)
        return match

    @model_validator(mode="after")
    def _store_match(self) -> Self:
        if self.ground_truth is not None:
            self.ground_truth = with_match(self.ground_truth, self.match)
        return self
