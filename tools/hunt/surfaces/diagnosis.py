"""sg.diagnose on maps whose spectrum and steady state are known: no false "fine", no false "fatal", numbers that are right."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from drawing import Draw
from torch import Tensor

import steadygrad as sg
from surfaces.outcome import Outcome


@dataclass
class Case:
    """A map at a state, with what is true of it."""

    update: Callable[[Tensor], Tensor]
    h: Tensor
    fine: bool | None
    """Whether an implicit gradient at h means something; None where one may say either."""
    J: Tensor | None = None
    why: str = ""


def _matrix(draw: Draw, n: int, radius: float) -> Tensor:
    """A matrix of this spectral radius: symmetric, rotations, or non-normal."""
    kind = draw.choice(["symmetric", "general", "rotation", "jordan"])
    if kind == "symmetric":
        Q = torch.linalg.qr(draw.normal(n, n))[0]
        values = draw.uniform(n, low=-1)
        return Q @ torch.diag(values * radius / values.abs().max()) @ Q.mT
    if kind == "jordan":
        return radius * torch.eye(n, dtype=torch.float64) + draw.log(0.01, 1.0) * torch.diag(
            torch.ones(n - 1, dtype=torch.float64), 1
        )
    A = draw.normal(n, n)
    if kind == "rotation":
        A = torch.linalg.qr(A)[0]
    return A * radius / torch.linalg.eigvals(A).abs().max()


def affine(draw: Draw, n: int) -> Case:
    """J h + c at its steady state, contracting or not: I − J is what counts."""
    J = _matrix(draw, n, draw.choice([0.1, 0.5, 0.9, 0.99, 1.5, 5.0]))
    A = torch.eye(n, dtype=torch.float64) - J
    c = draw.log(1e-6, 1e6) * draw.normal(n)
    smallest = float(torch.linalg.svdvals(A)[-1])
    return Case(lambda h: h @ J.mT.to(h) + c.to(h), torch.linalg.solve(A, c), True if smallest > 1e-3 else None, J)


def off_the_state(draw: Draw, n: int) -> Case:
    """The same at a state that is 0.001 % to 100 % away from the steady one."""
    made = affine(draw, n)
    away = draw.choice([1e-5, 0.05, 0.3, 1.0])
    h = made.h + away * made.h.norm() * torch.nn.functional.normalize(draw.normal(n), dim=0)
    return Case(made.update, h, made.fine if away < 1e-4 else (False if away > 0.04 else None), made.J, f"away {away}")


def singular(draw: Draw, n: int) -> Case:
    """I − J without an inverse: a line of steady states."""
    J = _matrix(draw, n, 0.7)
    u = torch.nn.functional.normalize(draw.normal(n), dim=0)
    J = J + torch.outer(u - J @ u, u)  # J u = u
    h = draw.normal(n)
    c = h - J @ h
    return Case(lambda h: h @ J.mT.to(h) + c.to(h), h, False, J)


def detached(draw: Draw, n: int) -> Case:
    """A path from h to F(h) that autograd does not see."""
    made = affine(draw, n)
    assert made.J is not None
    share = draw.choice([0.2, 1.0])
    missed = bool(torch.linalg.matrix_norm(made.J) > 0.3)
    J = made.J

    def update(h: Tensor) -> Tensor:
        return made.update(share * h.detach() + (1 - share) * h)

    small = float(torch.linalg.svdvals(torch.eye(n, dtype=torch.float64) - J)[-1]) < 1e-3
    return Case(update, made.h, False if missed else None, None, f"detached {share} {small}")


def saturated(draw: Draw, n: int) -> Case:
    """tanh deep in saturation: J is close to zero."""
    W, x = draw.normal(n, n) / n**0.5, draw.choice([3.0, 10.0]) * (2 * (draw.normal(n) > 0).double() - 1)
    h = torch.zeros(n, dtype=torch.float64)
    for _ in range(2000):
        h = torch.tanh(0.3 * W @ h + x)
    return Case(lambda h: torch.tanh(0.3 * h @ W.mT.to(h) + x.to(h)), h, True)


def superattracting(draw: Draw, n: int) -> Case:
    """Newton's map for a root: J = 0 at the steady state."""
    a = torch.exp(2 * draw.normal(n))
    return Case(lambda h: 0.5 * (h + a.to(h) / h), a.sqrt(), True)


def cycle(draw: Draw, n: int) -> Case:
    """A logistic map at a state of its cycle of two."""
    r = draw.number(3.1, 3.4)
    h = torch.full((n,), 0.4, dtype=torch.float64)
    for _ in range(4000):
        h = r * h * (1 - h)
    return Case(lambda h: r * h * (1 - h), h, False)


def noisy(draw: Draw, n: int) -> Case:
    """Fresh noise in every call that torch's random state does not control."""
    made = affine(draw, n)
    size = draw.choice([0.01, 0.3])
    generator = torch.Generator().manual_seed(draw.whole(0, 10**6))
    scale = float(made.h.norm()) / n**0.5
    return Case(
        lambda h: made.update(h) + size * scale * torch.randn(h.shape, generator=generator, dtype=torch.float64).to(h),
        made.h,
        False,
    )


def at_zero(draw: Draw, n: int) -> Case:
    """A steady state at zero."""
    W = _matrix(draw, n, draw.choice([0.3, 0.8]))
    return Case(lambda h: torch.sin(h @ W.mT.to(h)), torch.zeros(n, dtype=torch.float64), True, W)


def kinked(draw: Draw, n: int) -> Case:
    """A rectified net at its steady state, away from the kinks."""
    W = 0.5 * torch.linalg.qr(draw.normal(n, n))[0]
    c = draw.normal(n)
    h = torch.zeros(n, dtype=torch.float64)
    for _ in range(400):
        h = torch.relu(W @ h + c)
    clear = float((W @ h + c).abs().min()) > 1e-2
    return Case(lambda h: torch.relu(h @ W.mT.to(h) + c.to(h)), h, True if clear else None)


def one_bad_row(draw: Draw, n: int) -> Case:
    """A batch of which one problem alone is not steady, or has no inverse."""
    J = 0.5 * torch.linalg.qr(draw.normal(n, n))[0]
    c = draw.normal(3, n)
    bad, kind = draw.whole(0, 2), draw.whole(0, 1)
    own = J.repeat(3, 1, 1)
    if kind:
        u = torch.nn.functional.normalize(draw.normal(n), dim=0)
        own[bad] = J + torch.outer(u - J @ u, u)
        c[bad] = draw.normal(n)
        h = torch.linalg.lstsq(torch.eye(n, dtype=torch.float64) - own, c.unsqueeze(-1)).solution.squeeze(-1)
        c[bad] = h[bad] - own[bad] @ h[bad]
    else:
        h = torch.linalg.solve(torch.eye(n, dtype=torch.float64) - own, c)
        h[bad] += 0.3 * h[bad].norm() * torch.nn.functional.normalize(draw.normal(n), dim=0)
    return Case(lambda h: (own.to(h) @ h.unsqueeze(-1)).squeeze(-1) + c.to(h), h, False, None, f"row {bad} {kind}")


def two_scales(draw: Draw, n: int) -> Case:
    """Two blocks of units 1e6 apart, one of them off its steady state, or both on it."""
    J = 0.6 * torch.linalg.qr(draw.normal(n, n))[0]
    units = torch.cat(
        [torch.ones(n // 2, dtype=torch.float64), torch.full((n - n // 2,), draw.choice([1e-6, 1e6]), dtype=torch.float64)]
    )
    J = torch.block_diag(J[: n // 2, : n // 2], J[n // 2 :, n // 2 :])
    c = draw.normal(n)
    h = torch.linalg.solve(torch.eye(n, dtype=torch.float64) - J, c)
    return Case(lambda h: units.to(h) * ((h / units.to(h)) @ J.mT.to(h) + c.to(h)), units * h, True, None)


def solved(draw: Draw, n: int) -> Case:
    """A state as steady_state gives it, with its default tolerance."""
    W, x = _matrix(draw, n, draw.choice([0.3, 0.9, 0.95])), draw.normal(n)
    h = torch.zeros(n, dtype=torch.float64)
    solution = sg.steady_state(lambda h: torch.tanh(W @ h + x), h, forward=sg.Picard(max_steps=1000), on_failure="ignore")
    fine = solution.status is sg.Status.CONVERGED
    return Case(lambda h: torch.tanh(h @ W.mT.to(h) + x.to(h)), solution.value.detach(), True if fine else None)


def creeping(draw: Draw, n: int) -> Case:
    """h + ε·(x − h) far from x: a step is small and the way is long."""
    eps, x = draw.log(1e-7, 1e-3), draw.normal(n)
    return Case(lambda h: h + eps * (x.to(h) - h), x + draw.choice([0.1, 1.0]) * draw.normal(n), False)


CASES = [
    affine,
    affine,
    off_the_state,
    singular,
    detached,
    saturated,
    superattracting,
    cycle,
    noisy,
    at_zero,
    kinked,
    one_bad_row,
    two_scales,
    solved,
    creeping,
]


def trial(seed: int) -> Outcome:
    draw = Draw(seed)
    make = draw.choice(CASES)
    n = draw.choice([2, 3, 5, 8, 12, 40, 90])
    case = make(draw, n)
    dtype = draw.choice([torch.float64, torch.float64, torch.float32])
    quick = draw.happens(0.3)
    rows = draw.choice([0, 0, 1, 3])
    h = case.h.to(dtype)
    if h.ndim == 2:
        rows = 3
    else:
        h = h.expand(rows, n).clone() if rows else h
    outcome = Outcome(f"{make.__name__} {dtype} quick {quick} rows {rows} {case.why}")
    with outcome.listening():
        found = sg.diagnose(case.update, h, batch_dims=1 if rows else 0, quick=quick, starts=draw.happens(0.3))
    if outcome.said:
        return outcome
    outcome.facts = {"verdict": found.verdict[:160], "kinds": [f.kind for f in found.findings], "n": n}
    repair = found.findings[0].severity in ("fatal", "repair")
    if case.fine is False:
        outcome.errors["called fine"] = (0.0 if repair else 1.0, 0.0)
    if case.fine is True:
        outcome.errors["called fatal"] = (0.0 if found.trustworthy else 1.0, 0.0)
    if case.J is not None:
        _numbers(outcome, found, case.J, dtype)
    return outcome


def _numbers(outcome: Outcome, found: sg.Diagnosis, J: Tensor, dtype: torch.dtype) -> None:
    """ρ, ‖J‖ and σ_min, where they are said to have settled."""
    truth = {
        "spectral_radius": float(torch.linalg.eigvals(J).abs().max()),
        "norm": float(torch.linalg.matrix_norm(J, 2)),
        "min_singular_value": float(torch.linalg.svdvals(torch.eye(len(J), dtype=J.dtype) - J)[-1]),
    }
    loose = 0.05 if "quick True" in outcome.name else 0.02
    condition = float(torch.linalg.cond(torch.linalg.eig(J).eigenvectors))
    defect = (1e-12 if dtype == torch.float64 else 1e-6) * condition
    for name, true in truth.items():
        value = getattr(found, name)
        if name in found.bounds or value != value or (name == "spectral_radius" and defect > 1e-3):
            continue
        least = 1e-4 if dtype == torch.float32 else 1e-9
        outcome.errors[name] = (abs(value - true) / max(true, least * max(1.0, truth["norm"]), 1e-300), loose)
