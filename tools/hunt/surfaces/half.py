"""States in bfloat16 and float16, and autocast: as right as the dtype allows."""

from __future__ import annotations

from contextlib import nullcontext

import torch
from drawing import Draw

import steadygrad as sg
from surfaces.contractions import Problem, contraction
from surfaces.outcome import Outcome

ROUNDINGS = 16.0
"""Roundings of F, times ‖(I − J)⁻¹‖, that a state or a gradient may be off by."""


def trial(seed: int) -> Outcome:
    draw = Draw(seed)
    # Linear algebra and Fourier transforms have no half precision on a CPU, and fused attention no backward pass.
    problem = contraction(draw)
    while problem.name in ("solved_inside", "spectral_filter"):
        problem = contraction(draw)
    cast = draw.happens(0.4)
    dtype = torch.bfloat16 if cast else draw.choice([torch.bfloat16, torch.float16])
    held = torch.float32 if cast else dtype
    gradient = draw.choice(
        ["auto", "auto", "auto", "gmres", "lsqr", "cg-rbp", "rbp", "bicgstab", "anderson", sg.Implicit(sg.Neumann())]
    )
    forward = draw.choice([sg.Picard(max_steps=300), sg.Picard(max_steps=300), sg.Anderson(), sg.Broyden(), sg.Newton()])
    scale = draw.choice([1.0, 1.0, 65536.0 if cast else 64.0])
    outcome = Outcome(f"{'autocast' if cast else dtype} {problem.name} {gradient} {forward} loss × {scale}")
    given = [p.to(held).requires_grad_() for p in problem.parameters]
    b = draw.normal(*problem.start.shape)
    with outcome.listening():
        with torch.autocast("cpu", dtype=dtype) if cast else nullcontext():
            solution = problem.solve(
                given, problem.start.to(held), gradient=gradient, forward=forward, batch_dims=problem.batch_dims
            )
            loss = scale * (problem.joined(solution.value).float() * b.float()).sum()
        grads = torch.autograd.grad(loss, given, allow_unused=True, materialize_grads=True)
        outcome.hear(solution)
    if outcome.said:
        return outcome
    _judge(
        outcome,
        problem,
        [g.detach().double() for g in given],
        solution,
        [g.double() / scale for g in grads],
        b.float().double(),
        dtype,
    )
    return outcome


def _judge(
    outcome: Outcome,
    problem: Problem,
    parameters: list[torch.Tensor],
    solution: sg.Solution,
    grads: list[torch.Tensor],
    b: torch.Tensor,
    dtype: torch.dtype,
) -> None:
    problem.parameters = parameters
    h = problem.joined(solution.value).detach().double()
    end = problem.polished(h)
    J = problem.jacobian(end)
    gain = float(torch.linalg.matrix_norm(torch.linalg.inv(torch.eye(len(J), dtype=J.dtype) - J), 2))
    allowed = max(0.02, ROUNDINGS * torch.finfo(dtype).eps * gain)
    outcome.facts = {"gain": round(gain, 1), "rows": problem.rows}
    outcome.compare("state", h, end, allowed)
    exact = problem.implicit(h, b)
    whole = float(torch.cat([g.flatten() for g in exact]).norm())
    for i, (found, true) in enumerate(zip(grads, exact, strict=True)):
        outcome.compare(f"gradient {i}", found, true, 3 * allowed, least=0.3 * whole)
