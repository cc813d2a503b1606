"""100,000 bullets of a tenant in parts: imports, cleanup beside other work, deletion."""

from __future__ import annotations

import http.client
import json
import os
import random
import time
from typing import Annotated, Any

import typer

from bench.background_work import SHORT, Lab
from bench.report import Report
from bench.server import api, measured_server, worker
from memory_api.auth.identity import to_tenant_id

STARTS = ("ban", "cor", "del", "fim", "gor", "hul", "jas", "kel", "lom")
ENDS = ("ta", "ric", "mon", "sev", "dur", "pin", "gal", "wex")
WORDS = [start + end for start in STARTS for end in ENDS]
"""Words without a meaning, so that few bullets look alike."""


def document(part: int, count: int) -> bytes:
    """A playbook of `count` bullets with 12 words each; one in a hundred repeats another."""
    choice = random.Random(part)
    texts = [" ".join(choice.choices(WORDS, k=12)) for _ in range(count)]
    texts[1::100] = texts[0::100][: len(texts[1::100])]
    bullets = [
        {"id": f"pat-{number:05}", "section": "pat", "content": text}
        for number, text in enumerate(texts, 1)
    ]
    return json.dumps({"bullets": bullets}).encode()


def call(port: int, key: str, method: str, path: str, body: bytes | None = None) -> Any:
    """The status and the time of a request, in seconds."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=600)
    headers = {"Authorization": f"Bearer {key}", "Content-Type": "application/json"}
    since = time.perf_counter()
    connection.request(method, f"/api/v1/{path}", body, headers)
    response = connection.getresponse()
    text = response.read()
    connection.close()
    return response.status, time.perf_counter() - since, text.decode()


def watch_cleanup(lab: Lab, key: str, slug: str) -> tuple[int, int]:
    """Send one trace at a time until all cleanups are done. Returns the number of traces, and the
    highest number of unfinished cleanups of one playbook."""
    unfinished = (
        "select coalesce(max(n), 0) from (select count(*) n from runs where tenant_id = $1 and"
        " kind = 'cleanup' and state in ('queued', 'running') group by input ->> 'playbook') c"
    )
    dirty = "select count(*) from playbooks where tenant_id = $1 and cleaned_version < version"
    tenant, sent, most = to_tenant_id(slug), 0, 0
    lab.rows("update upkeep_schedule set due_at = now() where lane = $1", tenant)
    while lab.one(dirty, tenant) or not lab.drained(slug):
        most = max(most, lab.one(unfinished, tenant))
        if lab.one("select count(*) from runs where tenant_id = $1 and kind = 'cleanup'", tenant):
            lab.send(key, 1, f"small-{sent}")
            sent += 1
        lab.rows("update upkeep_schedule set due_at = now() where lane = $1", tenant)
        time.sleep(0.5)
    return sent, most


def main(
    parts: Annotated[int, typer.Option(help="Playbooks of 20,000 bullets.")] = 5,
    short: Annotated[bool, typer.Option(help="1,000 bullets a part, writes no file.")] = False,
) -> None:
    size = 1_000 if short else 20_000
    report = Report(
        "large_playbooks",
        f"Playbooks of {size:,} bullets of one tenant: {parts}."
        " One API process, one worker, rules engine."
        f" {os.cpu_count()} cores, load {os.getloadavg()[0]:.1f} at the start.",
    )
    report.table("figures", "Large playbooks", "what", "figure", "goal")
    with measured_server() as server, api(server) as port:
        lab = Lab(server, port, report, SHORT)
        key = lab.tenant("large")
        if not short:
            status, seconds, text = call(port, key, "PUT", "playbooks/all", document(9, 100_000))
            assert status == 422, text
            report.row("figures", "PUT of 100,000 bullets: 422 after", f"{seconds:.1f} s", "")
        puts = [
            call(port, key, "PUT", f"playbooks/part-{n}", document(n, size)) for n in range(parts)
        ]
        assert {status for status, _, _ in puts} <= {200, 201}, puts[0]
        report.row(
            *("figures", f"PUT of {size:,} bullets, fastest and slowest of {parts}"),
            f"{min(put[1] for put in puts):.1f} and {max(put[1] for put in puts):.1f} s",
            "≤ 30 s",
        )
        with worker(server, {}):
            since = time.perf_counter()
            sent, most = watch_cleanup(lab, key, "large")
            seconds = time.perf_counter() - since
        waits = lab.waits("large")
        report.row("figures", f"cleanup of {parts * size:,} bullets", f"{seconds:.0f} s", "")
        report.row("figures", "unfinished cleanups of a playbook at once, at most", f"{most}", "1")
        report.row(
            *("figures", f"wait of {sent} traces of the same tenant meanwhile, p50 / maximum"),
            *(f"{waits[len(waits) // 2]:.0f} / {waits[-1]:.0f} ms", "≤ 2 s"),
        )
        deleted = [call(port, key, "DELETE", f"playbooks/part-{n}") for n in range(parts)]
        assert {status for status, _, _ in deleted} <= {200, 204}, deleted[0]
        report.row(
            *("figures", f"DELETE of {size:,} bullets, slowest of {parts}"),
            *(f"{max(one[1] for one in deleted):.1f} s", "≤ 30 s"),
        )
    report.finish(write=not short)


if __name__ == "__main__":
    typer.run(main)
