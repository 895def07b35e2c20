"""warm= and iterates=: the gradient of a warm solve is that of a cold one, and iterates have the gradient at themselves."""

from __future__ import annotations

import torch
from drawing import Draw

import steadygrad as sg
from surfaces.contractions import contraction
from surfaces.outcome import Outcome

GRADIENTS = ["auto", "auto", "rbp", "gmres", "lsqr", "cg-rbp", "bicgstab", "anderson"]


def trial(seed: int) -> Outcome:
    return (_warm if seed % 2 else _iterates)(Draw(seed))


def _warm(draw: Draw) -> Outcome:
    """A chain of solves, each warm from the last, with parameters, starts and cotangents that change."""
    problem = contraction(draw)
    gradient, drift = draw.choice(GRADIENTS), draw.log(1e-6, 1.0)
    dtype = draw.choice([torch.float32, torch.float64])
    forward = draw.choice([sg.Picard(max_steps=1000), sg.Anderson(max_steps=300), sg.Newton(), sg.Broyden()])
    outcome = Outcome(
        f"warm {problem.name} {gradient} {forward} drift {drift:.0e} {dtype}", facts={"batch_dims": problem.batch_dims}
    )
    last: sg.Solution | None = None
    b = draw.normal(*problem.start.shape)
    for turn in range(3):
        problem.parameters = [p + drift * draw.normal(*p.shape) * p.abs().mean() * (turn > 0) for p in problem.parameters]
        given = [p.to(dtype).requires_grad_() for p in problem.parameters]
        b = draw.choice([b, draw.normal(*b.shape), 0 * b, 1e-12 * b, 1e6 * b])
        with outcome.listening():
            last = problem.solve(
                given, problem.start.to(dtype), gradient=gradient, forward=forward, batch_dims=problem.batch_dims, warm=last
            )
            h = problem.joined(last.value)
            grads = torch.autograd.grad((h * b.to(dtype)).sum(), given, allow_unused=True, materialize_grads=True)
            outcome.hear(last)
        if outcome.said:
            return outcome
        problem.parameters = [p.detach().double() for p in given]
        end = problem.polished(h.double())
        outcome.compare(f"state {turn}", h, end, 0.02)
        exact = problem.implicit(h.detach().double(), b.to(dtype).double())
        whole = float(torch.cat([g.flatten() for g in exact]).norm())
        for i, (found, true) in enumerate(zip(grads, exact, strict=True)):
            outcome.compare(f"gradient {turn} {i}", found, true, 0.01, least=max(0.05 * whole, 1e-30))
    return outcome


def _iterates(draw: Draw) -> Outcome:
    """States on the way: h_t by itself, and bᵀ(I − J)⁻¹∂F/∂p there."""
    problem = contraction(draw)
    gradient = draw.choice([*GRADIENTS, "dense", "bptt"])
    steps = sorted({draw.whole(1, 12) for _ in range(draw.whole(1, 3))})
    options = {"gradient": gradient, "batch_dims": problem.batch_dims, "iterates": steps}
    outcome = Outcome(f"iterates {problem.name} {options}")
    given = [p.clone().requires_grad_() for p in problem.parameters]
    b = draw.normal(*problem.start.shape)
    with outcome.listening():
        solution = problem.solve(given, forward=sg.Picard(max_steps=500), **options)
        if solution.status is not sg.Status.CONVERGED:
            outcome.said.append("state")
        found = {}
        for step, state in solution.iterates.items():
            h = problem.joined(state)
            grads = torch.autograd.grad((h * b).sum(), given, retain_graph=True, allow_unused=True, materialize_grads=True)
            found[step] = (h.detach(), grads)
        outcome.hear(solution)
    if outcome.said:
        return outcome
    outcome.errors["missing"] = (float(len([t for t in steps if t <= solution.steps and t not in found])), 0.0)
    h, plain = problem.start, problem.start
    held = [p.clone().requires_grad_() for p in problem.parameters]
    for step in range(1, max(steps) + 1):
        h, plain = problem.image(h), problem.update(plain, held)
        if step not in found:
            continue
        if step > solution.steps:
            outcome.errors[f"after the end {step}"] = (1.0, 0.0)
            continue
        if gradient == "bptt":
            exact = torch.autograd.grad((plain * b).sum(), held, retain_graph=True, allow_unused=True, materialize_grads=True)
        else:
            exact = problem.implicit(h, b)
        whole = float(torch.cat([g.flatten() for g in exact]).norm())
        if problem.batch_dims == 0:  # problems of a batch stop by themselves
            outcome.compare(f"state {step}", found[step][0], h, 1e-9)
            for i, (mine, true) in enumerate(zip(found[step][1], exact, strict=True)):
                outcome.compare(f"gradient {step} {i}", mine, true, 0.01, least=0.05 * whole)
    return outcome
