"""Penalties that repair what implicit gradients need: differentiable numbers to add to a loss.

With J = ∂F/∂h at a state h, `column_l1`, `frobenius` and `spectral` make J small, so that F contracts and series converge;
`gershgorin` and `lanczos` keep I − J invertible, which is all that the implicit function theorem asks for, and leave J
large where it does no harm. All are called alike, `penalty(update, h, *args, batch_dims=0, ...)`, and work on nested
states, batches and sparse updates.

**Which h.** h is used as it is given. With `solution.value` the gradient has both parts, through F and through the steady
state, d/dw P(w, h*(w)), at the price of one more adjoint solve in the backward pass. With `solution.value.detach()` the
state is held fixed, ∂P/∂w: cheaper, needs no accurate adjoint (which is what the penalty is there to repair), and the
usual choice. They are penalties of J at this h alone: F need not contract elsewhere (Liao et al. 2018, Section 3.2).

**Batches.** The result is the mean over the problems, each with its own J, also where a penalty takes a maximum inside a
problem: every problem then has a gradient, and the weight of the penalty does not depend on the size of the batch.

**Randomness** comes from `seed` alone. In training pass the number of the step, `seed=step`, so that the directions change.

F needs second derivatives, and no third ones, whatever the penalty (those of torch are wrong for layer_norm, batch_norm
and instance_norm). Attention is recorded with the kernel that has second derivatives. Where an operation has none this is
an error, never a gradient with a part missing. Second derivatives of the penalty itself are exact for `frobenius` and the
exact forms of `column_l1` and `gershgorin`; for the others a warning comes where they may be taken. Under
torch.no_grad() the value comes without a graph. Where J depends on nothing that requires a gradient (F affine in h with a
constant matrix, or not a function of h at all), the result requires none either.
"""

from steadygrad.penalty.contraction import column_l1, frobenius, spectral
from steadygrad.penalty.invertible import gershgorin, lanczos

__all__ = ["column_l1", "frobenius", "gershgorin", "lanczos", "spectral"]
