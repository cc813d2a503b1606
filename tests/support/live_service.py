"""A service on a real socket, and an API with other settings than that of the fixture `app`."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from copy import copy

import pytest
import uvicorn
from fastapi import FastAPI
from starlette.datastructures import State

from memory_api.api.deps import ApiState
from memory_api.api.http_protocol import HttpProtocol, ProxyHeaders
from memory_api.core.settings import Settings
from memory_api.main import create_app
from memory_api.runtime import Runtime


@pytest.fixture(scope="session")
def live(settings: Settings, database) -> Iterator[str]:
    """The URL of a service that runs in its own thread, with its own runtime and event loop."""
    app = create_app(settings, database.url("hansei_app"))
    config = uvicorn.Config(
        ProxyHeaders(app),
        proxy_headers=False,
        host="127.0.0.1",
        port=0,
        http=HttpProtocol,
        loop="asyncio",
        log_config=None,
    )
    server = uvicorn.Server(config)
    thread = threading.Thread(target=server.run, daemon=True)
    thread.start()
    while not server.started:
        assert thread.is_alive(), "the service did not start"
        time.sleep(0.01)
    port = server.servers[0].sockets[0].getsockname()[1]
    yield f"http://127.0.0.1:{port}"
    server.should_exit = True
    thread.join(timeout=20)


def with_runtime(app: FastAPI, runtime: Runtime) -> FastAPI:
    """The application with another runtime, as an API process with other settings has it. It shares
    the routes of `app`: building those of a new application takes more time than most tests.
    """
    other = copy(app)
    other.state = State({"runtime": runtime, "api": ApiState.of(runtime.settings)})
    return other
