"""Families from populations, traffic, signals and estimation: near-critical, stiff, projected and self-normalising maps."""

from __future__ import annotations

import torch
from drawing import Draw, Family
from learning import soft_threshold
from torch import Tensor
from torch.nn import functional


def branching(draw: Draw) -> Family:
    """Extinction probabilities of a branching process of several types, h = exp(−M (1 − h)), near its critical point."""
    n = draw.size
    M = draw.uniform(n, n, low=0.1)
    M = draw.choice([0.7, 0.98, 1.02, 1.1, 2.0]) * M / torch.linalg.eigvals(M).abs().max()
    share = draw.uniform(draw.rows, 1, low=0.9, high=1.0)
    return Family(lambda h, p: 1 - p[1] + p[1] * torch.exp((h - 1) @ p[0].mT), [M, share], draw.zeros(draw.rows, n))


def congested_roads(draw: Draw) -> Family:
    """Flows on roads whose time grows with the fourth power of their flow (BPR), routes chosen by logit, averaged."""
    links, routes, mix = draw.size + 2, 5, draw.log(0.02, 1.0)
    uses = (draw.uniform(routes, links) < 0.5).double()
    capacity, free = draw.uniform(links, low=0.3, high=2.0), draw.uniform(links, low=0.5, high=2.0)
    theta = torch.tensor([draw.log(0.1, 3.0)], dtype=torch.float64)
    demand = draw.log(0.3, 30.0) * draw.uniform(draw.rows, 1, low=0.5)

    def update(h: Tensor, p: list[Tensor]) -> Tensor:
        time = p[0] * (1 + 0.15 * (h / p[1]) ** 4)
        chosen = torch.softmax(-p[2] * (time @ uses.to(h).mT), -1)
        return (1 - mix) * h + mix * p[3] * (chosen @ uses.to(h))

    return Family(update, [free, capacity, theta, demand], draw.zeros(draw.rows, links))


def crowd(draw: Draw) -> Family:
    """A mean-field game on a ring: values and density side by side, walkers who avoid the crowd, both relaxed."""
    n, gamma, tau = draw.size + 2, draw.choice([0.5, 0.9, 0.98]), draw.log(0.05, 1.0)
    step, aversion = draw.number(0.1, 1.0), torch.tensor([draw.log(0.05, 5.0)], dtype=torch.float64)

    def update(state: Tensor, p: list[Tensor]) -> Tensor:
        V, m = state[..., :n], state[..., n:]
        options = torch.stack([V.roll(1, -1), V, V.roll(-1, -1)], -1) * gamma
        reward = p[0] - p[1] * m
        moves = torch.softmax(options / tau, -1) * m.unsqueeze(-1)
        spread = moves[..., 0].roll(-1, -1) + moves[..., 1] + moves[..., 2].roll(1, -1)
        spread = 0.95 * spread + 0.05 / n
        value = reward + tau * torch.logsumexp(options / tau, -1)
        return torch.cat([V + step * (value - V), m + step * (spread - m)], -1)

    start = torch.cat([draw.zeros(draw.rows, n), draw.ones(draw.rows, n) / n], -1)
    return Family(update, [draw.normal(draw.rows, n), aversion], start)


def scatter(draw: Draw) -> Family:
    """Tyler's robust covariance, Σ ← Σᵢ xᵢxᵢᵀ / (xᵢᵀ Σ⁻¹ xᵢ), of trace n: a symmetric matrix, nearly flat data."""
    n = min(draw.size, 3) + 1
    m, flat = 3 * n, draw.log(1e-2, 1.0)
    X = draw.normal(draw.rows, m, n) @ torch.diag(torch.cat([draw.ones(n - 1), torch.tensor([flat], dtype=torch.float64)]))

    def update(h: Tensor, p: list[Tensor]) -> Tensor:
        solved = torch.linalg.solve(h, p[0].mT)
        weights = 1 / (p[0].mT * solved).sum(-2)
        S = (p[0].mT * weights.unsqueeze(-2)) @ p[0] * (n / m)
        return n * S / S.diagonal(dim1=-2, dim2=-1).sum(-1)[..., None, None]

    return Family(update, [X], torch.eye(n, dtype=torch.float64).repeat(draw.rows, 1, 1))


def message_passing(draw: Draw) -> Family:
    """Approximate message passing for sparse signals: estimate and residual side by side, with Onsager's memory."""
    n, m = draw.size + 3, 2 * draw.size + 6
    A = draw.normal(m, n) / m**0.5
    signal = draw.normal(draw.rows, n) * (draw.uniform(draw.rows, n) < 0.4)
    y = signal @ A.mT + draw.log(1e-3, 0.3) * draw.normal(draw.rows, m)
    cut = torch.tensor([draw.number(0.2, 2.0)], dtype=torch.float64)

    def update(state: Tensor, p: list[Tensor]) -> Tensor:
        x, z = state[..., :n], state[..., n:]
        seen = x + z @ p[0]
        noise = (z.square().mean(-1, keepdim=True) + 1e-12).sqrt()
        new = soft_threshold(seen, p[2] * noise)
        kept = torch.sigmoid((seen.abs() - p[2] * noise) / (0.1 * noise)).sum(-1, keepdim=True) / m
        return torch.cat([new, p[1] - new @ p[0].mT + 0.5 * kept * z], -1)

    return Family(update, [A, y, cut], torch.cat([draw.zeros(draw.rows, n), y], -1))


def matrix_root(draw: Draw) -> Family:
    """The square root of a covariance by Visser's X ← X + α (A − X²): slow where A is nearly singular."""
    n = min(draw.size, 4)
    B = draw.normal(n, n)
    A = B @ B.mT + draw.log(1e-4, 1.0) * torch.eye(n, dtype=torch.float64)
    A = A / torch.linalg.matrix_norm(A, 2)
    step = draw.number(0.1, 0.5)
    return Family(
        lambda h, p: h + step * ((p[0] + p[0].mT) / 2 - h @ h), [A], torch.eye(n, dtype=torch.float64).repeat(draw.rows, 1, 1)
    )


def sylvester(draw: Draw) -> Family:
    """A X + X B = C by Smith's steps, X ← X + (A + I)⁻¹-preconditioned gap: stiff spectra on either side."""
    n, k = min(draw.size, 3) + 1, 2
    A = torch.diag(torch.logspace(0, draw.number(0, 3), n, dtype=torch.float64)) + 0.1 * draw.normal(n, n)
    B = draw.normal(k, k) + 3 * torch.eye(k, dtype=torch.float64)

    def update(h: Tensor, p: list[Tensor]) -> Tensor:
        gap = p[2] - p[0] @ h - h @ p[1]
        system = p[0] + 3 * torch.eye(n, dtype=h.dtype)
        # Not solve(system, gap): under a vmap torch 2.13 differentiates a solve wrongly whose system is broadcast.
        return h + 0.3 * torch.linalg.inv(system) @ gap

    return Family(update, [A, B, draw.normal(draw.rows, n, k)], draw.zeros(draw.rows, n, k))


def stages(draw: Draw) -> Family:
    """The two stages of Radau's method for van der Pol's oscillator, by simplified Newton at the old point."""
    mu, dt = torch.tensor([draw.log(0.1, 300.0)], dtype=torch.float64), draw.log(1e-3, 0.3)
    table = torch.tensor([[5 / 12, -1 / 12], [3 / 4, 1 / 4]], dtype=torch.float64)
    before = torch.stack([draw.uniform(draw.rows, low=-2.0, high=2.0), 0.1 * draw.normal(draw.rows)], -1)

    def speed(y: Tensor, mu: Tensor) -> Tensor:
        x, v = y.unbind(-1)
        return torch.stack([v, mu * ((1 - x.square()) * v - x)], -1)

    def update(h: Tensor, p: list[Tensor]) -> Tensor:
        x, v = p[1].detach().unbind(-1)
        one, mu_ = torch.ones_like(x), p[0].detach() * torch.ones_like(x)
        slope = torch.stack([torch.stack([0 * one, one], -1), torch.stack([mu_ * (-2 * x * v - 1), mu_ * (1 - x * x)], -1)], -2)
        stage = h.view(*h.shape[:-1], 2, 2)
        points = p[1].unsqueeze(-2) + dt * table.to(h) @ stage
        gap = (stage - speed(points, p[0])).flatten(-2)
        blocks = torch.einsum("ij,...ab->...iajb", table.to(h), slope).reshape(*slope.shape[:-2], 4, 4)
        return h - torch.linalg.solve(torch.eye(4, dtype=h.dtype) - dt * blocks, gap.unsqueeze(-1)).squeeze(-1)

    return Family(update, [mu, before], speed(before, mu).repeat(1, 2))


def obstacle(draw: Draw) -> Family:
    """A membrane over an obstacle: projected Gauss–Seidel sweeps, one number after the other, with an active set."""
    n = min(draw.size, 6) + 2
    force, floor = draw.normal(draw.rows, n), -draw.uniform(n, low=0.0, high=2.0)
    stiff = torch.tensor([draw.log(1e-3, 1.0)], dtype=torch.float64)

    def update(h: Tensor, p: list[Tensor]) -> Tensor:
        new = list(h.unbind(-1))
        for i in range(n):
            beside = (new[i - 1] if i else 0.0) + (new[i + 1] if i + 1 < n else 0.0)
            new[i] = torch.maximum((p[0][..., i] + beside) / (2 + p[2]), p[1][i])
        return torch.stack(new, -1)

    return Family(update, [force, floor, stiff], draw.zeros(draw.rows, n))


def popularity(draw: Draw) -> Family:
    """Soft ranks that feed back on the scores that they rank: h_i = Σ_j σ((s_i − s_j + a (h_i − h_j)) / τ) / n."""
    n, tau = draw.size + 1, draw.log(0.05, 1.0)
    feedback = torch.tensor([draw.number(-0.5, 1.5) * tau], dtype=torch.float64)

    def update(h: Tensor, p: list[Tensor]) -> Tensor:
        score = p[0] + p[1] * h
        return torch.sigmoid((score.unsqueeze(-1) - score.unsqueeze(-2)) / tau).mean(-1)

    return Family(update, [draw.normal(draw.rows, n), feedback], draw.zeros(draw.rows, n))


def unequal_mixture(draw: Draw) -> Family:
    """EM of logits, means and log-variances of two Gaussians, one of which may be nearly empty."""
    few, apart = draw.choice([1, 2, 5, 15]), draw.number(1.0, 6.0)
    data = torch.cat([draw.normal(30), apart + 0.5 * draw.normal(few)])

    def update(h: Tensor, p: list[Tensor]) -> Tensor:
        logit, mean, size = h[..., :2], h[..., 2:4], h[..., 4:]
        gap = p[0].unsqueeze(1) - mean.unsqueeze(-2)
        says = logit.unsqueeze(-2) - size.unsqueeze(-2) / 2 - gap.square() / (2 * size.unsqueeze(-2).exp())
        weights = torch.softmax(says, -1)
        total = weights.sum(-2) + 1e-3
        new = (weights * p[0].unsqueeze(1)).sum(-2) / total
        spread = ((weights * (p[0].unsqueeze(1) - new.unsqueeze(-2)).square()).sum(-2) + 1e-2) / total
        return torch.cat([(total / total.sum(-1, keepdim=True)).log(), new, spread.log()], -1)

    start = torch.tensor([[-0.7, -0.7, 0.0, apart, 0.0, 0.0]], dtype=torch.float64)
    return Family(update, [data], start.repeat(draw.rows, 1))


def risk_parity(draw: Draw) -> Family:
    """A portfolio to whose risk everything adds its budget, h ← √(h · b / Σh), damped, of sum one; some assets hardly move."""
    n = draw.size + 1
    B = draw.normal(n, n) @ torch.diag(torch.logspace(0, -draw.number(0, 2), n, dtype=torch.float64))
    C = B.mT @ B + 1e-4 * torch.eye(n, dtype=torch.float64)
    budget = draw.uniform(draw.rows, n, low=0.2)

    def update(h: Tensor, p: list[Tensor]) -> Tensor:
        new = (h * p[1] / (h @ p[0]).clamp(min=1e-6)).clamp(min=1e-12).sqrt()
        return new / new.sum(-1, keepdim=True)

    return Family(update, [C, budget], draw.ones(draw.rows, n) / n)


def rates(draw: Draw) -> Family:
    """Excitatory and inhibitory rates, h ← h + dt (k [W h + x]₊² − h): strong weights that hold each other."""
    n, dt = draw.size, draw.number(0.02, 0.3)
    W = draw.uniform(2 * n, 2 * n, low=0.5, high=1.5) / n
    W[:, n:] *= -draw.number(0.7, 1.2)
    drive = draw.log(0.1, 10.0) * draw.uniform(draw.rows, 2 * n, low=0.5)
    return Family(
        lambda h, p: h + dt * (0.1 * torch.relu(h @ p[0].mT + p[1]).square() - h), [W, drive], draw.zeros(draw.rows, 2 * n)
    )


def moments(draw: Draw) -> Family:
    """Mean and variance of a noisy double well, closed at the second moment: 1 and as little as 1e-6 side by side."""
    noise, dt = torch.tensor([draw.log(1e-6, 0.1)], dtype=torch.float64), draw.number(0.02, 0.3)
    tilt = 0.3 * draw.normal(draw.rows, 1)

    def update(h: Tensor, p: list[Tensor]) -> Tensor:
        m, v = h[..., :1], h[..., 1:]
        drift = m - m**3 - 3 * m * v + p[1]
        growth = 2 * (1 - 3 * m.square() - 3 * v) * v + p[0]
        return torch.cat([m + dt * drift, v + dt * growth], -1)

    return Family(update, [noise, tilt], torch.tensor([[1.0, 0.01]], dtype=torch.float64).repeat(draw.rows, 1))


def dispatch(draw: Draw) -> Family:
    """Power plants and the prices of two regions by primal–dual steps with limits: kinks, and rotations of the two."""
    n, step = draw.size + 1, draw.number(0.05, 0.5)
    serves = (draw.uniform(n, 2) < 0.6).double()
    cost, limit = draw.uniform(n, low=0.2, high=2.0), draw.uniform(n, low=0.2, high=1.5)

    def update(state: Tensor, p: list[Tensor]) -> Tensor:
        x, price = state[..., :n], state[..., n:]
        new = torch.minimum(torch.relu(x - step * (p[0] * x + 0.1 - price @ serves.to(x).mT)), p[1])
        missing = p[2] - (2 * new - x) @ serves.to(x)
        return torch.cat([new, functional.softplus(price + step * missing - 0.01 * price, beta=20)], -1)

    return Family(update, [cost, limit, draw.uniform(draw.rows, 2)], draw.zeros(draw.rows, n + 2))


SOCIETY = [
    branching, congested_roads, crowd, scatter, message_passing, matrix_root, sylvester, stages, obstacle, popularity,
    unequal_mixture, risk_parity, rates, moments, dispatch,
]  # fmt: skip
