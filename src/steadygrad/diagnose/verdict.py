"""From numbers to words: what a diagnosis finds, the worst first, each with its advice."""

from __future__ import annotations

import math
from collections.abc import Iterator

from steadygrad.diagnose.advice import DOUBLE, Used, expansive, fragile, not_creeping, rest
from steadygrad.diagnose.diagnosis import Diagnosis, Finding
from steadygrad.solution import Status

FRAGILE = 1e-2
"""σ_min(I − J) below which small changes of J change the gradient much."""
SINGULAR = 10
"""σ_min(I − J) of so many rounding units of max(1, ‖J‖) is zero as far as the dtype can tell."""
SLOW = 100
"""Neumann terms for 1e-3 beyond which another solver is the better advice."""
CLOSE = 100
"""A distance of at most so many rtol, 1 % by default, is close: what the gradient changes by is of that order."""
NEAR_ONE = 0.9
"""ρ(J) from which on an unsettled σ_min leaves it open whether I − J is invertible."""


def findings(d: Diagnosis, rtol: float, used: Used) -> tuple[Finding, ...]:
    """All findings, fatal ones first; where none is fatal and nothing needs repair, the first says that all is well."""
    checks = (_state(d, rtol, used), _function(d), _operator(d, used), _parameters(d), _remarks(d))
    found = [finding for check in checks for finding in check]
    order = ["fatal", "repair", "note"]
    found.sort(key=lambda finding: order.index(finding.severity))
    if not found or found[0].severity == "note":
        found.insert(0, _well(d, used))
    return tuple(found)


def _state(d: Diagnosis, rtol: float, used: Used) -> Iterator[Finding]:
    if d.motion.kind == "nonfinite":
        yield Finding(
            "nonfinite", "fatal",
            "F returns inf or NaN at this state: it has no gradient, and nothing else was measured.",
            "Check the state, the inputs and the parameters; torch.autograd.detect_anomaly() names the operation.",
        )  # fmt: skip
        return
    if not d.differentiable:
        yield Finding(
            "no derivative", "fatal",
            "The derivative of F is inf or NaN at this state, though F itself is finite: it has no gradient.",
            "Look for sqrt, norm, pow or log at zero, or torch.where around them; shift their argument by a small number.",
        )  # fmt: skip
    if d.motion.kind != "steady" and d.distance <= CLOSE * rtol and "distance" not in d.bounds:
        close = f"This state is close to steady, not more. {_moves(d)}"
        yield Finding("nearly steady", "repair", close, rest(d, used))
    elif d.motion.kind != "steady":
        moves = f"This is not a steady state: the gradient means nothing. {_moves(d)}"
        yield Finding("not steady", "fatal", moves, rest(d, used))
    elif d.distance > CLOSE * rtol:
        yield Finding(
            "slow", "fatal",
            f"This is not a steady state: the gradient means nothing. The residual is only {d.relative_residual:.1e}, but that "
            f"is because F moves slowly: the steady state is about {d.distance:.2g} of ‖h‖ away.",
            not_creeping(used),
        )  # fmt: skip


def _moves(d: Diagnosis) -> str:
    some = f"{d.motion.moving} of {d.problems} problems move" if d.problems > 1 else "It moves"
    how = {
        "approaching": f"on its way to one that is about {d.motion.steps_left:.0f} steps off",
        "receding": f"in steps that shrink, but small changes grow (ρ(J) = {d.spectral_radius:.2g}): it need not come to rest",
        "cycle": f"round a cycle of period {d.motion.period}",
        "drifting": "without coming to rest",
        "growing": "and ever faster",
    }[d.course]
    return f"{some} by {_percent(d.relative_residual)} a step, {how}."


def _function(d: Diagnosis) -> Iterator[Finding]:
    if d.derivative is not None and d.derivative.wrong:
        yield Finding(
            "wrong derivative", "fatal",
            "The derivative that autograd sees is not that of F: one product Jv differs from a finite difference by "
            f"{_percent(d.derivative.mismatch)}. The gradient is wrong, however good its certificate.",
            "Look for detach(), no_grad(), .data, numpy, or a collective without a derivative on the way from h to F(h).",
        )  # fmt: skip
    elif d.derivative is not None and d.derivative.unsettled:
        yield Finding(
            "not differentiable", "fatal",
            f"F is not differentiable here: a finite difference changes by {_percent(d.derivative.uncertainty)} with its step "
            "size.",
            "Replace jumps (round, sign, argmax, comparisons) by smooth functions"
            + ("." if d.eps < DOUBLE else ", or use float64 if the state is near its rounding."),
        )  # fmt: skip
    if d.uncontrolled > 0:
        yield Finding(
            "random", "fatal",
            f"F is random: two calls at one state differ by {_percent(d.randomness)}, even with torch's random draws repeated. "
            "There is no steady state.",
            "Draw the noise before the solve and pass it to F as an argument.",
        )  # fmt: skip
    elif d.randomness > 0:
        yield Finding(
            "random", "repair",
            f"F is random: two calls at one state differ by {_percent(d.randomness)}. Within one solve steadygrad repeats the "
            "draws, so the steady state belongs to one draw; this diagnosis is of another than your solve was.",
            "Call .eval() to diagnose, or draw one mask before the solve and pass it to F as an argument.",
        )  # fmt: skip


def _operator(d: Diagnosis, used: Used) -> Iterator[Finding]:
    scale = max(1.0, d.norm) if not math.isnan(d.norm) else 1.0
    unsolved = d.decay is not None and d.decay.status is not Status.CONVERGED
    if d.min_singular_value <= SINGULAR * d.eps * scale:
        yield Finding(
            "singular", "fatal",
            f"I − J is singular (σ_min = {d.min_singular_value:.1e}): the steady state is not isolated, and its gradient is not "
            "defined.",
            "F lets some direction of the state stay as it is: give it a leak (h ← 0.9 h + …), fix that direction, or add "
            "sg.penalty.lanczos or sg.penalty.gershgorin to the loss.",
        )  # fmt: skip
    elif d.min_singular_value <= FRAGILE:
        yield Finding(
            "fragile", "repair",
            f"I − J is nearly singular (σ_min = {d.min_singular_value:.1e}): the gradient may be amplified "
            f"{1 / d.min_singular_value:.0f} times, and errors with it.",
            fragile(d, used),
        )  # fmt: skip
    elif "min_singular_value" in d.bounds and d.spectral_radius > NEAR_ONE and unsolved:
        yield Finding(
            "unsolved", "repair",
            "Whether I − J is invertible could not be shown: its smallest singular value has not settled (it is at most "
            f"{d.min_singular_value:.1e}), and the adjoint equation for a test cotangent was not solved either.",
            "Look at the certificate of your own backward pass; if it does not converge, add sg.penalty.lanczos to the loss.",
        )  # fmt: skip
    if d.spectral_radius >= 1:
        yield Finding(
            "expansive", "repair",
            f"The Neumann series diverges (ρ(J) = {d.spectral_radius:.3g}): RBP and Neumann-RBP would give a finite, meaningless "
            "gradient. F does not settle here by itself.",
            expansive(used),
        )  # fmt: skip


def _parameters(d: Diagnosis) -> Iterator[Finding]:
    degenerate = [name for name, found in d.parameters.items() if found.kind == "degenerate"]
    unused = [name for name, found in d.parameters.items() if found.kind == "unused"]
    if degenerate:
        yield Finding(
            "degenerate", "repair",
            f"The steady state does not depend on {_listed(degenerate)}: ∂F/∂θ = 0 there, so the implicit gradient is zero "
            "whatever the loss.",
            "That is a property of the problem (as for the learning rate and momentum of SGD at the end of training), not a sign "
            'that the value is best. Differentiate the trajectory instead (gradient="bptt", or forward mode over the steps), or '
            "tune something that moves the steady state, such as weight decay.",
        )  # fmt: skip
    if unused:
        yield Finding("unused", "repair", f"F does not use {_listed(unused)}, as far as autograd sees.",
                      "Check what F closes over, and whether it detaches them.")  # fmt: skip


def _remarks(d: Diagnosis) -> Iterator[Finding]:
    if d.norm == 0 and not (d.derivative is not None and d.derivative.wrong):
        yield Finding("constant", "note", "J = 0 at this state: to first order F does not depend on h there.",
                      'gradient="one-step" is exact; if F should depend on h, look for a detach().')  # fmt: skip
    if d.norm > 1 > d.spectral_radius:
        yield Finding(
            "non-normal", "note",
            f"J is not a contraction in norm (‖J‖ = {d.norm:.2g}), so the bound of Proposition 3 says nothing; the series "
            "converges all the same, since ρ(J) < 1.",
            "",
        )  # fmt: skip
    others = [start for start in d.starts if start.outcome == "other"]
    if others:
        yield Finding(
            "several", "note",
            f"Other starts ({_listed([start.name for start in others])}) end in another steady state: the value, and its "
            "gradient, depend on h0.",
            "Keep h0 fixed, or make it part of what you report.",
        )  # fmt: skip


def _well(d: Diagnosis, used: Used) -> Finding:
    if math.isnan(d.spectral_radius) or math.isnan(d.min_singular_value):
        return Finding(
            "sound", "note", "No objection found, though not everything could be measured.", 'gradient="auto" adapts to J.'
        )
    inverse = "I − J is invertible" if "min_singular_value" not in d.bounds else "the adjoint equation can be solved"
    text = f"The assumptions hold: the state is steady, {inverse}, and ρ(J) = {d.spectral_radius:.2g}, so the series converges."
    K = d.steps_for(1e-3)
    if K is None or K > SLOW:
        known = used.left(("auto", "auto"), ("gmres", "gmres"))
        advice = 'The series is slow here: use gradient="auto" or "gmres".' if len(known) == 2 else ""
        return Finding("sound", "note", text, advice)
    whose = "" if d.own_cotangent else " (for a random cotangent; give cotangent= for that of your loss)"
    return Finding("sound", "note", text, f'gradient="auto", or Implicit(Neumann(steps={K})) for a gradient within 1e-3{whose}.')


def _percent(value: float) -> str:
    return f"{100 * value:.2g} %" if value < 0.995 else f"{100 * value:.0f} %"


def _listed(names: list[str]) -> str:
    shown = names[:6]
    more = f" and {len(names) - 6} more" if len(names) > 6 else ""
    return ", ".join(shown) + more
