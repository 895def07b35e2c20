"""What a solve reports: its status with advice, the solution, the adjoint's certificate, and what to do on failure."""

from __future__ import annotations

import enum
import math
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Protocol

import torch
from torch import Tensor

from steadygrad.failure import (  # names that others import from here
    OnFailure,
    SteadyStateError,
    SteadyStateWarning,
    check_on_failure,
    magnitude,
    report_failure,
)

__all__ = [
    "AdjointRecord",
    "AdjointSolution",
    "OnFailure",
    "Problems",
    "Solution",
    "Status",
    "SteadyStateError",
    "SteadyStateWarning",
    "check_on_failure",
    "magnitude",
    "report_failure",
]


class Status(enum.Enum):
    """How an iteration ended. Each status carries its advice, shown alike by warnings, errors and reports.

    >>> import torch, steadygrad as sg
    >>> solution = sg.steady_state(lambda h: 2 * h + 1, torch.zeros(1), on_failure="ignore")
    >>> solution.status is sg.Status.DIVERGED
    True
    >>> solution.advice.split(".")[0]
    'The updates grow, so there is no steady state to be found this way and its gradient means nothing'
    """

    CONVERGED = "converged"
    MAX_STEPS = "max_steps"
    DIVERGED = "diverged"
    NONFINITE = "nonfinite"
    STAGNATED = "stagnated"

    @property
    def forward_advice(self) -> str:
        """What to do when the search for the steady state ended so."""
        return _FORWARD_ADVICE[self]

    @property
    def adjoint_advice(self) -> str:
        """What to do when the adjoint solve ended so."""
        return _ADJOINT_ADVICE[self]


_FORWARD_ADVICE = {
    Status.CONVERGED: "The state is steady to the tolerance asked for.",
    Status.MAX_STEPS: (
        "The state still moves, so an implicit gradient at it is not the gradient of a steady state. Raise max_steps, add "
        "damping, or loosen rtol; if the steady state is zero set atol, since a relative residual cannot vanish there."
    ),
    Status.DIVERGED: (
        "The updates grow, so there is no steady state to be found this way and its gradient means nothing. Add damping, "
        "shrink the weights of F (spectral normalisation, a penalty on its Jacobian), or start closer."
    ),
    Status.NONFINITE: "F produced inf or NaN on the way. Check inputs and parameters, lower the learning rate, or add damping.",
    Status.STAGNATED: (
        "The residual stopped falling above rtol: a cycle, or the limit of the dtype. Add damping, loosen rtol, or use float64."
    ),
}

_ADJOINT_ADVICE = {
    Status.CONVERGED: "The adjoint equation is solved to the tolerance asked for.",
    Status.MAX_STEPS: (
        "The gradient is truncated before the tolerance. Raise max_steps, loosen rtol, or take another solver "
        '(gradient="auto", "gmres", "lsqr").'
    ),
    Status.DIVERGED: (
        "The series in J grows: the spectral radius of J is at least 1, or J is strongly non-normal. Use a solver that needs "
        'only that I - J is invertible (gradient="auto", "gmres", "cg-rbp", or "dense" for a small state), and check that the '
        "state is steady."
    ),
    Status.NONFINITE: "inf or NaN met in the adjoint solve: look at the loss, at F at the steady state, at the forward status.",
    Status.STAGNATED: (
        "The residual cannot be brought to the tolerance, or the error stays large although the residual is small: I - J is "
        "nearly singular for this dtype. Use float64, add a ridge (NormalCG(ridge=...)), or keep J away from 1 by a penalty."
    ),
}


@dataclass(frozen=True)
class Problems:
    """How independent problems ended, in the shape of the batch; without batch_dims there is one."""

    statuses: tuple[Status, ...]
    batch: tuple[int, ...] = ()
    seen: Callable[[Callable[[], Tensor]], Tensor] | None = field(default=None, repr=False, compare=False)
    """Inside a vmap: makes a tensor in the shape of the batch and gives what one entry sees of it."""

    @property
    def worst(self) -> Status:
        """The status that says most about what went wrong."""
        return self.statuses[0] if len(self.statuses) == 1 else min(self.statuses, key=_WORST_FIRST.index)

    @property
    def converged(self) -> bool | Tensor:
        if not self.batch:
            return self.worst is Status.CONVERGED
        return self._flags() if self.seen is None else self.seen(self._flags)

    def _flags(self) -> Tensor:
        return torch.tensor([status is Status.CONVERGED for status in self.statuses], device="cpu").view(self.batch)

    @property
    def failed(self) -> str:
        """Words for a message: how many of a batch ended worst."""
        count = sum(status is self.worst for status in self.statuses)
        return f"{count} of {len(self.statuses)} problems: " if self.batch else ""


_WORST_FIRST = [Status.NONFINITE, Status.DIVERGED, Status.STAGNATED, Status.MAX_STEPS, Status.CONVERGED]


class Estimates(Protocol):
    """Estimates, one a problem, worked out when somebody asks."""

    def values(self) -> list[float]: ...


def worst(numbers: list[float]) -> float:
    """The largest of some numbers; NaN where one of them is."""
    return math.nan if any(number != number for number in numbers) else max(numbers)


@dataclass(frozen=True)
class AdjointSolution:
    """The certificate of one adjoint solve (I − Jᵀ) z = b.

    `residual` is the true ‖b − (I − Jᵀ)z‖ / ‖b‖; `error_estimate` estimates ‖z − z*‖ / ‖z*‖; `remaining` is zᵀ(F(h) − h), by how
    much the loss would still change, to first order, on the way to the steady state, and `shift` the share of itself by which the
    gradient would; `gradient_error` is what the error of z does to the worst gradient. All speak of the J that autograd sees:
    they do not show that F has no detached path.

    >>> import torch, steadygrad as sg
    >>> w = torch.tensor([0.5], requires_grad=True)
    >>> solution = sg.steady_state(lambda h: w * h + 1, torch.zeros(1), gradient="dense")  # h* = 1 / (1 − w) = 2
    >>> solution.value.backward()
    >>> solution.adjoint.converged, solution.adjoint.solver, solution.adjoint.residual < 1e-6
    (True, 'Dense()', True)
    >>> round(w.grad.item(), 3)  # 1 / (1 − w)²
    4.0
    """

    status: Status
    """The worst of all problems."""
    products: int
    """Products with J or Jᵀ, the certificate's own included."""
    residual: float
    """The largest of all problems."""
    method: object = field(compare=False)
    """The solver."""
    errors: Estimates = field(repr=False, compare=False)
    changes: Estimates = field(repr=False, compare=False)
    """The change of the loss that is still to come, to first order, of each problem."""
    problems: Problems = field(repr=False)
    """How each problem ended."""
    shift: float | None = None
    """By how much the gradient would still change on the way to the steady state, relative, by the worst of what F depends on;
    None where the state is so near that nobody looked."""
    gradient_error: float | None = None
    """An estimate of what the error of z does to the gradient, relative, by the worst of what F depends on; None where z is so
    precise that nobody looked."""

    @property
    def solver(self) -> str:
        """The solver, as code that pastes back."""
        return self.method if isinstance(self.method, str) else repr(self.method)

    def __getstate__(self) -> dict[str, Any]:
        """Copies and files hold the solver's text: it may be of a class that only the program knows."""
        return {**self.__dict__, "method": self.solver}

    @property
    def remaining(self) -> float:
        """Of all problems together: the change of the loss that is still to come, to first order."""
        return sum(self.changes.values())

    @property
    def error_estimate(self) -> float:
        """The largest estimate of all problems, worked out when asked for."""
        return worst(self.errors.values())

    @property
    def converged(self) -> bool | Tensor:
        """Whether the solve converged; with batch_dims, a tensor that says of which problems."""
        return self.problems.converged

    @property
    def advice(self) -> str:
        return self.status.adjoint_advice

    def __str__(self) -> str:
        how = f"{self.status.name} after {self.products} products by {self.solver}"
        return f"{how}: residual {self.residual:.1e}, estimated error {self.error_estimate:.1e}"


@dataclass
class AdjointRecord:
    """Where a backward pass leaves its certificate; shared by the graph and the Solution, so that neither holds the other."""

    last: AdjointSolution | None = None
    tangent: AdjointSolution | None = None
    """The certificate of the last solve with I − J, of forward mode or of a second derivative."""
    z: Tensor | None = None
    """The last adjoint, for a warm start."""
    forward_steps: int = 0
    """The steps of the search for a state with an implicit gradient, for advice; 0 for gradients of the steps themselves."""


@dataclass
class Solution:
    """A steady state: `value` carries the gradient, the rest says how it was found.

    `residuals` lists (step, residual): the last difference F(h) − h that the solver took, over the iterate that it returns (with
    Picard that is F(h)). `adjoint` is the certificate of the last backward pass through `value`; None before the first, and
    always None for unrolled gradients, which solve no adjoint equation.

    >>> import torch, steadygrad as sg
    >>> solution = sg.steady_state(lambda h: 0.5 * h + 1, torch.zeros(2, 3), batch_dims=1)
    >>> solution.value.shape, solution.converged.tolist(), solution.adjoint
    (torch.Size([2, 3]), [True, True], None)
    >>> step, residual = solution.residuals[-1]
    >>> step == solution.steps, residual < 1e-5
    (True, True)
    """

    value: Any
    steps: int
    residuals: list[tuple[int, float]]
    problems: Problems
    """How each problem ended."""
    iterates: dict[int, Any] = field(default_factory=dict[int, Any], repr=False)
    """The states asked for by `iterates=`, by step."""
    record: AdjointRecord = field(default_factory=AdjointRecord, repr=False)
    errors: Estimates | None = field(default=None, repr=False, compare=False)

    @property
    def error_estimate(self) -> float:
        """An estimate of ‖h − h*‖ / ‖h*‖, from the last steps: the largest of all problems, in the worst leaf of the state."""
        return math.nan if self.errors is None else worst(self.errors.values())

    @property
    def status(self) -> Status:
        """The worst of all problems."""
        return self.problems.worst

    @property
    def converged(self) -> bool | Tensor:
        """Whether the state is steady; with batch_dims, a tensor that says of which problems.

        With a vmap around the solve each of its entries is a problem: inside, the tensor says so of one entry (and can be
        returned from it); afterwards it has a dimension for the vmap in front.
        """
        return self.problems.converged

    @property
    def adjoint(self) -> AdjointSolution | None:
        return self.record.last

    @property
    def tangent(self) -> AdjointSolution | None:
        """The certificate of the last forward-mode derivative of `value`: of (I − J) t = ∂F/∂w·ẇ instead of the adjoint's.

        Its fields are those of the adjoint's certificate; `remaining` is tᵀ(F(h) − h) and says nothing of a loss.
        """
        return self.record.tangent

    @property
    def advice(self) -> str:
        return self.status.forward_advice

    def __repr__(self) -> str:
        residual = f"{self.residuals[-1][1]:.2e}" if self.residuals else "unknown"
        return f"Solution({self.status.name} after {self.steps} steps, residual {residual}, adjoint={self.adjoint!r})"
