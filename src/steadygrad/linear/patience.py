"""How long each solver of `Auto` may take before the next one is tried, in states of some size."""

from __future__ import annotations

from typing import ClassVar, NamedTuple

from steadygrad.iteration.gain import Gains
from steadygrad.linear.neumann import Neumann, Sum
from steadygrad.linear.outlook import SIGHT


class _Series(Neumann):
    """The Neumann series with few products at hand, since each takes the memory of a state."""

    window: ClassVar[int] = 4


class _LongSeries(Neumann):
    """The Neumann series with more products at hand, for a Krylov space to begin with."""

    window: ClassVar[int] = 16

    def gain(self, state: Sum) -> Gains:
        return super().gain(state._replace(seen=state.seen[-Neumann.window :]))


class Patience(NamedTuple):
    """How long each phase may take, in states of some size."""

    series: Neumann
    head: int
    """Terms after which the series may be left."""
    rising: int
    """Terms after which a series whose residual does not fall is given up."""
    terms: int
    """Terms that the series may still need."""
    restart: int
    """Krylov vectors that are kept."""
    space: int = 0
    """Terms that it is taken to cost to make a Krylov space of the series."""
    step: int = 1
    """Terms that a step of GMRES is taken to cost."""
    conjugate: int = 1
    """Terms that a step of CG is taken to cost."""

    @property
    def most(self) -> int:
        """Terms that the series may still need where others would take longer."""
        return self.step * self.terms


SMALL = Patience(_LongSeries(), head=16, rising=SIGHT + 1, terms=50, restart=100, step=2)
"""A Krylov space takes over all that the series has computed, so that a later choice costs little. On the test problems a third
to a half of the terms are needed where these are more than fifty; a step takes the time of one term where F is
dear, of six where not. A series that rises is given up once its terms tell the condition of I − J."""
LIGHT = SMALL._replace(space=60, step=6, conjugate=4)
"""Where the graph of F shows that a product is little work: as measured at 32×64, 24 microseconds a term."""
BIG = Patience(_Series(), head=4, rising=40, terms=300, restart=60)
"""A step of GMRES takes the time of ten terms and more. Non-normal maps rise for 10 to 30 terms."""
