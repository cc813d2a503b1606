"""docs/packages.md: what `pip install hansei-server` brings.

`python -m tests.deploy.packages PYTHON` writes its table, for the Python of an environment that
contains nothing else.
"""

from __future__ import annotations

import json
import re
import subprocess
import sys

from tests.support.paths import ROOT

DOCUMENT = ROOT / "docs/packages.md"
BEGIN, END = "<!-- table: made by python -m tests.deploy.packages -->", "<!-- end of table -->"
LIST = """
import importlib.metadata, json, os, re
found = {}
for each in importlib.metadata.distributions():
    size = sum(os.path.getsize(f.locate()) for f in each.files or ()
               if not str(f).endswith(".pyc") and os.path.exists(f.locate()))
    needs = [[re.match(r"[\\w.-]+", need)[0], "extra ==" in need] for need in each.requires or ()]
    found[each.metadata["Name"]] = [size, needs]
print(json.dumps(found))
"""


def normal(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()


def reasons() -> dict[str, str]:
    """The comment of each direct dependency in both pyproject.toml."""
    found: dict[str, str] = {}
    for file in ("sdk/pyproject.toml", "pyproject.toml"):
        text = (ROOT / file).read_text().split("\ndependencies = [")[1].split("\n]")[0]
        for name, reason in re.findall(r'^  "([\w-]+).*?",\s*(?:# (.*))?$', text, re.MULTILINE):
            found[normal(name)] = reason
    return found


def table(python: str) -> tuple[list[str], int, float]:
    """The rows of an environment, largest first; the number of packages, and megabytes without
    bytecode."""
    done = subprocess.run([python, "-c", LIST], check=True, capture_output=True, text=True)
    packages = {normal(name): each for name, each in json.loads(done.stdout).items()}
    direct = reasons()
    rows = ["| package | MB | reason |", "|---|---|---|"]
    for name, (size, _) in sorted(packages.items(), key=lambda item: (-item[1][0], item[0])):
        users = {
            is_extra: sorted(
                other
                for other, (_, needs) in packages.items()
                if [name, is_extra] in [[normal(need), extra] for need, extra in needs]
            )
            for is_extra in (False, True)
        }
        reason = direct.get(name) or f"needed by {', '.join(users[False] or users[True])}"
        rows.append(f"| {name} | {size / 1e6:.1f} | {'Hansei' if 'hansei' in name else reason} |")
    return rows, len(packages), sum(size for size, _ in packages.values()) / 1e6


def write_table(rows: list[str]) -> None:
    text = DOCUMENT.read_text()
    before, rest = text.split(BEGIN)
    DOCUMENT.write_text("\n".join([before + BEGIN, "", *rows, "", END + rest.split(END)[1]]))


if __name__ == "__main__":
    write_table(table(sys.argv[1])[0])
