"""Transcripts for tests: blocks of messages, tags, and the session files of the shared data."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any


def tag(name: str, tag: str = "helpful", rationale: str = "Applied.") -> dict[str, str]:
    return {"name": name, "tag": tag, "rationale": rationale}


def call_of(name: str, arguments: Any) -> dict[str, Any]:
    return {"type": "tool_use", "id": "toolu_1", "name": name, "input": arguments}


def result_of(content: Any, **more: Any) -> dict[str, Any]:
    return {"type": "tool_result", "tool_use_id": "toolu_1", "content": content, **more}


def real_sessions(shared: Path) -> list[tuple[str, list[Any]]]:
    found: list[tuple[str, list[Any]]] = []
    for path in sorted((shared / "data" / "transcripts").rglob("*.json*")):
        text = path.read_text(encoding="utf-8")
        if path.suffix == ".jsonl":
            lines = [json.loads(line) for line in text.splitlines() if line.strip()]
        else:
            lines = json.loads(text)["loglines"]
        found.append((path.name, lines))
    return found
