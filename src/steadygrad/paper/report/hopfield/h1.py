"""H1: CG-RBP and Neumann-RBP follow BPTT's training and validation curves; original RBP blows up (K = 20)."""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
from matplotlib.figure import Figure as Picture

from steadygrad.paper.report.hopfield.trials import HopfieldTrial, K, Setting, Sorted
from steadygrad.paper.report.panels import BANDS, DOTTED, grid, legend, lines, same_height
from steadygrad.paper.report.section import Figure, Finding, Part, judged
from steadygrad.paper.report.style import look
from steadygrad.paper.report.text import percent, times
from steadygrad.paper.report.trial import largest, ratio
from steadygrad.paper.report.verdicts import Outcome

FOLLOWS = 0.1
"""A curve follows BPTT's if they are nowhere further apart than this, relative to BPTT's, in any seed."""
BLOWS_UP = 2.0
"""A loss has blown up where it ends above this many times BPTT's, in more than half of the seeds."""
FOLLOWERS = ("cg-rbp", "neumann-rbp")


def parts(found: Sorted) -> list[Part]:
    texts = (f"CG-RBP and Neumann-RBP follow BPTT's curves (K = {K})", "Original RBP blows up")
    limits = f"Limit: {percent(FOLLOWS)} at every pass of every seed."
    why = "It is the scale of its random start z₀ against b (H2)."
    return [
        judged("H1a", texts[0], "curves", *both(found, follow, gap_words), limits),
        judged("H1b", texts[1], "curves", *both(found, blows_up, blow_words), why),
    ]


def both(
    found: Sorted, rule: Callable[[Setting], Outcome], words: Callable[[Setting], str]
) -> tuple[Finding | None, Finding | None]:
    """What the longest trials as published say, and those of the corrected mode."""
    ours, corrected = (s and Finding(rule(s), words(s), s.seeds, s.length) for s in found.judged(rule))
    return ours, corrected


def follow(setting: Setting) -> Outcome:
    if not all(setting.pairs(method) for method in FOLLOWERS):
        return Outcome.MISSING
    return Outcome.of(max(strayed(setting)[method] for method in FOLLOWERS) <= FOLLOWS)


def blows_up(setting: Setting) -> Outcome:
    ratios = ends(setting)
    return Outcome.of(sum(value > BLOWS_UP for value in ratios) > len(ratios) / 2) if ratios else Outcome.MISSING


def ends(setting: Setting) -> list[float]:
    """RBP's final loss relative to BPTT's."""
    return [ratio(trial.training[-1], exact.training[-1]) or 0.0 for trial, exact in setting.pairs("rbp-uniform")]


def gap_words(setting: Setting) -> str:
    gaps = strayed(setting)
    return ", ".join(f"{look(m).label} within {distance(gaps[m])}" for m in FOLLOWERS if m in gaps)


def blow_words(setting: Setting) -> str:
    return f"{times(statistics.median(ends(setting)))} BPTT's loss"


def strayed(setting: Setting) -> dict[str, float]:
    """The largest distance of each method's curves from BPTT's, over all passes and seeds."""
    return {m: max(apart(*pair) for pair in setting.pairs(m)) for m in setting.methods() if m != "bptt" and setting.pairs(m)}


def apart(trial: HopfieldTrial, exact: HopfieldTrial) -> float:
    """The largest distance of the two trials' curves, training and validation, relative to BPTT's."""
    curves = ((trial.training, exact.training), (trial.seen("l1"), exact.seen("l1")))
    if any(len(ours) != len(theirs) for ours, theirs in curves):
        return math.inf  # one of them ended early, since its loss was not finite
    return largest(abs(ours - theirs) / theirs for curve in curves for ours, theirs in zip(*curve, strict=True)) or 0.0


def distance(gap: float) -> str:
    return "any distance" if math.isinf(gap) else percent(float(f"{gap:.2g}"))


def numbers(found: Sorted) -> list[dict[str, Any]]:
    """How far each method strays, mode by mode."""
    return [
        {
            "title": setting.title,
            "gaps": {look(method).label: distance(gap) for method, gap in strayed(setting).items()},
            **{key: statistics.median(t.result[key] for t in setting.of("bptt")) for key in ("initial_loss", "final_loss")},
        }
        for setting in found.all
        if strayed(setting)
    ]


def figure(found: Sorted) -> Figure:
    return Figure(
        "hopfield-h1",
        f"H1: training and validation loss with K = {K}. {BANDS} Training: clean images; validation: half of the set pixels "
        "cleared.",
        "Loss curves of all methods, a row a mode; the distances from BPTT are in the text above.",
        partial(draw, found),
        sum(len(setting.of(method)) for setting in found.all for method in setting.methods()),
    )


def draw(found: Sorted) -> Picture:
    picture, rows = grid(len(found.all), 2)
    for setting, axes in zip(found.all, rows, strict=True):
        lines(axes[0], setting.curves(lambda trial: trial.training, first=1))
        lines(axes[1], setting.curves(lambda trial: trial.seen("l1")))
        half = 0.5 * float(np.median([trial.result["initial_loss"] for trial in setting.trials]))
        for axis, what in zip(axes, ("training", "validation"), strict=True):
            axis.axhline(half, **DOTTED)
            axis.set(title=f"{setting.title}: {what}", xlabel=PASSES, ylabel=LOSS, yscale="log")
        same_height(axes)
    legend(picture, rows, **{"half the initial loss": DOTTED})
    return picture


PASSES, LOSS = "pass over the ten images", "mean L1 loss a pixel"
