"""An installation of real processes whose logs, metrics and spans are collected."""

from __future__ import annotations

import json
import shutil
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx2
import pytest

from tests.e2e.conftest import free_port
from tests.support.installation import Installation, Tenant
from tests.support.otlp_receiver import OtlpReceiver
from tests.support.stub_provider import StubProvider

TOKEN = "a-token-for-the-metrics"
PROVIDER_KEY = "sk-" + "proj-" + "q9W8_e7-" * 8


@dataclass
class Observed:
    """What an operator has: processes, logs, metrics and spans."""

    installation: Installation
    spans: OtlpReceiver
    stub: StubProvider
    worker_port: int

    def client(self, tenant: Tenant) -> httpx2.Client:
        auth = {"Authorization": f"Bearer {tenant.key}"}
        return httpx2.Client(base_url=self.installation.url, headers=auth, timeout=60)

    def metrics(self, *, worker: bool = False) -> str:
        url = f"http://127.0.0.1:{self.worker_port}" if worker else self.installation.url
        answer = httpx2.get(f"{url}/metrics", headers={"Authorization": f"Bearer {TOKEN}"})
        answer.raise_for_status()
        return answer.text

    def log_text(self, name: str) -> str:
        return (self.installation.folder / f"{name}.log").read_text(encoding="utf-8")

    def log(self, name: str) -> list[dict[str, Any]]:
        """The lines of `api` or `worker`. Each must be JSON."""
        return [json.loads(line) for line in self.log_text(name).splitlines()]


@pytest.fixture(scope="session")
def observed() -> Iterator[Observed]:
    folder = Path(tempfile.mkdtemp(prefix="hansei-observed-"))
    with OtlpReceiver() as spans, StubProvider() as stub:
        worker_port = free_port()
        env = {
            "HANSEI_LOG_LEVEL": "debug",
            "HANSEI_METRICS_TOKEN": TOKEN,
            "OTEL_EXPORTER_OTLP_ENDPOINT": spans.url,
            "OTEL_BSP_SCHEDULE_DELAY": "200",
            "HANSEI_LLM_PROVIDER": "openai",
            "HANSEI_LLM_MODEL": "gpt-4o-mini",
            "OPENAI_API_KEY": PROVIDER_KEY,
            "OPENAI_BASE_URL": stub.openai_url,
        }
        installation = Installation(folder)
        installation.extra = {
            "api": env,
            "worker": env | {"HANSEI_WORKER_METRICS_PORT": str(worker_port)},
        }
        try:
            installation.start()
            yield Observed(installation, spans, stub, worker_port)
        finally:
            installation.stop()
            shutil.rmtree(folder)
