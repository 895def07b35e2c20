"""M2: the training loss of the last meta step: Neumann-RBP matches BPTT and outperforms the others."""

from __future__ import annotations

from functools import partial

from steadygrad.paper.report.hyperopt.m1 import beside_exact, curves, end, neumann_lowest
from steadygrad.paper.report.hyperopt.trials import PAPER_SETTINGS, Mode
from steadygrad.paper.report.panels import Points
from steadygrad.paper.report.trial import Trial, ratio
from steadygrad.paper.report.verdicts import Case, Finding, over

__all__ = ["beside_exact", "curves"]  # for the template
MATCHES = 1.5
"""Two losses match that are within this factor of each other."""
GENERALLY = 0.75
"""The paper says "generally": in at least this share of the settings."""


def trained(trial: Trial) -> Points | None:
    """The loss along the training of the last meta step."""
    found = trial.result.get("last_training")
    return (found["step"], found["loss"]) if found and found["loss"] else None


def training_end(trial: Trial) -> float | None:
    found = trained(trial)
    return end(found[1]) if found else None


def matches(mode: Mode) -> Finding:
    """Neumann-RBP's end relative to BPTT's, in each setting: is it near it in most?"""
    ratios = {cell.title: beside_exact(cell, "neumann-rbp", training_end) for cell in mode.cells}
    cases: list[Case] = []
    for cell in mode.evidence(lambda cell: ratios[cell.title] is not None):
        value = ratios[cell.title] or 0.0
        cases.append(Case(1 / MATCHES <= value <= MATCHES, cell.length, cell.title, [cell.seeds], value))
    return over(cases, PAPER_SETTINGS, GENERALLY)


outperforms = partial(neumann_lowest, measure=training_end)


def weighed(trial: Trial) -> float | None:
    """The mean weight that tuning gives to images with a wrong label, relative to that of the others."""
    found = trial.result.get("weight") or {}
    return ratio(found["wrong"][-1], found["right"][-1]) if found.get("wrong") else None


def last_cosine(trial: Trial) -> float | None:
    """Of the hypergradient to BPTT's when they were last compared."""
    return ((trial.result.get("reference") or {}).get("cosine") or [None])[-1]
