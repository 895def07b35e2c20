"""A1: a map whose I − J is badly conditioned, and what descending each penalty does to it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Literal, Protocol

import torch
from torch import Tensor

import steadygrad as sg
from steadygrad.paper.experiments.experiment import ReportProgress
from steadygrad.paper.experiments.methods import short
from steadygrad.paper.experiments.theory.maps import Map

PenaltyName = Literal["none", "column-l1", "gershgorin", "lanczos", "frobenius", "spectral"]
PENALTIES: tuple[PenaltyName, ...] = ("column-l1", "gershgorin", "lanczos", "frobenius", "spectral")
RATE = 0.002
TERMS = 20
"""K of the Neumann series whose error is watched."""
WAY = 200
"""Steps to the state at which J is taken. Before the penalty has worked the map need not settle: it is penalised all the same."""


class Penalised(Protocol):
    """What is needed of a config."""

    @property
    def penalty(self) -> PenaltyName: ...
    @property
    def descents(self) -> int: ...


def penalised(config: Penalised, made: Map, report: ReportProgress) -> dict[str, Any]:
    """Lower the penalty alone by Adam, with the state held fixed in every step; look at J before each of them and at the end."""
    W = made.W.clone().requires_grad_()
    optimiser = torch.optim.Adam([W], lr=RATE)
    value = penalty_of(config.penalty)
    seen: dict[str, list[Any]] = {}
    for step in range(config.descents + 1):
        h = made.settled(W.detach(), WAY)
        cost = value(made.update(W), h)
        for key, number in {"value": cost.item(), **looked_at(made, W.detach(), h)}.items():
            seen.setdefault(key, []).append(short(number))
        optimiser.zero_grad()
        if step < config.descents and cost.requires_grad:
            cost.backward()
            optimiser.step()
        report(step + 1, config.descents + 1, f"penalty {cost.item():.3g}")
    return {**seen, "moved": short(float((W.detach() - made.W).norm() / made.W.norm()))}


def looked_at(made: Map, W: Tensor, h: Tensor) -> dict[str, float]:
    """σ_min(I − J), ρ(J), ‖J‖₂, how far the state moves in a step, and how wrong K terms of the adjoint series are."""
    J = made.jacobian(h, W)
    identity = torch.eye(len(h), dtype=h.dtype)
    b = h - made.c
    exact = torch.linalg.solve(identity - J.T, b)
    z = v = b
    for _ in range(TERMS):
        v = J.T @ v
        z = z + v
    moved = made.update(W)(h) - h
    return {
        "min_singular_value": float(torch.linalg.svdvals(identity - J).min()),
        "spectral_radius": float(torch.linalg.eigvals(J).abs().max()),
        "norm": float(torch.linalg.matrix_norm(J, 2)),
        "movement": float(moved.norm() / h.norm()),
        "adjoint_error": float((z - exact).norm() / exact.norm()),
    }


def penalty_of(name: PenaltyName) -> Callable[[Callable[[Tensor], Tensor], Tensor], Tensor]:
    """The penalty as a function of F and h, exact where it can be."""
    match name:
        case "column-l1":
            return lambda F, h: sg.penalty.column_l1(F, h, hinge=True)
        case "gershgorin":
            return lambda F, h: sg.penalty.gershgorin(F, h)
        case "lanczos":
            return lambda F, h: sg.penalty.lanczos(F, h)
        case "frobenius":
            return lambda F, h: sg.penalty.frobenius(F, h, samples=None)
        case "spectral":
            return lambda F, h: sg.penalty.spectral(F, h)
        case "none":
            raise ValueError("no penalty was chosen.")
