"""What a tuning leaves behind: its meta steps, and the result."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, fields
from typing import Any

import torch
from torch import Tensor

from steadygrad.state import State


@dataclass(frozen=True)
class MetaStep:
    """One meta step: the hyperparameters, what training with them gave, and whether the step was kept.

    >>> step = MetaStep(meta_step=1, hyper={"decay": 0.1}, loss=0.5, validation=0.6, gradient_norm=0.2, method="BPTT()")
    >>> step.hyper["decay"], step.rejected
    (0.1, '')
    """

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
    """The relative residual of the adjoint solve, the worst of the samples."""
    noise: float | None = None
    """The root of the summed variance of the estimate, relative to ‖dL/dθ‖, where it is stochastic."""
    degenerate: tuple[str, ...] = ()
    remaining: float | None = None
    """By how much the objective would still change if training went on (see `Hypergradient.remaining`)."""
    method: str = ""
    """By which the hypergradient was taken, as code that pastes back; empty for a rejected step."""
    rejected: str = ""
    """Why the step was taken back; empty for a step that was kept."""


def pack(history: Sequence[MetaStep], values: Sequence[dict[str, Tensor]]) -> dict[str, Any]:
    """A history for the disk. The hyperparameters go in as tensors: nested lists of many numbers take seconds to write."""
    rest = [field.name for field in fields(MetaStep) if field.name != "hyper"]
    return {
        "entries": [{name: getattr(entry, name) for name in rest} for entry in history],
        "hyper": {name: torch.stack([found[name] for found in values]) for name in values[0]},
    }


def unpack(packed: dict[str, Any]) -> tuple[list[MetaStep], list[dict[str, Tensor]]]:
    """The history, and its hyperparameters as tensors."""
    values = [{name: stacked[i] for name, stacked in packed["hyper"].items()} for i in range(len(packed["entries"]))]
    return [MetaStep(hyper=plain(found), **entry) for entry, found in zip(packed["entries"], values, strict=True)], values


def plain(values: dict[str, Tensor]) -> dict[str, Any]:
    """As numbers or nested lists."""
    return {name: value.tolist() for name, value in values.items()}


@dataclass(frozen=True)
class Candidate:
    """Hyperparameters that were tried, with what training gave.

    >>> Candidate(hyper={"decay": torch.tensor(0.1)}, loss=0.5, meta_step=3, state=None).meta_step
    3
    """

    hyper: dict[str, Tensor]
    loss: float
    """The validation loss after training with them."""
    meta_step: int
    state: State = field(repr=False)
    """The training state then."""


@dataclass
class Tuning:
    """The result of a tuning, with the way that led there.

    `hyper`, `loss`, `meta_step` and `state` belong together. Where every meta step trains the same network anew, they are those
    of the lowest validation loss: all meta steps were given the same training. With `continued=True` the network of a later
    meta step has trained longer, so that validation losses do not compare hyperparameters: they are those of the last meta step
    that was kept, and `best` has the lowest validation loss, which may be luck of an early state.

    >>> from steadygrad import hyper
    >>> step = hyper.SGD(torch.nn.Linear(1, 1), lambda model, batch, hyper: model(batch).square().mean())
    >>> tuning = hyper.tune(step, {"decay": hyper.Log(0.1)}, lambda model, hyper: model(torch.ones(1, 1)).square().mean(),
    ...                     batches=[torch.ones(3, 1)], steps=5, meta_steps=2, continued=True, progress=False)
    >>> tuning.meta_step, len(tuning.history), tuning.best.loss <= tuning.loss
    (2, 2, True)
    """

    hyper: dict[str, Tensor]
    """The values to use: the best by validation, or with `continued=True` the last that were kept."""
    loss: float
    """The validation loss with them."""
    meta_step: int
    """The meta step that had them."""
    state: State = field(repr=False)
    """The training state there; `step.load(tuning.state)` writes it into the model."""
    history: list[MetaStep] = field(repr=False)
    last: dict[str, Tensor]
    """The values that the outer optimiser would have tried next."""
    best: Candidate
    """The values with the lowest validation loss, with that loss, its meta step and its state."""
    stopped: str = ""
    """"all meta steps done", or why it ended before."""
