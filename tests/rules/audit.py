"""Known vulnerabilities of the locked dependencies: `python -m tests.rules.audit`.

Uses the indexes that pip and npm are configured with. A check that cannot reach its index is
skipped by name; a vulnerability fails.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from tests.support.paths import ROOT

PIP_AUDIT = "pip-audit==2.10.1"
TIMEOUT_SECONDS = 180


def python_problems(report: Any) -> list[str]:
    """The vulnerabilities in a report of pip-audit. Raises `ValueError` if it leaves out packages:
    the index does not know them, or nothing about vulnerabilities.
    """
    left_out = [package["name"] for package in report["dependencies"] if "skip_reason" in package]
    if left_out:
        raise ValueError(f"it does not know {left_out[0]} and {len(left_out) - 1} others")
    return [
        f"{package['name']} {package['version']}: {found['id']}"
        for package in report["dependencies"]
        for found in package.get("vulns", ())
    ]


def npm_problems(report: Any) -> list[str]:
    """The vulnerabilities in a report of npm. Raises `ValueError` if it is none."""
    if "vulnerabilities" not in report:
        raise ValueError(report.get("message") or "no report")
    return [f"{name}: {found['severity']}" for name, found in report["vulnerabilities"].items()]


def run_report(command: Sequence[str], folder: Path = ROOT) -> Any:
    """The JSON that a command prints. Raises `ValueError` or `OSError` without one."""
    try:
        done = subprocess.run(
            command, cwd=folder, capture_output=True, text=True, timeout=TIMEOUT_SECONDS
        )
    except subprocess.TimeoutExpired as error:
        raise ValueError(f"no answer within {TIMEOUT_SECONDS} seconds") from error
    try:
        return json.loads(done.stdout)
    except ValueError:
        last = (done.stderr.strip() or "no output").splitlines()[-1]
        raise ValueError(last) from None


def main() -> int:
    uv = Path(sys.executable).with_name("uv")
    audit = [str(uv), "tool", "run", PIP_AUDIT, "--disable-pip", "--require-hashes", "-f", "json"]
    checks = [
        (f"pip-audit of {name}", [*audit, "-r", name], ROOT, python_problems)
        for name in ("requirements.lock", "requirements-dev.lock")
    ]
    npm = ["npm", "audit", "--json", "--package-lock-only"]
    checks.append(("npm audit", npm, ROOT / "sdk" / "typescript", npm_problems))
    is_bad = False
    for name, command, folder, problems_of in checks:
        try:
            problems = problems_of(run_report(command, folder))
        except (ValueError, OSError) as error:
            print(f"{name} is skipped: its index cannot be reached ({error})")  # noqa: T201
            continue
        is_bad = is_bad or bool(problems)
        print(f"{name}: {len(problems)} vulnerabilities", *problems, sep="\n  ")  # noqa: T201
    return int(is_bad)


if __name__ == "__main__":
    sys.exit(main())
