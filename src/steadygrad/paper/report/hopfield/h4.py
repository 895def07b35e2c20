"""H4: the hidden state is steady within ten steps."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

from matplotlib.figure import Figure as Picture

from steadygrad.paper.report.hopfield.trials import GOOD, K, Setting, Sorted
from steadygrad.paper.report.panels import BANDS, DOTTED, grid, legend, lines
from steadygrad.paper.report.section import Figure, Finding, Part, Table, judged
from steadygrad.paper.report.style import look
from steadygrad.paper.report.text import percent
from steadygrad.paper.report.trial import middle, seeds_of
from steadygrad.paper.report.verdicts import Outcome

STEADY, WITHIN = 0.01, 10
"""Steady is where the state moves by less than this share of its norm a step; the paper says within ten steps."""
TOLERANCES = (1e-2, 1e-3, 1e-4, 1e-5)
MOVED = "‖hₜ − hₜ₋₁‖"
FLOOR = 1e-8
"""What float32 cannot resolve is not shown."""


def parts(found: Sorted) -> list[Part]:
    published, fixed = found.judged(steady)
    main = found.modes.get("as-published")
    shorter = main if published is not main and main and steady(main) is not Outcome.MISSING else None
    why = f"No tolerance is given; ours is {percent(STEADY)} of the norm a step, clean input"
    why += f"; after {shorter.setting['passes']} passes from step {last_step(shorter)}." if shorter else "."
    ours, corrected = (
        s and Finding(steady(s), f"from step {last_step(s)} on", seeds_of(s.good()), s.length) for s in (published, fixed)
    )
    return [judged("H4", f"The hidden state is steady within {WITHIN} steps", f"within {WITHIN}", ours, corrected, why)]


def steps(setting: Setting, key: str = "difference_clean", tolerance: float = STEADY) -> list[int | None]:
    return [steady_after(trial.result[key]["relative"], tolerance) for trial in setting.good()]


def steady(setting: Setting) -> Outcome:
    if not setting.good() or any(len(t.result["difference_clean"]["relative"]) < WITHIN for t in setting.good()):
        return Outcome.MISSING
    return Outcome.of(all(step is not None and step <= WITHIN for step in steps(setting)))


def last_step(setting: Setting) -> str:
    found = steps(setting)
    return "later than the last" if None in found else str(max(step for step in found if step is not None))


def steady_after(relative: Sequence[float], tolerance: float) -> int | None:
    """The first step from which on every difference is below the tolerance, counted from 1; None if even the last is not."""
    above = [step for step, value in enumerate(relative, 1) if not value < tolerance]
    last = above[-1] if above else 0
    return None if last == len(relative) else last + 1


def table(found: Sorted) -> Table:
    """From which step on the state moves less than a tolerance."""
    rows: list[tuple[str, ...]] = []
    for setting in (*found.all, *found.longer):
        for key, words in (("difference_clean", "clean"), ("difference", "corrupted")):
            if setting.good():
                cells = [spread(steps(setting, key, tolerance), setting.setting["updates"]) for tolerance in TOLERANCES]
                rows.append((setting.title, f"{setting.setting['passes']:,}", words, *cells))
    return Table(
        "hopfield-h4-steps",
        "H4: the step from which on the state moves by less than a share of its norm a step.",
        ("mode", "passes", "input", *(f"below {percent(tolerance)}" for tolerance in TOLERANCES)),
        tuple(rows),
        f"Trained networks of {', '.join(look(m).label for m in GOOD)} with K = {K}; in each trial the slowest of ten images; "
        "the range over trials. The verdict takes clean input, from which the network learns.",
    )


def spread(found: Sequence[int | None], most: int) -> str:
    inside = [step for step in found if step is not None]
    if not inside:
        return f"> {most}"
    low, high = str(min(inside)), str(max(inside)) if len(inside) == len(found) else f"> {most}"
    return low if low == high else f"{low} to {high}"


def numbers(found: Sorted) -> list[tuple[str, str, str]]:
    """How far step 10 moves the slowest image, median over trials: mode, clean, corrupted."""
    kept = [s for s in found.all if s.good() and steady(s) is not Outcome.MISSING]
    keys = ("difference_clean", "difference")
    moves = [[middle(s.good(), lambda t, k=k: t.result[k]["relative"][WITHIN - 1]) for k in keys] for s in kept]
    words = [[percent(float(f"{value or 0.0:.2g}")) for value in pair] for pair in moves]
    return [(s.title, clean, corrupted) for s, (clean, corrupted) in zip(kept, words, strict=True)]


def figure(found: Sorted) -> Figure:
    return Figure(
        "hopfield-h4",
        f"H4: how far the state moves in each step of the trained networks (K = {K}). Relative: the slowest of the ten images; "
        f"absolute: their mean. {BANDS}",
        "Falling curves of the state difference over 50 steps, a row a mode.",
        partial(draw, found),
        sum(len(setting.of(method)) for setting in found.all for method in setting.methods()),
    )


def draw(found: Sorted) -> Picture:
    picture, rows = grid(len(found.all), 3)
    kinds = (("clean input", "difference_clean"), ("corrupted", "difference"), ("corrupted, absolute", "difference"))
    for setting, axes in zip(found.all, rows, strict=True):
        for axis, (words, key), norm in zip(axes, kinds, ("relative", "relative", "absolute"), strict=True):
            lines(axis, setting.curves(lambda trial, key=key, norm=norm: trial.result[key][norm], first=1))
            axis.axvline(WITHIN, **DOTTED)
            axis.set(title=words, xlabel="step t", yscale="log")
            axis.set(ylim=(FLOOR, 3), ylabel=f"{MOVED} / ‖hₜ‖") if norm == "relative" else axis.set(ylabel=MOVED)
        for axis in axes[:2]:
            axis.axhline(STEADY, **DOTTED)
        axes[0].set_title(f"{setting.title}: clean")
        axes[2].set_ylim(bottom=max(axes[2].get_ylim()[0], 1e-6))
    legend(picture, rows, **{f"step {WITHIN}; {STEADY:.0%}": DOTTED})
    return picture
