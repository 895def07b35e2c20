"""The paper's third experiment: hyperparameters of a training by gradients through it, by each method."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from typing import Any

from steadygrad.paper.experiments.checkpoint import NOT_KEPT, Checkpoint
from steadygrad.paper.experiments.experiment import ReportProgress
from steadygrad.paper.experiments.hyperopt.config import HyperoptConfig
from steadygrad.paper.experiments.hyperopt.cost import cost
from steadygrad.paper.experiments.hyperopt.estimate import errors
from steadygrad.paper.experiments.hyperopt.problem import Problem
from steadygrad.paper.experiments.hyperopt.tuning import tune
from steadygrad.paper.records import Record


def run(config: HyperoptConfig, report: ReportProgress, checkpoint: Checkpoint = NOT_KEPT) -> dict[str, Any]:
    """Tune, compare with the exact hypergradient, or measure."""
    match config.task:
        case "tune":
            return tune(config, Problem.of(config), report, checkpoint)
        case "errors":
            return errors(config, Problem.of(config), report)
        case "cost":
            return cost(config, report)


def headline(records: Sequence[Record]) -> str:
    """The running result in a few words: the last meta loss by method, for each mode at its largest T so far."""
    parts: list[str] = []
    for mode in ("as-published", "corrected"):
        tuned = [r for r in records if r.result is not None and r.config["task"] == "tune" and r.config["mode"] == mode]
        longest = max((r.config["training_steps"] for r in tuned), default=0)
        found: dict[str, list[float]] = {}
        for record in tuned:
            if record.config["training_steps"] == longest and record.result is not None:
                found.setdefault(record.config["method"], []).append(record.result["meta_loss"][-1])
        if found:
            losses = ", ".join(f"{method} {statistics.median(values):.2g}" for method, values in sorted(found.items()))
            parts.append(f"{mode}, T = {longest}: {losses}")
    return "meta loss " + "; ".join(parts) if parts else "no tuning yet"
