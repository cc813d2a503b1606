"""Adds the hooks of Hansei to a settings file of Claude Code, and removes them.

Entries of others, their order and all other settings stay as they are. A file that cannot be read
without doubt (damaged JSON, a key that occurs twice, hooks in another form) is refused.
"""

from __future__ import annotations

import json
import os
import re
import tempfile
from collections import Counter
from pathlib import Path
from typing import Any, Literal, cast, get_args

from hansei._file_limit import MAX_SETTINGS_BYTES, read_file
from hansei._model import Json
from hansei.errors import BadRequestError

Scope = Literal["user", "project", "local"]
SCOPES: tuple[Scope, ...] = get_args(Scope)

EVENTS = ("SessionStart", "UserPromptSubmit", "PreCompact", "SubagentStop", "SessionEnd")
HOOK_TIMEOUT_SECONDS = 15
"""The limit in the settings. A hook ends itself earlier, see `hooks.TIME_LIMIT_SECONDS`."""
_DEVICES = (Path("/dev"), Path("/dev/fd"))
_OUR_COMMAND = re.compile(r"\bhansei\b.* hooks run\b")


def settings_path(scope: Scope, directory: Path) -> Path:
    """`user`: of all projects. `project`: shared with the team. `local`: this checkout only."""
    if scope == "user":
        home = os.environ.get("CLAUDE_CONFIG_DIR")
        return (Path(home) if home else Path.home() / ".claude") / "settings.json"
    name = "settings.json" if scope == "project" else "settings.local.json"
    return directory / ".claude" / name


def install_hooks(path: Path, command: str) -> bool:
    """Write an entry for each event. Returns whether the file changed. Raises `BadRequestError`."""
    before = read_settings(path)
    after = _without_our_hooks(before, path)
    hooks = cast(Json, after.setdefault("hooks", {}))
    for event in EVENTS:
        entry = {"type": "command", "command": command, "timeout": HOOK_TIMEOUT_SECONDS}
        cast("list[Any]", hooks.setdefault(event, [])).append({"hooks": [entry]})
    return _replace(path, before, after)


def uninstall_hooks(path: Path) -> bool:
    """Remove the entries of Hansei. Returns whether the file changed. Raises `BadRequestError`."""
    before = read_settings(path)
    return _replace(path, before, _without_our_hooks(before, path))


def installed_events(path: Path) -> dict[str, str]:
    """The command of Hansei for each event that has one. Raises `BadRequestError`."""
    found: dict[str, str] = {}
    for event, groups in _hooks_of(read_settings(path), path).items():
        for group in groups:
            for entry in _entries_of(group):
                if _is_ours(entry):
                    found[event] = str(cast(Json, entry)["command"])
    return found


def read_settings(path: Path) -> Json:
    """An empty or missing file has no settings. Raises `BadRequestError`."""
    try:
        text = read_file(path, MAX_SETTINGS_BYTES).decode("utf-8-sig")
    except FileNotFoundError:
        return {}
    except (OSError, UnicodeDecodeError) as error:
        raise _refused(path, f"cannot be read ({error})") from error
    if not text.strip():
        return {}
    try:
        value = json.loads(text, object_pairs_hook=_unique_keys)
    except json.JSONDecodeError as error:
        place = f"line {error.lineno}, column {error.colno}: {error.msg}"
        raise _refused(path, f"is not JSON ({place})") from error
    except (ValueError, RecursionError) as error:
        raise _refused(path, f"cannot be changed safely ({error})") from error
    if not isinstance(value, dict):
        raise _refused(path, "is not a JSON object")
    return cast(Json, value)


def _refused(path: Path, reason: str) -> BadRequestError:
    return BadRequestError(f"{path} {reason}. Nothing was changed. Repair the file and try again.")


def _unique_keys(pairs: list[tuple[str, Any]]) -> Json:
    found = dict(pairs)
    if len(found) < len(pairs):
        counts = Counter(name for name, _ in pairs)
        twice = next(name for name in counts if counts[name] > 1)
        raise ValueError(f"the key `{twice}` occurs twice")
    return found


def _hooks_of(settings: Json, path: Path) -> dict[str, list[Any]]:
    hooks = settings.get("hooks", {})
    if not isinstance(hooks, dict):
        raise _refused(path, "has `hooks` that are not an object")
    for event, groups in cast(Json, hooks).items():
        if not isinstance(groups, list):
            raise _refused(path, f"has `hooks.{event}` that is not a list")
    return cast("dict[str, list[Any]]", hooks)


def _without_our_hooks(settings: Json, path: Path) -> Json:
    """Groups and events that only held our entries disappear with them."""
    hooks: dict[str, list[Any]] = {}
    for event, groups in _hooks_of(settings, path).items():
        left: list[Any] = []
        for group in groups:
            entries = _entries_of(group)
            others = [entry for entry in entries if not _is_ours(entry)]
            if others == entries:
                left.append(group)
            elif others:
                left.append({**group, "hooks": others})
        if left or not groups:
            hooks[event] = left
    after = {name: value for name, value in settings.items() if name != "hooks"}
    if hooks or settings.get("hooks") == {}:
        after = {name: hooks if name == "hooks" else settings[name] for name in settings}
    return after


def _entries_of(group: Any) -> list[Any]:
    entries = cast(Json, group).get("hooks") if isinstance(group, dict) else None
    return cast("list[Any]", entries) if isinstance(entries, list) else []


def _is_ours(entry: Any) -> bool:
    if not isinstance(entry, dict):
        return False
    command = cast(Json, entry).get("command")
    return isinstance(command, str) and bool(_OUR_COMMAND.search(command))


def _replace(path: Path, before: Json, after: Json) -> bool:
    if after == before:
        return False
    write_atomically(path, json.dumps(after, indent=2, ensure_ascii=False) + "\n")
    return True


def require_inside(path: Path) -> None:
    """Refuse a file that a symbolic link puts outside its folder, because the link can come with a
    cloned repository. The folder is the current one, or that of a path outside it. Raises
    `BadRequestError`.
    """
    here, written = Path.cwd(), Path(os.path.normpath(path.absolute()))
    if written.parent in _DEVICES:  # links of the system, such as /dev/stdin
        return
    folder = (here if written.is_relative_to(here) else written.parent).resolve()
    target = written.resolve()
    if not target.is_relative_to(folder):
        raise BadRequestError(
            f"{path} leads to {target} by a symbolic link, outside {folder}. Remove the link, or"
            " name the file that it leads to."
        )


def write_atomically(path: Path, text: str, mode: int | None = None) -> None:
    """A reader sees the old or the new text. Follows a symbolic link, and keeps the mode of the
    file unless `mode` is given.
    """
    target = path.resolve()
    target.parent.mkdir(parents=True, exist_ok=True)
    descriptor, name = tempfile.mkstemp(dir=target.parent, prefix=f".{target.name}.")
    try:
        with os.fdopen(descriptor, "w", encoding="utf-8", newline="") as file:
            file.write(text)
        if mode is None:
            mode = target.stat().st_mode & 0o777 if target.exists() else 0o644
        os.chmod(name, mode)
        os.replace(name, target)
    except BaseException:
        os.unlink(name)
        raise
