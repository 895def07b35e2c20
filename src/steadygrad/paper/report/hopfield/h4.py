"""H4: the hidden state is steady within ten steps."""

from __future__ import annotations

from collections.abc import Sequence

from matplotlib.axes import Axes
from matplotlib.figure import Figure as Picture

from steadygrad.paper.report.hopfield.trials import GOOD, K, drawn, good, good_seeds
from steadygrad.paper.report.panels import DOTTED, Panel, Points, draw
from steadygrad.paper.report.section import Findings
from steadygrad.paper.report.sorting import Found
from steadygrad.paper.report.trial import Group, Trial, middle
from steadygrad.paper.report.verdicts import Outcome

__all__ = ["GOOD", "K", "drawn"]  # for the template
STEADY, WITHIN = 0.01, 10
"""Steady is where the state moves by less than this share of its norm a step; the paper says within ten steps."""
TOLERANCES = (1e-2, 1e-3, 1e-4, 1e-5)
CLEAN, CORRUPTED = "difference_clean", "difference"
FLOOR = 1e-8
"""What float32 cannot resolve is not shown."""


def steps(setting: Group, key: str = CLEAN, tolerance: float = STEADY) -> list[int | None]:
    return [steady_after(trial.result[key]["relative"], tolerance) for trial in good(setting)]


def steady(setting: Group) -> Outcome:
    if not good(setting) or any(len(t.result[CLEAN]["relative"]) < WITHIN for t in good(setting)):
        return Outcome.MISSING
    return Outcome.of(all(step is not None and step <= WITHIN for step in steps(setting)))


def judged(found: Found) -> Findings:
    return found.judged(steady, seeds=good_seeds)


def last_step(setting: Group) -> str:
    found = steps(setting)
    return "later than the last" if None in found else str(max(filter(None, found)))


def steady_after(relative: Sequence[float], tolerance: float) -> int | None:
    """The first step from which on every difference is below the tolerance, counted from 1; None if even the last is not."""
    above = [step for step, value in enumerate(relative, 1) if not value < tolerance]
    last = above[-1] if above else 0
    return None if last == len(relative) else last + 1


def moved(setting: Group, key: str) -> float:
    """How far step 10 moves the slowest image, median over trials."""
    return middle(good(setting), lambda trial: trial.result[key]["relative"][WITHIN - 1]) or 0.0


def spread(setting: Group, key: str, tolerance: float) -> str:
    """The step from which on the state moves less than a tolerance: the range over trials."""
    found, most = steps(setting, key, tolerance), setting.setting["updates"]
    inside = sorted(step for step in found if step is not None)
    ends = [*map(str, inside[:1]), f"> {most}" if len(inside) < len(found) else str(inside[-1])]
    return " to ".join(dict.fromkeys(ends))


def differences(found: Found) -> Picture:
    def series(trial: Trial, key: str, norm: str) -> Points:
        return range(1, 1 + len(trial.result[key][norm])), trial.result[key][norm]

    def above_rounding(axis: Axes) -> None:
        axis.set_ylim(bottom=max(axis.get_ylim()[0], 1e-6))

    rows: list[list[Panel]] = []
    for s in found.all:
        words, y = ("step t", "‖hₜ − hₜ₋₁‖ / ‖hₜ‖", True), "‖hₜ − hₜ₋₁‖"
        clean, relative, absolute = (
            s.curves(lambda t, key=key, norm=norm: series(t, key, norm))
            for key, norm in ((CLEAN, "relative"), (CORRUPTED, "relative"), (CORRUPTED, "absolute"))
        )
        rows.append(
            [
                Panel(clean, f"{s.title}: clean", *words, level=STEADY, at=WITHIN, height=(FLOOR, 3)),
                Panel(relative, "corrupted", *words, level=STEADY, at=WITHIN, height=(FLOOR, 3)),
                Panel(absolute, "corrupted, absolute", words[0], y, True, at=WITHIN, last=above_rounding),
            ]
        )
    return draw(rows, {f"step {WITHIN}; {STEADY:.0%}": DOTTED})
