"""A solve inside torch.func, or in forward mode: found below all transforms, given its derivatives inside them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy
import torch
from torch import Tensor

from steadygrad.fixedpoint import Reversible
from steadygrad.gradient.adjoint import Search
from steadygrad.gradient.artbp import ARTBP
from steadygrad.gradient.implicit import Implicit, said_steady, seen_to_depend
from steadygrad.gradient.inverse import FrozenSystem
from steadygrad.gradient.phantom import Phantom
from steadygrad.gradient.problem import Gradient, Problem, Solved, without_graph
from steadygrad.gradient.reroute import attach_often
from steadygrad.gradient.unrolled import BPTT, TBPTT, picard_of
from steadygrad.iteration import Ended
from steadygrad.solution import AdjointRecord, SteadyStateError
from steadygrad.state import State
from steadygrad.state.tree import in_order
from steadygrad.update.jacobian import Jacobian
from steadygrad.update.levels import Levels


@dataclass(frozen=True)
class Inside:
    """A problem whose update and start are plain, and the same F as the transforms see it."""

    problem: Problem
    levels: Levels
    function: Callable[..., State]
    args: tuple[Any, ...]
    start: list[Tensor]
    """The tensors of h0 as the transforms see them: unrolled gradients reach it."""

    def solve(self, method: Gradient) -> Solved:
        """What `method.solve` gives outside of transforms: the same state, with the derivatives that these ask for."""
        if isinstance(method, Implicit):
            return self._found(method, self._implicit)
        if isinstance(method, Phantom):
            return self._found(method, self._phantom)
        if isinstance(method, (BPTT, TBPTT, ARTBP)) and not self.problem.iterates:
            return self._unrolled(method)
        raise SteadyStateError(_NOT_INSIDE.format(repr(method), " with iterates=" if self.problem.iterates else ""))

    def image(self, leaves: list[Tensor]) -> list[Tensor]:
        """F inside the transforms, with the draws and the autocast of all its calls in this solve."""
        layout = self.problem.update.layout

        def call() -> list[Tensor]:
            found = in_order(layout.template, self.function(layout.nest(leaves), *self.args))
            return [leaf.to(layout.dtype) for leaf in found]  # autocast may have made it another

        return self.problem.update.alike(call)

    def up(self, flat: Tensor) -> list[Tensor]:
        """The tensors of a plain flat state as the transforms see them, each with memory of its own."""
        with self.levels.cleared():  # what is made inside would belong to the innermost level
            leaves = [leaf.clone() for leaf in self.problem.update.layout.split(flat)]
        return self.levels.up(leaves)

    def _found(self, method: Any, attach: Callable[[Any, Tensor, Ended, AdjointRecord], list[Tensor]]) -> Solved:
        """The steady state, and the iterates asked for, each with its derivatives attached."""
        with self.levels.cleared():
            ended = without_graph(self.problem)
        record = AdjointRecord(forward_steps=ended.steps)
        iterates = {step: attach(method, state, ended, AdjointRecord()) for step, state in ended.iterates.items()}
        return Solved(attach(method, ended.value, ended, record), ended, record, iterates)

    def _implicit(self, method: Implicit, h: Tensor, ended: Ended, record: AdjointRecord) -> list[Tensor]:
        """A steady state with as many exact derivatives as the transforms take."""
        problem = self.problem
        finite, at = self._finite(h)
        out = self.up(at)
        images = self.image(out)
        orders = self.levels.derivatives(images, problem.derivatives)
        if not orders:
            return self.up(h)
        method.check_derivatives(orders)
        with self.levels.cleared():
            steady = said_steady(problem, ended) if record.forward_steps else None
            batch = tuple(problem.update.layout.batch)
            search = Search(batch, None, seen_to_depend(problem, ended), steady, record.forward_steps)
            jacobian = Jacobian(problem.update, at)
            adjoint = method.adjoint_at(jacobian, record, problem.on_failure, search, problem.adjoint)
            system = FrozenSystem(adjoint, self.levels.own)
        out = attach_often(system, orders, out, images, self.image)
        return out if finite is None else self._where(finite, out, self.up(h))

    def _phantom(self, method: Phantom, h: Tensor, ended: Ended, record: AdjointRecord) -> list[Tensor]:
        finite, at = self._finite(h)
        out = self.up(at)
        for _ in range(method.steps):
            out = [torch.lerp(new, old, method.damping) for new, old in zip(self.image(out), out, strict=True)]
        self._check(method, out)
        value = self.up(h)
        changed = [start + (part - part.detach()) for start, part in zip(value, out, strict=True)]
        return changed if finite is None else self._where(finite, changed, value)

    def _unrolled(self, method: BPTT | TBPTT | ARTBP) -> Solved:
        """The steps are counted below the transforms; the last of them, or all, are then taken again inside."""
        if isinstance(self.problem.forward, Reversible) or (isinstance(method, BPTT) and method.recomputes):
            raise SteadyStateError(_NOT_INSIDE.format(repr(method), f" and forward={self.problem.forward!r}"))
        forward = picard_of(self.problem, method)
        with self.levels.cleared(), torch.no_grad():
            # One draw for all entries of a vmap, as for all problems of a batch.
            kept, factors = method.draw(forward) if isinstance(method, ARTBP) else (_steps_of(method), dict[int, float]())
            ended = without_graph(self.problem)
            ends = numpy.full(len(ended.status), ended.steps) if ended.ends is None else numpy.asarray(ended.ends)
            begins = numpy.maximum(ends - kept, 0) if kept is not None else numpy.zeros_like(ends)
            h = self.problem.start.detach()
            for step in range(int(begins.max())):
                h = torch.where(self._rows(step < begins), forward.advanced(self.problem.update, (h,), 1)[0], h)
        out = self.start if not begins.any() else self._where(self._rows(begins > 0), self.up(h), self.start)
        steps = ends - begins
        total = int(steps.max())
        for left in range(total, 0, -1):  # a problem with fewer steps than others begins later
            entering = [_scaled(part, factors[left]) for part in out] if left in factors else out
            new = [
                torch.lerp(image, part, forward.damping) if forward.damping else image
                for image, part in zip(self.image(entering), entering, strict=True)
            ]
            out = new if (steps >= left).all() else self._where(self._rows(steps >= left), new, out)
        self._check(method, out)
        return Solved([part.clone() for part in out], ended, AdjointRecord())

    def _check(self, method: Gradient, leaves: list[Tensor]) -> None:
        orders = self.levels.derivatives(leaves, self.problem.derivatives)
        if orders > 1:
            method.check_derivatives(orders)

    def _finite(self, h: Tensor) -> tuple[Tensor | None, Tensor]:
        """Which problems have a finite state, None for all, and a state to differentiate at: theirs, or else their start."""
        with self.levels.cleared():
            finite = h.isfinite().all(dim=1, keepdim=True)
            if bool(finite.all()) or len(finite) == 1:
                return None, h
            return finite, torch.where(finite, h, self.problem.start.detach())

    def _rows(self, mask: Any) -> Tensor:
        """A plain column that says of which problems."""
        with self.levels.cleared():
            return torch.from_numpy(numpy.array(mask)).to(self.problem.start.device).unsqueeze(1)

    def _where(self, rows: Tensor, a: list[Tensor], b: list[Tensor]) -> list[Tensor]:
        """The tensors of `a` in some problems, those of `b` in the others; `rows` is a plain column."""
        with self.levels.cleared():
            masks = self.problem.update.layout.split(rows.expand_as(self.problem.start).to(self.problem.start.dtype))
        chosen = self.levels.up(masks)
        return [torch.where(mask > 0, x, y) for mask, x, y in zip(chosen, a, b, strict=True)]


def _steps_of(method: BPTT | TBPTT) -> int | None:
    return method.steps if isinstance(method, TBPTT) else None


def _scaled(part: Tensor, factor: float) -> Tensor:
    """The tensor itself, with a derivative multiplied by a factor, in either mode."""
    still = part.detach()
    return still + factor * (part - still)


_NOT_INSIDE = (
    "gradient={}{} cannot be used inside torch.func or in forward mode: it needs autograd's own graph. Use an implicit gradient "
    '("auto"), Phantom(), BPTT() with forward=Picard(...), TBPTT(...) or ARTBP(...), or take the solve outside, with batch_dims '
    "for vmap and torch.autograd.grad for grad."
)
