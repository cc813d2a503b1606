"""Logging: events with fields. The service writes them with structlog, for a terminal or as JSON.

As a library, Hansei never configures logging. Its events then go to the standard library's loggers.
"""

from __future__ import annotations

import logging
import sys
import traceback
from typing import Any, Literal

import structlog

from memory_api.core.errors import ConfigurationError, HanseiError
from memory_api.core.log_context import add_span_ids, redact_line
from memory_api.core.secret_redaction import redact

MAX_FIELD_LENGTH = 200
"""Characters of a field in the standard library's loggers."""


class EventLogger:
    """Logs events with fields, through structlog if the process has configured it, otherwise
    through the standard library's logger `name`, at most at level warning.
    """

    def __init__(self, name: str) -> None:
        self.name = name

    def info(self, event: str, **fields: Any) -> None:
        self._log(logging.INFO, event, fields)

    def warning(self, event: str, **fields: Any) -> None:
        self._log(logging.WARNING, event, fields)

    def error(self, event: str, **fields: Any) -> None:
        self._log(logging.ERROR, event, fields)

    def _log(self, level: int, event: str, fields: dict[str, Any]) -> None:
        if structlog.is_configured():
            structlog.get_logger(self.name).log(level, event, **fields)
            return
        logger = logging.getLogger(self.name)
        level = min(level, logging.WARNING)  # the application decides what is an error to it
        if logger.isEnabledFor(level):
            failure = fields.pop("exc_info", None)
            texts = (f"{name}={_to_field_text(value)}" for name, value in fields.items())
            line = " ".join((event, *texts))
            logger.log(level, "%s", f"{line}\n{_to_stack(failure)}" if failure else line)


def _to_field_text(value: Any) -> str:
    return redact(" ".join(str(value).split())).text[:MAX_FIELD_LENGTH]


def _to_stack(failure: Any) -> str:
    """The stack trace of an exception, or of the one being handled, without secrets."""
    error = failure if isinstance(failure, BaseException) else sys.exception()
    return redact("".join(traceback.format_exception(error))).text.strip() if error else ""


def get_logger(name: str) -> EventLogger:
    """The logger of a module that the library uses. `name` is the module's `__name__`."""
    return EventLogger(name)


def failure_fields(error: BaseException) -> dict[str, str]:
    """The type of an error, its code, and the message of a configuration error. Other messages may
    repeat parts of a prompt.
    """
    fields = {"error_type": type(error).__name__}
    if isinstance(error, HanseiError):
        fields["code"] = error.code
    if isinstance(error, ConfigurationError):
        fields["detail"] = str(error)
    return fields


def configure_logging(format: Literal["console", "json"], level: str) -> None:
    """Configure structlog and route the standard library's loggers through it. Lines that a request
    logs carry its request ID.
    """
    shared: list[structlog.typing.Processor] = [
        structlog.contextvars.merge_contextvars,
        structlog.stdlib.add_log_level,
        structlog.processors.TimeStamper(fmt="iso", utc=True),
        add_span_ids,
        structlog.processors.format_exc_info,
        redact_line,
    ]
    if format == "json":
        render: structlog.typing.Processor = structlog.processors.JSONRenderer()
    else:
        render = structlog.dev.ConsoleRenderer(
            colors=sys.stderr.isatty(), exception_formatter=structlog.dev.plain_traceback
        )
    output = structlog.WriteLogger(sys.stderr)
    level_number = logging.getLevelNamesMapping()[level.upper()]
    structlog.configure(
        processors=[*shared, render],
        wrapper_class=structlog.make_filtering_bound_logger(level_number),
        logger_factory=lambda *_: output,  # a factory of structlog creates one for each line
        cache_logger_on_first_use=False,
    )
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(
        structlog.stdlib.ProcessorFormatter(
            foreign_pre_chain=shared,
            processors=[structlog.stdlib.ProcessorFormatter.remove_processors_meta, render],
        )
    )
    logging.basicConfig(handlers=[handler], level=max(level_number, logging.WARNING), force=True)
