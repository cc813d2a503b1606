"""The table of docs/configuration.md, made from `Settings`.

`python -m tests.rules.configuration` writes it anew.
"""

from __future__ import annotations

from typing import Any

from pydantic import AliasChoices

from apps.memory_api.core.settings import Settings
from tests.support.paths import ROOT

DOCUMENT = ROOT / "docs" / "configuration.md"
BEGIN, END = "<!-- table: made from Settings -->", "<!-- end of table -->"


def names(field: str) -> list[str]:
    """The environment variables of a field, its own first."""
    alias = Settings.model_fields[field].validation_alias
    if isinstance(alias, AliasChoices):
        return [str(choice) for choice in alias.choices]
    return [f"HANSEI_{field.upper()}"]


def table() -> str:
    lines = ["| variable | default | meaning |", "|---|---|---|"]
    for field, info in Settings.model_fields.items():
        own, *aliases = names(field)
        also = f" Also read: {', '.join(f'`{alias}`' for alias in aliases)}." if aliases else ""
        meaning = f"{info.description}{also}".replace("|", "\\|")
        lines.append(f"| `{own}` | {_default(info.default)} | {meaning} |")
    return "\n".join(lines)


def _default(value: Any) -> str:
    if value is None:
        return "unset"
    return f"`{str(value).lower() if isinstance(value, bool) else value}`"


def written(document: str) -> str:
    """The document with the table as it must be."""
    before, rest = document.split(BEGIN)
    return f"{before}{BEGIN}\n{table()}\n{END}{rest.split(END)[1]}"


if __name__ == "__main__":
    DOCUMENT.write_text(written(DOCUMENT.read_text(encoding="utf-8")), encoding="utf-8")
