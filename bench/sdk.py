"""Cost of `hansei.trace` in the agent's process: per event, and `import hansei`."""

from __future__ import annotations

import statistics
import subprocess
import sys
import tempfile
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from multiprocessing import Process, Queue

import hansei
from bench.harness import Report, describe_machine
from hansei.recording.recorder import Recorder

RUNS, EVENTS = 200, 300
RESULT = {"order_id": "W2378156", "status": "delivered", "items": [{"id": n} for n in range(20)]}


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


def record(recorder: Recorder) -> list[float]:
    """Seconds of each event, as the agent waits for it."""
    seconds: list[float] = []
    clock = time.perf_counter
    for number in range(RUNS):
        with hansei.trace(f"refund order {number}", playbook="support", recorder=recorder) as t:
            for _ in range(EVENTS // 3):
                since = clock()
                t.message("assistant", "I look the order up first, for its items [mis-00001].")
                seconds.append(clock() - since)
                since = clock()
                t.tool_call("get_order_details", {"order_id": "W2378156"}, result=RESULT)
                half = (clock() - since) / 2  # a call and its result are two events
                seconds += [half, half]
    return seconds


def import_seconds() -> float:
    """The fastest of five imports, without the start of the interpreter."""
    code = "import time; t = time.perf_counter(); import hansei; print(time.perf_counter() - t)"
    runs = [subprocess.check_output([sys.executable, "-c", code], text=True) for _ in range(5)]
    return min(map(float, runs))


def main() -> None:
    ports: Queue[int] = Queue()
    service = Process(target=serve, args=(ports,), daemon=True)
    service.start()
    with tempfile.TemporaryDirectory() as folder:
        recorder = Recorder(f"http://127.0.0.1:{ports.get()}", "hsk_bench", spool_dir=folder)
        cpu = time.process_time()
        seconds = record(recorder)
        undelivered = recorder.flush(60)
        cpu = time.process_time() - cpu
        recorder.close()
    service.terminate()
    assert undelivered == 0
    assert recorder.lost_events == 0
    cuts = statistics.quantiles(seconds, n=1000)
    report = Report(
        "sdk",
        f"{RUNS} traces of {EVENTS} events, recorded one after the other without a pause and sent "
        f"to a service that accepts at once. {describe_machine()} "
        "CPU includes the threads "
        "that write and send.",
    )
    report.table("events", "Per event, µs", "median", "99 %", "99.9 %", "CPU of the process")
    micro = [statistics.median(seconds), cuts[989], cuts[998], cpu / len(seconds)]
    report.row("events", *(f"{value * 1e6:.1f}" for value in micro))
    report.table("import", "`import hansei`", "ms")
    report.row("import", f"{import_seconds() * 1e3:.0f}")
    report.finish()


if __name__ == "__main__":
    main()
