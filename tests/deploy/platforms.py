"""docs/packages.md: for which systems each pinned package has a wheel.

`python -m tests.deploy.platforms` asks the configured package index and writes the table. Nothing
is downloaded but metadata.
"""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path
from tempfile import TemporaryDirectory

from tests.support.paths import ROOT

DOCUMENT = ROOT / "docs/packages.md"
BEGIN = "<!-- platforms: made by python -m tests.deploy.platforms -->"
END = "<!-- end of platforms -->"
LOCK = ROOT / "requirements.lock"
PLATFORMS = {
    "Linux, x86-64": "x86_64-unknown-linux-gnu",
    "Linux, ARM64": "aarch64-unknown-linux-gnu",
    "macOS, ARM64": "aarch64-apple-darwin",
    "macOS, x86-64": "x86_64-apple-darwin",
    "Windows, x86-64": "x86_64-pc-windows-msvc",
}
PYTHONS = ("3.11", "3.12", "3.13", "3.14")
NO_WHEEL = re.compile(r"Because (?:only )?([\w.-]+)[=<> ].*?has no usable wheels", re.DOTALL)


def packages_without_wheel(platform: str, python: str) -> list[str]:
    """The packages of requirements.lock that would have to be built on this system."""
    missing: list[str] = []
    with TemporaryDirectory() as folder:
        lock = Path(folder) / "requirements.txt"
        while True:
            lock.write_text(_lock_without(missing))
            command = (
                *(sys.executable, "-m", "uv", "pip", "install", "--dry-run", "--no-deps"),
                *("--only-binary", ":all:", "--target", folder, "--requirements", str(lock)),
                *("--python-platform", platform, "--python-version", python),
            )
            done = subprocess.run(command, capture_output=True, text=True, check=False)
            if done.returncode == 0:
                return missing
            found = NO_WHEEL.search(done.stderr)
            if found is None or found[1] in missing:
                raise SystemExit(done.stderr)
            missing.append(found[1])


def _lock_without(names: list[str]) -> str:
    """requirements.lock without these packages and their hashes."""
    entries = re.split(r"\n(?=[\w-]+==)", LOCK.read_text(encoding="utf-8"))
    return "\n".join(entry for entry in entries if entry.split("==")[0] not in names)


def table() -> str:
    rows = [f"| system | {' | '.join(PYTHONS)} |", f"|---|{'---|' * len(PYTHONS)}"]
    for system, platform in PLATFORMS.items():
        cells = [
            f"all but {', '.join(f'`{name}`' for name in missing)}" if missing else "all"
            for missing in (packages_without_wheel(platform, python) for python in PYTHONS)
        ]
        rows.append(f"| {system} | {' | '.join(cells)} |")
    return "\n".join(rows)


def main() -> None:
    text = DOCUMENT.read_text(encoding="utf-8")
    before, rest = text.split(BEGIN)
    DOCUMENT.write_text(f"{before}{BEGIN}\n\n{table()}\n\n{END}{rest.split(END)[1]}")


if __name__ == "__main__":
    main()
