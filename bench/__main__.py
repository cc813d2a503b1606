"""`python -m bench` lists the benches; `python -m bench NAME [ARGS]` runs one; `all` runs each."""

from __future__ import annotations

import ast
import subprocess
import sys
from pathlib import Path

FOLDER = Path(__file__).parent


def benches() -> dict[str, str]:
    """The modules that can be run, with the first line of their docstring."""
    found: dict[str, str] = {}
    for path in sorted(FOLDER.glob("*.py")):
        source = path.read_text(encoding="utf8")
        if path.name != "__main__.py" and '__name__ == "__main__"' in source:
            found[path.stem] = (ast.get_docstring(ast.parse(source)) or "").split("\n")[0]
    return found


def run(name: str, arguments: list[str]) -> int:
    """In a process of its own, so that one bench does not warm another."""
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
