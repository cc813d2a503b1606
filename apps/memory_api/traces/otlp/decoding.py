"""Reads OTLP export requests, as protobuf or JSON, with gzip or without
(https://opentelemetry.io/docs/specs/otlp/#otlphttp). Pure.
"""

from __future__ import annotations

import base64
import json
import zlib
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cache
from typing import Any, cast

from google.protobuf.descriptor import Descriptor
from google.protobuf.json_format import ParseDict, ParseError
from google.protobuf.message import DecodeError
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

from memory_api.core.errors import InvalidRequest, PayloadTooLarge
from memory_api.core.json_input import (
    MAX_VALUES,
    may_have_too_many_values,
    parse_json,
    replace_unstorable,
)

PROTOBUF, JSON = "application/x-protobuf", "application/json"
MAX_DECODED_BYTES = 64 * 1024 * 1024
"""Bytes of a body after decompression."""
MAX_FIELDS = 300_000
"""Fields of a protobuf body, those of nested messages included. A message of two bytes takes up to
1 KB of memory.
"""
_VARINT, _FIXED_64, _LENGTH_DELIMITED, _FIXED_32 = 0, 1, 2, 5
_STATUS_ERROR = 2
_HEX_IDS = ("traceId", "spanId", "parentSpanId", "trace_id", "span_id", "parent_span_id")

Attributes = Mapping[str, Any]


@dataclass(frozen=True)
class Span:
    """One span. IDs are hexadecimal, times are nanoseconds since 1970. `parent_id` is "" for a
    root. `attributes` include those of the resource.
    """

    trace_id: str
    span_id: str
    parent_id: str
    name: str
    started_at: int
    ended_at: int
    attributes: Attributes
    events: list[tuple[str, Attributes]] = field(default_factory=list[tuple[str, Attributes]])
    error: str | None = None
    """The message of the status `error`."""


def decompress(raw: bytes, encoding: str) -> bytes:
    """Raises `InvalidRequest` for damaged data and unknown encodings, and `PayloadTooLarge`."""
    if encoding in ("", "identity"):
        return raw
    if encoding not in ("gzip", "deflate"):
        raise InvalidRequest(
            f"The encoding '{encoding[:40]}' is not supported. Use gzip.", field="Content-Encoding"
        )
    stream = zlib.decompressobj(zlib.MAX_WBITS | 32)
    try:
        data = stream.decompress(raw, MAX_DECODED_BYTES + 1)
    except zlib.error as error:
        raise InvalidRequest("The body is not valid gzip.", field="body") from error
    if len(data) > MAX_DECODED_BYTES or stream.unconsumed_tail:
        raise PayloadTooLarge(f"The body has more than {MAX_DECODED_BYTES:,} bytes when unpacked.")
    if not stream.eof:
        raise InvalidRequest("The gzip data of the body ends too early.", field="body")
    return data


def decode_request(raw: bytes, media_type: str) -> Iterator[Span]:
    """The spans of an export request. Raises `InvalidRequest` and `PayloadTooLarge`."""
    if media_type == JSON:
        return decode_json(parse_json(raw).value)
    if _has_too_many_fields(raw):
        raise PayloadTooLarge(f"A request can have at most {MAX_FIELDS:,} fields.")
    request = ExportTraceServiceRequest()
    try:
        request.ParseFromString(raw)
    except DecodeError as error:
        raise InvalidRequest(
            "The body is not an OTLP ExportTraceServiceRequest.", field="body"
        ) from error
    return _read_spans(request)


def decode_json(value: Any) -> Iterator[Span]:
    """The spans of a request in the JSON encoding of OTLP. Raises `InvalidRequest`."""
    request = ExportTraceServiceRequest()
    try:
        ParseDict(_encode_ids(value), request, ignore_unknown_fields=True)
    except (ParseError, ValueError, TypeError, AttributeError) as error:
        message = f"The body is not an OTLP ExportTraceServiceRequest: {str(error)[:200]}"
        raise InvalidRequest(message, field="body") from error
    return _read_spans(request)


def _has_too_many_fields(raw: bytes) -> bool:
    """Whether the request has more than `MAX_FIELDS` fields, found without creating them. Damaged
    parts are left to the decoder.
    """
    count = 0
    pending = [(0, len(raw), ExportTraceServiceRequest.DESCRIPTOR)]
    while pending:
        position, end, message = pending.pop()
        while position < end:
            count += 1
            if count > MAX_FIELDS:
                return True
            tag, position = _read_varint(raw, position, end)
            if (kind := tag & 7) == _VARINT:
                _, position = _read_varint(raw, position, end)
            elif kind == _LENGTH_DELIMITED:
                length, position = _read_varint(raw, position, end)
                if nested := _nested_messages(message).get(tag >> 3):
                    pending.append((position, min(position + length, end), nested))
                position += length
            elif kind in (_FIXED_32, _FIXED_64):
                position += 4 if kind == _FIXED_32 else 8
    return False


def _read_varint(raw: bytes, position: int, end: int) -> tuple[int, int]:
    """The number at this position, and the position after it."""
    number = shift = 0
    while position < end:
        byte = raw[position]
        position += 1
        number |= (byte & 127) << shift
        shift += 7
        if byte < 128 or shift > 63:
            break
    return number, position


@cache
def _nested_messages(message: Descriptor) -> Mapping[int, Descriptor]:
    """The fields of a message that hold messages, by number."""
    return {field.number: field.message_type for field in message.fields if field.message_type}


def _encode_ids(value: Any) -> Any:
    """OTLP writes IDs in hexadecimal, where the JSON encoding of protobuf has base64."""
    if isinstance(value, list):
        return [_encode_ids(item) for item in cast("list[Any]", value)]
    if not isinstance(value, dict):
        return value
    fields = cast("dict[str, Any]", value)
    return {
        name: base64.b64encode(bytes.fromhex(item)).decode()
        if name in _HEX_IDS and isinstance(item, str)
        else _encode_ids(item)
        for name, item in fields.items()
    }


def _read_spans(request: ExportTraceServiceRequest) -> Iterator[Span]:
    fields = size = 0
    for resource in request.resource_spans:
        shared = _read_attributes(resource.resource.attributes)
        span_count = sum(len(scope.spans) for scope in resource.scope_spans)
        fields += len(shared) * span_count
        size += resource.resource.ByteSize() * span_count
        if fields > MAX_FIELDS or size > MAX_DECODED_BYTES:
            raise PayloadTooLarge(
                f"The attributes of resources can have at most {MAX_FIELDS:,} fields and"
                f" {MAX_DECODED_BYTES:,} bytes, counted once for each span."
            )
        for scope in resource.scope_spans:
            for span in scope.spans:
                message = replace_unstorable(span.status.message)
                read = Span(
                    trace_id=span.trace_id.hex(),
                    span_id=span.span_id.hex(),
                    parent_id=span.parent_span_id.hex(),
                    name=replace_unstorable(span.name),
                    started_at=span.start_time_unix_nano,
                    ended_at=span.end_time_unix_nano,
                    attributes={**shared, **_read_attributes(span.attributes)},
                    events=[
                        (event.name, _read_attributes(event.attributes)) for event in span.events
                    ],
                    error=message or "error" if span.status.code == _STATUS_ERROR else None,
                )
                if may_have_too_many_values(_texts_of(read)):
                    raise PayloadTooLarge(
                        f"A span can have at most {MAX_VALUES:,} values, with those in its texts."
                    )
                yield read


def _texts_of(span: Span) -> Iterator[str]:
    for attributes in (span.attributes, *(values for _, values in span.events)):
        yield from (value for value in attributes.values() if isinstance(value, str))


def _read_attributes(pairs: Iterable[Any]) -> dict[str, Any]:
    return {replace_unstorable(pair.key): _read_value(pair.value) for pair in pairs}


def _read_value(value: Any) -> Any:
    kind = value.WhichOneof("value")
    match kind:
        case None:
            return None
        case "string_value":
            return replace_unstorable(value.string_value)
        case "array_value":
            return [_read_value(item) for item in value.array_value.values]
        case "kvlist_value":
            return _read_attributes(value.kvlist_value.values)
        case "bytes_value":
            return base64.b64encode(value.bytes_value).decode()
        case _:
            return getattr(value, kind)


def parse_json_text(value: Any) -> Any:
    """The value of an attribute that holds JSON as text; other values unchanged."""
    if isinstance(value, str) and value[:1] in ("[", "{"):
        try:
            return json.loads(value)
        except (ValueError, RecursionError):
            return value
    return value
