"""Eigenvalues and singular values of J from products alone: Arnoldi with thick restarts, and Golub–Kahan."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from steadygrad.diagnose.effort import THOROUGH, Effort
from steadygrad.linear import Auto
from steadygrad.linear.basis import Basis
from steadygrad.solution import Status
from steadygrad.state.rows import norm, ratio
from steadygrad.update.linear_map import Linear, transposed

Product = Callable[[Tensor], Tensor]

WINDOW = 80
"""Vectors kept by Arnoldi before it restarts: that many states in memory."""
KEPT = 32
"""Ritz vectors kept in a restart."""
SETTLED = 2e-3
"""Relative uncertainty at which an eigenvalue is known well enough to be told from 1."""
STILL, SURE = 0.25, 0.05
"""An outermost value that moved by less than STILL·accuracy over a restart counts, if its uncertainty is below SURE."""
ROUNDING = 30
"""Rounding units, times ‖J‖, up to which what orthogonalisation leaves is nothing."""
EVERY = 10
"""Steps of bidiagonalisation between two looks, of which each takes an SVD."""
UNMOVED, EXACT = 1e-3, 5e-3
"""A singular value is known if it moved by no more than this share from one look to the next, and has this residual."""
HIDDEN = 100
"""Rounding units of σ_max below which a singular value cannot be seen."""
SOLVED, REFINED = 1e-3, 0.01
"""The tolerance of the solves of inverse iteration, whose direction alone counts; and the share of σ_min by which an iteration
must lower it for another to follow."""


@dataclass(frozen=True)
class Spectrum:
    """The outer eigenvalues of J, a row a problem, and how well the outermost is known."""

    values: Tensor
    """Ritz values, complex, (problems, some)."""
    radius: Tensor
    """max |λ| of each problem."""
    converged: bool
    """Whether the outermost Ritz value has settled, for every problem."""


def spectrum(jacobian: Linear, start: Tensor, products: int = 500, accuracy: float = SETTLED) -> Spectrum:
    """The outermost eigenvalues of J by Arnoldi with thick restarts, one product with Jᵀ a step.

    Complex pairs are right, as they are not under power iteration. Ends when the outermost Ritz value has a residual below
    `accuracy`, or has hardly moved over a restart, or when the Krylov space is exhausted. Saad 2011, chapter 6; the restart
    is that of Stewart 2001 with an orthonormal basis of the wanted Ritz vectors in place of a Schur form.
    """
    arnoldi = _Arnoldi(start)
    before = torch.full((start.shape[0],), torch.inf, dtype=torch.float64, device=start.device)
    spent = 0
    while True:
        steps = min(min(WINDOW, start.shape[1]) - arnoldi.steps, products - spent)
        spent += arnoldi.extend(jacobian, steps)
        if not arnoldi.hessenberg.isfinite().all():
            return Spectrum(
                values=before.new_zeros(len(before), 0, dtype=torch.complex128), radius=before * math.nan, converged=False
            )
        values, vectors = torch.linalg.eig(arnoldi.hessenberg[:, :-1])
        radius, outermost = values.abs().max(dim=1)
        error = _uncertainty(arnoldi.hessenberg, vectors, outermost, torch.finfo(start.dtype).eps)
        still = ((radius - before).abs() <= STILL * accuracy * radius) & (error <= SURE * radius)
        settled = (error <= accuracy * radius) | still | (radius == 0)
        if arnoldi.exhausted or settled.all() or spent >= products:
            return Spectrum(values, radius, bool(settled.all()))
        before = radius
        arnoldi.restart(values, vectors)


def _uncertainty(hessenberg: Tensor, vectors: Tensor, index: Tensor, eps: float) -> Tensor:
    """How far an eigenvalue of J may be away, to first order: (the residual of the Ritz pair + rounding) · its condition."""
    rows = torch.arange(len(index), device=index.device)
    residual = (hessenberg[:, -1:].to(vectors.dtype) @ vectors).squeeze(1).abs()[rows, index]
    left = torch.linalg.inv_ex(vectors).inverse[rows, index]
    rounding = eps * torch.linalg.matrix_norm(hessenberg)
    uncertainty = (residual + rounding) * torch.linalg.vector_norm(left, dim=1)
    return torch.where(uncertainty.isfinite(), uncertainty, torch.inf)  # defective: the vectors have no inverse


@dataclass(frozen=True)
class Extreme:
    """A singular value of each problem."""

    value: Tensor
    converged: bool
    """Where it has not, the value is a bound: the largest singular value is at least, the smallest at most that."""


def largest_singular_value(jacobian: Linear, start: Tensor, steps: int = 100) -> Extreme:
    """σ_max(J) = ‖J‖₂ by Golub–Kahan bidiagonalisation, two products a step. Golub and Kahan 1965."""
    return _bidiagonalise(jacobian.jvp, jacobian.vjp, start, steps, smallest=False)[0]


def smallest_singular_value(jacobian: Linear, start: Tensor, effort: Effort = THOROUGH) -> Extreme:
    """σ_min(I−J), first by Golub–Kahan bidiagonalisation, two products a step.

    That is slow where σ_min is small, so what it finds is then refined by inverse iteration, x ← (I−J)⁻¹(I−J)⁻ᵀ x, with a
    solve by `Auto` in each factor. Every ‖(I−J)x‖ / ‖x‖ is an upper bound, so a solve that fails can only leave it too large.
    """

    def apply(v: Tensor) -> Tensor:
        return v - jacobian.jvp(v)

    steps = start.shape[1] if start.shape[1] <= effort.exact else effort.smallest
    extreme, x = _bidiagonalise(apply, lambda v: v - jacobian.vjp(v), start, steps, smallest=True)
    if extreme.converged:
        return extreme
    value, solver = extreme.value, Auto(rtol=SOLVED, max_steps=effort.solve)
    for _ in range(effort.refinements):
        z = solver.solve(jacobian, x)
        w = solver.solve(transposed(jacobian), ratio(z.z, norm(z.z)))
        x = ratio(w.z, norm(w.z))
        before, value = value, torch.minimum(value, norm(apply(x)).squeeze(1).double())
        solved = all(status is Status.CONVERGED for status in [*z.status, *w.status])
        if not solved or bool((before - value <= REFINED * before).all()):
            return Extreme(value, solved)
    return Extreme(value, False)


def _bidiagonalise(apply: Product, transpose: Product, start: Tensor, steps: int, smallest: bool) -> tuple[Extreme, Tensor]:
    """An extreme singular value of A and its right vector: A V_k = U_k B_k and Aᵀ U_k = V_k B_kᵀ + β v_{k+1} e_kᵀ.

    V is kept orthogonal, which keeps U so too (Simon and Zha 2000).
    """
    space = Basis.of(ratio(start, norm(start)).unsqueeze(1))
    eps = torch.finfo(start.dtype).eps
    u, alphas, betas = torch.zeros_like(start), list[Tensor](), [torch.zeros_like(start[:, :1])]
    before = torch.full_like(start[:, 0], torch.inf, dtype=torch.float64)
    steps, at = min(steps, start.shape[1]), -1 if smallest else 0
    while True:
        v = space.last
        u = apply(v) - betas[-1] * u
        alphas.append(norm(u))
        u = ratio(u, alphas[-1])
        image = transpose(u)
        size = torch.cat([*alphas, *betas, norm(image)], dim=1).amax(dim=1, keepdim=True)
        alphas[-1] = torch.where(v.any(dim=1, keepdim=True), alphas[-1], size)  # a row that has ended must not look singular
        space, _, length = space.absorb(image, ROUNDING * eps * size)
        betas.append(length)
        exhausted = not betas[-1].any() or len(alphas) >= start.shape[1]
        last = exhausted or len(alphas) >= steps
        if not last and len(alphas) % EVERY:
            continue
        left, values, right = torch.linalg.svd(_bidiagonal(alphas, betas[1:-1]))
        residual = betas[-1].squeeze(1).double() * left[:, -1, at].abs()
        still = (values[:, at] - before).abs() <= UNMOVED * values[:, at]
        # Rounding hides what is smaller than eps·σ_max, unless it is exactly zero.
        visible = (values[:, at] > HIDDEN * eps * values[:, 0]) | (values[:, 0] == 0)
        settled = bool(((residual <= EXACT * values[:, at]) & still & visible | (exhausted & visible)).all())
        if last or settled:
            return Extreme(values[:, at], settled), space.combine(right[:, at])
        before = values[:, at]


def _bidiagonal(diagonal: list[Tensor], above: list[Tensor]) -> Tensor:
    B = torch.diag_embed(torch.cat(diagonal, dim=1).double())
    return B + torch.diag_embed(torch.cat(above, dim=1).double(), offset=1) if above else B


class _Arnoldi:
    """An orthonormal basis V and H with Jᵀ V_k = V_{k+1} H_k, for each row."""

    def __init__(self, start: Tensor) -> None:
        self.basis = Basis.of(ratio(start, norm(start)).unsqueeze(1))
        self.hessenberg = start.new_zeros(start.shape[0], 1, 0, dtype=torch.float64)
        self.exhausted = False

    @property
    def steps(self) -> int:
        return self.hessenberg.shape[2]

    def extend(self, jacobian: Linear, steps: int) -> int:
        """Grow the space by so many steps, or until it is invariant; return the products spent."""
        for step in range(steps):
            image = jacobian.vjp(self.basis.last)
            # What is left after orthogonalisation may be rounding: the space is invariant, and H holds eigenvalues of J.
            floor = ROUNDING * torch.finfo(image.dtype).eps * torch.maximum(norm(image), self._size().to(image.dtype))
            self.basis, column, length = self.basis.absorb(image, floor)
            self.exhausted = not length.any()
            rows = column.shape[0]
            wider = self.hessenberg.new_zeros(rows, self.steps + 2, self.steps + 1)
            wider[:, :-1, :-1] = self.hessenberg
            wider[:, :-1, -1] = column.double()
            wider[:, -1, -1:] = length.double()
            self.hessenberg = wider
            if self.exhausted:
                return step + 1
        return steps

    def _size(self) -> Tensor:
        """‖H‖ so far, a guess at ‖J‖."""
        return torch.linalg.vector_norm(self.hessenberg, dim=(1, 2)).unsqueeze(1) / max(self.steps, 1) ** 0.5

    def restart(self, values: Tensor, vectors: Tensor) -> None:
        """Keep the Ritz vectors of the outermost values: J (V Q) = (V Q)(Qᵀ H Q) + v hᵀ Q, where H Q = Q (Qᵀ H Q)."""
        Q = torch.stack([_wanted(v, y) for v, y in zip(values, vectors, strict=True)])
        H = self.hessenberg
        kept = torch.stack([self.basis.combine(Q[:, :, i]) for i in range(Q.shape[2])], dim=1)
        self.hessenberg = torch.cat([Q.mT @ H[:, :-1] @ Q, H[:, -1:] @ Q], dim=1)
        self.basis = Basis.of(torch.cat([kept, self.basis.last.unsqueeze(1)], dim=1))


def _wanted(values: Tensor, vectors: Tensor) -> Tensor:
    """An orthonormal real basis of the span of the KEPT outermost eigenvectors; a zero column where a pair would be cut."""
    order = values.abs().argsort(descending=True).tolist()
    chosen: list[Tensor] = []
    for i in order:
        y = vectors[:, i]
        if values[i].imag == 0:
            chosen.append(y.real)
        elif values[i].imag > 0 and len(chosen) + 2 <= KEPT:
            chosen += [y.real, y.imag]
        if len(chosen) >= KEPT:
            break
    q = torch.linalg.qr(torch.stack(chosen[:KEPT], dim=1)).Q
    return torch.nn.functional.pad(q, (0, KEPT - q.shape[1]))
