"""Follow an iteration, problem by problem: when each is done, how it ended, which iterate to keep."""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable, Generator, Iterator
from typing import NamedTuple, cast

import torch
from torch import Tensor

from steadygrad.solution import Status


class Iterate(NamedTuple):
    """One iterate, a row a problem."""

    value: Tensor | Callable[[], Tensor]
    """The iterate, or how to form it if it is kept."""
    residual: Callable[[], Tensor]
    """The residual vector, or its norm as one column, of this iterate or of the one before; taken when somebody looks."""
    gain: Callable[[], Tensor] | None = None
    """(problems, 1): an estimate of ‖error‖ / ‖residual‖, from solvers that have one."""
    point: Tensor | None = None
    """Where the residual was taken, from solvers that have no gain and whose steps are not their residuals."""

    def formed(self) -> Tensor:
        """The iterate."""
        return self.value if isinstance(self.value, Tensor) else self.value()


Iterates = Generator[Iterate, "list[int] | None", None]
"""An iteration. It may be sent the rows to go on with, where the others have ended."""

GROWTH = 1e4
"""An iteration whose residual exceeds its smallest by this factor has diverged; transients of non-normal maps stay below."""
PATIENCE = 100
"""Steps without a residual one per cent smaller after which an iteration stagnates."""
SELDOM = 10
"""Residuals are taken every so many steps where no tolerance waits for them: a norm a step costs up to a fifth."""


class Watch:
    """Watches the rows of an iteration, each an independent problem with its own residual and its own stop.

    With `rtol` row i stops once ‖r_i‖ ≤ rtol·scale_i + atol; without, exactly `limit` iterates are taken, or fewer if the
    residual falls below `negligible`·scale_i. A residual must have grown above `unit` too to count as diverged: a state that
    leaves an unstable point for a stable one grows by any factor, but not for ever. `keep_best` keeps the iterate of the
    smallest residual instead of the last.
    """

    def __init__(
        self,
        scale: Callable[[Iterate], list[float]],
        limit: int,
        rtol: float | None,
        atol: float = 0.0,
        *,
        keep_best: bool = False,
        negligible: float = 0.0,
        unit: float = 1.0,
        trail: int = 0,
    ) -> None:
        self.scale = scale
        self.limit = limit
        self.rtol = rtol
        self.atol = atol
        self.keep_best = keep_best
        self.negligible = negligible
        self.unit = unit
        self.step = 0
        self.status: list[Status] = []
        self.residuals: list[tuple[int, float]] = []
        """(step, the largest relative residual of all problems)."""
        self.trail: deque[tuple[Tensor | None, Tensor]] = deque(maxlen=trail)
        """The last few residual vectors and where they were taken, for an estimate of the error."""
        self.first: list[float] = []
        """The norms of the first residual."""
        self.kept: Iterate | None = None
        self.last: Iterate | None = None
        self.drop: Callable[[list[int]], bool] | None = None
        """Told which rows are left, where an iteration may go on without the others; says whether it does."""
        self.wanted: frozenset[int] = frozenset()
        self.seen: dict[int, Tensor] = {}
        """The iterates at the wanted steps."""
        self.few = 0
        """Stop when no more rows than this are open: somebody will go on with these alone."""
        self._rows: list[int] | None = None
        self._open: list[int] = []
        self._smallest: list[float] = []
        self._mark: list[float] = []
        self._marked: list[int] = []
        self._early: list[float] = []

    def follow(self, iterates: Iterator[Iterate]) -> Iterate:
        """Run the iteration to its end and return the iterate to keep. May be called again after `reopen`."""
        keep: list[int] | None = None
        while self.step < self.limit and (self.step == 0 or len(self._open) > self.few):
            self.last = iterate = next(iterates) if keep is None else cast("Iterates", iterates).send(keep)
            self.step += 1
            if self.rtol is None and not self._looks_now():
                self.kept = iterate
            else:
                self._look(iterate)
            keep = self._drop_the_ended()
            if self.step in self.wanted and self.kept is not None:
                self.seen[self.step] = self.kept.formed()
        assert self.kept is not None, "limit is at least 1"
        return self.kept

    @property
    def open(self) -> list[int]:
        """The rows that have not ended."""
        return self._open

    def hold(self, rows: list[int]) -> None:
        """Leave open rows as they are."""
        self._open = [i for i in self._open if i not in rows]

    def reopen(self, row: int, rtol: float) -> None:
        """Let a row go on to a smaller tolerance: its recurrence had lost touch with the truth."""
        self.rtol = min(rtol, self.rtol or rtol)  # one tolerance for all rows that go on: the smallest
        self._open.append(row)
        self.status[row] = Status.MAX_STEPS

    def _drop_the_ended(self) -> list[int] | None:
        """Which of the present rows to go on with, once a quarter of them has ended; None to go on with all."""
        present = self._rows or list(range(len(self.status)))
        if self.drop is None or self.rtol is None or not self._open or len(self._open) > 0.75 * len(present):
            return None
        if not self.drop(self._open):
            return None
        self._rows = self._open
        return [present.index(i) for i in self._open]

    def _looks_now(self) -> bool:
        left = self.limit - self.step
        return self.step in (1, self.limit) or self.step % SELDOM == 0 or left < (self.trail.maxlen or 0)

    def _look(self, iterate: Iterate) -> None:
        with torch.no_grad():
            r = iterate.residual()
            norms: list[float] = torch.linalg.vector_norm(r, dim=1).tolist()
            scales = self.scale(iterate)
        if self._rows is not None:
            norms, scales = self._spread(norms), self._spread(scales)
        if not self.first:
            self._start(norms)
        if self.trail.maxlen and iterate.gain is None:
            self.trail.append((iterate.point, r))
        self.residuals.append((self.step, max(_ratio(norms[i], scales[i]) for i in self._open)))
        if 2 * self.step <= self.limit:
            self._early = [max(n, e) for n, e in zip(norms, self._early, strict=True)]
        self._keep(iterate, [i for i in self._open if not self.keep_best or norms[i] < self._smallest[i]])
        self._open = [i for i in self._open if not self._ends(i, norms[i], scales[i])]

    def _spread(self, values: list[float]) -> list[float]:
        """Values of the present rows at their places among all."""
        assert self._rows is not None
        spread = [0.0] * len(self.status)
        for i, value in zip(self._rows, values, strict=True):
            spread[i] = value
        return spread

    def _start(self, norms: list[float]) -> None:
        rows = len(norms)
        self.first = norms
        self.status = [Status.MAX_STEPS] * rows
        self._open = list(range(rows))
        self._smallest = [math.inf] * rows
        self._mark = [math.inf] * rows
        self._marked = [0] * rows
        self._early = norms

    def _keep(self, new: Iterate, rows: list[int]) -> None:
        old = self.kept
        if old is None or (len(rows) == len(self.status) and self._rows is None):
            self.kept = new
        elif self._rows is not None:
            value, here = old.formed().clone(), [self._rows.index(i) for i in rows]
            value[rows] = new.formed()[here]
            self.kept = Iterate(value, new.residual)
        elif rows:
            value, before = new.formed(), old.formed()
            mask = torch.zeros(len(self.status), 1, dtype=torch.bool, device=value.device)
            mask[rows] = True
            self.kept = Iterate(torch.where(mask, value, before), new.residual, _mixed(mask, new.gain, old.gain))

    def _ends(self, i: int, norm: float, scale: float) -> bool:
        smallest = self._smallest[i]
        self._smallest[i] = min(norm, smallest)
        if norm < 0.99 * self._mark[i]:
            self._mark[i], self._marked[i] = norm, self.step
        if not math.isfinite(norm):
            self.status[i] = Status.NONFINITE
        elif self.rtol is None:
            if norm > self.negligible * scale or self.negligible == 0:
                return self._ends_at_limit(i, norm)
        elif norm <= self.rtol * scale + self.atol:
            self.status[i] = Status.CONVERGED
        elif norm > GROWTH * max(smallest, self.unit):
            self.status[i] = Status.DIVERGED
        elif self.step - self._marked[i] > PATIENCE:
            self.status[i] = Status.STAGNATED
        else:
            return self._ends_at_limit(i, norm)
        return True

    def _ends_at_limit(self, i: int, norm: float) -> bool:
        if self.step == self.limit and norm > 2 * self._early[i]:
            self.status[i] = Status.DIVERGED  # above twice all of the first half: it grows, however slowly
        return self.step == self.limit


def _mixed(mask: Tensor, new: Callable[[], Tensor] | None, old: Callable[[], Tensor] | None) -> Callable[[], Tensor] | None:
    if new is None or old is None:
        return None
    gain = torch.where(mask, new(), old())
    return lambda: gain


def _ratio(norm: float, scale: float) -> float:
    return norm / scale if scale > 0 else (0.0 if norm == 0 else math.inf)
