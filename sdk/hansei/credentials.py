"""Finds the URL of the service and the API key.

`hansei up` writes `credentials.json` into its data directory, with mode 0600:

    {"url": "http://127.0.0.1:8321", "api_key": "hsk_…", "tenant": "default",
     "worker_metrics_url": "http://127.0.0.1:40123"}

`url` and `api_key` are required. `tenant` (the slug) is informative. `worker_metrics_url` is for
`hansei top`. Other fields are ignored.
The client looks for the file in this order:

1. `HANSEI_DATA_DIR`; if it is set, no other directory is searched
2. `.hansei` in the current directory, then in each parent directory
3. `~/.hansei`

A file of step 2 can come with a cloned repository, so it may name a service on this machine only,
by host and port, and no key but its own is sent there. If the user has the file of step 3, a file
of step 2 is used only if `hansei up` of this user wrote its URL and key: an empty file in the state
folder of the user, named by both, says so.
"""

from __future__ import annotations

import hashlib
import json
import logging
import os
import re
import stat
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, cast

from hansei._file_limit import MAX_SETTINGS_BYTES, read_file
from hansei.errors import BadRequestError, ConfigurationError
from hansei.private_folder import state_folder

DATA_DIR = ".hansei"
FILE_NAME = "credentials.json"
DEFAULT_URL = "http://127.0.0.1:8321"
_LOCAL_URL = re.compile(r"https?://(localhost|127(\.\d{1,3}){3}|\[::1\])(:\d{1,5})?", re.IGNORECASE)
"""A URL of this machine, without user, password, path and query: a path would choose what requests
do at any service of this machine.
"""


_PASSWORD = re.compile(r"(://[^/?#@]*:)[^/?#]*@")


@dataclass(frozen=True)
class Credentials:
    url: str
    api_key: str | None
    tenant: str | None = None
    worker_metrics_url: str | None = None

    def __repr__(self) -> str:
        return f"Credentials(url={without_password(self.url)!r}, tenant={self.tenant!r})"


def without_password(url: str) -> str:
    """The URL for messages and logs."""
    return _PASSWORD.sub(r"\1***@", url)


def account_id(credentials: Credentials) -> str:
    """Identifies the service and the key: what waits for one account is sent to no other."""
    text = f"{credentials.url} {credentials.api_key}"
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()[:40]


def resolve_credentials(url: str | None = None, api_key: str | None = None) -> Credentials:
    """The arguments, otherwise HANSEI_URL and HANSEI_API_KEY, otherwise the credentials file.

    A stored key is only sent to the URL that it was stored with. A key of the arguments or of the
    environment is not sent to a URL that a file of the current folder or above names. Raises
    `ConfigurationError` if no URL is found, or none that may be used.
    """
    url = url or os.environ.get("HANSEI_URL") or None
    api_key = api_key or os.environ.get("HANSEI_API_KEY") or None
    if url and api_key:
        return Credentials(_normalize_url(url), api_key)
    path = find_file()
    stored = load_credentials()
    if url:
        url = _normalize_url(url)
        return stored if stored and stored.url == url else Credentials(url, None)
    if api_key:
        if stored and path and stored.api_key != api_key and not _is_of_user(path):
            raise ConfigurationError(
                f"HANSEI_URL is not set, and {path} contains another API key than the one given."
                " A key is not sent to an address from the current folder or above."
                " Set HANSEI_URL, too."
            )
        return Credentials(stored.url if stored else DEFAULT_URL, api_key)
    if stored is None:
        raise ConfigurationError(
            "No credentials found in this folder, a folder above it or your home folder. Run "
            "`hansei up` in one of them, or set HANSEI_URL and HANSEI_API_KEY."
        )
    return stored


def load_credentials(data_dir: str | os.PathLike[str] | None = None) -> Credentials | None:
    """The credentials of `data_dir`, or of the nearest data directory; None if there are none.

    Warns if other users can read the file. Raises `ConfigurationError` if it cannot be read, and if
    a file of the current folder or above names a service of another machine.
    """
    path = Path(data_dir) / FILE_NAME if data_dir is not None else find_file()
    if path is None or not path.is_file():
        return None
    try:
        text = read_file(path, MAX_SETTINGS_BYTES).decode("utf-8")
        _warn_if_readable_by_others(path)
    except (OSError, UnicodeDecodeError, BadRequestError) as error:
        raise ConfigurationError(f"{path} cannot be read: {error}.") from error
    found = _parse_credentials(path, text)
    if data_dir is None and not _is_of_user(path):
        for url in filter(None, (found.url, found.worker_metrics_url)):
            _require_local(url, path)
    return found


def save_credentials(data_dir: str | os.PathLike[str], credentials: Credentials) -> Path:
    """Write the credentials file atomically with mode 0600, and note that this user did. Returns
    its path.
    """
    folder = Path(data_dir)
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    path = folder / FILE_NAME
    draft = folder / f".{FILE_NAME}.{os.getpid()}"
    draft.unlink(missing_ok=True)
    with os.fdopen(os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w") as file:
        known = {name: value for name, value in asdict(credentials).items() if value is not None}
        json.dump(known, file, indent=2)
        file.write("\n")
    draft.replace(path)
    with suppress(OSError, RuntimeError):  # without a home, the user has no other account
        mark = _mark_of(credentials)
        mark.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        mark.touch(mode=0o600)
    return path


def find_file(start: str | os.PathLike[str] | None = None) -> Path | None:
    """The credentials file nearest to `start` (default: the current directory). If the user has an
    account, only files that this user wrote.
    """
    has_account = (data_dir_of_user() / FILE_NAME).is_file()
    for folder in _search_path(Path(start) if start is not None else None):
        path = folder / FILE_NAME
        if not path.is_file() or not _is_trusted(path):
            continue
        if not has_account or _is_of_user(path) or _is_written_by_user(path):
            return path
    return None


def _search_path(start: Path | None) -> Iterator[Path]:
    chosen = os.environ.get("HANSEI_DATA_DIR")
    if chosen and start is None:
        yield Path(chosen).expanduser()
        return
    here = (start or Path.cwd()).resolve()
    for folder in (here, *here.parents):
        yield folder / DATA_DIR
    yield Path.home() / DATA_DIR


def _is_written_by_user(path: Path) -> bool:
    """Whether `save_credentials` of this user wrote this URL and key, in whatever folder."""
    try:
        text = read_file(path, MAX_SETTINGS_BYTES).decode("utf-8")
        return _mark_of(_parse_credentials(path, text)).is_file()
    except (OSError, UnicodeDecodeError, BadRequestError, ConfigurationError):
        return False


def _mark_of(credentials: Credentials) -> Path:
    return state_folder() / "accounts" / account_id(credentials)


def data_dir_of_user() -> Path:
    """HANSEI_DATA_DIR, otherwise `.hansei` in the home folder."""
    chosen = os.environ.get("HANSEI_DATA_DIR")
    return Path(chosen).expanduser() if chosen else Path.home() / DATA_DIR


def is_chosen_by_user() -> bool:
    """Whether no file of the current folder or above names the URL."""
    path = find_file()
    return bool(os.environ.get("HANSEI_URL")) or path is None or _is_of_user(path)


def require_chosen_by_user() -> None:
    """Raises `ConfigurationError` if a file of the current folder or above names the URL."""
    if not is_chosen_by_user():
        path = cast("Path", find_file())
        raise ConfigurationError(
            f"{path} can come with a cloned repository. Set HANSEI_URL and HANSEI_API_KEY, or"
            f" HANSEI_DATA_DIR={path.parent}, to use it in every folder."
        )


def _is_of_user(path: Path) -> bool:
    """Whether the user chose the folder of the file: HANSEI_DATA_DIR or the home folder."""
    return path.parent.resolve() == data_dir_of_user().resolve()


def _require_local(url: str, path: Path) -> None:
    if not _LOCAL_URL.fullmatch(url):
        raise ConfigurationError(
            f"{path} names {without_password(url)}. A file in the current folder or above may only"
            " name a service on this machine, by host and port, because it can come with a cloned"
            " repository. To use it, set HANSEI_URL and HANSEI_API_KEY, or"
            f" HANSEI_DATA_DIR={path.parent}."
        )


def _is_trusted(path: Path) -> bool:
    """Whether the current user or root owns the file. Root may choose a folder of another user.

    A file that another user left in a parent directory such as /tmp must not receive traces.
    """
    if os.name == "nt" or (os.geteuid() == 0 and _is_of_user(path)):
        return True
    return path.stat().st_uid in (0, os.geteuid())


def _warn_if_readable_by_others(path: Path) -> None:
    if os.name != "nt" and path.stat().st_mode & (stat.S_IRGRP | stat.S_IROTH):
        logging.getLogger("hansei").warning(
            "Other users can read %s, which contains an API key. Run `chmod 600` on it.", path
        )


def _parse_credentials(path: Path, text: str) -> Credentials:
    try:
        value: object = json.loads(text)
    except (ValueError, RecursionError):
        value = None
    fields = cast("dict[str, Any]", value) if isinstance(value, dict) else {}
    url, api_key = fields.get("url"), fields.get("api_key")
    if not (isinstance(url, str) and isinstance(api_key, str) and url and api_key):
        raise ConfigurationError(
            f"{path} has no `url` or no `api_key`. Run `hansei up` to write it again."
        )
    optional = {
        name: found
        for name in ("tenant", "worker_metrics_url")
        if isinstance(found := fields.get(name), str)
    }
    return Credentials(_normalize_url(url), api_key, **optional)


def _normalize_url(url: str) -> str:
    """Removes the trailing slash. Raises `ConfigurationError` if it is not an HTTP URL."""
    url = url.strip().rstrip("/")
    if not url.startswith(("http://", "https://")):
        raise ConfigurationError(
            f"'{without_password(url)}' is not a valid URL: it must start with http:// or https://."
        )
    return url
