"""A process that uses the embedded server: starts it, says its URL, waits for a line, lets go."""

from __future__ import annotations

import sys
from pathlib import Path

from memory_api.embedded.data_directory import EmbeddedPostgresError
from memory_api.embedded.server import EmbeddedPostgres


def say(text: str) -> None:
    sys.stdout.write(text + "\n")
    sys.stdout.flush()


try:
    pg = EmbeddedPostgres(Path(sys.argv[1]), conf={"fsync": "off"}).start()
except EmbeddedPostgresError as error:
    say(f"refused: {error}")
    sys.exit(1)
say(pg.url("postgres", "postgres"))
sys.stdin.readline()
say("stopped" if pg.stop() else "released")
