"""What the library said of a problem of a surface, beside how wrong it was."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

import steadygrad as sg


@dataclass
class Outcome:
    """One problem: what was said of it, and its errors."""

    name: str
    """The kind of problem, then what was drawn for it."""
    said: list[str] = field(default_factory=list)
    """Warnings, errors and statuses that say that the result is not to be trusted."""
    errors: dict[str, tuple[float, float]] = field(default_factory=dict)
    """By what was compared: how far it is from the truth, and how far it may be."""
    facts: dict[str, Any] = field(default_factory=dict)

    @property
    def silent(self) -> bool:
        """Whether something is wrong that nothing was said of. NaN is wrong."""
        return not self.said and any(not error <= allowed for error, allowed in self.errors.values())

    def __str__(self) -> str:
        wrong = ", ".join(f"{what} {e:.2g} (allowed {a:.2g})" for what, (e, a) in self.errors.items() if not e <= a)
        return f"{self.name}: {wrong} {self.facts}"

    @contextmanager
    def listening(self) -> Iterator[None]:
        """Note the warnings and errors of steadygrad; all other errors are crashes, and go on."""
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            try:
                yield
            except sg.SteadyStateError as problem:
                self.said.append(f"error: {problem}")
        self.said += [str(w.message) for w in caught if issubclass(w.category, sg.SteadyStateWarning)]

    def hear(self, solution: sg.Solution, adjoint: bool = True) -> None:
        """Note statuses that are not CONVERGED."""
        if solution.status is not sg.Status.CONVERGED:
            self.said.append(f"state {solution.status.name}")
        if adjoint and solution.adjoint is not None and solution.adjoint.status is not sg.Status.CONVERGED:
            self.said.append(f"adjoint {solution.adjoint.status.name}")

    def compare(self, what: str, found: Tensor, truth: Tensor, allowed: float = 0.01, least: float = 0.0) -> None:
        """Note how far a tensor is from the truth, relative to its length or `least`, which says what counts as zero."""
        truth = truth.detach().double()
        size = max(float(truth.norm()), least, torch.finfo(torch.float64).tiny)
        self.errors[what] = (float((found.detach().double() - truth).norm()) / size, allowed)
