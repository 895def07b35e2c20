"""What speaks against a hypergradient: parameters that move nothing, training that is not over, an exact derivative."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from steadygrad.diagnose.checks import Dependence
from steadygrad.gradient import Implicit
from steadygrad.hyper.problem import Inner, NonfiniteError
from steadygrad.hyper.result import Chosen, Hypergradient
from steadygrad.solution import AdjointSolution, OnFailure, Status, magnitude, report_failure

UNFINISHED = 0.01
"""Part of the objective that training may still change before an implicit method says so. On networks for MNIST, hypergradients
within 2 % of BPTT's had at most 0.005, those 10 % or more off 0.001 to 0.09: it sees some of the wrong ones, not all."""
IMPRECISE = 0.01
"""How far off the error of its adjoint may make a hypergradient before it is reported."""
AGREEMENT = 0.25
"""How far from 1 the agreement may be before it is reported."""


def judged(inner: Inner, chosen: Chosen, on_failure: OnFailure) -> Hypergradient:
    """Name what is degenerate, refuse what is not finite, report what speaks against it, and pack the rest."""
    estimate, method = chosen.estimate, chosen.method
    means = {name: estimate.mean(name) for name in inner.hyper}
    gradients = {name: torch.zeros_like(value) for name, value in inner.hyper.items()}
    gradients |= {name: g.to(gradients[name].dtype) for name, g in means.items() if g is not None}
    variance = {name: spread for name in means if (spread := estimate.variance(name)) is not None}
    judgements = {name: degenerate(name, g, estimate.dependence.get(name)) for name, g in means.items()}
    reasons = {name: reason for name, reason in judgements.items() if reason is not None}
    wrong = [name for name, gradient in gradients.items() if not bool(gradient.isfinite().all())]
    if wrong:
        raise NonfiniteError(
            f"the hypergradient of {', '.join(wrong)} by {method!r} is not finite. Take fewer steps, or an implicit method."
        )
    loss = estimate.value.item()
    for reason in reasons.values():
        say(reason, on_failure)
    say(chosen.doubt, on_failure)
    if isinstance(method, Implicit) and chosen.doubt is None:
        say(unsolved(estimate.adjoints, cut=method.adjoint.counts), on_failure)
        say(imprecise(estimate.adjoints), on_failure)
    if isinstance(method, Implicit) and not method.adjoint.counts:  # a series cut on purpose claims no steady state
        say(unfinished(estimate.left, loss), on_failure)
    return Hypergradient(
        gradients=gradients,
        loss=loss,
        state=estimate.state,
        method=repr(method),
        reason=chosen.reason,
        adjoints=tuple(estimate.adjoints),
        variance=variance if estimate.stochastic and variance else None,
        samples=len(estimate.samples),
        degenerate=reasons,
        residual=estimate.residual,
        remaining=estimate.left,
    )


def say(reason: str | None, on_failure: OnFailure) -> None:
    """Report a reason, if there is one."""
    if reason is not None:
        report_failure(reason, on_failure)


def degenerate(name: str, gradient: Tensor | None, dependence: Dependence | None) -> str | None:
    """Why a hyperparameter has no gradient by this method, and what to do; None if it has one."""
    if gradient is None or (dependence is not None and dependence.kind == "unused"):
        return (
            f"hyper[{name!r}] has no gradient: the steps that this method differentiates do not use it, nor does the objective. "
            "Is the name one that the optimiser or the loss reads? If it sets the optimiser's course but not its end (a rate of "
            'Adam), use method="forward", or "bptt".'
        )
    if dependence is not None and dependence.kind == "degenerate":
        return (
            f"hyper[{name!r}] does not move the steady state of training (∂F/∂θ is {magnitude(dependence.here)} there and "
            f"{magnitude(dependence.elsewhere)} nearby), as a learning rate or a momentum does not: its implicit hypergradient "
            'is zero up to the remainder of training, and no guide. Use method="forward", or "bptt", over fewer steps.'
        )
    return None


def unsolved(adjoints: Sequence[AdjointSolution], cut: bool) -> str | None:
    """Words for adjoint equations that were not solved; None if they were, or `cut` short on purpose after a count."""
    failed = [a for a in adjoints if a.status is not Status.CONVERGED and not (cut and a.status is Status.MAX_STEPS)]
    if not failed:
        return None
    worst = max(failed, key=lambda adjoint: adjoint.residual)
    where = f" for {len(failed)} of {len(adjoints)} batches" if len(adjoints) > 1 else ""
    return (
        f"the adjoint solve by {worst.solver} ended {worst.status.name}{where}: relative residual {magnitude(worst.residual)}, "
        f"relative error {magnitude(worst.error_estimate)}. The implicit hypergradient cannot be relied on: near the end of a "
        'network\'s training I - J is nearly singular, and further from it the series in J grows. method="bptt" is exact for the '
        'steps as they were, and so is "forward", in flat memory.'
    )


def imprecise(adjoints: Sequence[AdjointSolution]) -> str | None:
    """Words for adjoints that are as precise as was asked for, but not enough for a hyperparameter; None if all are."""
    worst = max((a.gradient_error for a in adjoints if a.gradient_error is not None), default=0.0)
    if not worst > IMPRECISE:
        return None
    return (
        f"the adjoint is as precise as was asked for, but a hypergradient is not: the worst is off by {magnitude(worst)} of "
        "itself, since it is small because large parts cancel. Lower the rtol of method=, e.g. method=Implicit(Auto(rtol=1e-6))."
    )


def unfinished(remaining: float | None, loss: float) -> str | None:
    """Words for a training that would still change the objective by much; None if it would not."""
    if remaining is None or abs(remaining) <= UNFINISHED * abs(loss):
        return None
    part = magnitude(abs(remaining / loss)) if loss else "infinitely many"
    return (
        f"training is not over: going on would change the objective by {part} times itself (`remaining`), while an implicit "
        "hypergradient is that of a training at its end. Take more steps, or let check=True compare it with the exact "
        'derivative; "forward", "bptt" and TBPTT differentiate the steps as they were.'
    )


def disagrees(found: float | None) -> str | None:
    """Words for a hypergradient that an exact derivative contradicts; None for one that it confirms."""
    if found is None or abs(found - 1) <= AGREEMENT:
        return None
    return (
        f"the hypergradient {'points the wrong way' if found <= 0 else 'has the wrong size'}: the exact derivative along it is "
        f'{found:.2g} times what it says. Take more training steps, more terms, or "forward", "bptt" or TBPTT, which '
        "differentiate the steps as they were."
    )
