"""Run trials in worker processes, one record a trial; whatever stops a run, the next one does what is missing."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from steadygrad.calls import Ray, crew
from steadygrad.paper.engine.dispatcher import Dispatcher, Waiting
from steadygrad.paper.engine.listener import Listener
from steadygrad.paper.engine.locks import TrialLocks
from steadygrad.paper.engine.trial import Task
from steadygrad.paper.experiments.experiment import Config, Experiment, merge
from steadygrad.paper.records import read


@dataclass(frozen=True)
class Summary:
    """How many trials this run did, found done (before or by another run), and saw fail."""

    done: int
    skipped: int
    failed: int


def run(
    experiment: Experiment,
    configs: Iterable[Config],
    out: Path,
    workers: int | None = None,
    listener: Listener | None = None,
    cluster: Ray | None = None,
) -> Summary:
    """Run the trials that have no result yet under `out`, in the given order; those that failed before are tried again.

    They run in processes on this machine, or on a Ray cluster, at most `workers` at a time (by default as many as there are
    cores, or as the cluster takes). Each has one torch thread, so a result does not depend on where and beside whom it was made.
    This process writes the records. Trials that another run on the same folder holds are waited for. A trial whose process dies
    has failed; one whose worker or machine of the cluster dies is tried again, `cluster.retries` times, and fails then.
    Ctrl-C (KeyboardInterrupt) ends the workers and keeps what is written.
    """
    workforce = crew(workers, cluster)
    listener = listener or Listener()
    found = read(out, experiment.name)
    known = {record.trial: record for record in found.records}
    trials = [
        Waiting(experiment.trial(config), Task.of(experiment, config), known.get(experiment.trial(config)))
        for config in merge(experiment, configs)
    ]
    skipped = [trial.before for trial in trials if trial.before is not None and trial.before.done]
    missing = [trial for trial in trials if trial.before is None or not trial.before.done]
    listener.begin(len(trials), skipped, found.strangers)
    if not missing:  # a cluster would be started for nothing
        return Summary(0, len(skipped), 0)
    with TrialLocks(out / experiment.name) as locks, workforce:
        current = Dispatcher(experiment.name, out, workforce, locks, listener)
        current.work(deque(missing))
    return Summary(current.done, len(skipped) + current.elsewhere, current.failed)
