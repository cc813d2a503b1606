"""Folders of the project."""

from __future__ import annotations

from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
SHARED = ROOT.parent / "shared"
"""Data beside the project that is not part of it; tests that need it are skipped without it."""
