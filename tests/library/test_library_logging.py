"""The library logs through the standard library, never configures it, and prints nothing."""

from __future__ import annotations

import json
import logging
import subprocess
import sys
import textwrap

import pytest
import structlog

from memory_api.core.telemetry import get_logger
from tests.support.paths import ROOT
from tests.support.stub_provider import StubProvider, unauthorized

KEY = "sk-ant-api03-" + "a1B2" * 20

SCRIPT = """
import asyncio, contextlib, json, logging, sys

records = []

class Recorder(logging.Handler):
    def emit(self, record):
        records.append([record.levelname, record.name, record.getMessage(), bool(record.exc_info)])

logging.getLogger().addHandler(Recorder())
before = (list(logging.getLogger().handlers), logging.getLogger().level)

from memory_api.library.llm_client import LLMClient, create_chat_model
from memory_api.library.playbook_store import PlaybookStore
from memory_api.library.reflector_agent import ReflectorAgent
from memory_api.library.transcript_reflector import run_reflector
from memory_api.llm.errors import LLMError
from memory_api.library.reflector_prompt import ReflectorPromptBuilder
from memory_api.reflection.trajectories.schemas import Trajectory

url, key, folder = sys.argv[1:]
with LLMClient(create_chat_model("anthropic", "m", api_key=key, base_url=url)) as client:
    agent = ReflectorAgent(client, ReflectorPromptBuilder(), PlaybookStore(folder))
    asked = Trajectory(query="the secret question", generated_answer="x", used_bullet_ids=["no-1"])
    agent.run(asked, "", "", "nowhere")
    # The provider refuses the key. The test is about what is logged, not about the error.
    with contextlib.suppress(LLMError):
        client.invoke_with_template("the secret question", {})
model = create_chat_model("anthropic", "m", api_key=key, base_url=url)
messages = [{"role": "user", "content": "the secret question"}]
asyncio.run(run_reflector(messages, {"sections": {"OTHERS": ["a"]}}, [], llm=model))
assert (list(logging.getLogger().handlers), logging.getLogger().level) == before
print(json.dumps(records), file=sys.stderr)
"""


def test_failures_are_logged_as_warnings_without_keys_and_prompts(
    stub: StubProvider, tmp_path_factory: pytest.TempPathFactory
) -> None:
    stub.behave = lambda call: unauthorized()
    folder = str(tmp_path_factory.mktemp("playbooks"))
    command = [sys.executable, "-c", textwrap.dedent(SCRIPT), stub.anthropic_url, KEY, folder]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True)
    assert done.stdout == ""
    records = json.loads(done.stderr.splitlines()[-1])
    ours = [record for record in records if record[1].startswith("memory_api")]
    assert {record[0] for record in ours} == {"WARNING"}
    events = [record[2].split()[0] for record in ours]
    assert events == [
        "unknown_bullets_skipped",
        "llm_failed",
        "reflector_failed",
        "llm_failed",
        "reflector_failed",
    ]
    assert "error_type=LLMAuthenticationFailed code=" in ours[2][2]
    assert "Traceback (most recent call last)" in ours[3][2]
    assert ours[3][2].splitlines()[-1].startswith("memory_api.llm.errors.LLMAuthenticationFailed:")
    assert not any(record[3] for record in ours)
    written = done.stderr + done.stdout
    assert "the secret question" not in written
    assert KEY not in written


def test_message_and_stack_have_no_secret(caplog: pytest.LogCaptureFixture) -> None:
    before = structlog.get_config()
    structlog.reset_defaults()
    caplog.set_level(logging.INFO, "hansei.test")
    try:
        try:
            raise ValueError(f"refused {KEY}")
        except ValueError as error:
            get_logger("hansei.test").error(
                "failed", error=str(error), exc_info=True, model=f"m {KEY}"
            )
    finally:
        structlog.configure(**before)
    (record,) = caplog.records
    assert (record.levelname, record.name, record.exc_info) == ("WARNING", "hansei.test", None)
    first, second, *_, last = record.getMessage().splitlines()
    assert first.startswith("failed error=refused ")
    assert " model=m " in first
    assert second == "Traceback (most recent call last):"
    assert last.startswith("ValueError: refused ")
    assert KEY not in record.getMessage()
