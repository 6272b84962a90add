"""Writing of files in one step, so that no reader sees half of one."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path


def replace_file(path: Path, text: str, mode: int = 0o640) -> None:
    """Replace a file, or the one that a link leads to.

    Args:
        path: of the file; its folder is there.
        text: content.
        mode: permissions of a new file; one that is there keeps its own.

    Raises:
        OSError: it cannot be written; it is as it was.
    """
    target = path.resolve()
    mode = target.stat().st_mode & 0o777 if target.exists() else mode
    descriptor, temporary = tempfile.mkstemp(prefix=f".{target.name}.", dir=target.parent)
    try:
        with os.fdopen(descriptor, "w", encoding="utf-8") as file:
            file.write(text)
        Path(temporary).chmod(mode)
        Path(temporary).replace(target)
    except OSError:
        Path(temporary).unlink(missing_ok=True)
        raise
