"""Whether the trained networks are at a steady state, and what sg.diagnose says of them."""

from __future__ import annotations

from typing import Any

from steadygrad.paper.report.citation.g3 import STEADY
from steadygrad.paper.report.citation.trials import gradients
from steadygrad.paper.report.text import NO_BREAK, rough, short, to
from steadygrad.paper.report.trial import Group, median, middle

__all__ = ["STEADY"]  # for the template


def last_moves(place: Group) -> list[float]:
    """How far the last step moves the state, the median of each method."""
    found = (middle(place.of(method), lambda trial: trial.latest("difference_relative")) for method in gradients(place))
    return [value for value in found if value is not None]


def radius(place: Group) -> float | None:
    """ρ(J) in the middle of the methods."""
    return median(middle(place.of(m), lambda trial: trial.result.get("spectral_radius")) for m in gradients(place))


def initial_radius(place: Group) -> float | None:
    trials = [trial for method in gradients(place) for trial in place.of(method)]
    return middle(trials, lambda trial: trial.result.get("spectral_radius_initial"))


def diagnosed(place: Group, method: str) -> dict[str, Any] | None:
    return next((trial.result["diagnosis"] for trial in place.of(method) if trial.result.get("diagnosis")), None)


def bound(found: dict[str, Any] | None, name: str, sign: str) -> str:
    """A number that sg.diagnose did not settle is a bound."""
    if found is None:
        return "–"
    return f"{sign} {short(found[name])}" if name in found["not_settled"] else short(found[name])


def verdict(found: dict[str, Any] | None) -> str:
    if found is None:
        return "–"
    return "trust" if found["trustworthy"] else ", ".join(word.replace(" ", NO_BREAK) for word in found["findings"])


def moves_words(place: Group) -> str:
    low, high = (rough(value) for value in (min(last_moves(place)), max(last_moves(place))))
    return low if low == high else to(low.removesuffix(" %"), high)
