"""Choose by itself: the Neumann series while it converges fast, conjugate gradients otherwise."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass

from torch import Tensor

from steadygrad.fixedpoint.solver import norms
from steadygrad.jacobian import Linear
from steadygrad.linear.neumann import Neumann
from steadygrad.linear.normal_cg import NormalCG
from steadygrad.linear.solver import LinearSolver, default_rtol
from steadygrad.watch import Iterate


@dataclass(frozen=True, repr=False)
class Auto(LinearSolver):
    """The Neumann series while its terms fall fast enough, then conjugate gradients from where it stands.

    Needs only that I−J is invertible.
    """

    def iterates(self, jacobian: Linear, b: Tensor, z: Tensor) -> Iterator[Iterate]:
        rtol = self.rtol or default_rtol(b.dtype)
        terms: list[list[float]] = []
        iterate = Iterate(b, lambda: b)
        for iterate in Neumann().iterates(jacobian, b, z):
            yield iterate
            terms.append(norms(iterate.residual()))
            if any(_slow([term[i] for term in terms], rtol) for i in range(b.shape[0])):
                break
        yield from NormalCG().iterates(jacobian, b, iterate.value)


def _slow(terms: list[float], rtol: float) -> bool:
    """Whether a series with terms of these norms needs more than BUDGET further terms, by its recent rate."""
    if len(terms) < 5 or terms[-1] <= rtol * terms[0]:
        return False
    rate = (terms[-1] / terms[-4]) ** (1 / 3)
    return not rate < 1 or math.log(rtol * terms[0] / terms[-1]) / math.log(rate) > BUDGET


BUDGET = 40
"""Further terms that the series is given: about what conjugate gradients need on a system that is not easy."""
