"""Unrolled differentiation: back-propagation through the iteration itself, all of it or its end."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Literal, get_args

import torch
from torch import Tensor

from steadygrad.fixedpoint import Picard, Reversible
from steadygrad.gradient.checkpointed import checkpointed
from steadygrad.gradient.problem import Gradient, Problem, Solved, own_leaves, without_graph
from steadygrad.gradient.reversing import reversed_steps
from steadygrad.gradient.schedule import Plan, logarithm, square_root
from steadygrad.iteration import Ended
from steadygrad.method import check_count
from steadygrad.solution import AdjointRecord

Memory = Literal["sqrt", "log"]


@dataclass(frozen=True, repr=False)
class BPTT(Gradient):
    """Back-propagation through time: autograd through every step of the forward iteration, which runs once.

    Exact for h_T as it is, steady or not, also with respect to h0. Memory grows with the steps, T. Werbos 1990.

    `checkpoints=n` keeps at most n states, by themselves or in the graphs of the steps after them (the start is one of them), and
    takes the other steps again: n/T of the memory, and for n = 10 each of 1,000 steps at most three times more. Of an F whose
    graph is much larger than its state, `graphs=m` keeps those of at most m steps at a time; with `graphs=1` this is the
    binomial schedule of Griewank and Walther 2000. `memory="sqrt"` keeps √(2T) states: each step is taken once more;
    `memory="log"` keeps log₂ T, T being `max_steps`. Where the solve stops by itself, the states are thinned out as it goes
    on. The gradients are equal to rounding; higher derivatives there are none. F must give the same image when called again.

    >>> BPTT(checkpoints=10)
    BPTT(checkpoints=10)
    """

    checkpoints: int | None = None
    memory: Memory | None = None
    graphs: int | None = None

    def __post_init__(self) -> None:
        if self.checkpoints is not None:
            check_count("checkpoints", self.checkpoints, least=1)
        if self.memory is not None and self.memory not in get_args(Memory):
            raise ValueError(f'memory must be "sqrt", "log" or None, for the graphs of all steps; got {self.memory!r}.')
        if self.checkpoints is not None and self.memory is not None:
            raise ValueError(f"give checkpoints or memory, not both; got {self.checkpoints} and {self.memory!r}.")

        if self.graphs is not None:
            check_count("graphs", self.graphs, least=1)
            if self.checkpoints is None:
                raise ValueError(f"graphs={self.graphs} says how many of the checkpoints graphs may take; give checkpoints too.")

    @property
    def recomputes(self) -> bool:
        """Whether steps are taken again, instead of keeping the graphs of all."""
        return self.checkpoints is not None or self.memory is not None

    def plan(self, limit: int, known: bool) -> Plan:
        """What is kept of a run of at most `limit` steps, or exactly so many where they are known."""
        total = limit if known else None
        if self.memory == "sqrt":
            return square_root(total)
        if self.memory == "log":
            return logarithm(limit, total)
        if self.checkpoints is None:
            raise ValueError("BPTT() keeps the graphs of all steps; give checkpoints= or memory=.")
        return Plan(self.checkpoints, self.graphs, total)

    def solve(self, problem: Problem) -> Solved:
        forward = problem.forward
        if isinstance(forward, Reversible) and not self.recomputes:
            return reversed_steps(problem)
        if not isinstance(forward, Reversible):
            forward = picard_of(problem, self)
        if self.recomputes:
            return checkpointed(problem, self.plan(forward.max_steps, forward.counts))
        return _solved(problem, _run(problem, picard_of(problem, self), problem.update, problem.start))

    def check_derivatives(self, derivatives: int) -> None:
        """Autograd has them all, where the graphs are kept."""
        if derivatives > 1 and self.recomputes:
            raise ValueError(
                f"derivatives={derivatives}: {self!r} has first derivatives only, since it keeps no graph of the steps; use "
                "BPTT(), or an implicit gradient with a tolerance."
            )


@dataclass(frozen=True, repr=False)
class TBPTT(Gradient):
    """Truncated back-propagation through time: through the last `steps` applications of F only.

    At a steady state TBPTT(K+1) equals Neumann(K) (Liao et al. 2018, Proposition 2, with the terms counted). Memory grows
    with `steps`. Under a tolerance the last steps are not known until they are done, and run once more for the graph.
    """

    steps: int = 5

    def __post_init__(self) -> None:
        check_count("steps", self.steps, least=1)

    def solve(self, problem: Problem) -> Solved:
        return unroll_tail(problem, self, self.steps)


def unroll_tail(problem: Problem, method: Gradient, steps: int, between: Callable[[int, Tensor], Tensor] | None = None) -> Solved:
    """The steady state with a graph through its last `steps` applications of F.

    `between(t, h)` is applied to the state that enters the t-th application from the end: it may change the gradient that
    passes there, not the value.
    """
    forward = picard_of(problem, method)
    if problem.iterates:
        raise ValueError(
            f"{type(method).__name__} has no gradient for iterates before its last steps; use BPTT() or Implicit(...)."
        )
    if not torch.is_grad_enabled():
        return _solved(problem, without_graph(problem))
    if forward.counts:
        silent = max(forward.max_steps - steps, 0)
        tail = _Tail(problem, forward.max_steps, silent, between)
        return _solved(problem, _run(problem, forward, tail, _start(problem, silent)))
    entered: deque[Tensor] = deque(maxlen=steps)
    with torch.no_grad():
        ended = _run(problem, forward, lambda h: (entered.append(h), problem.update(h))[1], problem.start)
    silent = ended.steps - len(entered)
    again = replace(forward, max_steps=len(entered), rtol=0.0, atol=0.0)
    start = _start(problem, silent) if silent == 0 else entered[0]
    value = _run(problem, again, _Tail(problem, len(entered), 0, between), start).value
    return _solved(problem, replace(ended, value=value))


def picard_of(problem: Problem, method: Gradient) -> Picard:
    """The forward solver, which must be the plain iteration to be unrolled."""
    if not isinstance(problem.forward, Picard):
        raise TypeError(
            f"{type(method).__name__} differentiates the iteration h ← F(h), so forward must be Picard(...); got "
            f"{problem.forward!r}. Use an implicit gradient with other forward solvers."
        )
    return problem.forward


class _Tail:
    """F without a graph for the first `silent` of `total` calls, with one afterwards."""

    def __init__(self, problem: Problem, total: int, silent: int, between: Callable[[int, Tensor], Tensor] | None) -> None:
        self.update = problem.update
        self.left = total
        self.recorded = total - silent
        self.between = between

    def __call__(self, h: Tensor) -> Tensor:
        t, self.left = self.left, self.left - 1
        if t > self.recorded:
            with torch.no_grad():
                return self.update(h)
        return self.update(h if self.between is None else self.between(t, h))


def _start(problem: Problem, silent: int) -> Tensor:
    return problem.start.detach() if silent else problem.start


def _run(problem: Problem, forward: Picard, call: Callable[[Tensor], Tensor], start: Tensor) -> Ended:
    """The iteration on all problems together, as it is differentiated."""
    update = problem.update
    return forward.solve(call, start, update.layout.sizes, update.precision, wanted=problem.iterates)


def _solved(problem: Problem, ended: Ended) -> Solved:
    iterates = {step: own_leaves(problem, state) for step, state in ended.iterates.items()}
    return Solved(own_leaves(problem, ended.value), ended, AdjointRecord(), iterates)
