"""One problem of the hunt: drawn, solved by the library, and compared with dense algebra in float64."""

from __future__ import annotations

import warnings
from dataclasses import dataclass, field
from typing import Any

import torch
from drawing import MANY
from setting import FLAT, Setting
from torch import Tensor

import steadygrad as sg

PARTS = 30.0
"""How much larger than the tolerance of the adjoint the error of a single parameter may be."""
FAR = 0.02
"""The relative distance of a state from the true one that is not steady."""
ROUNDED = 4.0
"""Roundings of F that may move a state by what (I − J)⁻¹ makes of them: in its dtype it is not defined better."""


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
    lost: bool = False
    """Whether a leaf is further than 2 % from the true one, and than rounding moves it."""
    off: float = 0.0
    """Error of the gradient by the worst of the parameters that count, beyond what F's own dtype loses."""
    raw_off: float = 0.0
    """The same with that."""
    adjoint_off: float = 0.0
    """What of that is not the exact gradient at the state that was found: the rest is due to the state's own distance."""
    known: bool = False
    """Whether the truth was found."""
    gain: float = 0.0
    """‖(I − J)⁻¹‖."""
    estimate: float = 0.0
    adjoint_estimate: float = 0.0
    shift: float | None = None
    """The library's own estimate of what the state's distance does to the gradient."""
    steps: int = 0

    @property
    def trusted(self) -> bool:
        return (
            self.error is None and not self.warned and self.state is sg.Status.CONVERGED and self.adjoint is sg.Status.CONVERGED
        )

    @property
    def silent(self) -> bool:
        """Said to be fine, without a warning in either pass, and is not: the state or the gradient, whatever the cause."""
        return self.trusted and (not self.setting.steady or self.lost or self.off > self._allowed)

    @property
    def excused(self) -> bool:
        """Whether the gradient is wrong without a word because F's own derivative has not enough digits in its dtype."""
        return self.trusted and not self.silent and self.raw_off > self._allowed

    @property
    def _allowed(self) -> float:
        # A part of z that is small beside the whole is as good as the tolerance asked for: docs/certificate.md.
        return 0.01 + PARTS * (getattr(getattr(self.setting.gradient, "solver", None), "rtol", None) or 0.0)


def solve(setting: Setting, seed: int) -> Found:
    """Run the library on a problem and compare with the truth."""
    s, dtype = setting, setting.dtype
    torch.manual_seed(seed)  # what is drawn below without a generator
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
        found.adjoint_estimate, found.shift = solution.adjoint.error_estimate, solution.adjoint.shift
    true = [p.detach().double().requires_grad_() for p in parameters]
    _compare(found, flat, h.detach().double(), true, grads, (b * scale).to(dtype).double())
    return found


DIGITS = 32.0
"""Roundings of J that a derivative which is computed well may have."""
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
    A = torch.eye(h.numel(), dtype=h.dtype) - _jacobian(flat, h, true)
    z = torch.linalg.solve(A.T, b.flatten())
    return torch.autograd.grad(flat(h, true).flatten(), true, z, allow_unused=True), z


def _jacobian(flat: FLAT, h: Tensor, p: list[Tensor]) -> Tensor:
    return torch.func.jacrev(lambda v: flat(v.view(h.shape), [w.detach() for w in p]).flatten())(h.flatten())


def _lost_in(dtype: torch.dtype, flat: FLAT, h: Tensor, true: list[Tensor], b: Tensor) -> list[float]:
    """By how much the exact gradient at h, by each parameter, differs where F is differentiated in its own dtype.

    No solver can mend that: the derivative of a saturated softmax in float32, say, may have no digit that is right. A J that is
    precise to its last digits is not excused: that rounding of it matters is for the certificate to say.
    """
    h, own = h.to(dtype), [p.detach().to(dtype).requires_grad_() for p in true]
    J, precise = _jacobian(flat, h, own).double(), _jacobian(flat, h.double(), true)
    imprecise = (J - precise).norm() > DIGITS * torch.finfo(dtype).eps * precise.norm()
    found: list[Any] = []
    for at, p, matrix in ((h, own, J if imprecise else precise), (h.double(), true, precise)):
        z = torch.linalg.solve(torch.eye(len(J), dtype=J.dtype) - matrix.mT, b.flatten())
        found.append(torch.autograd.grad(flat(at, p).flatten(), p, z.to(at.dtype), allow_unused=True))
    lost = [torch.zeros(()) if a is None or e is None else (a.double() - e).norm() for a, e in zip(*found, strict=True)]
    return [norm.nan_to_num(nan=0.0).item() for norm in lost]


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
    rounded = ROUNDED * torch.finfo(s.dtype).eps * (inverse.abs() @ v.abs()).view(shape)
    for part in leaves:
        size = max(end[..., part].norm(), reach[..., part].norm(), least)
        distance = (h - end)[..., part].norm()
        found.far = max(found.far, (distance / size).item())
        found.lost |= bool(distance > max(FAR * size, rounded[..., part].norm(), ROUNDED * least))
    try:
        exact, z = _gradient_at(flat, end, true, b)
        there, _ = _gradient_at(flat, h, true, b)
        lost = _lost_in(s.dtype, flat, end, true, b)
    except torch.linalg.LinAlgError:  # singular at what was found, or in its dtype: nothing to compare with
        found.known = False
        return
    nearby = end + NEARBY * torch.randn_like(end) * end.abs().clamp(min=float(least))
    scales = [max(pair) for pair in zip(*(_scales(flat, at, true, z) for at in (end, nearby)), strict=True)]
    for g, e, t, scale, rounding in zip(grads, exact, there, scales, lost, strict=True):
        if e is None or t is None or not e.norm().item() > COUNTS * scale:
            continue
        given, size = torch.zeros_like(e) if g is None else g.double(), e.norm().item()
        whole = (given - e).norm().nan_to_num(nan=torch.inf).item()
        wrong = whole - (ROUNDED * rounding if whole < torch.inf else 0.0)
        found.off, found.raw_off = max(found.off, wrong / size), max(found.raw_off, whole / size)
        found.adjoint_off = max(found.adjoint_off, (wrong - 1.2 * (t - e).norm().item()) / size)
