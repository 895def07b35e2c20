"""Penalties from samples, and through a solve: unbiased where that is said, and d/dw P(w, h*(w)) where h carries its graph."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from drawing import Draw
from torch import Tensor

import steadygrad as sg
from steadygrad import penalty
from surfaces.contractions import contraction
from surfaces.maps import drawn_map
from surfaces.outcome import Outcome
from surfaces.penalty import CALLS, DENSE

DRAWS = 60
"""Seeds over which an estimate is averaged."""
SIGMAS = 5.0
"""Standard errors that a mean may be off by."""
UNBIASED: dict[str, tuple[Callable[..., Tensor], dict[str, Any], str]] = {
    "frobenius": (penalty.frobenius, {"samples": 1}, "frobenius"),
    "frobenius sum": (penalty.frobenius, {"samples": 2, "over": "sum"}, "frobenius sum"),
    "column_l1 mean": (penalty.column_l1, {"columns": 2, "over": "mean"}, "column_l1 mean"),
}


def trial(seed: int) -> Outcome:
    return (_estimated if seed % 3 else _through)(Draw(seed))


def _estimated(draw: Draw) -> Outcome:
    """The mean over many seeds against the exact value and gradient."""
    name = draw.choice(list(UNBIASED))
    call, options, exact_name = UNBIASED[name]
    problem = drawn_map(draw, 7)
    outcome = Outcome(f"{name.replace(' ', '-')} of {problem.name}", facts={"rows": problem.rows})
    given = [p.clone().requires_grad_() for p in problem.parameters]
    nested, update = problem.nested(given)
    directions = [draw.normal(*p.shape) for p in given]
    seen: list[list[float]] = []
    with outcome.listening():
        for seed in range(DRAWS):
            value = call(update, nested(problem.start), batch_dims=1 if problem.rows else 0, seed=seed, **options)
            along = 0.0
            if value.requires_grad:
                grads = torch.autograd.grad(value, given, allow_unused=True, materialize_grads=True)
                along = sum(float((g * d).sum()) for g, d in zip(grads, directions, strict=True))
            seen.append([float(value), along])
    if outcome.said:
        return outcome
    blocks = problem.jacobians(problem.start, given)
    truth = torch.stack([DENSE[exact_name](J) for J in blocks]).mean()
    grads = torch.autograd.grad(truth, given, allow_unused=True, materialize_grads=True)
    exact = torch.tensor([float(truth), sum(float((g * d).sum()) for g, d in zip(grads, directions, strict=True))])
    found = torch.tensor(seen)
    error = found.std(0) / DRAWS**0.5 + 1e-6 * exact.abs() + 1e-9
    for i, what in enumerate(("value", "gradient")):
        outcome.errors[what] = (float((found.mean(0) - exact).abs()[i] / error[i]), SIGMAS)
    return outcome


def _through(draw: Draw) -> Outcome:
    """The gradient of a penalty at the steady state, both parts, against a difference of the whole."""
    problem = contraction(draw, 6)
    name = draw.choice([key for key in CALLS if key != "column_l1 hinge"])
    call, options = CALLS[name]
    outcome = Outcome(f"through {name} of {problem.name}", facts={"rows": problem.rows})
    tight: dict[str, Any] = {"forward": sg.Picard(max_steps=3000, rtol=1e-13), "batch_dims": problem.batch_dims}
    directions = [draw.normal(*p.shape) for p in problem.parameters]

    def value_at(given: list[Tensor]) -> Tensor:
        solution = problem.solve(given, gradient="gmres", **tight)
        _, update = problem.nested(given)
        return call(update, solution.value, batch_dims=problem.batch_dims, **options)

    given = [p.clone().requires_grad_() for p in problem.parameters]
    with outcome.listening():
        value = value_at(given)
        if not value.requires_grad:
            return outcome
        grads = torch.autograd.grad(value, given, allow_unused=True, materialize_grads=True)
        along = sum(float((g * d).sum()) for g, d in zip(grads, directions, strict=True))
        differences = []
        for eps in (1e-5, 3e-6):
            ends = [
                float(value_at([p + s * eps * d for p, d in zip(problem.parameters, directions, strict=True)])) for s in (1, -1)
            ]
            differences.append((ends[0] - ends[1]) / (2 * eps))
    if outcome.said or abs(differences[0] - differences[1]) > 1e-4 * (abs(differences[0]) + 1e-3):
        return outcome  # a maximum changes place: there is no derivative
    scale = sum(float(g.norm() * d.norm()) for g, d in zip(grads, directions, strict=True))
    outcome.errors["gradient"] = (abs(along - differences[0]) / max(abs(differences[0]), 0.05 * scale, 1e-5), 0.01)
    return outcome
