"""The command `hansei`.

What speaks HTTP is here. The server adds its commands (up, serve, worker, …) by the entry point
group `hansei.commands`: each names a callable `register(app: typer.Typer) -> None`. They are loaded
only when one of them, or the help, is asked for, so that the others start fast.
"""

from __future__ import annotations

import sys
from importlib.metadata import entry_points, version
from io import TextIOWrapper
from typing import Annotated, Any

import typer
from typer.core import TyperGroup

from hansei.commands.memory import memory
from hansei.commands.money import budget, usage
from hansei.commands.playbook import playbook
from hansei.commands.reflect import reflect
from hansei.commands.review import accept, proposals, reject
from hansei.commands.runs import runs
from hansei.commands.search import search
from hansei.commands.trace import trace
from hansei.errors import HanseiError
from hansei.terminal import complain, say, show

GROUP = "hansei.commands"


class Commands(TyperGroup):
    """Commands whose expected errors are one clear line, and exit status 1."""

    def invoke(self, ctx: Any) -> Any:
        try:
            return super().invoke(ctx)
        except HanseiError as error:
            complain(error)
            raise typer.Exit(1) from None


app = typer.Typer(
    name="hansei",
    cls=Commands,
    help="Reflective memory for AI agents: traces in, lessons out.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
)
PANEL = "With a running service"
app.command("reflect", rich_help_panel=PANEL)(reflect)
app.command("search", rich_help_panel=PANEL)(search)
app.command("runs", rich_help_panel=PANEL)(runs)
app.command("budget", rich_help_panel=PANEL)(budget)
app.command("usage", rich_help_panel=PANEL)(usage)
for command in (proposals, accept, reject):
    playbook.command()(command)
app.add_typer(playbook, rich_help_panel=PANEL)
app.add_typer(trace, rich_help_panel=PANEL)
app.add_typer(memory, rich_help_panel=PANEL)
OWN = ("reflect", "search", "runs", "budget", "usage", "playbook", "trace", "memory")


def _show_version(wanted: bool) -> None:
    if wanted:
        show(f"hansei {version('hansei')}")
        raise typer.Exit


@app.callback()
def options(
    _version: Annotated[
        bool,
        typer.Option("--version", callback=_show_version, is_eager=True, help="Show the version."),
    ] = False,
) -> None:
    """Reflective memory for AI agents: traces in, lessons out."""


def load_others(into: typer.Typer) -> None:
    """Add the commands of other packages. One that does not load is named and left out."""
    for entry in entry_points(group=GROUP):
        try:
            entry.load()(into)
        except Exception as error:
            say(f"The commands of '{entry.name}' are missing: {type(error).__name__}: {error}")


def main() -> None:
    """The entry point `hansei`."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, TextIOWrapper):  # a terminal that cannot show a sign shows its number
            stream.reconfigure(errors="backslashreplace")
    if not set(sys.argv[1:2]) & {*OWN, "--version"}:
        load_others(app)
    app()
