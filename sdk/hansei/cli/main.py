"""The `hansei` command.

It contains the commands that use the HTTP API. hansei-server adds its own (up, serve, worker, …)
through the entry point group `hansei.commands`: each entry point is a callable
`register(app: typer.Typer) -> None`. They load only when needed, so that client commands start
fast.
"""

from __future__ import annotations

import inspect
import re
import sys
from importlib.metadata import entry_points, version
from io import TextIOWrapper
from typing import Annotated, Any

import typer
from typer.core import TyperGroup

from hansei.cli.agents import agent_commands
from hansei.cli.analytics import show_analytics
from hansei.cli.audit import list_audit_log
from hansei.cli.bootstrap import bootstrap
from hansei.cli.budgets import budget_commands, show_usage
from hansei.cli.collections import collection_commands
from hansei.cli.commands import command
from hansei.cli.erasures import erase
from hansei.cli.evaluations import evaluation_commands
from hansei.cli.hooks import hook_commands
from hansei.cli.mcp import run_mcp
from hansei.cli.memories import memory_commands
from hansei.cli.playbooks import playbook_commands
from hansei.cli.proposals import proposal_commands
from hansei.cli.reflect import reflect
from hansei.cli.runs import run_commands
from hansei.cli.search import search
from hansei.cli.spool import spool_commands
from hansei.cli.terminal import print_error, print_message, print_text, sanitize
from hansei.cli.traces import trace_commands
from hansei.cli.webhooks import webhook_commands
from hansei.errors import HanseiError

ENTRY_POINT_GROUP = "hansei.commands"
PANELS = {
    "Start": ("up", "demo", "doctor", "top"),
    "Learn": ("reflect", "playbook", "proposal", "search", "trace", "run", "analytics", "eval"),
    "Connect": ("hooks", "mcp", "bootstrap", "spool", "webhook"),
    "Memories and documents": ("memory", "collection", "agent"),
    "Access, costs and personal data": ("tenant", "key", "budget", "usage", "erase", "audit"),
    "Operate": ("serve", "worker", "migrate", "maintain", "reembed", "distribute", "openapi"),
}
"""All commands in the order of the help."""
SERVER_COMMANDS = frozenset({*PANELS["Start"], *PANELS["Operate"], "tenant", "key"})
CLIENT_COMMANDS = frozenset(name for names in PANELS.values() for name in names) - SERVER_COMMANDS


class HanseiGroup(TyperGroup):
    """Prints expected errors without a traceback, with exit status 1. Help texts fill the width of
    the terminal.
    """

    def __init__(self, **attributes: Any) -> None:
        super().__init__(**attributes)
        _fill_help_texts(self)
        for panel, names in PANELS.items():
            for name in self.commands.keys() & set(names):
                self.commands[name].rich_help_panel = panel  # type: ignore[attr-defined]

    def list_commands(self, ctx: Any) -> list[str]:
        order = [name for names in PANELS.values() for name in names]
        return [n for n in order if n in self.commands] + sorted(self.commands.keys() - {*order})

    def invoke(self, ctx: Any) -> Any:
        try:
            return super().invoke(ctx)
        except HanseiError as error:
            print_error(error)
            raise typer.Exit(1) from None
        except typer.BadParameter as error:
            error.message = sanitize(error.message)  # Typer prints the names of files unchanged
            raise

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        if args[0] in SERVER_COMMANDS - self.commands.keys() and not _has_server():
            print_message(
                f"`hansei {args[0]}` is part of hansei-server, which is not installed here. "
                "Run it where the service is installed: in a checkout, `.venv/bin/hansei`."
            )
            raise typer.Exit(1)
        return super().resolve_command(ctx, args)


def _fill_help_texts(group: TyperGroup) -> None:
    """Join the lines of each paragraph, because Typer does it only in the first one."""
    for each in group.commands.values():
        if each.help:
            each.help = re.sub(r"(?<=\S)\n(?=[^\s*-])", " ", inspect.cleandoc(each.help))
        if isinstance(each, TyperGroup):
            _fill_help_texts(each)


app = typer.Typer(
    name="hansei",
    cls=HanseiGroup,
    help="A memory of mistakes for AI agents: what their runs teach is in the next prompt.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
)
app.command("reflect")(reflect)
command(app, "search")(search)
for group in (
    playbook_commands,
    proposal_commands,
    memory_commands,
    collection_commands,
    agent_commands,
    trace_commands,
    run_commands,
    budget_commands,
    hook_commands,
    spool_commands,
    webhook_commands,
    evaluation_commands,
):
    app.add_typer(group)
command(app, "usage")(show_usage)
command(app, "analytics")(show_analytics)
command(app, "erase")(erase)
command(app, "audit")(list_audit_log)
app.command("bootstrap")(bootstrap)
app.command("mcp")(run_mcp)


def _print_version(requested: bool) -> None:
    if requested:
        print_text(f"hansei {version('hansei')}")
        raise typer.Exit


@app.callback()
def set_options(
    _version: Annotated[
        bool,
        typer.Option("--version", callback=_print_version, is_eager=True, help="Show the version."),
    ] = False,
) -> None:
    """A memory of mistakes for AI agents: what their runs teach is in the next prompt."""


def load_server_commands(target: typer.Typer) -> None:
    """Add the commands of installed entry points. One that fails to load is reported."""
    for entry_point in entry_points(group=ENTRY_POINT_GROUP):
        try:
            entry_point.load()(target)
        except Exception as error:
            reason = f"{type(error).__name__}: {error}"
            print_message(f"Cannot load the commands of '{entry_point.name}': {reason}")


def main() -> None:
    """The console script `hansei`."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, TextIOWrapper):  # a terminal may lack some characters
            stream.reconfigure(errors="backslashreplace")
    if not CLIENT_COMMANDS & set(sys.argv[1:2]) and sys.argv[1:2] != ["--version"]:
        load_server_commands(app)
    if sys.argv[1:] == ["--help"]:  # lists groups without their commands, which Typer would build
        for group in app.registered_groups:
            if group.typer_instance is not None:
                group.typer_instance.registered_commands.clear()
    app()


def _has_server() -> bool:
    return bool(entry_points(group=ENTRY_POINT_GROUP))
