"""Families of unusual cells, and of F written in unusual ways: views, changes in place, inner loops, own derivatives, jumps."""

from __future__ import annotations

from typing import Any

import torch
from drawing import Draw, Family
from torch import Tensor
from torch.nn import functional


def phase_retrieval(draw: Draw) -> Family:
    """Amplitudes without their signs, by descent on Σ ((Ah)² − y)²: two ends of the same loss."""
    n, m = draw.size, 3 * draw.size + 2
    A, truth = draw.normal(m, n), draw.normal(draw.rows, n)
    y = (truth @ A.mT).square() + draw.log(1e-4, 0.1) * draw.normal(draw.rows, m)
    step = draw.number(0.02, 0.15) / float(truth.square().sum(-1).amax().clamp(min=0.05))

    def update(h: Tensor, p: list[Tensor]) -> Tensor:
        seen = h @ p[0].mT
        return h + step / m * ((p[1] - seen.square()) * seen) @ p[0]

    return Family(update, [A, y], truth + 0.3 * draw.normal(draw.rows, n) * truth.abs())


def capsules(draw: Draw) -> Family:
    """Routing by agreement between capsules, the logits relaxed: b ← b + γ (u·squash(Σ softmax(b) u) − b)."""
    n, k, d = draw.size + 1, 3, 3
    sharp, gamma = draw.log(0.3, 10.0), draw.number(0.1, 1.0)

    def update(h: Tensor, p: list[Tensor]) -> Tensor:
        b = h.view(*h.shape[:-1], n, k)
        s = torch.einsum("...nk,...nkd->...kd", torch.softmax(b, -1), p[0])
        size = s.square().sum(-1, keepdim=True)
        v = s * size.sqrt() / (1 + size)
        return h + gamma * (sharp * torch.einsum("...nkd,...kd->...nk", p[0], v).flatten(-2) - h)

    return Family(update, [draw.normal(draw.rows, n, k, d)], draw.zeros(draw.rows, n * k))


def hypernetwork(draw: Draw) -> Family:
    """A cell whose weights are made from its state by another net."""
    n, r, size = draw.size, 2, draw.number(0.3, 1.5)

    def update(h: Tensor, p: list[Tensor]) -> Tensor:
        left, right = torch.tanh(h @ p[0].mT).view(*h.shape[:-1], 2, r, n).unbind(-3)
        return torch.tanh(torch.einsum("...rn,...rm,...m->...n", left, right, h) * size / n + p[1])

    return Family(update, [draw.normal(2 * r * n, n) / n**0.5, draw.normal(draw.rows, n)], 0.1 * draw.normal(draw.rows, n))


def gated_block(draw: Draw) -> Family:
    """A weight-tied block with RMS norms, causal attention and a gated hidden layer (SwiGLU); the input is injected."""
    n, d, gain = min(draw.size, 3) + 1, 4, draw.number(0.2, 1.2)
    mask = torch.full((n, n), -torch.inf, dtype=torch.float64).triu(1)

    def normed(h: Tensor) -> Tensor:
        return h * (h.square().mean(-1, keepdim=True) + 1e-5).rsqrt()

    def update(h: Tensor, p: list[Tensor]) -> Tensor:
        a = normed(h)
        weights = torch.softmax((a @ p[0]) @ (a @ p[1]).mT / 2 + mask.to(h), -1)
        b = normed(0.5 * h + weights @ a + p[4])
        return gain * normed(b + functional.silu(b @ p[2]) * (b @ p[3]))

    weights = [draw.number(0.1, 0.7) * draw.normal(d, d) for _ in range(4)]
    return Family(update, [*weights, 2 * draw.normal(draw.rows, n, d)], draw.normal(draw.rows, n, d))


def saturated(draw: Draw) -> Family:
    """A Hopfield net with hard limits: parts of it rest on them, some within rounding of a kink."""
    n = draw.size + 1
    W = draw.normal(n, n)
    W = draw.number(0.3, 3.0) * (W + W.mT) / 2 / n**0.5
    x = draw.normal(draw.rows, n)
    mix = draw.number(0.1, 1.0)
    return Family(
        lambda h, p: (1 - mix) * h + mix * functional.hardtanh(h @ p[0].mT + p[1]), [W, x], 0.1 * draw.normal(draw.rows, n)
    )


def quantised(draw: Draw) -> Family:
    """A net that also hears a rounded copy of its state: F jumps, and is smooth between the jumps."""
    n, levels = draw.size, draw.choice([2, 5, 20])
    W = draw.normal(n, n)
    W = draw.number(0.2, 0.9) * W / torch.linalg.matrix_norm(W, 2)
    return Family(
        lambda h, p: torch.tanh(h @ p[0].mT + p[1] + 0.3 * torch.round(h.detach() * levels) / levels),
        [W, draw.normal(draw.rows, n)],
        draw.zeros(draw.rows, n),
    )


def inner_loop(draw: Draw) -> Family:
    """F solves y³ + y = W h + x by Newton's method inside, for as many steps as it takes."""
    n = draw.size
    W = draw.normal(n, n)
    W = draw.number(0.3, 1.3) * W / torch.linalg.matrix_norm(W, 2)

    def update(h: Tensor, p: list[Tensor]) -> Tensor:
        right = h @ p[0].mT + p[1]
        y = right / 2
        for _ in range(40):
            step = (y**3 + y - right) / (3 * y * y + 1)
            y = y - step
            if not bool((step.detach().abs() > 1e-7).any()):
                break
        return y

    return Family(update, [W, draw.normal(draw.rows, n)], draw.zeros(draw.rows, n))


def views(draw: Draw) -> Family:
    """Parameters through views, strides, expansion and shared use; temporaries changed in place before they are saved."""
    n = draw.size + 1
    W = draw.number(0.2, 0.9) * draw.normal(n, n) / n**0.5

    def update(h: Tensor, p: list[Tensor]) -> Tensor:
        W, gain = p[0].T[:, :], p[2].expand(n)
        out = torch.empty_like(h)
        out[..., ::2] = (h @ W)[..., ::2]
        out[..., 1::2] = (h @ p[0])[..., 1::2]
        out.add_(p[1])
        out *= gain
        return torch.sin(out) + 0.1 * p[1].flip(-1)

    return Family(update, [W, draw.normal(draw.rows, n), draw.uniform(1, low=0.3, high=1.0)], draw.zeros(draw.rows, n))


class Cubic(torch.autograd.Function):
    """x − x³/3 between −1 and 1, with a derivative written by hand."""

    generate_vmap_rule = True

    @staticmethod
    def forward(x: Tensor) -> Tensor:  # pyright: ignore[reportIncompatibleMethodOverride]
        y = x.clamp(-1, 1)
        return y - y**3 / 3

    @staticmethod
    def setup_context(ctx: Any, inputs: Any, output: Any) -> None:
        ctx.save_for_backward(*inputs)

    @staticmethod
    def backward(ctx: Any, g: Tensor) -> Any:
        (x,) = ctx.saved_tensors
        return g * (1 - x.clamp(-1, 1) ** 2)


def own_derivative(draw: Draw) -> Family:
    """A net whose activation has a derivative written by hand."""
    n = draw.size
    W = draw.normal(n, n)
    W = draw.number(0.3, 1.2) * W / torch.linalg.matrix_norm(W, 2)

    def update(h: Tensor, p: list[Tensor]) -> Tensor:
        return Cubic.apply(h @ p[0].mT + p[1])  # pyright: ignore[reportReturnType]

    return Family(update, [W, 0.7 * draw.normal(draw.rows, n)], draw.zeros(draw.rows, n))


def weight_norm(draw: Draw) -> Family:
    """Weights by direction and length, W = g v / ‖v‖: the gradient of v is orthogonal to v."""
    n = draw.size + 1
    v, g = draw.log(0.1, 10.0) * draw.normal(n, n), draw.uniform(n, 1, low=0.2, high=1.2)

    def update(h: Tensor, p: list[Tensor]) -> Tensor:
        W = p[1] * p[0] / p[0].norm(dim=1, keepdim=True)
        return torch.tanh(functional.linear(h, W) + p[2])

    return Family(update, [v, g, draw.normal(draw.rows, n)], draw.zeros(draw.rows, n))


def stiff_leaves(draw: Draw) -> Family:
    """A differential–algebraic step: a slow position, a fast pressure up to 1e6 times larger, and the constraint between."""
    n, big, slow = draw.size, draw.log(1.0, 1e6), draw.log(1e-3, 0.5)

    def update(h: Tensor, p: list[Tensor]) -> Tensor:
        x, pressure = h[..., :n], h[..., n:]
        pull = torch.tanh(x @ p[0].mT - pressure / big)
        return torch.cat([x + slow * (pull + p[1] - x), big * (0.5 * pressure / big + 0.2 * x)], -1)

    return Family(update, [0.5 * draw.normal(n, n) / n**0.5, draw.normal(draw.rows, n)], draw.zeros(draw.rows, 2 * n))


def factor_model(draw: Draw) -> Family:
    """Noise variances of a factor model by EM, log-variances as state: some variances go towards zero (Heywood's case)."""
    n = draw.size + 2
    load = draw.normal(n)
    S = torch.outer(load, load) + torch.diag(draw.uniform(n, low=0.01, high=1.0)) + 0.05 * torch.eye(n, dtype=torch.float64)

    def update(h: Tensor, p: list[Tensor]) -> Tensor:
        psi = h.exp()
        C = torch.diag_embed(psi) + p[0].unsqueeze(-1) * p[0]
        beta = torch.linalg.solve(C, p[0].expand_as(psi))
        left = (p[1] @ beta.unsqueeze(-1)).squeeze(-1)
        return (
            (p[1].diagonal() - 2 * p[0] * left + p[0].square() * (1 - beta @ p[0] + (beta * left).sum(-1)).unsqueeze(-1) + 1e-3)
            .clamp(min=1e-6)
            .log()
        )

    return Family(update, [load + 0.1 * draw.normal(n), S], draw.zeros(draw.rows, n))


def delayed_logistic(draw: Draw) -> Family:
    """h ← r·h·(1 − h of the step before): a pair of complex eigenvalues that reaches the unit circle at r = 2."""
    r = torch.full((draw.rows, 1), draw.choice([1.05, 1.5, 1.9, 1.99, 1.999, 2.001]), dtype=torch.float64)
    return Family(
        lambda h, p: torch.cat([p[0] * h[..., :1] * (1 - h[..., 1:]), h[..., :1]], -1),
        [r],
        draw.uniform(draw.rows, 2, low=0.3, high=0.6),
    )


WRITING = [
    phase_retrieval, capsules, hypernetwork, gated_block, saturated, quantised, inner_loop, views, own_derivative, weight_norm,
    stiff_leaves, factor_model, delayed_logistic,
]  # fmt: skip
