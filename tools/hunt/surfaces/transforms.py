"""torch.func around a solve: every transform against autograd through Newton steps from the steady state."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from drawing import Draw
from torch import Tensor
from torch.func import grad, hessian, jacfwd, jacrev, jvp, vmap

import steadygrad as sg
from surfaces.contractions import Problem, contraction
from surfaces.outcome import Outcome

SAMPLES = 3
Loss = Callable[[Tensor, Tensor], Tensor]
Steady = Callable[[Tensor, Tensor], Tensor]
KINDS: dict[str, Callable[[Loss, Steady, Tensor, Tensor, Tensor], Any]] = {
    "grad": lambda loss, h, w, X, v: grad(loss)(w, X[0]),
    "vmap grad": lambda loss, h, w, X, v: vmap(grad(loss), (None, 0))(w, X),
    "vmap grad by x": lambda loss, h, w, X, v: vmap(grad(loss, argnums=1), (None, 0))(w, X),
    "grad vmap": lambda loss, h, w, X, v: grad(lambda w: vmap(loss, (None, 0))(w, X).sum())(w),
    "jacrev": lambda loss, h, w, X, v: jacrev(h, argnums=1)(w, X[0]),
    "jacfwd": lambda loss, h, w, X, v: jacfwd(h, argnums=1)(w, X[0]),
    "jvp": lambda loss, h, w, X, v: jvp(lambda x: h(w, x), (X[0],), (v,))[1],
    "vmap jvp": lambda loss, h, w, X, v: vmap(lambda x: jvp(lambda y: h(w, y), (x,), (v,))[1])(X),
    "hessian": lambda loss, h, w, X, v: hessian(loss, argnums=1)(w, X[0]),
    "vmap hessian": lambda loss, h, w, X, v: vmap(hessian(loss, argnums=1), (None, 0))(w, X),
    "jvp of grad": lambda loss, h, w, X, v: jvp(lambda x: grad(loss)(w, x), (X[0],), (v,))[1],
    "grad of grad": lambda loss, h, w, X, v: grad(lambda x: (grad(loss, argnums=1)(w, x) * v).sum())(X[0]),
    "vmap value": lambda loss, h, w, X, v: vmap(h, (None, 0))(w, X),
}


def trial(seed: int) -> Outcome:
    draw = Draw(seed)
    problem = contraction(draw, 5)
    # A batch is what vmap makes; and vmap(hessian(f)) of torch.linalg.solve is wrong in torch 2.13 itself.
    while problem.rows or problem.name == "solved_inside":
        problem = contraction(draw, 5)
    name = draw.choice(list(KINDS))
    gradient = draw.choice(["auto", "auto", "gmres", "lsqr", "dense", "cg-rbp"])
    forward = draw.choice([sg.Picard(max_steps=1000, rtol=1e-12), sg.Anderson(rtol=1e-11), sg.Newton(rtol=1e-10)])
    by_args = draw.happens(0.5)
    w, x = problem.parameters[0], problem.parameters[-1]
    X = x + 0.1 * draw.normal(SAMPLES, *x.shape)
    v, b = draw.normal(*x.shape), draw.normal(*problem.start.shape)
    outcome = Outcome(f"{name.replace(' ', '-')} {problem.name} {gradient} {forward} args {by_args}")
    rest = problem.parameters[1:-1]

    def steady(w: Tensor, x: Tensor) -> Tensor:
        part, _ = problem.nested([])

        def update(h: Any, *given: Tensor) -> Any:
            mine = given[0] if by_args else x
            return part(problem.update(problem.joined(h), [w, *rest, mine]))

        solution = sg.steady_state(update, part(problem.start), *([x] if by_args else []), forward=forward, gradient=gradient)
        return problem.joined(solution.value)

    near = [problem.start for _ in X]

    def newton(w: Tensor, x: Tensor) -> Tensor:
        return _newton(problem, [w, *rest, x], near[int((X - x.detach()).flatten(1).norm(dim=1).argmin())])

    with outcome.listening():
        found = KINDS[name](_loss(steady, b), steady, w, X, v)
        near = [steady(w, x).detach() for x in X]  # where there are several steady states, that of the library counts
    if outcome.said:
        return outcome
    truth = _truth(name, _loss(newton, b), newton, w, X, v)
    outcome.compare(name, found, truth, 1e-3, least=1e-6 * float(b.norm()))
    return outcome


def _loss(steady: Steady, b: Tensor) -> Loss:
    def loss(w: Tensor, x: Tensor) -> Tensor:
        h = steady(w, x)
        return (b * h).sum() + 0.5 * h.square().sum()

    return loss


def _newton(problem: Problem, p: list[Tensor], near: Tensor) -> Tensor:
    """The steady state of these parameters near a state, exact with two derivatives, for plain autograd."""
    held = [t.detach() for t in p]
    here = Problem(problem.name, problem.update, held, problem.start)
    h = here.polished(near)
    J = here.jacobian(h)
    inverse = torch.linalg.inv(torch.eye(len(J), dtype=J.dtype) - J)
    for _ in range(2):
        h = h + (inverse @ (problem.update(h, p) - h).reshape(-1)).view(h.shape)
    return h


def _truth(name: str, loss: Loss, h: Steady, w: Tensor, X: Tensor, v: Tensor) -> Tensor:
    """The same by torch.autograd.functional, sample by sample."""
    jacobian, second = torch.autograd.functional.jacobian, torch.autograd.functional.hessian
    if name in ("grad", "vmap grad", "grad vmap"):
        each = torch.stack([jacobian(lambda w: loss(w, x), w) for x in X])  # noqa: B023
        return {"grad": each[0], "vmap grad": each, "grad vmap": each.sum(0)}[name]
    if name == "vmap grad by x":
        return torch.stack([jacobian(lambda x: loss(w, x), x) for x in X])
    if name == "vmap value":
        return torch.stack([h(w, x) for x in X])
    if name in ("jacrev", "jacfwd", "jvp", "vmap jvp"):
        each = torch.stack([jacobian(lambda x: h(w, x), x) for x in X])
        return each[0] if name.startswith("jac") else (each[0] @ v if name == "jvp" else each @ v)
    if name == "jvp of grad":
        cross = jacobian(lambda x: jacobian(lambda w: loss(w, x), w, create_graph=True), X[0])
        return cross @ v
    each = torch.stack([second(lambda x: loss(w, x), x) for x in X])
    return {"hessian": each[0], "vmap hessian": each, "grad of grad": each[0] @ v}[name]
