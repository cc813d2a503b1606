"""Base wire models, bounded types and OpenAPI examples."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime
from functools import cache
from typing import Annotated, Any, Generic, Self, TypeVar, cast, get_args

from pydantic import AfterValidator, AliasChoices, BaseModel, ConfigDict, Field, StringConstraints
from pydantic_core import PydanticKnownError
from typing_extensions import TypeAliasType

from memory_api.core.errors import InvalidRequest

MAX_NAME_LENGTH = 128
MAX_TAGS = 64
MAX_EVENTS = 20_000
MAX_FIELDS = 1_000
"""Fields of a body, or of an object in one of its lists. No model has nearly as many."""
MIN_FLOAT32 = 1.2e-38
"""The smallest positive number that a 4-byte float holds in full precision."""


def _to_utc(value: datetime) -> datetime:
    """Convert to UTC. A time without a zone is read as UTC."""
    try:
        return value.replace(tzinfo=UTC) if value.tzinfo is None else value.astimezone(UTC)
    except OverflowError:
        raise ValueError("must be between year 1 and year 9999 in UTC") from None


def _to_float32_range(value: float) -> float:
    """Round a number that is too small for a 4-byte float to 0. Scores are stored as 4-byte floats,
    and PostgreSQL refuses smaller numbers.
    """
    return value if value >= MIN_FLOAT32 else 0.0


def _refuse_blank(value: str) -> str:
    if not value.strip():
        raise PydanticKnownError("string_too_short", {"min_length": 1})
    return value


NotBlank = AfterValidator(_refuse_blank)
"""A text that is not only white space."""


def is_playbook_name(name: str) -> bool:
    """Whether `name` can be used in a URL path: printable, no slash, no surrounding spaces."""
    is_path_segment = name.isprintable() and name.strip() == name and "/" not in name
    return is_path_segment and len(name) <= MAX_NAME_LENGTH and name not in ("", ".", "..")


def _validate_playbook_name(name: str) -> str:
    if not is_playbook_name(name):
        raise ValueError(
            "must be a playbook name: printable, without slashes and surrounding spaces"
        )
    return name


Name = Annotated[str, StringConstraints(min_length=1, max_length=MAX_NAME_LENGTH)]
PlaybookName = Annotated[Name, AfterValidator(_validate_playbook_name)]
ProjectId = Annotated[Name | None, Field(validation_alias=AliasChoices("project_id", "project"))]
"""The project of a request; `project` is accepted too."""
PlaybookField = Annotated[
    PlaybookName | None, Field(validation_alias=AliasChoices("playbook", "dataset"))
]
"""The playbook of a request; `dataset` is accepted too."""


def fold_tags(tags: Iterable[str]) -> list[str]:
    """The tags in lower case, each once. Memories are stored and found by folded tags."""
    return list(dict.fromkeys(tag.lower() for tag in tags))


Word = Annotated[str, StringConstraints(min_length=1, max_length=64)]
Words = Annotated[list[Word], Field(max_length=MAX_TAGS)]
Tags = Annotated[Words, AfterValidator(fold_tags)]
"""Read in any case, returned in lower case."""
UnitFloat = Annotated[
    float, Field(ge=0.0, le=1.0, allow_inf_nan=False), AfterValidator(_to_float32_range)
]
"""A number from 0 to 1, inclusive. Never NaN."""
UtcDatetime = Annotated[datetime, AfterValidator(_to_utc)]
Metadata = dict[str, Any]
RowMetadata = Annotated[Metadata, Field(validation_alias=AliasChoices("metadata_", "metadata"))]
"""Metadata of a response; rows call the column `metadata_`."""


class ResponseModel(BaseModel):
    """A response body. Unknown fields raise an error, because only our own code sets them."""

    model_config = ConfigDict(extra="forbid", populate_by_name=True)

    @classmethod
    def from_row(cls, row: object) -> Self:
        """The response with the attributes of a row that have the names of its fields."""
        return cls.model_validate(row, from_attributes=True)


class RequestModel(BaseModel):
    """A request body. An unknown field is an error that names the field."""

    model_config = ConfigDict(extra="forbid", populate_by_name=True, str_strip_whitespace=False)


def check_field_counts(body: Any, model: type[BaseModel]) -> None:
    """Raises `InvalidRequest` if the body, or an object in one of its lists, has too many fields.
    Validation would make an error of each unknown one, which takes seconds and gigabytes for a
    million.
    """
    if model.model_config.get("extra") != "forbid" or not isinstance(body, dict):
        return
    fields = cast("dict[str, Any]", body)
    if len(fields) > MAX_FIELDS:
        raise InvalidRequest(
            f"The body has {len(fields):,} fields. It may contain: {documented_names(model)}.",
            field="body",
        )
    for name, value in fields.items():
        items = cast("list[Any]", value) if isinstance(value, list) else []
        for index, item in enumerate(items):
            if isinstance(item, dict) and len(cast("dict[str, Any]", item)) > MAX_FIELDS:
                raise InvalidRequest(
                    f"An object can have at most {MAX_FIELDS:,} fields here.",
                    field=f"{name}.{index}",
                )


@cache
def documented_names(model: type[BaseModel]) -> str:
    """The names that a body may have, as documented."""
    return ", ".join(sorted(model.model_json_schema().get("properties", {})))


def accepted_names(model: type[BaseModel]) -> frozenset[str]:
    """The names that an object of this model may have, with aliases."""
    return frozenset(each for name in model.model_fields for each in _names_of(model, name))


def model_at(model: type[BaseModel], path: Sequence[str | int]) -> type[BaseModel] | None:
    """The model of the object at a path of a body of this model; None if it is not one model."""
    found = model
    for part in path:
        if isinstance(part, int):
            continue  # an item of the list that the part before has named
        named = (name for name in found.model_fields if part in _names_of(found, name))
        field = next(named, None)
        models = _models_in(found.model_fields[field].annotation) if field else []
        if len(models) != 1:
            return None
        (found,) = models
    return found


def _names_of(model: type[BaseModel], name: str) -> list[str]:
    alias = model.model_fields[name].validation_alias
    choices = alias.choices if isinstance(alias, AliasChoices) else [alias]
    return [name, *(choice for choice in choices if isinstance(choice, str))]


def _models_in(annotation: object) -> list[type[BaseModel]]:
    if isinstance(annotation, TypeAliasType):
        annotation = annotation.__value__
    if isinstance(annotation, type):
        return [annotation] if issubclass(annotation, BaseModel) else []
    return [model for part in get_args(annotation) for model in _models_in(part)]


class TenantRequest(RequestModel):
    """A request body with an optional `tenant_id`. `ApiRoute` refuses another tenant than the
    key's.
    """

    tenant_id: str | None = Field(
        default=None,
        description="The tenant of the API key, by name or UUID.",
    )


Item = TypeVar("Item")


class Page(ResponseModel, Generic[Item]):
    """One page of a list. Subclasses give it a name in the OpenAPI document."""

    items: list[Item]
    next_cursor: str | None = Field(
        default=None, description="Pass it as `cursor` for the next page. Null on the last page."
    )


def split_commas(value: Any) -> Any:
    """`a,b` in a repeatable query parameter means `a` and `b`."""
    if not isinstance(value, list):
        return value
    parts = [part for item in cast("list[str]", value) for part in item.split(",") if part]
    return parts or None


def body_example(
    value: object, *, other_media_types: Mapping[str, str] | None = None
) -> dict[str, Any]:
    """Return `openapi_extra` with an example of the JSON body.

    `other_media_types` maps each further media type of the body to its description. A media type
    of `text` is a string, any other a stream of bytes.
    """
    content: dict[str, Any] = {"application/json": {"example": value}}
    for media_type, description in (other_media_types or {}).items():
        schema = {"type": "string", "description": description}
        if not media_type.startswith("text/"):
            schema["format"] = "binary"
        content[media_type] = {"schema": schema}
    return {"requestBody": {"content": content}}


def with_examples(*examples: Mapping[str, Any]) -> ConfigDict:
    """Return the configuration of a wire model with these examples."""
    return ConfigDict(json_schema_extra={"examples": [dict(example) for example in examples]})
