"""Forms that a browser sends: read, sanitize, redact, and validate them as bodies of the API."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Any, TypeVar
from urllib.parse import parse_qsl

from fastapi import Request
from pydantic import BaseModel, ValidationError

from memory_api.api.bodies import MAX_BODY, UnsupportedMediaType, media_type, read_body
from memory_api.api.problems import describe_field_error
from memory_api.console.error_texts import FIELD_LABELS, describe_form_error
from memory_api.core.errors import InvalidRequest
from memory_api.core.json_input import replace_unstorable
from memory_api.core.secret_redaction import redact

FORM_TYPE = "application/x-www-form-urlencoded"
MAX_FORM_FIELDS = 1_000
CSRF_FIELD = "csrf"
UNREDACTED_FIELDS = {"key", CSRF_FIELD}

Body = TypeVar("Body", bound=BaseModel)


@dataclass(frozen=True)
class SentForm:
    """The fields of a form. Line breaks are `\\n`."""

    fields: Mapping[str, list[str]]

    def text(self, name: str, default: str = "") -> str:
        """The first value of a field, without white space at its ends."""
        return self.fields.get(name, [default])[0].strip()

    def texts(self, name: str) -> list[str]:
        return self.fields.get(name, [])

    def words(self, name: str) -> list[str]:
        """The comma-separated words of a field."""
        return [word.strip() for word in self.text(name).split(",") if word.strip()]

    def integer(self, name: str) -> int | None:
        """A whole number of up to nine digits, or None."""
        text = self.text(name)
        return int(text) if text.isascii() and text.isdigit() and len(text) <= 9 else None

    def is_set(self, name: str) -> bool:
        """Whether a check box is checked."""
        return bool(self.text(name))


async def read_form(request: Request) -> SentForm:
    """Read the form of a request. Unstorable characters and secrets are replaced. Raises
    `PayloadTooLarge`, `UnsupportedMediaType`, and `InvalidRequest` for too many fields.
    """
    whole = await read_body(request, MAX_BODY)
    if whole.raw and media_type(request.headers.get("content-type", "")) != FORM_TYPE:
        raise UnsupportedMediaType(f"A form must have the Content-Type {FORM_TYPE}.")
    try:
        pairs = parse_qsl(
            whole.raw.decode("utf-8", "replace"),
            keep_blank_values=True,
            max_num_fields=MAX_FORM_FIELDS,
            errors="replace",
        )
    except ValueError:
        raise InvalidRequest(f"A form may have {MAX_FORM_FIELDS:,} fields.") from None
    fields: dict[str, list[str]] = {}
    for name, value in pairs:
        clean = replace_unstorable(value).replace("\r\n", "\n")
        fields.setdefault(name, []).append(
            clean if name in UNREDACTED_FIELDS else redact(clean).text
        )
    return SentForm(fields)


def require_one_of(name: str, value: str, known: Collection[str]) -> None:
    """Raises `InvalidRequest` for an unknown value of a filter."""
    if value not in known:
        names = ", ".join(f"`{one}`" for one in known if one)
        raise InvalidRequest(f"`{name}` must be one of {names}.", field=name)


def validate_body(model: type[Body], values: Mapping[str, Any]) -> Body:
    """The values of a form as a body of the API. Raises `InvalidRequest`, which names the field."""
    try:
        return model.model_validate(dict(values))
    except ValidationError as error:
        item = dict(error.errors()[0])
        first = describe_field_error(item, model)
        field, message = first["field"], describe_form_error(item, first["message"])
        if field == "body":  # several fields together
            raise InvalidRequest(message) from None
        label = FIELD_LABELS.get(field, field)
        raise InvalidRequest(f"{label}: {message}", field=field) from None
