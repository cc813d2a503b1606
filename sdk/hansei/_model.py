"""The base of all response models."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import cache
from keyword import iskeyword
from types import UnionType
from typing import TYPE_CHECKING, Any, Self, cast, get_args, get_origin, get_type_hints

Json = dict[str, Any]
MAX_REPR_CHARACTERS = 60


class Model:
    """A JSON object of the service. Its fields are attributes; `model_dump` returns it as a dict.

    A field that this version of the client does not know is an attribute too. IDs are UUID strings,
    times are ISO 8601 in UTC, and scores, importance and confidence are between 0 and 1.
    """

    def __init__(self, **fields: Any) -> None:
        self.__dict__.update(fields)

    @classmethod
    def from_json(cls, value: Mapping[str, Any]) -> Self:
        """The model of a decoded JSON object."""
        model = cls.__new__(cls)
        converters = _converters(cls)
        for name, item in value.items():
            attribute = f"{name}_" if iskeyword(name) else name
            convert = converters.get(attribute)
            model.__dict__[attribute] = item if convert is None else convert(item)
        return model

    if not TYPE_CHECKING:  # a type checker finds names that do not exist

        def __getattr__(self, name: str) -> Any:
            """A list or an optional field that an older service did not send: empty, or None."""
            default = _defaults(type(self)).get(name)
            if default is None:
                raise AttributeError(f"'{type(self).__name__}' has no field '{name}'", name=name)
            return default()

    def model_dump(self) -> dict[str, Any]:
        """The object as dicts and lists, as the service sent it."""
        return {
            name.removesuffix("_") if iskeyword(name.removesuffix("_")) else name: _dump(value)
            for name, value in self.__dict__.items()
        }

    def __eq__(self, other: object) -> bool:
        return type(other) is type(self) and self.__dict__ == other.__dict__

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        fields = ", ".join(f"{name}={_shorten(value)}" for name, value in self.__dict__.items())
        return f"{type(self).__name__}({fields})"


def to_json(value: Any) -> Any:
    """What `json.dumps` can write, for a model, a list of models or any other value."""
    return _dump(value)


def _dump(value: Any) -> Any:
    if isinstance(value, Model):
        return value.model_dump()
    if isinstance(value, (list, tuple)):
        return [_dump(item) for item in cast("list[Any]", value)]
    if isinstance(value, dict):
        return {name: _dump(item) for name, item in cast("dict[str, Any]", value).items()}
    return value


def _shorten(value: object) -> str:
    text = repr(value)
    if isinstance(value, (Model, bool, int, float)) or len(text) <= MAX_REPR_CHARACTERS:
        return text
    if isinstance(value, list):
        items = cast("list[object]", value)
        return f"[{len(items)} items]"
    return f"{text[:MAX_REPR_CHARACTERS]}…"


Converter = Callable[[Any], Any]


@cache
def _converters(cls: type[Model]) -> dict[str, Converter]:
    """How each field that holds models is read."""
    hints = get_type_hints(cls)
    found = {name: _converter(hint) for name, hint in hints.items()}
    return {name: convert for name, convert in found.items() if convert is not None}


@cache
def _defaults(cls: type[Model]) -> dict[str, Callable[[], Any]]:
    """What a field is if it was not sent. Other fields are always sent."""
    found: dict[str, Callable[[], Any]] = {}
    for name, hint in get_type_hints(cls).items():
        if get_origin(hint) in (list, dict):
            found[name] = get_origin(hint)
        elif type(None) in get_args(hint):
            found[name] = _none
    return found


def _none() -> None:
    return None


def _reader(model: type[Model]) -> Converter:
    def read(value: Any) -> Any:
        return model.from_json(value) if isinstance(value, dict) else value  # pyright: ignore[reportUnknownArgumentType]

    return read


def _converter(hint: Any) -> Converter | None:
    origin, arguments = get_origin(hint), get_args(hint)
    if isinstance(hint, type) and issubclass(hint, Model):
        return _reader(hint)
    if origin is list and (convert := _converter(arguments[0])):
        return lambda value: [convert(item) for item in value] if value is not None else None
    if origin is dict and (convert := _converter(arguments[1])):
        return lambda value: {name: convert(item) for name, item in value.items()}
    if origin is UnionType:
        return next(filter(None, map(_converter, arguments)), None)
    return None
