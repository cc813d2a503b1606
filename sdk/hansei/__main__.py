"""Runs the command line as `python -m hansei`."""

from __future__ import annotations

from hansei.cli.main import main

if __name__ == "__main__":
    main()
