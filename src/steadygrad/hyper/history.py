"""What a tuning leaves behind: one entry a meta step, and the result."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, fields
from typing import Any

import torch
from torch import Tensor

from steadygrad.state import State


@dataclass(frozen=True)
class Entry:
    """One meta step: the hyperparameters, what training with them gave, and whether the step was kept."""

    meta_step: int
    hyper: dict[str, Any]
    """Values by name, as numbers or nested lists."""
    loss: float
    """The objective after training; NaN for a rejected step."""
    validation: float
    """The loss that early stopping watches; the objective itself unless another was given."""
    gradient_norm: float
    """‖dL/du‖ of the free numbers."""
    residual: float | None = None
    """Of the adjoint solve, the worst of the samples."""
    noise: float | None = None
    """The root of the summed variance of the estimate, relative to ‖dL/dθ‖, where it is stochastic."""
    degenerate: tuple[str, ...] = ()
    remaining: float | None = None
    """By how much the objective would still change if training went on (see `Hypergradient.remaining`)."""
    rejected: str = ""
    """Why the step was taken back; empty for a step that was kept."""


def pack(history: Sequence[Entry], values: Sequence[dict[str, Tensor]]) -> dict[str, Any]:
    """A history for the disk. The hyperparameters go in as tensors: nested lists of many numbers take seconds to write."""
    rest = [field.name for field in fields(Entry) if field.name != "hyper"]
    return {
        "entries": [{name: getattr(entry, name) for name in rest} for entry in history],
        "hyper": {name: torch.stack([found[name] for found in values]) for name in values[0]},
    }


def unpack(packed: dict[str, Any]) -> tuple[list[Entry], list[dict[str, Tensor]]]:
    """The history, and its hyperparameters as tensors."""
    values = [{name: stacked[i] for name, stacked in packed["hyper"].items()} for i in range(len(packed["entries"]))]
    return [Entry(hyper=plain(found), **entry) for entry, found in zip(packed["entries"], values, strict=True)], values


def plain(values: dict[str, Tensor]) -> dict[str, Any]:
    """As numbers or nested lists."""
    return {name: value.tolist() for name, value in values.items()}


@dataclass
class Tuning:
    """The result: the best hyperparameters by validation loss, with the way that led there."""

    hyper: dict[str, Tensor]
    """The values with the lowest validation loss."""
    loss: float
    """That validation loss."""
    meta_step: int
    """Where it was reached."""
    state: State = field(repr=False)
    """The training state there; `step.load(tuning.state)` writes it into the model."""
    history: list[Entry] = field(repr=False)
    last: dict[str, Tensor]
    """The values that the outer optimiser would have tried next."""
    stopped: str = ""
    """"all meta steps done", or why it ended before."""
