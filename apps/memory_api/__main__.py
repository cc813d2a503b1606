"""The options of the server commands of `hansei`. The bodies are in `commands/`.

A body is imported when its command runs, so that client commands such as `hansei search` do not
wait for the server's imports.
"""

from __future__ import annotations

import gc
import importlib
from pathlib import Path
from typing import Annotated, Any

import typer

DataDir = Annotated[
    Path | None,
    typer.Option(
        "--data-dir",
        help="Data directory of `hansei up`, with its database and API key. Default: .hansei.",
    ),
]
Json = Annotated[bool, typer.Option("--json", help="Print the result as one JSON document.")]
Host = Annotated[str, typer.Option(help="Address to listen on.")]
Port = Annotated[int, typer.Option(help="Port to listen on.", min=1, max=65535)]
Processes = Annotated[
    int | None,
    typer.Option(
        "--processes",
        help="API processes. They share the port. Default: one per core, at most 4.",
        min=1,
        max=64,
    ),
]
Tenant = Annotated[str, typer.Option("--tenant", help="Tenant name or UUID.")]
OneTenant = Annotated[str | None, typer.Option("--tenant", help="Tenant name or UUID.")]
AllTenants = Annotated[bool, typer.Option("--all", help="All active tenants, one after the other.")]
TenantName = Annotated[str, typer.Argument(help="Tenant name or UUID.")]


def register(app: typer.Typer) -> None:
    """Add the server commands to `app`. Entry point of the group `hansei.commands`."""
    commands = (up, demo, serve, worker, migrate, distribute, doctor, top, reembed, maintain)
    for command in (*commands, openapi):
        app.command()(command)
    app.command(hidden=True)(prepare)
    tenants = typer.Typer(
        help="Manage tenants, with HANSEI_OWNER_URL or the database of a data directory.",
        no_args_is_help=True,
    )
    tenants.command("create")(tenant_create)
    tenants.command("list")(tenant_list)
    tenants.command("suspend")(tenant_suspend)
    tenants.command("resume")(tenant_resume)
    tenants.command("export")(tenant_export)
    tenants.command("sql-role")(tenant_sql_role)
    app.add_typer(tenants, name="tenant")
    keys = typer.Typer(
        help="Manage API keys, with HANSEI_OWNER_URL or the database of a data directory.",
        no_args_is_help=True,
    )
    keys.command("create")(key_create)
    keys.command("list")(key_list)
    keys.command("revoke")(key_revoke)
    app.add_typer(keys, name="key")


def up(
    host: Host = "127.0.0.1",
    port: Port = 8321,
    data_dir: DataDir = None,
    processes: Processes = None,
    json: Json = False,
) -> None:
    """Start Hansei on this machine: database, API and worker, with a tenant and an API key."""
    _run("up", host=host, port=port, data_dir=data_dir, processes=processes, json=json)


def demo(
    tenant: Annotated[str, typer.Option(help="Tenant of the demo.")] = "demo",
    remove: Annotated[
        bool, typer.Option("--remove", help="Delete the tenant of the demo.")
    ] = False,
    data_dir: DataDir = None,
    json: Json = False,
) -> None:
    """Load two months of recorded history of two desks into a tenant of its own."""
    _run("demo", tenant=tenant, remove=remove, data_dir=data_dir, json=json)


def serve(
    host: Host = "127.0.0.1",
    port: Port = 8321,
    data_dir: DataDir = None,
    processes: Processes = None,
    listen_fd: Annotated[int | None, typer.Option("--listen-fd", hidden=True)] = None,
) -> None:
    """Run the API server, with HANSEI_DATABASE_URL or the database of a data directory."""
    address = {"host": host, "port": port, "data_dir": data_dir}
    if processes == 1:
        _run("processes", "run_serve", **address, listen_fd=listen_fd)
    else:
        _run("api_processes", "run_processes", **address, processes=processes)


def worker(data_dir: DataDir = None) -> None:
    """Run a worker, with HANSEI_WORKER_URL, HANSEI_DATABASE_URL or the database of a data
    directory.
    """
    _run("processes", "run_worker_command", data_dir=data_dir)


def migrate(
    data_dir: DataDir = None,
    revision: Annotated[str, typer.Option(help="Target revision.")] = "head",
) -> None:
    """Migrate the database to the newest schema, with HANSEI_OWNER_URL or the database of a data
    directory.
    """
    _run("migrate", "run_migrate", data_dir=data_dir, revision=revision)


def distribute(
    shards: Annotated[int, typer.Option(min=1, max=1024, help="Number of shards.")] = 32,
) -> None:
    """Distribute all tables by tenant over the nodes of a Citus cluster, with HANSEI_OWNER_URL.
    Stop the service first: distribution blocks writes.

    If the command is interrupted, run it again to continue.
    """
    _run("distribution", shards=shards)


def prepare(name: Annotated[str, typer.Argument()], data_dir: DataDir = None) -> None:
    """Migrate, create a tenant and an API key, and print the key as JSON. `up` runs this first."""
    _run("migrate", "run_prepare", name=name, data_dir=data_dir)


def doctor(data_dir: DataDir = None, json: Json = False) -> None:
    """Check the installation and show how to fix each problem."""
    _run("doctor", data_dir=data_dir, json=json)


def top(
    url: Annotated[
        list[str] | None,
        typer.Option(
            help="Address of an API process or of a worker's metrics port. Can be repeated. "
            "Default: HANSEI_URL, or API and worker of `hansei up`; and the worker of "
            "HANSEI_WORKER_METRICS_PORT."
        ),
    ] = None,
    token: Annotated[
        str | None,
        typer.Option(help="Token of the metrics.", envvar="HANSEI_METRICS_TOKEN"),
    ] = None,
    interval: Annotated[float, typer.Option(help="Seconds between two refreshes.", min=0.5)] = 2.0,
    once: Annotated[bool, typer.Option(help="Print the figures once and exit.")] = False,
    data_dir: DataDir = None,
    json: Json = False,
) -> None:
    """Show the queue, runs, model calls, cost and the slowest routes, and refresh them."""
    _run(
        "top",
        urls=url or [],
        token=token,
        interval=interval,
        once=once,
        data_dir=data_dir,
        json=json,
    )


def reembed(
    tenant: OneTenant = None,
    all_tenants: AllTenants = False,
    provider: Annotated[
        str | None, typer.Option(help="Embedding provider: static, openai or fastembed.")
    ] = None,
    model: Annotated[str | None, typer.Option(help="Model name at the provider.")] = None,
    dimensions: Annotated[
        int | None, typer.Option(help="Vector length, if the model supports several.", min=1)
    ] = None,
    base_url: Annotated[
        str | None,
        typer.Option(
            help="Base URL of the server, with /v1, if it is not the one in the settings."
        ),
    ] = None,
    cancel: Annotated[bool, typer.Option(help="Cancel a running move.")] = False,
    data_dir: DataDir = None,
    json: Json = False,
) -> None:
    """Move tenants to another embedding model. Searches and writes continue meanwhile.

    If the command is interrupted, run it again to continue.
    """
    _run(
        "reembed",
        tenant=tenant,
        all_tenants=all_tenants,
        provider=provider,
        model=model,
        dimensions=dimensions,
        base_url=base_url,
        cancel=cancel,
        data_dir=data_dir,
        json=json,
    )


def maintain(
    task: Annotated[str, typer.Argument(help="Name of the task, such as pruning or indexes.")],
    tenant: OneTenant = None,
    all_tenants: AllTenants = False,
    apply: Annotated[
        bool, typer.Option(help="For pruning: archive what the latest report lists.")
    ] = False,
    trace: Annotated[
        list[str] | None, typer.Option(help="For dreaming: ID of a trace to read. Repeatable.")
    ] = None,
    session: Annotated[
        list[str] | None, typer.Option(help="For dreaming: a session to read. Repeatable.")
    ] = None,
    interval: Annotated[
        float | None, typer.Option(help="Repeat every so many seconds until stopped.", min=1)
    ] = None,
    data_dir: DataDir = None,
    json: Json = False,
) -> None:
    """Run a maintenance task now, whatever its schedule says, and print its result."""
    _run(
        "maintain",
        task=task,
        tenant=tenant,
        all_tenants=all_tenants,
        apply=apply,
        traces=trace or [],
        sessions=session or [],
        interval=interval,
        data_dir=data_dir,
        json=json,
    )


def openapi(file: Annotated[Path, typer.Argument(help="The file to write.")]) -> None:
    """Write the OpenAPI document of the HTTP API to a file."""
    _run("export_openapi", file=file)


def tenant_create(
    name: Annotated[str, typer.Argument(help="Tenant name (a slug) or UUID.")],
    data_dir: DataDir = None,
    json: Json = False,
) -> None:
    """Create a tenant."""
    _run("tenants", "create_tenant", name=name, data_dir=data_dir, json=json)


def tenant_list(data_dir: DataDir = None, json: Json = False) -> None:
    """List the tenants."""
    _run("tenants", "list_tenants", data_dir=data_dir, json=json)


def tenant_suspend(name: TenantName, data_dir: DataDir = None) -> None:
    """Stop a tenant: its keys are rejected and its runs wait. Its data stays."""
    _run("tenants", "set_tenant_status", name=name, status="suspended", data_dir=data_dir)


def tenant_resume(name: TenantName, data_dir: DataDir = None) -> None:
    """Let a suspended tenant work again."""
    _run("tenants", "set_tenant_status", name=name, status="active", data_dir=data_dir)


def tenant_export(
    name: TenantName,
    output: Annotated[
        Path | None, typer.Option(help="File to write. Default: standard output.")
    ] = None,
    data_dir: DataDir = None,
) -> None:
    """Write all rows of a tenant as NDJSON, without vectors and secrets."""
    _run("tenant_export", "export_tenant", name=name, output=output, data_dir=data_dir)


def tenant_sql_role(
    name: TenantName,
    drop: Annotated[
        str | None, typer.Option(metavar="ROLE", help="Delete this login of the tenant.")
    ] = None,
    console: Annotated[
        bool, typer.Option("--console", help="Store the login for the SQL page of the console.")
    ] = False,
    data_dir: DataDir = None,
    json: Json = False,
) -> None:
    """Create a read-only database login for the analytics of one tenant, and print its URL once."""
    if drop is not None:
        _run("sql_logins", "drop_sql_role", tenant=name, role=drop, data_dir=data_dir)
        return
    _run(
        "sql_logins",
        "create_sql_role",
        tenant=name,
        data_dir=data_dir,
        json=json,
        console=console,
    )


def key_create(
    tenant: Tenant,
    scope: Annotated[
        list[str],
        typer.Option("--scope", help="read, write, admin or operator. Can be repeated."),
    ] = ["write"],  # noqa: B006 - typer copies it
    project: Annotated[str | None, typer.Option(help="Bind the key to one project.")] = None,
    name: Annotated[str, typer.Option(help="Description of the key.")] = "",
    days: Annotated[int | None, typer.Option(help="Days until it expires.", min=1)] = None,
    data_dir: DataDir = None,
    json: Json = False,
) -> None:
    """Create an API key and print it. It cannot be shown again."""
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
    """List the API keys of a tenant, without their secrets."""
    _run("tenants", "list_keys", tenant=tenant, data_dir=data_dir, json=json)


def key_revoke(
    key: Annotated[str, typer.Argument(help="The key or its ID.")],
    tenant: Annotated[
        str | None, typer.Option(help="Tenant name or UUID. Required if KEY is an ID.")
    ] = None,
    data_dir: DataDir = None,
) -> None:
    """Revoke an API key. All API processes reject it within five seconds."""
    _run("tenants", "revoke_key", key=key, tenant=tenant, data_dir=data_dir)


def _run(module: str, function: str = "run", **options: Any) -> None:
    gc.disable()  # imports create no garbage: collections are a sixth of their time
    try:
        body = importlib.import_module(f"memory_api.commands.{module}")
    finally:
        gc.enable()
    getattr(body, function)(**options)


if __name__ == "__main__":
    application = typer.Typer(no_args_is_help=True, add_completion=False)
    register(application)
    application()
