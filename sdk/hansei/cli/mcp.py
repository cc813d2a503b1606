"""`hansei mcp`: the MCP server over standard input and output."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Mapping
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

import typer

import hansei
from hansei.cli.terminal import print_message

if TYPE_CHECKING:
    from hansei.async_client import AsyncHansei


def run_mcp() -> None:
    """Run the MCP server for an agent on this machine, over standard input and output.

    It uses HANSEI_URL and HANSEI_API_KEY, or the credentials of `hansei up`. The service offers
    the same tools at `/mcp`.
    """
    try:
        from hansei.mcp_server import create_mcp_server  # noqa: PLC0415 - an extra, 0.5 s to load
    except ModuleNotFoundError as error:
        if (error.name or "").split(".")[0] not in ("mcp", "mcp_types", "pydantic"):
            raise
        print_message("`hansei mcp` needs an extra. Install it with `pip install 'hansei[mcp]'`.")
        raise typer.Exit(1) from None

    import asyncio  # noqa: PLC0415 - other commands do not need it

    async def serve() -> None:
        async with hansei.AsyncHansei() as client:

            @asynccontextmanager
            async def connect(_headers: Mapping[str, str] | None) -> AsyncGenerator[AsyncHansei]:
                yield client

            await create_mcp_server(connect).run_stdio_async()

    asyncio.run(serve())
