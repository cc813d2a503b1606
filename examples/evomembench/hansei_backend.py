"""Hansei as a memory of EvoMemBench, cross-episode tools (CROSSEP-TOOL).

Copy this file to `bfcl_eval/memory/` of a checkout of the benchmark. The README has the steps.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any, Self
from uuid import uuid4

from bfcl_eval.memory.base import Memory

from hansei import Hansei

PLAYBOOK = "evomembench"
MAX_QUERY_CHARACTERS = 10_000


class HanseiMemory(Memory):
    """Each storage folder has a playbook in a project of its own; a copy of the folder reads the
    same playbook.
    """

    def __init__(
        self,
        storage_dir: Path | str,
        clear: bool = False,
        readonly: bool = False,
        learn_timeout: float = 600.0,
        **unused: Any,
    ) -> None:
        super().__init__(clear=clear, readonly=readonly)
        self._client = Hansei()
        self._learn_timeout = learn_timeout
        name = Path(storage_dir) / "project.txt"
        if clear or not name.exists():
            name.parent.mkdir(parents=True, exist_ok=True)
            name.write_text(f"evomembench-{uuid4().hex[:12]}")
        self._project = name.read_text().strip()

    @classmethod
    def load_from_disk(cls, **backend_kwargs: Any) -> Self:
        return cls(**{"clear": False, **backend_kwargs})

    def utilize(self, system_prompt: str) -> str:
        block = self._client.playbooks.render(
            PLAYBOOK, system_prompt[-MAX_QUERY_CHARACTERS:], project_id=self._project
        )
        return f"\n\n{block.text}" if block.text else ""

    def update(self, trajectory: list[dict[str, Any]]) -> None:
        """Learn from a sample. The benchmark tells a memory no outcome, so the trace has none. The
        system prompt is left out, because it contains the advice.
        """
        messages = [message for message in trajectory if message.get("role") != "system"]
        if self.readonly or not messages:
            return
        record = {"playbook": PLAYBOOK, "messages": messages}
        for receipt in self._client.traces.create_many(
            [record], format="openai", reflect="always", project_id=self._project
        ):
            for _run in self._client.runs.follow(receipt.run_id, timeout=self._learn_timeout):
                pass
