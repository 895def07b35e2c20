"""sg.minimum: what is called a minimum is one, and its gradient that of dense algebra."""

from __future__ import annotations

from typing import Any

import torch
from drawing import Draw
from torch import Tensor

import steadygrad as sg
from surfaces.dense import Dense
from surfaces.energies import ENERGIES, clusters
from surfaces.outcome import Outcome

UP = {torch.float32: 1e-2, torch.float64: 1e-6}
"""A curvature of so much of the largest, downwards, is no rounding: the point is a saddle or a maximum."""


def trial(seed: int) -> Outcome:
    draw = Draw(seed)
    make = draw.choice(ENERGIES)
    rows = draw.choice([1, 1, 2, 4])
    batched = draw.happens(0.5) if rows == 1 else draw.happens(0.8)
    energy, made, start = make(draw, rows, draw.whole(1, 6))
    unit = draw.choice([1.0, 1.0, 1.0, 1e-8, 1e8])
    dtype = draw.choice([torch.float32, torch.float64, torch.float64])
    parameters = [p.to(dtype).requires_grad_() for p in made]
    options: dict[str, Any] = {}
    if draw.happens(0.3):
        options["gradient"] = draw.choice(["cg", "auto", "gmres", "lsqr", "dense"])
    if draw.happens(0.3):
        options["forward"] = sg.NewtonCG() if batched or draw.happens(0.5) else sg.Minimise(every=draw.choice([1, 5, 50]))
    if make is clusters:  # whole planes of minima: every step meets a singular Hessian, and takes all products
        options["forward"] = sg.NewtonCG(max_steps=20) if batched else sg.Minimise(max_steps=5)
    outcome = Outcome(f"{make.__name__} {options} unit {unit} {dtype} rows {rows} batched {batched}")

    def total(h: Tensor) -> Tensor:
        value = unit * energy(h, parameters)
        return value if batched else value.sum()

    with outcome.listening():
        solution = sg.minimum(total, start.to(dtype), batch_dims=1 if batched else 0, **options)
        b = draw.normal(*start.shape).to(dtype)
        grads = torch.autograd.grad((solution.value * b).sum(), parameters, allow_unused=True, materialize_grads=True)
        outcome.hear(solution)
    if outcome.said:
        return outcome
    true = [p.detach().double().requires_grad_() for p in parameters]

    def slope(h: Tensor, p: list[Tensor]) -> Tensor:
        with torch.enable_grad():
            h = h if h.requires_grad else h.detach().requires_grad_()
            return torch.autograd.grad(energy(h, p).sum(), h, create_graph=True)[0]

    found = Dense.root(slope, solution.value.detach().double(), true)
    curvature = torch.linalg.eigvalsh((found.A_there + found.A_there.mT) / 2)
    largest = max(float(curvature.abs().max()), 1e-300)
    outcome.errors["energy"] = (0.0 if energy(solution.value.detach().double(), true).isfinite().all() else 1.0, 0.0)
    outcome.errors["curvature"] = (-float(curvature[0]) / largest, UP[dtype])
    outcome.facts |= {"condition": f"{largest / max(float(curvature[0]), 1e-300):.1e}", "steps": solution.steps}
    if found.known:
        outcome.errors["state"] = (found.far, max(0.02, 30 * torch.finfo(dtype).eps * found.condition))
        found.judge(outcome, grads, b.double(), torch.finfo(dtype).eps)
    return outcome
