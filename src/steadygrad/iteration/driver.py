"""The one driver of every iteration, forward and adjoint."""

from __future__ import annotations

from typing import Any

from torch import Tensor

from steadygrad.iteration.goal import Goal
from steadygrad.iteration.run import Ended, Run
from steadygrad.iteration.solver import Iteration


def drive(
    solver: Iteration,
    problem: Any,
    start: Tensor,
    goal: Goal,
    divide: bool = False,
    wanted: frozenset[int] = frozenset(),
) -> Ended:
    """Run a solver from a start until every problem has ended; gradients are recorded if they are enabled.

    With `divide` rows that have ended are left out, if `problem.part(rows, value)` gives the problem of the others. `wanted`
    are steps whose iterates are wanted too.
    """
    return Run(solver, problem, start, goal, divide, wanted).run()
