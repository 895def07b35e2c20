"""sg.penalty against the same penalty of a dense J, value and gradient."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import torch
from drawing import Draw
from torch import Tensor

from steadygrad import penalty
from surfaces.maps import Map, drawn_map
from surfaces.outcome import Outcome

DENSE: dict[str, Callable[[Tensor], Tensor]] = {
    "column_l1": lambda J: (J.abs().sum(0) - 0.9).square().max(),
    "column_l1 hinge": lambda J: (J.abs().sum(0) - 0.3).relu().square().max(),
    "column_l1 mean": lambda J: (J.abs().sum(0) - 0.9).square().mean(),
    "frobenius": lambda J: J.square().sum() / len(J),
    "frobenius sum": lambda J: J.square().sum(),
    "spectral": lambda J: torch.linalg.matrix_norm(J, 2),
    "gershgorin": lambda J: torch.relu(math.sqrt(len(J)) * torch.linalg.matrix_norm(_normal(J) - _eye(J)) - 1),
    "lanczos": lambda J: -torch.linalg.eigvalsh(_normal(J))[0],
    "lanczos fixed": lambda J: -torch.linalg.eigvalsh(_normal(J))[0],
}
"""The penalties of one problem by definition."""
CALLS: dict[str, tuple[Callable[..., Tensor], dict[str, Any]]] = {
    "column_l1": (penalty.column_l1, {}),
    "column_l1 hinge": (penalty.column_l1, {"hinge": True, "eta": 0.3}),
    "column_l1 mean": (penalty.column_l1, {"over": "mean"}),
    "frobenius": (penalty.frobenius, {"samples": None}),
    "frobenius sum": (penalty.frobenius, {"samples": None, "over": "sum"}),
    "spectral": (penalty.spectral, {"steps": 400}),
    "gershgorin": (penalty.gershgorin, {}),
    "lanczos": (penalty.lanczos, {"steps": 60}),
    "lanczos fixed": (penalty.lanczos, {"steps": 60, "through": False}),
}
SEPARATE = 1e-3
"""Where two singular values, or the two largest columns, are closer than this, the gradient is one of several."""


def trial(seed: int) -> Outcome:
    draw = Draw(seed)
    name = draw.choice(list(CALLS))
    problem = drawn_map(draw)
    outcome = Outcome(f"{name} of {problem.name}", facts={"shape": tuple(problem.start.shape), "rows": problem.rows})
    through = draw.happens(0.5)
    given = [p.clone().requires_grad_() for p in problem.parameters]
    h = problem.start.clone().requires_grad_(through)
    call, options = CALLS[name]
    wanted = [*given, h] if through else given
    with outcome.listening():
        nested, update = problem.nested(given)
        value = call(update, nested(h), batch_dims=1 if problem.rows else 0, **options)
        grads = (
            torch.autograd.grad(value, wanted, allow_unused=True, materialize_grads=True)
            if value.requires_grad
            else [torch.zeros_like(w) for w in wanted]
        )
    if outcome.said:
        return outcome
    truth, exact, smooth = _truth(problem, name, through)
    outcome.compare("value", value, truth, 1e-4, least=1e-8)
    if smooth:
        everything = torch.cat([g.flatten() for g in exact])
        for i, (found, true) in enumerate(zip(grads, exact, strict=True)):
            outcome.compare(f"gradient {i}", found, true, 1e-3, least=max(1e-3 * float(everything.norm()), 1e-8))
    return outcome


def _truth(problem: Map, name: str, through: bool) -> tuple[Tensor, list[Tensor], bool]:
    """The penalty and its gradient by autograd through dense Jacobians, and whether it has one gradient only."""
    given = [p.clone().requires_grad_() for p in problem.parameters]
    h = problem.start.clone().requires_grad_(through)
    blocks = problem.jacobians(h, given)
    value = torch.stack([DENSE[name](J) for J in blocks]).mean()
    wanted = [*given, h] if through else given
    grads = torch.autograd.grad(value, wanted, allow_unused=True, materialize_grads=True)
    return value.detach(), list(grads), all(_apart(name, J.detach()) for J in blocks)


def _apart(name: str, J: Tensor) -> bool:
    if name.startswith("spectral"):
        values = torch.linalg.svdvals(J)[:2]
    elif name.startswith("lanczos"):
        values = torch.linalg.eigvalsh(_normal(J))[:2]
    elif name == "column_l1 mean" or name.startswith("column_l1"):
        norms = J.abs().sum(0)
        values = (norms - (0.3 if "hinge" in name else 0.9)).square().sort(descending=True).values[:2]
        if "mean" in name:
            return bool((J.abs() > 1e-12).all())
        if not bool((J[:, (norms - 0.9).square().argmax()].abs() > 1e-12).all()):
            return False
    else:
        return True
    return len(values) < 2 or float((values[0] - values[1]).abs()) > SEPARATE * max(float(values.abs().max()), 1e-9)


def _eye(J: Tensor) -> Tensor:
    return torch.eye(len(J), dtype=J.dtype)


def _normal(J: Tensor) -> Tensor:
    return (_eye(J) - J).mT @ (_eye(J) - J)
