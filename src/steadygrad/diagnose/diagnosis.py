"""What a diagnosis holds, how it prints, and its form for logs."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Any

from steadygrad.diagnose.checks import Dependence, Derivative
from steadygrad.diagnose.decay import Decay
from steadygrad.diagnose.motion import Motion, Start


@dataclass(frozen=True)
class Finding:
    """One thing that was found, and what to do about it."""

    kind: str
    severity: str
    """"fatal" (the gradient means nothing), "repair" (it can be had, but not by every method), or "note"."""
    text: str
    advice: str


@dataclass(frozen=True)
class Diagnosis:
    """Whether the assumptions of an implicit gradient hold at a state, in numbers and in words. Made by `sg.diagnose`.

    What could not be measured is NaN, and `unknown` says why. Of a batch, each number is that of its worst problem.

    >>> import torch, steadygrad as sg
    >>> rotation = torch.tensor([[0.0, -0.9], [0.9, 0.0]], dtype=torch.float64)
    >>> diagnosis = sg.diagnose(lambda h: rotation @ h + 1, torch.linalg.solve(torch.eye(2) - rotation, torch.ones(2).double()))
    >>> round(diagnosis.spectral_radius, 3), diagnosis.trustworthy, diagnosis.to_dict()["problems"]
    (0.9, True, 1)
    """

    size: int
    """Elements of the state of one problem."""
    problems: int
    eps: float = 2.3e-16
    """The rounding unit of the state's dtype."""
    relative_residual: float = math.nan
    """‖F(h) − h‖ / ‖F(h)‖."""
    distance: float = math.nan
    """‖(I−J)⁻¹(F(h) − h)‖ / ‖h‖: how far the steady state is, by one Newton step."""
    motion: Motion = field(default_factory=lambda: Motion("nonfinite", ()))
    starts: tuple[Start, ...] = ()
    spectral_radius: float = math.nan
    """ρ(J)."""
    radii: tuple[float, ...] = ()
    """ρ(J) of each problem."""
    eigenvalues: tuple[complex, ...] = field(default=(), repr=False)
    """Outer eigenvalues of J (Ritz values) of the problem with the largest ρ."""
    norm: float = math.nan
    """‖J‖₂ = σ_max(J)."""
    min_singular_value: float = math.nan
    """σ_min(I − J): the gradient amplifies the cotangent by at most its inverse."""
    bounds: frozenset[str] = frozenset()
    """The numbers among these that have not settled: ρ and the distance are then guesses, ‖J‖ a lower, σ_min an upper bound."""
    differentiable: bool = True
    """Whether J is finite."""
    own_cotangent: bool = False
    """Whether the decay is that of a cotangent which was given."""
    decay: Decay | None = field(default=None, repr=False)
    derivative: Derivative | None = None
    randomness: float = 0.0
    """How much two calls of F at one state differ, relative to F."""
    uncontrolled: float = 0.0
    """How much two calls of F differ, relative to F, when torch's random draws are repeated, as they are within one solve."""
    parameters: dict[str, Dependence] = field(default_factory=dict[str, Dependence])
    unknown: dict[str, str] = field(default_factory=dict[str, str])
    evaluations: int = 0
    """Calls of F."""
    products: int = 0
    """Products with J and Jᵀ."""
    findings: tuple[Finding, ...] = ()

    @property
    def non_normality(self) -> float:
        """‖J‖₂ / ρ(J): 1 for a normal J; how much larger J is in one step than in the long run."""
        if self.norm == 0:
            return 1.0
        return self.norm / self.spectral_radius if self.spectral_radius else math.inf

    @property
    def course(self) -> str:
        """How the state moves: the kind of its motion, or "receding" where its steps shrink although J enlarges differences."""
        return "receding" if self.motion.kind == "approaching" and self.spectral_radius > 1 else self.motion.kind

    @property
    def trustworthy(self) -> bool:
        """Whether an implicit gradient at this state means something."""
        return not any(finding.severity == "fatal" for finding in self.findings)

    @property
    def verdict(self) -> str:
        """The most important finding, in a sentence."""
        return self.findings[0].text

    @property
    def advice(self) -> str:
        """What to do, the most important first; where a finding is fatal, the rest can wait."""
        urgent = self.findings if self.trustworthy else [found for found in self.findings if found.severity == "fatal"]
        return " ".join(finding.advice for finding in urgent if finding.advice)

    def steps_for(self, rtol: float) -> int | None:
        """The K for which Neumann(K) has a relative error of at most `rtol`, from the decay that was observed.

        For the cotangent of the diagnosis: the loss's own if `cotangent=` was given, a random one otherwise. None where
        no number of terms suffices, or nothing could be observed.
        """
        if not 0 < rtol < 1:
            raise ValueError(f"rtol must lie between 0 and 1; got {rtol}.")
        return None if self.decay is None else self.decay.steps_for(rtol)

    def plot(self) -> Any:
        """A matplotlib figure: the residuals, the spectrum in the unit disc, and the decay of ‖(Jᵀ)ᵏb‖."""
        from steadygrad.diagnose.plot import draw

        return draw(self)

    def to_dict(self) -> dict[str, Any]:
        """Numbers and words for a log: JSON types only, None for what is unknown or not finite."""
        return {
            "verdict": self.verdict,
            "advice": self.advice,
            "trustworthy": self.trustworthy,
            "findings": [finding.kind for finding in self.findings],
            "motion": self.motion.kind,
            **{name: _finite(getattr(self, name)) for name in _NUMBERS},
            "not_settled": sorted(self.bounds),
            "neumann_steps": {str(rtol): self.steps_for(rtol) for rtol in (1e-2, 1e-3, 1e-5)},
            "derivative_mismatch": None if self.derivative is None else _finite(self.derivative.mismatch),
            "randomness": _finite(self.randomness),
            "starts": {start.name: start.outcome for start in self.starts},
            "parameters": {name: found.kind for name, found in self.parameters.items()},
            "unknown": dict(self.unknown),
            "size": self.size,
            "problems": self.problems,
            "evaluations": self.evaluations,
            "products": self.products,
        }

    def __str__(self) -> str:
        from steadygrad.diagnose.table import table

        return table(self)


_NUMBERS = ("relative_residual", "distance", "spectral_radius", "norm", "min_singular_value", "non_normality")


def _finite(value: float) -> float | None:
    return value if math.isfinite(value) else None
