"""What divided states do besides being solved: failures that come to all ranks, refusals, layers, groups (tests/ranks_sharded.py)."""

import copy
import pickle

import torch
import torch.distributed as dist

import steadygrad as sg
from divided import CUTS, SIZE, close, group, matrix, mine, raised, same_on_all, vectors, whole_of


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
