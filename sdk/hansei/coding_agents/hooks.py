"""Handles the hooks of Claude Code: gives advice to a session, and learns from it.

A hook must not disturb the session. It writes what it learned to disk (`SessionStore`), starts a
process that sends it, and ends. Without a service, the session continues without advice.

Input and output are those of Claude Code: one JSON object on standard input with
`hook_event_name`, `session_id` and `transcript_path`; `additionalContext` on standard output.
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass, replace
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hansei._model import Json
from hansei.coding_agents.session_store import (
    SessionRange,
    SessionStore,
    read_unsent,
)
from hansei.credentials import (
    Credentials,
    account_id,
    data_dir_of_user,
    load_credentials,
    resolve_credentials,
    save_credentials,
)
from hansei.errors import (
    APIConnectionError,
    APIResponseError,
    AuthenticationError,
    ConfigurationError,
    HanseiError,
    InternalServerError,
    RateLimitError,
)

if TYPE_CHECKING:
    from hansei.client import Hansei

PYTHON_COMMAND = (sys.executable, "-P", "-m", "hansei")
"""Without `-P`, Python would import modules of the current folder, which is that of the session: a
cloned repository could execute its own code.
"""
TIME_LIMIT_SECONDS = 8.0
"""After this, the process of a hook ends, whatever it does."""
RENDER_TIMEOUT_SECONDS = 4.0
SEND_TIMEOUT_SECONDS = 60.0
SESSION_TOKENS = 1500
"""Tokens of advice at the start of a session."""
PROMPT_BULLETS = 5
"""Bullets that a prompt can add."""
MAX_QUERY_LENGTH = 4000

ADVICE_EVENTS = frozenset({"SessionStart", "UserPromptSubmit"})
TRANSCRIPT_EVENTS = frozenset({"PreCompact", "SessionEnd"})
SUB_AGENT_EVENT = "SubagentStop"
TRY_LATER = (
    APIConnectionError,
    InternalServerError,
    RateLimitError,
    AuthenticationError,
    APIResponseError,
    ConfigurationError,
)
"""Errors after which a range stays in the spool."""


@dataclass(frozen=True)
class HookOptions:
    playbook: str
    project_id: str | None = None


def bind_account(store: SessionStore) -> Path:
    """The data directory with the credentials that hooks use from now on: that of the user, or a
    copy of the credentials in use. What a session finds in its folder or its environment changes
    nothing. Raises `ConfigurationError`.
    """
    found = resolve_credentials()
    if found.api_key is None:
        raise ConfigurationError(
            "Hooks need an API key. Set HANSEI_API_KEY, and install them again."
        )
    own = data_dir_of_user()
    if load_credentials(own) == found:
        return own
    return save_credentials(store.accounts / account_id(found), found).parent


def load_account(data_dir: Path | None) -> Credentials:
    """The credentials that the hooks are bound to. Raises `ConfigurationError`."""
    # Not every shell expands the `~` of a shared settings file.
    found = load_credentials(data_dir.expanduser()) if data_dir is not None else None
    if found is None:
        raise ConfigurationError("The hooks have no credentials. Run `hansei hooks install` again.")
    return found


def open_client(account: Credentials, **options: Any) -> Hansei:
    """A client. Its module is imported only now, because the help of `hansei` needs none."""
    return import_module("hansei.client").Hansei(account.url, account.api_key, **options)


def handle_event(
    store: SessionStore, event: Mapping[str, Any], options: HookOptions, account: Credentials
) -> Json:
    """The output of the hook; empty if there is nothing to say. Raises `HanseiError`, `OSError`."""
    name = event.get("hook_event_name")
    if name in ADVICE_EVENTS:
        text = _advise(store, event, options, account)
        if not text:
            return {}
        return {"hookSpecificOutput": {"hookEventName": name, "additionalContext": text}}
    if name in TRANSCRIPT_EVENTS or name == SUB_AGENT_EVENT:
        _spool_transcript(store, event, options, account)
    return {}


def _advise(
    store: SessionStore, event: Mapping[str, Any], options: HookOptions, account: Credentials
) -> str:
    """The bullets for a prompt, or for the start of a session. Empty if all are already in the
    context of the session.
    """
    session_file = _session_file(event)
    starts = event.get("hook_event_name") == "SessionStart"
    prompt = str(event.get("prompt") or "")[:MAX_QUERY_LENGTH]
    if not starts and not prompt.strip():
        return ""
    limits: Json = {"token_budget": SESSION_TOKENS} if starts else {"top_k": PROMPT_BULLETS}
    with open_client(account, timeout=RENDER_TIMEOUT_SECONDS, max_retries=0) as client:
        block = client.playbooks.render(
            options.playbook,
            prompt,
            project_id=options.project_id,
            session_id=session_file.stem,
            **limits,
        )
    keys = block.bullet_keys
    with store.lock("sessions"):
        state = store.load(session_file)
        shown = set[str]() if starts else set(state.shown)
        if block.advice_held_out:
            store.save(session_file, replace(state, retrieval_id=block.retrieval_id))
        if not keys or shown.issuperset(keys):
            return ""
        state = replace(state, retrieval_id=block.retrieval_id, shown=sorted(shown.union(keys)))
        store.save(session_file, state)
    return block.text


def _spool_transcript(
    store: SessionStore, event: Mapping[str, Any], options: HookOptions, account: Credentials
) -> None:
    session_file = _session_file(event)
    own_file = event.get("agent_transcript_path")
    is_sub_agent = event.get("hook_event_name") == SUB_AGENT_EVENT
    if is_sub_agent and isinstance(own_file, str) and own_file:
        sidechain_only, session_file = False, Path(own_file).expanduser()
    else:
        sidechain_only = is_sub_agent
    with store.lock("sessions"):
        spool_session(
            store, session_file, options, account_id(account), sidechain_only=sidechain_only
        )


def spool_session(
    store: SessionStore,
    session_file: Path,
    options: HookOptions,
    account: str,
    *,
    sidechain_only: bool = False,
) -> int:
    """Write the unsent ranges of a session file to the spool, for `account`, and return how many.
    The caller holds the lock `sessions`. Raises `OSError`.
    """
    state = store.load(session_file)
    count = 0
    for unsent in read_unsent(session_file, state, sidechain_only=sidechain_only):
        if not store.has_room():
            store.note("The spool is full. Run `hansei hooks send` when the service is back.")
            break
        if any(_role_of(message) == "assistant" for message in unsent.messages):
            messages = SessionRange(
                unsent.external_id,
                unsent.session_id,
                unsent.messages,
                options.playbook,
                account,
                options.project_id,
                state.retrieval_id,
            )
            store.add_to_spool(messages)
            count += 1
        state = replace(state, main=unsent.main, sidechain=unsent.sidechain)
        store.save(session_file, state)
    return count


@dataclass
class SendResult:
    """`run_ids` are the learning runs of what was sent."""

    run_ids: list[str]
    sent: int = 0
    rejected: int = 0
    error: HanseiError | None = None


def send_spool(store: SessionStore, client: Hansei) -> SendResult:
    """Send the stored message ranges, oldest first, until the service cannot be reached. The file
    of a range that the service refuses is renamed to `.rejected`. Ranges of another service or key
    are kept.
    """
    result = SendResult([])
    account = client.account_id
    for path in store.waiting():
        messages = store.load_range(path)
        if messages is None or messages.account != account:
            continue
        try:
            result.run_ids.append(_send(client, messages))
        except TRY_LATER as error:
            result.error = error
            break
        except HanseiError as error:
            path.replace(path.with_suffix(".rejected"))
            store.note(f"The service refused a transcript: {error.detail}")
            result.rejected += 1
            continue
        path.unlink(missing_ok=True)
        result.sent += 1
    if result.error is not None:
        store.note(result.error.detail)
    elif not result.rejected:
        store.note(None)
    return result


def _send(client: Hansei, messages: SessionRange) -> str:
    response = client.transcripts.enqueue(
        messages.messages,
        playbook=messages.playbook,
        project_id=messages.project_id,
        session_id=messages.session_id,
        retrieval_id=messages.retrieval_id,
        external_id=messages.external_id,
    )
    return response.run_id


def start_sender(data_dir: Path) -> None:
    """Send the spool in a process of its own, which outlives the session."""
    options: Json = {"start_new_session": True}
    if sys.platform == "win32":
        options = {"creationflags": subprocess.DETACHED_PROCESS}
    nothing = subprocess.DEVNULL
    subprocess.Popen(
        [*PYTHON_COMMAND, "hooks", "send", "--quiet", "--data-dir", str(data_dir)],
        stdin=nothing,
        stdout=nothing,
        stderr=nothing,
        **options,
    )


def _session_file(event: Mapping[str, Any]) -> Path:
    """Raises `ValueError`."""
    path = event.get("transcript_path")
    if not isinstance(path, str) or not path:
        raise ValueError("The hook event has no `transcript_path`.")
    return Path(path).expanduser()


def _role_of(entry: Mapping[str, Any]) -> str:
    message: Any = entry.get("message", entry)
    return str(message.get("role", ""))
