"""Run trials in local worker processes, one record a trial; whatever stops a run, the next one does what is missing."""

from __future__ import annotations

import os
import pickle
from collections import deque
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from multiprocessing import connection
from pathlib import Path
from types import TracebackType
from typing import Any

from steadygrad.paper.engine.environment import environment
from steadygrad.paper.engine.locks import TrialLocks
from steadygrad.paper.engine.processes import Process, quiet_start, spawn
from steadygrad.paper.engine.worker import Finished, Step, Task, Unwritable
from steadygrad.paper.experiments.experiment import Config, Experiment, merge, settings
from steadygrad.paper.records import Record, Stranger, dumps, load, place, read, remove_unfinished, write

TICK = 0.5  # seconds between two looks at what other runs hold


@dataclass(frozen=True)
class Summary:
    """How many trials this run did, found done (before or by another run), and saw fail."""

    done: int
    skipped: int
    failed: int


class Listener:
    """Is told what happens; the command line draws its progress from it. Every method may be left as it is."""

    def begin(self, total: int, known: Sequence[Record], strangers: Sequence[Stranger]) -> None:
        """There are `total` trials, of which `known` are done already."""

    def step(self, trial: str, fraction: float, note: str) -> None:
        """A running trial is so far."""

    def finished(self, record: Record) -> None:
        """A trial is done, or failed, by this run or another on the same folder."""

    def tick(self) -> None:
        """Called at least every half second."""


@dataclass(frozen=True)
class Waiting:
    """A trial, and the record that an earlier run left of it, if any."""

    name: str
    task: Task
    before: Record | None


def cores() -> int:
    """The cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def run(
    experiment: Experiment, configs: Iterable[Config], out: Path, workers: int | None = None, listener: Listener | None = None
) -> Summary:
    """Run the trials that have no result yet under `out`, in the given order; those that failed before are tried again.

    Each worker is a process of its own with one torch thread, so a result does not depend on their number. Trials that another
    run on the same folder holds are waited for. Ctrl-C (KeyboardInterrupt) ends the workers and keeps what is written.
    """
    workers = cores() if workers is None else workers
    if workers < 1:
        raise ValueError(f"workers is {workers}; at least one process must do the work.")
    listener = listener or Listener()
    found = read(out, experiment.name)
    known = {record.trial: record for record in found.records}
    trials = [prepare(experiment, config, known) for config in merge(experiment, configs)]
    skipped = [trial.before for trial in trials if trial.before is not None and trial.before.done]
    missing = [trial for trial in trials if trial.before is None or not trial.before.done]
    listener.begin(len(trials), skipped, found.strangers)
    with Dispatcher(experiment.name, out, workers, listener) as current:
        current.work(deque(missing))
    return Summary(current.done, len(skipped) + current.elsewhere, current.failed)


def prepare(experiment: Experiment, config: Config, known: dict[str, Record]) -> Waiting:
    name = experiment.trial(config)
    call = pickle.dumps((experiment.run, config, experiment.resumes))
    return Waiting(name, Task(experiment.name, settings(config), call), known.get(name))


class Dispatcher:
    """The trials of one experiment on their way through the workers."""

    def __init__(self, experiment: str, out: Path, workers: int, listener: Listener) -> None:
        self.experiment, self.out, self.limit, self.listener = experiment, out, workers, listener
        self.locks = TrialLocks(out / experiment)
        self.idle: list[Process] = []
        self.busy: list[tuple[Process, Waiting]] = []
        self.done = self.failed = self.elsewhere = 0

    def __enter__(self) -> Dispatcher:
        self.locks.__enter__()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        everyone = self.idle + [process for process, _ in self.busy]
        for process in everyone:
            process.stop(kill=kind is not None)
        for process in everyone:
            process.join()
        for _, trial in self.busy:
            remove_unfinished(self.out, self.experiment, trial.name)
        self.locks.__exit__(kind, error, trace)

    def work(self, queue: deque[Waiting]) -> None:
        held: deque[Waiting] = deque()  # by another run
        while queue or held or self.busy:
            if not queue:
                queue, held = held, queue
            while queue and len(self.busy) < self.limit:
                trial = queue.popleft()
                if not self.locks.take(trial.name):
                    held.append(trial)
                elif not self.settled(trial):
                    self.start(trial)
            self.listen()

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
        self.idle = [process for process in self.idle if process.process.is_alive()]
        if not self.idle:
            with quiet_start():
                self.idle.append(spawn(self.out))
        process = self.idle.pop()
        self.busy.append((process, trial))
        process.give(trial.task)

    def listen(self) -> None:
        """Wait for messages and deaths, at most one tick."""
        ends = [end for process, _ in self.busy for end in (process.pipe, process.process.sentinel)]
        connection.wait(ends, TICK)
        for process, trial in list(self.busy):
            messages = process.receive()
            if messages is None:
                self.bury(process, trial)
            else:
                for message in messages:
                    self.hear(process, trial, message)
        self.listener.tick()

    def hear(self, process: Process, trial: Waiting, message: Any) -> None:
        match message:
            case Step(done, total, note):
                self.listener.step(trial.name, min(max(done / total, 0.0), 1.0) if total > 0 else 0.0, note)
            case Finished(record):
                self.idle.append(process)
                self.close(process, trial, record)
            case Unwritable(reason):
                raise OSError(f"a record cannot be written to {reason}")
            case _:
                raise TypeError(f"a worker sent {message!r}")

    def bury(self, process: Process, trial: Waiting) -> None:
        """A worker died. Its trial failed, unless the record was written just before."""
        process.stop(kill=True)
        process.join()
        record = self.news(trial)
        if record is None:
            error, measured = process.obituary()
            record = Record(trial.task.experiment, trial.task.config, None, error, measured, environment())
            remove_unfinished(self.out, self.experiment, trial.name)
            write(self.out, record)
        self.close(process, trial, record)

    def close(self, process: Process, trial: Waiting, record: Record) -> None:
        self.busy.remove((process, trial))
        self.done += record.done
        self.failed += not record.done
        self.locks.release(trial.name)
        self.listener.finished(record)
