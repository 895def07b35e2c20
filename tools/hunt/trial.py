"""One problem of the hunt: drawn, solved by the library, and compared with dense algebra in float64."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import torch
from drawing import MANY, Draw, Family
from learning import LEARNING
from mathematics import MATHEMATICS
from physics import PHYSICS
from torch import Tensor

import steadygrad as sg

FAMILIES = [*PHYSICS, *LEARNING, *MATHEMATICS]
PARTS = 30.0
"""How much larger than the tolerance of the adjoint the error of a single parameter may be."""
ROUNDED = 4.0
"""Roundings of F that may move a state by what ‖(I − J)⁻¹‖ makes of them: in its dtype it is not defined better."""
FLAT = Callable[[Tensor, list[Tensor]], Tensor]


@dataclass
class Setting:
    """A problem in the form in which it is given to the library."""

    name: str
    update: FLAT
    """F on the state as one tensor (rows, …), with its parameters, in any dtype."""
    parameters: list[Tensor]
    start: Tensor
    steady: bool
    dtype: torch.dtype
    split: int | None
    """Where the last dimension is divided into two leaves; None for one leaf."""
    ratio: float
    """By how much the second leaf is scaled."""
    forward: Any
    gradient: Any
    batch_dims: int
    by_args: bool
    notes: dict[str, Any] = field(default_factory=dict)


def drawn(seed: int, only: str | None = None) -> Setting:
    """The problem of a seed."""
    draw = Draw(seed)
    make = draw.choice(FAMILIES)
    if only is not None:
        make = next(f for f in FAMILIES if f.__name__ == only)
    family = make(draw)
    notes: dict[str, Any] = {}
    family = _slower(_rescaled(_rebased(family, draw, notes), draw, notes), draw, notes)
    dtype = draw.choice([torch.float32, torch.float32, torch.float64])
    width = family.start.shape[-1]
    split = draw.whole(1, width - 1) if width > 1 and draw.happens(0.3) else None
    rows = family.start.shape[0]
    return Setting(
        make.__name__, family.update, family.parameters, family.start, family.steady, dtype, split,
        ratio=draw.choice([1.0, 1e-6, 1e3]) if split else 1.0,
        forward=_forward(draw, dtype), gradient=_gradient(draw),
        batch_dims=draw.choice([0, 1, 1]) if rows > 1 else draw.choice([0, 0, 1]),
        by_args=rows == MANY, notes=notes,
    )  # fmt: skip


def _rebased(family: Family, draw: Draw, notes: dict[str, Any]) -> Family:
    """The family in other coordinates of the last dimension, of a condition up to 1e3."""
    width = family.start.shape[-1]
    if width == 1 or not draw.happens(0.15):
        return family
    condition = draw.log(1.5, 1e3)
    left, right = (torch.linalg.qr(draw.normal(width, width))[0] for _ in range(2))
    T = left @ torch.diag(torch.logspace(0, -torch.tensor(condition).log10().item(), width, dtype=torch.float64)) @ right
    back, inner = torch.linalg.inv(T), family.update
    notes["basis"] = condition
    return Family(lambda h, p: inner(h @ T.to(h), p) @ back.to(h), family.parameters, family.start @ back, family.steady)


def _rescaled(family: Family, draw: Draw, notes: dict[str, Any]) -> Family:
    unit = draw.choice([1.0] * 8 + [1e-20, 1e-8, 1e6, 1e18])
    if unit == 1.0:
        return family
    inner = family.update
    notes["unit"] = unit
    return Family(lambda h, p: unit * inner(h / unit, p), family.parameters, unit * family.start, family.steady)


def _slower(family: Family, draw: Draw, notes: dict[str, Any]) -> Family:
    """h ← h + ε·(F(h) − h): the same steady state, reached slowly."""
    if not draw.happens(0.15):
        return family
    eps = draw.log(1e-6, 1.0)
    inner = family.update
    notes["slower"] = eps
    return Family(lambda h, p: h + eps * (inner(h, p) - h), family.parameters, family.start, family.steady)


def _forward(draw: Draw, dtype: torch.dtype) -> Any:
    rtol = float(f"{draw.log(1e-10 if dtype == torch.float64 else 1e-7, 1e-3):.0e}")
    steps = draw.choice([50, 100, 300, 2000])
    return draw.choice([
        sg.Picard(max_steps=steps, rtol=rtol), sg.Picard(max_steps=steps, rtol=rtol), sg.Picard(max_steps=steps, rtol=1e-5),
        sg.Picard(max_steps=steps, rtol=rtol, damping=draw.choice([0.1, 0.5, 0.9])),
        sg.Anderson(max_steps=min(steps, 300), rtol=rtol), sg.Broyden(max_steps=min(steps, 300), rtol=rtol),
        sg.Anderson(max_steps=min(steps, 300), rtol=rtol, history=draw.choice([1, 2, 10])),
        sg.Newton(rtol=rtol), sg.Reversible(max_steps=steps, rtol=rtol, damping=draw.choice([0.2, 0.5])),
    ])  # fmt: skip


def _gradient(draw: Draw) -> Any:
    rtol = float(f"{draw.log(1e-8, 1e-2):.0e}")
    return draw.choice([
        "auto", "auto", "auto", "rbp", "cg-rbp", "lsqr", "gmres", "bicgstab", "anderson", "dense", "cg", "minres",
        sg.Implicit(sg.Neumann()), sg.Implicit(sg.Neumann(rtol=rtol, max_steps=3000)), sg.Implicit(sg.Auto(rtol=rtol)),
        sg.Implicit(sg.GMRES(rtol=rtol)), sg.Implicit(sg.LSQR(rtol=rtol)), sg.Implicit(sg.NormalCG(rtol=rtol)),
        sg.Implicit(sg.BiCGSTAB(rtol=rtol)), sg.Implicit(sg.Picard(rtol=rtol, max_steps=2000)),
        sg.Implicit(sg.Picard(rtol=rtol, max_steps=2000, damping=0.5)), sg.Implicit(sg.Broyden(rtol=rtol)),
        sg.Implicit(sg.Anderson(rtol=rtol, max_steps=300)),
    ])  # fmt: skip


@dataclass
class Found:
    """What the library said and gave, beside the truth."""

    setting: Setting
    state: Any = None
    adjoint: Any = None
    warned: list[str] = field(default_factory=list)
    error: str | None = None
    far: float = 0.0
    """Distance of the state from the true one, relative, in its worst leaf and converged row."""
    off: float = 0.0
    """Error of the gradient by the worst of the parameters that count."""
    adjoint_off: float = 0.0
    """What of that is not the exact gradient at the state that was found, which is within one per cent of the true one."""
    known: bool = False
    """Whether the truth was found."""
    gain: float = 0.0
    """‖(I − J)⁻¹‖."""
    estimate: float = 0.0
    adjoint_estimate: float = 0.0
    steps: int = 0

    @property
    def trusted(self) -> bool:
        return (
            self.error is None and not self.warned and self.state is sg.Status.CONVERGED and self.adjoint is sg.Status.CONVERGED
        )

    @property
    def silent(self) -> bool:
        """Said to be fine and is not: the state by itself, or the gradient at the state."""
        if self.error is not None or self.state is not sg.Status.CONVERGED:
            return False
        rounded = ROUNDED * torch.finfo(self.setting.dtype).eps * self.gain
        if not self.setting.steady or (self.known and self.far > max(0.02, rounded)):
            return True
        # A part of z that is small beside the whole is as good as the tolerance asked for: docs/certificate.md.
        asked = getattr(getattr(self.setting.gradient, "solver", None), "rtol", None) or 0.0
        return self.trusted and self.known and self.adjoint_off > 0.01 + PARTS * asked


def solve(setting: Setting, seed: int) -> Found:
    """Run the library on a problem and compare with the truth."""
    s, dtype = setting, setting.dtype
    parameters = [p.to(dtype).requires_grad_() for p in s.parameters]
    rows = s.start.shape[0]
    bare = rows == 1 and s.batch_dims == 0

    def joined(h: Any) -> Tensor:
        if s.split is None:
            return h
        return torch.cat([h["a"], h["b"] / s.ratio], dim=-1)

    def parted(h: Tensor) -> Any:
        return h if s.split is None else {"a": h[..., : s.split], "b": h[..., s.split :] * s.ratio}

    def flat(h: Tensor, p: list[Tensor]) -> Tensor:
        return s.update(h.unsqueeze(0), p)[0] if bare else s.update(h, p)

    mine = [i for i, p in enumerate(parameters) if s.by_args and s.batch_dims and p.shape[:1] == (MANY,)]

    def update(h: Any, *args: Tensor) -> Any:
        p = list(parameters)
        for i, arg in zip(mine, args, strict=True):
            p[i] = arg
        return parted(flat(joined(h), p))

    start = s.start.to(dtype)
    start = parted(start[0] if bare else start)
    found = Found(s)
    generator = torch.Generator().manual_seed(seed + 77)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        try:
            solution = sg.steady_state(
                update, start, *(parameters[i] for i in mine), forward=s.forward, gradient=s.gradient, batch_dims=s.batch_dims
            )
            h = joined(solution.value)
            b = torch.randn(h.shape, generator=generator, dtype=torch.float64)
            if s.split is not None and torch.rand((), generator=generator) < 0.3:
                b[..., s.split :] = 0
            largest = max(float(h.detach().double().abs().max()), float(s.start.abs().max()))
            scale = 1 / largest if largest > 1e-30 else 1.0
            grads = torch.autograd.grad((h * (b * scale).to(dtype)).sum(), parameters, allow_unused=True)
        except (sg.SteadyStateError, torch.linalg.LinAlgError) as problem:
            found.error = str(problem)
            return found
    found.warned = [str(w.message) for w in caught if issubclass(w.category, sg.SteadyStateWarning)]
    found.state, found.adjoint, found.steps = (
        solution.status,
        solution.adjoint.status if solution.adjoint else None,
        solution.steps,
    )
    found.estimate = solution.error_estimate
    if solution.adjoint is not None:
        found.adjoint_estimate = solution.adjoint.error_estimate
    true = [p.detach().double().requires_grad_() for p in parameters]
    _compare(found, flat, h.detach().double(), true, grads, (b * scale).to(dtype).double())
    return found


SIGNS = 4
COUNTS = 0.05
"""A gradient that is less than this of what it would be if nothing cancelled is as good as zero."""
NEARBY = 0.1
"""A parameter whose derivative vanishes at the steady state has its scale from states so far away."""


def _scales(flat: FLAT, at: Tensor, true: list[Tensor], z: Tensor) -> list[float]:
    """How large the gradient by each parameter would be if nothing cancelled: z with random signs, a few times."""
    image = flat(at, true).flatten()
    squares = [0.0] * len(true)
    for _ in range(SIGNS):
        signs = torch.randint(0, 2, z.shape) * 2.0 - 1
        for i, g in enumerate(torch.autograd.grad(image, true, z * signs, retain_graph=True, allow_unused=True)):
            squares[i] += 0.0 if g is None else float(g.square().sum()) / SIGNS
    return [0.0 if square != square else square**0.5 for square in squares]


def _gradient_at(flat: FLAT, h: Tensor, true: list[Tensor], b: Tensor) -> tuple[tuple[Tensor | None, ...], Tensor]:
    """The gradient that is exact at h, by LU, and its adjoint."""

    def image(v: Tensor) -> Tensor:
        return flat(v.view(h.shape), [p.detach() for p in true]).flatten()

    A = torch.eye(h.numel(), dtype=h.dtype) - torch.func.jacrev(image)(h.flatten())
    z = torch.linalg.solve(A.T, b.flatten())
    return torch.autograd.grad(flat(h, true).flatten(), true, z, allow_unused=True), z


def _compare(found: Found, flat: FLAT, h: Tensor, true: list[Tensor], grads: tuple[Tensor | None, ...], b: Tensor) -> None:
    """Newton from what the library found, then the adjoint by LU."""
    s, shape = found.setting, h.shape

    def residual(v: Tensor) -> Tensor:
        return (flat(v.view(shape), [p.detach() for p in true]) - v.view(shape)).flatten()

    v = h.flatten().clone()
    try:
        for _ in range(40):
            r = residual(v)
            A = -torch.func.jacrev(residual)(v)
            d = torch.linalg.solve(A, r)
            t = 1.0
            while t > 1e-3 and not residual(v + t * d).norm() < r.norm() * (1 - 0.1 * t) and r.norm() > 1e-14 * v.norm():
                t /= 2
            v = v + t * d
            if d.norm() <= 1e-13 * v.norm():
                break
        r = residual(v)
        A = -torch.func.jacrev(residual)(v)
        inverse = torch.linalg.inv(A)
    except (torch.linalg.LinAlgError, RuntimeError):
        return
    found.known = bool(v.isfinite().all() and (inverse @ r).norm() <= 1e-8 * v.norm())
    if not found.known:
        return
    found.gain = torch.linalg.matrix_norm(inverse, 2).item()
    end = v.view(shape)
    leaves = [slice(None)] if s.split is None else [slice(0, s.split), slice(s.split, None)]
    least = torch.finfo(s.dtype).eps * max(s.start.norm(), end.norm())
    reach = v.view(shape) - (A @ v).view(shape)  # J h: what a leaf that rests at zero can become
    for part in leaves:
        size = max(end[..., part].norm(), reach[..., part].norm(), least)
        found.far = max(found.far, ((h - end)[..., part].norm() / size).item())
    exact, z = _gradient_at(flat, end, true, b)
    there, _ = _gradient_at(flat, h, true, b)
    nearby = end + NEARBY * torch.randn_like(end) * end.abs().clamp(min=float(least))
    scales = [max(pair) for pair in zip(*(_scales(flat, at, true, z) for at in (end, nearby)), strict=True)]
    for g, e, t, scale in zip(grads, exact, there, scales, strict=True):
        if e is None or t is None or not e.norm().item() > COUNTS * scale:
            continue
        given, size = torch.zeros_like(e) if g is None else g.double(), e.norm().item()
        found.off = max(found.off, (given - e).norm().item() / size)
        found.adjoint_off = max(found.adjoint_off, ((given - e).norm() - 1.2 * (t - e).norm()).item() / size)
