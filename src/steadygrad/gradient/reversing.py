"""The exact gradient of a reversible iteration: its steps are undone, and differentiated on the way."""

from __future__ import annotations

from dataclasses import dataclass

import numpy
import torch
from torch import Tensor

from steadygrad.fixedpoint.reversible import Reversible
from steadygrad.gradient.exact import Carried, Steps, Watched, attached, closure_at, constant, output_steps
from steadygrad.gradient.problem import Problem, Solved, without_graph
from steadygrad.iteration.norms import leaf_norms
from steadygrad.solution import magnitude, report_failure
from steadygrad.state.shards import somewhere

TRUSTED = 1e-2
"""A reconstructed state that is further than this from the one that was kept is reported."""


def reversed_steps(problem: Problem) -> Solved:
    """The steady state by a reversible iteration, with the gradient of its steps."""
    if problem.derivatives > 1:
        raise ValueError(
            f"derivatives={problem.derivatives}: steps that are undone have first derivatives only; use forward=Picard(...) with "
            "BPTT(), or an implicit gradient with a tolerance."
        )
    if not torch.is_grad_enabled():
        return constant(problem, without_graph(problem))
    forward, update = problem.forward, problem.update
    assert isinstance(forward, Reversible)
    distance = forward.distance(update.precision)
    kept: dict[int, Carried] = {}

    def keep(step: int, carried: Carried) -> None:
        if step == 0 or (distance is not None and step % distance == 0):
            kept[step] = carried

    watched = Watched(problem, keep)
    ended = watched.solve(problem.iterates)
    closure, outputs = closure_at(update, watched.last), output_steps(ended)
    if not somewhere(problem.start.requires_grad or bool(closure.edges)):
        return constant(problem, ended)
    end = forward.reached(ended.recent[-1])
    return attached(problem, ended, Undone(update, forward, problem.on_failure, ended.steps, outputs, closure, kept, end))


@dataclass
class Undone(Steps):
    """Steps that are undone one after the other, from the last state on; a state that was kept takes over where there is one."""

    kept: dict[int, Carried]
    end: Carried

    def back(self, at_end: dict[int, Tensor]) -> Carried:
        d = self.forward.damping  # pyright: ignore[reportAttributeAccessIssue]
        y, z = self.end
        a = c = torch.zeros_like(z)
        worst = 0.0
        for step in range(self.total, 0, -1):
            if step in at_end:
                c = c + at_end[step]
            image, pulled = self._linearised(y, (1 - d) * c)  # z was made from F(y)
            z, a, c = (z - (1 - d) * image) / d, a + pulled, d * c
            image, pulled = self._linearised(z, (1 - d) * a)  # and y from F(z), with the z before
            y, a, c = (y - (1 - d) * image) / d, d * a, c + pulled
            true = self.kept.get(step - 1)
            if true is not None:
                apart = self._apart((y, z), true)
                worst = worst if apart <= worst else apart  # nan is the worst
                y, z = true
        self._report(worst)
        return a, c

    def release(self) -> None:
        self.kept, self.end = {}, ()

    def _linearised(self, at: Tensor, cotangent: Tensor) -> tuple[Tensor, Tensor]:
        """F at a state, and Jᵀv there; vᵀ∂F/∂w goes to the closure."""
        leaf = at.detach().requires_grad_()
        with torch.enable_grad():
            image = self.update(leaf)
        return image.detach(), self.pull([image], [cotangent], [leaf])[0]

    def _apart(self, found: Carried, true: Carried) -> float:
        """The distance of a reconstructed state from the true one, relative to the size of the states, in the worst problem."""
        sizes = [sum(self.update.layout.sizes)]
        differences = [a - b for a, b in zip(found, true, strict=True)]
        apart = numpy.sum(leaf_norms(differences, sizes), axis=0)
        size = numpy.sum(leaf_norms([*true, *self.end], sizes), axis=0) / 2
        return float((apart / (size + torch.finfo(self.end[0].dtype).tiny)).max())

    def _report(self, worst: float) -> None:
        if worst <= TRUSTED:  # not so for nan
            return
        forward = self.forward
        assert isinstance(forward, Reversible)
        report_failure(_LOST.format(magnitude(worst), forward.every, forward.damping), self.on_failure)


_LOST = (
    "undoing the steps of the solve did not lead back to its start: what was reconstructed is {} of its size off, so the "
    'gradient is wrong. Rounding errors grow with every step undone (every={!r}, damping={}). Use Reversible(every="auto") or a '
    'smaller every=, more damping, or float64; or Picard(...) with BPTT(memory="sqrt"), which undoes nothing.'
)
