"""`python -m tests.support.stub_provider [--port 8999] [--delay 0.5]`: the stub as a process, until
Ctrl-C."""

from __future__ import annotations

import argparse
import contextlib
import sys
import threading

from tests.support.stub_provider import BY_NAME, StubProvider


def main() -> None:
    parser = argparse.ArgumentParser(
        prog="python -m tests.support.stub_provider", description=__doc__
    )
    parser.add_argument("--port", type=int, default=8999)
    parser.add_argument("--delay", type=float, default=0.0, help="seconds every answer takes")
    options = parser.parse_args()
    with StubProvider(port=options.port, delay=options.delay) as stub:
        sys.stdout.write(f"openai    {stub.openai_url}\nanthropic {stub.anthropic_url}\n")
        sys.stdout.write(f"models    {' '.join(BY_NAME)}; any other answers\n")
        sys.stdout.flush()
        with contextlib.suppress(KeyboardInterrupt):
            threading.Event().wait()


main()
