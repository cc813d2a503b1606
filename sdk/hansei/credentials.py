"""Which service to talk to, and with which key.

`hansei up` writes `credentials.json` into its data folder, readable by its owner only (mode 0600):

    {"url": "http://127.0.0.1:8321", "api_key": "hsk_…", "tenant": "default"}

`url` and `api_key` are needed, `tenant` (the slug) is told for people, further fields are ignored.
Whoever writes the file elsewhere keeps that form; `save` does. It is looked for in

1. `HANSEI_DATA_DIR`, and nowhere else when that is set;
2. `.hansei` in the current folder, then in each folder above it;
3. `~/.hansei`.
"""

from __future__ import annotations

import json
import os
import stat
import warnings
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, cast

from hansei.errors import NotConfigured

FOLDER = ".hansei"
FILE = "credentials.json"
DEFAULT_URL = "http://127.0.0.1:8321"


class CredentialsWarning(UserWarning):
    """Something about the credentials file is unsafe, and they are used all the same."""


@dataclass(frozen=True)
class Credentials:
    url: str
    api_key: str | None
    tenant: str | None = None

    def __repr__(self) -> str:
        return f"Credentials(url={self.url!r}, tenant={self.tenant!r})"


def resolve(url: str | None = None, api_key: str | None = None) -> Credentials:
    """What was given, else HANSEI_URL and HANSEI_API_KEY, else what is stored.

    A stored key is only ever sent to the URL it was stored with. Raises `NotConfigured` when no
    service is known at all.
    """
    url = url or os.environ.get("HANSEI_URL") or None
    api_key = api_key or os.environ.get("HANSEI_API_KEY") or None
    if url and api_key:
        return Credentials(_clean_url(url), api_key)
    stored = load()
    if url:
        url = _clean_url(url)
        return stored if stored and stored.url == url else Credentials(url, None)
    if api_key:
        return Credentials(stored.url if stored else DEFAULT_URL, api_key)
    if stored is None:
        raise NotConfigured(
            "No service is known: run `hansei up` here, or set HANSEI_URL and HANSEI_API_KEY."
        )
    return stored


def load(data_dir: str | os.PathLike[str] | None = None) -> Credentials | None:
    """The stored credentials of `data_dir`, or of the nearest data folder; None when there are
    none.

    Warns when other users can read the file. Raises `NotConfigured` when it cannot be read.
    """
    path = Path(data_dir) / FILE if data_dir is not None else find()
    if path is None or not path.is_file():
        return None
    try:
        text = path.read_text(encoding="utf-8")
        _warn_if_open(path)
    except (OSError, UnicodeDecodeError) as error:
        raise NotConfigured(f"{path} cannot be read: {error}.") from error
    return _parse(path, text)


def save(data_dir: str | os.PathLike[str], credentials: Credentials) -> Path:
    """Store them in `data_dir`, for its owner's eyes only, and return the file. Nobody ever reads
    half a file.
    """
    folder = Path(data_dir)
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    path = folder / FILE
    draft = folder / f".{FILE}.{os.getpid()}"
    draft.unlink(missing_ok=True)
    with os.fdopen(os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w") as file:
        json.dump(asdict(credentials), file, indent=2)
        file.write("\n")
    draft.replace(path)
    return path


def find(start: str | os.PathLike[str] | None = None) -> Path | None:
    """The credentials file nearest to `start` (default: the current folder)."""
    for folder in _folders(Path(start) if start is not None else None):
        path = folder / FILE
        if path.is_file() and _is_ours(path):
            return path
    return None


def _folders(start: Path | None) -> Iterator[Path]:
    chosen = os.environ.get("HANSEI_DATA_DIR")
    if chosen and start is None:
        yield Path(chosen).expanduser()
        return
    here = (start or Path.cwd()).resolve()
    for folder in (here, *here.parents):
        yield folder / FOLDER
    yield Path.home() / FOLDER


def _is_ours(path: Path) -> bool:
    """Whether the caller (or root) wrote it: what somebody else left in a folder above, /tmp say,
    must not decide where traces are sent.
    """
    if os.name == "nt" or os.geteuid() == 0:
        return True
    return path.stat().st_uid in (0, os.geteuid())


def _warn_if_open(path: Path) -> None:
    if os.name != "nt" and path.stat().st_mode & (stat.S_IRGRP | stat.S_IROTH):
        warnings.warn(
            f"Other users can read {path}, which holds an API key: chmod 600 it.",
            CredentialsWarning,
            stacklevel=3,
        )


def _parse(path: Path, text: str) -> Credentials:
    try:
        value: object = json.loads(text)
    except ValueError:
        value = None
    fields = cast("dict[str, Any]", value) if isinstance(value, dict) else {}
    url, api_key, tenant = fields.get("url"), fields.get("api_key"), fields.get("tenant")
    if not (isinstance(url, str) and isinstance(api_key, str) and url and api_key):
        raise NotConfigured(f"{path} does not hold a url and an api_key; `hansei up` writes it.")
    return Credentials(_clean_url(url), api_key, tenant if isinstance(tenant, str) else None)


def _clean_url(url: str) -> str:
    """Without a slash at the end. Raises `NotConfigured` for what is not an HTTP address."""
    url = url.strip().rstrip("/")
    if not url.startswith(("http://", "https://")):
        raise NotConfigured(f"'{url}' is not a URL: it has to start with http:// or https://.")
    return url
