"""Write files so that a reader sees all of the old one or all of the new one."""

from __future__ import annotations

import os
import secrets
from collections.abc import Callable
from pathlib import Path
from typing import BinaryIO

UNFINISHED = ".part"
"""How the names of files end that a killed writer may leave behind."""


def write_atomically(path: Path, content: bytes | str | Callable[[BinaryIO], None], beside: Path | None = None) -> None:
    """Write a file beside `path`, flush it to the disk, and rename it: a reader sees the old file or the new one, never a part.

    `content` is bytes, text, or a function that writes into an open file. The file beside has a name of its own for every call,
    so that two writers do not meet; `beside` gives it a fixed one, of which a killed writer leaves one at most. The folder is
    made where it is missing. Needs a file system on which renaming is atomic, as POSIX asks.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     path = Path(folder) / "deep" / "numbers.txt"
    ...     write_atomically(path, b"1 2 3")
    ...     path.read_bytes(), len(list(path.parent.iterdir()))
    (b'1 2 3', 1)
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    own = path.with_name(f".{path.stem}.{os.getpid()}-{secrets.token_hex(4)}{UNFINISHED}")
    unfinished = own if beside is None else beside
    try:
        with unfinished.open("wb") as file:
            if isinstance(content, (bytes, str)):
                file.write(content.encode() if isinstance(content, str) else content)
            else:
                content(file)
            file.flush()
            os.fsync(file.fileno())
        os.replace(unfinished, path)
    except BaseException:
        unfinished.unlink(missing_ok=True)
        raise
    sync_folder(path.parent)


def sync_folder(folder: Path) -> None:
    """Make a renaming in a folder survive a loss of power, where the system lets a folder be flushed.

    >>> sync_folder(Path("."))
    """
    if os.name != "posix":
        return
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
