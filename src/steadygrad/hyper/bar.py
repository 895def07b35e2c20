"""How a tuning shows itself: a bar on a terminal where rich is installed, plain lines elsewhere, or nothing."""

from __future__ import annotations

import importlib.util
import sys
import time
from collections.abc import Callable, Generator
from contextlib import contextmanager
from types import TracebackType
from typing import Any

from steadygrad.hyper.history import MetaStep

INTERVAL = 10.0
"""Seconds between plain lines."""


Tell = Callable[[int, int, str], None]
"""tell(done, total, text): what a bar would show."""
_listener: Tell | None = None


@contextmanager
def told_to(tell: Tell) -> Generator[None]:
    """Tunings in here draw nothing: what they would show is told instead."""
    global _listener
    before, _listener = _listener, tell
    try:
        yield
    finally:
        _listener = before


class Bar:
    """Shows where a tuning stands on the standard error stream; `shown=False` shows nothing."""

    def __init__(self, total: int, done: int, shown: bool) -> None:
        self._total, self._done = total, done
        self._shown = shown = shown and _listener is None
        self._rich: Any = None
        self._next = 0.0
        if shown and sys.stderr.isatty() and importlib.util.find_spec("rich") is not None:
            from rich.console import Console
            from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

            columns = (
                TextColumn("tuning"),
                BarColumn(),
                MofNCompleteColumn(),
                TimeRemainingColumn(),
                TextColumn("{task.description}"),
            )
            self._rich = Progress(*columns, console=Console(stderr=True))
            self._task = self._rich.add_task("", total=total, completed=done)

    def __enter__(self) -> Bar:
        if self._rich is not None:
            self._rich.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        if self._rich is not None:
            self._rich.stop()

    def step(self, entry: MetaStep, best: float) -> None:
        """Show a meta step."""
        if not entry.rejected:
            self._done += 1
        text = f"loss {entry.validation:.4g}, best {best:.4g}"
        if _listener is not None:
            _listener(self._done, self._total, text)
        if entry.rejected:  # the reason would leave no room for the bar; it is in the warning
            text = "rejected, half the way back" if self._rich is not None else f"rejected: {entry.rejected}"
        if self._rich is not None:
            self._rich.update(self._task, completed=self._done, description=text)
        elif self._shown and (entry.rejected or time.monotonic() >= self._next or self._done == self._total):
            self._next = time.monotonic() + INTERVAL
            print(f"tuning {self._done}/{self._total}: {text}", file=sys.stderr, flush=True)
