"""P1 to P4 and A1, measured: gradients against K, the bound on the series, and what each penalty does to a map."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

import torch

import steadygrad as sg
from steadygrad.paper.experiments.experiment import Preset, ReportProgress
from steadygrad.paper.experiments.methods import Gradient, short
from steadygrad.paper.experiments.theory.maps import Map, relative
from steadygrad.paper.experiments.theory.penalties import PENALTIES, PenaltyName, penalised
from steadygrad.paper.records import Record

LENGTH = 600
"""Steps of P1, enough for ρ(J) = 0.95: 0.95⁶⁰⁰ = 4e-14."""


@dataclass(frozen=True)
class TheoryConfig:
    """One trial: a random map h ← tanh(W h + x), and what is measured of it."""

    part: Literal["series", "penalty"] = "series"
    """series: P1 to P4; penalty: what descending a penalty does to the map (A1)"""
    penalty: PenaltyName = "none"
    """which penalty (penalty)"""
    radius: float = 0.8
    """spectral radius of W; that of J at the steady state is a little smaller"""
    size: int = 30
    """numbers in the state"""
    terms: int = 60
    """largest K (series)"""
    descents: int = 100
    """steps of Adam on the penalty, rate 0.002 (penalty)"""
    seed: int = 0
    """seed of W, x and the loss"""

    def __post_init__(self) -> None:
        for name in ("size", "terms", "descents"):
            if getattr(self, name) < 1:
                raise ValueError(f"{name} must be at least 1; got {getattr(self, name)}.")
        if (self.penalty == "none") != (self.part == "series"):
            raise ValueError(f"a penalty goes with part=penalty, and only with it; got {self.penalty} and {self.part}.")


def run(config: TheoryConfig, report: ReportProgress) -> dict[str, Any]:
    made = Map.drawn(config.size, config.radius, config.seed)
    return series(config, made, report) if config.part == "series" else penalised(config, made, report)


def series(config: TheoryConfig, made: Map, report: ReportProgress) -> dict[str, Any]:
    """Gradients by K steps or terms against the exact one, and the bound of P3, all at one steady state."""
    h = made.settled()
    J = made.jacobian(h)
    exact = made.gradient_dense(h, J)
    identity = torch.eye(config.size, dtype=J.dtype)
    inverse = torch.linalg.inv(identity - J)
    norm, scale = (float(torch.linalg.matrix_norm(matrix, 2)) for matrix in (J, inverse))
    found: dict[str, list[Any]] = {}
    partial, power = torch.zeros_like(J), identity
    for K in range(config.terms + 1):
        partial, power = partial + power, power @ J
        neumann = made.gradient(h, sg.Implicit(sg.Neumann(steps=K)))
        entry: dict[str, Any] = {
            "K": K,
            "neumann": relative(neumann, exact),
            "uniform": relative(made.gradient(h, _recurrence(K + 1, config.seed)), exact),
            "cg": relative(made.gradient(h, sg.Implicit(sg.NormalCG(steps=max(K, 1)))), exact),
            "p2": relative(neumann, made.gradient(h, sg.TBPTT(steps=K + 1))),
            "p4": relative(made.gradient(h, _recurrence(K + 1)), neumann),
            "p3": float(torch.linalg.matrix_norm(partial - inverse, 2)),
            "bound": scale * norm ** (K + 1),
        }
        for key, value in entry.items():
            found.setdefault(key, []).append(short(value) if isinstance(value, float) else value)
        report(K + 1, config.terms + 1, f"K = {K}")
    whole = sg.Picard(max_steps=LENGTH, rtol=0)
    bptt, full = (made.gradient(0 * h, method, whole) for method in (sg.BPTT(), sg.Implicit(sg.Neumann(steps=LENGTH))))
    return {
        **found,
        "p1": short(relative(full, bptt)),
        "spectral_radius": short(float(torch.linalg.eigvals(J).abs().max())),
        "norm": short(norm),
        "min_singular_value": short(float(torch.linalg.svdvals(identity - J).min())),
        "one_minus_norm": short(1 - norm),
    }


def _recurrence(steps: int, seed: int | None = None) -> Gradient:
    """Original RBP: from zero, or from U[0, 1]."""
    solver = sg.Picard(max_steps=steps, rtol=0)
    return sg.Implicit(solver) if seed is None else sg.Implicit(solver, initial="uniform", seed=seed)


def headline(records: Sequence[Record]) -> str:
    """The running result in a few words."""
    done = [record.result for record in records if record.result is not None and record.config["part"] == "series"]
    if not done:
        return f"{len(records)} maps"
    worst = {"P1": max(r["p1"] for r in done), **{name: max(max(r[name.lower()]) for r in done) for name in ("P2", "P4")}}
    return ", ".join(f"{name} {value:.0e}" for name, value in worst.items())


def preset(seeds: int, **changes: int) -> tuple[TheoryConfig, ...]:
    base = replace(TheoryConfig(), **changes)
    trials: list[TheoryConfig] = []
    for seed in range(seeds):
        trials += [replace(base, radius=radius, seed=seed) for radius in (0.5, 0.8, 0.95)]
        trials += [replace(base, part="penalty", penalty=name, radius=1.3, seed=seed) for name in PENALTIES]
    return tuple(trials)


PRESETS = {
    "smoke": Preset(preset(1, size=12, terms=20, descents=15), 0.1, "Maps of 12 numbers, one seed."),
    "standard": Preset(preset(4), 0.5, "Maps of 30 numbers, four seeds: three spectral radii, five penalties."),
    "long": Preset(preset(4), 0.5, "The same as standard."),
    "paper": Preset(preset(4), 0.5, "The same as standard: the paper proves these, and measures none."),
}
