"""The data directory: folders, server account, socket folder and passwords.

PostgreSQL refuses to run as root, and `initdb` needs access to all parent folders. Therefore:

- the cluster of a normal user is in `<data_dir>/postgres/`;
- the cluster of root is in `/var/lib/hansei/<random>/` and runs as an unprivileged account. The
  file `<data_dir>/postgres-home` has its path. Root owns the folder, and the account owns only
  `data/` in it.

`<data_dir>/postgres-passwords.json` (mode 0600) has the passwords of all roles.
"""

from __future__ import annotations

import json
import os
import pwd
import secrets
import stat
import tempfile
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path

from memory_api.core.errors import HanseiError


class EmbeddedPostgresError(HanseiError):
    """The embedded PostgreSQL is not available."""

    code = "embedded_postgres"


class PortUnavailable(HanseiError):
    """The port is not available."""

    code = "port_unavailable"


SUPERUSER = "postgres"
OWNER, APP, WORKER = "hansei_owner", "hansei_app", "hansei_worker"
PASSWORD_FILE = "postgres-passwords.json"


def load_passwords(data_dir: Path, *, fresh: bool) -> dict[str, str]:
    """Return role → password. Creates the file for a `fresh` cluster. The caller holds the lock.

    Raises EmbeddedPostgresError if the cluster exists but its password file does not.
    """
    path = data_dir / PASSWORD_FILE
    try:
        return json.loads(path.read_text())
    except FileNotFoundError:
        if not fresh:
            raise EmbeddedPostgresError(
                f"The password file {path} is missing. Restore it, or use another data directory."
            ) from None
    except (OSError, ValueError) as error:
        raise EmbeddedPostgresError(f"Cannot read {path}: {error}") from error
    passwords = {role: secrets.token_urlsafe(24) for role in (SUPERUSER, OWNER, APP, WORKER)}
    write_private(path, json.dumps(passwords, indent=2) + "\n")
    return passwords


def write_private(path: Path, text: str) -> None:
    """Write a file that only its owner can read. Replaces `path` atomically."""
    draft = path.with_name(f"{path.name}.{secrets.token_hex(4)}")
    with open(os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w") as file:
        file.write(text)
        file.flush()
        os.fsync(file.fileno())
    draft.replace(path)


ROOT_DATA_DIRECTORY = Path("/var/lib/hansei")
LOCATION_FILE = "postgres-home"
CLUSTER_FOLDER = "postgres"


@dataclass(frozen=True)
class ServerAccount:
    """The unprivileged account of the server if root starts it."""

    uid: int
    gid: int


@dataclass(frozen=True)
class ClusterDirectory:
    """The folder of a cluster. `account` is None if the server runs as the current user."""

    path: Path
    account: ServerAccount | None

    @property
    def data(self) -> Path:
        return self.path / "data"

    @property
    def log(self) -> Path:
        return self.path / "postgres.log"

    @property
    def server_uid(self) -> int:
        """The user ID of the server, which owns its files and its socket folder."""
        return self.account.uid if self.account else os.geteuid()

    def chown_to_server(self, path: Path) -> None:
        """Make the server's account the owner of a new file or folder."""
        if self.account:
            os.chown(path, self.account.uid, self.account.gid, follow_symlinks=False)


def open_cluster_directory(data_dir: Path) -> ClusterDirectory:
    """Find or create the folder of the cluster of `data_dir`.

    Several processes may call it concurrently. Raises EmbeddedPostgresError if the folder cannot be
    used or belongs to another user.
    """
    try:
        data_dir.mkdir(mode=0o700, parents=True, exist_ok=True)
        return _open_as_root(data_dir) if os.geteuid() == 0 else _open_as_user(data_dir)
    except OSError as error:
        raise EmbeddedPostgresError(f"Cannot use the data directory {data_dir}: {error}") from error


def user_name(uid: int) -> str:
    try:
        return pwd.getpwuid(uid).pw_name
    except KeyError:
        return f"uid {uid}"


def _open_as_user(data_dir: Path) -> ClusterDirectory:
    if (data_dir / LOCATION_FILE).exists():
        raise EmbeddedPostgresError(
            f"The data directory {data_dir} was created by root."
            " Run as root, or use another data directory."
        )
    path = data_dir / CLUSTER_FOLDER
    path.mkdir(mode=0o700, exist_ok=True)
    _require_owner(path, os.geteuid())
    return ClusterDirectory(path, None)


def _open_as_root(data_dir: Path) -> ClusterDirectory:
    local = data_dir / CLUSTER_FOLDER
    if local.exists():
        _require_owner(local, 0)
    pointer = data_dir / LOCATION_FILE
    if not pointer.exists():
        new = ROOT_DATA_DIRECTORY / secrets.token_hex(6)
        new.mkdir(mode=0o755, parents=True)
        if not _create_file(pointer, str(new)):
            new.rmdir()
    path = Path(pointer.read_text().strip())
    if path.parent != ROOT_DATA_DIRECTORY:
        raise EmbeddedPostgresError(
            f"The path {path} in {pointer} is not in {ROOT_DATA_DIRECTORY}."
        )
    if not path.exists():
        raise EmbeddedPostgresError(
            f"The database folder {path} of {data_dir} is missing. Restore it from your backup. To"
            f" start with an empty database, delete {pointer}."
        )
    for folder in (ROOT_DATA_DIRECTORY, path):
        folder.chmod(0o755)  # the account needs access, whatever the umask is
    _require_owner(path, 0)
    # Tells people which data directory the folder belongs to. The folder stays if the data
    # directory is deleted by hand. It is not deleted automatically, because an unmounted volume
    # looks the same.
    (path / "data-dir").write_text(f"{data_dir}\n")
    return ClusterDirectory(path, _find_account(path / "data"))


def _require_owner(path: Path, uid: int) -> None:
    owner = path.lstat().st_uid
    if owner != uid:
        raise EmbeddedPostgresError(
            f"{path} belongs to {user_name(owner)} and not to {user_name(uid)}."
            " Run as its owner, or use another data directory."
        )


def _create_file(path: Path, text: str) -> bool:
    """Create `path` with its text atomically. Returns False if it exists."""
    draft = path.with_name(f"{path.name}.{secrets.token_hex(4)}")
    draft.write_text(text)
    try:
        os.link(draft, path)
    except FileExistsError:
        return False
    else:
        return True
    finally:
        draft.unlink()


def _find_account(data: Path) -> ServerAccount:
    """The owner of an existing cluster. For a new cluster: HANSEI_PG_USER, else postgres or
    nobody.
    """
    if data.exists():
        status = data.stat()
        return ServerAccount(status.st_uid, status.st_gid)
    configured = os.environ.get("HANSEI_PG_USER")
    for name in [configured] if configured else ["postgres", "nobody"]:
        try:
            account = pwd.getpwnam(name)
        except KeyError:
            continue
        if account.pw_uid != 0:
            return ServerAccount(account.pw_uid, account.pw_gid)
    problem = f"HANSEI_PG_USER={configured} is not one." if configured else "Set HANSEI_PG_USER."
    raise EmbeddedPostgresError(
        f"PostgreSQL needs an unprivileged account if it is started by root. {problem}"
    )


PORT = 5432
SOCKET = f".s.PGSQL.{PORT}"
_MAX_SOCKET_FOLDER_BYTES = 80  # the path of a socket is limited to about 100 bytes


def default_socket_dir(home: ClusterDirectory) -> Path:
    """The socket folder of a server that this process would start."""
    name = f"hansei-{sha256(os.fsencode(home.path)).hexdigest()[:16]}"
    path = Path(tempfile.gettempdir(), name)
    return path if len(os.fsencode(path)) <= _MAX_SOCKET_FOLDER_BYTES else Path("/tmp", name)


def choose_socket_dir(home: ClusterDirectory) -> Path:
    """Create the default socket folder, or check it if it exists."""
    path = default_socket_dir(home)
    try:
        path.mkdir(mode=0o700)
    except FileExistsError:
        # A process that was killed before `chown_to_server` leaves a folder of its own user.
        if path.lstat().st_uid == os.geteuid() != home.server_uid:
            check_socket_dir(path, os.geteuid())
            home.chown_to_server(path)
    else:
        home.chown_to_server(path)
    check_socket_dir(path, home.server_uid)
    return path


def check_socket_dir(path: Path, owner: int) -> None:
    """Check the owner and the mode of a socket folder. With write access to it, another user could
    create a socket there and receive our passwords.
    """
    status = path.lstat()
    if not stat.S_ISDIR(status.st_mode):
        problem = "is not a folder"
    elif status.st_uid != owner:
        problem = f"belongs to {user_name(status.st_uid)} and not to {user_name(owner)}"
    elif status.st_mode & 0o077:
        problem = f"has mode {stat.S_IMODE(status.st_mode):04o} and not 0700"
    else:
        return
    raise EmbeddedPostgresError(
        f"The socket folder {path} {problem}. Delete it, or set TMPDIR to a private folder."
    )
