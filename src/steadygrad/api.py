"""steady_state: the one call, and the only place that reads shorthand strings."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import nullcontext
from dataclasses import replace
from typing import Any, NamedTuple

import torch
from torch import Tensor

from steadygrad.compiler import outside_graphs
from steadygrad.fixedpoint import Anderson, FixedPointSolver, Picard
from steadygrad.gradient import ARTBP, BPTT, TBPTT, Gradient, Implicit, Phantom, Problem
from steadygrad.gradient.exported import exported_steps
from steadygrad.gradient.instead import exact_instead
from steadygrad.gradient.transformed import Inside
from steadygrad.linear import CG, GMRES, LSQR, MINRES, Auto, BiCGSTAB, Dense, Neumann, NormalCG
from steadygrad.method import check_callable, check_count, unknown
from steadygrad.roots import Minimise, NewtonCG
from steadygrad.solution import (
    OnFailure,
    Problems,
    Solution,
    Status,
    SteadyStateError,
    check_on_failure,
    magnitude,
    report_failure,
)
from steadygrad.state import Layout, State, in_full_precision, in_order, leaves_of, structure_of
from steadygrad.state.ragged import RaggedLayout
from steadygrad.state.shards import everywhere, meet, sharing, told_to_all
from steadygrad.update import Update, check_args
from steadygrad.update.autocast import without_autocast
from steadygrad.update.levels import Below, Levels

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
    "cg": Implicit(CG()),
    "minres": Implicit(MINRES()),
    "dense": Implicit(Dense()),
    "phantom": Phantom(),
    "bptt": BPTT(),
    "tbptt": TBPTT(steps=5),
    "artbp": ARTBP(),
}
"""What the names mean. Counts are the paper's: Neumann(K) has K+1 terms, TBPTT(K) K applications of F."""


@outside_graphs
@told_to_all
def steady_state(
    update: Callable[..., State],
    h0: State,
    *args: Any,
    forward: FixedPointSolver = Picard(),
    gradient: str | Gradient = "auto",
    batch_dims: int = 0,
    batch_index: Tensor | None = None,
    derivatives: int = 1,
    on_failure: OnFailure = "warn",
    warm: Solution | None = None,
    iterates: Sequence[int] = (),
    compile: bool = False,
    group: Any = None,
) -> Solution:
    """Find h* = F(h*) from h0 and give it a gradient, with a certificate of how far to trust it.

    `update(h, *args)` is F; h0 is a tensor or any nesting of tuples, lists and dicts of tensors. Gradients reach the args
    and whatever F closes over; with an implicit gradient none reaches h0, on which a steady state does not depend.
    Random draws in F (dropout) are the same in every call of one solve and new in the next.

    `batch_dims` leading dimensions of the state index independent problems, each with its own residual and its own stop.
    The tensors among `args` then belong to the problems and are indexed with them (with one batch dimension, problems that
    have ended are dropped from the computation); what all problems share is closed over. For graphs batched as one,
    `batch_index` says of which graph each node (the first dimension of the state) is part, as `batch.batch` of
    torch_geometric does: norms, stops and certificates are then those of each graph. `derivatives` is the highest order
    that must be exact; going beyond raises. `warm`, an earlier Solution, gives the start of the state and of the adjoint;
    where its shapes differ the start is cold. `iterates` names steps whose states are wanted too, with a gradient as if they
    were steady: `solution.iterates[step]`, for a loss on the way; steps after the end are left out.

    `compile=True` runs several steps, and several products of the Neumann series, as one torch.compile graph each: worth it
    for small states and many solves, since the first of them waits for the compiler. Where F cannot be traced it says so and
    runs as it is.

    Inside `torch.func` (grad, vmap, jvp, …), in forward mode and under `torch.export` it does what these ask for: each entry of a
    vmap is a problem of its own, and every transform that differentiates counts as an order, without `derivatives`.

    `group`, a torch.distributed process group, says that the numbers of each problem are divided over its ranks: h0 is this
    rank's part, and F exchanges what it needs of the others by collectives that have a derivative
    (`torch.distributed._functional_collectives.all_to_all_single_autograd`). Norms and inner products are then those of all
    ranks, which stop, succeed and fail together. Every rank calls backward; the losses of all ranks add up, and gradients of
    shared parameters are parts of a sum: `sum_gradients`.

    `on_failure` says what happens when the state is not found or the adjoint equation is not solved: "raise", "warn",
    "ignore", or "fallback": warn, and give the problems whose adjoint failed the best truncated Neumann series. NaN from the
    very first call of F is an error in all but "ignore".

    >>> import torch, steadygrad as sg
    >>> W = 0.1 * torch.eye(3); x = torch.ones(2, 3, requires_grad=True)
    >>> solution = sg.steady_state(lambda h: torch.tanh(h @ W.T + x), torch.zeros(2, 3))
    >>> solution.value.sum().backward()
    >>> solution.converged, solution.adjoint.converged
    (True, True)
    """
    check_on_failure(on_failure)
    _check(update, forward, batch_dims, batch_index, iterates)
    check_count("derivatives", derivatives, least=1)
    method = resolve_gradient(gradient)
    method.check_derivatives(derivatives)
    h0 = in_full_precision(h0)
    if torch.compiler.is_exporting():
        if iterates or warm is not None or group is not None:
            raise SteadyStateError("torch.export records the steps from h0 on: iterates=, warm= and group= have no place there.")
        return _exported(update, h0, args, forward, batch_dims)
    levels = Levels.now()
    if group is not None:
        refuse_with_group(forward, method, compile)
        if levels is not None:
            raise SteadyStateError(
                "group= cannot be used inside torch.func or in forward mode; use torch.autograd.grad around it."
            )
    given = Given(update, h0, args, batch_dims, warm)
    if levels is not None:
        levels = levels.around(update, h0, args)
        given = _below(levels, given, batch_index, compile)
    with nullcontext() if levels is None else levels.cleared():
        layout = Layout.of(given.h0, given.batch_dims) if batch_index is None else RaggedLayout.by(given.h0, batch_index)
        call = Update(given.update, given.args, layout)
        shards = None
        if group is not None:
            methods = (forward, method, derivatives, on_failure, iterates, warm is None, torch.is_grad_enabled())
            shards = meet(group, f"{layout.structure} {layout.batch} {layout.dtype} {methods}", sum(layout.sizes), layout.device)
        start = leaves_of(given.h0)
        if given.warm is not None:
            with sharing(shards):
                start = _warm_start(given.warm, given.h0, layout)
        problem = Problem(
            update=call,
            start=layout.flatten([leaf.clone() for leaf in start]),
            forward=forward,
            on_failure=on_failure,
            derivatives=derivatives,
            adjoint=None if warm is None else warm.record.z,
            iterates=frozenset(iterates),
            compile=compile,
        )
    with without_autocast(layout.device), sharing(shards):
        seen = None if levels is None else Inside(problem, levels, update, args, leaves_of(h0))
        solved = method.solve(problem) if seen is None else seen.solve(method)
    solution = Solution(
        value=layout.nest(solved.leaves),
        steps=solved.ended.steps,
        residuals=solved.ended.residuals,
        problems=Problems(tuple(solved.ended.status), tuple(layout.batch), levels.seen if levels and levels.own else None),
        iterates={step: layout.nest(leaves) for step, leaves in solved.iterates.items()},
        record=solved.record,
        errors=solved.ended.errors,
    )
    status = solution.status
    if status is not Status.CONVERGED and not (status is Status.MAX_STEPS and forward.counts):
        with nullcontext() if levels is None else levels.cleared(), sharing(shards):
            _report(solution, problem)
    return solution


def _check(update: Any, forward: Any, batch_dims: int, batch_index: Tensor | None, iterates: Sequence[int]) -> None:
    """Refuse what is no problem to be solved, in words of the call."""
    check_callable("update", update, "update(h, *args)")
    if not isinstance(forward, FixedPointSolver):
        raise TypeError(f"forward must be a solver such as Picard(max_steps=100); got {forward!r}.")
    check_count("batch_dims", batch_dims, least=0)
    for step in iterates:
        check_count("a step of iterates", step, least=1)
    if batch_index is not None and batch_dims:
        raise ValueError(
            f"batch_index says which problem a node is part of, so batch_dims={batch_dims} would be ignored; give one."
        )


def _exported(
    update: Callable[..., State], h0: State, args: tuple[Any, ...], forward: FixedPointSolver, batch_dims: int
) -> Solution:
    """What a model that is being exported by torch.export gets: the steps, and no numbers."""
    layout = Layout.of(h0, batch_dims)
    leaves = exported_steps(update, args, layout, leaves_of(h0), forward)
    problems = Problems((Status.MAX_STEPS,) * int(layout.problems), tuple(layout.batch))
    return Solution(value=layout.nest(leaves), steps=forward.max_steps, residuals=[], problems=problems)


class Given(NamedTuple):
    """What a solve is given: as it was called, or below transforms of torch.func."""

    update: Callable[..., State]
    h0: State
    args: tuple[Any, ...]
    batch_dims: int
    warm: Solution | None


def _below(levels: Levels, given: Given, batch_index: Tensor | None, compile: bool) -> Given:
    """The same solve on plain tensors, below all transforms: every entry of a vmap is a problem of its own."""
    if compile:
        raise SteadyStateError(
            "compile=True cannot be used inside torch.func or in forward mode, whose levels F needs; leave it out there."
        )
    if levels.own and batch_index is not None:
        raise SteadyStateError("batch_index cannot be used inside vmap over the states of graphs; batch them as one graph.")
    check_args(given.args, Layout.of(given.h0, given.batch_dims))
    own: Any = getattr(given.update, "below", None)  # an energy is lowered itself, not its gradient
    update = Below(given.update, given.args, levels) if own is None else own(levels, given.args)
    warm = given.warm
    if warm is not None:
        warm = replace(warm, value=levels.plain(warm.value))
    return Given(update, levels.plain(given.h0), (), len(levels.own) + given.batch_dims, warm)


def _warm_start(warm: Solution, h0: State, layout: Layout) -> list[Tensor]:
    """The tensors to start from: those of the warm solution if they fit, else those of h0."""
    cold = leaves_of(h0)
    if not isinstance(warm, Solution):  # pyright: ignore[reportUnnecessaryIsInstance]
        raise TypeError(f"warm must be an earlier Solution; got {type(warm).__name__}.")
    alike = structure_of(warm.value) == structure_of(h0)
    leaves = [leaf.detach() for leaf in in_order(layout.template, warm.value)] if alike else []
    fits = [leaf.shape for leaf in leaves] == [leaf.shape for leaf in cold] and all(
        a.dtype == b.dtype and a.device == b.device and bool(a.isfinite().all()) for a, b in zip(leaves, cold, strict=True)
    )
    return leaves if everywhere(fits) else cold


def resolve_gradient(gradient: str | Gradient) -> Gradient:
    """The gradient method that a shorthand stands for; an unknown one gets the list and the nearest match."""
    if isinstance(gradient, Gradient):
        return gradient
    if not isinstance(gradient, str):  # pyright: ignore[reportUnnecessaryIsInstance]
        raise TypeError(f"gradient must be a shorthand or an object such as Implicit(NormalCG()); got {gradient!r}.")
    if gradient not in SHORTHANDS:
        raise unknown("gradient", gradient, SHORTHANDS)
    return SHORTHANDS[gradient]


def refuse_with_group(forward: FixedPointSolver, method: Gradient, compile: bool) -> None:
    """Refuse what a state that is divided over processes cannot have."""
    linear = [solver for solver in (getattr(method, "solver", None), getattr(forward, "linear", None)) if solver is not None]
    if any(isinstance(solver, Dense) for solver in linear):
        raise ValueError("Dense() builds J of the whole state, which no rank holds; with group= use GMRES() or LSQR().")
    if isinstance(forward, (Minimise, NewtonCG)):
        raise ValueError(
            f"{forward!r} minimises an energy, of which each rank has a part; with group= give the gradient step as F to "
            "Picard(), Anderson() or Newton()."
        )
    if getattr(method, "initial", "zeros") == "uniform":
        raise ValueError('initial="uniform" draws z₀ rank by rank, so that it would depend on the division; leave it at "zeros".')
    if compile:
        raise ValueError("compile=True cannot trace the exchange between ranks; with group= leave it at False.")


def _report(solution: Solution, problem: Problem) -> None:
    """Say that the state was not found."""
    statuses = solution.problems.statuses
    nothing = all(status is Status.NONFINITE for status in statuses)
    if nothing and problem.on_failure != "ignore" and not _finite_at_the_start(problem):
        raise SteadyStateError(
            "update returned inf or NaN on its first call. Check h0, the inputs and the parameters: "
            f"h0 is {'finite' if everywhere(bool(problem.start.isfinite().all())) else 'not finite'}."
        )
    report_failure(
        f"{solution.problems.failed}the search for the steady state by {problem.forward!r} ended {solution.status.name}: "
        f"relative residual {magnitude(solution.residuals[-1][1])}, estimated distance from the steady state "
        f"{magnitude(solution.error_estimate)}. {solution.advice}{_exact_instead(solution, problem)}",
        problem.on_failure,
    )


def _finite_at_the_start(problem: Problem) -> bool:
    """Whether F(h0) is finite: a single step of a minimiser calls F often, and may run away from a finite start."""
    with torch.no_grad():
        return everywhere(bool(problem.update(problem.start.detach()).isfinite().all()))


def _exact_instead(solution: Solution, problem: Problem) -> str:
    """Where a state is not steady and gets an implicit gradient: the exact gradient of its steps, and what it would cost."""
    unsteady = solution.status in (Status.MAX_STEPS, Status.STAGNATED) and solution.record.forward_steps > 0
    if unsteady and isinstance(problem.forward, Picard) and any(leaf.requires_grad for leaf in leaves_of(solution.value)):
        return f" {exact_instead(solution.steps)}"
    return ""
