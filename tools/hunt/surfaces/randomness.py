"""Dropout and noise inside F: one draw a solve, from the first step to the last product, also in threads."""

from __future__ import annotations

import sys
import threading
from concurrent.futures import ThreadPoolExecutor

import torch
from drawing import Draw
from torch import Tensor, nn

import steadygrad as sg
from surfaces.outcome import Outcome

THREADS = 4
MANY = 8
"""Solves of each thread in one trial."""


def trial(seed: int) -> Outcome:
    """One kind of F that draws, solved alone, or by four threads that begin together."""
    draw = Draw(seed)
    kind = draw.choice(["dropout", "noise", "alpha", "feature", "rrelu", "gumbel", "multinomial"])
    threads = draw.happens(0.4)
    gradient = draw.choice(["auto", "gmres", "lsqr", "cg-rbp", "neumann", "bptt", "checkpoints", "dense"])
    outcome = Outcome(f"{kind} {gradient} threads {threads}")
    batch_dims = draw.choice([0, 0, 1])
    W = 0.4 * torch.linalg.qr(draw.normal(6, 6))[0]
    inputs = [draw.normal(3, 6) for _ in range(THREADS * MANY if threads else 1)]
    module = {"dropout": nn.Dropout(0.3), "alpha": nn.AlphaDropout(0.2), "feature": nn.Dropout1d(0.3), "rrelu": nn.RReLU()}
    with outcome.listening():
        if threads:
            _together(outcome, lambda i: _solve(outcome, kind, module.get(kind), W, inputs[i], gradient, batch_dims), len(inputs))
        else:
            torch.manual_seed(seed)
            _solve(outcome, kind, module.get(kind), W, inputs[0], gradient, batch_dims)
    return outcome


def _together(outcome: Outcome, task: object, count: int) -> None:
    usual = sys.getswitchinterval()
    sys.setswitchinterval(1e-5)
    barrier = threading.Barrier(THREADS)
    try:
        with ThreadPoolExecutor(THREADS, initializer=barrier.wait) as pool:
            list(pool.map(task, range(count), timeout=300))  # type: ignore[arg-type]
    finally:
        sys.setswitchinterval(usual)


def _drawn(kind: str, module: nn.Module | None, h: Tensor) -> Tensor:
    """h after a layer that draws."""
    if kind == "noise":
        return h + 0.3 * torch.randn_like(h)
    if kind == "gumbel":
        return 0.5 * nn.functional.gumbel_softmax(h, dim=-1) * h
    if kind == "multinomial":
        return h * torch.bernoulli(torch.full_like(h, 0.5))
    assert module is not None
    return module(h)


def _solve(outcome: Outcome, kind: str, module: nn.Module | None, W: Tensor, x: Tensor, gradient: str, batch_dims: int) -> None:
    """Solve and notes how steady the state is under the draws of its own solve, and whether the gradient has these draws."""
    calls: list[tuple[Tensor, Tensor]] = []
    weight = W.clone().requires_grad_()

    def update(h: Tensor) -> Tensor:
        before = _drawn(kind, module, torch.ones_like(h))  # a record of what is drawn first
        new = _drawn(kind, module, torch.tanh(h @ weight.mT + x))
        calls.append((before.detach(), new.detach()))
        return 0.7 * new + 0.01 * before

    method = {"neumann": sg.Implicit(sg.Neumann()), "checkpoints": sg.BPTT(checkpoints=3)}.get(gradient, gradient)
    solution = sg.steady_state(
        update, torch.zeros_like(x), gradient=method, forward=sg.Picard(max_steps=500), batch_dims=batch_dims
    )
    (found,) = torch.autograd.grad(solution.value.sum(), weight)
    outcome.hear(solution)
    same = all(torch.equal(calls[0][0], first) for first, _ in calls)
    outcome.errors[f"draws {len(outcome.errors)}"] = (0.0 if same else 1.0, 0.0)
    # Central differences with the draws of this solve: the mask that was seen, where a mask is all that is drawn.
    if kind in ("dropout", "multinomial", "feature") and same:
        mask = 2.0 if kind == "multinomial" else 1.0
        kept = (calls[-1][1] != 0).double() * (1 / 0.7 if kind != "multinomial" else 1.0)
        _against(outcome, kept, mask, W, x, calls[0][0], solution.value.detach(), found)


def _against(outcome: Outcome, kept: Tensor, _: float, W: Tensor, x: Tensor, first: Tensor, h: Tensor, found: Tensor) -> None:
    """The gradient of the map with this mask, by dense algebra."""
    weight = W.clone().requires_grad_()

    def flat(v: Tensor) -> Tensor:
        return (0.7 * kept * torch.tanh(v.view(h.shape) @ W.mT + x) + 0.01 * first).reshape(-1)

    J = torch.autograd.functional.jacobian(flat, h.reshape(-1))
    z = torch.linalg.solve(torch.eye(len(J), dtype=J.dtype) - J.mT, torch.ones(len(J), dtype=J.dtype)).view(h.shape)
    (exact,) = torch.autograd.grad(0.7 * kept * torch.tanh(h @ weight.mT + x), weight, z)
    outcome.compare(f"gradient {len(outcome.errors)}", found, exact, 0.01)
