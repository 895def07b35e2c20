"""Back-propagation through every step in the memory of a few: what was not kept is computed again."""

from __future__ import annotations

from dataclasses import dataclass, field

import torch
from torch import Tensor

from steadygrad.gradient.exact import Carried, Steps, Watched, attached, closure_at, constant, output_steps
from steadygrad.gradient.problem import Problem, Solved, without_graph
from steadygrad.gradient.schedule import Plan
from steadygrad.gradient.trail import Trail
from steadygrad.solution import report_failure
from steadygrad.state.shards import somewhere
from steadygrad.update import AGREEMENT


def checkpointed(problem: Problem, plan: Plan) -> Solved:
    """The steady state with the gradient of its steps, of which a plan says how many states are kept."""
    if not torch.is_grad_enabled():
        return constant(problem, without_graph(problem))
    forward, update, trail = problem.forward, problem.update, Trail(plan)

    def keep(step: int, carried: Carried) -> None:
        if trail.wants(step):
            trail.keep(step, carried)

    watched = Watched(problem, keep)
    ended = watched.solve(problem.iterates)
    closure, outputs = closure_at(update, watched.last), output_steps(ended)
    if not somewhere(problem.start.requires_grad or bool(closure.edges)):
        return constant(problem, ended)
    end = mark(forward.reached(ended.recent[-1]))
    steps = Checkpoints(update, forward, problem.on_failure, ended.steps, outputs, closure, trail, end)
    return attached(problem, ended, steps)


def mark(carried: Carried) -> Tensor:
    """A few numbers by which a state is known again: the sum and the norm of every row."""
    flat = torch.cat([part.double() for part in carried], dim=1)
    return torch.stack([flat.sum(dim=1), flat.norm(dim=1)])


@dataclass
class Checkpoints(Steps):
    """Steps of which some states were kept, from which the others are computed again as they are needed."""

    trail: Trail
    end: Tensor
    """The mark of the last state."""
    _z: Carried = field(default=(), init=False)
    _entering: dict[int, Tensor] = field(default_factory=dict[int, Tensor], init=False)

    def back(self, at_end: dict[int, Tensor]) -> Carried:
        nothing = torch.zeros_like(next(iter(at_end.values())))
        self._entering = at_end
        self._z = tuple(nothing for _ in self.trail.kept[0][1])
        self.trail.reverse(self.total, self._advance, self._back_over)
        found, self._z, self._entering = self._z, (), {}
        return found

    def release(self) -> None:
        self.trail.kept.clear()

    def _advance(self, at: int, state: Carried, to: int) -> Carried:
        with torch.no_grad():
            return self.forward.advanced(self.update, state, to - at)

    def _back_over(self, at: int, state: Carried, end: int) -> None:
        """Back through the steps from `at` to `end`, taken again with a graph."""
        leaves = [part.detach().requires_grad_() for part in state]
        outputs: list[Tensor] = []
        cotangents: list[Tensor] = []
        with torch.enable_grad():
            carried: Carried = tuple(leaves)
            for step in sorted(step for step in self._entering if at < step <= end):
                carried = self.forward.advanced(self.update, carried, step - at)
                at = step
                outputs.append(carried[-1])
                cotangents.append(self._entering[step])
            carried = self.forward.advanced(self.update, carried, end - at)
        if end == self.total:
            self._compare(carried)
        self._z = tuple(self.pull([*carried, *outputs], [*self._z, *cotangents], leaves))

    def _compare(self, carried: Carried) -> None:
        """Report steps that, taken again, lead elsewhere."""
        with torch.no_grad():
            again = mark(carried)
            finite = self.end.isfinite().all(dim=0)
            size = sum(part.shape[1] for part in carried) ** 0.5
            allowed = AGREEMENT * torch.finfo(self.update.precision).eps * size * self.end[1]
            if somewhere(bool(((again - self.end).abs() > allowed)[:, finite].any())):
                report_failure(NOT_REPEATED, self.on_failure)


NOT_REPEATED = (
    "the steps of the solve, taken again for its gradient, led to another state, so the gradient is wrong. F must give the same "
    "image whenever it is called: something that it uses was changed in place since (an input buffer, a parameter), or it "
    "remembers its calls, or draws random numbers elsewhere than from torch. Use BPTT() without checkpoints, or mend F."
)
