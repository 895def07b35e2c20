"""What a worker does with one trial."""

from __future__ import annotations

import gc
import time
import traceback
from collections.abc import Callable
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from steadygrad.calls import Folder, collected_warnings, fresh_start
from steadygrad.paper.engine.environment import environment
from steadygrad.paper.experiments.checkpoint import Checkpoint
from steadygrad.paper.experiments.experiment import Config, Experiment, settings
from steadygrad.paper.experiments.resident import forget_peak, peak_mb
from steadygrad.paper.records import CHECKPOINTS, Record, dumps, trial_id

PAUSE = 0.2  # seconds between two messages about progress


@dataclass(frozen=True)
class Task:
    """A trial on its way to a worker."""

    experiment: str
    run: Callable[..., dict[str, Any]]
    config: Config
    resumes: bool

    @classmethod
    def of(cls, experiment: Experiment, config: Config) -> Task:
        return cls(experiment.name, experiment.run, config, experiment.resumes)

    @property
    def settings(self) -> dict[str, Any]:
        """The config as the record stores it."""
        return settings(self.config)


@dataclass(frozen=True)
class Step:
    """A message about progress inside a trial."""

    done: int
    total: int
    note: str


def checkpoint_of(folder: Path, task: Task) -> Checkpoint:
    """Where this trial keeps how far it is. Whoever runs the trial holds its lock, so nobody else writes there."""
    return Checkpoint(folder / CHECKPOINTS / f"{trial_id(task.experiment, task.settings)}.pt")


def attempt(say: Callable[[Step], None], task: Task, folder: Folder) -> Record:
    """Run one trial. Whatever it raises becomes its record, and so does a result that JSON cannot hold.

    A checkpoint is kept where this worker sees the folder of the records, and not at all elsewhere.
    """
    result: dict[str, Any] | None = None
    error: str | None = None
    measured: dict[str, Any] = {}
    checkpoint = checkpoint_of(folder.path, task) if folder.seen else Checkpoint()
    started = datetime.now(UTC).isoformat(timespec="seconds")
    gc.collect()  # what the last trial left shall not count as this one's memory
    counted = forget_peak()
    start = time.perf_counter()
    with collected_warnings() as messages:
        try:
            fresh_start(task.config.seed)
            report = reporter(say)
            result = dict(task.run(task.config, report, checkpoint) if task.resumes else task.run(task.config, report))
            measured = dict(result.pop("measured", {}))
        except BaseException:
            result, error = None, traceback.format_exc()
    seconds = time.perf_counter() - start
    # Ours come last: these names mean the same in every record.
    ours = {"started": started, "seconds": seconds, "peak_mb": peak_mb() if counted else None, "warnings": messages}
    record = Record(task.experiment, task.settings, result, error, measured | ours, environment())
    try:
        dumps(record)
    except (TypeError, ValueError):
        return replace(record, result=None, error=traceback.format_exc(), measured=ours)
    return record


def reporter(say: Callable[[Step], None]) -> Callable[[int, int, str], None]:
    """Sends progress, not more often than anybody can read."""
    last = -PAUSE

    def report(done: int, total: int, note: str = "") -> None:
        nonlocal last
        now = time.monotonic()
        if now - last >= PAUSE:
            last = now
            say(Step(done, total, note))

    return report
