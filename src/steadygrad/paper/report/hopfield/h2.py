"""H2: the share of trials that end below half the initial training loss, at K = 10 / 20 / 30; and why RBP fails."""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable, Sequence
from dataclasses import replace

from steadygrad.paper.report.hopfield.trials import left, training
from steadygrad.paper.report.section import Findings
from steadygrad.paper.report.sorting import Found
from steadygrad.paper.report.style import ordered
from steadygrad.paper.report.trial import WHOLE, Group, Trial
from steadygrad.paper.report.verdicts import Outcome

__all__ = ["left"]  # for the template
ALL = {10: 1.0, 20: 1.0, 30: 1.0}
PAPER = {"tbptt": ALL, "rbp-uniform": {10: 0.01, 20: 0.04, 30: 0.99}, "cg-rbp": ALL, "neumann-rbp": ALL}
"""The paper's success rates, method and K."""
HALF = 0.5
Success = Callable[[Trial], bool]


def strict(trial: Trial) -> bool:
    """The initial loss is that before any update."""
    return bool(trial.result["success"])


def overshot(trial: Trial) -> bool:
    """The initial loss is the mean over the first pass, in which Adam's first steps overshoot."""
    first, last = training(trial)[0], training(trial)[-1]
    return math.isfinite(last) and last < HALF * first


READINGS: dict[str, Success] = {"before any update": strict, "of the first pass": overshot}


def rates(setting: Group, success: Success) -> dict[str, list[float]]:
    """Success rates, method by K; empty where one is missing."""
    tried = {method: [setting.of(method, K) for K in of] for method, of in PAPER.items()}
    if not all(all(of) for of in tried.values()):
        return {}
    return {method: [statistics.fmean(map(success, trials)) for trials in of] for method, of in tried.items()}


def agrees(setting: Group, success: Success = strict) -> Outcome:
    """All but RBP always succeed, and RBP is on the paper's side of 50 % at every K."""
    found = rates(setting, success)
    if not found:
        return Outcome.MISSING
    pairs = zip(found["rbp-uniform"], PAPER["rbp-uniform"].values(), strict=True)
    sides = all((ours > HALF) == (paper > HALF) for ours, paper in pairs)
    return Outcome.of(sides and all(rate == 1 for m, row in found.items() if m != "rbp-uniform" for rate in row))


def readings(found: Found) -> Findings:
    """As published under both readings."""
    published, corrected = found.judged(agrees)
    if published is not None:
        published = replace(published, outcome=tuple(agrees(published.of, success) for success in READINGS.values()))
    return published, corrected


def rates_words(setting: Group, success: Success) -> str:
    found = {method: [f"{100 * rate:.3g}" for rate in of] for method, of in rates(setting, success).items()}
    others = sorted({rate for method, of in found.items() if method != "rbp-uniform" for rate in of}, key=float)
    return f"{' to '.join(dict.fromkeys((others[0], others[-1])))} %, RBP {' / '.join(found['rbp-uniform'])} %"


def initial(setting: Group) -> tuple[float, float]:
    """The loss before any update, and that of BPTT's first pass."""
    first = statistics.median(training(trial)[0] for trial in setting.of("bptt") or setting.trials)
    return statistics.median(trial.result["initial_loss"] for trial in setting.trials), first


def first_ratios(setting: Group, method: str) -> list[str]:
    """The final training loss over that of the first pass, at every K: the range over seeds."""
    found = [[training(t)[-1] / training(t)[0] for t in setting.of(method, K)] for K in setting.counts]
    return [f"{min(of):.2g}–{max(of):.2g}" if of else "–" for of in found]


def paper_rates(method: str, counts: list[int]) -> str:
    known = [f"{100 * PAPER[method][K]:.0f}" for K in counts if K in PAPER.get(method, {})]
    return " / ".join(known) + " %" if len(known) == len(counts) else "–"


def methods(found: Found) -> list[str]:
    return ordered([trial.method for setting in found.all for trial in setting.trials])


def tried(setting: Group, method: str) -> list[list[Trial]]:
    """The trials of a method at every K, or at none."""
    found = [setting.of(method, K) for K in ([None] if method in WHOLE else setting.counts)]
    return found if any(found) else []


def succeeded(setting: Group, method: str, success: Success) -> str:
    """ "0 / 6 of 6", or "0 of 6 / 3 of 3" where there are not as many trials of each K."""
    found = tried(setting, method)
    counts, all_alike = [str(sum(map(success, of))) for of in found], len(set(map(len, found))) == 1
    if all_alike:
        return f"{' / '.join(counts)} of {len(found[0])}"
    return " / ".join(f"{n} of {len(of)}" if of else "–" for n, of in zip(counts, found, strict=True)) or "–"


def wrong(setting: Group, method: str) -> str:
    """The share of pixels that are wrong, in percent, at every K."""
    return " / ".join(f"{wrong_pixels(of):.2f}" if of else "–" for of in tried(setting, method)) or "–"


def wrong_pixels(trials: Sequence[Trial]) -> float:
    """In percent: mean over trials and ten corruptions drawn after training."""
    return 100 * statistics.fmean(trial.result["pixel_error_fresh"] for trial in trials)
