"""`hansei distribute`: distributes the tables by tenant over the nodes of a Citus cluster."""

from __future__ import annotations

import asyncio

import asyncpg

from hansei.cli.terminal import print_line
from memory_api.commands.database import CommandFailed, exit_on_error
from memory_api.core.settings import Settings
from memory_api.distribution.distribute import distribute


def run(shards: int) -> None:
    with exit_on_error():
        owner_url = Settings.load().owner_url
        if owner_url is None:
            raise CommandFailed(
                "This command needs the owner role of a Citus coordinator."
                " Set HANSEI_OWNER_URL to its database URL."
            )
        try:
            asyncio.run(distribute(owner_url, shard_count=shards, report=print_line))
        except (OSError, asyncpg.PostgresError) as error:
            raise CommandFailed(
                f"The distribution stopped: {error}. Run the command again to continue."
            ) from error
