"""Where a cluster lives and which account runs it.

PostgreSQL refuses to run as root, and `initdb` cannot work below a folder that its account may not
enter. So:

- a normal user's cluster is `<data_dir>/postgres/`;
- root's is `/var/lib/hansei/<random>/`, named by the file `<data_dir>/postgres-home` and run by an
  unprivileged account. The folder itself belongs to root; only `data/` in it to the account.
"""

from __future__ import annotations

import os
import pwd
import secrets
from dataclasses import dataclass
from pathlib import Path

from apps.memory_api.embedded.errors import EmbeddedPostgresError

STATE_ROOT = Path("/var/lib/hansei")
POINTER = "postgres-home"


@dataclass(frozen=True)
class Account:
    """The unprivileged account that root runs the server as."""

    uid: int
    gid: int


@dataclass(frozen=True)
class Home:
    """The folder of one cluster. `account` is None when the caller runs the server as itself."""

    path: Path
    account: Account | None

    @property
    def data(self) -> Path:
        return self.path / "data"

    @property
    def log(self) -> Path:
        return self.path / "postgres.log"

    @property
    def owner(self) -> int:
        """Uid of the server, and so of its files and its socket folder."""
        return self.account.uid if self.account else os.geteuid()

    def give(self, path: Path) -> None:
        """Let the server's account own `path`, which this process has just made."""
        if self.account:
            os.chown(path, self.account.uid, self.account.gid, follow_symlinks=False)


def open_home(data_dir: Path) -> Home:
    """Find or make the home of `data_dir`'s cluster.

    Any number of processes may call it at once. Raises EmbeddedPostgresError when the folder cannot
    be used or belongs to another user.
    """
    try:
        data_dir.mkdir(mode=0o700, parents=True, exist_ok=True)
        return _root_home(data_dir) if os.geteuid() == 0 else _own_home(data_dir)
    except OSError as error:
        raise EmbeddedPostgresError(f"cannot use the data folder {data_dir}: {error}") from error


def user_name(uid: int) -> str:
    try:
        return pwd.getpwuid(uid).pw_name
    except KeyError:
        return f"uid {uid}"


def _own_home(data_dir: Path) -> Home:
    if (data_dir / POINTER).exists():
        raise EmbeddedPostgresError(
            f"{data_dir} was set up by root: run as root, or choose another data folder"
        )
    path = data_dir / "postgres"
    path.mkdir(mode=0o700, exist_ok=True)
    _require_owner(path, os.geteuid())
    return Home(path, None)


def _root_home(data_dir: Path) -> Home:
    local = data_dir / "postgres"
    if local.exists():
        _require_owner(local, 0)
    pointer = data_dir / POINTER
    if not pointer.exists():
        _write_first(pointer, str(STATE_ROOT / secrets.token_hex(6)))
    path = Path(pointer.read_text().strip())
    if path.parent != STATE_ROOT:
        raise EmbeddedPostgresError(f"{pointer} names {path}, which is not in {STATE_ROOT}")
    path.mkdir(mode=0o755, parents=True, exist_ok=True)
    for folder in (STATE_ROOT, path):  # whatever the umask says, the account must get through
        folder.chmod(0o755)
    _require_owner(path, 0)
    # Whose it is, for people: the home stays when the data folder is deleted by hand. It is never
    # deleted unasked, since a volume that is not mounted looks the same.
    (path / "data-dir").write_text(f"{data_dir}\n")
    return Home(path, _account(path / "data"))


def _require_owner(path: Path, uid: int) -> None:
    owner = path.lstat().st_uid
    if owner != uid:
        raise EmbeddedPostgresError(
            f"{path} belongs to {user_name(owner)}, not to {user_name(uid)}:"
            " run as its owner, or choose another data folder"
        )


def _write_first(path: Path, text: str) -> None:
    """Create `path` with its text in one step; of several writers the first wins."""
    draft = path.with_name(f"{path.name}.{secrets.token_hex(4)}")
    draft.write_text(text)
    try:
        os.link(draft, path)
    except FileExistsError:
        return
    finally:
        draft.unlink()


def _account(data: Path) -> Account:
    """The account that owns the cluster already; for a new one HANSEI_PG_USER, postgres, nobody."""
    if data.exists():
        made = data.stat()
        return Account(made.st_uid, made.st_gid)
    asked = os.environ.get("HANSEI_PG_USER")
    for name in [asked] if asked else ["postgres", "nobody"]:
        try:
            found = pwd.getpwnam(name)
        except KeyError:
            continue
        if found.pw_uid != 0:
            return Account(found.pw_uid, found.pw_gid)
    wanted = f"HANSEI_PG_USER={asked} is not one" if asked else "set HANSEI_PG_USER to one"
    raise EmbeddedPostgresError(f"root needs an unprivileged account for PostgreSQL: {wanted}")
