"""tune_many: several tunings, from several starts or seeds, in processes here or on a Ray cluster."""

from __future__ import annotations

import hashlib
import json
import math
import pickle
import time
import warnings
from collections import deque
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from steadygrad.calls import Again, Call, Event, Folder, Lost, Raised, Ray, Returned, Said, collected_warnings, crew, fresh_start
from steadygrad.hyper.bar import Overview, told_to
from steadygrad.hyper.history import Tuning
from steadygrad.method import check_callable
from steadygrad.solution import OnFailure, check_on_failure, report_failure

TICK = 0.5  # seconds between two looks
PAUSE = 0.5  # seconds between two messages about progress
TuningOf = Callable[[Any, Path | None], Tuning]
"""tuning(start, checkpoint): builds a model, its data and its step, and returns hyper.tune(..., checkpoint=checkpoint)."""


@dataclass(frozen=True)
class Tuned:
    """One start of `tune_many`, and what came of it.

    >>> Tuned(start=3, tuning=None, error="Traceback ...\\nValueError: too steep").reason
    'ValueError: too steep'
    """

    start: Any
    tuning: Tuning | None = field(repr=False)
    error: str | None = None
    """The traceback of what it raised, or how its worker was lost."""
    warnings: tuple[str, ...] = ()

    @property
    def loss(self) -> float:
        """The validation loss of the tuning; infinite for one that failed or is NaN, so that it comes last."""
        if self.tuning is None or math.isnan(self.tuning.loss):
            return math.inf
        return self.tuning.loss

    @property
    def reason(self) -> str:
        """The last line of the error."""
        return (self.error or "").strip().splitlines()[-1] if self.error else ""


@dataclass(frozen=True)
class Tunings:
    """What `tune_many` found.

    >>> Tunings(done=[], failed=[]).best
    Traceback (most recent call last):
    ...
    ValueError: no tuning ended well, so none is the best.
    """

    done: list[Tuned]
    """The tunings that ended, by their validation loss, the lowest first; in the order of the starts where two are equal."""
    failed: list[Tuned]
    """The tunings that raised an error, in the order of the starts."""

    @property
    def best(self) -> Tuned:
        """The one with the lowest validation loss."""
        if self.done:
            return self.done[0]
        reasons = "".join(f" From {tuned.start!r:.80}: {tuned.reason}." for tuned in self.failed)
        raise ValueError(f"no tuning ended well, so none is the best.{reasons}")


def tune_many(
    tuning: TuningOf,
    starts: Iterable[Any],
    *,
    workers: int | None = None,
    cluster: Ray | None = None,
    checkpoints: str | Path | None = None,
    progress: bool = True,
    on_failure: OnFailure = "warn",
) -> Tunings:
    """Several tunings at once: tuning(start, checkpoint) for every start, the best of them first.

    `tuning` is a function of yours that builds everything and ends with `return tune(..., checkpoint=checkpoint)`. A start is
    what it needs to know: a seed, a dict of first values; of numbers, strings, lists and dicts only, since it also names the
    checkpoint. At most `workers` run at a time, each in a process of its own with one torch thread: on this machine (as many as
    it has cores), or on a Ray cluster with `cluster=Ray(...)` (as many as it takes). Processes on this machine import `tuning`,
    so it must be a function of a module; Ray takes any.

    Every tuning begins with torch's, Python's and numpy's generators seeded by its start, so the result does not depend on what
    ran where; `tune(method=None)` looks at the free memory, so give it a method. With `checkpoints`, a folder, each tuning is
    handed a file in it, and the same call again goes on where it was killed. On a cluster the folder must be one that its
    machines share; elsewhere a tuning gets None, and a warning says so. A tuning whose worker on the cluster is lost begins
    again, `cluster.retries` times, from its checkpoint if there is one.

    What one tuning raises does not stop the others: it stands in `failed`, and once all have ended there is a warning, or with
    `on_failure="raise"` an error. Warnings of the tunings are given again here.

    >>> def tuning(seed, checkpoint):  # in a module of yours, say digits.py
    ...     torch.manual_seed(seed)
    ...     step = hyper.SGD(nn.Linear(64, 10), loss, rate=0.5)
    ...     return hyper.tune(step, {"decay": hyper.Log(1e-3)}, objective, batches=batches, steps=100, method="neumann-rbp",
    ...                       checkpoint=checkpoint)
    >>> found = hyper.tune_many(digits.tuning, range(8), checkpoints="tunings")  # doctest: +SKIP
    >>> found.best.start, found.best.tuning.hyper  # doctest: +SKIP
    (5, {'decay': tensor(0.0123)})
    """
    check_on_failure(on_failure)
    check_callable("tuning", tuning, "tuning(start, checkpoint)")
    given = list(starts)
    waiting = {name_of(start): start for start in given}
    if len(waiting) < len(given):
        raise ValueError(f"two of the starts are the same: {given!r:.300}")
    if cluster is None:
        _check_importable(tuning)
    folder = None if checkpoints is None else Folder.of(Path(checkpoints))
    ended: dict[str, Tuned] = {}
    overview = Overview(waiting, progress)
    queue = deque(Call(name, in_worker, (tuning, start, name, folder)) for name, start in waiting.items())
    if not queue:
        return Tunings([], [])
    with crew(workers, cluster) as workforce:
        while len(ended) < len(waiting):
            while queue and workforce.room:
                workforce.start(queue.popleft())
            for name, event in workforce.wait(TICK):
                result = _heard(waiting[name], event, lambda message, name=name: overview.step(name, message))
                if result is not None:
                    ended[name] = result
                    overview.ended(name, f"loss {result.loss:.4g}" if result.tuning is not None else f"failed: {result.reason}")
    return _concluded([ended[name] for name in waiting], on_failure)


def name_of(start: Any) -> str:
    """12 hex digits of SHA-256 over the start as JSON: the name of its checkpoint, the same in every order and on every machine.

    >>> name_of({"rate": 0.1, "seed": 1}) == name_of({"seed": 1, "rate": 0.1})
    True
    """
    try:
        text = json.dumps(start, sort_keys=True, allow_nan=False)
    except (TypeError, ValueError) as error:
        raise TypeError(
            f"a start is {start!r:.200}, which cannot be named ({error}); describe it by numbers, strings, lists and dicts, and "
            "build tensors from them in the tuning."
        ) from None
    return hashlib.sha256(text.encode()).hexdigest()[:12]


def in_worker(say: Callable[[Any], None], tuning: TuningOf, start: Any, name: str, folder: Folder | None) -> Tuned:
    """One tuning, in a worker."""
    last = -PAUSE

    def tell(done: int, total: int, text: str) -> None:
        nonlocal last
        if time.monotonic() - last >= PAUSE:
            last = time.monotonic()
            say((done, total, text))

    with collected_warnings() as messages, told_to(tell):
        checkpoint = None if folder is None or not folder.seen else folder.path / f"{name}.pt"
        if folder is not None and checkpoint is None:
            warnings.warn(f"the worker does not see the folder {folder.path}, so nothing was kept of the way", stacklevel=1)
        fresh_start(int(name, 16))
        found = tuning(start, checkpoint)
    if not isinstance(found, Tuning):  # pyright: ignore[reportUnnecessaryIsInstance]
        raise TypeError(f"tuning(start, checkpoint) returned {type(found).__name__}; it must return what hyper.tune gave.")
    return Tuned(start, found, warnings=tuple(messages))


def _heard(start: Any, event: Event, step: Callable[[Any], None]) -> Tuned | None:
    """What has come of a tuning; None while it goes on."""
    match event:
        case Said(message):
            step(message)
        case Again(reason, attempt):
            step((0, 0, f"begins again, attempt {attempt}: {reason}"))
        case Returned(value):
            return value
        case Raised(error) | Lost(error):
            return Tuned(start, None, error=error)
        case _:
            pass
    return None


def _concluded(everything: list[Tuned], on_failure: OnFailure) -> Tunings:
    """The tunings with the best first, after what there is to say of them."""
    done = sorted((tuned for tuned in everything if tuned.tuning is not None), key=lambda tuned: tuned.loss)
    failed = [tuned for tuned in everything if tuned.tuning is None]
    if on_failure != "ignore":
        for tuned in done:
            for text in tuned.warnings:
                report_failure(f"tuning from {tuned.start!r:.80}: {text}", "warn")
    if failed:
        reasons = "; ".join(f"{tuned.start!r:.80}: {tuned.reason}" for tuned in failed)
        report_failure(f"{len(failed)} of {len(everything)} tunings failed: {reasons}", on_failure)
    return Tunings(done, failed)


def _check_importable(tuning: TuningOf) -> None:
    try:
        pickle.dumps(tuning)
    except Exception as error:  # pickle raises an AttributeError, a PicklingError or a TypeError, as it may be
        raise TypeError(
            f"worker processes cannot import {tuning!r} ({error}); make it a function of a module, or give cluster=hyper.Ray()."
        ) from None
