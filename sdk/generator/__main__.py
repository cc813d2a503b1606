"""Writes the models and the resources of the Python client from `openapi.json`, and the synchronous
client from the asynchronous one: `make client`.
"""

# pyright: basic
# The document is JSON of any form.

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

from sdk.generator.models import generate_models, generate_params
from sdk.generator.resources import generate_resources
from sdk.generator.schemas import expanded
from sdk.generator.synchronous import to_synchronous

ROOT = Path(__file__).resolve().parents[2]
PACKAGE = ROOT / "sdk" / "hansei"


def generate() -> dict[str, str]:
    """The generated files by name, as `ruff format` writes them."""
    document = expanded(json.loads((ROOT / "openapi.json").read_text(encoding="utf-8")))
    texts = {
        "models.py": generate_models(document),
        "params.py": generate_params(document),
        "async_resources.py": generate_resources(document),
        **{
            name: (PACKAGE / name).read_text(encoding="utf-8")
            for name in ("async_client.py", "_async_resource.py")
        },
    }
    for name, text in list(texts.items()):
        if "async_" in name:
            texts[name.replace("async_", "")] = to_synchronous(text)
    return {name: _format(name, text) for name, text in texts.items()}


def _format(name: str, text: str) -> str:
    ruff = Path(sys.executable).with_name("ruff")
    path = str(PACKAGE / name)
    for command in (
        ["check", "--quiet", "--fix", "--select", "I,F401", "--stdin-filename", path, "-"],
        ["format", "--quiet", "--stdin-filename", path, "-"],
    ):
        text = subprocess.run(
            [ruff, *command], input=text, capture_output=True, text=True, check=True, cwd=ROOT
        ).stdout
    return text


def main() -> None:
    for name, text in generate().items():
        (PACKAGE / name).write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
