"""The gradient methods by the names that configs and figures use, with the paper's K; and how numbers go into a record."""

from __future__ import annotations

import steadygrad as sg
from steadygrad.models.onward import Gradient, onward

__all__ = ["NAMES", "SPELLED", "STORED", "UNROLLED", "Gradient", "gradient", "onward", "short"]

STORED = {"rbp-uniform": "rbp"}
"""How a record spells a method. "rbp" has always meant the random start there, while `gradient="rbp"` of the library starts at
zero; so the experiments have a name of their own for it, and old records keep theirs."""
SPELLED = {"stored": STORED}
"""Metadata of a config's field for the method."""
CHECKPOINTED = ("bptt-sqrt", "bptt-log")
"""BPTT that keeps √(2T) or log₂ T states and takes the other steps again: the same gradient in less memory."""
UNROLLED = ("bptt", *CHECKPOINTED, "tbptt", "artbp-uniform", "artbp-poisson")
"""The methods that take no J at one state, but go back through the steps as they were."""
NAMES = (*UNROLLED, "rbp-uniform", "rbp-zeros", "cg-rbp", "neumann-rbp", "auto")


def gradient(method: str, steps: int, seed: int, auto: sg.Auto | None = None, ridge: float = 0.0) -> Gradient:
    """The gradient method by its name in the paper, with K = `steps`; `seed` is for the draws of RBP and ARTBP.

    ARTBP's Poisson law has the mean K: the paper cuts "near step 95 of 100, where TBPTT stops", so K steps from the end.
    "rbp-uniform" is original RBP as released: z₀ ~ U[0,1], unscaled; "rbp-zeros" starts at zero. `ridge` is added to CG-RBP's
    normal matrix; the released code has 1e-5.
    """
    match method:
        case "bptt":
            return sg.BPTT()
        case "bptt-sqrt":
            return sg.BPTT(memory="sqrt")
        case "bptt-log":
            return sg.BPTT(memory="log")
        case "tbptt":
            return sg.TBPTT(steps=steps)
        case "artbp-uniform":
            return sg.ARTBP("uniform", seed=seed)
        case "artbp-poisson":
            return sg.ARTBP("poisson", mean=float(steps), seed=seed)
        case "rbp-uniform":
            return sg.Implicit(sg.Picard(max_steps=steps, rtol=0), initial="uniform", seed=seed)
        case "rbp-zeros":
            return sg.Implicit(sg.Picard(max_steps=steps, rtol=0))
        case "cg-rbp":
            return sg.Implicit(sg.NormalCG(steps=steps, ridge=ridge))
        case "neumann-rbp":
            return sg.Implicit(sg.Neumann(steps=steps))
        case "auto":
            return sg.Implicit(sg.Auto() if auto is None else auto)
        case _:
            raise ValueError(f"{method!r} is no gradient method; choose one of {', '.join(NAMES)}.")


def short(value: float) -> float:
    """Six significant digits, which keep a record small."""
    return float(f"{value:.6g}")
