"""Auto in hindsight: seconds of one adjoint solve by auto and by every single solver, for a cheap F and for a dear one."""

from __future__ import annotations

import time
from collections.abc import Callable
from functools import partial
from typing import Any

import torch

import steadygrad as sg
from benchmarks.families import RADII, Adjoint, affine, dear, matrices
from benchmarks.frame import Effort, Figures, Row, Rows, race, short

RTOL = 1e-5
DEAR_MS = 2.0
"""A product with a dear F takes at least as long."""
GOOD_ENOUGH = 1e-2
"""A solver succeeds if it says CONVERGED and its z is within this of the exact one: a residual of 1e-5 can mean an error a
thousand times as large where I − J is nearly singular."""
FAR_BEHIND = 3.0
"""Who takes that many times the fastest is timed once only: it cannot be the best."""
OVER_RADIUS = {f"random, ρ = {radius}": radius for radius in RADII}
"""Families that differ in ρ alone: seconds over ρ are drawn of them, so that no solver may be missing."""
SAME_CALLS = 20
"""Calls of auto with the same input whose results are compared bit by bit, in pairs."""
DENSE = 2048
"""Numbers in a state up to which Dense takes part."""
GOALS = {"cheap": 1.3, "dear": 1.7, "told": 1.3}
"""Auto over the best single solver; "told": told that F is dear."""


def rows(effort: Effort) -> Rows:
    size, batch = effort.pick(64, 8), effort.pick(32, 4)
    makers: dict[str, Callable[[], Adjoint]] = {
        name: partial(affine, J, batch, name == "symmetric") for name, J in matrices(size).items()
    }
    makers |= {
        "Cora, trained": partial(trained, "cora", effort.tiny),
        "Hopfield, trained": partial(trained, "hopfield", effort.tiny),
    }
    for cost in ("cheap", "dear"):
        for name, make in makers.items():
            what = f"one adjoint solve to 1e-5, float32, {name}" + (f", state {batch}×{size}" if "trained" not in name else "")
            yield Row(f"{cost}: {name}", f"{what}; F is {cost}", partial(measure, effort, make, cost, name in OVER_RADIUS))


def trained(name: str, small: bool) -> Adjoint:
    from benchmarks import networks  # only here, since the experiments need more packages

    return networks.trained_cora(small) if name == "cora" else networks.trained_hopfield(small)


def measure(effort: Effort, make: Callable[[], Adjoint], cost: str, all_run: bool) -> Figures:
    """Who succeeds is found with the cheap F, which has the same numbers; only those are raced.

    `all_run`: those that need far more products than others are run too, once.
    """
    problem = make()
    solvers, notes = contestants(problem, cost)
    outcomes = {name: outcome(problem, solver) for name, solver in solvers.items()}
    repeats = all(
        torch.equal(problem.solve(solvers["Auto"])[0], problem.solve(solvers["Auto"])[0]) for _ in range(SAME_CALLS // 2)
    )
    right = [name for name in outcomes if not name.startswith("Auto") and outcomes[name]["succeeds"]]
    racing = [name for name in outcomes if name.startswith("Auto") or name in right]
    side = 0
    if cost == "dear":
        side = effort.pick(side_of(DEAR_MS), 8)
        problem, effort = dear(problem, side), fewer(effort)
        if not all_run:
            racing = worth_running(racing, right, outcomes)
    times = race({name: partial(problem.solve, solvers[name]) for name in racing}, effort, drop_slower_than=FAR_BEHIND)
    best = min((name for name in right if name in times), key=lambda name: times[name]["ms"], default=None)
    return {
        "goal": GOALS[cost],
        "best": best,
        "auto_over_best": {n: short(times[n]["ratio"] / times[best]["ratio"]) for n in times if n.startswith("Auto") and best},
        "times": times,
        "outcomes": outcomes,
        "same_bits": repeats,
        "product_ms": short(product_ms(problem)),
        "matrix_side": side,
        "notes": notes,
    }


def worth_running(racing: list[str], right: list[str], outcomes: dict[str, Figures]) -> list[str]:
    """Of solvers with a dear F, those whose products are not far more than the fewest; the others would take minutes."""
    fewest = min((outcomes[name]["products"] for name in right), default=0)
    return [n for n in racing if n.startswith("Auto") or outcomes[n]["products"] <= FAR_BEHIND * fewest]


def contestants(problem: Adjoint, cost: str) -> tuple[dict[str, Any], list[str]]:
    """Auto first, which is the reference of the race; then every solver that can be used on the problem."""
    limit: dict[str, Any] = {"rtol": RTOL, "max_steps": 2000}
    found: dict[str, Any] = {"Auto": sg.Auto(**limit)}
    notes: list[str] = []
    try:
        found["Auto, told dear"] = sg.Auto(**limit, dear=True)  # pyright: ignore[reportCallIssue]
    except TypeError:
        notes.append("this version has no Auto(dear=True)")
    found |= {
        "Neumann": sg.Neumann(**limit),
        "Picard": sg.Picard(**limit),
        "Anderson": sg.Anderson(**limit),
        "Broyden": sg.Broyden(**limit),
        "GMRES": sg.GMRES(**limit),
        "BiCGSTAB": sg.BiCGSTAB(**limit),
        "LSQR": sg.LSQR(**limit),
        "NormalCG": sg.NormalCG(**limit),
    }
    if problem.symmetric:
        found |= {"CG": sg.CG(**limit), "MINRES": sg.MINRES(**limit)}
    if problem.state.numel() <= DENSE and cost == "cheap":
        found["Dense"] = sg.Dense()
    return found, notes


def outcome(problem: Adjoint, solver: Any) -> Figures:
    """How one solve ended, against the exact z. Its time is for those that fail, which are not raced."""
    started = time.perf_counter()
    z, adjoint = problem.solve(solver)
    once = 1000 * (time.perf_counter() - started)
    error = problem.error(z)
    succeeds = adjoint.status is sg.Status.CONVERGED and error <= GOOD_ENOUGH
    return {
        "status": adjoint.status.name,
        "products": adjoint.products,
        "error": short(error),
        "succeeds": succeeds,
        "ms_once": short(once),
    }


def product_ms(problem: Adjoint) -> float:
    """The time of one product with Jᵀ, median of five."""
    leaf = problem.state.clone().requires_grad_()
    image = problem.update(leaf, problem.c)
    taken: list[float] = []
    for _ in range(5):
        started = time.perf_counter()
        torch.autograd.grad(image, leaf, problem.b, retain_graph=True)
        taken.append(1000 * (time.perf_counter() - started))
    return sorted(taken)[2]


def side_of(milliseconds: float) -> int:
    """The side, a multiple of 64, of the smallest square matrices whose product takes as long."""
    side = 64
    while True:
        work = torch.ones(side, side)
        taken: list[float] = []
        for _ in range(5):
            started = time.perf_counter()
            work @ work
            taken.append(1000 * (time.perf_counter() - started))
        if min(taken) >= milliseconds:
            return side
        side += 64


def fewer(effort: Effort) -> Effort:
    """Dear solves take seconds and repeat well: two rounds are enough."""
    return Effort(effort.name, min(effort.seconds, 4.0), min(effort.least_rounds, 2), effort.most_rounds)
