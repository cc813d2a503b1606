"""Where the files that are shipped beside the code are."""

from __future__ import annotations

from pathlib import Path

PACKAGE = Path(__file__).resolve().parents[1]


def shipped(name: str) -> Path:
    """A folder that stands at the top of a checkout and inside the package of a wheel
    (`migrations`, `prompts`).
    """
    packaged = PACKAGE / name
    return packaged if packaged.is_dir() else PACKAGE.parents[1] / name
