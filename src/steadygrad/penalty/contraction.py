"""Penalties that make J small, so that F contracts at h: column_l1, frobenius, spectral."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Literal

import torch
from torch import Tensor

from steadygrad.method import check_count
from steadygrad.penalty.once import first_derivative_only
from steadygrad.penalty.pairs import Pairs
from steadygrad.penalty.products import Products, generator_of, mean_of
from steadygrad.state import State


def column_l1(
    update: Callable[..., State],
    h: State,
    *args: Any,
    eta: float = 0.9,
    over: Literal["max", "mean"] = "max",
    hinge: bool = False,
    columns: int | None = None,
    batch_dims: int = 0,
    seed: int = 0,
) -> Tensor:
    """The column penalty: max_i (‖J(:,i)‖₁ − η)², with the contraction constant 0 ≤ η < 1 that is wanted.

    ‖J‖₁ = max_i ‖J(:,i)‖₁ < 1 suffices for ρ(J) < 1; it is far from necessary. As published the square also pulls columns
    below η up to it (J = 0 costs η²); `hinge=True` takes max(0, ‖J(:,i)‖₁ − η)², as Scarselli et al. do. `over="mean"` is
    the mean over the columns in place of the maximum.

    Exact by default, in n VJPs for n numbers a problem, and n² numbers of memory. With `columns=k` from k columns, each problem
    its own. The mean then takes columns drawn without repetition, and is unbiased, value and gradient. The maximum
    takes the columns that look longest: with random signs ξ, (Jᵀξ)_i has mean square ‖J(:,i)‖₂², and k such products choose
    the columns. A maximum over some columns is a lower bound of that over all, so this is biased, never upwards: a column
    that stands out is found, among many of nearly the same length only one of the longer. (With hinge=False and all columns
    below η the maximum is at the shortest column, which is not looked for.) k products Jv, k with Jᵀ and a
    graph for the gradient, and for the maximum k more; second derivatives of the sampled forms are not exact.

    h as it is given: `solution.value.detach()` holds the state fixed, `solution.value` lets the gradient pass through it too
    (`steadygrad.penalty` says when to use which). Scarselli et al. 2009, "The graph neural network model"; Liao et al. 2018,
    Section 3.2.

    >>> import torch
    >>> from steadygrad import penalty
    >>> W = torch.tensor([[0.5, 1.0], [0.0, 0.4]], requires_grad=True)
    >>> value = penalty.column_l1(lambda h: W @ h, torch.zeros(2), eta=0.9)
    >>> round(value.item(), 4)  # the second column: (1.4 - 0.9)²
    0.25
    >>> value.backward()
    >>> W.grad.abs().tolist()
    [[0.0, 1.0], [0.0, 1.0]]
    """
    if not 0 <= eta < 1:
        raise ValueError(f"eta must be a number with 0 <= eta < 1, the contraction constant that is wanted; got {eta!r}.")
    if over not in ("max", "mean"):
        raise ValueError(f'over must be "max" or "mean"; got {over!r}.')
    generator = generator_of(seed)
    if columns is not None:
        check_count("columns", columns, least=1)
    J = Products(update, h, args, batch_dims)
    if columns is None or columns >= J.size:
        norms, average = J.dense().abs().sum(dim=1), mean_of
    else:
        chosen = (_longest if over == "max" else _drawn)(J, columns, generator)
        pairs = Pairs(J)
        lengths = [pairs.jvp(_unit(J, index)).abs().sum(dim=1) for index in chosen.unbind(dim=1)]
        norms, average = torch.stack(lengths, dim=1), pairs.mean_of
    excess = (norms - eta).relu() if hinge else norms - eta
    return average(excess.square().amax(dim=1) if over == "max" else excess.square().mean(dim=1))


def frobenius(
    update: Callable[..., State],
    h: State,
    *args: Any,
    over: Literal["mean", "sum"] = "mean",
    samples: int | None = 1,
    batch_dims: int = 0,
    seed: int = 0,
) -> Tensor:
    """The Frobenius penalty ‖J‖_F² / n = E‖Jᵀv‖² / n for random signs v and n numbers a problem, the cheapest of all.

    The mean square of a singular value, and of the length of a row: J = aI has a² and a random J of spectral radius r about
    r², whatever n, so that one weight serves states of any size (Bai et al. take it so). `over="sum"` is ‖J‖_F² itself,
    n times as much, which bounds σ_max(J)² and hence ρ(J)² from above.

    Estimated with `samples` vectors (Hutchinson): unbiased, value and gradient, with a standard deviation of at most
    √(2/samples) of the value. `samples=None` is exact, in n VJPs. One VJP a sample, and one product to check that second
    derivatives exist.

    h as it is given: `solution.value.detach()` holds the state fixed, `solution.value` lets the gradient pass through it too
    (`steadygrad.penalty` says when to use which). Bai, Koltun, Kolter 2021, "Stabilizing equilibrium models by Jacobian
    regularization"; Hutchinson 1990.

    >>> import torch
    >>> from steadygrad import penalty
    >>> a = torch.tensor(0.5, requires_grad=True)
    >>> value = penalty.frobenius(lambda h: a * h, torch.zeros(4))
    >>> value.backward()
    >>> value.item(), a.grad.item()  # a² and 2 a
    (0.25, 1.0)
    >>> penalty.frobenius(lambda h: a * h, torch.zeros(4), over="sum").item()
    1.0
    """
    if over not in ("mean", "sum"):
        raise ValueError(f'over must be "mean" (‖J‖_F² / n) or "sum" (‖J‖_F²); got {over!r}.')
    generator = generator_of(seed)
    if samples is not None:
        check_count("samples", samples, least=1)
    J = Products(update, h, args, batch_dims)
    parts = J.size if over == "mean" else 1
    if samples is None:
        return mean_of((J.dense().square() / parts).sum(dim=(1, 2)))
    squares = [(J.vjp(J.signs(generator)).square() / parts).sum(dim=1) for _ in range(samples)]
    return mean_of(torch.stack(squares).mean(dim=0))


def spectral(update: Callable[..., State], h: State, *args: Any, steps: int = 20, batch_dims: int = 0, seed: int = 0) -> Tensor:
    """The spectral norm σ_max(J) = uᵀJv, u = Jv/‖Jv‖, with v from power steps on JᵀJ.

    σ_max(J) < 1 suffices for ρ(J) < 1 and makes F a contraction at h in the Euclidean norm; it is not necessary. The steps
    run without a graph and only the last product is differentiated: with u and v held fixed, the gradient is that of σ_max
    where v has converged. The value is a lower bound at any `steps`; its relative error falls like (σ₂/σ₁)^(4 steps). At
    J = 0, where there is no gradient, it is 0; where σ₁ = σ₂ it is a subgradient; second derivatives are not exact. 2·steps + 3
    products, one with a graph. To push σ below a bound and no further: `torch.relu(penalty.spectral(update, h) - 0.95)`.

    h as it is given: `solution.value.detach()` holds the state fixed, `solution.value` lets the gradient pass through it too
    (`steadygrad.penalty` says when to use which). Yoshida, Miyato 2017, "Spectral norm regularization".

    >>> import torch
    >>> from steadygrad import penalty
    >>> W = torch.tensor([[2.0, 0.0], [0.0, 0.5]], requires_grad=True)
    >>> value = penalty.spectral(lambda h: W @ h, torch.zeros(2))
    >>> value.backward()
    >>> round(value.item(), 4), W.grad.diag().round(decimals=4).tolist()
    (2.0, [1.0, 0.0])
    """
    generator = generator_of(seed)
    check_count("steps", steps, least=1)
    J = Products(update, h, args, batch_dims)
    v = J.direction(generator)
    for _ in range(steps):
        v = _normalised(J.vjp(_normalised(J.jvp(v)), graph=False))
    u = _normalised(J.jvp(v))  # 0 at J = 0, where ‖Jv‖ has no gradient
    return first_derivative_only(mean_of((J.vjp(u) * v).sum(dim=1)))


def _normalised(v: Tensor) -> Tensor:
    """v / ‖v‖, and 0 for 0."""
    v = v / v.abs().amax(dim=1, keepdim=True).clamp_min(torch.finfo(v.dtype).tiny)  # first, lest the squares underflow
    return v / torch.linalg.vector_norm(v, dim=1, keepdim=True).clamp_min(torch.finfo(v.dtype).tiny)


def _drawn(J: Products, columns: int, generator: torch.Generator) -> Tensor:
    """For each problem the indices of some columns, all alike likely."""
    return torch.rand(J.problems, J.size, generator=generator).topk(columns, dim=1).indices.to(J.h.device)


def _longest(J: Products, columns: int, generator: torch.Generator) -> Tensor:
    """For each problem the indices of columns that look longest: E (Jᵀξ)_i² = ‖J(:,i)‖₂² for random signs ξ."""
    seen = [J.vjp(J.signs(generator), graph=False).square() for _ in range(columns)]
    return torch.stack(seen).sum(dim=0).topk(columns, dim=1).indices


def _unit(J: Products, index: Tensor) -> Tensor:
    """The unit vector e_i, with i for each problem."""
    return torch.zeros_like(J.h, requires_grad=False).scatter(1, index.unsqueeze(1), 1.0)
