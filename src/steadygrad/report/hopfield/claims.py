"""What the records say on claims H1 to H4 of the paper: a judgement a mode, and the verdict of both together."""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable, Sequence
from functools import partial

from steadygrad.report.finding import Finding, missing, verdict
from steadygrad.report.hopfield.trials import (
    MODES,
    TITLES,
    K,
    Mode,
    Sorted,
    Trial,
    largest,
    middle,
    pairs,
    start_error,
    steady_after,
)
from steadygrad.report.section import Claim
from steadygrad.report.style import look
from steadygrad.report.text import number, percent, plural

FOLLOWS = 0.1
"""H1: a curve follows BPTT's if they are nowhere further apart than this, relative to BPTT's, in any seed."""
BLOWS_UP = 2.0
"""H1: a loss has blown up where it ends above this many times BPTT's."""
PAPER_RATES = {
    "tbptt": {10: 1.0, 20: 1.0, 30: 1.0},
    "rbp": {10: 0.01, 20: 0.04, 30: 0.99},
    "cg-rbp": {10: 1.0, 20: 1.0, 30: 1.0},
    "neumann-rbp": {10: 1.0, 20: 1.0, 30: 1.0},
}
"""H2: the paper's success rates, method and K."""
RETRIEVED = 0.01
"""H3: an image is retrieved if at most this share of its pixels is wrong, on average over seeds."""
STEADY, WITHIN = 0.01, 10
"""H4: steady is where the state moves by less than this share of its norm a step; the paper says within ten steps."""
GOOD = ("bptt", "tbptt", "cg-rbp", "neumann-rbp")
"""The methods of which the paper says that they work."""


def claims(found: Sorted) -> tuple[Claim, ...]:
    h1_text = f"CG-RBP and Neumann-RBP follow BPTT's training and validation curves; original RBP blows up (K = {K})."
    h2_text = "Share of trials that end below half the initial training loss, at K = 10 / 20 / 30."
    h2_paper = "TBPTT, CG-RBP, Neumann-RBP 100 / 100 / 100 %; RBP 1 / 4 / 99 %"
    return (
        claim(found, "H1", h1_text, "curves only", h1),
        claim(found, "H2", h2_text, h2_paper, h2),
        claim(found, "H3", "The digits are retrieved from corrupted images.", "pictures only", h3),
        claim(found, "H4", f"The hidden state is steady within {WITHIN} steps.", "no tolerance given", h4),
    )


def claim(found: Sorted, name: str, text: str, paper: str, judge: Callable[[Sorted, Mode], Finding]) -> Claim:
    """Each mode judged on its own, and the verdict of both."""
    findings = {mode.title: judge(found, mode) for mode in found.all}
    ours = " ".join(f"{title}: {finding.ours}." for title, finding in findings.items() if finding.ours)
    reasons = [f"{title}: {finding.why}." for title, finding in findings.items()]
    reasons += [f"{TITLES[mode]}: no trials." for mode in MODES if mode not in found.modes]
    holds = [finding.holds for finding in findings.values() if finding.holds is not None]
    return Claim(name, text, paper, ours, verdict(holds), " ".join(reasons))


def h1(found: Sorted, mode: Mode) -> Finding:
    followers = {method: pairs(mode, method) for method in ("cg-rbp", "neumann-rbp")}
    original = pairs(mode, "rbp")
    if not all(followers.values()) or not original:
        return missing(f"BPTT, CG-RBP, Neumann-RBP and RBP from one seed, K = {K}")
    gaps = {method: max(apart(*pair) for pair in of_method) for method, of_method in followers.items()}
    ratios = [ratio(trial.training[-1], exact.training[-1]) for trial, exact in original]
    ups = sum(value > BLOWS_UP for value in ratios)
    follow = max(gaps.values()) <= FOLLOWS
    within = ", ".join(f"{look(method).label} {within_words(gap)}" for method, gap in gaps.items())
    ours = f"{within} of BPTT; RBP ends at {times(statistics.median(ratios))} BPTT's loss"
    controls = [apart(*pair) for pair in pairs(mode, "auto")]
    control = f"; auto, whose adjoint is solved to tolerance, {within_words(max(controls))}" if controls else ""
    why = (
        f"both {'follow BPTT' if follow else 'do not follow BPTT'} (limit: {percent(FOLLOWS)} at every pass of every seed"
        f"{control}), RBP blows up (above {number(BLOWS_UP)} times BPTT) in {ups} of {plural(len(ratios), 'seed')}"
    )
    if (left := middle([exact for _, exact in original], lambda trial: start_error(trial, K))) is not None:
        why += f": after {K} steps its start z₀ should still be {rounded(left)} times ‖b‖ at the worst pass"
    return Finding(follow and ups > len(ratios) / 2, ours, why)


def within_words(gap: float) -> str:
    return "not within any distance" if math.isinf(gap) else f"within {percent(float(f'{gap:.2g}'))}"


def apart(trial: Trial, exact: Trial) -> float:
    """The largest distance of the two trials' curves, training and validation, relative to BPTT's."""
    curves = ((trial.training, exact.training), (trial.seen("l1"), exact.seen("l1")))
    if any(len(ours) != len(theirs) for ours, theirs in curves):
        return math.inf  # one of them ended early, since its loss was not finite
    gaps = [abs(ours - theirs) / theirs for curve in curves for ours, theirs in zip(*curve, strict=True)]
    return largest(gaps) or 0.0


def ratio(ours: float, theirs: float) -> float:
    return ours / theirs if math.isfinite(ours) and theirs else math.inf


def h2(found: Sorted, mode: Mode) -> Finding:
    rates: dict[str, list[float]] = {}
    trials: set[int] = set()
    for method, published in PAPER_RATES.items():
        for steps in published:
            if not (of_method := mode.of(method, steps)):
                return missing(f"{look(method).label} with K = {steps}")
            rates.setdefault(method, []).append(statistics.fmean(trial.result["success"] for trial in of_method))
            trials.add(len(of_method))
    always = all(rate == 1 for method in rates if method != "rbp" for rate in rates[method])
    sides = [(ours > 0.5) == (paper > 0.5) for ours, paper in zip(rates["rbp"], PAPER_RATES["rbp"].values(), strict=True)]
    ours = "; ".join(f"{look(m).label} {' / '.join(f'{100 * rate:.3g}' for rate in row)} %" for m, row in rates.items())
    ours += f" ({plural(min(trials), 'trial')} each{f', up to {max(trials)}' * (len(trials) > 1)})"
    same = [steps for steps, agrees in zip(PAPER_RATES["rbp"], sides, strict=True) if agrees]
    return Finding(always and all(sides), ours, "; ".join(filter(None, why_h2(found, mode, always, same))))


def why_h2(found: Sorted, mode: Mode, always: bool, same: Sequence[int]) -> list[str]:
    """Whether the others succeed, where RBP agrees with the paper, and what its start should do to it."""
    exact = mode.of("bptt")
    if always or not exact or any(trial.result["success"] for trial in exact):
        first = f"TBPTT, CG-RBP and Neumann-RBP {'always' if always else 'do not always'} succeed"
    else:
        end = statistics.median(loss_left(trial) for trial in exact)
        first = (
            f"BPTT itself ends at {times(end)} the initial loss ({number(mode.setting['passes'])} passes{longer(found, mode)})"
        )
    second = f"RBP is on the paper's side of 50 % at {'K = ' + ', '.join(map(str, same)) if same else 'no K'}"
    counts = list(PAPER_RATES["rbp"])
    losses = [middle(mode.of("rbp", steps), partial(relative_loss, exact)) for steps in counts]
    left = [middle(exact, lambda trial, steps=steps: start_error(trial, steps)) for steps in counts]
    return [
        first,
        second,
        f"its final loss is {strokes(losses, 3)} times BPTT's" if None not in losses else "",
        f"after K steps its start z₀ should still be {strokes(left)} times ‖b‖ at the worst pass" if None not in left else "",
    ]


def relative_loss(exact: Sequence[Trial], trial: Trial) -> float | None:
    """The final loss of a trial relative to BPTT's from the same seed."""
    return next((ratio(trial.result["final_loss"], t.result["final_loss"]) for t in exact if t.seed == trial.seed), None)


def strokes(values: Sequence[float | None], digits: int = 2) -> str:
    return " / ".join(rounded(value, digits) for value in values if value is not None)


def rounded(value: float, digits: int = 2) -> str:
    return number(float(f"{value:.{digits}g}"))


def longer(found: Sorted, mode: Mode) -> str:
    """The trials that differ from the mode in having more passes."""
    passes = mode.setting["passes"]
    fits = [v for v in found.variants if v.base.name == mode.name and set(v.changes) <= {"passes", "validate_every"}]
    more = [trial for variant in fits for trial in variant.trials if trial.config["passes"] > passes]
    return "".join(f"; {look(t.method).label} {times(loss_left(t))} after {number(t.config['passes'])}" for t in more)


def loss_left(trial: Trial) -> float:
    return ratio(trial.result["final_loss"], trial.result["initial_loss"])


def h3(found: Sorted, mode: Mode) -> Finding:
    trials = {method: mode.of(method) for method in GOOD}
    if lacking := [look(method).label for method, of_method in trials.items() if not of_method]:
        return missing(", ".join(lacking))
    errors = {method: max(mean(t, "pixel_error"), mean(t, "pixel_error_fresh")) for method, t in trials.items()}
    worst = max(errors, key=lambda method: errors[method])
    right = [look(method).label for method, error in errors.items() if error <= RETRIEVED]
    caused = statistics.fmean(trial.result["pixel_error_corrupted"] for of_method in trials.values() for trial in of_method)
    ours = f"at most {percent(errors[worst])} of pixels wrong ({look(worst).label}); corrupted images {percent(caused)}"
    who = "all of them" if len(right) == len(GOOD) else f"only {', '.join(right)}" if right else "none of them"
    why = f"of {', '.join(look(m).label for m in GOOD)}, {who} got {percent(1 - RETRIEVED)} of the pixels right"
    return Finding(len(right) == len(GOOD), ours, why)


def mean(trials: Sequence[Trial], key: str) -> float:
    return statistics.fmean(trial.result[key] for trial in trials)


def h4(found: Sorted, mode: Mode) -> Finding:
    trials = [trial for method in GOOD for trial in mode.of(method)]
    if not trials or any(len(trial.result["difference_clean"]["relative"]) < WITHIN for trial in trials):
        return missing(f"{' or '.join(look(method).label for method in GOOD)}, with {WITHIN} updates or more")
    clean, corrupted = (
        [steady_after(trial.result[key]["relative"], STEADY) for trial in trials] for key in ("difference_clean", "difference")
    )
    steps = f"{last(clean)} on with clean input, {last(corrupted)} on with corrupted"
    ours = f"moves less than {percent(STEADY)} of its norm a step from step {steps}"
    at = max(trial.result["difference_clean"]["relative"][WITHIN - 1] for trial in trials)
    rho = middle(trials, lambda trial: trial.result["spectral_radius"]) or math.nan
    moved = percent(float(f"{at:.2g}"))
    why = f"step {WITHIN} moves it by {moved} (clean input; our tolerance is {percent(STEADY)}), where ρ(J) = {rho:.2f}"
    return Finding(all(step is not None and step <= WITHIN for step in clean), ours, why)


def last(steps: Sequence[int | None]) -> str:
    return "later than the last" if None in steps else str(max(step for step in steps if step is not None))


def times(value: float) -> str:
    return f"{number(float(f'{value:.3g}'))} times"
