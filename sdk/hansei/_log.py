"""The logger of the client, `hansei`. `HANSEI_LOG=debug` or `info` also prints it."""

from __future__ import annotations

import logging
import os
import re

LOGGER = logging.getLogger("hansei")
LEVELS = {"debug": logging.DEBUG, "info": logging.INFO, "warning": logging.WARNING}

_CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069]")


def _replace_control_characters(record: logging.LogRecord) -> bool:
    """Texts of a service must not control the terminal that shows the log."""
    text = record.getMessage()
    if _CONTROL.search(text):
        record.msg, record.args = _CONTROL.sub("\ufffd", text), ()
    return True


LOGGER.addFilter(_replace_control_characters)


def configure() -> None:
    """Print the log on standard error if `HANSEI_LOG` names a level: `debug` (each attempt at a
    request), `info` (retries), or `warning`. Never prints keys or bodies.
    """
    level = LEVELS.get(os.environ.get("HANSEI_LOG", "").strip().lower())
    if level is None or LOGGER.handlers:
        return
    handler = logging.StreamHandler()
    handler.setFormatter(logging.Formatter("%(asctime)s %(name)s %(levelname)s: %(message)s"))
    LOGGER.addHandler(handler)
    LOGGER.setLevel(level)
    LOGGER.propagate = False
