"""sg.diagnose: do the assumptions of an implicit gradient hold at this state, and if not, what to do?"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from steadygrad.diagnose.advice import Used
from steadygrad.diagnose.checks import CALLS, Parameters, compare_derivative, dependence_on, difference_of_two_calls
from steadygrad.diagnose.decay import observe
from steadygrad.diagnose.diagnosis import Diagnosis, Finding
from steadygrad.diagnose.effort import QUICK, THOROUGH, Effort
from steadygrad.diagnose.motion import follow, other_starts
from steadygrad.diagnose.progress import Progress
from steadygrad.diagnose.scale import Scale, Units, in_units
from steadygrad.diagnose.spectrum import largest_singular_value, smallest_singular_value, spectrum
from steadygrad.diagnose.verdict import findings
from steadygrad.fixedpoint import FixedPointSolver
from steadygrad.gradient import Gradient
from steadygrad.linear import Auto
from steadygrad.method import check_callable, check_count
from steadygrad.solution import Solution, Status, SteadyStateError, report_failure
from steadygrad.state import Layout, State, in_order, leaves_of, structure_of
from steadygrad.update import Update
from steadygrad.update.attention import differentiable_attention
from steadygrad.update.coupling import couples
from steadygrad.update.jacobian import Jacobian
from steadygrad.update.linear_map import transposed

__all__ = ["Diagnosis", "Finding", "diagnose"]

NEWTON = 1e-4
"""The tolerance of the solve that says how far the steady state is: a length of which the first digits are shown."""


def diagnose(
    update: Callable[..., State],
    h: State | Solution,
    *args: Any,
    batch_dims: int = 0,
    cotangent: State | None = None,
    parameters: Parameters | None = None,
    starts: bool = True,
    quick: bool = False,
    rtol: float = 1e-4,
    forward: FixedPointSolver | None = None,
    gradient: str | Gradient | None = None,
    progress: Callable[[str], None] | None = None,
    seed: int = 0,
) -> Diagnosis:
    """Measure at h what an implicit gradient assumes, and say in words whether to trust it and what to do.

    It assumes that h = F(h) is steady, that F is smooth and deterministic and autograd sees all of it, and that I − J is
    invertible (for the Neumann series also ρ(J) < 1). Everything is measured by calls of F and products with J and Jᵀ, some
    hundred of each, never by a dense J; memory is some 80 states (150 for small ones). torch's random state is left as it was;
    buffers that F changes (BatchNorm in training mode) are not: call .eval() first.

    `h` is a state such as `solution.value`, or the solution itself; `batch_dims` as in `steady_state`. `cotangent`, ∂loss/∂h in
    the structure of h, is what the decay of the series is observed for (a random one by default). `parameters` (a module,
    a dict or a list of tensors) are checked for those on which the steady state does not depend. `rtol` is the relative
    residual below which h counts as steady; residuals and distances are taken leaf by leaf of a nested state, the worst counts.

    `quick=True` spends about a tenth: no other starts, ρ and ‖J‖ to some per cent, and more numbers that are marked as not
    settled. `starts=False` skips the runs from other starts alone. With `forward` and `gradient`, the methods in use, what
    they do already is not advised. `progress` is called with the name of each part as it begins; without it a line on
    stderr says so where that is a terminal.

    >>> import torch, steadygrad as sg
    >>> W = 0.5 * torch.eye(3); x = torch.ones(3)
    >>> h = sg.steady_state(lambda h: torch.tanh(W @ h + x), torch.zeros(3)).value
    >>> diagnosis = sg.diagnose(lambda h: torch.tanh(W @ h + x), h)
    >>> diagnosis.trustworthy, diagnosis.motion.kind
    (True, 'steady')
    >>> print(diagnosis.verdict)
    The assumptions hold: the state is steady, I − J is invertible, and ρ(J) = 0.099, so the series converges.
    """
    used = Used.of(h if isinstance(h, Solution) else None, forward, gradient)
    if isinstance(h, Solution):
        h = h.value
    check_callable("update", update, "update(h, *args)")
    check_count("batch_dims", batch_dims, least=0)
    if not 0 < rtol < 1:
        raise ValueError(f"rtol must lie between 0 and 1; got {rtol}.")
    layout = Layout.of(h, batch_dims)
    forked = torch.random.fork_rng(devices=[layout.device] if layout.device.type == "cuda" else [])
    with torch.inference_mode(False), torch.enable_grad(), forked:
        leaves = [leaf.detach().clone() for leaf in leaves_of(h)]
        if batch_dims and couples(Update(update, args, layout), layout.flatten(leaves)):
            report_failure(_COUPLED, "warn")
            layout = Layout.of(h, 0)
        flat = layout.flatten(leaves)
        rtol = max(rtol, 4 * torch.finfo(layout.dtype).eps)
        effort = replace(QUICK if quick else THOROUGH, starts=starts and not quick)
        examination = _Examination(Update(update, args, layout), flat, rtol, effort, Progress(progress), seed)
        try:
            examination.measure(_flat_cotangent(cotangent, h, layout), parameters)
        finally:
            examination.progress.end()
    return examination.conclude(used)


_COUPLED = (
    "F couples the problems of the batch: another state of one changes the images of the others, as a mean over the batch or "
    "batch_norm in training mode does. They were looked at as one problem; give batch_dims=0."
)


def _flat_cotangent(cotangent: State | None, h: State, layout: Layout) -> Tensor | None:
    if cotangent is None:
        return None
    if structure_of(cotangent) != structure_of(h):
        raise ValueError(f"cotangent has structure {structure_of(cotangent)}, the state {structure_of(h)}; they must agree.")
    leaves = in_order(layout.template, cotangent)
    for leaf, shape in zip(leaves, layout.shapes, strict=True):
        if leaf.shape != shape:
            raise ValueError(f"cotangent has a tensor of shape {tuple(leaf.shape)} for a state of shape {tuple(shape)}.")
    return layout.flatten([leaf.detach().to(layout.device, layout.dtype) for leaf in leaves])


class _Examination:
    """The measurements, one after the other; each adds to the diagnosis."""

    def __init__(self, update: Update, h: Tensor, rtol: float, effort: Effort, progress: Progress, seed: int) -> None:
        self.update = update
        self.h = h
        self.rtol = rtol
        self.effort = effort
        self.progress = progress
        self.generator = torch.Generator().manual_seed(seed)
        self.evaluations = 0
        self.found = Diagnosis(size=h.shape[1], problems=h.shape[0], eps=torch.finfo(update.precision).eps)

    def measure(self, cotangent: Tensor | None, parameters: Parameters | None) -> None:
        """All measurements, as far as they can be had."""
        with torch.no_grad():
            finite = bool(self.h.isfinite().all()) and bool(self.call(self.h).isfinite().all())
            if not finite:
                return
            self.move()
        with differentiable_attention():
            jacobian = Jacobian(self.update, self.h)
        if any(output.requires_grad for output in jacobian.outputs):
            self.linearise(jacobian, cotangent)
        else:  # autograd sees no path from h to F(h): J = 0, as far as it is concerned
            self.add(spectral_radius=0.0, norm=0.0, min_singular_value=1.0, distance=self.found.relative_residual)
        self.differentiate(jacobian)
        if parameters is not None:
            self.progress.begin("parameters")
            found = dependence_on(self.update, self.h, parameters, self.scale, self.generator, self.found.distance)
            self.add(parameters=found)
        self.add(products=jacobian.products)

    def conclude(self, used: Used) -> Diagnosis:
        self.add(evaluations=self.evaluations)
        self.add(findings=findings(self.found, self.rtol, used))
        return self.found

    def call(self, h: Tensor) -> Tensor:
        self.evaluations += 1
        return self.update(h)

    def add(self, **found: Any) -> None:
        self.found = replace(self.found, **found)

    def noise(self) -> Tensor:
        return torch.randn(self.h.shape, generator=self.generator, dtype=self.h.dtype).to(self.h.device)

    def move(self) -> None:
        """What F does: twice at one state, again and again, and from other starts."""
        self.progress.begin("motion of the state")
        self.scale = Scale.at(self.update.layout, self.h, self.rtol, self.call, self.generator)
        self.add(
            randomness=difference_of_two_calls(self.update, self.h, self.scale, rewound=False),
            uncontrolled=difference_of_two_calls(self.update, self.h, self.scale, rewound=True),
        )
        self.evaluations += 4
        motion, last = follow(self.call, self.h, self.rtol, self.scale, self.effort.motion)
        self.add(motion=motion, relative_residual=motion.residuals[0])
        if self.effort.starts and motion.kind in ("steady", "approaching"):
            self.progress.begin("other starts")
            reference = self.h if motion.kind == "steady" else last
            starts = other_starts(self.call, reference, self.rtol, self.scale, self.generator)
            self.add(starts=starts)

    def linearise(self, of_h: Jacobian, cotangent: Tensor | None) -> None:
        """What J does: its spectrum, its norm, the condition of I − J, the decay of the series."""
        jacobian = in_units(of_h, self.scale.units(self.h))
        self.progress.begin("eigenvalues of J")
        outer = spectrum(jacobian, self.noise(), self.effort.eigenvalues)
        if not outer.radius.isfinite().all():
            self.add(differentiable=False)
            return
        radius = outer.radius.max().item()
        eigenvalues = outer.values[int(outer.radius.argmax())].tolist()
        self.add(spectral_radius=radius, radii=tuple(outer.radius.tolist()), eigenvalues=tuple(eigenvalues))
        bounds = set() if outer.converged else {"spectral_radius"}
        b = self.noise() if cotangent is None else jacobian.back(cotangent)
        self.progress.begin("decay of the series")
        decay = observe(jacobian, b, radius if outer.converged else 0.0, self.effort.decay, self.effort.solve)
        self.add(decay=decay, own_cotangent=cotangent is not None)
        try:
            self.progress.begin("norm of J")
            largest = largest_singular_value(jacobian, self.noise(), self.effort.bidiagonal)
            self.progress.begin("smallest singular value of I − J")
            smallest = smallest_singular_value(jacobian, self.noise(), self.effort)
            self.add(norm=largest.value.max().item(), min_singular_value=smallest.value.min().item())
            bounds |= {name for name, e in {"norm": largest, "min_singular_value": smallest}.items() if not e.converged}
            self.progress.begin("distance to the steady state")
            distance, known = self.distance(jacobian)
            self.add(distance=distance)
            bounds |= set() if known else {"distance"}
        except SteadyStateError as error:  # F has no second derivative, so no products with J
            self.add(unknown={"‖J‖, σ_min, distance": str(error)})
        self.add(bounds=frozenset(bounds))

    def distance(self, jacobian: Units) -> tuple[float, bool]:
        """‖(I−J)⁻¹(F(h) − h)‖ / ‖h‖ of the worst leaf, what one Newton step would move, and whether it is more than a guess."""
        with torch.no_grad():
            residual = self.call(self.h) - self.h
        step = Auto(rtol=NEWTON, max_steps=self.effort.solve).solve(transposed(jacobian), jacobian.state(residual))
        return max(self.scale.relative(jacobian.back(step.z), self.h)), all(status is Status.CONVERGED for status in step.status)

    def differentiate(self, jacobian: Jacobian) -> None:
        """Whether the J of autograd is that of F."""
        if not self.found.differentiable:
            return
        self.progress.begin("derivative against differences")
        self.evaluations += CALLS
        with torch.no_grad():
            derivative = compare_derivative(self.update, jacobian, self.h, self.scale, self.generator)
        if math.isfinite(derivative.mismatch):
            self.add(derivative=derivative)
        else:
            self.add(unknown={**self.found.unknown, "Jv against a difference": "F is not finite close to h."})
