"""How tunings show themselves: one by a bar on a terminal where rich is installed, by plain lines elsewhere; several by lines."""

from __future__ import annotations

import importlib.util
import sys
import time
from collections.abc import Callable, Generator, Mapping
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


class Overview:
    """A line on the standard error stream when a tuning ends, and now and then how far the others are."""

    def __init__(self, starts: Mapping[str, Any], shown: bool) -> None:
        self._starts, self._shown = starts, shown
        self._running: dict[str, str] = {}
        self._ended = 0
        self._next = time.monotonic() + INTERVAL

    def step(self, name: str, message: tuple[int, int, str]) -> None:
        """How far a tuning is: meta steps done, of how many, and a word."""
        done, total, text = message
        self._running[name] = f"{self._starts[name]!r:.40} at {done}/{total}, {text}" if total else text
        if time.monotonic() >= self._next:
            self._next = time.monotonic() + INTERVAL
            self._say("; ".join(self._running.values()))

    def ended(self, name: str, came: str) -> None:
        """What has come of a tuning."""
        self._running.pop(name, None)
        self._ended += 1
        self._say(f"{self._starts[name]!r:.40}: {came}")

    def _say(self, text: str) -> None:
        if self._shown:
            print(f"tunings {self._ended}/{len(self._starts)}: {text}", file=sys.stderr, flush=True)
