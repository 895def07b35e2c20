"""What happens inside a worker process."""

from __future__ import annotations

import gc
import os
import pickle
import random
import threading
import time
import traceback
import warnings
from collections.abc import Callable, Generator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from multiprocessing import parent_process
from multiprocessing.connection import Connection, wait
from pathlib import Path
from typing import Any

import numpy
import torch

from steadygrad.paper.experiments.checkpoint import Checkpoint
from steadygrad.paper.experiments.resident import forget_peak, peak_mb
from steadygrad.paper.records import CHECKPOINTS, Record, trial_id, write

KEPT_WARNINGS = 20
PAUSE = 0.2  # seconds between two messages about progress


@dataclass(frozen=True)
class Task:
    """A trial on its way to a worker. `call` is (run, config, resumes) pickled: an import that fails there fails one trial."""

    experiment: str
    config: dict[str, Any]
    call: bytes


@dataclass(frozen=True)
class Step:
    """A message about progress inside a trial."""

    done: int
    total: int
    note: str


@dataclass(frozen=True)
class Finished:
    """The trial's record is on the disk."""

    record: Record


@dataclass(frozen=True)
class Unwritable:
    """The trial's record could not be written."""

    reason: str


def work(folder: Path, environment: dict[str, Any], connection: Connection) -> None:
    """Run tasks until the connection ends. Denormals are flushed first of all: they make the CPU 25 times slower."""
    torch.set_flush_denormal(True)
    torch.set_num_threads(1)
    threading.Thread(target=end_with_parent, daemon=True).start()
    while True:
        try:
            task: Task = connection.recv()
        except (EOFError, OSError):  # the parent has closed its end, or is gone
            return
        checkpoint = checkpoint_of(folder, task)
        record = attempt(task, environment, connection, checkpoint)
        try:
            message = Finished(write_or_fail(folder, record))
            checkpoint.remove()
        except OSError as error:
            message = Unwritable(f"{folder}: {error}")
        send(connection, message)


def end_with_parent() -> None:
    """A parent that was killed cannot stop its workers: they wait for its end themselves."""
    parent = parent_process()
    if parent is not None:
        wait([parent.sentinel])
        os._exit(1)


def send(connection: Connection, message: Any) -> None:
    """A parent that does not listen any more is gone, and nobody waits for the rest."""
    try:
        connection.send(message)
    except OSError:
        os._exit(1)


def checkpoint_of(folder: Path, task: Task) -> Checkpoint:
    """Where this trial keeps how far it is. Whoever runs the trial holds its lock, so nobody else writes there."""
    return Checkpoint(folder / task.experiment / CHECKPOINTS / f"{trial_id(task.experiment, task.config)}.pt")


def attempt(task: Task, environment: dict[str, Any], connection: Connection, checkpoint: Checkpoint) -> Record:
    """Run one trial. Whatever it raises becomes its record."""
    result: dict[str, Any] | None = None
    error: str | None = None
    measured: dict[str, Any] = {}
    started = datetime.now(UTC).isoformat(timespec="seconds")
    gc.collect()  # what the last trial left shall not count as this one's memory
    counted = forget_peak()
    start = time.perf_counter()
    with collected_warnings() as messages:
        try:
            run, config, resumes = pickle.loads(task.call)
            fresh_start(config.seed)
            report = reporter(connection)
            result = dict(run(config, report, checkpoint) if resumes else run(config, report))
            measured = dict(result.pop("measured", {}))
        except BaseException:
            result, error = None, traceback.format_exc()
    seconds = time.perf_counter() - start
    # Ours come last: these names mean the same in every record.
    measured |= {"started": started, "seconds": seconds, "peak_mb": peak_mb() if counted else None, "warnings": messages}
    return Record(task.experiment, task.config, result, error, measured, environment)


def write_or_fail(folder: Path, record: Record) -> Record:
    """Write the record; where JSON cannot hold the result, a record that says so."""
    try:
        write(folder, record)
    except (TypeError, ValueError):
        measured = {name: record.measured[name] for name in ("started", "seconds", "peak_mb", "warnings")}
        record = replace(record, result=None, error=traceback.format_exc(), measured=measured)
        write(folder, record)
    return record


def reporter(connection: Connection) -> Callable[[int, int, str], None]:
    """Sends progress, not more often than anybody can read."""
    last = -PAUSE

    def report(done: int, total: int, note: str = "") -> None:
        nonlocal last
        now = time.monotonic()
        if now - last >= PAUSE:
            last = now
            send(connection, Step(done, total, note))

    return report


def fresh_start(seed: int) -> None:
    """The same random state and defaults for a trial, whatever ran before it in this process."""
    torch.set_default_dtype(torch.float32)
    torch.manual_seed(seed)
    random.seed(seed)
    numpy.random.seed(seed % 2**32)


@contextmanager
def collected_warnings() -> Generator[list[str]]:
    """Warnings go into the record: from several processes at once they would only tear up the progress bar."""
    messages: list[str] = []

    def collect(message: Warning | str, category: type[Warning], *where: Any, **more: Any) -> None:
        text = f"{category.__name__}: {message}"
        if text not in messages and len(messages) < KEPT_WARNINGS:
            messages.append(text)

    with warnings.catch_warnings():
        warnings.showwarning = collect
        yield messages
