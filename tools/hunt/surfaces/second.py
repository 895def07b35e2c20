"""derivatives=2: Hessian-vector products of a loss of the steady state against dense algebra."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from drawing import Draw
from torch import Tensor

import steadygrad as sg
from surfaces.contractions import Problem, contraction
from surfaces.outcome import Outcome


def trial(seed: int) -> Outcome:
    draw = Draw(seed)
    problem = contraction(draw)
    gradient = draw.choice(["auto", "auto", "gmres", "lsqr", "cg-rbp", "bicgstab", "dense", sg.Implicit(sg.Neumann())])
    forward = draw.choice(
        [sg.Picard(max_steps=2000, rtol=1e-12), sg.Anderson(rtol=1e-12), sg.Picard(max_steps=1000), sg.Newton()]
    )
    options: dict[str, Any] = {"gradient": gradient, "forward": forward, "batch_dims": problem.batch_dims}
    outcome = Outcome(f"{problem.name} {gradient} {forward}", facts={"rows": problem.rows})
    given = [p.clone().requires_grad_() for p in problem.parameters]
    vectors = [draw.normal(*p.shape) for p in given]
    b, c = draw.normal(*problem.start.shape), draw.normal(*problem.start.shape)

    def loss(h: Tensor) -> Tensor:
        return (b * h).sum() + 0.5 * (c * h.square()).sum()

    with outcome.listening():
        solution = problem.solve(given, derivatives=2, **options)
        first = torch.autograd.grad(loss(problem.joined(solution.value)), given, create_graph=True)
        along = torch.stack([(g * v).sum() for g, v in zip(first, vectors, strict=True)]).sum()
        second = torch.autograd.grad(along, given, allow_unused=True, materialize_grads=True)
        outcome.hear(solution)
    if outcome.said:
        return outcome
    exact_first, exact = _truth(problem, loss, vectors, problem.joined(solution.value).detach())
    loose = 0.01 if forward.rtol <= 1e-6 else 0.05
    whole = [torch.cat([g.detach().flatten() for g in one]).norm().item() for one in (exact_first, exact)]
    for i in range(len(given)):
        outcome.compare(f"first {i}", first[i], exact_first[i], loose, least=1e-2 * whole[0])
        outcome.compare(f"second {i}", second[i], exact[i], loose, least=1e-2 * whole[1])
    return outcome


def _truth(problem: Problem, loss: Any, vectors: Sequence[Tensor], near: Tensor) -> tuple[list[Tensor], list[Tensor]]:
    """Both derivatives by Newton steps that are differentiated: two of them from the steady state make two orders exact."""
    given = [p.clone().requires_grad_() for p in problem.parameters]
    h = problem.polished(near)
    J = problem.jacobian(h)
    inverse = torch.linalg.inv(torch.eye(len(J), dtype=J.dtype) - J)
    for _ in range(2):
        h = h + (inverse @ (problem.update(h, given) - h).reshape(-1)).view(h.shape)
    first = torch.autograd.grad(loss(h), given, create_graph=True)
    along = torch.stack([(g * v).sum() for g, v in zip(first, vectors, strict=True)]).sum()
    return list(first), list(torch.autograd.grad(along, given, allow_unused=True, materialize_grads=True))
