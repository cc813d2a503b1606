"""`hansei openapi`: write the OpenAPI document."""

from __future__ import annotations

from pathlib import Path

from memory_api.api.openapi import document_text
from memory_api.core.settings import Settings
from memory_api.main import create_app


def openapi_text() -> str:
    """The document of this version. Needs no database."""
    return document_text(create_app(Settings.load()).openapi())


def run(file: Path) -> None:
    """Write the document to `file`."""
    file.write_text(openapi_text(), encoding="utf-8")
