"""Penalties that keep I − J invertible, by the eigenvalues of A = (I − J)ᵀ(I − J): gershgorin, lanczos."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from steadygrad.method import check_count
from steadygrad.penalty.pairs import Pairs
from steadygrad.penalty.products import Products, generator_of, mean_of, refuse_nonfinite
from steadygrad.state import State


def gershgorin(
    update: Callable[..., State], h: State, *args: Any, samples: int | None = None, batch_dims: int = 0, seed: int = 0
) -> Tensor:
    """The Gershgorin penalty max(0, √n‖A − I‖_F − 1) with A = (I − J)ᵀ(I − J), for n numbers a problem.

    λ_min(A) ≥ 1 − ‖A − I‖_∞ ≥ 1 − √n‖A − I‖_F, so that 0 certifies I − J invertible. The bound is loose: it asks for
    ‖A − I‖_F < 1/√n, which for large n is close to asking for an orthogonal I − J; use it with a small weight, or `lanczos`.
    Where J = I exactly its gradient is zero, though its value is n − 1.

    Exact by default, in n VJPs, and n² numbers of memory. With `samples=k`, ‖A − I‖_F² is estimated by the mean of
    ‖(A − I)v‖² over k vectors of random signs (Hutchinson), in 2k products and 3k more for the gradient: unbiased for the
    square and for its gradient; the root, and hence the penalty, comes out too small by a part of order 1/k where the bound
    is above 0. Second derivatives of the sampled form are not exact.

    h as it is given: `solution.value.detach()` holds the state fixed, `solution.value` lets the gradient pass through it too
    (`steadygrad.penalty` says when to use which). Liao et al. 2018, appendix, "Maximizing Lower Bound"; Hutchinson 1990.

    >>> import torch
    >>> from steadygrad import penalty
    >>> a = torch.tensor(1.5, requires_grad=True)
    >>> value = penalty.gershgorin(lambda h: a * h, torch.zeros(4))
    >>> value.item()  # n |(1 - a)² - 1| - 1
    2.0
    >>> value.backward(); a.grad.item()
    -4.0
    """
    generator = generator_of(seed)
    if samples is not None:
        check_count("samples", samples, least=1)
    J = Products(update, h, args, batch_dims)
    if samples is None:
        dense, average = J.dense(), mean_of
        parts = (dense.mT @ dense - dense - dense.mT).flatten(1)  # A − I, without the rounding of A
    else:
        pairs = Pairs(J)
        average, drawn = pairs.mean_of, [J.signs(generator) for _ in range(samples)]
        parts = torch.cat([_beyond_identity(pairs, v) for v in drawn], dim=1) / math.sqrt(samples)
    # vector_norm has gradient 0 at 0, where a root of a sum of squares has NaN.
    return average((math.sqrt(J.size) * torch.linalg.vector_norm(parts, dim=1) - 1).relu())


def lanczos(
    update: Callable[..., State],
    h: State,
    *args: Any,
    steps: int = 10,
    through: bool = True,
    batch_dims: int = 0,
    seed: int = 0,
) -> Tensor:
    """The Lanczos penalty −λ_min(A) with A = (I − J)ᵀ(I − J), that is −σ_min(I − J)².

    λ_min is the smallest Ritz value after `steps` Lanczos steps with full reorthogonalisation from a random start. It is
    exact in n steps (fewer where A has fewer distinct eigenvalues), and before that an upper bound of λ_min. The small end of
    the spectrum converges last: for large states expect to need many steps. The paper adds max(0, −λ_min), which is 0 for
    every A of this form; hence −λ_min itself. It has no lower end, so put one: `torch.relu(0.1 + penalty.lanczos(update, h))`
    works until λ_min ≥ 0.1. Where I − J is exactly singular the gradient is 0, as that of σ² at σ = 0.

    `through=True` differentiates through the steps, as the paper says: the exact gradient of the value at any number of
    steps, with the graph of two products a step in memory. `through=False` runs them without a graph and differentiates
    ‖(I − J)u‖² for the Ritz vector u held fixed: the same value, the same gradient once u has converged, −uᵀ(dA)u, far
    cheaper, and more accurate in float32, where rounding in the steps can spoil the gradient through them if the start
    hardly holds u.
    2·steps products, and for the gradient four a step through them, one with a graph otherwise. Second derivatives of this
    penalty are not exact.

    h as it is given: `solution.value.detach()` holds the state fixed, `solution.value` lets the gradient pass through it too
    (`steadygrad.penalty` says when to use which). Liao et al. 2018, appendix, "Differentiating Through Lanczos".

    >>> import torch
    >>> from steadygrad import penalty
    >>> W = torch.tensor([[0.5, 0.0], [0.0, -1.0]], requires_grad=True)
    >>> value = penalty.lanczos(lambda h: W @ h, torch.zeros(2))
    >>> value.backward()
    >>> round(value.item(), 4), W.grad.diag().round(decimals=4).abs().tolist()  # -(1 - 0.5)², and 2 (1 - 0.5) by W₁₁
    (-0.25, [1.0, 0.0])
    """
    generator = generator_of(seed)
    check_count("steps", steps, least=1)
    J = Products(update, h, args, batch_dims)
    pairs = Pairs(J)
    V, T = _tridiagonalise(J, pairs if through else None, min(steps, J.size), generator)
    refuse_nonfinite(T)
    # The Ritz value uᵀAu is stationary in y, so y needs no graph: the gradient through V alone is that of the value.
    y = torch.linalg.eigh(T.detach()).eigenvectors[:, :, :1].to(V)
    u = (V.mT @ y).squeeze(2)
    return pairs.mean_of(-(u - pairs.jvp(u)).square().sum(dim=1) / u.square().sum(dim=1))


def _tridiagonalise(J: Products, pairs: Pairs | None, steps: int, generator: torch.Generator) -> tuple[Tensor, Tensor]:
    """Lanczos with full reorthogonalisation: V (problems, steps, size) with orthonormal rows, and T = V A Vᵀ, tridiagonal.

    With `pairs` the steps can be differentiated through.
    Where the Krylov space of a problem is exhausted (β ≈ 0) it goes on from a fresh direction, so that `size` steps always
    suffice. The threshold is √ε of the scale of A: to go on along rounding would divide the gradient by it.
    """
    v = J.direction(generator)
    vectors, alphas, betas = [v], list[Tensor](), list[Tensor]()
    scale = torch.zeros_like(v[:, 0])
    for _ in range(steps - 1):
        w = _still_normal(J, v) if pairs is None else _normal(pairs, v)
        alphas.append((v * w).sum(dim=1))
        V = torch.stack(vectors, dim=1)
        w = _orthogonal(w, V)
        beta = torch.linalg.vector_norm(w, dim=1)
        scale = torch.maximum(scale, (alphas[-1].abs() + beta).detach())
        ended = beta <= torch.finfo(v.dtype).eps ** 0.5 * scale
        w = torch.where(ended.unsqueeze(1), _orthogonal(J.direction(generator), V), w)
        v = w / torch.linalg.vector_norm(w, dim=1, keepdim=True)
        vectors.append(v)
        betas.append(torch.where(ended, 0, beta))
    alphas.append((v * _still_normal(J, v)).sum(dim=1))
    return torch.stack(vectors, dim=1), _tridiagonal(alphas, betas)


def _orthogonal(w: Tensor, V: Tensor) -> Tensor:
    """w without its part in the rows of V; twice is enough."""
    for _ in range(2):
        w = w - (V.mT @ (V @ w.unsqueeze(2))).squeeze(2)
    return w


def _tridiagonal(alphas: list[Tensor], betas: list[Tensor]) -> Tensor:
    matrix = torch.diag_embed(torch.stack(alphas, dim=1))
    if betas:
        beside = torch.stack(betas, dim=1)
        matrix = matrix + torch.diag_embed(beside, offset=1) + torch.diag_embed(beside, offset=-1)
    return matrix.to(torch.promote_types(matrix.dtype, torch.float32))  # eigh knows no half precision


def _normal(J: Pairs, v: Tensor) -> Tensor:
    """A v = (I − Jᵀ)(I − J) v."""
    s = v - J.jvp(v)
    return s - J.vjp(s)


def _still_normal(J: Products, v: Tensor) -> Tensor:
    """A v without a graph."""
    s = v.detach() - J.jvp(v.detach())
    return s - J.vjp(s, graph=False)


def _beyond_identity(J: Pairs, v: Tensor) -> Tensor:
    """(A − I) v = Jᵀ(Jv − v) − Jv."""
    Jv = J.jvp(v)
    return J.vjp(Jv - v) - Jv
