"""The last terms of a Neumann series as a Krylov space: what may be expected of it is told by their inner products alone."""

from __future__ import annotations

from typing import NamedTuple

import numpy
import torch
from torch import Tensor

from steadygrad.iteration.norms import Mask, Numbers
from steadygrad.linear.basis import Basis, shares_of
from steadygrad.linear.krylov import Krylov, hessenberg_of, least_new, normal_to
from steadygrad.state.rows import norm

LIKE = 1e-3
"""Inner products ⟨v, JᵀJᵀv⟩ and ⟨Jᵀv, Jᵀv⟩ that differ by no more than this share are one, as they are where J is symmetric."""


def is_symmetric(gram: Numbers) -> bool:
    """Whether J acts as a symmetric matrix with I − J positive definite on terms v, Jᵀv, … with such inner products.

    Those of a symmetric J depend on i + j alone: ⟨(Jᵀ)ⁱb, (Jᵀ)ʲb⟩ = ⟨b, Jⁱ⁺ʲb⟩. Other matrices do not have that by chance. So do
    those of the differences of the terms, which are asked too: a series that hardly falls has all but reached one eigenvector of
    J, and any matrix acts as a symmetric one on that.
    """
    if gram.shape[1] < 3:
        return False
    along_rows = gram[:, :-1] - gram[:, 1:]
    of_differences = along_rows[:, :, :-1] - along_rows[:, :, 1:]
    if not (_depends_on_the_sum(gram) and _depends_on_the_sum(of_differences)):
        return False
    scale = numpy.sqrt(gram.diagonal(axis1=1, axis2=2)[:, :-1])
    scale = numpy.where(scale > 0, scale, 1.0)
    energy = (gram[:, :-1, :-1] - gram[:, :-1, 1:]) / scale[:, :, None] / scale[:, None, :]
    return bool((numpy.linalg.eigvalsh((energy + energy.mT) / 2)[:, 0] > -LIKE).all())


def _depends_on_the_sum(gram: Numbers) -> bool:
    """Whether the entries of such matrices are those of one sequence, by i + j."""
    across, along = gram.diagonal(2, axis1=1, axis2=2), gram.diagonal(axis1=1, axis2=2)[:, 1:-1]
    return bool((abs(across - along) <= LIKE * along).all())


class SeriesTerms(NamedTuple):
    """Consecutive terms v, Jᵀv, … of a Neumann series, the last of which is the residual of its sum."""

    vectors: tuple[Tensor, ...]
    """The last ones that are independent enough, (problems, size)."""
    on_it: Numbers
    """The vectors in terms of an orthonormal basis that begins with the first: upper triangular (problems, count, count)."""
    unsolved: Mask
    """Which problems have a residual at all."""
    fallen: Numbers
    """How the smallest residual over the terms falls with their number, over the last of them, which is the residual that the
    series has: (problems with a residual, steps + 1)."""

    @classmethod
    def of(cls, terms: list[Tensor], gram: Numbers, precision: torch.dtype) -> SeriesTerms | None:
        """The last of some terms with such inner products that are independent enough; None where fewer than three are."""
        count = len(terms)
        while count > 2:
            last = gram[:, -count:, -count:]
            if not last[:, 0, 0].all():  # a problem that is solved: any factor will do
                last = numpy.where(last.any(axis=(1, 2), keepdims=True), last, numpy.eye(count))
            try:
                factor: Numbers = numpy.linalg.cholesky(last).astype(numpy.float64, copy=False)
            except numpy.linalg.LinAlgError:
                count //= 2
                continue
            shares = shares_of(factor)
            if (shares >= least_new(precision) ** 2).all():
                return cls(tuple(terms[-count:]), factor.mT, gram[:, -1, -1] > 0, _fallen(factor.mT, gram[:, -1, -1]))
            count = min(count - 1, int((shares >= least_new(precision) ** 2).all(axis=0).argmin()))
        return None

    @property
    def steps(self) -> int:
        """Steps of GMRES that the terms are worth."""
        return len(self.vectors) - 1

    def hessenberg(self) -> Numbers:
        """H with (I−Jᵀ) V_k = V_{k+1} H over the basis V."""
        return hessenberg_of(self.on_it[:, :, :-1], self.on_it[:, :, 1:])

    def space(self, z: Tensor, precision: torch.dtype) -> Krylov | None:
        """The Krylov space of the terms, for no product; None where rounding leaves none."""
        vectors = torch.stack(self.vectors, dim=1)
        found = Basis.empty(vectors, len(self.vectors)).absorb_several(vectors, least_new(precision), self.on_it.mT)
        if found is None or found[0].filled < len(self.vectors):
            return None
        start = z - vectors[:, :-1].sum(dim=1)
        return Krylov.over(start, norm(self.vectors[0]).double(), found[0], found[1])


def _fallen(on_it: Numbers, last: Numbers) -> Numbers:
    """How the smallest residual over the terms falls with their number, over the last term, whose squared norms are `last`.

    The smallest residual is u / ‖u‖² with u as in `normal_to`, and of fewer terms with less of u.
    """
    u = normal_to(on_it)[last > 0]
    return 1 / numpy.sqrt(numpy.add.accumulate(u * u, axis=1) * last[last > 0, None])
