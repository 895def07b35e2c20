"""How a run shows itself: a live bar for each experiment on a terminal, plain lines anywhere else."""

from __future__ import annotations

import time
from collections.abc import Sequence

from rich.console import Console
from rich.progress import BarColumn, Progress, TaskID, TextColumn
from rich.table import Table
from rich.text import Text

from steadygrad.paper.cli.printable import printable
from steadygrad.paper.engine import Listener
from steadygrad.paper.experiments.experiment import Experiment
from steadygrad.paper.records import Record, Stranger

HEARTBEAT = 60.0  # seconds after which a plain line comes although no trial has ended


class Pace:
    """Where a run stands, and the time left: the work left at the speed of the work done, parts of running trials included."""

    def __init__(self, total: int, known: int) -> None:
        self.total, self.ended, self.known = total, known, known
        self.running: dict[str, float] = {}
        self.start = time.monotonic()

    def step(self, trial: str, fraction: float) -> None:
        self.running[trial] = fraction

    def finish(self, trial: str) -> None:
        self.running.pop(trial, None)
        self.ended += 1

    @property
    def completed(self) -> float:
        return self.ended + sum(self.running.values())

    def left(self) -> float | None:
        """Seconds; None while nothing is known."""
        done = self.completed - self.known
        return (time.monotonic() - self.start) / done * (self.total - self.completed) if done > 0 else None


class Display(Listener):
    """Keeps the state that both displays show."""

    def __init__(self, experiment: Experiment, console: Console) -> None:
        self.experiment, self.console = experiment, console
        self.records: list[Record] = []
        self.pace = Pace(0, 0)
        self.note = ""

    def begin(self, total: int, known: Sequence[Record], strangers: Sequence[Stranger]) -> None:
        for stranger in strangers:
            self.say(f"{self.experiment.name}: not read as a result: {stranger.path} ({stranger.reason})")
        self.pace = Pace(total, len(known))
        self.records = list(known)
        self.show()

    def step(self, trial: str, fraction: float, note: str) -> None:
        self.pace.step(trial, fraction)
        self.note = note

    def again(self, trial: str, reason: str, attempt: int) -> None:
        self.pace.step(trial, 0.0)
        self.say(f"{self.experiment.name}: trial {trial} starts again, attempt {attempt}: {reason}")

    def finished(self, record: Record) -> None:
        self.pace.finish(record.trial)
        self.records.append(record)
        if not record.done:
            self.say(f"{self.experiment.name}: trial {record.trial} failed: {last_line(record.error)}")
        self.show()

    def show(self) -> None:
        """Draw the state. A display overrides this."""

    def say(self, text: str) -> None:
        self.console.print(printable(text), markup=False, highlight=False, soft_wrap=True)

    @property
    def counts(self) -> str:
        failed = sum(not record.done for record in self.records)
        return f"{self.pace.ended}/{self.pace.total}" + (f" ({failed} failed)" if failed else "")

    @property
    def headline(self) -> str:
        """The running result. An experiment that cannot put it into words shall not stop its own run."""
        done = [record for record in self.records if record.done]
        try:
            return self.experiment.headline(done) if done else ""
        except Exception as error:
            return f"no headline: {error!r}"

    @property
    def running(self) -> str:
        """What a running trial said last of itself."""
        return self.note if self.pace.running else ""


class Bar(Display):
    """One line of a live display that all experiments share."""

    def __init__(self, experiment: Experiment, display: Progress) -> None:
        super().__init__(experiment, display.console)
        self.display = display
        self.task: TaskID = display.add_task(experiment.name, total=None, counts="", words="waits", left="")

    def show(self) -> None:
        over = self.pace.ended >= self.pace.total
        left = self.pace.left()
        self.display.update(
            self.task,
            total=max(self.pace.total, 1),
            completed=self.pace.completed if self.pace.total else 1,
            counts=self.counts,
            words=" · ".join(text for text in (self.headline, self.running) if text),
            left="done" if over else f"{duration(left)} left" if left is not None else "",
        )

    def tick(self) -> None:
        self.show()


class Lines(Display):
    """A line after each trial, and one a minute where trials are long."""

    def __init__(self, experiment: Experiment, console: Console) -> None:
        super().__init__(experiment, console)
        self.last = time.monotonic()

    def show(self) -> None:
        left = self.pace.left()
        over = self.pace.ended >= self.pace.total
        parts = [self.counts, f"{duration(left)} left" if left is not None and not over else "", self.headline or self.running]
        self.say(f"{self.experiment.name}: " + ", ".join(part for part in parts if part))
        self.last = time.monotonic()

    def tick(self) -> None:
        if time.monotonic() - self.last > HEARTBEAT:
            self.show()


def live(console: Console) -> Progress:
    columns = (
        PlainColumn("{task.description}"),
        BarColumn(bar_width=24),
        PlainColumn("{task.fields[counts]}"),
        PlainColumn("{task.fields[left]}"),
        PlainColumn("{task.fields[words]}"),
    )
    return Progress(*columns, console=console)


class PlainColumn(TextColumn):
    """Text in which brackets are brackets: notes come from experiments and are no markup."""

    def __init__(self, text_format: str) -> None:
        super().__init__(text_format, markup=False)

    def render(self, task: object) -> Text:
        text = Text(printable(super().render(task).plain))  # type: ignore[arg-type]
        text.no_wrap = True
        return text


def duration(seconds: float) -> str:
    """About how long, in the unit that people would use."""
    if seconds < 100:
        return f"{seconds:.0f} s"
    if seconds < 100 * 60:
        return f"{seconds / 60:.0f} min"
    return f"{seconds / 3600:.1f} h" if seconds < 72 * 3600 else f"{seconds / 86400:.0f} days"


def last_line(error: str | None) -> str:
    lines = (error or "").strip().splitlines()
    return lines[-1] if lines else "no reason given"


def table(console: Console, head: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    """A drawn table on a terminal, aligned columns anywhere else."""
    if console.is_terminal:
        drawn = Table(*head)
        for row in rows:
            drawn.add_row(*(Text(printable(cell)) for cell in row))
        console.print(drawn)
        return
    widths = [max(len(printable(cell)) for cell in column) for column in zip(head, *rows, strict=True)]
    for row in (head, *rows):
        line = "  ".join(printable(cell).ljust(width) for cell, width in zip(row, widths, strict=True))
        console.print(line.rstrip(), markup=False, highlight=False, soft_wrap=True)
