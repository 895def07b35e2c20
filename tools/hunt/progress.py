"""How far a hunt is, on stderr: a bar on a terminal, a line now and then anywhere else. What it finds goes to stdout."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterable, Iterator
from types import TracebackType

import rich.progress
from rich.console import Console

from steadygrad.paper.cli.progress import Pace, PlainColumn, duration

EVERY = 30.0
"""Seconds between two plain lines."""
INTERRUPTED = 130
"""The exit code after Ctrl-C, as shells have it."""


class Progress:
    """Counts problems and findings while a hunt runs; Ctrl-C ends the `with` block, and what comes after it sums up.

    with Progress("penalty", 100) as progress:
        for seed in progress.over(range(100)):
            progress.say("SILENT", seed)
    """

    def __init__(self, what: str, problems: int, console: Console | None = None) -> None:
        self.what, self.console = what, console or Console(stderr=True)
        self.pace = Pace(problems, 0)
        self.found: Counter[str] = Counter()
        self.interrupted = False
        self.shown = 0.0
        self.bar: rich.progress.Progress | None = None
        if self.console.is_terminal:
            title, words = PlainColumn("{task.description}"), PlainColumn("{task.fields[words]}")
            columns = title, rich.progress.BarColumn(bar_width=24), words
            # Stdout may be a file while stderr is a terminal, so rich shall not take it.
            self.bar = rich.progress.Progress(*columns, console=self.console, transient=True, redirect_stdout=False)
            self.task = self.bar.add_task(what, total=problems, words="")

    def __enter__(self) -> Progress:
        if self.bar is not None:
            self.bar.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> bool:
        if self.bar is not None:
            self.bar.stop()
        self.interrupted = kind is KeyboardInterrupt
        if self.interrupted:
            self.line(f"{self.what}: stopped after {self.counts}; found until then:")
        return self.interrupted

    def over(self, seeds: Iterable[int]) -> Iterator[int]:
        """The seeds one by one; asking for the next says that one is done."""
        self.show()
        for seed in seeds:
            yield seed
            self.pace.finish(str(seed))
            if self.bar is not None or time.monotonic() - self.shown >= EVERY:
                self.show()

    def say(self, kind: str, *words: object) -> None:
        """Print a finding, with the bar out of its way."""
        self.found[kind.lower()] += 1
        if self.bar is not None:
            self.bar.stop()
        print(kind, *words, flush=True)
        if self.bar is not None:
            self.bar.start()

    @property
    def counts(self) -> str:
        return f"{self.pace.ended}/{self.pace.total} problems"

    @property
    def words(self) -> str:
        """Problems done, what was found, and the time left."""
        found = ", ".join(f"{count} {kind}" for kind, count in self.found.items()) or "nothing found"
        left = self.pace.left()
        return f"{self.counts}, {found}" + (f", {duration(left)} left" if left is not None else "")

    def show(self) -> None:
        if self.bar is not None:
            self.bar.update(self.task, completed=self.pace.ended, words=self.words)
        else:
            self.line(f"{self.what}: {self.words}")
        self.shown = time.monotonic()

    def line(self, text: str) -> None:
        self.console.print(text, markup=False, highlight=False, soft_wrap=True)
