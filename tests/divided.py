"""One solve whole and divided over two ranks, and how to compare them (for tests/ranks_sharded.py)."""

import torch
import torch.distributed as dist
from torch.distributed._functional_collectives import all_to_all_single_autograd

import steadygrad as sg

CUTS = [10, 14]
"""Numbers on each rank: not the same."""
SIZE = sum(CUTS)


def group():
    return dist.group.WORLD


def mine():
    """The columns of this rank."""
    first = sum(CUTS[: dist.get_rank()])
    return slice(first, first + CUTS[dist.get_rank()])


def whole_of(h):
    """The state of all ranks, gathered along the last dimension by a collective with a derivative."""
    rank, rows = dist.get_rank(), h.reshape(-1, h.shape[-1])
    sent = rows.T.repeat(2, 1)
    got = all_to_all_single_autograd(sent, CUTS, [CUTS[rank]] * 2, group())
    return got.T.reshape(*h.shape[:-1], SIZE)


def matrix(radius=0.9, symmetric=False):
    torch.manual_seed(0)
    W = torch.randn(SIZE, SIZE)
    W = W + W.T if symmetric else W
    return radius * W / torch.linalg.eigvals(W).abs().max()


class Compared:
    """One solve whole and divided, with the gradient of a shared matrix and of an input that belongs to the state."""

    def __init__(self, W, x, target, h0=None, **options):
        here = mine()
        h0 = torch.zeros_like(x) if h0 is None else h0
        self.whole, *self.truth = self._solve(W, x, target, lambda w, h: h @ w.T, h0, options)
        self.part, *self.found = self._solve(
            W, x[..., here], target[..., here], lambda w, h: whole_of(h) @ w[here].T, h0[..., here], {**options, "group": group()}
        )
        self.truth[1] = self.truth[1][..., here]

    def _solve(self, W, x, target, product, h0, options):
        w, x = W.clone().requires_grad_(), x.clone().requires_grad_()
        args = (x,) if options.get("batch_dims") else ()
        update = (lambda h, x: torch.tanh(product(w, h) + x)) if args else (lambda h: torch.tanh(product(w, h) + x))
        solution = sg.steady_state(update, h0, *args, **options)
        (solution.value * target).sum().backward()
        if "group" in options:
            sg.sum_gradients([w], group())
        return solution, w.grad, x.grad

    def equal(self, tolerance=1e-9):
        whole, part = self.whole, self.part
        close(part.value, whole.value[..., mine()], tolerance)
        for found, truth in zip(self.found, self.truth, strict=True):
            close(found, truth, tolerance)
        assert part.steps == whole.steps, (part.steps, whole.steps)
        assert part.problems == whole.problems, (part.problems, whole.problems)
        assert [step for step, _ in part.residuals] == [step for step, _ in whole.residuals]
        for (_, a), (_, b) in zip(part.residuals, whole.residuals, strict=True):
            assert a == b or abs(a - b) <= 1e-6 * b + 1e-15, (a, b)  # inf at the start
        assert (part.adjoint is None) == (whole.adjoint is None)
        if part.adjoint is not None and whole.adjoint is not None:
            same_certificate(part.adjoint, whole.adjoint)


def same_certificate(part, whole):
    assert part.status is whole.status, (part.status, whole.status)
    looked = part.gradient_error is not None  # along directions that are drawn for each rank, and perhaps further
    assert looked == (whole.gradient_error is not None)
    assert looked or part.products == whole.products, (part.products, whole.products)
    assert part.solver == whole.solver
    # The estimate of the error extrapolates from differences of the last iterates, where rounding shows first.
    for name, share in {"residual": 0.1, "error_estimate": 0.5, "remaining": 0.1}.items():
        a, b = getattr(part, name), getattr(whole, name)
        assert abs(a - b) <= share * abs(b) + 1e-14, (name, a, b)


def close(found, truth, tolerance):
    found, truth = found.detach(), truth.detach()
    error = float((found - truth).norm() / truth.norm().clamp(min=1e-300))
    assert error <= tolerance, error


def vectors(*shape):
    torch.manual_seed(1)
    return torch.randn(*shape), torch.randn(*shape)


def raised(call):
    try:
        call()
    except Exception as error:
        return error
    raise AssertionError("nothing was raised")


def same_on_all(text):
    texts = [None, None]
    dist.all_gather_object(texts, text)
    assert texts[0] == texts[1], texts
