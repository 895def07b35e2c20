"""A diagnosis as text."""

from __future__ import annotations

import math
import textwrap

from steadygrad.diagnose.diagnosis import Diagnosis

WIDTH = 96
_MOTION = {
    "steady": "steady",
    "approaching": "approaching a steady state",
    "receding": "its steps shrink, but ρ(J) is above 1",
    "cycle": "cycling",
    "drifting": "drifting",
    "growing": "growing",
    "nonfinite": "inf or NaN",
}


def table(d: Diagnosis) -> str:
    """Names, numbers and what they mean, then the verdict and the advice."""
    where = f"{d.problems} problems of {d.size}" if d.problems > 1 else f"{d.size}"
    lines = [f"Diagnosis of a state of {where} element{'s' if d.size > 1 else ''}", "─" * WIDTH]
    for name, value, meaning in _rows(d):
        head = f"{name:<26}{value:<14}"
        first, *rest = textwrap.wrap(meaning, WIDTH - len(head)) or [""]
        lines += [(head + first).rstrip(), *(" " * len(head) + line for line in rest)]
    lines.append("─" * WIDTH)
    lines += _paragraph("Verdict", d.verdict)
    lines += [line for finding in d.findings[1:] for line in _paragraph("Also", finding.text)]
    lines += _paragraph("Advice", d.advice)
    return "\n".join(lines)


def _paragraph(name: str, text: str) -> list[str]:
    indent = " " * 9
    return textwrap.wrap(f"{name + ':':<9}{text}", WIDTH, subsequent_indent=indent) if text else []


def _rows(d: Diagnosis) -> list[tuple[str, str, str]]:
    def number(name: str, value: float, sign: str) -> str:
        return ("?" if math.isnan(value) else f"{sign if name in d.bounds else ''}{_short(value)}") + " " * 2

    left = f", about {d.motion.steps_left:.0f} steps away" if d.course == "approaching" else ""
    left = f", period {d.motion.period}" if d.motion.kind == "cycle" else left
    rows = [
        ("‖F(h) − h‖ / ‖F(h)‖", number("", d.relative_residual, ""), _MOTION[d.course] + left),
        ("distance to steady state", number("distance", d.distance, "~"), "relative, by one Newton step"),
        ("ρ(J)", number("spectral_radius", d.spectral_radius, "~"), "the Neumann series converges iff it is below 1"),
        ("‖J‖₂", number("norm", d.norm, "≥ "), "below 1: a contraction"),
        ("σ_min(I − J)", number("min_singular_value", d.min_singular_value, "≤ "), _gain(d)),
        ("non-normality ‖J‖/ρ", number("", d.non_normality, ""), "1 where J is normal"),
        ("Neumann terms", *_terms(d)),
    ]
    if d.derivative is not None:
        rows.append(("Jv against a difference", number("", d.derivative.mismatch, ""), "relative; large: autograd misses a path"))
    rows.append(("F twice at one state", number("", d.randomness, ""), _randomness(d)))
    if d.starts:
        rows.append(("other starts", "", "; ".join(f"{start.name}: {start.outcome}" for start in d.starts)))
    rows += [(f"∂F/∂({name})", _short(found.here), found.kind) for name, found in d.parameters.items()]
    rows += [(name, "?", reason) for name, reason in d.unknown.items()]
    rows.append(("cost", "", f"{d.evaluations} calls of F, {d.products} products with J"))
    return rows


def _short(value: float) -> str:
    return f"{value:.3g}"


def _gain(d: Diagnosis) -> str:
    if math.isnan(d.min_singular_value):
        return ""
    gain = 1 / d.min_singular_value if d.min_singular_value else math.inf
    return f"the gradient is amplified up to {_short(gain)} times" if math.isfinite(gain) else "I − J is singular"


def _terms(d: Diagnosis) -> tuple[str, str]:
    if d.decay is None:
        return "?", ""
    counts = {rtol: d.steps_for(rtol) for rtol in (1e-2, 1e-3, 1e-5)}
    known = [f"{count} for {rtol:.0e}" for rtol, count in counts.items() if count is not None]
    return "", ", ".join(known) or (
        "no number of them suffices" if d.decay.errors else "unknown: the adjoint equation was not solved"
    )


def _randomness(d: Diagnosis) -> str:
    if d.randomness == 0:
        return "the same both times"
    return "differs: F is random" + ("" if d.uncontrolled else ", but repeats within a solve")
