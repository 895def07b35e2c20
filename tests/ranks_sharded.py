"""Run by torchrun in two processes (tests/test_sharded.py): a state that is divided equals the whole one."""

import sys
import warnings
from datetime import timedelta

import torch
import torch.distributed as dist

import divided_failures
import steadygrad as sg
from divided import CUTS, SIZE, Compared, close, group, matrix, mine, same_certificate, vectors, whole_of
from processes import leave, run_checks

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


def check_what_the_distance_of_the_state_does_to_the_gradient():
    """All ranks look at it, or none; each sees its own part of the gradient, and all say what the worst sees."""
    for radius, options in ((0.5, {}), (0.95, {}), (0.95, {"batch_dims": 1})):
        x, target = vectors(2, SIZE)
        forward = sg.Picard(max_steps=500, rtol=1e-3)
        compared = Compared(matrix(radius), x, target, forward=forward, gradient="gmres", on_failure="ignore", **options)
        whole, part = compared.whole.adjoint.shift, compared.part.adjoint.shift
        assert whole / 3 < part < 3 * whole, (whole, part)


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


CHECKS = {
    **{f"method {name}": lambda options=options: check_method(options) for name, options in METHODS.items()},
    **{f"method {name}": lambda options=options: check_method(options, symmetric=True) for name, options in SYMMETRIC.items()},
    **{
        name[6:].replace("_", " "): check
        for name, check in [*globals().items(), *vars(divided_failures).items()]
        if name.startswith("check_") and name != "check_method"
    },
}


def main(folder):
    torch.set_default_dtype(torch.float64)
    warnings.simplefilter("error", sg.SteadyStateWarning)
    dist.init_process_group("gloo", timeout=timedelta(seconds=30))
    run_checks(CHECKS, folder, dist.get_rank())
    leave()


if __name__ == "__main__":
    main(sys.argv[1])
