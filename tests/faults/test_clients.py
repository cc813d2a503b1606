"""Clients that leave in the middle of what they say, or before they are answered."""

from __future__ import annotations

import json
import socket
import struct
from collections.abc import Callable
from contextlib import ExitStack

import httpx2

from memory_api.traces.ndjson import MAX_BATCH_LINES
from tests.support.fault_workload import Sender, traces
from tests.support.installation import Installation, Tenant, until

RESET = struct.pack("ii", 1, 0)


def leave(
    installation: Installation,
    tenant: Tenant,
    path: str,
    kind: str,
    body: bytes,
    *,
    sent: int,
    once: Callable[[], object],
) -> None:
    """Send the first bytes of a body, and break the connection once something is so."""
    with socket.create_connection(("127.0.0.1", installation.port)) as connection:
        head = (
            f"POST {path} HTTP/1.1\r\nHost: hansei\r\nContent-Type: {kind}\r\n"
            f"Authorization: Bearer {tenant.key}\r\nContent-Length: {len(body)}\r\n\r\n"
        )
        connection.sendall(head.encode() + body[:sent])
        until(once, "what the client waits for", every=0.001)
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, RESET)


def count(installation: Installation, tenant: Tenant, table: str) -> int:
    return installation.rows(f"select count(*) from {table} where tenant_id = $1", tenant.id)[0][0]


def test_client_that_stops_in_mid_line(installation: Installation, sender: Sender) -> None:
    tenant = sender.tenant
    many = [trace | {"external_id": f"{n}"} for n, trace in enumerate(traces("x") * 30)]
    body = b"\n".join(json.dumps(trace).encode() for trace in many)
    path = "/api/v1/traces?reflect=never"

    def a_batch_is_stored() -> bool:
        return count(installation, tenant, "traces") == MAX_BATCH_LINES

    sent = len(body) - 50
    leave(
        installation, tenant, path, "application/x-ndjson", body, sent=sent, once=a_batch_is_stored
    )
    answer = httpx2.post(
        f"{installation.url}{path}",
        content=body,
        headers={
            "Authorization": f"Bearer {tenant.key}",
            "Content-Type": "application/x-ndjson",
        },
        timeout=30,
    ).json()
    assert (answer["stored_count"], answer["duplicate_count"], answer["rejected_count"]) == (
        len(many) - MAX_BATCH_LINES,
        MAX_BATCH_LINES,
        0,
    )
    assert count(installation, tenant, "traces") == len(many)
    assert count(installation, tenant, "trace_events") == sum(
        len(trace["events"]) for trace in many
    )
    assert installation.ready().status_code == 200
    assert "ClientDisconnect" not in (installation.folder / "api.log").read_text()


def test_slow_readers_cost_little_memory(installation: Installation, sender: Sender) -> None:
    """20 clients ask for a trace with one event of 15 MB and read nothing: 540 MB once."""
    auth = {"Authorization": f"Bearer {sender.tenant.key}"}
    event = {"event_type": "tool_response", "tool_name": "cat", "content": "a b " * 3_750_000}
    stored = httpx2.post(
        f"{installation.url}/api/v1/traces?reflect=never",
        json={"events": [event]},
        headers=auth,
        timeout=60,
    )
    path = f"/api/v1/traces/{stored.json()['trace_id']}"
    head = f"Host: hansei\r\nAuthorization: {auth['Authorization']}\r\n\r\n"
    request = f"GET {path} HTTP/1.1\r\n{head}"
    before = installation.resident("api")
    with ExitStack() as stack:
        readers = [
            stack.enter_context(socket.create_connection(("127.0.0.1", installation.port)))
            for _ in range(20)
        ]
        for reader in readers:
            reader.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4_096)
            reader.sendall(request.encode())
        for reader in readers:
            reader.settimeout(60)
            assert reader.recv(12) == b"HTTP/1.1 200"
        assert installation.resident("api") - before < 350 * 1024 * 1024
        assert installation.ready().status_code == 200


def test_client_that_does_not_wait_for_response(installation: Installation, sender: Sender) -> None:
    tenant = sender.tenant
    trace = traces("x")[0] | {"external_id": "left"}
    body = json.dumps({name: trace[name] for name in trace if name != "used_bullet_keys"}).encode()
    path = "/api/v1/reflections/generate"

    def it_has_begun() -> bool:
        return count(installation, tenant, "runs") > 0

    leave(installation, tenant, path, "application/json", body, sent=len(body), once=it_has_begun)
    installation.await_drained(tenant)
    runs = count(installation, tenant, "runs")
    auth = {"Authorization": f"Bearer {tenant.key}", "Content-Type": "application/json"}
    again = httpx2.post(f"{installation.url}{path}", content=body, headers=auth, timeout=30)
    assert again.status_code == 200
    assert again.json()["duplicate"] is True
    assert (count(installation, tenant, "traces"), count(installation, tenant, "runs")) == (1, runs)
    kinds = installation.rows("select kind from memories where tenant_id = $1", tenant.id)
    assert sorted(kind for (kind,) in kinds) == ["bullet", "episode", "reflection", "strategy"]
