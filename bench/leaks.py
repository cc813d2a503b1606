"""Rows of another tenant that five usual mistakes show, with and without policies."""

from __future__ import annotations

import asyncio

import typer

from bench.harness import Report, measured_server
from tests.rules.leak_table import MISTAKES, leak_table


def main() -> None:
    report = Report(
        "leaks",
        "Two tenants with a row each in every table. Each statement runs as the role of the"
        " application (`missing role`: as the owner of the tables), in the tables of the service"
        " and in copies without policies: rows of the other tenant that it shows.",
    )
    report.table("leaks", "With policies / without", "table", *MISTAKES)
    with measured_server() as server:
        found = asyncio.run(leak_table(server.url))
    for table, leaks in found.items():
        report.row("leaks", table, *(f"{here} / {without}" for here, without in leaks.values()))
    report.finish()


if __name__ == "__main__":
    typer.run(main)
