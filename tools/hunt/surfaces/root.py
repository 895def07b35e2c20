"""sg.root: what is called a root is one, and its gradient that of dense algebra."""

from __future__ import annotations

from typing import Any

import torch
from drawing import Draw

import steadygrad as sg
from surfaces.dense import Dense
from surfaces.outcome import Outcome
from surfaces.systems import SYSTEMS


def trial(seed: int) -> Outcome:
    draw = Draw(seed)
    make = draw.choice(SYSTEMS)
    rows = draw.choice([1, 1, 2, 4])
    batched = draw.happens(0.5)
    g, made, start = make(draw, rows, draw.whole(1, 6))
    unit = draw.choice([1.0, 1.0, 1.0, 1e-8, 1e8])
    dtype = draw.choice([torch.float32, torch.float64])
    parameters = [p.to(dtype).requires_grad_() for p in made]
    options: dict[str, Any] = {}
    if draw.happens(0.4):
        options["gradient"] = draw.choice(["auto", "lsqr", "dense", "cg-rbp", "bicgstab"])
    if draw.happens(0.4):
        options["forward"] = draw.choice(
            [sg.Anderson(), sg.Broyden(), sg.Newton(linear=sg.LSQR()), sg.Newton(rtol=1e-3), sg.Newton(linear=sg.Dense())]
        )
    outcome = Outcome(f"{make.__name__} {options} unit {unit} {dtype} rows {rows} batched {batched}")
    with outcome.listening():
        solution = sg.root(lambda h: unit * g(h, parameters), start.to(dtype), batch_dims=1 if batched else 0, **options)
        b = draw.normal(*start.shape).to(dtype)
        grads = torch.autograd.grad((solution.value * b).sum(), parameters, allow_unused=True, materialize_grads=True)
        outcome.hear(solution)
    if outcome.said:
        return outcome
    true = [p.detach().double().requires_grad_() for p in parameters]
    h = solution.value.detach().double()
    found = Dense.root(g, h, true)
    outcome.facts |= {"steps": solution.steps, "condition": f"{found.condition:.1e}", "h": h.flatten()[:4].tolist()}
    outcome.errors["root"] = (0.0 if found.known else 1.0, 0.0 if make.__name__ != "double_root" else 1.0)
    if found.known:
        rounding = torch.finfo(dtype).eps * found.condition
        outcome.errors["state"] = (found.far, max(0.02, 30 * rounding))
        found.judge(outcome, grads, b.double(), torch.finfo(dtype).eps)
    return outcome
