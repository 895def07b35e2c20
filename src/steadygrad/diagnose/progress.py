"""What a diagnosis is doing, on the terminal, for as long as it takes."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable

Report = Callable[[str], None]

PATIENCE = 1.0
"""Seconds after which someone at a terminal wonders."""


class Progress:
    """Names each part as it begins: to `report` if given, else in one line on stderr that is wiped at the end.

    The line appears only on a terminal, and only once PATIENCE is over; a log or a notebook gets nothing.
    """

    def __init__(self, report: Report | None) -> None:
        self._report = report
        self._started = time.monotonic()
        self._width = 0

    def begin(self, part: str) -> None:
        """A part begins."""
        if self._report is not None:
            self._report(part)
        elif sys.stderr.isatty() and time.monotonic() - self._started > PATIENCE:
            self._write(f"sg.diagnose: {part} …")

    def end(self) -> None:
        """Wipe the line, if there is one."""
        if self._width:
            self._write("")
            sys.stderr.write("\r")
            sys.stderr.flush()

    def _write(self, text: str) -> None:
        sys.stderr.write("\r" + text.ljust(self._width))
        sys.stderr.flush()
        self._width = len(text)
