"""Families from engineering, chemistry and markets: quantities of very different sizes in one state, folds, stiffness."""

from __future__ import annotations

import torch
from drawing import Draw, Family
from torch import Tensor


def implicit_step(draw: Draw) -> Family:
    """An implicit Euler step of Robertson's stiff reaction by simplified Newton: 1, 3e-5 and 0.1 side by side."""
    dt = draw.log(1e-2, 10.0)
    rates = torch.tensor([0.04, 3e7, 1e4], dtype=torch.float64).log()
    a = draw.uniform(draw.rows, 1, low=0.6, high=0.99)
    before = torch.cat([a, 3.5e-5 * draw.uniform(draw.rows, 1, low=0.7, high=1.3), 1 - a], -1)

    def speed(h: Tensor, k: Tensor) -> Tensor:
        a, b, c = h.unbind(-1)
        first, second, back = k[0] * a, k[1] * b.square(), k[2] * b * c
        return torch.stack([back - first, first - second - back, second], -1)

    def slope(h: Tensor, k: Tensor) -> Tensor:
        a, b, c = h.unbind(-1)
        nothing = torch.zeros_like(a)
        rows = [
            [-k[0] + nothing, k[2] * c, k[2] * b],
            [k[0] + nothing, -2 * k[1] * b - k[2] * c, -k[2] * b],
            [nothing, 2 * k[1] * b, nothing],
        ]
        return torch.stack([torch.stack(row, -1) for row in rows], -2)

    def update(h: Tensor, p: list[Tensor]) -> Tensor:
        k = p[0].exp()
        system = torch.eye(3, dtype=h.dtype) - dt * slope(p[1], k).detach()
        gap = h - p[1] - dt * speed(h, k)
        return h - torch.linalg.solve(system, gap.unsqueeze(-1)).squeeze(-1)

    return Family(update, [rates, before], before)


def alternating_current(draw: Draw) -> Family:
    """Complex voltages of a grid, V ← (S̄ / V̄ + Y V + y₀) / Σ Y, real and imaginary parts side by side."""
    n = draw.size
    lines = torch.triu(draw.uniform(2, n, n), 1)
    ground = draw.uniform(2, n, low=0.2, high=1.0)
    power = draw.log(0.01, 0.2) * draw.normal(draw.rows, 2 * n)

    def update(h: Tensor, p: list[Tensor]) -> Tensor:
        V, S = torch.complex(h[..., :n], h[..., n:]), torch.complex(p[0][..., :n], p[0][..., n:])
        Y, y = torch.complex(p[1][0], -p[1][1]), torch.complex(p[2][0], -p[2][1])
        Y = Y + Y.mT
        V = (S.conj() / V.conj() + V @ Y + y) / (Y.sum(0) + y)
        return torch.cat([V.real, V.imag], -1)

    return Family(update, [power, lines, ground], torch.cat([draw.ones(draw.rows, n), draw.zeros(draw.rows, n)], -1))


def self_consistent_field(draw: Draw) -> Family:
    """Electrons that repel each other: the density of the levels of T + U·density, filled by Fermi's rule and mixed in."""
    n, mix, cold = min(draw.size, 5) + 1, draw.number(0.1, 1.0), draw.log(0.1, 1.0)
    U = torch.tensor([draw.log(0.1, 4.0)], dtype=torch.float64)

    def update(h: Tensor, p: list[Tensor]) -> Tensor:
        levels, states = torch.linalg.eigh((p[0] + p[0].mT) / 2 + torch.diag_embed(p[1] * h + p[2]))
        filled = torch.sigmoid(-levels / cold)
        return (1 - mix) * h + mix * (states.square() @ filled.unsqueeze(-1)).squeeze(-1)

    return Family(update, [draw.normal(n, n), U, draw.normal(draw.rows, n)], 0.5 * draw.ones(draw.rows, n))


def bratu(draw: Draw) -> Family:
    """Heat that feeds itself, u″ + λ·exp u = 0, relaxed: beyond λ ≈ 3.51 there is no steady state, and near it a fold."""
    n = min(draw.size, 6) + 1
    strength = draw.choice([1.0, 3.0, 3.4, 3.5]) * (1 + 0.01 * draw.normal(draw.rows, 1))

    def update(h: Tensor, p: list[Tensor]) -> Tensor:
        beside = torch.nn.functional.pad(h, (1, 1))
        return (beside[..., 2:] + beside[..., :-2] + p[0] / (n + 1) ** 2 * torch.exp(h.clamp(max=20))) / 2

    return Family(update, [strength], draw.zeros(draw.rows, n))


def market_prices(draw: Draw) -> Family:
    """Walras's prices by trial and error: log-prices rise with the excess of demand; only their ratios are determined."""
    n, step = draw.size + 1, draw.log(0.02, 0.5)
    tastes, goods = draw.uniform(5, n, low=0.1), draw.uniform(5, n, low=0.1)
    elasticity = torch.tensor([draw.number(0.3, 3.0)], dtype=torch.float64)

    def update(h: Tensor, p: list[Tensor]) -> Tensor:
        price = h.exp().unsqueeze(-2)
        wealth = (price * p[1]).sum(-1, keepdim=True)
        bought = p[0] * price ** (-p[2]) * wealth / (p[0] * price ** (1 - p[2])).sum(-1, keepdim=True)
        new = h + step * (bought.sum(-2) / p[1].sum(-2)).log()
        return new - new.mean(-1, keepdim=True)

    return Family(update, [tastes, goods, elasticity], 0.5 * draw.normal(draw.rows, n))


def acidity(draw: Draw) -> Family:
    """Hydrogen ions of a mixture of weak acids, h = √(10⁻¹⁴ + Σ K C h / (K + h)): 1e-7 to 1e-2, as it is."""
    m = draw.size
    constants = -draw.uniform(m, low=2.0, high=10.0)
    amounts = 10 ** draw.uniform(draw.rows, m, low=-6.0, high=-1.0)

    def update(h: Tensor, p: list[Tensor]) -> Tensor:
        K = 10 ** p[0]
        return torch.sqrt(1e-14 + (K * p[1] * h / (K + h)).sum(-1, keepdim=True))

    return Family(update, [constants, amounts], 1e-4 * draw.ones(draw.rows, 1))


def quasispecies(draw: Draw) -> Family:
    """Eigen's mutants: shares that grow by fitness and mutate into each other, slowly where fitness is alike."""
    n, apart = draw.size + 1, draw.log(1e-2, 1.0)
    mutation = torch.tensor([draw.log(1e-4, 0.3)], dtype=torch.float64)

    def update(h: Tensor, p: list[Tensor]) -> Tensor:
        grown = h * torch.exp(p[0])
        mixed = (1 - p[1]) * grown + p[1] * grown.mean(-1, keepdim=True)
        return mixed / mixed.sum(-1, keepdim=True)

    return Family(update, [apart * draw.normal(draw.rows, n), mutation], draw.ones(draw.rows, n) / n)


def shortest_paths(draw: Draw) -> Family:
    """Distances to a goal by a soft minimum over roads, Bellman and Ford: d_i = −τ·log Σ_j exp(−(w_ij + d_j)/τ)."""
    n, tau = draw.size + 2, draw.log(1e-2, 0.5)
    roads = draw.uniform(n, n, low=0.5, high=3.0)

    def update(h: Tensor, p: list[Tensor]) -> Tensor:
        goal = torch.zeros_like(h[..., :1])
        others = torch.cat([goal, h[..., 1:]], -1).unsqueeze(-2)
        return torch.cat([goal, -tau * torch.logsumexp(-(p[0][1:] + others) / tau, -1)], -1)

    return Family(update, [roads], draw.zeros(draw.rows, n))


def radiation(draw: Draw) -> Family:
    """Temperatures of plates that shine at each other, in kelvin: T⁴ = (heat + Σ F T⁴) / (Σ F + sky)."""
    n = draw.size + 1
    views, sky = draw.uniform(n, n), draw.uniform(n, low=0.01, high=1.0)
    heat = 1e9 * draw.uniform(draw.rows, n, low=1.0, high=30.0)
    return Family(
        lambda h, p: ((p[2] + h**4 @ p[0].mT) / (p[0].sum(1) + p[1])) ** 0.25, [views, sky, heat], 300 * draw.ones(draw.rows, n)
    )


ENGINEERING = [
    implicit_step, alternating_current, self_consistent_field, bratu, market_prices, acidity, quasispecies, shortest_paths,
    radiation,
]  # fmt: skip
