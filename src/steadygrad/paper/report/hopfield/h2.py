"""H2: the share of trials that end below half the initial training loss, at K = 10 / 20 / 30; and why RBP fails."""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable, Sequence
from dataclasses import replace

from steadygrad.paper.report.hopfield.trials import training
from steadygrad.paper.report.sorting import Found
from steadygrad.paper.report.trial import WHOLE, Group, Trial, median, ranked
from steadygrad.paper.report.verdicts import Findings, Outcome, all_of

COUNTS = [10, 20, 30]
"""The paper's K."""
PAPER = {"tbptt": (100, 100, 100), "rbp-uniform": (1, 4, 99), "cg-rbp": (100, 100, 100), "neumann-rbp": (100, 100, 100)}
"""Its success rates in percent, by method, at each of them."""
HALF = 0.5
STARTS = ("rbp-uniform", "rbp-zeros")
"""RBP from its random start, and from zero."""
Success = Callable[[Trial], bool]


def strict(trial: Trial) -> bool:
    """The initial loss is that before any update."""
    return bool(trial.result["success"])


def first_ratio(trial: Trial) -> float:
    """The final training loss over that of the first pass."""
    return training(trial)[-1] / training(trial)[0]


def overshot(trial: Trial) -> bool:
    """The initial loss is the mean over the first pass, in which Adam's first steps overshoot."""
    return first_ratio(trial) < HALF


READINGS: dict[str, Success] = {"before any update": strict, "of the first pass": overshot}


def rate(setting: Group, method: str, K: int, success: Success) -> float | None:
    """The share of trials that succeed; None without trials."""
    trials = setting.of(method, K)
    return statistics.fmean(map(success, trials)) if trials else None


def agrees(setting: Group, success: Success = strict) -> Outcome:
    """All but RBP always succeed, and RBP is on the paper's side of 50 % at every K; one of them is enough against it."""

    def one(method: str, K: int, paper: int) -> bool | None:
        ours = rate(setting, method, K, success)
        return None if ours is None else (ours > HALF) == (paper > 100 * HALF) if method == "rbp-uniform" else ours == 1

    return all_of(Outcome.of(one(method, *pair)) for method, row in PAPER.items() for pair in zip(COUNTS, row, strict=True))


def decided(setting: Group) -> Outcome:
    """MISSING unless every reading can be judged."""
    outcomes = [agrees(setting, success) for success in READINGS.values()]
    return Outcome.MISSING if Outcome.MISSING in outcomes else outcomes[0]


def readings(found: Found) -> Findings:
    """As published under both readings, by the longest trials that decide both."""
    published, corrected = found.judged(decided, seeds=lambda group: group.common_seeds(PAPER, COUNTS))
    outcomes = tuple(agrees(published.of, success) for success in READINGS.values() if published.of)
    return replace(published, outcome=outcomes), replace(corrected, outcome=found.judged(agrees)[1].outcome)


def lacking(setting: Group) -> dict[str, list[int]]:
    """The methods of the table that have no trial, with the K at which they have none."""
    missing = {method: [K for K in COUNTS if not setting.of(method, K)] for method in PAPER}
    return {method: counts for method, counts in missing.items() if counts}


def rates_words(setting: Group, success: Success) -> str:
    """In percent: of all but RBP, from the lowest to the highest, then of RBP at each K; what was not run is a dash."""
    found = {method: [rate(setting, method, K, success) for K in COUNTS] for method in PAPER}
    others = sorted(value for method, of in found.items() if method != "rbp-uniform" for value in of if value is not None)
    rbp = " / ".join("–" if value is None else f"{100 * value:.3g}" for value in found["rbp-uniform"])
    return f"{' to '.join(dict.fromkeys(f'{100 * value:.3g}' for value in (*others[:1], *others[-1:])))} %, RBP {rbp} %"


def tried(setting: Group, method: str, counts: Sequence[int]) -> list[list[Trial]]:
    """The trials of a method at each of these K, or of one that has no K."""
    return [setting.of(method, K) for K in ([None] if method in WHOLE else counts)]


def norm_of_start(trial: Trial) -> float:
    """‖z₀‖ of original RBP, whose entries are uniform on [0, 1]: √(n/3) for n free neurons."""
    return math.sqrt((trial.config["hidden"] + trial.config["side"] ** 2) / 3)


def worst(trial: Trial, K: int) -> tuple[float, float, float]:
    """What K steps leave of RBP's start, ρᴷ‖z₀‖/‖b‖, where it is largest along training; then ρ and ‖b‖ there."""
    seen = zip(trial.seen("spectral_radius"), trial.seen("cotangent"), strict=True)
    left = ((rho**K * norm_of_start(trial) / b, rho, b) for rho, b in seen if rho is not None and b)
    return max(left, default=(math.nan, math.nan, math.nan))


def at_worst(setting: Group, K: int) -> list[float | None]:
    """In the middle of BPTT's trials: ρᴷ‖z₀‖/‖b‖ where it is largest, then ρ and ‖b‖ there."""
    exact = setting.of("bptt") or setting.of("neumann-rbp")
    return [median(of) for of in zip(*(worst(trial, K) for trial in exact), strict=True)]


def residual(trial: Trial) -> float | None:
    """The largest residual of the adjoint equation in training."""
    return max(ranked(trial.seen("adjoint_residual")), default=None)
