"""steady_state: the one call, and the only place that reads shorthand strings."""

from __future__ import annotations

import difflib
from collections.abc import Callable
from typing import Any

import torch

from steadygrad.fixedpoint import Anderson, FixedPointSolver, Outcome, Picard
from steadygrad.gradient import ARTBP, BPTT, TBPTT, Gradient, Implicit, Problem
from steadygrad.gradient.implicit import worst
from steadygrad.linear import GMRES, LSQR, Auto, BiCGSTAB, Dense, Neumann, NormalCG
from steadygrad.solution import OnFailure, Solution, Status, SteadyStateError, check_on_failure, magnitude, report_failure
from steadygrad.state import Layout, State, leaves_of
from steadygrad.update import Update

SHORTHANDS: dict[str, Gradient] = {
    "auto": Implicit(Auto()),
    "rbp": Implicit(Picard(max_steps=100)),
    "cg-rbp": Implicit(NormalCG()),
    "neumann-rbp": Implicit(Neumann(steps=20)),
    "one-step": Implicit(Neumann(steps=0)),
    "lsqr": Implicit(LSQR()),
    "gmres": Implicit(GMRES()),
    "bicgstab": Implicit(BiCGSTAB()),
    "anderson": Implicit(Anderson()),
    "dense": Implicit(Dense()),
    "bptt": BPTT(),
    "tbptt": TBPTT(steps=5),
    "artbp": ARTBP(),
}
"""What the names mean. Counts are the paper's: Neumann(K) has K+1 terms, TBPTT(K) K applications of F."""


def steady_state(
    update: Callable[..., State],
    h0: State,
    *args: Any,
    forward: FixedPointSolver = Picard(),
    gradient: str | Gradient = "auto",
    batch_dims: int = 0,
    derivatives: int = 1,
    on_failure: OnFailure = "warn",
    warm: Solution | None = None,
    compile: bool = False,
    group: Any = None,
) -> Solution:
    """Find h* = F(h*) from h0 and give it a gradient, with a certificate of how far to trust it.

    `update(h, *args)` is F; h0 is a tensor or any nesting of tuples, lists and dicts of tensors. Gradients reach the args
    and whatever F closes over; with an implicit gradient none reaches h0, on which a steady state does not depend.
    Random draws in F (dropout) are the same in every call of one solve and new in the next.

    `on_failure` says what happens when the state is not found or the adjoint equation is not solved: "raise", "warn"
    or "ignore". NaN from the very first call of F is an error in all but the last.

    >>> import torch, steadygrad as sg
    >>> W = 0.1 * torch.eye(3); x = torch.ones(2, 3, requires_grad=True)
    >>> solution = sg.steady_state(lambda h: torch.tanh(h @ W.T + x), torch.zeros(2, 3))
    >>> solution.value.sum().backward()
    >>> solution.converged, solution.adjoint.converged
    (True, True)
    """
    check_on_failure(on_failure)
    _refuse_what_is_not_there_yet(batch_dims, derivatives, warm, compile, group)
    if not callable(update):
        raise TypeError(f"update must be callable as update(h, *args); got {type(update).__name__}.")
    if not isinstance(forward, FixedPointSolver):  # pyright: ignore[reportUnnecessaryIsInstance]
        raise TypeError(f"forward must be a solver such as Picard(max_steps=100); got {forward!r}.")
    method = resolve_gradient(gradient)
    layout = Layout.of(h0)
    start = layout.flatten([leaf.clone() for leaf in leaves_of(h0)])
    problem = Problem(Update(update, args, layout, probe=torch.is_grad_enabled()), start, forward, on_failure)
    solved = method.solve(problem)
    solution = Solution(
        value=layout.nest(solved.leaves),
        status=worst(solved.outcome.status),
        steps=solved.outcome.steps,
        residuals=solved.outcome.residuals,
        record=solved.record,
    )
    _report(solution, solved.outcome, problem)
    return solution


def resolve_gradient(gradient: str | Gradient) -> Gradient:
    """The gradient method that a shorthand stands for; an unknown one gets the list and the nearest match."""
    if isinstance(gradient, Gradient):
        return gradient
    if not isinstance(gradient, str):  # pyright: ignore[reportUnnecessaryIsInstance]
        raise TypeError(f"gradient must be a shorthand or an object such as Implicit(NormalCG()); got {gradient!r}.")
    if gradient not in SHORTHANDS:
        near = difflib.get_close_matches(gradient.lower(), SHORTHANDS, n=1, cutoff=0.4)
        hint = f" Did you mean {near[0]!r}?" if near else ""
        raise ValueError(f"unknown gradient {gradient!r}.{hint} Known: {', '.join(SHORTHANDS)}.")
    return SHORTHANDS[gradient]


def _refuse_what_is_not_there_yet(batch_dims: int, derivatives: int, warm: Any, compile: bool, group: Any) -> None:
    asked = {
        f"batch_dims={batch_dims!r}": batch_dims != 0,
        f"derivatives={derivatives!r}": derivatives != 1,
        "warm=...": warm is not None,
        f"compile={compile!r}": compile is not False,
        "group=...": group is not None,
    }
    for name, is_asked in asked.items():
        if is_asked:
            raise ValueError(f"{name} is not available in this version of steadygrad; leave it at its default.")


def _report(solution: Solution, outcome: Outcome, problem: Problem) -> None:
    if solution.status is Status.NONFINITE and solution.steps == 1 and problem.on_failure != "ignore":
        raise SteadyStateError(
            "update returned inf or NaN on its first call. Check h0, the inputs and the parameters: "
            f"h0 is {'finite' if problem.start.isfinite().all() else 'not finite'}."
        )
    asked_for = solution.status is Status.MAX_STEPS and problem.forward.counts
    if not (solution.converged or asked_for):
        residual = outcome.residuals[-1][1]
        report_failure(
            f"the search for the steady state by {problem.forward!r} ended {solution.status.name}: relative residual "
            f"{magnitude(residual)}. {solution.advice}",
            problem.on_failure,
        )
