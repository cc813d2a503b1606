"""`hansei hooks`: install the hooks of Claude Code, and what they run."""

from __future__ import annotations

import json
import os
import shlex
import sys
import threading
from pathlib import Path
from typing import Annotated, Any, cast

import typer

from hansei._model import Json
from hansei.cli.options import AsJson, Project
from hansei.cli.terminal import (
    format_count,
    print_json,
    print_message,
    print_text,
)
from hansei.coding_agents.hook_settings import (
    EVENTS,
    SCOPES,
    Scope,
    install_hooks,
    installed_events,
    require_inside,
    settings_path,
    uninstall_hooks,
)
from hansei.coding_agents.hooks import (
    PYTHON_COMMAND,
    SEND_TIMEOUT_SECONDS,
    TIME_LIMIT_SECONDS,
    HookOptions,
    bind_account,
    handle_event,
    load_account,
    open_client,
    send_spool,
    start_sender,
)
from hansei.coding_agents.session_store import SessionStore
from hansei.credentials import DATA_DIR, require_chosen_by_user
from hansei.errors import ConfigurationError, HanseiError

hook_commands = typer.Typer(
    name="hooks",
    help="Connect Claude Code: lessons for each session, and learning from it.",
    no_args_is_help=True,
)
DEFAULT_PLAYBOOK = "coding"
MAX_EVENT_BYTES = 16 * 1024 * 1024
NO_INPUT = (
    "No hook event on standard input. Claude Code runs this command; "
    "`hansei hooks install` adds it to the settings."
)


Playbook = Annotated[str, typer.Option(help="The playbook that advises and learns.")]
DataDir = Annotated[
    Path | None, typer.Option("--data-dir", hidden=True, help="The folder of their credentials.")
]
SettingsScope = Annotated[
    Scope,
    typer.Option(
        help="Settings file: of the user, of the project (shared), or local to this checkout."
    ),
]


@hook_commands.command("install")
def install(
    playbook: Playbook = DEFAULT_PLAYBOOK,
    project: Project = None,
    scope: SettingsScope = "user",
) -> None:
    """Add the hooks to the settings of Claude Code. Other entries stay as they are."""
    path = _settings_file(scope)
    if scope != "local":
        require_chosen_by_user()
    data_dir = bind_account(SessionStore())
    is_shared = scope == "project"
    if is_shared and data_dir != Path.home() / DATA_DIR:
        raise ConfigurationError(
            "Hooks of a shared file use the credentials in the home folder of each user. Start "
            "`hansei up` in your home folder, or install them with --scope local."
        )
    command = _hook_command(playbook, project, None if is_shared else data_dir)
    changed = install_hooks(path, command)
    state = "installed" if changed else "already installed"
    print_text(f"Hooks {state} in {path} for the playbook `{playbook}`.")
    print_text(
        f"They use {load_account(data_dir).url} with the key of {data_dir}, in every folder."
    )
    print_text("New sessions of Claude Code use them. `hansei hooks status` shows what they do.")


@hook_commands.command("uninstall")
def uninstall(scope: SettingsScope = "user") -> None:
    """Remove the hooks from the settings of Claude Code. Other entries stay as they are."""
    path = _settings_file(scope)
    removed = uninstall_hooks(path)
    print_text(f"Hooks removed from {path}." if removed else f"{path} has no hooks of Hansei.")


@hook_commands.command("status")
def show_status(as_json: AsJson = False) -> None:
    """Show which hooks are installed and what waits to be sent. Exits with 1 if none are."""
    store = SessionStore()
    installed: dict[str, dict[str, str]] = {}
    problems: list[str] = []
    for scope in SCOPES:
        path = settings_path(scope, Path.cwd())
        try:
            found = installed_events(path)
        except HanseiError as error:
            problems.append(error.detail)
            continue
        if found:
            installed[str(path)] = found
    status: Json = {
        "installed": installed,
        "waiting": len(store.waiting()),
        "rejected": [str(path) for path in store.rejected()],
        "last_error": store.last_error(),
        "problems": problems,
        "state_directory": str(store.directory),
    }
    if as_json:
        print_json(status)
    else:
        _print_status(status, installed)
    if not installed:
        raise typer.Exit(1)


def _print_status(status: Json, installed: dict[str, dict[str, str]]) -> None:
    for problem in status["problems"]:
        print_message(f"error: {problem}")
    if not installed:
        print_text("No hooks are installed. Run `hansei hooks install`.")
    for path, commands in installed.items():
        missing = [event for event in EVENTS if event not in commands]
        lacking = f"; missing: {', '.join(missing)}. Install again." if missing else ""
        print_text(f"{path}: {format_count(len(commands), 'hook')} installed{lacking}")
        print_text(next(iter(commands.values())), indent=2, style="dim")
    print_text(f"{format_count(status['waiting'], 'transcript')} waiting to be sent.")
    if status["rejected"]:
        number = format_count(len(status["rejected"]), "transcript")
        print_text(f"{number} refused by the service; see {status['state_directory']}/spool.")
    if status["last_error"]:
        print_text(f"Last error: {status['last_error']}")


@hook_commands.command("run", hidden=True)
def run_hook(
    playbook: Playbook = DEFAULT_PLAYBOOK, project: Project = None, data_dir: DataDir = None
) -> None:
    """Handle one hook event of Claude Code from standard input."""
    if sys.stdin is None or sys.stdin.isatty():  # pyright: ignore[reportUnnecessaryComparison]
        print_message(NO_INPUT)
        return
    timer = _end_after(TIME_LIMIT_SECONDS)
    try:
        event = _read_event()
        if event is not None:
            store = SessionStore()
            answer = _handle(store, event, HookOptions(playbook, project), data_dir)
            if answer:
                print_json(answer)
            if data_dir is not None and store.waiting():
                start_sender(data_dir)
    except Exception as error:  # whatever it is, the session continues
        print_message(f"hansei: {type(error).__name__}: {error}")
    finally:
        timer.cancel()


def _handle(store: SessionStore, event: Json, options: HookOptions, data_dir: Path | None) -> Json:
    try:
        return handle_event(store, event, options, load_account(data_dir))
    except HanseiError as error:
        store.note(error.detail)
        print_message(f"hansei: {error.detail}")
    except (OSError, ValueError) as error:
        store.note(str(error))
        print_message(f"hansei: {error}")
    return {}


def _read_event() -> Json | None:
    data = sys.stdin.buffer.read(MAX_EVENT_BYTES)
    if not data.strip():
        print_message(NO_INPUT)
        return None
    try:
        value: Any = json.loads(data)
    except (ValueError, RecursionError):
        value = None
    if not isinstance(value, dict):
        print_message("hansei: the hook event on standard input is not a JSON object.")
        return None
    return cast(Json, value)


def _end_after(seconds: float) -> threading.Timer:
    """Ends the process with status 0: a slow service must not delay the session."""
    timer = threading.Timer(seconds, os._exit, (0,))
    timer.daemon = True
    timer.start()
    return timer


@hook_commands.command("send")
def send(
    quiet: Annotated[bool, typer.Option("--quiet", help="Print nothing.", hidden=True)] = False,
    data_dir: DataDir = None,
) -> None:
    """Send the transcripts that wait, for example after the service could not be reached."""
    store = SessionStore()
    with store.lock("sender", wait=False) as is_sender:
        if not is_sender:
            if not quiet:
                print_message("Another process is sending them.")
            return
        try:
            account = load_account(data_dir or _installed_data_dir())
            with open_client(account, timeout=SEND_TIMEOUT_SECONDS) as client:
                result = send_spool(store, client)
        except HanseiError as error:
            store.note(error.detail)
            if quiet:
                return
            raise
    if quiet:
        return
    left = len(store.waiting())
    print_text(f"{format_count(result.sent, 'transcript')} sent, {left} left.")
    if result.error is not None:
        raise result.error


def _settings_file(scope: Scope) -> Path:
    """The settings file to change. Raises `BadRequestError`."""
    path = settings_path(scope, Path.cwd())
    if scope != "user":  # the user may link the file of the home folder
        require_inside(path)
    return path


def _installed_data_dir() -> Path | None:
    """The data directory of the hooks that are installed for this folder."""
    for scope in SCOPES:
        for command in installed_events(settings_path(scope, Path.cwd())).values():
            _, option, value = command.partition(" --data-dir ")
            if option:
                return Path(shlex.split(value)[0])
    return None


def _hook_command(playbook: str, project: str | None, data_dir: Path | None) -> str:
    """With the path of this Python, because a hook does not have the PATH of the terminal. Without
    `data_dir`, the command for a file that others share: no path of this machine.
    """
    options = ["hooks", "run", "--playbook", playbook, *(["--project", project] if project else [])]
    if data_dir is None:
        return f"{shlex.join(['hansei', *options])} --data-dir ~/{DATA_DIR}"
    directory = str(data_dir.absolute())
    return shlex.join([*PYTHON_COMMAND, *options, "--data-dir", directory])
