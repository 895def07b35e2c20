"""What may be said of a gradient beyond its adjoint equation: of the state that it was taken at, and of each parameter."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple

import numpy
import torch
from torch import Tensor

from steadygrad.fixedpoint.solver import trusted_in
from steadygrad.gradient.instead import exact_instead
from steadygrad.gradient.look import Here, Seen
from steadygrad.gradient.parts import DOUBT, errors_of_leaves, gradient_error
from steadygrad.gradient.shift import NEAR, RestOfTheWay, Shift, Steady
from steadygrad.iteration.norms import Numbers, leaf_norms, norms_of_one
from steadygrad.iteration.plain import over, some
from steadygrad.linear.system import LinearSolution
from steadygrad.solution import Status, magnitude
from steadygrad.state.shards import somewhere, total
from steadygrad.update.jacobian import Jacobian

SHY = 0.8
"""The share of what is trusted from which on a change of the gradient is reported: it is known to about a fifth of itself."""
SLACK = 1.5
"""A distance by a solve with J that exceeds what is trusted by this factor contradicts the estimate of the search."""
LEAST, MOST = 1e-25, 1e25
"""Between these a sum of products in float32 has lost none of them to the range of the dtype."""


class Doubts(NamedTuple):
    """What is to be said of a gradient whose adjoint was found."""

    unsteady: bool = False
    """The state is not steady after all."""
    shift: float | None = None
    """By how much the gradient changes on the rest of the way; None where nobody looks."""
    parts: float | None = None
    """What the error of z does to the worst gradient; None where nobody looks."""

    def messages(self, precision: torch.dtype, remaining: Callable[[], float], steps: int) -> list[str]:
        """What to report, in words; `remaining` is the change of the loss to come, `steps` those of the search for the state."""
        trusted, found = trusted_in(precision), list[str]()
        if self.unsteady:
            found.append(f"{_UNSTEADY.format(magnitude(remaining()))} {exact_instead(max(1, steps))}")
        elif self.shift is not None and self.shift > SHY * trusted:
            found.append(_SHIFTS.format(magnitude(self.shift)))
        if self.parts is not None and self.parts > trusted:
            found.append(_PARTS.format(magnitude(self.parts)))
        return found


@dataclass
class Trust:
    """The adjoints z of cotangents b at one linearisation, looked at from outside of their equation."""

    jacobian: Jacobian
    b: Tensor
    solved: LinearSolution
    units: Tensor | None
    """Those in which the equation was solved; None for those of the state."""
    counts: bool
    """Whether an exact count of terms was asked for: it is not looked at closely, since its own error is larger."""
    check: bool
    """Whether anything may be looked at closely, for evaluations of F and products."""
    solve: Callable[[Jacobian, Tensor, bool], Tensor]
    """The solution of (I − Jᵀ) x = v or, with True, of (I − J) x = v, roughly."""

    def changes(self) -> list[float]:
        """zᵀ(F(h) − h) of each problem, the change of the loss still to come. At once: z is handed out and may be changed."""
        z = self.solved.z
        found = total(torch.linalg.vecdot(z, self._gap)).tolist()  # F(h) − h has fewer digits than this loses
        if any(not (LEAST < abs(number) < MOST) for number in found):
            found = total((z.double() * self._gap).sum(dim=1)).tolist()
        return found

    def doubts(self, steady: Steady | None, changes: list[float]) -> Doubts:
        """Of states said to be `steady`, None for none; `changes` are those of the loss still to come, one a problem."""
        shift, unsteady = (None, False) if steady is None else self._rest_of_the_way(steady, changes)
        return Doubts(unsteady, None if shift is None else shift.gradient, self._parts() if self._closely else None)

    @cached_property
    def _gap(self) -> Tensor:
        return self.jacobian.gap()

    @cached_property
    def _here(self) -> Here:
        gap = self._gap if self.jacobian.copies == 1 else None
        return Here(self.jacobian.one, _by_cotangent(self.solved.z, self.b, self.jacobian.copies), gap)

    @property
    def _closely(self) -> bool:
        return self.check and not self.counts

    @property
    def _trusted(self) -> float:
        return trusted_in(self.jacobian.precision)

    def _found(self, *ends: Status) -> list[bool]:
        return [status in ends for status in self.solved.status]

    def _errors_exceed(self, least: float) -> bool:
        """Whether the error of some adjoint does: that of a row that failed may be NaN, and then so may be the largest."""
        return any(error > least for error in self.solved.error)

    def _seen(self, z: Tensor, b: Tensor) -> list[Seen]:
        if z is self.solved.z and b is self.b:
            return list(self._here.seen)
        return _by_cotangent(z, b, self.jacobian.copies)

    def _rest_of_the_way(self, steady: Steady, changes: list[float]) -> tuple[Shift | None, bool]:
        """How much the gradient changes on it, and whether the state is not steady after all.

        Of the problems that were said to be steady and whose adjoint was found, for all cotangents.
        """
        found = self._found(Status.CONVERGED, *([Status.MAX_STEPS] if self.counts else []))
        if not all(found):
            steady = steady.where(numpy.array(found).reshape(self.jacobian.copies, -1).min(axis=0))
            if not steady.said.any():
                return None, False
        moves = self._loss_moves(steady, changes)
        shift = self._shift(steady, moves) if self._closely else None
        far = shift is not None and shift.distance > SLACK * self._trusted
        return shift, far or some(moves > self._trusted)

    def _loss_moves(self, steady: Steady, change: list[float]) -> Any:
        """The change of the loss still to come, one a problem, over what it is where the state changes by its own size.

        No more than the relative distance of the state, and far less where it has to go in directions that the loss ignores.
        A float for a single one.
        """
        sizes, copies = self.jacobian.layout.sizes, self.jacobian.copies
        if len(change) == len(sizes) == 1:
            moves = over(abs(change[0]), norms_of_one([self.b], sizes)[0] * float(steady.sizes[0, 0]))
            return moves if moves == moves else 0.0
        (size,) = leaf_norms([self.b], sizes)
        with numpy.errstate(all="ignore"):
            possible = (size.reshape(copies, -1, size.shape[1]) * steady.sizes).sum(axis=2)
            moves: Numbers = numpy.fmax.reduce(numpy.abs(numpy.array(change)).reshape(copies, -1) / possible)
        return numpy.where(steady.said & (moves == moves), moves, 0.0)

    def _shift(self, steady: Steady, moves: Any) -> Shift | None:
        """How much the gradient changes on the rest of the way; None where the state is so near that nobody looks."""
        rest = RestOfTheWay(self._here, self._seen(self.solved.z, self.b), steady, self._trusted, self.solve)
        doubted = rest.doubted(moves)
        if not doubted and somewhere(self._errors_exceed(NEAR * self._trusted)):  # no less than the rounding of J does to z
            doubted = rest.rounding_leads_far()
        return rest.shift(doubted) if doubted or rest.matters() else None

    def _parts(self) -> float | None:
        """What the errors of the adjoints that were found do to the gradient; None where they are too small for a look."""
        z, sizes, least = self.solved.z, self.jacobian.layout.sizes, DOUBT * self._trusted
        if len(sizes) == 1 and not somewhere(self._errors_exceed(least)):
            return None
        found = numpy.array(self._found(Status.CONVERGED))
        whole, scaled = numpy.where(found, numpy.array(self.solved.error), 0.0), z if self.units is None else z * self.units
        errors = errors_of_leaves(scaled, whole, sizes, lambda: self.b - z + self.jacobian.vjp(z))
        if not somewhere(bool((errors > least).any())):
            return None
        mask = torch.from_numpy(found).to(z.device).unsqueeze(1)
        z, b = (v if found.all() else torch.where(mask, v, 0.0) for v in (z, self.b))
        split = numpy.split(errors, self.jacobian.copies)
        return gradient_error(self._here, self._seen(z, b), split, self._trusted, self.solve)


def _by_cotangent(z: Tensor, b: Tensor, copies: int) -> list[Seen]:
    return [Seen(z, b)] if copies == 1 else list(map(Seen, z.chunk(copies), b.chunk(copies)))


_UNSTEADY = (
    "the state is not steady: to first order the loss would still change by {} on the way to the steady state, so the gradient "
    "belongs to neither. F moves little in a step, but has far to go. Lower rtol and raise max_steps, use forward=Anderson(...) "
    "or Newton(), or take larger steps in F."
)

_SHIFTS = (
    "the state is as near as was asked for, but its gradient is not: on the way that is left to the steady state it would change "
    "by {} of itself, by the worst of what F depends on. It depends strongly on the state there, or is small because large parts "
    "cancel. Lower the rtol of forward= and raise max_steps; a tolerance below 1e-6 needs float64."
)

_PARTS = (
    "the adjoint is as precise as was asked for, but a gradient is not: by the worst of what F depends on it is off by {} of "
    "itself, since it is small because large parts cancel. Lower the rtol of gradient=, e.g. gradient=Implicit(Auto(rtol=1e-6))."
)
