"""Equilibrium as a module: train and eval, copies, state_dict, warm starts, second calls, checkpoint, compiled cells."""

from __future__ import annotations

import copy
import io
from typing import Any

import torch
from drawing import Draw
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

import steadygrad as sg
from surfaces.outcome import Outcome


class Mixed(nn.Module):
    """A cell with normalisation, dropout and a buffer."""

    def __init__(self, draw: Draw, n: int, norm: str, p: float) -> None:
        super().__init__()
        self.inner, self.outer = nn.Linear(n, n), nn.Linear(3, n)
        with torch.no_grad():
            self.inner.weight.copy_(0.5 * torch.linalg.qr(draw.normal(n, n))[0])
        self.norm = {"layer": nn.LayerNorm(n, eps=1e-2), "batch": nn.BatchNorm1d(n, eps=1e-2), "none": nn.Identity()}[norm]
        self.drop = nn.Dropout(p)
        self.register_buffer("scale", torch.tensor(draw.number(0.3, 0.6)))

    def forward(self, x: Tensor, h: Tensor | None) -> Tensor:
        inner = self.outer(x) if h is None else self.inner(h) + self.outer(x)
        return self.scale * self.drop(torch.tanh(self.norm(inner)))


def trial(seed: int) -> Outcome:
    draw = Draw(seed)
    torch.manual_seed(seed)
    norm, p = draw.choice(["layer", "batch", "none", "none"]), draw.choice([0.0, 0.0, 0.3])
    training = draw.happens(0.5)
    use = draw.choice(["plain", "copied", "saved", "checkpoint", "reentrant", "twice", "warm", "gru", "lstm", "accumulated"])
    n, rows = draw.whole(2, 6), draw.choice([2, 5])
    cell: Any = {"gru": lambda: nn.GRUCell(3, n), "lstm": lambda: nn.LSTMCell(3, n)}.get(use, lambda: Mixed(draw, n, norm, p))()
    cell = cell.double()
    if use in ("gru", "lstm"):
        p = 0.0
    options: dict[str, Any] = {
        "forward": sg.Picard(max_steps=2000, rtol=1e-10),
        "gradient": draw.choice(["auto", "gmres", "lsqr"]),
    }
    batched = (norm != "batch" or not training or use in ("gru", "lstm")) and draw.happens(0.4)
    layer: Any = sg.Equilibrium(cell, warm_start=use == "warm", batch_dims=1 if batched else 0, **options)
    layer = _used(layer.train(training), use)
    outcome = Outcome(f"{use} {norm} dropout {p} training {training} rows {rows} batched {batched} {options['gradient']}")
    x = draw.normal(rows, 3).requires_grad_()
    wanted = [x, *layer.parameters()]
    with outcome.listening():
        for _ in range(2 if use in ("warm", "twice") else 1):
            h = _called(layer, use, x)
        first = h[0] if isinstance(h, tuple) else h
        b = draw.normal(*first.shape)
        loss = (first * b).sum()
        if use in ("accumulated", "reentrant"):  # checkpoint of the reentrant kind knows backward() alone
            times = 2 if use == "accumulated" else 1
            for left in reversed(range(times)):
                loss.backward(retain_graph=left > 0)
            grads = [torch.zeros_like(w) if w.grad is None else w.grad / times for w in wanted]
        else:
            grads = torch.autograd.grad(loss, wanted, retain_graph=use == "twice", allow_unused=True, materialize_grads=True)
        own = getattr(layer, "solution", None)
        if own is not None:
            outcome.hear(own)
            outcome.errors["certificate"] = (float(own.adjoint is None), 0.0)
    if outcome.said:
        return outcome
    state = torch.cat([t.detach().flatten() for t in (h if isinstance(h, tuple) else (h,))])
    mask = (first.detach() != 0).double() / (1 - p) if p and training else None
    exact, far = _truth(
        layer, x, state, torch.cat([b.flatten(), torch.zeros(len(state) - b.numel(), dtype=b.dtype)]), wanted, mask
    )
    outcome.errors["state"] = (far, 1e-6)
    whole = float(torch.cat([g.flatten() for g in exact]).norm())
    for i, (found, true) in enumerate(zip(grads, exact, strict=True)):
        outcome.compare(f"gradient {i}", found, true, 1e-4, least=1e-2 * whole)
    return outcome


def _used(layer: Any, use: str) -> Any:
    """The layer as a user may come by it."""
    if use == "copied":
        return copy.deepcopy(layer)
    if use == "saved":
        buffer = io.BytesIO()
        torch.save(layer.state_dict(), buffer)
        buffer.seek(0)
        other = copy.deepcopy(layer)
        with torch.no_grad():
            for parameter in other.parameters():
                parameter.zero_()
        other.load_state_dict(torch.load(buffer, weights_only=True))
        return other
    return layer


def _called(layer: Any, use: str, x: Tensor) -> Any:
    if use == "checkpoint":
        return checkpoint(layer, x, use_reentrant=False)
    if use == "reentrant":
        return checkpoint(layer, x, use_reentrant=True)
    return layer(x)


def _truth(
    layer: Any, x: Tensor, state: Tensor, b: Tensor, wanted: list[Tensor], mask: Tensor | None
) -> tuple[list[Tensor], float]:
    """bᵀ dh/dw at the state, by dense algebra, with the dropout mask that was seen."""
    cell = layer.cell
    pair = isinstance(cell, nn.LSTMCell)
    rows = len(x)

    def update(v: Tensor, x: Tensor) -> Tensor:
        if pair:
            a, c = v.view(2, rows, -1)
            return torch.cat([t.flatten() for t in cell(x, (a, c))])
        if mask is None:
            return cell(x, v.view(rows, -1)).flatten()
        cell.drop.eval()
        return (mask * cell(x, v.view(rows, -1))).flatten()

    held = x.detach()
    J = torch.autograd.functional.jacobian(lambda v: update(v, held), state)
    eye = torch.eye(len(J), dtype=J.dtype)
    far = float(torch.linalg.solve(eye - J, (update(state, held) - state).detach()).norm() / state.norm())
    z = torch.linalg.solve(eye - J.mT, b)
    return list(torch.autograd.grad(update(state, x), wanted, z, allow_unused=True, materialize_grads=True)), far
