"""How fast the Neumann series of this J converges, as observed."""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from steadygrad.diagnose.scale import ratio
from steadygrad.iteration.norms import norms
from steadygrad.linear import Auto
from steadygrad.solution import Status
from steadygrad.update.linear_map import Linear

TAIL = 3
"""The rate is that of the last of so many parts of what was observed: by then the fast directions have died down."""
FLAT = 1e-9
"""A rate this close to 1 or above it is none that a number of steps can be told from."""


@dataclass(frozen=True)
class Decay:
    """The Neumann series for one cotangent b, the slowest problem of a batch."""

    powers: tuple[float, ...]
    """‖(Jᵀ)ᵏ b‖ / ‖b‖, k = 0, 1, …: the terms, and the adjoint residual of Neumann(k − 1)."""
    errors: tuple[float, ...]
    """‖z − z_K‖ / ‖z‖ of Neumann(K), K = 0, 1, …; empty where the adjoint equation could not be solved."""
    status: Status
    """How the solve for z ended."""
    radius: float = 0.0
    """ρ(J) if it is known: what the series comes to in the long run."""

    @property
    def rate(self) -> float:
        """The factor that the error shrinks by with a term, over the last third that was observed."""
        alive = [value for value in self.errors if value > 0]
        if len(alive) < 2:
            return 0.0
        back = max(1, len(alive) // TAIL)
        return (alive[-1] / alive[-1 - back]) ** (1 / back)

    def steps_for(self, rtol: float) -> int | None:
        """The smallest K for which Neumann(K) has a relative error of at most `rtol`; None where no K has, or none is known."""
        trace = self.errors
        if not trace or not all(map(math.isfinite, trace)):
            return None
        above = [k for k, error in enumerate(trace) if error > rtol]
        if not above:
            return 0
        if above[-1] + 1 < len(trace):
            return above[-1] + 1
        rate = max(self.rate, self.radius)
        if rate >= 1 - FLAT:
            return None
        return len(trace) - 1 + math.ceil(math.log(rtol / trace[-1]) / math.log(rate))


NEGLIGIBLE, BEYOND = 1e-12, 1e12
"""Terms relative to b where looking on is of no use: nothing is left, or the series diverges."""


def observe(jacobian: Linear, b: Tensor, radius: float, terms: int, steps: int) -> Decay:
    """The norms of (Jᵀ)ᵏ b, and of the errors of the partial sums, which are (Jᵀ)ᴷ⁺¹ z for (I − Jᵀ) z = b.

    Proposition 3 bounds the error by ‖J‖ᴷ⁺¹, which says nothing where ‖J‖ > 1; this is the error itself. The slowest
    problem of a batch decides. At most 2·terms products and one solve, of at most that many steps.
    """
    lengths = torch.tensor(norms(b), dtype=torch.float64, device=b.device).unsqueeze(1)
    b = torch.where(lengths > 0, b.double() / lengths, 0.0).to(b.dtype)
    solved = Auto(max_steps=steps).solve(jacobian, b)
    powers = _powers(jacobian, b, terms)
    usable = all(status is Status.CONVERGED for status in solved.status)
    errors = _powers(jacobian, solved.z, terms)[1:] if usable else ()
    worst = next((status for status in solved.status if status is not Status.CONVERGED), Status.CONVERGED)
    return Decay(powers, errors, worst, radius)


def _powers(jacobian: Linear, v: Tensor, terms: int) -> tuple[float, ...]:
    """‖(Jᵀ)ᵏ v‖ / ‖v‖, the largest of all rows, until nothing is left or it grows beyond reason."""
    sizes = norms(v)
    trace = [1.0]
    for _ in range(terms):
        v = jacobian.vjp(v)
        trace.append(max(ratio(n, s) for n, s in zip(norms(v), sizes, strict=True)))
        if not NEGLIGIBLE < trace[-1] < BEYOND:
            break
    return tuple(trace)
