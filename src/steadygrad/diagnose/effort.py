"""How much a diagnosis may spend on each thing that it measures."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Effort:
    """Steps and products for each part. What they do not suffice for is marked as not settled, never left out in silence."""

    motion: int = 60
    """Applications of F to see where it takes the state."""
    starts: bool = True
    """Whether to run F from other starts, 200 steps each at most."""
    eigenvalues: int = 500
    """Products for ρ(J)."""
    bidiagonal: int = 100
    """Steps, of two products, for ‖J‖."""
    smallest: int = 60
    """Steps, of two products, for σ_min(I − J) of a state that is too large to take them all."""
    exact: int = 150
    """Elements up to which σ_min is taken with all steps."""
    refinements: int = 6
    """Inverse iterations for σ_min, of two solves."""
    solve: int = 200
    """Steps of a linear solve."""
    decay: int = 100
    """Terms of the Neumann series that are looked at."""


THOROUGH = Effort()
QUICK = Effort(
    motion=30, starts=False, eigenvalues=30, bidiagonal=10, smallest=12, exact=12, refinements=0, solve=30, decay=15
)  # fmt: skip
"""A hundred products or so: seconds where THOROUGH takes a minute. ρ and ‖J‖ are good to some per cent, σ_min is a bound."""
