"""A problem of the hunt in the form in which it is given to the library: family, coordinates, units, solvers, batch."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import torch
from drawing import MANY, Draw, Family
from engineering import ENGINEERING
from inference import INFERENCE
from learning import LEARNING
from mathematics import MATHEMATICS
from physics import PHYSICS
from society import SOCIETY
from torch import Tensor
from writing import WRITING

import steadygrad as sg

FAMILIES = [*PHYSICS, *LEARNING, *MATHEMATICS, *INFERENCE, *ENGINEERING, *SOCIETY, *WRITING]
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
