"""Cost of the SDK in the agent's process: `import hansei`, an event, and a call of a tool.

`python -m bench sdk FOLDER` measures the SDK in the folder `sdk` of another checkout too, by turns.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from multiprocessing import Process, Queue
from pathlib import Path

from bench.harness import ROOT, Report, describe_machine

ROUNDS, IMPORTS, RUNS, EVENTS = 5, 20, 100, 300
NAMES = ("import, CPU ms", "event, µs", "event 99 %, µs", "event, CPU µs", "call, µs")
IMPORT = (
    "import time; t = time.process_time(); import hansei; print(1e3 * (time.process_time() - t))"
)
PROGRAM = """
import json, statistics, sys, tempfile, time
import hansei
from hansei.recording.recorder import Recorder

RESULT = {"order_id": "W2378156", "status": "delivered", "items": [{"id": n} for n in range(20)]}
clock = time.perf_counter
url, runs, events = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
plain = lambda order_id: RESULT
tool = hansei.tool(name="get_order_details")(plain)
in_events, in_tools, in_plain = [], [], []
with tempfile.TemporaryDirectory() as folder:
    recorder = Recorder(url, "hsk_bench", spool_dir=folder)
    cpu = time.process_time()
    for number in range(runs):
        with hansei.trace(f"refund order {number}", playbook="support", recorder=recorder) as t:
            for _ in range(events // 3):
                since = clock()
                t.message("assistant", "I look the order up first, for its items [mis-00001].")
                in_events.append(clock() - since)
                since = clock()
                tool("W2378156")  # a call and its result are two events
                in_tools.append(clock() - since)
                since = clock()
                plain("W2378156")
                in_plain.append(clock() - since)
    assert recorder.flush(60) == 0
    cpu = time.process_time() - cpu
    assert recorder.lost_events == 0
    recorder.close()
found = [1e6 * statistics.median(in_events), 1e6 * statistics.quantiles(in_events, n=100)[98]]
found += [1e6 * cpu / (runs * events)]
found += [1e6 * (statistics.median(in_tools) - statistics.median(in_plain))]
print(json.dumps(found))
"""


class _Service(BaseHTTPRequestHandler):
    """Accepts every trace at once, in a process of its own."""

    protocol_version = "HTTP/1.1"

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["content-length"]))
        items = ",".join(['{"trace_id":"t","run_id":null}'] * (body.count(b"\n") + 1))
        answer = f'{{"items":[{items}]}}'.encode()
        self.send_response(200)
        self.send_header("content-type", "application/json")
        self.send_header("content-length", str(len(answer)))
        self.end_headers()
        self.wfile.write(answer)

    def log_message(self, format: str, *args: object) -> None:
        return


def serve(ports: Queue[int]) -> None:
    server = ThreadingHTTPServer(("127.0.0.1", 0), _Service)
    ports.put(server.server_port)
    server.serve_forever()


def run(sdk: Path, *program: str) -> str:
    """What a program prints, in a new process with the SDK of a folder."""
    environment = os.environ | {"PYTHONPATH": str(sdk)}
    return subprocess.check_output([sys.executable, "-c", *program], env=environment, text=True)


def main() -> None:
    folders = [ROOT / "sdk", *(Path(each).resolve() for each in sys.argv[1:])]
    ports: Queue[int] = Queue()
    service = Process(target=serve, args=(ports,), daemon=True)
    service.start()
    url = f"http://127.0.0.1:{ports.get()}"
    imports = [[float(run(each, IMPORT)) for each in folders] for _ in range(IMPORTS)]
    arguments = (PROGRAM, url, str(RUNS), str(EVENTS))
    rounds = [[json.loads(run(each, *arguments)) for each in folders] for _ in range(ROUNDS)]
    service.terminate()
    report = Report(
        "sdk",
        f"{RUNS} traces of {EVENTS} events, recorded one after the other without a pause and sent "
        f"to a service that accepts at once; the best of {ROUNDS} processes, for "
        f"the import of {IMPORTS}. {describe_machine()} CPU includes "
        "the threads that write and send. A call is one of a decorated function, without the "
        "function itself.",
    )
    report.table("cost", "Cost in the agent's process", "SDK", *NAMES)
    best = [
        [
            min(turn[n] for turn in imports),
            *map(min, zip(*(turn[n] for turn in rounds), strict=True)),
        ]
        for n in range(len(folders))
    ]
    for n, values in enumerate(best):
        report.row("cost", "other" if n else "this", *(f"{value:.1f}" for value in values))
    for other in best[1:]:
        ratios = (f"{new / old:.2f}" for new, old in zip(best[0], other, strict=True))
        report.row("cost", "this / other", *ratios)
    report.finish()


if __name__ == "__main__":
    main()
