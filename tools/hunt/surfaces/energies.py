"""Energies with minima of all kinds: narrow, flat, several, at a wall, nowhere."""

from __future__ import annotations

from collections.abc import Callable

import torch
from drawing import Draw
from torch import Tensor

Energy = Callable[[Tensor, list[Tensor]], Tensor]
"""E(h, p) of a state (rows, n): one number a row."""
Made = tuple[Energy, list[Tensor], Tensor]
"""An energy, its parameters and the start."""


def quadratic(draw: Draw, rows: int, n: int) -> Made:
    """A bowl of a condition up to 1e5, its bottom up to 1e3 away."""
    Q = torch.linalg.qr(draw.normal(n, n))[0]
    A = Q @ torch.diag(torch.logspace(0, -draw.number(0, 5), n, dtype=torch.float64)) @ Q.mT
    far = draw.log(1e-3, 1e3)
    return (
        lambda h, p: 0.5 * ((h - p[1]) @ p[0] * (h - p[1])).sum(-1),
        [A, far * draw.normal(rows, n)],
        draw.choice([0.0, 1.0]) * draw.normal(rows, n),
    )


def double_well(draw: Draw, rows: int, n: int) -> Made:
    """Two wells along each axis, coupled and tilted; the start may be on the ridge."""
    C = draw.normal(n, n) * draw.number(0, 0.3)
    return (
        lambda h, p: (h.square() - p[0].square()).square().sum(-1) + (h @ p[1] * h).sum(-1) + (h * p[2]).sum(-1),
        [draw.uniform(n, low=0.5, high=2.0), C, draw.choice([0.0, 0.1, 1.0]) * draw.normal(rows, n)],
        draw.choice([0.0, 0.0, 1e-3, 1.0]) * draw.normal(rows, n),
    )


def indefinite(draw: Draw, rows: int, n: int) -> Made:
    """A saddle that a quartic wall closes far out."""
    C = torch.diag(draw.normal(n))
    return (
        lambda h, p: (h @ p[0] * h).sum(-1) + p[1] * h.pow(4).sum(-1) + (h * p[2]).sum(-1),
        [C, torch.tensor(draw.log(1e-4, 1.0), dtype=torch.float64), draw.choice([0.0, 1e-3, 1.0]) * draw.normal(rows, n)],
        draw.choice([0.0, 1.0]) * draw.normal(rows, n),
    )


def concave(draw: Draw, rows: int, n: int) -> Made:
    """No minimum: a hilltop, a slope, a cubic, or a saddle."""
    kind = draw.whole(0, 3)

    def energy(h: Tensor, p: list[Tensor]) -> Tensor:
        if kind == 0:
            return -((h - p[0]).square().sum(-1))
        if kind == 1:
            return (h * p[0]).sum(-1)
        if kind == 2:
            return (h - p[0]).pow(3).sum(-1)
        return (h - p[0]).square().sum(-1) - 3 * (h - p[0])[..., 0].square()

    return energy, [draw.normal(rows, n)], draw.choice([0.0, 1.0]) * draw.normal(rows, n)


def flattened(draw: Draw, rows: int, n: int) -> Made:
    """A minimum whose curvature vanishes: a power of four or six."""
    power = draw.choice([4, 6])
    return lambda h, p: (h - p[0]).pow(power).sum(-1), [draw.normal(rows, n) + 2], draw.zeros(rows, n)


def valley(draw: Draw, rows: int, n: int) -> Made:
    """A whole line of minima: only a sum of the state is determined."""
    return lambda h, p: ((h * p[0]).sum(-1) - p[1]).square(), [draw.normal(n), draw.normal(rows)], draw.normal(rows, n)


def banana(draw: Draw, rows: int, n: int) -> Made:
    """Rosenbrock's valley in a chain."""
    m = max(n, 2)
    return (
        lambda h, p: (p[1] * (h[..., 1:] - h[..., :-1].square()).square()).sum(-1) + (p[0] - h[..., :-1]).square().sum(-1),
        [draw.uniform(rows, 1, low=0.7, high=1.2), torch.tensor(draw.log(1, 100), dtype=torch.float64)],
        draw.choice([0.0, 0.5]) * draw.normal(rows, m),
    )


def logistic_regression(draw: Draw, rows: int, n: int) -> Made:
    """Classification with a ridge, or without and separable: then the weights run to infinity."""
    x = draw.normal(12, n)
    y = torch.sign(x[:, 0] + (0.0 if draw.happens(0.3) else 1.0) * draw.normal(12))
    ridge = draw.choice([0.0, 1e-4, 1e-2, 1.0])
    return (
        lambda h, p: (
            torch.nn.functional.softplus(-y.to(h) * (h @ p[0].mT)).sum(-1)
            + ridge * h.square().sum(-1)
            + (h * p[1]).sum(-1) * 0.01
        ),
        [x, draw.normal(rows, n) * (ridge > 0)],
        draw.zeros(rows, n),
    )


def barrier(draw: Draw, rows: int, n: int) -> Made:
    """A linear programme behind logarithmic walls: NaN outside."""
    mu = draw.log(1e-3, 1.0)
    return (
        lambda h, p: (h * p[0]).sum(-1) - mu * (torch.log(p[1] - h) + torch.log(h)).sum(-1),
        [draw.normal(rows, n), draw.uniform(n, low=1.0, high=3.0)],
        torch.full((rows, n), 0.5, dtype=torch.float64),
    )


def wavy(draw: Draw, rows: int, n: int) -> Made:
    """Rastrigin's: a bowl with many dents."""
    return (
        lambda h, p: (h - p[0]).square().sum(-1) + p[1] * (1 - torch.cos(6 * h)).sum(-1),
        [draw.normal(rows, n), torch.tensor(draw.log(1e-2, 1.0), dtype=torch.float64)],
        draw.choice([0.0, 1.0]) * draw.normal(rows, n),
    )


def robust(draw: Draw, rows: int, n: int) -> Made:
    """A location by Cauchy's loss: concave far from the data."""
    data = draw.normal(7, n) * draw.choice([0.5, 3.0])
    return (
        lambda h, p: torch.log1p((h.unsqueeze(-2) - p[0]).square() * p[1]).sum((-1, -2)),
        [data, draw.uniform(n, low=0.5, high=2.0)],
        draw.choice([0.0, 5.0]) * draw.normal(rows, n),
    )


def factorised(draw: Draw, rows: int, n: int) -> Made:
    """‖u vᵀ − M‖² + ridge: a saddle at zero, and without the ridge a scale that is free."""
    n = max(n, 2)
    k = n // 2
    ridge = draw.choice([0.0, 1e-2, 0.1])
    return (
        lambda h, p: (h[..., :k, None] * h[..., None, k:] - p[0]).square().sum((-1, -2)) + ridge * h.square().sum(-1),
        [draw.normal(k, n - k)],
        draw.choice([0.0, 1.0]) * draw.normal(rows, n),
    )


def entropy(draw: Draw, rows: int, n: int) -> Made:
    """A free energy: Σ h log h − h·p, whose curvature is 1/h."""
    return lambda h, p: (h * h.log() - h - h * p[0]).sum(-1), [draw.number(1, 8) * draw.normal(rows, n)], draw.ones(rows, n)


def clusters(draw: Draw, rows: int, n: int) -> Made:
    """Three atoms in a plane that attract and repel: turns and shifts cost nothing."""
    return (
        lambda h, p: _pairs(h, p[0]),
        [torch.tensor(draw.uniform(1, low=0.5, high=2.0).item(), dtype=torch.float64)],
        torch.tensor([0.0, 0, 1, 0, 0.5, 1], dtype=torch.float64) + 0.1 * draw.normal(rows, 6),  # slow: MINRES on zero modes
    )


def _pairs(h: Tensor, size: Tensor) -> Tensor:
    x = h.unflatten(-1, (3, 2))
    total = torch.zeros_like(h[..., 0])
    for i, j in ((0, 1), (0, 2), (1, 2)):
        r = size.square() / (x[..., i, :] - x[..., j, :]).square().sum(-1)
        total = total + r.pow(6) - 2 * r.pow(3)
    return total


ENERGIES = [
    quadratic, double_well, indefinite, concave, flattened, valley, banana, logistic_regression, barrier, wavy, robust,
    factorised, entropy, clusters,
]  # fmt: skip
