"""H1: CG-RBP and Neumann-RBP follow BPTT's training and validation curves; original RBP blows up (K = 20)."""

from __future__ import annotations

import math
import statistics
from functools import partial

from matplotlib.figure import Figure as Picture

from steadygrad.paper.report.hopfield.trials import ends, training
from steadygrad.paper.report.panels import DOTTED, Panel, Points, draw, numbered
from steadygrad.paper.report.sorting import Found
from steadygrad.paper.report.trial import Group, Trial, ranked
from steadygrad.paper.report.verdicts import Outcome, all_of

FOLLOWS = 0.1
MOST = 0.9
"""A curve follows BPTT's if at this share of its passes they are no further apart than FOLLOWS, relative to BPTT's, in any seed.
Not at all: the curves jitter, so that their largest distance grows with the number of passes, by whatever gradient."""
BLOWS_UP = 2.0
"""A loss has blown up where it ends above this many times BPTT's, in more than half of the seeds."""
FOLLOWERS = ("cg-rbp", "neumann-rbp")
following_seeds = partial(Group.common_seeds, methods=("bptt", *FOLLOWERS))
blown_seeds = partial(Group.common_seeds, methods=("bptt", "rbp-uniform"))


def follow(setting: Group) -> Outcome:
    """Both, where both were tried; one that does not is enough against it."""
    gaps = strayed(setting)
    return all_of(Outcome.of(gaps[method] <= FOLLOWS if method in gaps else None) for method in FOLLOWERS)


def blows_up(setting: Group) -> Outcome:
    ratios = ends(setting, "rbp-uniform")
    return Outcome.of(sum(value > BLOWS_UP for value in ratios) > len(ratios) / 2 if ratios else None)


def strayed(setting: Group, share: float = MOST) -> dict[str, float]:
    """How far each method's curves are from BPTT's at most, at this share of the passes of every seed."""
    pairs = {method: setting.pairs(method) for method in setting.methods() if method != "bptt"}
    return {method: max(apart(*pair, share) for pair in found) for method, found in pairs.items() if found}


def apart(trial: Trial, exact: Trial, share: float = 1.0) -> float:
    """How far the two trials' curves, training and validation, are apart at this share of the passes, relative to BPTT's."""
    curves = ((training(trial), training(exact)), (trial.seen("l1"), exact.seen("l1")))
    if any(len(ours) != len(theirs) for ours, theirs in curves):
        return math.inf  # one of them ended early, since its loss was not finite
    gaps = [ranked(abs(ours - theirs) / theirs for ours, theirs in zip(*curve, strict=True)) for curve in curves]
    return max(of[math.ceil(share * len(of)) - 1] for of in gaps)


def curves(found: Found) -> Picture:
    def validated(trial: Trial) -> Points:
        return trial.seen("pass"), trial.seen("l1")

    rows: list[list[Panel]] = []
    for s in found.shown():
        half = 0.5 * statistics.median(trial.result["initial_loss"] for trial in s.trials)
        axes = ("pass over the ten images", "mean L1 loss a pixel", True)
        left = Panel(s.curves(lambda trial: numbered(training(trial))), f"{s.heading}: training", *axes, level=half)
        rows.append([left, Panel(s.curves(validated), "validation", *axes, level=half)])
    picture = draw(rows, {"half the loss before any update": DOTTED})
    for left, right in zip(picture.axes[::2], picture.axes[1::2], strict=True):
        right.sharey(left)
        left.autoscale(axis="y")
    return picture
