"""The logger of the client, `hansei`. `HANSEI_LOG=debug` or `info` also prints it."""

from __future__ import annotations

import logging
import os

LOGGER = logging.getLogger("hansei")
LEVELS = {"debug": logging.DEBUG, "info": logging.INFO, "warning": logging.WARNING}


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
