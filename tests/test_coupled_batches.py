"""Problems that are not independent, or not what they were: batch_dims believes nothing that it has not compared."""

import warnings

import pytest
import torch
from torch import nn

import steadygrad as sg
from problems import relative

F64 = torch.float64
pytestmark = pytest.mark.usefixtures("leaving_out_always_pays")


def inputs(rows=64, size=5):
    generator = torch.Generator().manual_seed(0)
    W = torch.randn(size, size, generator=generator, dtype=F64)
    W = (0.9 * W / torch.linalg.matrix_norm(W, 2)).requires_grad_()
    X = torch.randn(rows, size, generator=generator, dtype=F64)
    X[::2] *= 5  # saturated: these end first
    return W, X


def coupled(W):
    return lambda h, X: torch.tanh(0.5 * h @ W.T + 0.3 * h.mean(0) + X)


def by_position(W):
    table = torch.linspace(-1, 1, 64, dtype=F64).unsqueeze(1)
    return lambda h, X: torch.tanh(0.5 * h @ W.T + table[: len(h)] + X)


@pytest.mark.parametrize("make", [coupled, by_position])
@pytest.mark.parametrize("forward", [sg.Picard(500, 1e-9), sg.Anderson(500, 1e-9)], ids=repr)
def test_an_update_that_couples_its_problems_is_said_and_solved_together(make, forward):
    W, X = inputs()
    F = make(W)
    h0 = torch.zeros(64, 5, dtype=F64)
    with pytest.warns(sg.SteadyStateWarning, match="F couples the problems of the batch.*batch_dims=0"):
        solution = sg.steady_state(F, h0, X, batch_dims=1, forward=forward)
    whole = sg.steady_state(lambda h: F(h, X), h0, forward=sg.Picard(2000, 1e-12))
    assert relative(solution.value.detach(), whole.value.detach()) < 1e-6
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        (grad,) = torch.autograd.grad(solution.value.square().sum(), W)
    (expected,) = torch.autograd.grad(whole.value.square().sum(), W)
    assert relative(grad, expected) < 1e-4


@pytest.mark.parametrize("gradient", ["auto", "gmres", "lsqr", "rbp"])
def test_a_closure_that_changes_between_solve_and_backward(gradient):
    """A Python loop over s: the lambda of every turn sees the last s when the backward pass calls it."""
    generator = torch.Generator().manual_seed(0)
    Q = torch.linalg.qr(torch.randn(6, 6, generator=generator, dtype=F64))[0].requires_grad_()
    gains = torch.tensor([0.1, 0.1, 0.1, 0.1, 0.1, 0.1, 0.1, 0.95], dtype=F64).unsqueeze(1)
    x = torch.randn(8, 6, generator=generator, dtype=F64)
    method = sg.Implicit(sg.Picard(1000, 1e-10)) if gradient == "rbp" else gradient
    values = []
    for s in (0.9, 0.5, 0.2):
        values.append(
            sg.steady_state(
                lambda h, g, x: torch.tanh(s * g * (h @ Q.T) + x),  # noqa: B023
                torch.zeros(8, 6, dtype=F64),
                gains,
                x,
                batch_dims=1,
                gradient=method,
                forward=sg.Picard(3000, 1e-11),
            ).value
        )
    found = torch.autograd.grad(sum(value.square().sum() for value in values), Q)[0]
    expected = torch.zeros_like(Q)
    for s in (0.9, 0.5, 0.2):
        value = sg.steady_state(
            lambda h, s=s: torch.tanh(s * gains * (h @ Q.T) + x), torch.zeros(8, 6, dtype=F64), forward=sg.Picard(3000, 1e-12)
        ).value
        expected += torch.autograd.grad(value.square().sum(), Q)[0]
    assert relative(found, expected) < 1e-6


def test_a_cell_whose_attribute_changes_between_two_calls():
    class Cell(nn.Module):
        def __init__(self):
            super().__init__()
            self.linear = nn.Linear(4, 4, dtype=F64)
            with torch.no_grad():
                self.linear.weight.mul_(0.9 / torch.linalg.matrix_norm(self.linear.weight, 2))
            self.gain = 1.0

        def forward(self, x, h):
            return torch.tanh(self.gain * x[:, :1].abs() * self.linear(h) + x)

    cell = Cell()
    x = torch.randn(16, 4, dtype=F64)
    x[:, 0] = torch.linspace(0.01, 1, 16, dtype=F64)
    layer = sg.Equilibrium(cell, batch_dims=1, forward=sg.Picard(3000, 1e-11), initial=torch.zeros_like)
    first = layer(x).square().sum()
    cell.gain = 0.3
    second = layer(x).square().sum()
    found = torch.autograd.grad(first + second, cell.linear.weight)[0]
    expected = torch.zeros_like(found)
    for gain in (1.0, 0.3):
        cell.gain = gain
        value = sg.steady_state(lambda h: cell(x, h), torch.zeros_like(x), forward=sg.Picard(3000, 1e-12)).value
        expected += torch.autograd.grad(value.square().sum(), cell.linear.weight)[0]
    assert relative(found, expected) < 1e-6


class TestGraphsBatchedAsOne:
    """batch_index: a problem a graph, its nodes anywhere in the first dimension."""

    sizes = (3, 1, 5)
    slopes = (0.1, 0.9, 0.5)

    def problem(self):
        generator = torch.Generator().manual_seed(0)
        blocks = [
            s * torch.linalg.qr(torch.randn(n, n, generator=generator, dtype=F64))[0]
            for s, n in zip(self.slopes, self.sizes, strict=True)
        ]
        A = torch.block_diag(*blocks)
        index = torch.repeat_interleave(torch.arange(3), torch.tensor(self.sizes))
        order = torch.randperm(9, generator=generator)  # nodes of a graph need not stand together
        A, index = A[order][:, order], index[order]
        x = torch.randn(9, 2, generator=generator, dtype=F64, requires_grad=True)
        return A, index, x

    @pytest.mark.parametrize("forward", [sg.Picard(3000, 1e-11), sg.Anderson(3000, 1e-11)], ids=repr)
    @pytest.mark.parametrize("gradient", ["auto", "gmres", "cg-rbp", "lsqr", "bicgstab", "neumann-rbp", "dense"])
    def test_each_graph_equals_its_solve_alone(self, gradient, forward):
        A, index, x = self.problem()
        solution = sg.steady_state(
            lambda h: torch.tanh(A @ h + x), torch.zeros(9, 2, dtype=F64), batch_index=index, gradient=gradient, forward=forward
        )
        assert solution.converged.shape == (3,)
        (grad,) = torch.autograd.grad(solution.value.square().sum(), x)
        for graph in range(3):
            nodes = (index == graph).nonzero().flatten()
            B = A[nodes][:, nodes]
            xs = x.detach()[nodes].requires_grad_()
            alone = sg.steady_state(
                lambda h, B=B, xs=xs: torch.tanh(B @ h + xs),
                torch.zeros(len(nodes), 2, dtype=F64),
                gradient=gradient,
                forward=forward,
            )
            assert relative(solution.value.detach()[nodes], alone.value.detach()) < 1e-7
            (expected,) = torch.autograd.grad(alone.value.square().sum(), xs)
            assert relative(grad[nodes], expected) < 1e-6

    def test_a_graph_that_fails_is_the_one_that_is_named(self):
        slope = torch.tensor([0.5, 3.0, 0.2], dtype=F64)
        index = torch.tensor([0, 1, 2, 0, 1, 2])
        with pytest.warns(sg.SteadyStateWarning, match="1 of 3 problems: the search"):
            solution = sg.steady_state(
                lambda h: slope[index].unsqueeze(1) * h + 1, torch.zeros(6, 2, dtype=F64), batch_index=index, gradient="gmres"
            )
        assert solution.converged.tolist() == [True, False, True]

    def test_nested_states(self):
        A, index, x = self.problem()
        start = {"h": torch.zeros(9, 2, dtype=F64), "c": torch.zeros(9, dtype=F64)}

        def update(s):
            return {"h": torch.tanh(A @ s["h"] + x), "c": 0.5 * s["c"] + s["h"].sum(1)}

        solution = sg.steady_state(update, start, batch_index=index, forward=sg.Picard(3000, 1e-10))
        assert solution.converged.all()
        assert torch.allclose(solution.value["c"], 2 * solution.value["h"].sum(1))

    @pytest.mark.parametrize(
        ("index", "match"),
        [
            (torch.tensor([0, 1]), r"one number a node.*\(9,\).*got \(2,\)"),
            (torch.zeros(9), "whole numbers"),
            (torch.full((9,), -1), "count from 0"),
            (torch.tensor([0, 0, 0, 0, 0, 0, 0, 0, 2]), "graph 1 has no node"),
        ],
    )
    def test_bad_indices(self, index, match):
        with pytest.raises((ValueError, TypeError), match=match):
            sg.steady_state(lambda h: 0.5 * h, torch.zeros(9, 2), batch_index=index)

    def test_not_with_batch_dims(self):
        with pytest.raises(ValueError, match=r"batch_index.*batch_dims"):
            sg.steady_state(lambda h: 0.5 * h, torch.zeros(9, 2), batch_index=torch.zeros(9, dtype=torch.long), batch_dims=1)


@pytest.mark.parametrize("strength", [0.3, 0.6])
@pytest.mark.parametrize(
    "gradient", ["auto", "dense", "lsqr", "gmres", "cg-rbp", "bicgstab", "anderson", "rbp", sg.Implicit(sg.Neumann())], ids=str
)
def test_problems_that_are_coupled_by_what_f_closes_over(gradient, strength):
    """Nothing is left out without args, and J of all problems together is what products see; the columns of a dense one do not."""
    W, X = inputs(rows=6)
    F = lambda h: torch.tanh(0.4 * h @ W.T + strength * h.mean(0) + X)  # noqa: E731
    h0 = torch.zeros(6, 5, dtype=F64)
    whole = sg.steady_state(F, h0, forward=sg.Picard(2000, 1e-12))
    (expected,) = torch.autograd.grad(whole.value.square().sum(), W)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        solution = sg.steady_state(F, h0, batch_dims=1, gradient=gradient, forward=sg.Picard(500, 1e-9))
        (grad,) = torch.autograd.grad(solution.value.square().sum(), W)
    assert caught or relative(grad, expected) < 1e-4
    assert solution.adjoint.status is not sg.Status.CONVERGED or relative(grad, expected) < 1e-3
    if gradient == "dense":
        assert solution.adjoint.status is sg.Status.STAGNATED
        assert "F couples the problems of the batch" in str(caught[0].message)


def test_a_failure_of_problems_of_their_own_says_nothing_of_coupling():
    x = torch.ones(3, 2, requires_grad=True)
    solution = sg.steady_state(lambda h: 1.5 * h + x, torch.zeros(3, 2), batch_dims=1, forward=sg.Newton(), gradient="rbp")
    with pytest.warns(sg.SteadyStateWarning, match="DIVERGED") as caught:
        solution.value.sum().backward()
    assert "couples" not in str(caught[0].message)


@pytest.mark.parametrize("nested", [False, True])
def test_diagnose_looks_at_coupled_problems_as_one(nested):
    W, X = inputs(rows=6)
    one = lambda h: torch.tanh(0.4 * h @ W.T + 0.6 * h.mean(0) + 0.1 * X)  # noqa: E731
    F = (lambda h: {"h": one(h["h"])}) if nested else one
    start = torch.zeros(6, 5, dtype=F64)
    h = sg.steady_state(F, {"h": start} if nested else start, forward=sg.Picard(2000, 1e-12)).value
    whole = sg.diagnose(F, h)
    with pytest.warns(sg.SteadyStateWarning, match="F couples the problems of the batch.*batch_dims=0"):
        diagnosis = sg.diagnose(F, h, batch_dims=1)
    assert diagnosis.to_dict() == whole.to_dict()


def test_diagnose_of_problems_of_their_own():
    W, X = inputs(rows=6)
    h = sg.steady_state(
        lambda h: torch.tanh(0.4 * h @ W.T + X), torch.zeros(6, 5, dtype=F64), forward=sg.Picard(2000, 1e-12)
    ).value
    assert sg.diagnose(lambda h: torch.tanh(0.4 * h @ W.T + X), h, batch_dims=1).trustworthy
