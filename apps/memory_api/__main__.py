"""Server-side commands of `hansei`. Their options stand here; what they do stands in `commands/`.

The bodies are loaded when they run: `hansei search` should not wait for the server's imports.
"""

from __future__ import annotations

import importlib
from pathlib import Path
from typing import Annotated, Any

import typer

DataDir = Annotated[
    Path | None,
    typer.Option("--data-dir", help="The folder of `hansei up` (default .hansei)."),
]
Json = Annotated[bool, typer.Option("--json", help="One JSON document on standard output.")]
Host = Annotated[str, typer.Option(help="Address to listen on.")]
Port = Annotated[int, typer.Option(help="Port to listen on.", min=1, max=65535)]
Tenant = Annotated[str, typer.Option("--tenant", help="Name or UUID of the tenant.")]


def register(app: typer.Typer) -> None:
    """Add the server's commands to a command line (entry point `hansei.commands`)."""
    for command in (up, serve, worker, migrate, doctor, reembed):
        app.command()(command)
    app.command(hidden=True)(prepare)
    tenants = typer.Typer(help="Tenants of this server (owner connection).", no_args_is_help=True)
    tenants.command("create")(tenant_create)
    tenants.command("list")(tenant_list)
    app.add_typer(tenants, name="tenant")
    keys = typer.Typer(help="API keys of a tenant (owner connection).", no_args_is_help=True)
    keys.command("create")(key_create)
    keys.command("list")(key_list)
    keys.command("revoke")(key_revoke)
    app.add_typer(keys, name="key")


def up(
    host: Host = "127.0.0.1", port: Port = 8321, data_dir: DataDir = None, json: Json = False
) -> None:
    """Start everything on this machine: database, API, worker, a tenant and its key."""
    _run("up", host=host, port=port, data_dir=data_dir, json=json)


def serve(host: Host = "127.0.0.1", port: Port = 8321, data_dir: DataDir = None) -> None:
    """Run the API alone, on DATABASE_URL or the database of a data directory."""
    _run("serve", host=host, port=port, data_dir=data_dir)


def worker(data_dir: DataDir = None) -> None:
    """Run a worker, on HANSEI_WORKER_URL, DATABASE_URL or the database of a data directory."""
    _run("work", data_dir=data_dir)


def migrate(
    data_dir: DataDir = None,
    revision: Annotated[str, typer.Option(help="Where to go; the newest by default.")] = "head",
) -> None:
    """Bring the database to the newest schema, as its owner (HANSEI_OWNER_URL)."""
    _run("migrate", data_dir=data_dir, revision=revision)


def prepare(name: Annotated[str, typer.Argument()], data_dir: DataDir = None) -> None:
    """The first step of `up`: newest schema, a tenant, and a key for it, printed as JSON."""
    _run("prepare", name=name, data_dir=data_dir)


def doctor(data_dir: DataDir = None, json: Json = False) -> None:
    """Say what is wrong and how to mend it."""
    _run("doctor", data_dir=data_dir, json=json)


def reembed(
    tenant: Annotated[str | None, typer.Option(help="Name or UUID of the tenant.")] = None,
    every: Annotated[bool, typer.Option("--all", help="All active tenants, one by one.")] = False,
    provider: Annotated[str | None, typer.Option(help="static, openai or fastembed.")] = None,
    model: Annotated[str | None, typer.Option(help="The provider's name of the model.")] = None,
    dimensions: Annotated[
        int | None, typer.Option(help="Length of its vectors, where it can be chosen.", min=1)
    ] = None,
    base_url: Annotated[
        str | None, typer.Option(help="Another server than the settings name, with its /v1.")
    ] = None,
    cancel: Annotated[bool, typer.Option(help="Stop a move that is under way.")] = False,
    data_dir: DataDir = None,
    json: Json = False,
) -> None:
    """Move tenants to another embedding model while they are searched and written.

    Killed, it goes on where it was when it is run again.
    """
    _run(
        "reembed",
        tenant=tenant,
        every=every,
        provider=provider,
        model=model,
        dimensions=dimensions,
        base_url=base_url,
        cancel=cancel,
        data_dir=data_dir,
        json=json,
    )


def tenant_create(
    name: Annotated[str, typer.Argument(help="A slug or a UUID.")],
    data_dir: DataDir = None,
    json: Json = False,
) -> None:
    """Create a tenant."""
    _run("tenants", "create_tenant", name=name, data_dir=data_dir, json=json)


def tenant_list(data_dir: DataDir = None, json: Json = False) -> None:
    """List the tenants."""
    _run("tenants", "list_tenants", data_dir=data_dir, json=json)


def key_create(
    tenant: Tenant,
    scope: Annotated[
        list[str], typer.Option("--scope", help="read, write, admin or operator; may be repeated.")
    ] = ["write"],  # noqa: B006 - typer copies it
    project: Annotated[str | None, typer.Option(help="Bind the key to one project.")] = None,
    name: Annotated[str, typer.Option(help="What the key is for.")] = "",
    days: Annotated[int | None, typer.Option(help="Days until it expires.", min=1)] = None,
    data_dir: DataDir = None,
    json: Json = False,
) -> None:
    """Create an API key. It is shown this once."""
    _run(
        "tenants",
        "create_key",
        tenant=tenant,
        scopes=scope,
        project=project,
        name=name,
        days=days,
        data_dir=data_dir,
        json=json,
    )


def key_list(tenant: Tenant, data_dir: DataDir = None, json: Json = False) -> None:
    """List a tenant's keys, without their secrets."""
    _run("tenants", "list_keys", tenant=tenant, data_dir=data_dir, json=json)


def key_revoke(
    key: Annotated[str, typer.Argument(help="The key's id, or the key itself.")],
    tenant: Annotated[str | None, typer.Option(help="Needed when KEY is an id.")] = None,
    data_dir: DataDir = None,
) -> None:
    """Revoke a key. An API process that knows it refuses it within five seconds."""
    _run("tenants", "revoke_key", key=key, tenant=tenant, data_dir=data_dir)


def _run(module: str, function: str = "run", **options: Any) -> None:
    getattr(importlib.import_module(f"apps.memory_api.commands.{module}"), function)(**options)


if __name__ == "__main__":
    application = typer.Typer(no_args_is_help=True, add_completion=False)
    register(application)
    application()
