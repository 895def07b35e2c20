"""Gradients of the steps themselves, against plain autograd through a loop."""

from __future__ import annotations

from typing import Any

import torch
from drawing import Draw
from torch import Tensor

import steadygrad as sg
from surfaces.contractions import Problem, contraction
from surfaces.outcome import Outcome

KINDS = ["bptt", "checkpoints", "sqrt", "log", "graphs", "tbptt", "artbp", "phantom", "reversible", "reversible log"]


def trial(seed: int) -> Outcome:
    draw = Draw(seed)
    problem = contraction(draw)
    kind = draw.choice(KINDS)
    damping = draw.choice([0.0, 0.0, 0.3, 0.5]) if kind not in ("artbp",) else 0.0
    counted = draw.happens(0.5)
    steps = draw.whole(1, 30)
    forward: Any = (
        sg.Picard(max_steps=steps, rtol=0.0, damping=damping)
        if counted
        else sg.Picard(max_steps=2000, rtol=1e-9, damping=damping)
    )
    if kind.startswith("reversible"):
        forward = sg.Reversible(
            max_steps=steps if counted else 500, rtol=0.0 if counted else 1e-9, damping=draw.choice([0.3, 0.5, 0.8])
        )
    last = draw.whole(1, 12)
    gradient = _method(draw, kind, last)
    options = {"gradient": gradient, "forward": forward, "batch_dims": 0 if counted else problem.batch_dims}
    outcome = Outcome(f"{kind} {problem.name} {options}")
    given = [p.clone().requires_grad_() for p in problem.parameters]
    h0 = problem.start.clone().requires_grad_()
    b = draw.normal(*problem.start.shape)
    part, update = problem.nested(given)
    with outcome.listening():
        solution = sg.steady_state(update, part(h0), **options)
        h = problem.joined(solution.value)
        wanted = [*given, h0]
        grads = torch.autograd.grad((h * b).sum(), wanted, allow_unused=True, materialize_grads=True)
        outcome.hear(solution) if not counted else None
    if outcome.said:
        return outcome
    value, exact = _truth(problem, kind, forward, gradient, solution.steps, b)
    # Problems of a batch stop by themselves, each within its tolerance of where the longest ends.
    alone = not options["batch_dims"]
    outcome.compare("state", h, value, 1e-9 if alone else 1e-6)
    whole = float(torch.cat([g.flatten() for g in exact]).norm())
    for i, (found, true) in enumerate(zip(grads, exact, strict=True)):
        outcome.compare(f"gradient {i}", found, true, 1e-6 if alone else 1e-3, least=max(1e-3 * whole, 1e-12))
    return outcome


def _method(draw: Draw, kind: str, last: int) -> Any:
    return {
        "bptt": "bptt", "checkpoints": sg.BPTT(checkpoints=draw.whole(1, 8)), "sqrt": sg.BPTT(memory="sqrt"),
        "log": sg.BPTT(memory="log"), "graphs": sg.BPTT(checkpoints=draw.whole(2, 8), graphs=draw.whole(1, 2)),
        "tbptt": sg.TBPTT(steps=last), "artbp": sg.ARTBP(seed=draw.whole(0, 99)),
        "phantom": sg.Phantom(steps=last, damping=draw.choice([0.0, 0.5, 0.9])), "reversible": "bptt",
        "reversible log": sg.BPTT(memory="log"),
    }[kind]  # fmt: skip


def _truth(problem: Problem, kind: str, forward: Any, gradient: Any, steps: int, b: Tensor) -> tuple[Tensor, list[Tensor]]:
    """The same loop, written out."""
    given = [p.clone().requires_grad_() for p in problem.parameters]
    h0 = problem.start.clone().requires_grad_()
    d, h = forward.damping, h0
    F = problem.update
    if kind.startswith("reversible"):
        y = z = h0
        for _ in range(steps):
            y = d * y + (1 - d) * F(z, given)
            z = d * z + (1 - d) * F(y, given)
        h = z
    elif kind in ("tbptt", "artbp"):
        count, factors = (gradient.steps, {}) if kind == "tbptt" else gradient.draw(forward)
        for t in range(steps, 0, -1):
            if t == count:
                h = h.detach() if t < steps else h
            if t in factors and t < count:
                h = _scaled(h, factors[t])
            h = d * h + (1 - d) * F(h, given)
    else:
        for _ in range(steps):
            h = d * h + (1 - d) * F(h, given)
        if kind == "phantom":
            value = h.detach()
            h = value
            for _ in range(gradient.steps):
                h = gradient.damping * h + (1 - gradient.damping) * F(h, given)
            return value, _gradients(h, b, given, h0)
    return h.detach(), _gradients(h, b, given, h0)


def _scaled(h: Tensor, factor: float) -> Tensor:
    """h, with a gradient that is multiplied."""
    return factor * h + (1 - factor) * h.detach()


def _gradients(h: Tensor, b: Tensor, given: list[Tensor], h0: Tensor) -> list[Tensor]:
    return list(torch.autograd.grad((h * b).sum(), [*given, h0], allow_unused=True, materialize_grads=True))
