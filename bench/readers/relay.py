"""An endpoint whose answers readers write: the model of a measurement where no API key is at hand.

    python -m bench.readers.relay FOLDER [--port 8090]   the endpoint: chat completions of OpenAI
    python -m bench.readers.relay FOLDER --next MODEL    a reader claims a batch and prints it

Each model name is a folder of FOLDER. Prompts of one model that arrive together become one file,
`ask/NNN.txt`, with their common beginning once; a reader writes `answer/NNN.txt`, each answer below
the heading of its prompt (`### 0001`) and `### end` at last. An answer that is missing is asked for
again. `calls.jsonl` keeps each prompt with its answer, and a prompt that is repeated gets the same
answer, also after a restart.
"""

from __future__ import annotations

import hashlib
import json
import re
import threading
import time
from collections import defaultdict
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from os.path import commonprefix
from pathlib import Path
from typing import Annotated, Any

import typer

from bench.recordings import PATIENCE_SECONDS

MAX_BATCH = 25
MIN_REPEAT = 500
"""Characters of a message that is written once for the prompts of a batch."""
HEADING = re.compile(r"^### (\d{4}|end)[ \t]*$", re.MULTILINE)


def main(
    folder: Annotated[Path, typer.Argument(help="Folder of the prompts and answers.")],
    port: Annotated[int, typer.Option(help="Port of the endpoint.")] = 8090,
    pause: Annotated[float, typer.Option(help="Seconds without a prompt that end a batch.")] = 4.0,
    next_model: Annotated[str | None, typer.Option("--next", help="Claim a batch.")] = None,
) -> None:
    """Serve prompts to readers, or give a reader the next batch of a model."""
    if next_model:
        print(claim_batch(folder, next_model) or "NOTHING TO DO")
        return
    relay = Relay(folder, pause)
    threading.Thread(target=relay.run, daemon=True).start()

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def log_message(self, format: str, *args: Any) -> None:
            pass

        def do_POST(self) -> None:
            body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            raw = json.dumps(relay.complete(body), ensure_ascii=False).encode()
            self.send_response(200)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(raw)))
            self.end_headers()
            self.wfile.write(raw)

    class Server(ThreadingHTTPServer):
        request_queue_size = 512
        daemon_threads = True

    Server(("127.0.0.1", port), Handler).serve_forever()


def claim_batch(folder: Path, model: str, patience: float = 540.0) -> str | None:
    """The text of a batch that nobody else has, or None after `patience` seconds. Several models
    can be named with commas.
    """
    end = time.monotonic() + patience
    while time.monotonic() < end:
        for name in model.split(","):
            for file in sorted((folder / name / "ask").glob("*.txt")):
                try:
                    file.with_suffix(".claimed").open("x").close()
                except FileExistsError:
                    continue
                answer = file.parent.parent / "answer" / file.name
                return f"Write the answers to {answer.resolve()}\n\n{file.read_text('utf8')}"
        time.sleep(1)
    return None


class Relay:
    """The prompts that wait, and the answers so far."""

    def __init__(self, folder: Path, pause: float) -> None:
        self.folder, self.pause = folder, pause
        self.lock = threading.Condition()
        self.answers: dict[str, str] = {}
        self.waiting: dict[str, dict[str, list[str]]] = defaultdict(dict)
        self.last: dict[str, float] = {}
        self.asked: dict[Path, list[str]] = {}
        self.log = folder / "calls.jsonl"
        folder.mkdir(parents=True, exist_ok=True)
        if self.log.exists():
            for line in self.log.read_text("utf8").splitlines():
                call = json.loads(line)
                self.answers[_key(call["model"], call["prompt"])] = call["answer"]
        self.prompts: dict[str, tuple[str, list[str]]] = {}

    def complete(self, body: dict[str, Any]) -> dict[str, Any]:
        """The chat completion of a request, once a reader has answered."""
        model, prompt = body["model"], list(_parts(body))
        key = _key(model, prompt)
        with self.lock:
            if key not in self.answers and key not in self.prompts:
                self.prompts[key] = (model, prompt)
                self.waiting[model][key] = prompt
                self.last[model] = time.monotonic()
            if not self.lock.wait_for(lambda: key in self.answers, timeout=PATIENCE_SECONDS):
                raise TimeoutError(f"no reader answered a prompt of {model}")
            answer = self.answers[key]
        tokens = sum(map(len, prompt)) // 4, len(answer) // 4
        message = {"role": "assistant", "content": answer, "refusal": None}
        return {
            "id": f"relay-{key[:12]}",
            "object": "chat.completion",
            "created": int(time.time()),
            "model": model,
            "choices": [{"index": 0, "finish_reason": "stop", "message": message}],
            "usage": {
                "prompt_tokens": tokens[0],
                "completion_tokens": tokens[1],
                "total_tokens": sum(tokens),
            },
        }

    def run(self) -> None:
        while True:
            time.sleep(0.3)
            with self.lock:
                now = time.monotonic()
                for model, prompts in self.waiting.items():
                    is_full = len(prompts) >= MAX_BATCH
                    if prompts and (is_full or now - self.last[model] > self.pause):
                        self._ask(model, list(prompts)[:MAX_BATCH])
                for file in [f for f in self.asked if f.exists()]:
                    self._read(file)
                self.lock.notify_all()

    def _ask(self, model: str, keys: list[str]) -> None:
        ask, answer = self.folder / model / "ask", self.folder / model / "answer"
        ask.mkdir(parents=True, exist_ok=True)
        answer.mkdir(exist_ok=True)
        name = f"{len(list(ask.glob('*.txt'))) + 1:03d}.txt"
        parts = [self.waiting[model].pop(key) for key in keys]
        prompts = ["\n\n".join(each) for each in parts]
        common = commonprefix(prompts).rpartition("\n")[0] if len(prompts) > 1 else ""  # noqa: RUF071
        bodies = _without_repeats([prompt[len(common) :].strip() for prompt in prompts], parts)
        texts = [f"### {n:04d}\n{body}" for n, body in enumerate(bodies, 1)]
        start = f"{len(prompts)} prompts."
        if common:
            start += f" They all begin with:\n\n{common}\n\n(the beginning ends here)"
        (ask / f"{name}.tmp").write_text("\n\n".join([start, *texts]) + "\n", "utf8")
        (ask / f"{name}.tmp").rename(ask / name)
        self.asked[answer / name] = keys

    def _read(self, file: Path) -> None:
        pieces = HEADING.split(file.read_text("utf8"))
        found = {n: text.strip() for n, text in zip(pieces[1::2], pieces[2::2], strict=True)}
        if "end" not in found:
            return  # it is being written
        with self.log.open("a", encoding="utf8") as log:
            for number, key in enumerate(self.asked.pop(file), 1):
                model, prompt = self.prompts[key]
                if answer := found.get(f"{number:04d}"):
                    call = {"model": model, "prompt": prompt, "answer": answer}
                    log.write(json.dumps(call, ensure_ascii=False) + "\n")
                    self.answers[key] = answer
                else:
                    self.waiting[model][key] = prompt
                    self.last[model] = time.monotonic()


def _parts(body: dict[str, Any]) -> list[str]:
    parts = [json.dumps(body["response_format"])] if body.get("response_format") else []
    for message in body["messages"]:
        content = message["content"]
        if not isinstance(content, str):
            content = "\n".join(part.get("text", "") for part in content)
        parts.append(f"##### {message['role']}\n{content}")
    return parts


def _without_repeats(texts: list[str], parts: list[list[str]]) -> list[str]:
    """Long messages that several prompts contain, as a common system message, appear once."""
    for part in dict.fromkeys(part for each in parts for part in each if len(part) > MIN_REPEAT):
        found = [index for index, text in enumerate(texts) if part in text]
        heading = part.partition("\n")[0]
        for index in found[1:]:
            reference = f"{heading}\n(the same as in ### {found[0] + 1:04d})"
            texts[index] = texts[index].replace(part, reference)
    return texts


def _key(model: str, prompt: list[str]) -> str:
    return hashlib.sha256(json.dumps([model, prompt]).encode()).hexdigest()


if __name__ == "__main__":
    typer.run(main)
