"""The folder of the server's unix socket: short, private and really ours."""

from __future__ import annotations

import os
import stat
import tempfile
from hashlib import sha256
from pathlib import Path

from apps.memory_api.embedded.errors import EmbeddedPostgresError
from apps.memory_api.embedded.home import Home, user_name

PORT = 5432
SOCKET = f".s.PGSQL.{PORT}"
_LONGEST_FOLDER = 80  # a socket's path may hold about 100 bytes


def socket_dir_of(home: Home) -> Path:
    """The folder that a server of `home` started from here would use."""
    name = f"hansei-{sha256(os.fsencode(home.path)).hexdigest()[:16]}"
    path = Path(tempfile.gettempdir(), name)
    return path if len(os.fsencode(path)) <= _LONGEST_FOLDER else Path("/tmp", name)


def choose_socket_dir(home: Home) -> Path:
    """That folder: made when missing, else checked."""
    path = socket_dir_of(home)
    try:
        path.mkdir(mode=0o700)
    except FileExistsError:
        if path.lstat().st_uid == os.geteuid() != home.owner:  # we died before giving it away
            check_socket_dir(path, os.geteuid())
            home.give(path)
    else:
        home.give(path)
    check_socket_dir(path, home.owner)
    return path


def check_socket_dir(path: Path, owner: int) -> None:
    """Whoever owns the folder can put a socket of theirs there and be sent our passwords."""
    found = path.lstat()
    if not stat.S_ISDIR(found.st_mode):
        problem = "is not a folder"
    elif found.st_uid != owner:
        problem = f"belongs to {user_name(found.st_uid)}, not to {user_name(owner)}"
    elif found.st_mode & 0o077:
        problem = f"is open to others (mode {stat.S_IMODE(found.st_mode):04o}, not 0700)"
    else:
        return
    raise EmbeddedPostgresError(
        f"the socket folder {path} {problem}: remove it, or set TMPDIR to a folder of your own"
    )
