"""What a ground truth expects, and how the client declared to compare it (`match`)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal, cast, get_args

from typing_extensions import TypeAliasType

from memory_api.text.excerpts import excerpt
from memory_api.text.numbers import parse_number

Match = TypeAliasType("Match", Literal["exact", "number", "contains", "calls"])
"""How to compare the run with the ground truth.

`exact`: the answer is equal, apart from Unicode form (NFKC), case, white space and punctuation at
the end. `number`: it states the number, in any notation, with the same or no unit. `contains`: it
contains the expected text, in the form of `exact`. `calls`: each of the expected calls was made
with its arguments.
"""
MATCHES: tuple[str, ...] = get_args(Match.__value__)
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
    values = cast("list[Any]", ground_truth) if is_list and ground_truth else [ground_truth]
    scalars = [v for v in values if isinstance(v, str | int | float) and not isinstance(v, bool)]
    return (
        [str(v).strip() for v in scalars if str(v).strip()] if len(scalars) == len(values) else []
    )


def declared_match(ground_truth: Any) -> Match | None:
    """The `match` of a stored ground truth."""
    fields = cast("dict[str, Any]", ground_truth) if isinstance(ground_truth, dict) else {}
    match = fields.get("match")
    return cast(Match, match) if match in MATCHES else None


def with_match(ground_truth: Any, match: Match | None) -> Any:
    """The ground truth with `match` as one of its fields, as it is stored. Raises `ValueError` for
    a `match` that is unknown or does not fit.
    """
    fields = cast("dict[str, Any]", ground_truth) if isinstance(ground_truth, dict) else None
    is_expectation = fields is not None and (
        bool(expected_answers(fields)) or isinstance(fields.get("actions"), list)
    )
    stated = fields.get("match") if fields is not None and is_expectation else None
    if stated is not None and stated not in MATCHES:
        raise ValueError(f"`match` must be one of {', '.join(MATCHES)}, not {_show(stated)}.")
    if match is not None and stated not in (None, match):
        raise ValueError(f"`match` is '{match}' and '{stated}' in `ground_truth`. State one.")
    chosen = match or stated
    if chosen is None:
        return ground_truth
    _require_fit(ground_truth, chosen)
    return {**(fields if fields is not None else {"answer": ground_truth}), "match": chosen}


def _require_fit(ground_truth: Any, match: str) -> None:
    if match == "calls":
        fields = cast("dict[str, Any]", ground_truth) if isinstance(ground_truth, dict) else {}
        actions = fields.get("actions")
        if not isinstance(actions, list) or not actions:
            shown = _show(ground_truth)
            raise ValueError(f"`match` is 'calls', but `ground_truth` has no `actions`: {shown}.")
        return
    answers = expected_answers(ground_truth)
    if not answers:
        shown = _show(ground_truth)
        raise ValueError(f"`match` is '{match}', but `ground_truth` states no answer: {shown}.")
    for answer in answers:
        if match == "number" and parse_number(answer) is None:
            raise ValueError(
                f"`match` is 'number', but the expected answer {_show(answer)} is not a number."
            )


def _show(value: Any) -> str:
    return repr(excerpt(value, 80)) if isinstance(value, str) else excerpt(repr(value), 80)
