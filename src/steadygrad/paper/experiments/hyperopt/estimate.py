"""One hypergradient of the experiment, by any method, and how far it is from the exact one."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from torch import Tensor

from steadygrad import Auto, hyper
from steadygrad.paper.experiments.hyperopt.config import IMPLICIT, HyperoptConfig
from steadygrad.paper.experiments.hyperopt.problem import Problem, free
from steadygrad.paper.experiments.methods import Gradient, gradient, short


def method(config: HyperoptConfig) -> str | Gradient:
    """The method of a config, as `hyper` takes it."""
    if config.method == "forward":
        return "forward"
    return gradient(config.method, config.steps, config.seed, Auto(max_steps=config.products))


def samples(config: HyperoptConfig, problem: Problem) -> Any:
    """On which data the last step is taken; None for methods that differentiate the steps as they were."""
    return problem.last(config.last) if config.method in IMPLICIT else None


def estimate(config: HyperoptConfig, problem: Problem, values: Mapping[str, Tensor] | None = None) -> hyper.Hypergradient:
    """The hypergradient at `values`, by default at the start. Failures are in the result, and not announced: the experiment
    shows methods outside their assumptions on purpose."""
    return hyper.hypergradient(
        problem.step,
        problem.values() if values is None else values,
        problem.objective,
        batches=problem.batches,
        steps=config.training_steps,
        method=method(config),
        last=samples(config, problem),
        on_failure="ignore",
    )


@dataclass(frozen=True)
class Distance:
    """How far a hypergradient is from the exact one, in the free numbers."""

    cosine: float | None
    """None where one of the two is zero."""
    relative: float | None

    @classmethod
    def of(cls, found: Tensor, exact: Tensor) -> Distance:
        size, other = float(exact.norm()), float(found.norm())
        if not size:
            return cls(None, None)
        relative = short(float((found - exact).norm()) / size)
        return cls(short(float(found @ exact) / (size * other)) if other else None, relative)


def exact(config: HyperoptConfig, problem: Problem, values: Mapping[str, Tensor] | None = None) -> hyper.Hypergradient:
    """By BPTT over all T steps."""
    return estimate(replace(config, task="tune", method="bptt"), problem, values)


COUNTS = (10, 50, 100)
"""K of the comparison."""


def errors(config: HyperoptConfig, problem: Problem, report: Any) -> dict[str, Any]:
    """All methods at the start of meta training, against BPTT."""
    values = problem.values()
    reference = exact(config, problem)
    b = free(reference.gradients, values)
    entries: list[dict[str, Any]] = []
    movement = None
    trials = list(_variants(config))
    for number, trial in enumerate(trials):
        found = estimate(trial, problem)
        g = free(found.gradients, values)
        distance = Distance.of(g, b)
        movement = found.residual if found.residual is not None and trial.last in ("full", "step") else movement
        entries.append(
            {
                "method": trial.method,
                "steps": trial.steps if trial.method not in ("auto", "forward") else None,
                "last": trial.last if trial.method in IMPLICIT else None,
                "cosine": distance.cosine,
                "relative": distance.relative,
                "noise": _noise(found, values, float(g.norm())),
                "products": sum(a.products for a in found.adjoints),
                "degenerate": sorted(found.degenerate),
            }
        )
        report(number + 1, len(trials), f"{trial.method} {distance.cosine}")
    return {
        "loss": short(reference.loss),
        "reference_norm": short(float(b.norm())),
        "movement": None if movement is None else short(movement),
        "entries": entries,
    }


def _variants(config: HyperoptConfig) -> list[HyperoptConfig]:
    """Every method with every K; with mini-batches also the other ways to take the last step."""
    config = replace(config, task="tune", method="bptt")
    trials = [replace(config, method=name, steps=k) for k in COUNTS for name in ("tbptt", "rbp-uniform", "cg-rbp", "neumann-rbp")]
    if config.batch:
        trials += [replace(config, method="neumann-rbp", last=last) for last in ("average", "fresh", "step")]
    trials.append(replace(config, method="auto"))
    return trials if config.mode == "corrected" else [*trials, replace(config, method="forward")]


def _noise(found: hyper.Hypergradient, values: Mapping[str, Tensor], size: float) -> float | None:
    """The standard deviation of the estimate relative to its norm, in the free numbers."""
    if found.variance is None or not size:
        return None
    spread = free({name: v.sqrt() for name, v in found.variance.items()}, values)
    return short(math.sqrt(float(spread.square().sum())) / size)
