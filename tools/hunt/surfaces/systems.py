"""Systems g(h) = 0 with roots of all kinds: simple, double, far, badly scaled, none."""

from __future__ import annotations

from collections.abc import Callable

import torch
from drawing import Draw
from torch import Tensor

System = Callable[[Tensor, list[Tensor]], Tensor]
Made = tuple[System, list[Tensor], Tensor]
"""g(h, p) of a state (rows, n), its parameters and the start."""


def scalar(number: float) -> Tensor:
    return torch.tensor(number, dtype=torch.float64)


def polynomial(draw: Draw, rows: int, n: int) -> Made:
    """Cubics, coupled weakly; some have a root far from the start, or a flat part before it."""
    C = 0.1 * draw.normal(n, n)
    return (
        lambda h, p: h.pow(3) - p[0] * h + p[1] + h @ p[2],
        [draw.normal(rows, n), draw.normal(rows, n), C],
        draw.normal(rows, n),
    )


def double_root(draw: Draw, rows: int, n: int) -> Made:
    """(h − a)², shifted a little up or down: no root, a double one, or two that are close."""
    by = draw.choice([0.0, 1e-6, 1e-2, -1e-6, -1e-2])
    return lambda h, p: (h - p[0]).square() + by, [draw.normal(rows, n) + 3], draw.zeros(rows, n)


def arctangent(draw: Draw, rows: int, n: int) -> Made:
    """Full Newton steps run away from far starts."""
    return (
        lambda h, p: torch.atan(h - p[0]) + p[1] * (h - p[0]),
        [draw.normal(rows, n), scalar(draw.choice([0.0, 1e-3]))],
        5 * draw.normal(rows, n),
    )


def exponential(draw: Draw, rows: int, n: int) -> Made:
    """exp h = a with a over many decades."""
    return lambda h, p: torch.exp(h) - p[0], [torch.exp(4 * draw.normal(rows, n))], draw.zeros(rows, n)


def eigenpair(draw: Draw, rows: int, n: int) -> Made:
    """An eigenvector with its value, A v = λ v and |v| = 1: the vector's sign is free, its neighbourhood is not."""
    A = draw.normal(n, n)
    A = A + A.mT

    def g(h: Tensor, p: list[Tensor]) -> Tensor:
        v, value = h[..., :n], h[..., n:]
        return torch.cat([v @ p[0] - value * v, (v.square().sum(-1, keepdim=True) - 1) / 2], -1)

    return g, [A], draw.normal(rows, n + 1)


def bratu(draw: Draw, rows: int, n: int) -> Made:
    """−u″ = λ·exp u between walls, near or beyond the fold at λ ≈ 3.51, where the roots end."""
    m = n + 3

    def g(h: Tensor, p: list[Tensor]) -> Tensor:
        beside = torch.nn.functional.pad(h, (1, 1))
        return (2 * h - beside[..., 2:] - beside[..., :-2]) * (m + 1) ** 2 - p[0] * torch.exp(h)

    return g, [draw.uniform(rows, 1, low=0.1, high=4.0)], draw.zeros(rows, m)


def badly_scaled(draw: Draw, rows: int, n: int) -> Made:
    """Rows of g of units that are far apart, and unknowns too."""
    n = max(n, 2)
    rows_of, columns = (
        torch.logspace(0, draw.number(-6, 6), n, dtype=torch.float64),
        torch.logspace(0, draw.number(-4, 4), n, dtype=torch.float64),
    )
    A = draw.normal(n, n) + 3 * torch.eye(n, dtype=torch.float64)
    return (
        lambda h, p: rows_of.to(h) * ((h / columns.to(h)) @ p[0].mT + 0.1 * torch.sin(h / columns.to(h)) - p[1]),
        [A, draw.normal(rows, n)],
        draw.zeros(rows, n),
    )


def no_root(draw: Draw, rows: int, n: int) -> Made:
    """Nothing to be found: h² + 1, exp h, or a circle beside a line."""
    kind = draw.whole(0, 2)

    def g(h: Tensor, p: list[Tensor]) -> Tensor:
        if kind == 0:
            return h.square() + p[0].square() + 0.1
        if kind == 1:
            return torch.exp(h * p[0])
        return torch.cat([(h.square().sum(-1, keepdim=True) - 1), h[..., 1:] + 5 + p[0][..., 1:]], -1)

    return g, [draw.normal(rows, max(n, 2))], draw.normal(rows, max(n, 2))


def equilibrium(draw: Draw, rows: int, n: int) -> Made:
    """Chemical equilibrium: a product of concentrations is K, their sum is conserved; negative roots are roots too."""

    def g(h: Tensor, p: list[Tensor]) -> Tensor:
        a, b, c = h[..., 0:1], h[..., 1:2], h[..., 2:3]
        return torch.cat([a * b - p[0] * c, a + c - p[1], b + c - p[2]], -1)

    return (
        g,
        [
            draw.choice([1e-6, 1e-2, 1.0]) * draw.uniform(rows, 1, low=0.5, high=2),
            draw.uniform(rows, 1, low=0.5, high=2),
            draw.uniform(rows, 1, low=0.5, high=2),
        ],
        draw.ones(rows, 3),
    )


def large_and_small(draw: Draw, rows: int, n: int) -> Made:
    """A root of 1e6 or 1e-6 that the start does not hint at."""
    size = draw.choice([1e-6, 1e6])
    return (
        lambda h, p: torch.sinh((h - p[0]) / size) + 0.3 * (h - p[0]) / size,
        [size * (draw.normal(rows, n) + 2)],
        draw.zeros(rows, n),
    )


SYSTEMS = [
    polynomial,
    double_root,
    arctangent,
    exponential,
    eigenpair,
    bratu,
    badly_scaled,
    no_root,
    equilibrium,
    large_and_small,
]
