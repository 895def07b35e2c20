"""Advice that depends on what was found and leaves out what is in use."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

from steadygrad.diagnose.diagnosis import Diagnosis
from steadygrad.solution import Solution

DOUBLE = 1e-15
"""The rounding unit is below this in float64 only."""

_DRIFTS = (
    "Let the inputs enter at every step, not through h0 alone; normalise the weights of F; in training add sg.penalty.spectral, "
    'sg.penalty.frobenius or sg.penalty.column_l1. Without a steady state use gradient="bptt" or "tbptt".'
)
_NO_CREEP = (
    ("anderson", "use forward=sg.Anderson()"),
    ("newton", "use forward=sg.Newton(), which does not creep"),
)
_AGAINST_CYCLES = (
    ("damping", "add damping, sg.Picard(damping=0.5)"),
    ("anderson", "use forward=sg.Anderson()"),
    ("newton", "find the point inside by forward=sg.Newton()"),
)
_FRAGILE_SOLVERS = (("auto", 'use gradient="auto"'), ("lsqr", 'use gradient="lsqr"'))
_NEED_INVERSE_ONLY = (("auto", '"auto"'), ("gmres", '"gmres"'), ("normalcg", '"cg-rbp"'))


@dataclass(frozen=True)
class Used:
    """The methods in use, as far as they were told: by `forward=`, `gradient=`, or a Solution that was handed over."""

    forward: str = ""
    """The forward solver as code, such as `Picard(damping=0.5)`."""
    gradient: str = ""
    """The adjoint solver or the gradient method as code or by its short name."""

    @classmethod
    def of(cls, solution: Solution | None, forward: Any, gradient: Any) -> Used:
        adjoint = solution.adjoint if solution is not None else None
        told = gradient if isinstance(gradient, str) else "" if gradient is None else repr(gradient)
        return cls("" if forward is None else repr(forward), told or ("" if adjoint is None else adjoint.solver))

    def left(self, *options: tuple[str, str]) -> list[str]:
        """The texts of those options, (mark, text), whose mark is not in what is used."""
        everything = f"{self.forward} {self.gradient}".lower()
        return [text for mark, text in options if mark.lower() not in everything]


def joined(options: list[str], last: str) -> str:
    """“A, B, or C.” of the options that are left; `last` where none is."""
    if not options:
        return last
    head, tail = options[:-1], options[-1]
    text = f"{', '.join(head)}, or {tail}" if head else tail
    return f"{text[0].upper()}{text[1:]}."


def not_creeping(used: Used) -> str:
    """What reaches a steady state that F approaches slowly."""
    return joined(["ask for a smaller rtol and take more steps", *used.left(*_NO_CREEP)], "")


def rest(d: Diagnosis, used: Used) -> str:
    """What brings a state to rest that moves like this one."""
    if d.course == "approaching":
        steps = max(1, math.ceil(d.motion.steps_left))
        return joined([f"take at least {steps} more steps (max_steps)", *used.left(_NO_CREEP[0])], "")
    if d.course == "cycle":
        return (
            joined(used.left(*_AGAINST_CYCLES), "What is in use does not break the cycle: start closer to the point inside it.")
            + " The point inside the cycle is a steady state too, but F does not go there. In training add sg.penalty.spectral "
            "or sg.penalty.frobenius."
        )
    if d.course == "growing":
        shrink = "shrink the weights of F (spectral normalisation, sg.penalty.spectral)"
        return joined([shrink, *used.left(("damping", "add damping")), "start closer"], "")
    return _DRIFTS


def fragile(d: Diagnosis, used: Used) -> str:
    """How to get a gradient through an I − J that is nearly singular."""
    solvers = joined(used.left(*_FRAGILE_SOLVERS), "")
    dtype = "." if d.eps < DOUBLE else "; in float64 there is less rounding to amplify."
    return f"{solvers} Check the certificate's error_estimate, and add sg.penalty.lanczos to the loss{dtype}".strip()


def expansive(used: Used) -> str:
    """Which solvers do not mind ρ(J) ≥ 1, unless one of them is in use."""
    left = used.left(*_NEED_INVERSE_ONLY)
    solvers = ""
    if len(left) == len(_NEED_INVERSE_ONLY):
        solvers = f"Use gradient={', '.join(left[:-1])} or {left[-1]}, which need only that I − J is invertible. "
    return f"{solvers}To bring ρ below 1 in training add sg.penalty.spectral, sg.penalty.frobenius or sg.penalty.column_l1."
