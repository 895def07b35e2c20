"""A1: penalties that make I − J invertible, and what descending them does to the map and to the gradient."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from matplotlib.figure import Figure as Picture

from steadygrad.paper.report.panels import Panel, Points, draw, numbered
from steadygrad.paper.report.theory.p1 import centre
from steadygrad.paper.report.verdicts import Findings, Length, Outcome

__all__ = ["centre"]  # for the template
PENALTIES = ("column-l1", "gershgorin", "lanczos", "frobenius", "spectral")
PAPER = PENALTIES[:3]
SHOWN = {"min_singular_value": "σ_min(I − J)", "spectral_radius": "ρ(J)", "adjoint_error": "adjoint error, K = 20"}
LENGTH = 100
"""Steps of Adam in a descent of ours; the paper has no numbers."""
RIGHT = 1e-3
"""The adjoint of 20 terms counts as right whose relative error is below."""


def rises(found: Any) -> list[bool]:
    """Of each descent of a penalty of the paper's: does σ_min end above where it began?"""
    ends = (trial.result["min_singular_value"] for name in PAPER for trial in found.of(name))
    return [values[-1] > values[0] for values in ends]


def judged(found: Any) -> Findings:
    """A descent that was cut short can show that σ_min rises, not that it does not: at first some fall."""
    published, corrected = found.proved(all(rises(found)) if all(map(found.of, PAPER)) else None)
    length = Length(min((t.config["descents"] for t in found.penalties), default=0), LENGTH, "steps of a descent")
    early = corrected.outcome is Outcome.NO and not length.full
    return replace(published, length=length), replace(corrected, outcome=Outcome.NOISE) if early else corrected


def right(found: Any) -> list[str]:
    """The penalties after whose descent the adjoint of 20 terms is right."""
    return [name for name in PAPER if found.of(name) and all(t.result["adjoint_error"][-1] < RIGHT for t in found.of(name))]


def descents(found: Any) -> Picture:
    def curves(key: str) -> dict[str, list[Points]]:
        return {name: [numbered(trial.result[key], 0) for trial in found.of(name)] for name in PENALTIES}

    panels = [Panel(curves(key), title, "step of Adam", log=key == "adjoint_error") for key, title in SHOWN.items()]
    return draw([panels], height=2.6)
