"""compile=True, and torch.compile around a solve: the same numbers as without."""

from __future__ import annotations

from typing import Any

import torch
from drawing import Draw
from torch import Tensor

import steadygrad as sg
from surfaces.contractions import contraction
from surfaces.outcome import Outcome


def trial(seed: int) -> Outcome:
    """A solve that is compiled inside, or a function that is compiled around it, three times with other numbers."""
    draw = Draw(seed)
    problem = contraction(draw, 5)
    around = draw.happens(0.4)
    gradient = draw.choice(["auto", "auto", "neumann-rbp", "gmres", sg.Implicit(sg.Neumann()), "bptt"])
    forward = draw.choice(
        [sg.Picard(max_steps=500), sg.Picard(max_steps=500, damping=0.3), sg.Anderson(), sg.Picard(max_steps=13, rtol=0)]
    )
    if gradient == "bptt":
        forward = sg.Picard(max_steps=23, rtol=0)
    outcome = Outcome(f"{'around' if around else 'inside'} {problem.name} {gradient} {forward} batch_dims {problem.batch_dims}")
    options: dict[str, Any] = {"gradient": gradient, "forward": forward, "batch_dims": problem.batch_dims}
    b = draw.normal(*problem.start.shape)

    def run(given: list[Tensor], **more: Any) -> Tensor:
        solution = problem.solve(given, **options, **more)
        return (torch.tanh(problem.joined(solution.value)) * b).sum()

    torch.compiler.reset()
    called = torch.compile(run) if around else lambda given: run(given, compile=True)
    for turn in range(3):
        values = [p * (1 + 0.05 * turn) for p in problem.parameters]
        given, plain = ([p.clone().requires_grad_() for p in values] for _ in range(2))
        with outcome.listening():
            found = called(given)
            grads = torch.autograd.grad(found, given, allow_unused=True, materialize_grads=True)
        if outcome.said:
            return outcome
        loss = run(plain, on_failure="ignore")
        exact = torch.autograd.grad(loss, plain, allow_unused=True, materialize_grads=True)
        outcome.compare(f"loss {turn}", found, loss, 1e-4, least=1e-6)
        whole = float(torch.cat([g.flatten() for g in exact]).norm())
        for i, (mine, true) in enumerate(zip(grads, exact, strict=True)):
            outcome.compare(f"gradient {turn} {i}", mine, true, 1e-3, least=0.05 * whole)
    return outcome
