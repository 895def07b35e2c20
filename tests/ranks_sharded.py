"""Run by torchrun in two processes (tests/test_sharded.py): a state that is divided equals the whole one."""

import copy
import pickle
import sys
import warnings
from datetime import timedelta

import torch
import torch.distributed as dist
from torch.distributed._functional_collectives import all_to_all_single_autograd

import steadygrad as sg
from processes import run_checks

CUTS = [10, 14]
"""Numbers on each rank: not the same."""
SIZE = sum(CUTS)
METHODS = {
    **{name: {"gradient": name} for name in (
        "auto", "rbp", "cg-rbp", "neumann-rbp", "one-step", "lsqr", "gmres", "bicgstab", "anderson", "phantom", "bptt", "tbptt",
    )},
    "broyden": {"gradient": sg.Implicit(sg.Broyden())},
    "artbp": {"gradient": sg.ARTBP(seed=3)},
    "checkpoints": {"gradient": sg.BPTT(checkpoints=5)},
    "dear": {"gradient": sg.Implicit(sg.Auto(dear=True))},
    "ridge": {"gradient": sg.Implicit(sg.NormalCG(ridge=1e-3))},
    "twice": {"derivatives": 2},
    "search by Anderson": {"forward": sg.Anderson()},
    "search by Broyden": {"forward": sg.Broyden()},
    "search by Newton": {"forward": sg.Newton()},
    "search by damped Picard": {"forward": sg.Picard(max_steps=300, damping=0.3)},
    "search by count": {"forward": sg.Picard(max_steps=37, rtol=0)},
    "reversible": {"forward": sg.Reversible(max_steps=200), "gradient": sg.BPTT()},
}  # fmt: skip
SYMMETRIC = {name: {"gradient": name} for name in ("cg", "minres")}


def group():
    return dist.group.WORLD


def mine(dim_size=None):
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
    assert part.products == whole.products, (part.products, whole.products)
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


def check_method(options, symmetric=False):
    options = {"forward": sg.Picard(max_steps=400, rtol=1e-9), "on_failure": "raise", **options}
    # Far from 1: where a Krylov space is exhausted, rounding decides how many steps the last digits take.
    Compared(matrix(0.5, symmetric), *vectors(SIZE), **options).equal()


def check_series_that_is_given_up():
    """ρ near 1: Auto goes over to GMRES, then perhaps to LSQR, at the same look on all ranks."""
    W = matrix(0.999)
    options = {"forward": sg.Newton(max_steps=60), "gradient": "auto", "on_failure": "ignore"}
    Compared(W, *(0.05 * v for v in vectors(SIZE)), **options).equal(1e-7)


def check_batches_with_rows_of_different_difficulty():
    x, target = vectors(6, SIZE)
    x = x * torch.tensor([0.01, 0.1, 0.5, 1.0, 2.0, 4.0]).unsqueeze(1)
    compared = Compared(matrix(0.95), x, target, batch_dims=1, forward=sg.Picard(max_steps=600, rtol=1e-8))
    compared.equal()
    assert compared.whole.converged.all()


def check_batch_of_which_a_row_fails():
    """One problem is NaN on one rank alone: it fails on both, and the others have their gradients."""
    x, target = vectors(3, SIZE)
    x[1, -1] = float("nan")
    compared = Compared(matrix(), x, target, batch_dims=1, on_failure="ignore")
    assert compared.part.problems == compared.whole.problems
    assert compared.part.converged.tolist() == [True, False, True]
    close(compared.found[1][[0, 2]], compared.truth[1][[0, 2]], 1e-9)


def check_states_of_several_leaves_of_different_size():
    W, (x, target), here = matrix(0.8), vectors(SIZE), mine()

    def solve(rows, product, **options):
        w = W.clone().requires_grad_()

        def update(state):
            a, b = state["a"], state["b"]
            return {"a": torch.tanh(product(w, a) + x[rows] + 1e-4 * b), "b": 1e3 * torch.tanh(0.5 * a) + 0.3 * b}

        start = {"a": torch.zeros(SIZE)[rows], "b": torch.zeros(SIZE)[rows]}
        solution = sg.steady_state(update, start, forward=sg.Picard(max_steps=300, rtol=1e-9), gradient="gmres", **options)
        (solution.value["b"] @ target[rows]).backward()
        return solution, w

    whole, w = solve(slice(None), lambda w, h: w @ h)
    part, shared = solve(here, lambda w, h: w[here] @ whole_of(h), group=group())
    sg.sum_gradients([shared], group())
    close(shared.grad, w.grad, 1e-9)
    assert part.steps == whole.steps
    same_certificate(part.adjoint, whole.adjoint)


def check_graphs_batched_as_one():
    """Two graphs whose nodes lie on both ranks: each graph has its own stop, over all ranks."""
    torch.manual_seed(2)
    index = torch.tensor([0, 0, 1, 1, 1, 0, 1, 0, 0, 1, 1, 1, 0, 0, 0, 0, 1, 1, 1, 1, 0, 0, 1, 1])
    W = matrix(1.0) * (index.unsqueeze(0) == index.unsqueeze(1)) * torch.where(index == 0, 0.4, 0.9).unsqueeze(1)
    (x, target), here = vectors(SIZE), mine()
    options = {"forward": sg.Picard(max_steps=500, rtol=1e-9), "gradient": "gmres"}
    w, shared = W.clone().requires_grad_(), W.clone().requires_grad_()
    whole = sg.steady_state(lambda h: torch.tanh(w @ h + x), torch.zeros(SIZE), batch_index=index, **options)
    part = sg.steady_state(
        lambda h: torch.tanh(shared[here] @ whole_of(h) + x[here]), torch.zeros(SIZE)[here], batch_index=index[here],
        group=group(), **options,
    )  # fmt: skip
    (whole.value @ target).backward()
    (part.value @ target[here]).backward()
    sg.sum_gradients([shared], group())
    close(shared.grad, w.grad, 1e-9)
    assert (part.steps, part.problems) == (whole.steps, whole.problems)
    same_certificate(part.adjoint, whole.adjoint)


def check_second_derivatives():
    W, (x, target), here = matrix(0.7), vectors(SIZE), mine()
    torch.manual_seed(3)
    direction = torch.randn(SIZE)

    def curvature(rows, product, **options):
        w, y = W.clone().requires_grad_(), x[rows].clone().requires_grad_()
        forward = sg.Picard(max_steps=500, rtol=1e-12)
        solution = sg.steady_state(
            lambda h: torch.tanh(product(w, h) + y), torch.zeros(SIZE)[rows], forward=forward, derivatives=2, **options
        )
        (slope,) = torch.autograd.grad((solution.value.square() * target[rows]).sum(), y, create_graph=True)
        (slope @ direction[rows]).backward()
        return w, y

    w, y = curvature(slice(None), lambda w, h: w @ h)
    shared, own = curvature(here, lambda w, h: w[here] @ whole_of(h), group=group())
    sg.sum_gradients([shared], group())
    close(shared.grad, w.grad, 1e-8)
    close(own.grad, y.grad[here], 1e-8)


def check_numbers_at_the_end_of_the_range():
    """Squares that leave the range of the dtype, and a cotangent that is zero on one rank."""
    for dtype, scale in ((torch.float64, 1e-170), (torch.float64, 1e160), (torch.float32, 1e-25), (torch.float32, 1e25)):
        W, (x, target), here = matrix(0.5).to(dtype), vectors(SIZE), mine()
        x, target = (scale * x).to(dtype), target.to(dtype)
        whole = sg.steady_state(lambda h, W=W, x=x: W @ h + x, torch.zeros(SIZE, dtype=dtype))
        part = sg.steady_state(
            lambda h, W=W, x=x, here=here: W[here] @ whole_of(h) + x[here], torch.zeros(SIZE, dtype=dtype)[here], group=group()
        )
        assert part.steps == whole.steps, (dtype, scale, part.steps, whole.steps)
        assert part.status is whole.status is sg.Status.CONVERGED
        assert float(((part.value - whole.value[here]) / scale).norm()) < 1e-4


def check_loss_of_one_rank_alone():
    W, (x, target) = matrix(), vectors(SIZE)
    target[CUTS[0] :] = 0
    for gradient in ("auto", "gmres", "lsqr"):
        Compared(W, x, target, gradient=gradient, forward=sg.Picard(max_steps=400, rtol=1e-9)).equal()
    compared = Compared(W, x, 0 * target)
    assert compared.part.adjoint.converged
    assert not compared.found[0].any()


def check_parameters_of_one_rank_alone():
    """What needs a gradient is on one rank; the backward pass is one of both."""
    W, (x, target), here, rank = matrix(), vectors(SIZE), mine(), dist.get_rank()
    w = W.clone().requires_grad_(rank == 0)
    solution = sg.steady_state(lambda h: torch.tanh(w[here] @ whole_of(h) + x[here]), torch.zeros(SIZE)[here], group=group())
    assert solution.value.requires_grad
    (solution.value @ target[here]).backward()
    whole = W.clone().requires_grad_()
    reference = sg.steady_state(lambda h: torch.tanh(whole @ h + x), torch.zeros(SIZE))
    (reference.value @ target).backward()
    if rank == 0:
        close(w.grad[here], whole.grad[here], 1e-9)
    with torch.no_grad():
        assert not sg.steady_state(lambda h: 0.5 * h + x[here], torch.zeros(SIZE)[here], group=group()).value.requires_grad


def check_warm_starts():
    W, (x, target), here = matrix(), vectors(SIZE), mine()

    def trained(rows, product, spoilt=False, **options):
        steps, warm, w = [], None, W.clone().requires_grad_()
        for _ in range(3):
            solution = sg.steady_state(
                lambda h, w=w: torch.tanh(product(w, h) + x[rows]),
                torch.zeros(SIZE)[rows],
                warm=warm,
                gradient="gmres",
                **options,
            )
            (gradient,) = torch.autograd.grad(solution.value @ target[rows], w)
            if options:
                dist.all_reduce(gradient)
            steps.append((solution.steps, solution.adjoint.products))
            w, warm = (w - 1e-3 * gradient).detach().requires_grad_(), solution
            if spoilt and dist.get_rank() == 1:
                warm.value.data[0] = float("nan")
        return steps

    whole = trained(slice(None), lambda w, h: w @ h)
    part = trained(here, lambda w, h: w[here] @ whole_of(h), group=group())
    assert part == whole, (part, whole)
    assert part[1] < part[0]
    spoilt = trained(here, lambda w, h: w[here] @ whole_of(h), spoilt=True, group=group())
    assert spoilt[1][0] == spoilt[0][0], "a start that does not fit on one rank is cold on all"


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


def check_all_raise_together():
    W, (x, target), here = matrix(2.5), vectors(SIZE), mine()
    start = torch.zeros(SIZE)[here]
    error = raised(lambda: sg.steady_state(lambda h: W[here] @ whole_of(h) + x[here], start, group=group(), on_failure="raise"))
    assert isinstance(error, sg.SteadyStateError)
    assert "ended DIVERGED" in str(error)
    same_on_all(str(error))

    w = matrix(0.99).requires_grad_()
    few = sg.Implicit(sg.Neumann(rtol=1e-9, max_steps=5))
    solution = sg.steady_state(
        lambda h: torch.tanh(w[here] @ whole_of(h) + 0.01 * x[here]), start, group=group(), gradient=few, on_failure="raise",
        forward=sg.Newton(),
    )  # fmt: skip
    error = raised(lambda: (solution.value @ target[here]).backward())
    assert "the adjoint solve by Neumann" in str(error)
    same_on_all(str(error))

    nan = torch.full_like(start, float("nan") if dist.get_rank() else 0.0)
    error = raised(lambda: sg.steady_state(lambda h: 0.5 * h + nan, start, group=group()))
    assert "inf or NaN on its first call" in str(error)
    quiet = sg.steady_state(lambda h: 0.5 * h + nan, start, group=group(), on_failure="ignore")
    assert quiet.status is sg.Status.NONFINITE


def check_errors_before_the_solve_reach_all():
    start, rank = torch.zeros(SIZE)[mine()], dist.get_rank()
    error = raised(lambda: sg.steady_state(lambda h: 0.5 * h, start, group=group(), batch_dims=3 if rank else 0))
    expected = "batch_dims=3, but the state" if rank else "rank 1 of the group raised an error before the solve"
    assert expected in str(error), error
    error = raised(lambda: sg.steady_state(lambda h: 0.5 * h, start, group=group(), gradient="gmres" if rank else "lsqr"))
    assert "different settings" in str(error)
    error = raised(lambda: sg.steady_state(lambda h: 0.5 * h, start[: 1 if rank else 4], group=group()))
    assert "at least two numbers of each problem; the ranks hold [4, 1]" in str(error)


def check_what_is_refused():
    start = torch.zeros(SIZE)[mine()]
    for options, words in (
        ({"gradient": "dense"}, "Dense() builds J of the whole state"),
        ({"forward": sg.Newton(linear=sg.Dense())}, "Dense() builds J of the whole state"),
        ({"forward": sg.NewtonCG()}, "minimises an energy"),
        ({"compile": True}, "cannot trace the exchange"),
        ({"gradient": sg.Implicit(sg.Picard(), initial="uniform")}, "would depend on the division"),
    ):
        error = raised(lambda options=options: sg.steady_state(lambda h: 0.5 * h, start, group=group(), **options))
        assert isinstance(error, ValueError), error
        assert words in str(error), error
    from torch.distributed.tensor import DTensor, Shard, init_device_mesh

    tensor = DTensor.from_local(torch.zeros(4), init_device_mesh("cpu", (2,)), [Shard(0)])
    error = raised(lambda: sg.steady_state(lambda h: 0.5 * h, tensor))
    assert isinstance(error, TypeError), error
    assert "to_local()" in str(error)
    error = raised(lambda: sg.Equilibrium(torch.nn.GRUCell(2, 2), group=group(), diagnose_every=5))
    assert "one process" in str(error)


def check_roots_and_layers():
    W, (x, target), here = matrix(), vectors(SIZE), mine()
    w, shared = W.clone().requires_grad_(), W.clone().requires_grad_()
    whole = sg.root(lambda h: h - torch.tanh(w @ h + x), torch.zeros(SIZE))
    part = sg.root(lambda h: h - torch.tanh(shared[here] @ whole_of(h) + x[here]), torch.zeros(SIZE)[here], group=group())
    (whole.value @ target).backward()
    (part.value @ target[here]).backward()
    sg.sum_gradients([shared], group())
    close(shared.grad, w.grad, 1e-9)
    assert part.steps == whole.steps

    class Cell(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.weight = torch.nn.Parameter(W.clone())

        def forward(self, x, h):
            return torch.tanh(self.weight[here] @ whole_of(h) + x)

    layer = copy.deepcopy(sg.Equilibrium(Cell(), group=group(), initial=torch.zeros_like))
    (layer(x[here]) @ target[here]).backward()
    sg.sum_gradients(layer.parameters(), group())
    close(layer.cell.weight.grad, w.grad, 1e-4)
    assert "cannot be pickled" in str(raised(lambda: pickle.dumps(layer.group)))


def check_exchange_without_a_derivative_is_noticed():
    W, (x, _), here = matrix(0.5), vectors(SIZE), mine()

    def gathered(h):
        whole = h.new_empty(SIZE)
        dist.all_to_all_single(whole, h.detach().repeat(2), CUTS, [CUTS[dist.get_rank()]] * 2)
        parts = list(whole.split(CUTS))
        parts[dist.get_rank()] = h
        return torch.cat(parts)

    w = W.clone().requires_grad_()
    solve = lambda: sg.steady_state(lambda h: torch.tanh(w[here] @ gathered(h) + x[here]), 0 * x[here], group=group())  # noqa: E731
    error = raised(solve)
    assert "a collective without a derivative" in str(error)
    alone = sg.steady_state(lambda h: torch.tanh(0.5 * h + w[here, here] @ h + x[here]), 0 * x[here], group=group())
    alone.value.sum().backward()  # nothing is exchanged: nothing is missing
    assert alone.adjoint.converged


def check_groups_of_some_ranks():
    """Each rank in a group of its own: two solves that know nothing of each other, with different numbers of steps."""
    own = [dist.new_group([rank]) for rank in range(2)][dist.get_rank()]
    W, x = matrix(0.9 if dist.get_rank() else 0.3), vectors(SIZE)[0]
    alone = sg.steady_state(lambda h: torch.tanh(W @ h + x), torch.zeros(SIZE))
    grouped = sg.steady_state(lambda h: torch.tanh(W @ h + x), torch.zeros(SIZE), group=own)
    assert grouped.steps == alone.steps
    close(grouped.value, alone.value, 1e-12)


def check_what_needs_a_gradient_on_one_rank_through_the_steps():
    W, (x, target), here = matrix(0.5), vectors(SIZE), mine()
    for gradient in ("bptt", "tbptt", sg.BPTT(checkpoints=3), "phantom"):
        start = torch.zeros(SIZE)[here].requires_grad_(dist.get_rank() == 0)
        w = W.clone().requires_grad_(dist.get_rank() == 0)
        solution = sg.steady_state(
            lambda h, w=w: torch.tanh(w[here] @ whole_of(h) + x[here]), start, group=group(), gradient=gradient,
            forward=sg.Picard(max_steps=6, rtol=0),
        )  # fmt: skip
        (solution.value @ target[here]).backward()
        whole, v = torch.zeros(SIZE, requires_grad=True), W.clone().requires_grad_()
        reference = sg.steady_state(
            lambda h, v=v: torch.tanh(v @ h + x), whole, gradient=gradient, forward=sg.Picard(max_steps=6, rtol=0)
        )
        (reference.value @ target).backward()
        if dist.get_rank() == 0:
            close(w.grad[here], v.grad[here], 1e-9)
            assert (start.grad is None) == (whole.grad is None)
            if start.grad is not None:
                close(start.grad, whole.grad[here], 1e-9)


def check_sums_of_gradients():
    rank = dist.get_rank()
    a, b, c = (torch.zeros(3, requires_grad=True) for _ in range(3))
    d = torch.zeros(2, dtype=torch.float32, requires_grad=True)
    a.grad, d.grad = torch.full((3,), 1.0 + rank), torch.full((2,), 5.0, dtype=torch.float32)
    if rank:
        b.grad = torch.full((3,), 7.0)
    sg.sum_gradients([a, b, c, d, torch.zeros(1)], group())
    assert a.grad.tolist() == [3.0] * 3
    assert b.grad.tolist() == [7.0] * 3
    assert c.grad is None
    assert d.grad.tolist() == [10.0] * 2
    error = raised(lambda: sg.sum_gradients([a] if rank else [a, b], group()))
    assert "different parameters on different ranks" in str(error)


CHECKS = {
    **{f"method {name}": lambda options=options: check_method(options) for name, options in METHODS.items()},
    **{f"method {name}": lambda options=options: check_method(options, symmetric=True) for name, options in SYMMETRIC.items()},
    **{
        name[6:].replace("_", " "): check
        for name, check in list(globals().items())
        if name.startswith("check_") and name != "check_method"
    },
}


def main(folder):
    torch.set_default_dtype(torch.float64)
    warnings.simplefilter("error", sg.SteadyStateWarning)
    dist.init_process_group("gloo", timeout=timedelta(seconds=30))
    run_checks(CHECKS, folder, dist.get_rank())
    dist.destroy_process_group()


if __name__ == "__main__":
    main(sys.argv[1])
