# ruff: noqa: E501 - texts of bullets
"""A small support team's playbook, made through the API: for browser tests and pictures."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import httpx2

from tests.support.evaluation_report import evaluation_report

PLAYBOOK = "/api/v1/playbooks/support"
TEXTS = [
    ("STRATEGIES", "Before calling `cancel_order`, call `get_order` and read `status`. Only a pending order can be canceled."),
    ("STRATEGIES", "Before calling `refund`, take `order_id` from the response of `get_order`, not from the user's message."),
    ("STRATEGIES", "When the user names several orders, handle one after the other and confirm each result."),
    ("MISTAKES", "Always retry a payment at once when the gateway times out."),
    ("MISTAKES", "Do not promise a delivery date before `track_parcel` has returned one."),
    ("MISTAKES", "If `search_customer` returns nothing, ask for the e-mail address instead of repeating the search."),
    ("OTHERS", "返金の前に、注文番号をお客様に確認する。"),
    ("OTHERS", "Write amounts with their currency, as the order states it."),
]  # fmt: skip
TASKS = [
    ("Cancel order 1047 and refund it", "success"),
    ("Where is parcel 88?", "success"),
    ("Pay invoice 2231 again after a timeout", "failure"),
    ("Change the address of order 1100", "success"),
    ("Pay invoice 2240, the gateway timed out", "failure"),
    ("注文 1203 を返金してください", "success"),
]


HANDBOOK = """# Refunds

A pending order cannot be refunded. Cancel it instead.

## Delivered orders

A delivered order is refunded within thirty days. The customer needs the receipt.
"""
QUESTIONS = ("Can a pending order be refunded?", "Who approves a discount above 40 percent?")
"""Without a model, the agent answers the first one and asks a person about the second."""


@dataclass(frozen=True)
class Sample:
    """Keys of bullets by their order in `TEXTS`; the traces and their runs by their order in
    `TASKS`; the agent runs by their order in `QUESTIONS`.
    """

    keys: list[str]
    traces: list[str]
    runs: list[str]
    agent_runs: list[str]
    report: str
    playbook: str = "support"
    query: str = "refund+an+order"

    @property
    def harmful(self) -> str:
        return self.keys[3]


async def fill_sample(api: httpx2.AsyncClient, writer_key: str) -> Sample:
    """Versions, verdicts, retrievals, traces, a quarantined bullet and a proposal."""
    sections = [
        {"name": name, "slug": name[:3].lower(), "description": ""}
        for name in ("STRATEGIES", "MISTAKES", "OTHERS")
    ]
    await _send(api, "PATCH", PLAYBOOK, {"sections": sections})
    keys: list[str] = []
    for section, content in TEXTS:
        delta = {"type": "ADD", "section": section, "content": content}
        reason = "Learned from the runs of last week."
        done = await _send(api, "POST", f"{PLAYBOOK}/deltas", {"deltas": [delta], "reason": reason})
        keys.append(done["results"][0]["key"])
    receipts = [await _send_trace(api, task, outcome) for task, outcome in TASKS]
    traces = [receipt["trace_id"] for receipt in receipts]
    for number, key in enumerate(keys):
        for trace in traces[: 5 - number % 4]:
            tag = "harmful" if number == 3 else "helpful"
            reason = "The customer was charged twice." if number == 3 else "It was followed."
            body = {"tag": tag, "trace_id": trace, "reason": reason}
            await _send(api, "POST", f"{PLAYBOOK}/bullets/{key}/verdicts", body)
    changed = {
        "content": "Before calling `refund`, take `order_id` from the response of `get_order`,"
        " not from the user's message. Check `refundable_usd` too.",
        "reason": "Two refunds were larger than the order.",
    }
    await _send(api, "PATCH", f"{PLAYBOOK}/bullets/{keys[1]}", changed)
    await _send(api, "PATCH", f"{PLAYBOOK}/bullets/{keys[0]}", {"pinned": True})
    await _send(api, "PATCH", f"{PLAYBOOK}/bullets/{keys[5]}", {"status": "quarantined"})
    await _send(api, "PATCH", PLAYBOOK, {"review_mode": "required"})
    await _send(
        api,
        "POST",
        f"{PLAYBOOK}/deltas",
        {
            "deltas": [
                {
                    "type": "UPDATE",
                    "bullet_id": keys[4],
                    "content": "Do not promise a delivery date. Quote the estimate that `track_parcel` returns.",
                    "reasoning": "The date was wrong in 3 of 8 runs.",
                }
            ],
            "reason": "Narrow a promise that failed.",
        },
        {"Authorization": f"Bearer {writer_key}"},
    )
    await _send(api, "PATCH", PLAYBOOK, {"review_mode": "off"})
    agent_runs = await ask_agent(api)
    runs = [receipt["run_id"] for receipt in receipts]
    return Sample(keys, traces, runs, agent_runs, await publish_report(api))


async def publish_report(api: httpx2.AsyncClient) -> str:
    """The ID of a published report of `hansei eval`."""
    url = "/api/v1/evaluation-reports"
    return (await _send(api, "POST", url, {"report": evaluation_report()}))["id"]


async def ask_agent(api: httpx2.AsyncClient) -> list[str]:
    """Questions about a handbook, which wait for a worker."""
    await _send(api, "POST", "/api/v1/collections", {"name": "handbook", "chunk_tokens": 64})
    url = "/api/v1/collections/handbook/documents"
    added = await api.post(url, params={"source": "handbook.md"}, content=HANDBOOK.encode())
    assert added.is_success, added.text
    runs = [await _send(api, "POST", "/api/v1/agents/runs", {"query": q}) for q in QUESTIONS]
    return [run["id"] for run in runs]


async def _send_trace(api: httpx2.AsyncClient, task: str, outcome: str) -> dict[str, Any]:
    """The receipt of a run of an agent that searched the playbook first."""
    found = await _send(api, "POST", f"{PLAYBOOK}/search", {"query_text": task, "top_k": 4})
    cited = [hit["bullet"]["id"] for hit in found["results"]][:2]
    failed = outcome == "failure"
    events: list[dict[str, Any]] = [
        {"event_type": "user_message", "content": task},
        {"event_type": "tool_call", "tool_name": "get_order", "content": "get_order(1047)"},
        {"event_type": "tool_response", "tool_name": "get_order", "content": '{"status": "pending"}'},
        {"event_type": "tool_call", "tool_name": "pay", "content": "pay(invoice=2231)"},
        {"event_type": "error_event", "tool_name": "pay", "content": "409 already paid"}
        if failed
        else {"event_type": "tool_response", "tool_name": "pay", "content": "ok"},
        {"event_type": "llm_response", "content": f"Done. I followed {', '.join(cited)}."},
    ]  # fmt: skip
    body = {
        "playbook": "support",
        "retrieval_id": found["retrieval_id"],
        "task_description": task,
        "task_key": task.split()[0].lower(),
        "outcome": outcome,
        "used_bullet_keys": cited,
        "events": events,
    }
    return await _send(api, "POST", "/api/v1/traces", body)


async def _send(
    api: httpx2.AsyncClient,
    method: str,
    path: str,
    body: dict[str, Any],
    headers: dict[str, str] | None = None,
) -> dict[str, Any]:
    answer = await api.request(method, path, json=body, headers=headers)
    assert answer.status_code < 400, (path, answer.text)
    return answer.json()
