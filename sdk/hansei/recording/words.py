"""What an agent says without a client: `hansei.render`, `outcome`, `verdict` and `search`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Unpack

from hansei._settings import MAX_RETRIES, TIMEOUT_SECONDS
from hansei.client import Hansei
from hansei.errors import NotFoundError
from hansei.models import (
    MemoryKind,
    OutcomeType,
    RecordVerdictResponse,
    SearchMemoriesResponse,
    VerdictTag,
)
from hansei.recording.advice import RenderOptions
from hansei.recording.checks import check_outcome, check_render_options
from hansei.recording.recorder import default_recorder
from hansei.recording.trace import current_trace


def render(
    query: str | None = None, *, playbook: str | None = None, **options: Unpack[RenderOptions]
) -> str:
    """The prompt block of a playbook, for the task of the current trace or for `query`.

    Waits up to one second and never raises because of the service: "" or the last block instead.
    Without `playbook`, it is that of the current trace, which gets the `retrieval_id`.

    Example:
        with hansei.trace("refund an order", playbook="support"):
            prompt = hansei.render()
    """
    check_render_options(options)
    recorded = current_trace()
    if recorded is not None and playbook in (None, recorded.playbook):
        return recorded.render(query, **options)
    recorder = default_recorder()
    if playbook is None or recorder is None:
        return ""
    client = recorder.client
    return recorder.advice.render(
        playbook, lambda: client.playbooks.render(playbook, query or "", **options)
    ).text


def outcome(outcome: OutcomeType, *, error: object = None, external_id: str | None = None) -> None:
    """State how an agent run ended: the current trace, or an earlier one by its `external_id`.

    An earlier trace must have been sent (`hansei.flush()`). For it, raises `HanseiError`. Raises
    `RuntimeError` outside of a trace without `external_id`.

    Example:
        hansei.outcome("failure", external_id=t.external_id)
    """
    check_outcome(outcome)
    if external_id is None:
        recorded = current_trace()
        if recorded is None:
            raise RuntimeError("No trace is open here. Pass `external_id` for an earlier one.")
        recorded.set_outcome(outcome, error)
        return
    client = _client()
    reason = None if error is None else str(error)
    for found in client.traces.list(external_id=external_id, limit=1):
        client.traces.record_outcome(found.id, outcome, error=reason)
        return
    raise NotFoundError(f"The service has no trace with the external ID {external_id!r}.")


def verdict(
    key: str, tag: VerdictTag, *, playbook: str | None = None, reason: str | None = None
) -> RecordVerdictResponse:
    """Say whether a bullet helped. Without `playbook`, it is that of the current trace. Raises
    `HanseiError`.

    Example:
        hansei.verdict("mis-00001", "helpful", playbook="support", reason="Not charged twice.")
    """
    recorded = current_trace()
    name = playbook or (recorded.playbook if recorded is not None else None)
    if name is None:
        raise RuntimeError("No trace with a playbook is open here. Pass `playbook`.")
    return _client().playbooks.bullets.verdicts.create(name, key, tag, reason=reason)


def search(
    query_text: str,
    *,
    top_k: int | None = None,
    kinds: Sequence[MemoryKind] | None = None,
    project_id: str | None = None,
) -> SearchMemoriesResponse:
    """Search memories by meaning and by words. Raises `HanseiError`. `client.memories.search` has
    more filters.

    Example:
        for hit in hansei.search("refund of a pending order", top_k=3).results:
            print(hit.memory.content)
    """
    return _client().memories.search(query_text, top_k=top_k, kinds=kinds, project_id=project_id)


def _client() -> Hansei:
    """The client of this process. Raises `ConfigurationError` without a service."""
    recorder = default_recorder()
    if recorder is None:
        return Hansei()
    return recorder.client.with_options(timeout=TIMEOUT_SECONDS, max_retries=MAX_RETRIES)
