"""Shared by all commands: opens the database, and converts errors to a one-line message and an exit
status.
"""

from __future__ import annotations

import asyncio
import signal
import sys
import threading
from collections.abc import Callable, Generator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from pydantic import ValidationError
from pydantic_core import ErrorDetails

from hansei import errors as client_errors
from hansei.cli.terminal import print_message
from hansei.credentials import Credentials, load_credentials
from memory_api.core.errors import ConfigurationError, HanseiError, ServiceUnavailable
from memory_api.core.secret_redaction import redact
from memory_api.core.settings import Settings
from memory_api.embedded.data_directory import APP, OWNER, WORKER, EmbeddedPostgresError
from memory_api.embedded.provisioning import provision_database
from memory_api.embedded.server import EmbeddedPostgres


class CommandFailed(Exception):
    """The command failed. The message says why and what to do. Exit status 1."""


class UsageError(Exception):
    """The options are wrong. The message says which options to use. Exit status 2."""


@contextmanager
def exit_on_error() -> Generator[None]:
    """Print an expected error on standard error and exit: with status 2 for wrong options or a
    wrong configuration, else with status 1. Other errors are raised. Secrets in the message, such
    as the password of a URL, are replaced.
    """
    try:
        yield
    except Exception as error:
        result = _message_and_status(error)
        if result is None:
            raise
        message, status = result
        print_message(f"hansei: {redact(message).text}")
        sys.exit(status)


def _message_and_status(error: Exception) -> tuple[str, int] | None:
    """None for an unexpected error."""
    match error:
        case CommandFailed() | HanseiError() if not isinstance(error, ServiceUnavailable):
            return str(error), 1
        case ConfigurationError() | UsageError():
            return str(error), 2
        case ValidationError():
            problems = (_describe_setting_error(item) for item in error.errors())
            return f"Invalid configuration: {'; '.join(problems)}", 2
        case _:
            # Imports SQLAlchemy, which `hansei up` does not need.
            from memory_api.core.db_errors import to_public_error  # noqa: PLC0415

            public_error = to_public_error(error)
            if isinstance(public_error, ConfigurationError):
                return str(public_error), 2
            known = public_error or (error if isinstance(error, HanseiError) else None)
            return (str(known), 1) if known is not None else None


def _describe_setting_error(item: ErrorDetails) -> str:
    """The environment variable and what is wrong with its value."""
    names = [str(part) for part in item["loc"]]
    name = names[0] if names[0].isupper() else f"HANSEI_{names[0].upper()}"
    message = item["msg"]
    if message.startswith("Input should be "):
        return f"{name} must be {message.removeprefix('Input should be ')}"
    return f"{name}: {message}"


@dataclass(frozen=True)
class DatabaseUrls:
    """Connection URLs by role. `embedded` is the server if it is the embedded one."""

    app: str
    worker: str
    owner: str | None
    embedded: EmbeddedPostgres | None = None

    def require_owner(self) -> str:
        if self.owner is None:
            raise CommandFailed(
                "This command needs the owner role. Set HANSEI_OWNER_URL to its database URL."
            )
        return self.owner


@contextmanager
def open_database(
    settings: Settings, data_dir: Path | None, *, create: bool = False
) -> Generator[DatabaseUrls]:
    """Open the database of HANSEI_DATABASE_URL, or the embedded server if this is unset or
    `data_dir` is given. The embedded server runs at least until the block ends. SIGINT and SIGTERM
    end the block with KeyboardInterrupt, and then wait until the server has stopped. Raises
    `CommandFailed` if the data directory has no database, except with `create`.
    """
    app = settings.database_url or settings.worker_url
    if data_dir is None and app is not None:
        yield DatabaseUrls(app, settings.worker_url or app, settings.owner_url)
        return
    server = EmbeddedPostgres(data_dir or settings.data_dir)
    if not create and not server.exists():
        raise CommandFailed(
            f"No database in {server.data_dir}. Run this command where `hansei up` runs, pass its"
            " --data-dir, or set HANSEI_DATABASE_URL."
        )
    with _stop_signals(server.stop):
        try:
            server.start()
        except EmbeddedPostgresError as error:
            raise CommandFailed(f"The embedded database did not start: {error}") from error
        asyncio.run(provision_database(server))
        yield DatabaseUrls(server.url(APP), server.url(WORKER), server.url(OWNER), server)


def find_credentials(data_dir: Path) -> Credentials | None:
    """Those that `hansei up` saved in the data directory. None without a file, or with a damaged
    one: `hansei up` writes it again.
    """
    try:
        return load_credentials(data_dir)
    except client_errors.ConfigurationError:
        return None


@contextmanager
def _stop_signals(stop: Callable[[], object]) -> Generator[None]:
    """SIGINT and SIGTERM end the block like Ctrl-C, also in a background job of a shell, which
    ignores SIGINT. While `stop` runs, they are ignored.
    """
    is_main = threading.current_thread() is threading.main_thread()
    numbers = (signal.SIGINT, signal.SIGTERM) if is_main else ()
    previous = {number: signal.getsignal(number) for number in numbers}
    try:
        try:
            for number in numbers:
                signal.signal(number, signal.default_int_handler)
            yield
        finally:
            for number in numbers:
                signal.signal(number, signal.SIG_IGN)
    finally:  # also if a second signal arrives at this moment
        stop()
        for number, handler in previous.items():
            signal.signal(number, handler)
