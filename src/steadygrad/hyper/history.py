"""What a tuning leaves behind: one entry a meta step, and the result."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from typing import Any

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

    def to_dict(self) -> dict[str, Any]:
        return {**asdict(self), "degenerate": list(self.degenerate)}

    @classmethod
    def of(cls, content: dict[str, Any]) -> Entry:
        values: dict[str, Any] = {**content, "degenerate": tuple(content["degenerate"])}
        return cls(**values)


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
