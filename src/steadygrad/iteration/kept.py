"""What is returned of each problem: the iterate of the smallest residual, or the last."""

from __future__ import annotations

import math
from typing import Any

import numpy
import torch
from torch import Tensor

from steadygrad.iteration.judge import Judge
from steadygrad.iteration.norms import Mask, Numbers, Rows
from steadygrad.iteration.plain import infinite, some
from steadygrad.iteration.solver import Iteration, several_of


class KeptIterates:
    """Follows which state is to be returned: while all problems agree it is only remembered, and merged where they do not."""

    def __init__(self, solver: Iteration, judge: Judge, problems: int) -> None:
        self._solver, self._judge = solver, judge
        self.rows: Rows = slice(None)
        """The problems that are present, among all."""
        self.value: Tensor | None = None
        """The iterates of all problems that are kept for good, or for as long as nothing better is seen."""
        self.norms: Numbers = numpy.zeros(problems)
        """Of all problems that have ended, the norms of the residual at what is kept."""
        self._at: Any = None
        """What is held of the state whose value is kept of every open problem; None if those are in `value`."""
        self._best: Any = math.inf
        """The norms of the residual at what is kept of the open problems: a float while it is one number for all."""

    @property
    def count(self) -> int:
        """How many problems are present."""
        return len(self.norms) if isinstance(self.rows, slice) else len(self.rows)

    def note(self, step: int, state: Any, ended: Mask | None) -> None:
        """Keep the present state of the open problems, or of those of them that have come closer."""
        judge = self._judge
        total, best = judge.total, self._best
        better: Any = True
        if judge.goal.best:
            better = step > 0 and total < best
            if ended is not None and some(infinite(best)):
                better = better | (ended & infinite(best))
        if better is True or (better is not False and better.all()):
            self._best, self._at = total, self._solver.keep_for_value(state)
        elif better is not False and better.any():
            self._best = numpy.where(better, total, best)
            if self._at is not None:
                self._store(self._solver.value(self._at), None)
            self._store(self._solver.value(state), better)
            self._at = None
        if ended is not None:
            if self._at is not None:
                self._store(self._solver.value(self._at), ended)
            self.norms[0 if judge.alone else judge.open] = self._best
            self._best = self._best[~ended] if isinstance(self._best, numpy.ndarray) else self._best

    def with_open(self, value: Tensor) -> Tensor:
        """The iterates of all problems: what is kept of those that have ended, `value` of the others."""
        return value if self.value is None else self._with_rows_of(value, self.present())

    def leave_out(self, keep: Mask, index: Tensor, value: Tensor) -> None:
        """Only these of the present problems go on."""
        if self.value is None:
            self.value = value
        self._at = several_of(self._at, index)
        self.rows = numpy.arange(len(self.norms))[self.rows][keep]

    def present(self, mask: Mask | None = None) -> Mask:
        """Some of the open problems, None for all of them, as a mask of those that are present."""
        present = numpy.zeros(self.count, dtype=bool)
        present[self._judge.places] = True if mask is None else mask
        return present

    def _store(self, value: Tensor, which: Mask | None) -> None:
        """Keep the value of some of the open problems, None for all of them."""
        if self.value is None:
            self.value = value
            return
        mask = self.present(which)
        if isinstance(self.rows, slice):
            self.value = value if mask.all() else self._with_rows_of(value, mask)
        else:
            chosen = torch.from_numpy(numpy.flatnonzero(mask)).to(value.device)
            everywhere = torch.from_numpy(self.rows[mask]).to(value.device)
            self.value = self.value.index_copy(0, everywhere, value[chosen])

    def _with_rows_of(self, value: Tensor, mask: Mask) -> Tensor:
        """What is kept, with the masked rows of another value; gradients pass."""
        assert self.value is not None
        here = torch.from_numpy(mask).to(value.device)
        return torch.where(here.unsqueeze(1), value, self.value)
