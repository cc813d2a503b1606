"""`python -m bench` lists the benches; `python -m bench NAME [ARGS]` runs one; `all` runs each."""

from __future__ import annotations

import ast
import subprocess
import sys
from pathlib import Path

FOLDER = Path(__file__).parent


def benches() -> dict[str, str]:
    """Return name → first line of the docstring, for each module that can be run."""
    found: dict[str, str] = {}
    for path in sorted(FOLDER.glob("*.py")):
        source = path.read_text(encoding="utf8")
        if path.name != "__main__.py" and '__name__ == "__main__"' in source:
            found[path.stem] = (ast.get_docstring(ast.parse(source)) or "").split("\n")[0]
    return found


def run(name: str, arguments: list[str]) -> int:
    """Run in a new process, so that a bench does not benefit from the caches of another."""
    return subprocess.call([sys.executable, "-m", f"bench.{name}", *arguments])


def main(arguments: list[str]) -> int:
    known = benches()
    if not arguments or arguments[0] not in {*known, "all"}:
        for name, about in known.items():
            print(f"{name:20} {about}")
        return 2 if arguments else 0
    names = list(known) if arguments[0] == "all" else [arguments[0]]
    return max(run(name, arguments[1:]) for name in names)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
