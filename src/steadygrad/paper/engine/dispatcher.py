"""The trials of one experiment on their way through the workers; the only place that writes records."""

from __future__ import annotations

import time
from collections import deque
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from steadygrad.calls import Again, Began, Call, Crew, Event, Folder, Lost, Raised, Returned, Said
from steadygrad.paper.engine.environment import environment
from steadygrad.paper.engine.listener import Listener
from steadygrad.paper.engine.locks import TrialLocks
from steadygrad.paper.engine.trial import Step, Task, attempt, checkpoint_of
from steadygrad.paper.records import Record, dumps, load, place, remove_unfinished, write

TICK = 0.5  # seconds between two looks at what other runs hold
DIED = (
    "{reason} while this trial ran. The kernel sends SIGKILL when memory runs out: "
    "try fewer --workers, or on Ray more --cpus a trial. Start the run again to try the trial again."
)


@dataclass(frozen=True)
class Waiting:
    """A trial, and the record that an earlier run left of it, if any."""

    name: str
    task: Task
    before: Record | None


class Dispatcher:
    """Takes trials, gives them to workers, hears what comes of them, and writes it down."""

    def __init__(self, experiment: str, out: Path, crew: Crew, locks: TrialLocks, listener: Listener) -> None:
        self.experiment, self.out, self.crew, self.locks, self.listener = experiment, out, crew, locks, listener
        self.folder = Folder.of(out / experiment)
        self.busy: dict[str, Waiting] = {}
        self.began: dict[str, float] = {}
        self.done = self.failed = self.elsewhere = 0

    def work(self, queue: deque[Waiting]) -> None:
        """All of them, in their order."""
        held: deque[Waiting] = deque()  # by another run
        while queue or held or self.busy:
            if not queue:
                queue, held = held, queue
            while queue and self.crew.room:
                trial = queue.popleft()
                if not self.locks.take(trial.name):
                    held.append(trial)
                elif not self.settled(trial):
                    self.start(trial)
            for name, event in self.crew.wait(TICK):
                if name in self.busy:
                    self.hear(self.busy[name], event)
            self.listener.tick()

    def settled(self, trial: Waiting) -> bool:
        """Whether another run has finished the trial since we looked; then the lock is given back."""
        record = self.news(trial)
        if record is None:
            return False
        self.elsewhere += record.done
        self.failed += not record.done
        self.locks.release(trial.name)
        self.listener.finished(record)
        return True

    def news(self, trial: Waiting) -> Record | None:
        """The trial's record, if it was written since this run began."""
        found = load(place(self.out, self.experiment, trial.name))
        if not isinstance(found, Record):
            return None
        return None if trial.before is not None and dumps(found) == dumps(trial.before) else found

    def start(self, trial: Waiting) -> None:
        remove_unfinished(self.out, self.experiment, trial.name)
        self.busy[trial.name] = trial
        self.began[trial.name] = time.time()
        self.crew.start(Call(trial.name, attempt, (trial.task, self.folder)))

    def hear(self, trial: Waiting, event: Event) -> None:
        match event:
            case Began():
                self.began[trial.name] = time.time()
            case Said(Step(done, total, note)):
                self.listener.step(trial.name, min(max(done / total, 0.0), 1.0) if total > 0 else 0.0, note)
            case Again(reason, attempt):
                self.listener.again(trial.name, reason, attempt)
            case Returned(Record() as record):
                self.close(trial, record)
                checkpoint_of(self.folder.path, trial.task).remove()
            case Raised(error):
                self.close(trial, self.failure(trial, error))
            case Lost(reason):  # its checkpoint is kept: another run goes on from there
                self.close(trial, self.failure(trial, DIED.format(reason=reason)))
            case _:
                raise TypeError(f"a worker sent {event!r}")

    def failure(self, trial: Waiting, error: str) -> Record:
        """The record of a trial that could not make its own."""
        began = self.began[trial.name]
        started = datetime.fromtimestamp(began, UTC).isoformat(timespec="seconds")
        measured: dict[str, Any] = {"started": started, "seconds": time.time() - began}
        return Record(trial.task.experiment, trial.task.settings, None, error, measured, environment())

    def close(self, trial: Waiting, record: Record) -> None:
        write(self.out, record)
        del self.busy[trial.name], self.began[trial.name]
        self.done += record.done
        self.failed += not record.done
        self.locks.release(trial.name)
        self.listener.finished(record)
