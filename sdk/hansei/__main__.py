"""`python -m hansei`."""

from __future__ import annotations

from hansei.cli import main

if __name__ == "__main__":
    main()
