"""Locks on the trials that are being run, as every run on the same folder sees them."""

from __future__ import annotations

import contextlib
import fcntl
import os
from pathlib import Path
from types import TracebackType

from steadygrad.paper.records import LOCKS

PRESENCE = 0  # the byte that every run on the folder holds shared; trials follow it


class TrialLocks:
    """A trial is one byte of one file, locked while the trial runs.

    POSIX record locks belong to the process: the kernel takes them back however the process ends, and workers do not hold them.
    They also go when the process closes any handle of the file, so nobody else opens it. The last run to leave removes the file.
    """

    def __init__(self, folder: Path) -> None:
        self.path = folder / LOCKS
        self.file = -1

    def __enter__(self) -> TrialLocks:
        self.path.parent.mkdir(parents=True, exist_ok=True)
        while True:
            self.file = os.open(self.path, os.O_RDWR | os.O_CREAT, 0o666)
            fcntl.lockf(self.file, fcntl.LOCK_SH, 1, PRESENCE)
            with contextlib.suppress(FileNotFoundError):
                if os.path.samestat(os.fstat(self.file), os.stat(self.path)):
                    return self
            os.close(self.file)  # another run removed the file between our open and our lock

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        if self.lock(fcntl.LOCK_EX, PRESENCE):
            self.path.unlink(missing_ok=True)
        os.close(self.file)

    def take(self, trial: str) -> bool:
        """Whether the trial is ours now. False where another run has it."""
        return self.lock(fcntl.LOCK_EX, byte(trial))

    def release(self, trial: str) -> None:
        fcntl.lockf(self.file, fcntl.LOCK_UN, 1, byte(trial))

    def lock(self, kind: int, start: int) -> bool:
        try:
            fcntl.lockf(self.file, kind | fcntl.LOCK_NB, 1, start)
        except (BlockingIOError, PermissionError):  # POSIX allows EAGAIN and EACCES
            return False
        return True


def byte(trial: str) -> int:
    """60 bits of the trial's name, a place far inside the 63 that a file has."""
    return 1 + int(trial[:15], 16)
