"""The adjoint equation of one steady state: from cotangents to z, leaving a certificate behind."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any, NamedTuple

import torch
from torch import Tensor

from steadygrad.gradient.shift import Steady
from steadygrad.gradient.trust import Doubts, Trust
from steadygrad.iteration.error import Errors
from steadygrad.iteration.norms import Numbers
from steadygrad.iteration.strides import LARGE
from steadygrad.linear import GMRES, Auto, Dense, Neumann
from steadygrad.linear.series import instead_of_what_failed
from steadygrad.linear.solver import AdjointSolver
from steadygrad.linear.system import LinearSolution
from steadygrad.linear.units import solved_in_units
from steadygrad.solution import (
    AdjointRecord,
    AdjointSolution,
    OnFailure,
    Problems,
    Status,
    magnitude,
    report_failure,
    worst,
)
from steadygrad.state.rows import dot, ratio
from steadygrad.state.shards import Shards, current, everywhere, greatest, sharing, somewhere, total
from steadygrad.update.autocast import without_autocast
from steadygrad.update.compiled import CompiledJacobian, graphs_for
from steadygrad.update.coupling import coupled_in
from steadygrad.update.jacobian import Jacobian
from steadygrad.update.linear_map import Linear


class AdjointStart(NamedTuple):
    """Where the adjoint solve begins: at zero, at a multiple of an earlier adjoint, or at a draw from U[0, 1]."""

    earlier: Tensor | None = None
    uniform: bool = False
    seed: int | None = None

    def of(self, jacobian: Jacobian, b: Tensor) -> Tensor | None:
        """The start for a cotangent; None for zero."""
        if self.uniform:
            generator = None if self.seed is None else torch.Generator(b.device).manual_seed(self.seed)
            return torch.rand(b.shape, dtype=b.dtype, device=b.device, generator=generator)
        z = self.earlier
        if z is None or not everywhere(z.shape == b.shape and bool(z.isfinite().all())) or not somewhere(bool(z.any())):
            return None
        # The loss may have another scale or sign by now: the best multiple of z is never worse than nothing.
        z, size = _unit(z)[0], _unit(b)
        image = z - jacobian.vjp(z)
        return ratio(dot(size[0], image), dot(image, image)) * z * size[1]


FROM_ZERO = AdjointStart()


def _unit(v: Tensor) -> tuple[Tensor, Tensor]:
    """A matrix with rows scaled to a largest entry of one, and the scales: squares of it stay in the range of the dtype."""
    scale = greatest(v.abs().amax(dim=1, keepdim=True))
    scale = torch.where((scale > 0) & scale.isfinite(), scale, torch.ones_like(scale))
    return v / scale, scale


@dataclass(frozen=True)
class Search:
    """What the search for a state has found out, for what is said of its gradient."""

    batch: tuple[int, ...] = ()
    rows: list[int] | None = None
    """The problems that F was linearised for, where some had no finite state; None for all."""
    depends: bool = False
    """Whether F is known to depend on h: then a J that autograd does not see is an error."""
    steady: Steady | None = None
    """What is known of a state that was said to be steady; None where it was not said so."""
    steps: int = 1


NO_SEARCH = Search()


@dataclass(frozen=True)
class Adjoint:
    """The linear system of one steady state: from cotangents b to z, leaving a certificate in `record`."""

    jacobian: Jacobian
    solver: AdjointSolver
    record: AdjointRecord
    on_failure: OnFailure
    method: object
    """The solver as it was given."""
    start: AdjointStart = FROM_ZERO
    compile: bool = False
    """Whether several products are run as one graph."""
    search: Search = NO_SEARCH
    sizes: Numbers | None = None
    """How large the leaves of the state are, where that differs much."""
    check: bool = True
    """Whether it is looked at what errors do to the gradient."""
    shards: Shards | None = field(default_factory=current, init=False)
    """How the state is divided over processes, when the backward pass comes."""

    def solve(self, cotangents: Sequence[Tensor], transpose: bool = False) -> list[Tensor]:
        """z with (I − Jᵀ) z = b, or (I − J) z = b, as tensors of the state."""
        jacobian, layout = self.jacobian, self.jacobian.layout
        with torch.set_grad_enabled(False), without_autocast(layout.device), sharing(self.shards):
            b = layout.flatten(cotangents)
            before = jacobian.products
            start = None if transpose else self.start.of(jacobian, b)
            operator, units = self._operator(jacobian, b, transpose)
            if self.compile and operator is jacobian and jacobian.update.captured is not None:  # F as it was in the search
                large = b.numel() > LARGE
                compiled = CompiledJacobian(jacobian, graphs_for(self._count, large), often=large and self._count is None)
                operator = compiled if compiled.ready else jacobian
            solve = partial(self.solver.solve, operator, *_times(units, b, start))
            solved = jacobian.walking(solve) if operator is jacobian and self._many(b) else solve()
            fell_back = self.on_failure == "fallback" and self._failed(solved)
            if fell_back:
                solved = instead_of_what_failed(solved, operator, *_times(units, b), lost=-1.0)
            if units is not None:
                solved.z = solved.z / units
            if not transpose:
                self.record.z = solved.z
            problems = Problems(tuple(self._all_rows(solved.status)), self.search.batch)
            trust = Trust(jacobian, b, solved, units, self.solver.counts, self.check, self._roughly)
            changes = trust.changes()
            doubts = Doubts() if transpose else trust.doubts(self.search.steady, changes)
            self.record.last = AdjointSolution(
                status=problems.worst,
                products=jacobian.products - before,
                residual=worst(solved.residual),
                errors=solved.errors,
                changes=Errors.known(changes),
                shift=doubts.shift,
                gradient_error=doubts.parts,
                method=self.method,
                problems=problems,
            )
            self._report(self.record.last, fell_back, doubts)
            return layout.split(solved.z)

    @property
    def _count(self) -> int | None:
        """The products of a series of which a number of terms was asked for; None of what goes on to a tolerance."""
        return self.solver.steps + 1 if isinstance(self.solver, Neumann) and self.solver.steps is not None else None

    def _many(self, b: Tensor) -> bool:
        """Whether so many products with few numbers are likely that it pays to take them without torch's engine."""
        expected = self.search.steps if self._count is None else self._count  # the state and its adjoint have one J
        return expected >= WALKED and b.numel() <= SMALL

    def _operator(self, jacobian: Jacobian, b: Tensor, transpose: bool) -> tuple[Linear, Tensor | None]:
        """The linear map to solve with, and the units of b in which that is done; None for those of the state as it is."""
        # With several cotangents the sizes of one state come again and again.
        return solved_in_units(jacobian, None if self.sizes is None else self.sizes[: len(b)], b, transpose)

    def select(self, cotangents: Sequence[Tensor]) -> list[Tensor]:
        """The cotangents of the problems that F was linearised for."""
        rows = self.search.rows
        return list(cotangents) if rows is None else [cotangent[rows] for cotangent in cotangents]

    def size_of(self, tensors: Sequence[Tensor]) -> float:
        """The norm of some tensors together."""
        with torch.no_grad(), sharing(self.shards):
            return float(total(torch.stack([tensor.double().square().sum() for tensor in tensors]).sum())) ** 0.5

    def _failed(self, solved: LinearSolution) -> bool:
        return not self.solver.counts and any(status is not Status.CONVERGED for status in solved.status)

    def _roughly(self, jacobian: Jacobian, b: Tensor, transpose: bool) -> Tensor:
        """The solution of (I − Jᵀ) x = b, or (I − J) x = b, to as many digits as an estimate needs."""
        operator, units = self._operator(jacobian, b, transpose)
        solver = self.solver if isinstance(self.solver, Dense) else Auto(rtol=ROUGH)
        solved = solver.solve(operator, *_times(units, b))
        if isinstance(solver, Auto) and any(status is not Status.CONVERGED for status in solved.status):
            # Auto gives a truncated series where rounding may have spoilt x; here its size matters, whatever its digits.
            solved = GMRES(rtol=ROUGH).solve(operator, *_times(units, b))
        return solved.z if units is None else solved.z / units

    def _all_rows(self, statuses: list[Status]) -> list[Status]:
        search = self.search
        if search.rows is None:
            return statuses
        everywhere = [Status.NONFINITE] * search.batch[0]
        for row, status in zip(search.rows, statuses, strict=True):
            everywhere[row] = status
        return everywhere

    def _coupled(self) -> str:
        """What to say of problems that were solved apart and failed, where they are none of their own."""
        one = self.jacobian.one
        asked = self.on_failure != "ignore" and self.shards is None
        return _COUPLED if asked and coupled_in(one, one.h) else ""

    def _report(self, adjoint: AdjointSolution, fell_back: bool, doubts: Doubts) -> None:
        if self.search.depends and somewhere(self.jacobian.structurally_zero):
            report_failure(_NO_PATH, self.on_failure)
        asked_for = adjoint.status is Status.MAX_STEPS and self.solver.counts
        if adjoint.status is not Status.CONVERGED and not asked_for:
            report_failure(
                f"{adjoint.problems.failed}the adjoint solve by {adjoint.solver} ended {adjoint.status.name}: relative residual "
                f"{magnitude(adjoint.residual)}, relative error {magnitude(adjoint.error_estimate)}, change of the loss still "
                f"to come {magnitude(abs(adjoint.remaining))}. {_FELL_BACK if fell_back else ''}{adjoint.advice}"
                f"{self._coupled()}",
                self.on_failure,
            )
        for message in doubts.messages(self.jacobian.precision, lambda: abs(adjoint.remaining), self.search.steps):
            report_failure(message, self.on_failure)


def _times(units: Tensor | None, *vectors: Tensor | None) -> list[Any]:
    return [vector if units is None or vector is None else vector * units for vector in vectors]


WALKED = 24
"""Products from which on it pays to make ready for walks (`update/walk.py`): that takes as long as they save in 12 to 16."""
SMALL = 2**13
"""Numbers up to which a product takes no longer than what the engine does around a few."""
LAST_DIGITS = 1e-15
"""What rounding leaves of a solve, whatever its residual says."""
ROUGH = 1e-3
"""The tolerance of solves that only estimate something. Not less: slow directions are a small part of a residual."""
_FELL_BACK = "The problems that failed got the truncated Neumann series with the smallest residual instead. "

_COUPLED = (
    " F couples the problems of the batch, as a mean over the batch or batch_norm in training mode does, so that they cannot be "
    "solved apart: give batch_dims=0, and no batch_index, for one problem."
)

_NO_PATH = (
    "autograd sees no path from the state to F(state), yet F changed when the state did: the gradient leaves out how the "
    "steady state depends on itself. Look in F for detach(), torch.no_grad(), numpy, or a collective without a derivative."
)
