"""Errors of extras that are not installed."""

from __future__ import annotations


def needs_extra(extra: str, error: ModuleNotFoundError) -> ModuleNotFoundError:
    """The error of a module whose package is not installed, with the command that installs it."""
    text = f"{error.name} is not installed. Install it with `pip install 'hansei[{extra}]'`."
    return ModuleNotFoundError(text, name=error.name, path=error.path)
