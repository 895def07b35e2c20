"""Families from statistics, inference and decisions: estimates that are defined as fixed points."""

from __future__ import annotations

import torch
from drawing import Draw, Family, ring_with_chord
from torch import Tensor


def robust_regression(draw: Draw) -> Family:
    """Regression with Cauchy's weights, reweighted least squares: outliers lose their say, and there may be several ends."""
    n, scale = draw.size, draw.log(0.05, 3.0)
    m = 2 * n + 3
    X, truth = draw.normal(m, n), draw.normal(n)
    y = truth @ X.mT + 0.1 * draw.normal(draw.rows, m) + 5 * (draw.uniform(draw.rows, m) < 0.2).double()

    def update(h: Tensor, p: list[Tensor]) -> Tensor:
        weights = 1 / (1 + ((p[1] - h @ p[0].mT) / scale).square())
        weighted = weights.unsqueeze(-1) * p[0]
        system = p[0].mT @ weighted + 1e-6 * torch.eye(n, dtype=h.dtype)
        return torch.linalg.solve(system, (weighted.mT @ p[1].unsqueeze(-1)).squeeze(-1))

    return Family(update, [X, y], draw.zeros(draw.rows, n))


def topics(draw: Draw) -> Family:
    """The topics of a text by variational inference (latent Dirichlet allocation): counts, through digamma."""
    k, words = draw.size + 1, 12
    beta = torch.softmax(draw.number(0.5, 3.0) * draw.normal(k, words), -1)
    counts = draw.log(1.0, 100.0) * draw.uniform(draw.rows, words)
    alpha = torch.tensor([draw.log(0.05, 2.0)], dtype=torch.float64)

    def update(h: Tensor, p: list[Tensor]) -> Tensor:
        share = torch.exp(torch.digamma(h))
        return p[0] + share * ((p[2] / (share @ p[1])) @ p[1].mT)

    return Family(update, [alpha, beta, counts], alpha + counts.sum(-1, keepdim=True) / k * draw.ones(draw.rows, k))


def nonnegative_factors(draw: Draw) -> Family:
    """Multiplicative updates of Lee and Seung for x ≈ h W with h ≥ 0: entries on their way to zero get there slowly."""
    k, columns = draw.size, draw.size + 4
    W = draw.uniform(k, columns)
    x = draw.uniform(draw.rows, k) @ W + draw.log(1e-3, 0.3) * draw.uniform(draw.rows, columns)
    return Family(lambda h, p: h * (p[1] @ p[0].mT) / (h @ (p[0] @ p[0].mT) + 1e-12), [W, x], draw.ones(draw.rows, k))


def spin_glass(draw: Draw) -> Family:
    """The equations of Thouless, Anderson and Palmer: m = tanh(β J m + x − β² m · J²(1 − m²))."""
    n, beta = draw.size + 1, torch.tensor([draw.number(0.2, 1.0)], dtype=torch.float64)
    J = draw.normal(n, n) / n**0.5
    field = draw.log(1e-3, 1.0) * draw.normal(draw.rows, n)

    def update(h: Tensor, p: list[Tensor]) -> Tensor:
        J = (p[0] + p[0].mT) / 2
        return torch.tanh(p[1] * (h @ J) + p[2] - p[1].square() * h * ((1 - h.square()) @ J.square()))

    return Family(update, [J, beta, field], draw.zeros(draw.rows, n))


def soft_policy(draw: Draw) -> Family:
    """Values of a policy with an entropy bonus, V = τ·log Σ exp(Q/τ): a horizon of up to a thousand steps."""
    n, gamma, tau = draw.size + 1, draw.choice([0.5, 0.9, 0.99, 0.999]), draw.log(1e-2, 1.0)
    P = 2 * draw.normal(3, n, n)

    def update(h: Tensor, p: list[Tensor]) -> Tensor:
        Q = p[0].unsqueeze(1) + gamma * torch.einsum("ast,rt->ars", torch.softmax(p[1], -1), h)
        return tau * torch.logsumexp(Q / tau, 0)

    return Family(update, [draw.uniform(3, n), P], draw.zeros(draw.rows, n))


def laplace_mode(draw: Draw) -> Family:
    """The mode of a Gaussian process classifier, f = K (y − σ(f)), damped; K has one size and one length."""
    n, answer = draw.size + 1, draw.number(0.05, 1.0)
    places = draw.normal(n, 2)
    far = (places.unsqueeze(0) - places.unsqueeze(1)).square().sum(-1)
    size, length = (torch.tensor([draw.log(0.3, high)], dtype=torch.float64) for high in (10.0, 3.0))

    def update(h: Tensor, p: list[Tensor]) -> Tensor:
        K = p[0] * torch.exp(-far.to(h) / (2 * p[1].square()))
        return (1 - answer) * h + answer * ((p[2] - torch.sigmoid(h)) @ K)

    return Family(update, [size, length, draw.uniform(draw.rows, n)], draw.zeros(draw.rows, n))


def demand_inversion(draw: Draw) -> Family:
    """Mean utilities that explain market shares (Berry, Levinsohn, Pakes): δ ← δ + log s − log σ(δ)."""
    n, buyers = draw.size, 8
    tastes = draw.number(0.1, 2.0) * draw.normal(buyers, n)

    def shares(h: Tensor, tastes: Tensor) -> Tensor:
        utility = h.unsqueeze(-2) + tastes
        outside = torch.zeros_like(utility[..., :1])
        return torch.softmax(torch.cat([outside, utility], -1), -1)[..., 1:].mean(-2)

    seen = shares(draw.number(-2.0, 4.0) + draw.normal(draw.rows, n), tastes).log()
    return Family(lambda h, p: h + p[1] - shares(h, p[0]).log(), [tastes, seen], draw.zeros(draw.rows, n))


def associative_recall(draw: Draw) -> Family:
    """A modern Hopfield net, h ← softmax(β h Xᵀ) X: a pattern, or a blend of several."""
    n, m, beta = draw.size + 1, 6, torch.tensor([draw.log(0.3, 8.0)], dtype=torch.float64)
    X = draw.normal(m, n)
    start = X[draw.whole(0, m - 1)] + draw.number(0.0, 1.0) * draw.normal(draw.rows, n)
    return Family(lambda h, p: torch.softmax(p[1] * (h @ p[0].mT), -1) @ p[0], [X, beta], start)


def mean_shift_on_a_sphere(draw: Draw) -> Family:
    """The mode of directions, h ← Σ exp(κ xᵢ·h) xᵢ, normalised: a state on a sphere."""
    n, m, kappa = draw.size + 1, 8, torch.tensor([draw.log(0.3, 20.0)], dtype=torch.float64)
    X = torch.nn.functional.normalize(draw.normal(m, n) + 0.5, dim=-1)

    def update(h: Tensor, p: list[Tensor]) -> Tensor:
        image = torch.softmax(p[1] * (h @ p[0].mT), -1) @ p[0]
        return image / image.norm(dim=-1, keepdim=True)

    return Family(update, [X, kappa], X.mean(0) + 0.1 * draw.normal(draw.rows, n))


def max_messages(draw: Draw) -> Family:
    """Max-product messages of an Ising ring with a chord, damped: piecewise linear, with slopes of 0 and ±1."""
    n, answer = draw.size + 3, draw.number(0.3, 1.0)
    source, arrives = ring_with_chord(n)

    def update(h: Tensor, p: list[Tensor]) -> Tensor:
        field, J = p[0][..., source] + h @ arrives.to(h).mT, torch.cat([p[1], p[1]])
        return (1 - answer) * h + answer * ((field + J).abs() - (field - J).abs()) / 2

    return Family(
        update,
        [draw.normal(draw.rows, n), draw.number(0.2, 1.5) * draw.normal(len(source) // 2)],
        draw.zeros(draw.rows, len(source)),
    )


INFERENCE = [
    robust_regression, topics, nonnegative_factors, spin_glass, soft_policy, laplace_mode, demand_inversion, associative_recall,
    mean_shift_on_a_sphere, max_messages,
]  # fmt: skip
