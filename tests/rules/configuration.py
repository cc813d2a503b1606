"""What is made from `Settings`: the table of docs/configuration.md, and the settings that
docker-compose.yml passes on and .env.example offers.

`python -m tests.rules.configuration` writes them anew.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from pydantic import AliasChoices

from memory_api.core.settings import Settings
from tests.support.paths import ROOT

DOCUMENT = ROOT / "docs" / "configuration.md"
COMPOSE = ROOT / "docker-compose.yml"
ENV_EXAMPLE = ROOT / ".env.example"
BEGIN, END = "<!-- table: made from Settings -->", "<!-- end of table -->"
BEGIN_COMPOSE, END_COMPOSE = "x-settings: &settings", "\n\nservices:"
BEGIN_ENV = "# Optional, passed on unchanged (docs/configuration.md)."
NOT_IN_COMPOSE = {"database_url", "worker_url", "owner_url", "data_dir", "playbook_data_dir"}
"""Compose makes the URLs from the passwords; the directories are those of `hansei up` and of the
library."""

EXAMPLES = {"worker_metrics_port": "9321"}
"""Values of the example where the default is unset."""


def names(field: str) -> list[str]:
    """The environment variables of a field, its own first."""
    alias = Settings.model_fields[field].validation_alias
    if isinstance(alias, AliasChoices):
        return [str(choice) for choice in alias.choices]
    return [f"HANSEI_{field.upper()}"]


def passed_on() -> list[str]:
    """The fields that compose passes on."""
    return [field for field in Settings.model_fields if field not in NOT_IN_COMPOSE]


def table() -> str:
    lines = ["| variable | default | meaning |", "|---|---|---|"]
    for field, info in Settings.model_fields.items():
        own, *aliases = names(field)
        also = f" Also read: {', '.join(f'`{alias}`' for alias in aliases)}." if aliases else ""
        meaning = f"{info.description}{also}".replace("|", "\\|")
        lines.append(f"| `{own}` | {_default(info.default)} | {meaning} |")
    return "\n".join(lines)


def _default(value: Any) -> str:
    text = _as_variable(value)
    return f"`{text}`" if text else "unset"


def _as_variable(value: Any) -> str:
    if value is None:
        return ""
    return str(value).lower() if isinstance(value, bool) else str(value)


def written(document: str) -> str:
    """The document with the table as it must be."""
    before, rest = document.split(BEGIN)
    return f"{before}{BEGIN}\n{table()}\n{END}{rest.split(END)[1]}"


def written_compose(file: str) -> str:
    """The compose file with every setting, by each of its names."""
    before, rest = file.split(BEGIN_COMPOSE)
    lines = [f"  {name}:" for field in passed_on() for name in names(field)]
    after = rest.split(END_COMPOSE, 1)[1]
    return f"{before}{BEGIN_COMPOSE}\n" + "\n".join(lines) + END_COMPOSE + after


def written_env(file: str) -> str:
    """The example with every setting at its default. The list is the end of the file."""
    fields = Settings.model_fields
    lines = [
        f"#{names(field)[0]}={EXAMPLES.get(field) or _as_variable(fields[field].default)}"
        for field in passed_on()
    ]
    return f"{file.split(BEGIN_ENV)[0]}{BEGIN_ENV}\n" + "\n".join(lines) + "\n"


MADE: dict[Path, Callable[[str], str]] = {
    DOCUMENT: written,
    COMPOSE: written_compose,
    ENV_EXAMPLE: written_env,
}


if __name__ == "__main__":
    for path, write in MADE.items():
        path.write_text(write(path.read_text(encoding="utf-8")), encoding="utf-8")
