"""The files that the command line writes."""

from __future__ import annotations

import errno
import os
import stat
import tempfile
from contextlib import suppress
from pathlib import Path


def regular_target(path: Path) -> Path | None:
    """Return the regular file that a path leads to, which may yet be made.

    None where it leads to a device, a pipe, a folder, or to what standard output is: a shell may
    have opened that to append to it.

    Raises:
        OSError: no file can be there.
    """
    try:
        found = path.stat()
    except (FileNotFoundError, NotADirectoryError) as error:
        target = path.resolve()
        if not target.parent.is_dir():
            text = f"there is no folder {target.parent}"
            raise FileNotFoundError(errno.ENOENT, text, str(path)) from error
        return target
    return path.resolve() if stat.S_ISREG(found.st_mode) and not _is_stdout(found) else None


def write_file(path: Path, text: str, mode: int = 0o640) -> None:
    """Write a file, or what a link leads to: the link stays.

    A regular file is replaced in one step, so that no reader sees half of it, and keeps its
    permissions and, where the user may set it, its owner. A device or a pipe is written to.

    Raises:
        OSError: it cannot be written; a regular file is as it was.
    """
    target = regular_target(path)
    if target is not None:
        _replace(target, text, mode)
        return
    # Without O_CREAT: what is gone by now was no regular file, and does not become one.
    opened = os.dup(1) if _is_stdout(path.stat()) else os.open(path, os.O_WRONLY | os.O_NOCTTY)
    with open(opened, "w", encoding="utf-8") as stream:
        stream.write(text)


def _replace(target: Path, text: str, mode: int) -> None:
    before = target.stat() if target.exists() else None
    descriptor, name = tempfile.mkstemp(prefix=f".{target.name[:32]}.", dir=target.parent)
    temporary = Path(name)
    try:
        with open(descriptor, "w", encoding="utf-8") as file:
            file.write(text)
            file.flush()
            if before is not None:
                # Only root gives files away, but a user may choose among groups of his own.
                for owner in (before.st_uid, -1):
                    with suppress(PermissionError):
                        os.fchown(descriptor, owner, before.st_gid)
                        break
                mode = stat.S_IMODE(before.st_mode)
            os.fchmod(descriptor, mode)
            os.fsync(descriptor)
        temporary.replace(target)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise


def _is_stdout(found: os.stat_result) -> bool:
    try:
        return os.path.samestat(found, os.fstat(1))
    except OSError:
        return False  # it was closed before the command began
