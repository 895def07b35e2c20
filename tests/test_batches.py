"""batch_dims: every problem has its own residual, coefficients and stop."""

import itertools
import math

import pytest
import torch

import steadygrad as sg
from problems import relative

pytestmark = pytest.mark.usefixtures("leaving_out_always_pays")
METHODS = ["auto", "rbp", "cg-rbp", "lsqr", "gmres", "bicgstab", "anderson", "dense"]
LONG = [sg.Picard(3000, 1e-11), sg.Anderson(3000, 1e-11), sg.Broyden(3000, 1e-11)]
GAINS = [0.05, 0.5, 0.9, 0.97]


def ragged(seed=0, size=6):
    """Four problems of very different difficulty: F = tanh(gain · Q h + x), gain and x belonging to each."""
    generator = torch.Generator().manual_seed(seed)
    Q = torch.linalg.qr(torch.randn(size, size, generator=generator, dtype=torch.float64))[0].requires_grad_()
    x = torch.randn(4, size, generator=generator, dtype=torch.float64).requires_grad_()
    gain = torch.tensor(GAINS, dtype=torch.float64).unsqueeze(1)
    return Q, gain, x, torch.zeros(4, size, dtype=torch.float64)


@pytest.mark.parametrize("forward", LONG, ids=repr)
@pytest.mark.parametrize("gradient", METHODS)
@pytest.mark.parametrize("by_args", [True, False], ids=["args", "closure"])
def test_each_equals_its_solve_alone(gradient, forward, by_args):
    Q, gain, x, h0 = ragged()

    def solve(rows, batch_dims):
        if by_args:
            return sg.steady_state(
                lambda h, g, x: torch.tanh(g * (h @ Q.T) + x),
                h0[rows],
                gain[rows],
                x[rows],
                forward=forward,
                gradient=gradient,
                batch_dims=batch_dims,
            )
        return sg.steady_state(
            lambda h: torch.tanh(gain[rows] * (h @ Q.T) + x[rows]),
            h0[rows],
            forward=forward,
            gradient=gradient,
            batch_dims=batch_dims,
        )

    together = solve([0, 1, 2, 3], 1)
    assert together.converged.tolist() == [True] * 4
    grad = torch.autograd.grad(together.value.square().sum(), (Q, x))
    assert together.adjoint.converged.tolist() == [True] * 4
    alone = [solve([i], 0) for i in range(4)]
    sums = [torch.autograd.grad(one.value.square().sum(), (Q, x)) for one in alone]
    assert torch.allclose(together.value, torch.cat([one.value for one in alone]), rtol=1e-8)
    assert together.steps == pytest.approx(max(one.steps for one in alone), rel=1 / 3, abs=1)  # looked at when due
    for mine, theirs in zip(grad, map(sum, zip(*sums, strict=True)), strict=True):
        assert relative(mine, theirs) < (1e-4 if gradient in ("rbp", "anderson") else 1e-7)


@pytest.mark.parametrize("forward", LONG, ids=repr)
def test_finished_problems_are_dropped_with_args_and_frozen_without(forward):
    Q, gain, x, h0 = ragged()
    sizes = []

    def update(h, g, x):
        sizes.append(len(h))
        return torch.tanh(g * (h @ Q.T) + x)

    sg.steady_state(update, h0, gain, x, forward=forward, batch_dims=1)
    assert sizes[0] == 4
    assert min(sizes) < 3
    assert sizes[-2:] == [4, 4]  # a look at all of them at the end, and the linearisation
    steps = [size for size, after in itertools.pairwise(sizes) if size == after]
    assert steps == [*sorted(steps[:-1], reverse=True), 4]  # but for the comparisons before problems are left out
    sizes.clear()
    sg.steady_state(lambda h: update(h, gain, x), h0, forward=forward, batch_dims=1)
    assert set(sizes) == {4}


def test_work_saved():
    """A hard problem does not hold the batch: rows of F evaluated are nearly those of solving each alone."""
    Q, gain, x, h0 = ragged()
    rows = 0

    def update(h, g, x):
        nonlocal rows
        rows += len(h)
        return torch.tanh(g * (h @ Q.T) + x)

    options = {"forward": sg.Picard(3000, 1e-10)}
    sg.steady_state(update, h0, gain, x, batch_dims=1, **options)
    together, rows = rows, 0
    for i in range(4):
        sg.steady_state(update, h0[i : i + 1], gain[i : i + 1], x[i : i + 1], **options)
    assert together <= 1.25 * rows


@pytest.mark.parametrize("gradient", ["auto", "rbp", "cg-rbp", "lsqr", "gmres", "bicgstab", "anderson"])
def test_hard_problems_are_linearised_alone_in_the_adjoint(gradient):
    """When a quarter is left, the backward pass goes on with these only."""
    generator = torch.Generator().manual_seed(0)
    Q = torch.linalg.qr(torch.randn(30, 30, generator=generator, dtype=torch.float64))[0].requires_grad_()
    gain = torch.tensor([0.1, 0.1, 0.1, 0.1, 0.1, 0.1, 0.1, 0.9], dtype=torch.float64).unsqueeze(1)
    x = torch.randn(8, 30, generator=generator, dtype=torch.float64)
    sizes = []

    def update(h, g, x):
        sizes.append(len(h))
        return torch.tanh(g * (h @ Q.T) + x)

    method = sg.Implicit(sg.Picard(1000, 1e-10)) if gradient == "rbp" else gradient
    solution = sg.steady_state(
        update, torch.zeros(8, 30).double(), gain, x, batch_dims=1, gradient=method, forward=sg.Picard(3000, 1e-12)
    )
    sizes.clear()
    (grad,) = torch.autograd.grad(solution.value.square().sum(), Q)
    assert sizes[-1] == 1
    assert len(sizes) <= 3
    assert solution.adjoint.converged.all()
    plain = sg.steady_state(
        lambda h: torch.tanh(gain * (h @ Q.T) + x), torch.zeros(8, 30).double(), gradient="dense", forward=sg.Picard(3000, 1e-12)
    )
    (expected,) = torch.autograd.grad(plain.value.square().sum(), Q)
    assert relative(grad, expected) < (1e-4 if gradient == "anderson" else 1e-8)


def test_more_batch_dimensions_and_nested_states():
    a = torch.rand(2, 3, 1, dtype=torch.float64) * 0.8
    a.requires_grad_()
    start = {"h": torch.zeros(2, 3, 4).double(), "c": torch.zeros(2, 3).double()}
    solution = sg.steady_state(
        lambda s, a: {"h": a * s["h"] + s["c"].unsqueeze(-1), "c": 0.5 * s["c"] + 1},
        start,
        a,
        batch_dims=2,
        forward=sg.Picard(500, 1e-12),
    )
    assert solution.converged.shape == (2, 3)
    assert torch.allclose(solution.value["h"], (2 / (1 - a)).expand(2, 3, 4))
    (grad,) = torch.autograd.grad(solution.value["h"].sum(), a)
    assert torch.allclose(grad, 8 / (1 - a) ** 2)


@pytest.mark.parametrize("by_args", [True, False], ids=["args", "closure"])
def test_one_diverging_sample_spoils_no_other(by_args):
    slope = torch.tensor([[0.5], [3.0], [0.2]], dtype=torch.float64)
    w = torch.ones(1, dtype=torch.float64, requires_grad=True)
    h0 = torch.zeros(3, 2).double()
    args = (slope,) if by_args else ()
    with pytest.warns(sg.SteadyStateWarning, match="1 of 3 problems: the search.*DIVERGED"):
        solution = sg.steady_state(lambda h, s=slope: s * h + w, h0, *args, batch_dims=1, gradient="gmres")
    assert solution.converged.tolist() == [True, False, True]
    (grad,) = torch.autograd.grad(solution.value[solution.converged].sum(), w)
    assert grad.item() == pytest.approx(2 * (2 + 1.25), rel=1e-4)
    assert solution.problems.statuses[1] is sg.Status.DIVERGED


def test_one_nan_sample_spoils_no_other():
    x = torch.ones(3, 2, dtype=torch.float64)
    x[1] = math.nan
    w = torch.full((1,), 0.5, dtype=torch.float64, requires_grad=True)
    with pytest.warns(sg.SteadyStateWarning, match="1 of 3 problems: the search.*NONFINITE"):
        solution = sg.steady_state(
            lambda h, x: w * h + x, torch.zeros(3, 2).double(), x, batch_dims=1, forward=sg.Picard(200, 1e-10)
        )
    assert solution.converged.tolist() == [True, False, True]
    with pytest.warns(sg.SteadyStateWarning, match="1 of 3 problems: the adjoint"):
        solution.value[solution.converged].sum().backward()
    assert w.grad.item() == pytest.approx(16.0)
    assert solution.adjoint.converged.tolist() == [True, False, True]


def test_unrolled_methods_stop_each_problem_by_itself():
    Q, gain, x, h0 = ragged()
    solution = sg.steady_state(
        lambda h: torch.tanh(gain * (h @ Q.T) + x), h0, batch_dims=1, gradient="bptt", forward=sg.Picard(3000, 1e-6)
    )
    for i in range(4):
        alone = sg.steady_state(
            lambda h, i=i: torch.tanh(gain[i] * (h @ Q.T) + x[i]), h0[i], gradient="bptt", forward=sg.Picard(3000, 1e-6)
        )
        assert torch.allclose(solution.value[i], alone.value, rtol=1e-5)


def test_dropout_freezes_instead_of_dropping():
    """A mask drawn for fewer rows would be another mask."""
    Q, gain, x, h0 = ragged()
    drop = torch.nn.Dropout(0.3)
    sizes = set()

    def update(h, g, x):
        sizes.add(len(h))
        return drop(torch.tanh(0.5 * g * (h @ Q.T) + x))

    assert sg.steady_state(update, h0, gain, x, batch_dims=1, forward=sg.Picard(3000)).converged.all()
    assert sizes == {4}


def test_args_without_the_batch_dimension():
    with pytest.raises(ValueError, match=r"must begin with \(4,\); got shape \(6, 6\).*Close over"):
        sg.steady_state(lambda h, W: torch.tanh(h @ W), torch.zeros(4, 6), torch.zeros(6, 6), batch_dims=1)


def test_leaves_with_different_batches():
    with pytest.raises(ValueError, match="begin with the same dimensions"):
        sg.steady_state(lambda s: s, (torch.zeros(4, 6), torch.zeros(3, 6)), batch_dims=1)


def test_layer():
    layer = sg.Equilibrium(torch.nn.GRUCell(3, 5), batch_dims=1, forward=sg.Picard(500))
    layer(torch.randn(7, 3)).sum().backward()
    assert layer.solution.converged.shape == layer.solution.adjoint.converged.shape == (7,)


class TestRowsOutsideTheArgs:
    """A tensor with a row a problem that F closes over cannot follow when ended problems are dropped."""

    rates = torch.cat([torch.full((60, 1), 0.1), torch.full((4, 1), 0.98)])
    beside = torch.linspace(0, 1, 64).unsqueeze(1)

    @pytest.mark.parametrize(
        "F",
        [
            lambda self, h, r: r * h + self.beside,
            lambda self, h, r: torch.stack([r[i] * h[i] + self.beside[i] for i in range(64)]),
            lambda self, h, r: torch.zeros(64, 1).index_add(0, torch.arange(len(h)), r * h + 1),
        ],
        ids=["size mismatch", "index", "returns all rows"],
    )
    def test_error_says_what_to_do(self, F):
        with pytest.raises(
            sg.SteadyStateError, match=r"failed on \d+ of 64.*among the args.*steady_state\(update, h0, x, that\)"
        ):
            sg.steady_state(lambda h, r: F(self, h, r), torch.zeros(64, 1), self.rates, batch_dims=1, forward=sg.Picard(2000))

    def test_among_the_args_it_works(self):
        F = lambda h, r, c: r * h + c["offset"]  # noqa: E731
        args = (self.rates, {"offset": self.beside, "name": "offset"})
        solution = sg.steady_state(F, torch.zeros(64, 1), *args, batch_dims=1, forward=sg.Picard(2000, rtol=1e-6))
        assert torch.allclose(solution.value, self.beside / (1 - self.rates), rtol=1e-3)

    def test_an_error_on_all_rows_passes_through(self):
        def broken(h, r):
            raise KeyError("mine")

        with pytest.raises(KeyError, match="mine"):
            sg.steady_state(broken, torch.zeros(64, 1), self.rates, batch_dims=1)
