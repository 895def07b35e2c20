"""Families that are made to be hard: superattracting, nearly singular, drifting, cycling, ill-scaled maps."""

from __future__ import annotations

import math

import torch
from drawing import Draw, Family
from torch import Tensor


def heron(draw: Draw) -> Family:
    """h ← ½(h + a/h), Newton's map of a square root: J is zero at its end."""
    return Family(
        lambda h, p: 0.5 * (h + p[0] / h),
        [draw.log(1e-6, 1e6) * draw.uniform(draw.rows, draw.size, low=0.1)],
        draw.ones(draw.rows, draw.size),
    )


def newton_schulz(draw: Draw) -> Family:
    """X ← X(2I − A X): the inverse of a matrix."""
    n = min(draw.size, 4)
    A = draw.normal(n, n)
    A = A @ A.mT + draw.log(1e-3, 1.0) * torch.eye(n, dtype=torch.float64)
    return Family(
        lambda h, p: h @ (2 * torch.eye(n, dtype=h.dtype) - p[0] @ h),
        [A],
        (torch.eye(n, dtype=torch.float64) / torch.linalg.matrix_norm(A, 2)).repeat(draw.rows, 1, 1),
    )


def logistic(draw: Draw) -> Family:
    """h ← r·h·(1 − h) on both sides of its first bifurcation: slow, or a cycle of two."""
    r = torch.full((draw.rows, 1), draw.choice([0.5, 1.01, 1.5, 2.5, 2.95, 2.999, 3.0, 3.001, 3.2]), dtype=torch.float64)
    return Family(lambda h, p: p[0] * h * (1 - h), [r], draw.uniform(draw.rows, 1, low=0.2, high=0.9))


def drift(draw: Draw) -> Family:
    """h ← h + ε·(1 + 0.5·sin h), which never rests."""
    eps = draw.log(1e-5, 1.0)
    return Family(
        lambda h, p: h + eps * (p[0] + 0.5 * torch.sin(h)),
        [draw.uniform(draw.rows, draw.size, low=0.6, high=1.0)],
        draw.log(1e-2, 3.0) * draw.ones(draw.rows, draw.size),
        steady=False,
    )


def spectrum(draw: Draw, n: int, closest: float) -> Tensor:
    """Eigenvalues in (−1, 1 − closest], real or in pairs, the closest to one among them, with a basis of any condition."""
    values = draw.uniform(n, low=-0.9, high=0.9)
    values[0] = 1 - closest
    J = torch.diag(values)
    if n > 2 and draw.happens(0.5):
        angle, radius = draw.number(0, math.pi), draw.number(0.1, 1 - closest)
        J[1:3, 1:3] = radius * torch.tensor(
            [[math.cos(angle), -math.sin(angle)], [math.sin(angle), math.cos(angle)]], dtype=torch.float64
        )
    basis = torch.linalg.qr(draw.normal(n, n))[0]
    if draw.happens(0.5):
        basis = basis @ (torch.eye(n, dtype=torch.float64) + draw.number(0.1, 2) * torch.triu(draw.normal(n, n), 1) / n)
    return basis @ J @ torch.linalg.inv(basis)


def nearly_singular(draw: Draw) -> Family:
    """A linear map with an eigenvalue of 1 − 10⁻ᵏ, k up to 6."""
    n = draw.size
    return Family(
        lambda h, p: h @ p[0].mT + p[1],
        [spectrum(draw, n, draw.log(1e-6, 0.5)), draw.normal(draw.rows, n)],
        draw.zeros(draw.rows, n),
    )


def expansive(draw: Draw) -> Family:
    """A linear map with eigenvalues beyond one, for solvers that need no contraction."""
    n = draw.size
    return Family(
        lambda h, p: h @ p[0].mT + p[1],
        [draw.number(1.0, 4.0) * draw.normal(n, n) / n**0.5, draw.normal(draw.rows, n)],
        draw.zeros(draw.rows, n),
    )


def hidden_slow_mode(draw: Draw) -> Family:
    """A slow mode that the start hardly excites: small steps long before the end."""
    n = draw.size + 1
    slow, weak = 1 - draw.log(1e-4, 1e-1), draw.log(1e-6, 1e-1)
    J = torch.diag(torch.cat([torch.tensor([slow], dtype=torch.float64), draw.uniform(n - 1, low=-0.5, high=0.5)]))
    Q = torch.linalg.qr(draw.normal(n, n))[0]
    c = draw.normal(draw.rows, n)
    c[:, 0] *= weak
    return Family(lambda h, p: h @ p[0].mT + p[1], [Q @ J @ Q.mT, c @ Q.mT], draw.zeros(draw.rows, n))


def lyapunov(draw: Draw) -> Family:
    """X = A X Aᵀ + Q: a covariance."""
    n = min(draw.size, 4)
    A = draw.normal(n, n)
    A = draw.number(0.2, 0.99) * A / torch.linalg.eigvals(A).abs().max()
    Q = draw.normal(n, n)
    return Family(lambda h, p: p[0] @ h @ p[0].mT + p[1], [A, Q @ Q.mT], draw.zeros(draw.rows, n, n))


def riccati(draw: Draw) -> Family:
    """The discrete algebraic Riccati equation of optimal control, by its recursion."""
    n = min(draw.size, 3) + 1
    A = draw.normal(n, n)
    A = draw.number(0.5, 1.3) * A / torch.linalg.eigvals(A).abs().max()

    def update(h: Tensor, p: list[Tensor]) -> Tensor:
        gain = torch.linalg.solve(torch.eye(2, dtype=h.dtype) + p[1].mT @ h @ p[1], p[1].mT @ h @ p[0])
        return p[0].mT @ h @ (p[0] - p[1] @ gain) + torch.eye(n, dtype=h.dtype)

    return Family(update, [A, draw.normal(n, 2)], torch.eye(n, dtype=torch.float64).repeat(draw.rows, 1, 1))


def power_iteration(draw: Draw) -> Family:
    """The leading eigenvector of a positive matrix, normalised in every step."""
    n = draw.size + 1
    A = draw.uniform(n, n, low=0.05)

    def update(h: Tensor, p: list[Tensor]) -> Tensor:
        image = h @ p[0].mT
        return image / image.norm(dim=-1, keepdim=True)

    return Family(update, [A], draw.uniform(draw.rows, n, low=0.1))


def weiszfeld(draw: Draw) -> Family:
    """The geometric median of points, by Weiszfeld's reweighting."""
    points = draw.normal(draw.size + 2, 2)

    def update(h: Tensor, p: list[Tensor]) -> Tensor:
        weights = 1 / torch.sqrt((p[0] - h.unsqueeze(-2)).square().sum(-1) + 1e-4)
        return (weights.unsqueeze(-1) * p[0]).sum(-2) / weights.sum(-1, keepdim=True)

    return Family(update, [points], draw.zeros(draw.rows, 2))


def several_ends(draw: Draw) -> Family:
    """h ← h + s·(h − h³ + x): two attractors and a repeller, from anywhere."""
    return Family(
        lambda h, p: h + p[1] * (h - h**3 + p[0]),
        [0.3 * draw.normal(draw.rows, draw.size), torch.tensor([draw.log(1e-3, 0.6)], dtype=torch.float64)],
        draw.normal(draw.rows, draw.size),
    )


def cubic_rest(draw: Draw) -> Family:
    """h ← h − s·((h − a)³ + δ·(h − a)): hardly attracted near its end."""
    delta = draw.log(1e-4, 1.0)
    return Family(
        lambda h, p: h - 0.3 * ((h - p[0]) ** 3 + delta * (h - p[0])),
        [draw.uniform(draw.rows, draw.size, low=1.0, high=2.0)],
        draw.ones(draw.rows, draw.size),
    )


def at_zero(draw: Draw) -> Family:
    """A net whose steady state is zero, or nearly: relative residuals have nothing to hold on to."""
    n = draw.size
    W = draw.normal(n, n)
    W = draw.number(0.1, 0.95) * W / torch.linalg.matrix_norm(W, 2)
    return Family(
        lambda h, p: torch.tanh(h @ p[0].mT) + p[1],
        [W, draw.choice([0.0, 1e-30, 1e-12, 1e-6]) * draw.normal(draw.rows, n)],
        draw.normal(draw.rows, n),
    )


def triangular(draw: Draw) -> Family:
    """A chain of shifts: nilpotent, strongly non-normal, done after n steps."""
    n = draw.size + 2
    return Family(
        lambda h, p: h @ p[0].mT + p[1],
        [
            draw.number(0.5, 3.0) * torch.diag(torch.ones(n - 1, dtype=torch.float64), 1)
            + 0.1 * torch.triu(draw.normal(n, n), 1),
            draw.normal(draw.rows, n),
        ],
        draw.zeros(draw.rows, n),
    )


def noisy_digits(draw: Draw) -> Family:
    """Large terms that cancel: F is rounded by far more than a last digit."""
    n, large = draw.size, draw.log(1e1, 1e4)
    W = draw.normal(n, n)
    W = draw.number(0.2, 0.95) * W / torch.linalg.matrix_norm(W, 2)
    return Family(
        lambda h, p: (torch.tanh(h @ p[0].mT + p[1]) + large) - large, [W, draw.normal(draw.rows, n)], draw.zeros(draw.rows, n)
    )


def square_root_kink(draw: Draw) -> Family:
    """h ← √(a·h + x): steep near zero."""
    return Family(
        lambda h, p: torch.sqrt(p[0] * h + p[1]),
        [
            draw.uniform(draw.rows, draw.size, low=0.1, high=3.0),
            draw.log(1e-8, 1.0) * draw.uniform(draw.rows, draw.size, low=0.5),
        ],
        draw.ones(draw.rows, draw.size),
    )


MATHEMATICS = [
    heron, newton_schulz, logistic, drift, nearly_singular, expansive, hidden_slow_mode, lyapunov, riccati, power_iteration,
    weiszfeld, several_ends, cubic_rest, at_zero, triangular, noisy_digits, square_root_kink,
]  # fmt: skip
