"""The one driver of every iteration, forward and adjoint."""

from __future__ import annotations

from typing import Any

from torch import Tensor

from steadygrad.iteration.judge import Goal
from steadygrad.iteration.run import Ended, Run
from steadygrad.iteration.single import Single
from steadygrad.iteration.solver import Iteration
from steadygrad.iteration.together import Together
from steadygrad.state.shards import current


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
    alone = start.shape[0] == 1 and len(goal.sizes) == 1 and current() is None  # with ranks, one exchange a look counts more
    run: Run = Single(solver, problem, start, goal, wanted) if alone else Together(solver, problem, start, goal, wanted, divide)
    return run.run()
