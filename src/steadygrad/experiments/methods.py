"""The gradient methods by the names that configs and figures use, with the paper's K; and how numbers go into a record."""

from __future__ import annotations

from steadygrad.fixedpoint import Picard
from steadygrad.gradient import ARTBP, BPTT, TBPTT, Gradient, Implicit
from steadygrad.linear import Auto, Neumann, NormalCG

NAMES = ("bptt", "tbptt", "artbp-uniform", "artbp-poisson", "rbp", "rbp-zeros", "cg-rbp", "neumann-rbp", "auto")


def gradient(method: str, steps: int, seed: int, auto: Auto | None = None) -> Gradient:
    """The gradient method by its name in the paper, with K = `steps`; `seed` is for the draws of RBP and ARTBP.

    ARTBP's Poisson law has the mean K: the paper cuts "near step 95 of 100, where TBPTT stops", so K steps from the end.
    Original RBP draws z₀ ~ U[0,1], unscaled; "rbp-zeros" starts at zero.
    """
    match method:
        case "bptt":
            return BPTT()
        case "tbptt":
            return TBPTT(steps=steps)
        case "artbp-uniform":
            return ARTBP("uniform", seed=seed)
        case "artbp-poisson":
            return ARTBP("poisson", mean=float(steps), seed=seed)
        case "rbp":
            return Implicit(Picard(max_steps=steps, rtol=0), initial="uniform", seed=seed)
        case "rbp-zeros":
            return Implicit(Picard(max_steps=steps, rtol=0))
        case "cg-rbp":
            return Implicit(NormalCG(steps=steps))
        case "neumann-rbp":
            return Implicit(Neumann(steps=steps))
        case "auto":
            return Implicit(Auto() if auto is None else auto)
        case _:
            raise ValueError(f"{method!r} is no gradient method; choose one of {', '.join(NAMES)}.")


def short(value: float) -> float:
    """Six significant digits, which keep a record small."""
    return float(f"{value:.6g}")
