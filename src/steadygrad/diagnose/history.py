"""A check of the assumptions from time to time while a layer trains."""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Iterator
from dataclasses import asdict, dataclass, replace
from typing import Any

import torch
from torch import Tensor

from steadygrad.diagnose.spectrum import spectrum
from steadygrad.solution import AdjointRecord, OnFailure, Solution, report_failure
from steadygrad.state import Layout, leaves_of
from steadygrad.update import Update
from steadygrad.update.jacobian import Jacobian

LENGTH = 200
"""Entries kept: the oldest go first."""
PRODUCTS, ACCURACY = 40, 1e-2
"""Products with J that a check may spend on ρ, and the relative uncertainty at which it ends: a per cent is enough to see ρ
come near 1, and forty products cost a few training steps."""
MOVING = 1e-2
"""A relative residual above which the state is not steady by any measure."""
TOLERATED = 0.1
"""An adjoint residual above which the gradient is not worth following."""


@dataclass(frozen=True)
class Entry:
    """One check."""

    call: int
    """The forward call, counted from 1."""
    spectral_radius: float
    """ρ(J) at the state found, by a few dozen products: good to some per cent."""
    relative_residual: float
    """The relative residual at the end of the forward search."""
    adjoint_residual: float | None = None
    """The relative residual of the adjoint solve in the backward pass after that call.

    None where there was no such pass, or the method solves no adjoint equation."""


class History:
    """The checks of one layer: read `.entries`, log `.to_dicts()`, look at `.plot()`."""

    def __init__(self, every: int) -> None:
        self.every = every
        self.calls = 0
        self.warned = False
        self._entries: deque[Entry] = deque(maxlen=LENGTH)
        self._checked: AdjointRecord | None = None  # where the backward pass of the last check leaves its certificate

    def __iter__(self) -> Iterator[Entry]:
        return iter(self._entries)

    def __len__(self) -> int:
        return len(self._entries)

    def __repr__(self) -> str:
        return f"History({len(self)} checks in {self.calls} calls, last {self._entries[-1] if self._entries else None})"

    @property
    def entries(self) -> list[Entry]:
        return list(self._entries)

    def to_dicts(self) -> list[dict[str, Any]]:
        """The entries for a log."""
        return [asdict(entry) for entry in self._entries]

    def plot(self) -> Any:
        """A matplotlib figure of ρ and the residuals."""
        from steadygrad.diagnose.plot import draw_history

        return draw_history(self.entries)

    def due(self) -> bool:
        """Count a call; whether to check after it: the first, and every `every`-th from there."""
        self.calls += 1
        return (self.calls - 1) % self.every == 0

    def complete(self) -> None:
        """Fill in the adjoint residual of the last check, once there was a backward pass."""
        if self._checked is not None and self._checked.last is not None:
            self._entries[-1] = replace(self._entries[-1], adjoint_residual=self._checked.last.residual)

    def check(self, update: Any, args: tuple[Any, ...], solution: Solution, batch_dims: int) -> None:
        """Measure ρ(J) at a solution."""
        layout = Layout.of(solution.value, batch_dims)
        h = layout.flatten([leaf.detach() for leaf in leaves_of(solution.value)])
        radius = math.nan
        if h.isfinite().all():
            forked = torch.random.fork_rng(devices=[h.device] if h.device.type == "cuda" else [])
            with torch.inference_mode(False), torch.enable_grad(), forked:
                radius = _radius(Update(update, args, layout), h.clone())
        self.complete()
        self._entries.append(Entry(self.calls, radius, solution.residuals[-1][1]))
        self._checked = solution.record

    def warn(self, on_failure: OnFailure) -> None:
        """Say once that the assumptions have stopped holding."""
        last = self._entries[-1] if self._entries else None
        if last is None or self.warned or on_failure == "ignore":
            return
        wrong = list(_objections(last))
        if wrong:
            self.warned = True
            report_failure(
                f"at forward call {last.call} the assumptions of the implicit gradient stopped holding: {'; '.join(wrong)}. "
                "See sg.diagnose for the reason, sg.penalty for ways to keep ρ(J) < 1, and layer.history for the past checks. "
                "(Said once.)",
                "warn",
            )


def _objections(entry: Entry) -> Iterator[str]:
    if not math.isfinite(entry.spectral_radius):
        yield "the state, or the derivative of F there, is not finite"
    elif entry.spectral_radius >= 1:
        yield f"ρ(J) = {entry.spectral_radius:.3g} ≥ 1, so F does not settle and the Neumann series diverges"
    if entry.relative_residual > MOVING:
        yield f"the state still moves by {100 * entry.relative_residual:.2g} % a step"
    if entry.adjoint_residual is not None and not entry.adjoint_residual <= TOLERATED:
        yield f"the adjoint residual is {entry.adjoint_residual:.2g}"


def _radius(update: Update, h: Tensor) -> float:
    with torch.no_grad():
        update(h)
    jacobian = Jacobian(update, h)
    if not any(output.requires_grad for output in jacobian.outputs):
        return 0.0
    start = torch.randn(h.shape, generator=torch.Generator().manual_seed(0), dtype=h.dtype).to(h.device)
    return spectrum(jacobian, start, products=PRODUCTS, accuracy=ACCURACY).radius.max().item()
